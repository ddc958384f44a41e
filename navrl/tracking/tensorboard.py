"""TensorBoard event files in `tracking/tensorboard/`, one directory a run."""
from __future__ import annotations

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
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError:
            raise TrackerUnavailable("not installed, no event files are written; `pip install tensorboard`, then "
                                     f"publish with: python scripts/sync.py {run.run_dir} --to tensorboard") from None
        self._event, self._summary = Event, Summary
        self._directory = run.run_dir / "tracking" / "tensorboard" / "events"
        self._directory.mkdir(parents=True, exist_ok=True)
        now = time.time()                         # TensorBoard's own writer puts the host into the name
        name = f"events.out.tfevents.{int(now):010d}.{run.uid}.{os.getpid()}"
        self._writer = RecordWriter(open(self._directory / name, "wb"))
        self._write(Event(wall_time=now, file_version="brain.Event:2"))
        self.url = str(self._directory)
        self._run = run
        return None

    def begin_at(self, count: int) -> None:
        if count == 0:
            self._hparams(self._run)
            self._text("config", json.dumps(json_ready(self._run.config), indent=2), 0)
            if self._run.settings.get("privacy") != "strict":
                self._text("metadata", json.dumps(json_ready(self._run.metadata), indent=2), 0)

    def log_row(self, step: int, wall: float, metrics: Mapping[str, int | float]) -> None:
        self._add(self._summary(value=[self._summary.Value(tag=name, simple_value=value)
                                       for name, value in metrics.items()]), step, wall)

    def log_media(self, step: int, wall: float, name: str, path: Path, caption: str | None) -> None:
        if path.suffix not in (".gif", ".png", ".jpg", ".jpeg"):
            raise Unpublishable(f"{path.suffix} is no picture that it shows")
        image = self._summary.Image(encoded_image_string=path.read_bytes(), colorspace=3)
        self._add(self._summary(value=[self._summary.Value(tag=name, image=image)]), step, wall)

    def log_table(self, step: int, wall: float, name: str, columns: Sequence[str], rows: Sequence[Sequence]) -> None:
        lines = [" | ".join(map(str, columns)), " | ".join("---" for _ in columns)]
        self._text(name, "\n".join(lines + [" | ".join(map(str, row)) for row in rows]), step, wall)

    def alert(self, title: str, text: str, level: str, step: int | None) -> None:
        self._text("alerts", f"**{level}: {title}** {text}", step or 0)

    def flush(self) -> None:
        self._writer.flush()

    def finish(self, status: str, exit_code: int, summary: Mapping[str, Any]) -> None:
        self._text("status", status, 0)
        self._writer.close()

    def _hparams(self, run: RunInfo) -> None:
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        values = {name: value if isinstance(value, (bool, int, float, str)) else json.dumps(json_ready(value))
                  for name, value in run.config.items() if value is not None}
        self._add(hparams_pb(values, trial_id=f"{run.name} ({run.group})"), 0)

    def _text(self, tag: str, text: str, step: int, wall: float | None = None) -> None:
        from tensorboard.plugins.text.summary_v2 import text_pb
        self._add(text_pb(tag, text), step, wall)

    def _add(self, summary: Any, step: int, wall: float | None = None) -> None:
        self._write(self._event(wall_time=time.time() if wall is None else wall, step=step, summary=summary))

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())
