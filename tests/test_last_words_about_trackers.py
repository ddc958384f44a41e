"""What a run says of its trackers at the end: how to publish the rest, unless nothing is to leave this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from navrl.tracking.hub import TrackerHub
from navrl.tracking.record import LocalRecord, write_json


@pytest.mark.parametrize("state", ["local", "set aside"])
@pytest.mark.parametrize("privacy", ["normal", "strict"])
def test_an_upload_is_not_suggested_where_it_is_not_wanted(privacy: str, state: str, tmp_path: Path) -> None:
    record = LocalRecord.create(tmp_path, "p", "g", "run")
    hub = TrackerHub(record, {"privacy": privacy}, science={}, terminal=False)
    hub.log(1, {"a": 1.0})
    (record.run_dir / "tracking" / "wandb").mkdir()
    write_json(record.run_dir / "tracking" / "wandb" / "ledger.json", {"state": state, "rows": 1})
    hub.backends.append("wandb")  # as its child process left it
    (line,) = hub.finish("finished")
    assert ("sync.py" in line) == (privacy == "normal"), line
    assert ("privacy: strict" in line) == (privacy == "strict"), line
