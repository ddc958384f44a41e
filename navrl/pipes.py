"""Output whose reader has gone (``python main.py | head``) ends a program quietly."""

from __future__ import annotations

import os
import sys


def hold_output() -> None:
    """Open closed standard streams (``>&- 2>&-``) to nowhere, for worker processes too.

    Otherwise a file of the run gets their descriptor, and what libraries print ends up in it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: a closed stream's own
        os.set_inheritable(descriptor, descriptor == number)
        setattr(sys, name, os.fdopen(descriptor, "w" if number else "r", encoding="utf-8"))


def settle_output() -> None:
    """Flush stdout and stderr; where nobody reads them, send what is left nowhere, so that Python's exit is silent."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:  # closed before Python began: nobody reads it
            continue
        try:
            stream.flush()
        except (OSError, ValueError):
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            except (OSError, ValueError):  # a stream without a descriptor
                pass
