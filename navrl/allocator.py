"""Memory that one iteration frees is what the next one asks for."""

from __future__ import annotations

import contextlib
import ctypes

# glibc's mallopt(3): parameter, value in bytes
MMAP_THRESHOLD = (-3, 32 * 2**20)  # the largest that every version takes
TRIM_THRESHOLD = (-1, 2**31 - 1)


def keep_freed_memory() -> None:
    """Have glibc keep what is freed, instead of giving tens of megabytes back to the system after every gradient step
    and having each page cleared anew: more than a tenth of an update of small networks. Elsewhere it does nothing.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # no glibc
        libc = ctypes.CDLL(None)
        for parameter, value in (MMAP_THRESHOLD, TRIM_THRESHOLD):
            libc.mallopt(parameter, value)
