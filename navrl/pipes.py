"""How every program here begins, refuses its words and ends: in one line, and quietly where its reader has gone."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import NoReturn


def run_program(main: Callable[[list[str]], int], *, unread: int = 0) -> NoReturn:
    """Give ``main`` the words after the program's name and exit with the code that it returns.

    130 for Ctrl-C. Where the reader of the output has gone (``| head``) it is ``unread``: 0 for a program that only
    shows something, for the reader has enough of it; 1 for one whose work is then half done.
    """
    hold_output()
    try:
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        code = unread
    finally:
        settle_output()
    sys.exit(code)


class Parser(argparse.ArgumentParser):
    """Refuses in one line instead of a screen of usage; no flag may be abbreviated."""

    def __init__(self, description: str | None) -> None:
        super().__init__(description=description, allow_abbrev=False,
                         formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message.removeprefix('argument ')} (see {self.prog} --help)\n")


def whole(low: int) -> Callable[[str], int]:
    """A type for ``add_argument``: whole numbers from ``low`` to what 64 bits hold."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value < 2**63:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {low} and at most 2**63 - 1")
        return value

    return read


def hold_output() -> None:
    """Open closed standard streams (``>&- 2>&-``) to nowhere, for worker processes too.

    Otherwise a file of the run gets their descriptor, and what libraries print ends up in it. A character that a
    stream's encoding lacks is escaped: a name must not cost the line that it stands in.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: a closed stream's own
            os.set_inheritable(descriptor, descriptor == number)
            setattr(sys, name, os.fdopen(descriptor, "w" if number else "r", encoding="utf-8"))
        elif number:
            stream.reconfigure(errors="backslashreplace")


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
