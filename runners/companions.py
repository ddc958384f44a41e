"""The processes that share one run: this one's place among them, and the others of `processes` started beside it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from navrl.faults import ConfigError, Fault

MAIN = Path(__file__).resolve().parents[1] / "main.py"
# In the environment of a companion: where it meets rank 0, and the process that rank 0 is
MEETING, RANK_0 = "NAVRL_RANKS_MEET", "NAVRL_RANK_0"
PATIENCE = 10.0  # seconds for a companion to end once rank 0 has let it go
WATCH = 0.5  # seconds between two looks at whether rank 0 lives


class Place(NamedTuple):
    """rank: 0 reports, evaluates and saves. size: processes of the run.

    meet: the file over which they find each other; None where torchrun's variables say how. rank_0: process id of the
    rank 0 that started this process; None elsewhere.
    """

    rank: int = 0
    size: int = 1
    meet: str | None = None
    rank_0: int | None = None


def place_in_run(environ: Mapping[str, str]) -> Place:
    """The place that torchrun, or rank 0 on this machine, gives this process; alone where neither did.

    Raises ConfigError where the variables contradict one another.
    """
    found = "MASTER_ADDR" in environ and "MASTER_PORT" in environ or MEETING in environ
    if not found or "RANK" not in environ or "WORLD_SIZE" not in environ:
        return Place()
    try:
        rank, size = int(environ["RANK"]), int(environ["WORLD_SIZE"])
    except ValueError:
        rank, size = 0, 0
    if not 0 <= rank < size:
        message = f"{environ['RANK']} of WORLD_SIZE {environ['WORLD_SIZE']} is no place in a run; torchrun sets both"
        raise ConfigError([Fault("RANK", f"{message}, unset them for a run in one process")])
    if MEETING in environ:
        return Place(rank, size, environ[MEETING], int(environ[RANK_0]))
    return Place(rank, size)


@contextlib.contextmanager
def companions(size: int, argv: Sequence[str]) -> Iterator[tuple[Place, threading.Event]]:
    """Start ranks 1 to ``size`` - 1 of the run that ``argv`` (main.py's words) describes.

    Yields the place of rank 0, and an event that is to be set once all have met: until then one that ends (its memory
    was taken) ends this process too, which would wait for it.
    At the end they are waited for, and ended where they do not come to it: one whose rank 0 never met it would wait.
    """
    with tempfile.TemporaryDirectory(prefix="navrl-ranks-") as directory, contextlib.ExitStack() as started:
        meet = f"{directory}/meet"
        place = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), MEETING: meet, RANK_0: str(os.getpid())}
        others = []
        for rank in range(1, size):
            other = subprocess.Popen(
                [sys.executable, str(MAIN), *argv], stdin=subprocess.DEVNULL,
                env=os.environ | place | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            )  # fmt: skip
            started.callback(_end, other)
            others.append(other)
        threading.Thread(target=_end_without, args=(others, met := threading.Event()), daemon=True).start()
        yield Place(0, size, meet), met
        limit = time.monotonic() + PATIENCE
        for other in others:
            with contextlib.suppress(subprocess.TimeoutExpired):
                other.wait(max(0.0, limit - time.monotonic()))


def _end_without(others: Sequence[subprocess.Popen], met: threading.Event) -> None:
    while not met.wait(WATCH):
        for rank, other in enumerate(others, 1):
            if other.poll() is not None:
                os.write(2, f"process {rank} of this run ended with {other.returncode} before the run began\n".encode())
                os._exit(1)


def _end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()


def end_with_rank_0(place: Place) -> None:
    """A companion whose rank 0 was killed before they met would wait for it for hours: from here on it ends too."""
    if place.rank_0 is None:
        return

    def watch() -> None:
        while os.getppid() == place.rank_0:
            time.sleep(WATCH)
        shutil.rmtree(Path(place.meet or "").parent, ignore_errors=True)  # rank 0 had no time to
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
