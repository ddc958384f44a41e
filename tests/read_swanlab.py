"""Read a run back from SwanLab's own offline file, with SwanLab's own reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def records(run_dir: Path) -> dict[str, list[Any]]:
    """All records of the one SwanLab file in a run directory, by kind."""
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record
    from swanlab.sdk.internal.core_python.store import DataStoreReader

    (file,) = (run_dir / "tracking" / "swanlab").glob("run-*/run-*.swanlab")
    reader, found = DataStoreReader(), {}
    reader.open(str(file))
    while (data := reader.scan()) is not None:
        record = Record()
        record.ParseFromString(data)
        for kind in ("start", "scalar", "media", "column", "save", "finish"):
            if record.HasField(kind):
                found.setdefault(kind, []).append(getattr(record, kind))
    return found
