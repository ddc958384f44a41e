"""What a tracker backend is: the interface that one small file a backend fills in.

A tracker lives in a process of its own (`publish.py`), which reads the local record. So its methods may block, raise or
die without touching training. What they raise is retried with growing pauses; `Unpublishable` says that trying again
cannot help for this one item, `TrackerUnavailable` that the whole backend cannot serve this run.
"""
from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LONGEST_NAME = 128                    # of an artifact or an alias; what W&B takes
Receipt = Callable[[], bool]


class Unpublishable(Exception):
    """This one item cannot go to this backend (file gone, form not supported); the message says why."""


class TrackerUnavailable(Exception):
    """The backend cannot serve this run at all (not installed, refused); the message is one line with the way out."""


@dataclass
class RunInfo:
    """A run as trackers see it; kept in `tracking/run.json`, so a later sync needs nothing but the run directory."""

    uid: str                          # unique for ever; trackers that let us choose use it as the run's id
    project: str
    name: str                         # display name
    group: str
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)      # flat; only what can change a result
    metadata: dict[str, Any] = field(default_factory=dict)    # layer 4, redacted
    settings: dict[str, Any] = field(default_factory=dict)    # tracker settings: modes, addresses, privacy
    env_id: str = ""
    algorithm_name: str = ""
    # not stored:
    run_dir: Path = Path(".")         # where the directory is now
    started: float | None = None      # wall time at which the run began
    training_pid: int | None = None   # process that trains at this moment; None = published afterwards

    @property
    def artifact_name(self) -> str:
        """Collection name that every tracker takes: letters, digits, `_ - .`, at most 128 of them."""
        return safe_name(f"navrl_{self.env_id}_{self.algorithm_name}")


def safe_name(name: str, ending: str = "") -> str:
    """`name + ending` in letters, digits and `_ - .` of ASCII (else `_`), at most 128 of them.

    Too long a name is cut and ends in 8 digits of its hash, so that two long names stay two; the ending stays whole.
    """
    room = LONGEST_NAME - len(ending)
    if len(name) > room:
        name = f"{name[:room - 9]}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-.") else "_" for c in name + ending)


class Tracker:
    """One backend. Every method but `start` and `log_row` has a default that does nothing useful but is allowed.

    `step` is environment steps (int), `wall` seconds since 1970 at which it happened. Paths are absolute and inside
    `run.run_dir`. Metrics are plain ints and floats; NaN and infinities are among them.
    """

    name = ""
    destination = ""                  # where it goes ("offline", an address); what was sent is kept per destination
    local = False                     # True = nothing leaves the machine: the run is still owed to a server
    url = ""                          # where a person looks at the run

    def start(self, run: RunInfo) -> int | None:
        """Open or continue the run. Set `destination` (and `url`).

        Returns how many items (rows, media, tables, traces) the backend itself says it holds, in the order sent; None
        where it cannot say. Raises TrackerUnavailable.
        """
        raise NotImplementedError

    def say(self, line: str) -> None:
        """One line for the person who watches the run (the publisher puts its own function here)."""

    def holds(self, kind: str, name: str, step: int) -> bool:
        """Whether the backend had this item when we came, of a run whose directory was lost and made anew.

        kind: `row`, `rest` (what a resume added to a row), `media`, `table`, `trace` (with a name), `alert`. Asked
        where no list says what was sent. A backend in which sending twice is sending once need not know.
        """
        return False

    def begin_at(self, count: int) -> None:
        """Called after `start` with the number of items (as `start` counts them) already handed to this destination."""

    def log_row(self, step: int, wall: float, metrics: Mapping[str, int | float]) -> None:
        raise NotImplementedError

    def log_media(self, step: int, wall: float, name: str, path: Path, caption: str | None) -> None:
        raise Unpublishable("it takes no media")

    def log_table(self, step: int, wall: float, name: str, columns: Sequence[str], rows: Sequence[Sequence]) -> None:
        raise Unpublishable("it takes no tables")

    def log_trace(self, step: int, wall: float, name: str, path: Path) -> None:
        """One evaluation episode, a `.npz` of arrays whose first axes are step and agent."""
        raise Unpublishable("it takes no traces")

    def log_artifact(self, path: Path, aliases: Sequence[str], metadata: Mapping[str, Any]) -> Receipt | None:
        """A checkpoint; `metadata` holds run, seed, step, episodes, score, sha256.

        Returns None when it is handed over for good, else a function that says, without waiting, whether it has arrived
        (True), is under way (False), or raises because it failed.
        """
        raise Unpublishable("it takes no artifacts")

    def alert(self, title: str, text: str, level: str, step: int | None) -> None:
        raise Unpublishable("it has no alerts")

    def directories(self) -> list[Path]:
        """Where this run's files are kept on this machine by the tracker, outside the run directory."""
        return []

    def flush(self) -> None:
        """Called about once a second while there is something new: hand over what is buffered here."""

    def progress(self) -> float:
        """A number that grows while something is being uploaded; called from another thread, also during `finish`."""
        return 0.0

    def confirmed(self) -> int | None:
        """How many items the backend has acknowledged; None where everything handed over counts. Thread-safe."""
        return None

    def finish(self, status: str, exit_code: int, summary: Mapping[str, Any]) -> None:
        """End the run as `finished`, `interrupted`, `failed` or `crashed`; returns when all is handed over."""
