"""What each tracker has been sent of a run, in `RUN_DIR/tracking/{backend}/`.

`ledger.json` holds state, counts and messages; one `sent-{destination}.log` the keys of what arrived there, one a line.
"""
from __future__ import annotations

import hashlib
import json
import re
import threading
from pathlib import Path
from typing import IO, Any

from navrl.files import write_text
from navrl.redaction import redact
from navrl.tracking.record import write_json

EARLIER = "earlier"                   # what an earlier directory of the run sent, which nothing here tells more of
COUNTED = ("row", "rest", "media", "table", "trace", EARLIER)         # items that `Tracker.start` counts


class Ledger:
    """What one backend has of this run, on disk."""

    def __init__(self, directory: Path):
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.path = directory / "ledger.json"
        self.state: dict[str, Any] = read_ledger(directory)
        self.keys: list[str] = []
        self._rows: list[int] = [0]               # rows among the first n counted items
        self._log: Path | None = None
        self._file: IO[str] | None = None         # `_log`, open for appending
        self._lock = threading.Lock()
        self._last = ""

    def begin(self, destination: str) -> list[str]:
        """Keys already sent to this destination, in the order sent."""
        self._log = self.directory / f"sent-{_file_name(destination)}.log"
        earlier = self.directory / f"sent-{_safe(destination) or 'default'}.log"
        if self.state.get("destination") == destination and earlier.exists() and not self._log.exists():
            earlier.rename(self._log)             # as versions before called it
        text = self._log.read_text(encoding="utf-8") if self._log.exists() else ""
        whole = text[:text.rfind("\n") + 1]
        self._take(whole.split("\n")[:-1])
        if whole != text:                         # a line torn by a kill: the next must not join it
            write_text(self._log, whole)
        self.update(destination=destination)
        return self.keys

    def keep_first(self, counted: int) -> None:
        """The backend holds only the first `counted` of what we handed over; forget the rest and what came after it.

        One that holds nothing was emptied, or is another one at the same address: it gets checkpoints and alerts anew.
        """
        kept, left = [], counted
        for key in self.keys if counted else ():
            if key.split(" ", 1)[0] in COUNTED:
                if left == 0:
                    break
                left -= 1
            kept.append(key)
        self._take(kept)
        self.close()
        write_text(self._log, "".join(key + "\n" for key in kept))

    def add(self, keys: list[str]) -> None:
        if keys:
            if self._file is None:
                self._file = open(self._log, "a", encoding="utf-8")
            self._file.write("".join(key + "\n" for key in keys))
            self._file.flush()
            for key in keys:
                self._append(key)

    def counted(self) -> int:
        return len(self._rows) - 1

    def rows(self, confirmed: int | None = None) -> int:
        """Rows among what was sent, or among the first `confirmed` counted items of it."""
        return self._rows[-1 if confirmed is None else min(confirmed, self.counted())]

    def _take(self, keys: list[str]) -> None:
        self.keys, self._rows = [], [0]
        for key in keys:
            self._append(key)

    def _append(self, key: str) -> None:
        self.keys.append(key)
        if key.split(" ", 1)[0] in COUNTED:
            self._rows.append(self._rows[-1] + key.startswith("row "))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def update(self, **values: Any) -> None:
        """Change the state; written only when something changed. A full disk is no reason to stop publishing."""
        with self._lock:
            self.state.update(values)
            text = json.dumps(self.state, default=str)
            if text != self._last:
                try:
                    write_json(self.path, self.state)
                    self._last = text
                except OSError:
                    pass

    def say(self, message: str) -> None:
        """A line for the console of the run; each said once."""
        messages = self.state.get("messages", [])
        message = redact(" ".join(message.split()))
        if message not in messages:
            self.update(messages=[*messages, message])
            print(message, flush=True)


def _file_name(destination: str) -> str:
    """A file name of this destination alone: one that had to be changed ends in digits of its hash."""
    safe = _safe(destination)
    digest = hashlib.sha256(destination.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return safe if safe == destination and safe else f"{safe}-{digest}"


def _safe(destination: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "_", destination)[:80]


def read_ledger(directory: Path) -> dict[str, Any]:
    """`ledger.json` of a backend's directory; {} where there is none."""
    try:
        return json.loads((directory / "ledger.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
