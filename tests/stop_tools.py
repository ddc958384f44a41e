"""Runs in a forked process that signals meet at named moments of their life."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import main
import navrl.files
import navrl.tracking.hub as hub
from envs.mpe.simple_spread import BatchedSimpleSpread
from envs.workers import WorkerGroup
from navrl.algorithms.mappo import MAPPO
from navrl.tracking.record import LocalRecord
from runners import experiment, final
from runners.on_policy import OnPolicyRunner

# where a signal meets a run: what is called there
MOMENTS: dict[str, tuple[Any, str]] = {
    "start-up": (experiment, "make_training_env"),
    "opening": (experiment, "open_run"),
    "trackers start": (hub.TrackerHub, "_start"),
    "trackers import": (LocalRecord, "start_clock"),
    "iteration": (OnPolicyRunner, "collect"),
    "collect": (BatchedSimpleSpread, "step"),
    "update": (MAPPO, "step"),
    "evaluation": (experiment, "evaluate"),
    "checkpoint": (experiment.CheckpointStore, "save"),
    "amid a file": (navrl.files, "_fsync"),
    "final workers start": (WorkerGroup, "_collect"),
    "final evaluation": (final, "evaluate"),
    "animation": (experiment, "write_animation"),
    "trackers close": (hub.TrackerHub, "_wait"),
}


class Signals:
    """Sends itself, its ``group`` or its ``tree`` of processes one signal after the other.

    moments: (name, call, signal); before the ``call``-th call of what ``name`` is, counted from the signal before.
    """

    def __init__(self, moments: tuple[tuple[str, int, int], ...], whom: str) -> None:
        self.left, self.whom, self.count = list(moments), whom, 0
        for name in {name for name, _, _ in moments}:
            self._watch(name, *MOMENTS[name])

    def _watch(self, moment: str, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            if self.left and self.left[0][0] == moment:
                self.count += 1
                if self.count == self.left[0][1]:
                    self.count = 0
                    self._send(self.left.pop(0)[2])
            return original(*arguments, **named)

        setattr(owner, name, counted)

    def _send(self, number: int) -> None:
        if self.whom == "group":
            os.killpg(0, number)
            return
        for process in (*(descendants(os.getpid()) if self.whom == "tree" else ()), os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)


def start(argv: list[str], said: Path, *moments: tuple[str, int, int], whom: str = "self") -> int:
    """Fork ``main.main(argv)`` into a session of its own, see ``Signals``; returns its process id.

    No second import of torch. What it says is added to the file ``said``.
    """
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        os.setsid()
        output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(output, 1), os.dup2(output, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        Signals(moments, whom)
        code = main.main(argv)
        sys.stdout.flush(), sys.stderr.flush()
    finally:
        os._exit(code)


def wait(child: int, timeout: float = 60.0) -> int:
    """Its exit code; minus the signal that ended it. Killed and an AssertionError where it does not end."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"the run does not end within {timeout:g} s")


def descendants(pid: int) -> list[int]:
    """Processes that a process has started, and theirs, zombies among them."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    found, level = [], [pid]
    while level:
        level = [child for child, parent in parents.items() if parent in level]
        found += level
    return found


def wait_for_rows(process: subprocess.Popen, root: Path, count: int, name: str = "metrics.jsonl") -> None:
    """Until some run under ``root`` has ``count`` lines of this file; AssertionError where it ends or a minute passes."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        for path in root.glob(f"*/*/*/{name}"):
            if len(path.read_text().splitlines()) >= count:
                return
        time.sleep(0.02)
    process.kill()
    raise AssertionError(f"the run does not get going: {process.communicate()}")
