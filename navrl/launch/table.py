"""What a person sees while many runs go on: a live table on a terminal, a line a change when piped."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from navrl.launch.expand import Planned
from navrl.launch.state import State, state_of

EVERY = 1.0  # seconds between two readings of the records
LINE_EVERY = 60.0  # seconds between plain lines about a run that goes on
# What is worth a row where there are more runs than rows
ORDER = ("running", "elsewhere", "failed", "interrupted", "waiting", "finished")
STYLES = {"running": "cyan", "finished": "green", "failed": "red", "interrupted": "yellow"}
OVER = ("finished", "failed", "interrupted")


@dataclass(frozen=True)
class Line:
    """A run and where it stands for the launcher: a word of ORDER, and what is to be said beside it."""

    run: Planned
    status: str
    note: str = ""


class Table:
    """``with Table() as table``, then ``table.show(lines)`` as often as one likes."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self._live: Live | None = None
        self._looked = -EVERY
        self._states: dict[int, State] = {}
        self._said: dict[int, tuple[tuple[str, str], float]] = {}

    def __enter__(self) -> Table:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, lines: Sequence[Line], *, last: bool = False) -> None:
        """Takes in how things stand; reads records at most once in EVERY seconds, with ``last`` always."""
        if not last and time.monotonic() - self._looked < EVERY:
            return
        self._looked = time.monotonic()
        states = [self._state(line) for line in lines]
        if self._live is not None:
            self._live.update(self._grid(list(zip(lines, states)), whole=last), refresh=True)
            return
        for line, state in zip(lines, states):
            self._say(line, state)

    def _state(self, line: Line) -> State:
        """Records of runs that are over are read once, those of runs that wait never."""
        key = id(line.run)
        if line.status == "waiting":
            return State("waiting")
        if line.status in OVER and key in self._states:
            return self._states[key]
        state = state_of(line.run)
        if line.status in OVER:
            self._states[key] = state
        return state

    def _grid(self, rows: list[tuple[Line, State]], *, whole: bool) -> Grid:
        counts = Counter(line.status for line, _ in rows)
        title = f"{counts['finished']} of {len(rows)} finished"
        title += "".join(f" · {counts[word]} {word}" for word in ORDER[:-1] if counts[word])
        grid = Grid(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for heading, justify in (
            ("run", "left"),
            ("step", "right"),
            ("reward", "right"),
            ("left", "right"),
            ("state", "left"),
        ):
            grid.add_column(heading, justify=justify, overflow="fold" if heading == "run" else "ellipsis")
        room = max(self.console.height - 6, 1)  # title, heading, rules
        if len(rows) > room and not whole:
            rows = sorted(rows, key=lambda row: ORDER.index(row[0].status))[:room]
        for line, state in rows:
            cells = (line.run.label, _step(line, state), _reward(state), _left(line, state), _status(line))
            grid.add_row(*map(Text, cells), style=STYLES.get(line.status, ""))
        return grid

    def _say(self, line: Line, state: State) -> None:
        before, when = self._said.get(id(line.run), (("waiting", ""), 0.0))
        now = time.monotonic()
        if (line.status, line.note) == before and not (line.status == "running" and now - when >= LINE_EVERY):
            return
        self._said[id(line.run)] = ((line.status, line.note), now)
        parts = [_status(line), _step(line, state) and f"step {_step(line, state)}"]
        parts += [_reward(state) and f"reward {_reward(state)}", _left(line, state) and f"{_left(line, state)} left"]
        print(f"{line.run.label}: {' · '.join(part for part in parts if part)}", flush=True)


def _status(line: Line) -> str:
    return f"{line.status}: {line.note}" if line.note else line.status


def _step(line: Line, state: State) -> str:
    total = line.run.config.total_env_steps
    return "" if state.step is None else f"{state.step:,} of {total:,} ({100 * state.step / total:.0f} %)"


def _reward(state: State) -> str:
    return "" if state.reward is None else f"{state.reward:.2f}"


def _left(line: Line, state: State) -> str:
    if line.status != "running" or state.seconds_left is None:
        return ""
    left = int(state.seconds_left)
    return f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}"
