"""Planned runs as processes of this machine: each to its end, retried by going on from its last checkpoint.

Whoever works on a run holds its lock, ``RUNS/logs/PROJECT/GROUP/NAME.lock``, and so does the run's process: of any
number of launchers one runs it, and when a launcher is killed its runs go on and the next one waits for them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from navrl.config import Config
from navrl.config_sources import ENVIRONMENT
from navrl.launch.expand import Planned
from navrl.launch.state import state_of
from navrl.source import project_root
from navrl.tracking.record import LOCK, RunLock, RunLocked, is_alive, is_locked

EVERY = 0.2  # seconds between two looks at the processes
BAD_INPUT = 2
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
STOPPED = (130, 143, 138, -2, -15, -10)  # by SIGINT, SIGTERM, SIGUSR1: after a checkpoint, or before there was a run


@dataclass
class Halt:
    """The wish that runs stop: the signals that each is sent, in order. A second one ends it without a checkpoint."""

    signals: list[int] = field(default_factory=list)

    def send(self, number: int) -> None:
        self.signals.append(number)


@dataclass(frozen=True)
class Outcome:
    """How a planned run ended.

    status: ``finished``; ``interrupted``, by a signal, to be gone on with; ``failed``; ``waiting``: not begun, for runs
    were to stop. code: main.py's exit code, minus the signal that killed it; None where no process was started here.
    attempts: processes started here. reason: the last line that the run said; "" where it finished.
    """

    run: Planned
    status: str
    code: int | None
    attempts: int
    reason: str = ""


class Job:
    """One planned run on its way to an outcome. ``poll`` never blocks; call it until ``outcome`` is there."""

    def __init__(self, run: Planned, *, retries: int, halt: Halt) -> None:
        """retries: how often a run that crashed or failed is gone on with. Bad input (exit code 2) never is."""
        self.run, self.retries, self.halt = run, retries, halt
        self.outcome: Outcome | None = None
        self.attempts = 0
        self.elsewhere = False  # another process works on it,
        self.here = False  # and does so on this machine
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: RunLock | None = None
        self._passed_on = 0  # of halt.signals, to the present process
        self.skip_if_finished()

    @property
    def running(self) -> bool:
        """Whether a process that this job started runs."""
        return self._process is not None

    @property
    def takes_place(self) -> bool:
        """Whether it runs on this machine, started by this job or by somebody else."""
        return self.running or (self.outcome is None and self.elsewhere and self.here)

    @property
    def log(self) -> Path:
        """What the run's processes said, all attempts."""
        return log_of(self.run)

    def skip_if_finished(self) -> None:
        if self.outcome is None and state_of(self.run).status == "finished":
            self._over("finished", None)

    def find_holder(self) -> None:
        """See whether somebody else works on it, and where."""
        locks = [path for path in (self.log.with_suffix(".lock"), self.run.run_dir / LOCK) if is_locked(path)]
        self.elsewhere = bool(locks)
        self.here = any(path.read_text().strip().endswith(f" on {socket.gethostname()}") for path in locks)

    def poll(self, may_start: bool = True) -> None:
        """Look after the process: pass signals on, take its end in, start it where that is allowed.

        Raises OSError where lock and log cannot be written.
        """
        if self._process is not None:
            for number in self.halt.signals[self._passed_on :]:
                self._process.send_signal(number)
            self._passed_on = len(self.halt.signals)
            code = self._process.poll()
            if code is None:
                return
            self._process = None
            self._ended(code)
        if self.outcome is None and self.halt.signals:
            self._over("interrupted" if self.attempts else "waiting", None)
        elif self.outcome is None and may_start:
            self._begin()

    def _begin(self) -> None:
        if self._lock is None:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(RunLocked):
                self._lock = RunLock(self.log.with_suffix(".lock"), patience=0)
        if self._lock is None or is_alive(self.run.run_dir):  # the latter: somebody started it by hand
            self._let_go()
            self.find_holder()
            return
        self.elsewhere = False
        self.skip_if_finished()
        if self.outcome is None:
            self._process, self._passed_on = _start(self.run, self.log, self._lock), 0
            self.attempts += 1

    def _ended(self, code: int) -> None:
        if code == 0:
            self._over("finished", code)
        elif code == BAD_INPUT and is_alive(self.run.run_dir):  # somebody was faster
            self.attempts -= 1
            self._let_go()
        elif code in STOPPED:
            self._over("interrupted", code)
        elif code == BAD_INPUT or self.attempts > self.retries or self.halt.signals:
            self._over("failed", code)

    def _over(self, status: str, code: int | None) -> None:
        reason = "" if status == "finished" or code is None else _last_line(self.log) or f"exit code {code}"
        self.outcome = Outcome(self.run, status, code, self.attempts, reason)
        self._let_go()

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def run_one(
    run: Planned, *, retries: int = 0, halt: Halt | None = None, look: Callable[[], None] | None = None
) -> Outcome:
    """One planned run to its end, however often it was begun before; a finished one is left as it is.

    While another process works on it this waits. look: called some times a second meanwhile; it may use ``halt``.
    """
    job = Job(run, retries=retries, halt=halt if halt is not None else Halt())
    while True:
        job.poll()
        if job.outcome is not None:
            return job.outcome
        if look is not None:
            look()
        time.sleep(EVERY)


def run_all(
    plan: Sequence[Planned],
    *,
    jobs: int,
    retries: int,
    halt: Halt,
    look: Callable[[Sequence[Job]], None] = lambda jobs: None,
) -> list[Outcome]:
    """All of them, ``jobs`` processes at once, in the plan's order; one run's failure stops no other.

    A run that somebody else works on is looked at again until that one is done with it; on this machine (the run of a
    launcher that was killed) it is one of the ``jobs``, on another it is not.
    """
    everything = [Job(run, retries=retries, halt=halt) for run in plan]
    for job in everything:
        job.find_holder()
    while True:
        places = sum(job.takes_place for job in everything)
        for job in everything:
            before = job.takes_place
            job.poll(may_start=before or places < jobs)
            places += job.takes_place - before
        look(everything)
        if all(job.outcome is not None for job in everything):
            return [job.outcome for job in everything if job.outcome is not None]
        time.sleep(EVERY)


@contextlib.contextmanager
def signals_to(halt: Halt) -> Iterator[None]:
    """Meanwhile SIGINT, SIGTERM and SIGUSR1 to this process are wishes that runs stop."""
    previous = {number: signal.signal(number, lambda number, frame: halt.send(number)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def places(config: Config) -> int:
    """How many runs of this configuration have a core for each of their processes on this machine, at least 1."""
    return max(1, len(os.sched_getaffinity(0)) // config.processes)


def log_of(run: Planned) -> Path:
    """Where what the run's processes say goes: beside the runs, for a run that is refused has no directory."""
    root = run.run_dir.parents[2]
    return root / "logs" / f"{run.run_dir.relative_to(root)}.log"


def _start(run: Planned, log: Path, lock: RunLock) -> subprocess.Popen[bytes]:
    """``main.py`` in a session of its own, so that a terminal's Ctrl-C reaches it once, through the launcher."""
    environ = {"OMP_NUM_THREADS": "1"} | {key: value for key, value in os.environ.items() if key not in ENVIRONMENT}
    with open(log, "ab") as output:
        return subprocess.Popen(
            [sys.executable, str(project_root() / "main.py"), *run.argv], cwd=run.directory, env=environ | run.environ,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(lock.fileno(),), start_new_session=True,
        )  # fmt: skip


def _last_line(log: Path) -> str:
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
