"""Signals: before anything is written the first one ends the program; later it ends the run after its iteration."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from types import FrameType

# SIGUSR1 is what Slurm sends before preemption (sbatch --signal=USR1@60).
SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")
# timeout, uv run and the like pass a signal on that the process group got already: one wish, two signals.
TOGETHER = 0.5  # seconds


class Stopped(Exception):
    """A signal asked for the end; raised by ``StopRequest.check`` where what goes on can be done again later."""


class StopRequest:
    """``with StopRequest() as stop``: from ``stop.defer()`` on the first signal turns ``stop.requested`` true.

    Before ``defer`` it ends the process at once, as the second one does after it; the exit code is 128 + signal. The
    same signal again within TOGETHER is no second one. Handlers are put back at the end.
    """

    def __init__(self) -> None:
        self.speaks = True  # one process of a run says what all were sent
        self.number: int | None = None
        self._deferred = False
        self._came = 0.0
        self._previous: dict[int, object] = {}

    @property
    def requested(self) -> bool:
        return self.number is not None

    @property
    def name(self) -> str:
        return signal.Signals(self.number).name if self.number is not None else ""

    @property
    def exit_code(self) -> int:
        """128 + signal: 130, 143, 138."""
        return 128 + (self.number or 0)

    def defer(self) -> None:
        """From here on there is something to save: a signal asks for the end and the caller looks at ``requested``."""
        self._deferred = True

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Signals end this process by themselves in here, where Python would not get to see them for long."""
        ours = {number: signal.signal(number, signal.SIG_DFL) for number in self._previous}
        try:
            yield
        finally:
            for number, handler in ours.items():
                signal.signal(number, handler)

    def request(self, number: int) -> None:
        """Another process of this run was sent this signal."""
        if not self.requested:
            self.number, self._came = number, time.monotonic()

    def check(self) -> None:
        """Raise Stopped once a signal came."""
        if self.requested:
            raise Stopped(f"stopped by {self.name}")

    def __enter__(self) -> StopRequest:
        for name in SIGNALS:
            number = getattr(signal, name, None)
            try:
                if number is not None:
                    self._previous[number] = signal.signal(number, self._handle)
            except ValueError:  # not the main thread: the owner of that one decides about signals
                break
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == self.number and time.monotonic() - self._came < TOGETHER:
            return
        if not self._deferred:
            self._say(f"stopped by {signal.Signals(number).name} before anything was written")
        if self.requested or not self._deferred:
            os._exit(128 + number)  # files are renamed into place, so nothing under a final name is half-written
        self.number, self._came = number, time.monotonic()
        self._say("stopping after this iteration; a second signal ends at once")

    def _say(self, line: str) -> None:
        if self.speaks:
            with contextlib.suppress(OSError):  # not print: the signal may come amid one
                os.write(2, f"{line}\n".encode())


def ignore_signals() -> None:
    """From here on none of SIGNALS does anything."""
    for name in SIGNALS:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
