"""TensorBoard event files in `tracking/tensorboard/`, one directory a run and one file a session."""
from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from navrl.tracking.convert import json_ready
from navrl.tracking.tracker import RunInfo, Tracker, TrackerUnavailable, Unpublishable


class TensorboardTracker(Tracker):
    name = "tensorboard"
    destination = "events"

    def start(self, run: RunInfo) -> int | None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
        except ImportError:
            raise TrackerUnavailable("not installed, no event files are written; `pip install tensorboard`, then "
                                     f"publish with: python scripts/sync.py {run.run_dir} --to tensorboard") from None
        self._event, self._summary = Event, Summary
        self._directory = run.run_dir / "tracking" / "tensorboard" / "events"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._held = _held(self._directory)
        now = time.time()                         # TensorBoard's own writer puts the host into the name
        self._file = _EventFile(self._directory / f"events.out.tfevents.{int(now):010d}.{run.uid}.{os.getpid()}")
        self._file.add(Event(wall_time=now, file_version="brain.Event:2"))
        self.url = str(self._directory)
        self._run = run
        return None

    def begin_at(self, count: int) -> None:
        if count == 0:
            self._hparams(self._run)
            self._text("config", json.dumps(json_ready(self._run.config), indent=2), 0)
            if self._run.settings.get("privacy") != "strict":
                self._text("metadata", json.dumps(json_ready(self._run.metadata), indent=2), 0)

    # What an earlier session wrote and could not list, because it was killed, is not written twice.

    def log_row(self, step: int, wall: float, metrics: Mapping[str, int | float]) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()
                  if (step, name) not in self._held]
        if values:
            self._add(self._summary(value=values), step, wall)

    def log_media(self, step: int, wall: float, name: str, path: Path, caption: str | None) -> None:
        if path.suffix not in (".gif", ".png", ".jpg", ".jpeg"):
            raise Unpublishable(f"{path.suffix} is no picture that it shows")
        if (step, name) not in self._held:
            image = self._summary.Image(encoded_image_string=path.read_bytes(), colorspace=3)
            self._add(self._summary(value=[self._summary.Value(tag=name, image=image)]), step, wall)

    def log_table(self, step: int, wall: float, name: str, columns: Sequence[str], rows: Sequence[Sequence]) -> None:
        if (step, name) in self._held:
            return
        lines = [" | ".join(map(str, columns)), " | ".join("---" for _ in columns)]
        self._text(name, "\n".join(lines + [" | ".join(map(str, row)) for row in rows]), step, wall)

    def alert(self, title: str, text: str, level: str, step: int | None) -> None:
        self._text("alerts", f"**{level}: {title}** {text}", step or 0)

    def finish(self, status: str, exit_code: int, summary: Mapping[str, Any]) -> None:
        self._text("status", status, 0)
        self._file.close()

    def _hparams(self, run: RunInfo) -> None:
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        values = {name: value if isinstance(value, (bool, int, float, str)) else json.dumps(json_ready(value))
                  for name, value in run.config.items() if value is not None}
        self._add(hparams_pb(values, trial_id=f"{run.name} ({run.group})"), 0)

    def _text(self, tag: str, text: str, step: int, wall: float | None = None) -> None:
        from tensorboard.plugins.text.summary_v2 import text_pb
        self._add(text_pb(tag, text), step, wall)

    def _add(self, summary: Any, step: int, wall: float | None = None) -> None:
        self._file.add(self._event(wall_time=time.time() if wall is None else wall, step=step, summary=summary))


class _EventFile:
    """An event file that grows by whole records. TensorBoard's own writer leaves half a record on a full disk, behind
    which nothing is read, and writes no more.
    """

    def __init__(self, path: Path) -> None:
        self._file = open(path, "wb", buffering=0)

    def add(self, event: Any) -> None:
        """Append. Raises OSError, the file being as it was."""
        from tensorboard.summary.writer.record_writer import RecordWriter
        record = io.BytesIO()
        RecordWriter(record).write(event.SerializeToString())
        data, whole = record.getvalue(), self._file.tell()
        try:
            while data:
                data = data[self._file.write(data):]
        except OSError:
            self._file.truncate(whole)
            self._file.seek(whole)
            raise

    def close(self) -> None:
        self._file.close()


def _held(directory: Path) -> set[tuple[int, str]]:
    """(step, tag) of all that the files of earlier sessions hold."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event
    found: set[tuple[int, str]] = set()
    for path in sorted(directory.glob("*tfevents*")):
        for data in RawEventFileLoader(str(path)).Load():
            event = Event.FromString(data)
            found.update((event.step, value.tag) for value in event.summary.value)
    return found
