"""Signals: the first one ends the run after its iteration, the second one at once."""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType

# SIGUSR1 is what Slurm sends before preemption (sbatch --signal=USR1@60).
SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")


class Stopped(Exception):
    """A signal asked for the end; raised by ``StopRequest.check`` where what goes on can be done again later."""


class StopRequest:
    """``with StopRequest() as stop``: ``stop.requested`` turns true on a signal; handlers are put back at the end."""

    def __init__(self) -> None:
        self.number: int | None = None
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
        if self.requested:
            os._exit(128 + number)  # files are renamed into place, so nothing under a final name is half-written
        self.number = number
        with contextlib.suppress(OSError):  # not print: the signal may come amid one
            os.write(2, b"stopping after this iteration; a second signal ends at once\n")
