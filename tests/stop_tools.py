"""Runs in a forked process that a signal meets at a named moment of their life."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import main
import navrl.files
import navrl.tracking.hub as hub
import runners.evaluation
from envs.mpe.simple_spread import BatchedSimpleSpread
from envs.workers import WorkerGroup
from navrl.algorithms.mappo import MAPPO
from runners import experiment, final

# where a signal meets a run: (what is called then, how often a run of `whole_runs.TINY` calls it at least)
MOMENTS: dict[str, tuple[Any, str]] = {
    "start-up": (experiment, "make_training_env"),
    "opening": (experiment, "open_run"),
    "trackers start": (hub.TrackerHub, "_start"),
    "collect": (BatchedSimpleSpread, "step"),
    "update": (MAPPO, "step"),
    "evaluation": (experiment, "evaluate"),
    "checkpoint": (experiment.CheckpointStore, "save"),
    "fsync or rename": (navrl.files, "_fsync"),
    "final evaluation's workers start": (WorkerGroup, "_collect"),
    "final evaluation": (final, "evaluate"),
    "animation": (experiment, "write_animation"),
    "trackers close": (hub.TrackerHub, "_wait"),
}


@contextlib.contextmanager
def at(moment: str, call: int, act: Callable[[], None]):
    """While this is open, ``act`` is called before the ``call``-th (from 1) call of what ``moment`` names."""
    owner, name = MOMENTS[moment]
    original, count = getattr(owner, name), 0

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        if count == call:
            act()
        return original(*arguments, **named)

    setattr(owner, name, counted)
    try:
        yield
    finally:
        setattr(owner, name, original)


def start(argv: list[str], said: Path, *moments: tuple[str, int, int], group: bool = False) -> int:
    """Fork ``main.main(argv)`` into a session of its own; returns its process id. No second import of torch.

    moments: (name, call, signal) of what it sends itself, or with ``group`` its whole process group. What it says
    goes to ``said``.
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
        send = os.killpg if group else os.kill
        with contextlib.ExitStack() as stack:
            for name, call, number in moments:
                stack.enter_context(at(name, call, lambda number=number: send(os.getpid(), number)))
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
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"the run does not end within {timeout:g} s")
