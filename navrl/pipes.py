"""Output whose reader has gone (``python main.py | head``) ends a program quietly."""

from __future__ import annotations

import os
import sys


def settle_output() -> None:
    """Flush stdout and stderr; where nobody reads them, send what is left nowhere, so that Python's exit is silent."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            except (OSError, ValueError):  # a stream without a descriptor
                pass
