"""What a person sees while a run goes on: a progress bar on a terminal, plain lines when piped."""
from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

SHOWN = {"eval/episode_reward": "eval reward", "eval/success_rate": "success", "train/episode_reward_mean": "reward"}
LINE_EVERY = 10.0                     # seconds between plain lines; an evaluation is always told


class Console:
    """Shows steps, steps per second, rewards and time left. Output that goes nowhere never stops a run."""

    def __init__(self, total: int | None, *, progress: bool, keep: Callable[[str], None], start_step: int = 0,
                 terminal: bool | None = None):
        """`keep` receives every plain line as well (console.log); `progress` False shows warnings only."""
        self.total, self.progress, self.keep = total, progress, keep
        terminal = sys.stderr is not None and sys.stderr.isatty() if terminal is None else terminal
        self._start, self._began = start_step, time.monotonic()
        self._told = 0.0
        self._values: dict[str, float] = {}
        self._row: tuple[int, bool] | None = None
        self._bar: Any = None
        if progress and terminal:
            from tqdm import tqdm
            sized = _columns() > 0                # a terminal that does not know its size would show nothing
            self._bar = tqdm(total=total, initial=start_step, unit=" env steps", unit_scale=True, dynamic_ncols=sized,
                             ncols=None if sized else 120, nrows=None if sized else 24, smoothing=0.1, file=sys.stderr)

    def row(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Take in what was logged for a step."""
        for name in SHOWN:
            if isinstance(metrics.get(name), (int, float)):
                self._values[name] = metrics[name]
        if self._bar is not None:
            self._guard(lambda: self._move(step))
        evaluated = "eval/episode_reward" in metrics
        if evaluated or time.monotonic() - self._told >= LINE_EVERY:
            self._told = time.monotonic()
            line = self.line(step)
            self.keep(line)
            if self.progress and self._bar is None:
                self._guard(lambda: print(line, flush=True))

    def line(self, step: int) -> str:
        """`step 40,000 of 2,000,000 (2 %) · 12,345 steps/s · eval reward -9.12 · 2:31 left`"""
        seconds = max(time.monotonic() - self._began, 1e-9)
        speed = max(step - self._start, 0) / seconds
        parts = [f"step {step:,}"]
        if self.total:
            parts[0] += f" of {self.total:,} ({100 * step / self.total:.0f} %)"
        parts.append(f"{speed:,.0f} steps/s")
        parts += [f"{label} {self._values[name]:.2f}" for name, label in SHOWN.items() if name in self._values]
        if self.total and speed > 0 and step < self.total:
            left = int((self.total - step) / speed)
            parts.append(f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left")
        return " · ".join(parts)

    def say(self, line: str) -> None:
        """A line of its own, above the bar; also kept."""
        self.keep(line)
        if self._bar is not None:
            self._guard(lambda: self._bar.write(line, file=sys.stderr))
        else:
            self._guard(lambda: print(line, file=sys.stderr if not self.progress else sys.stdout, flush=True))

    def close(self) -> None:
        if self._bar is not None:
            self._guard(self._bar.close)
            self._bar = None

    def _move(self, step: int) -> None:
        self._bar.set_postfix({label: f"{self._values[name]:.2f}" for name, label in SHOWN.items()
                               if name in self._values}, refresh=False)
        self._bar.update(max(step - self._bar.n, 0))

    @staticmethod
    def _guard(action: Callable[[], Any]) -> None:
        try:
            action()
        except (OSError, ValueError):         # a closed pipe or terminal
            pass


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError, AttributeError):  # AttributeError: stderr is closed, None
        return 0
