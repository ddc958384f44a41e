"""Launched runs without a second import of torch: what ``navrl.launch.local`` starts is forked from this process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import stop_tools
from whole_runs import ROOT, tiny_argv

from envs.registry import validate_settings
from navrl.launch import local
from navrl.launch.expand import Planned, expand
from navrl.tracking.record import read_events

LAUNCH = (sys.executable, str(ROOT / "scripts" / "launch.py"))


class Forked:
    """The part of ``subprocess.Popen`` that a job uses, of a forked ``main.main``."""

    def __init__(self, child: int) -> None:
        self.pid, self._code = child, None

    def poll(self) -> int | None:
        if self._code is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if done else None
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class Starter:
    """Forks what a job starts. moments: run's name -> for each attempt what meets it (see ``stop_tools.Signals``)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.moments: dict[str, list[tuple]] = {}
        self.started: list[str] = []
        self.most_at_once = 0
        self._alive: list[Forked] = []
        monkeypatch.setattr(local, "_start", self._start)
        monkeypatch.setattr(local, "EVERY", 0.02)

    def _start(self, run: Planned, log: Path, lock: object) -> Forked:
        met = self.moments.get(run.name) or [()]
        forked = Forked(stop_tools.start(list(run.argv), log, *met.pop(0)))
        self.started.append(run.name)
        self._alive = [other for other in self._alive if other.poll() is None] + [forked]
        self.most_at_once = max(self.most_at_once, len(self._alive))
        return forked

    def end(self) -> None:
        for forked in self._alive:
            if forked.poll() is None:
                os.killpg(forked.pid, signal.SIGKILL)
                os.waitpid(forked.pid, 0)


def plan(root: Path, seeds: Sequence[int], *flags: str, **grid: list[str]) -> list[Planned]:
    """Tiny runs under ``root`` / "runs"."""
    config = root / "tiny.yaml"
    config.write_text("env_id: simple_spread\n")
    return expand([str(config)], seeds, grid, tiny_argv(root / "runs", *flags), {}, validate_settings)


def attempts(run: Planned) -> int:
    """How often a process wrote the run's record."""
    return sum(event["event"] == "attempt" for event in read_events(run.run_dir))


def open_records(pid: int) -> dict[Path, int]:
    """Run directory -> process that writes it, of the descendants of a process."""
    found = {}
    for child in stop_tools.descendants(pid):
        with contextlib.suppress(OSError):
            targets = [Path(os.readlink(link)) for link in Path(f"/proc/{child}/fd").iterdir()]
            found |= {target.parent: child for target in targets if target.name == "metrics.jsonl"}
    return found


def until(condition: Callable[[], bool], process: subprocess.Popen) -> None:
    """SystemExit where the launcher ends before the condition holds."""
    while not condition():
        if process.poll() is not None:
            raise SystemExit(f"the launcher ended too soon, with {process.returncode}")
        time.sleep(0.05)
