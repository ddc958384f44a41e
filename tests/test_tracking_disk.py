"""What trackers keep on this disk: within the budget, nothing twice, and nothing of it in the home directory."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import read_swanlab
import read_wandb
import tracking_run
from mlflow_tools import assert_same_rows, children, client, empty_store, rows
from wandb_stand_in import StandIn

from navrl.tracking.publish import Publisher, directory_bytes, write_run_info
from navrl.tracking.record import read_rows
from navrl.tracking.tracker import RunInfo, Unpublishable

for package in ("wandb", "mlflow", "swanlab", "tensorboard"):
    pytest.importorskip(package)
EACH, COUNT = 150_000, 12  # bytes of a picture, pictures a run: 1.8 MB for each of four trackers
CHECKPOINT = 5000  # bytes of one of tracking_run's


@pytest.fixture(scope="module")
def bounded(tmp_path_factory):
    """A run with all trackers and a budget of 1 MB."""
    base = tmp_path_factory.mktemp("budget")
    empty_store(base / "runs" / "mlflow.db")
    result = tracking_run.run(
        tracking_run.environment(base / "home"), root=base / "runs", rows=10 * COUNT, media_bytes=EACH, timeout=120,
        logger=["console", "wandb", "mlflow", "swanlab", "tensorboard"], mode="offline",
        settings={"tracker_disk_budget_mb": 1, "tracker_timeout": 60},
    )  # fmt: skip
    return base, result


def mine(base):
    store = client(f"sqlite:///{base / 'runs' / 'mlflow.db'}")
    (run,) = children(store)[1]
    return store, run


def test_the_budget_is_kept_and_each_tracker_says_once_that_it_is_used_up(bounded):
    base, result = bounded
    # Four processes look at the disk at once, so each may add a picture after its look; rows and texts come on top.
    assert 2**20 / 2 < directory_bytes(result["run_dir"] / "tracking") < 2**20 + 4 * EACH + 400_000
    said = [line for line in result["out"].splitlines() if "tracker_disk_budget_mb: 1 MB are used" in line]
    assert len(said) == len({line.split(":")[0] for line in said}) >= 3  # MLflow links its files, and may never say it


def test_rows_and_checkpoints_go_on_without_space_for_media(bounded):
    base, result = bounded
    record = read_rows(result["run_dir"])
    assert len(record) == 10 * COUNT
    history = read_wandb.read_run(result["run_dir"])["history"]
    assert [row["step"] for row in read_wandb.curves(history)] == [row["step"] for row in record]
    assert sum("eval/large._type" in row for row in history) < COUNT
    finite = sum(math.isfinite(value) for row in record for name, value in row.items() if name != "step")
    assert len(read_swanlab.records(result["run_dir"])["scalar"]) == finite
    store, run = mine(base)
    assert_same_rows(rows(store, run.info.run_id), record)
    versions = store.search_model_versions(f"run_id = '{run.info.run_id}'")
    assert len(versions) == len(list((result["run_dir"] / "checkpoints").iterdir())) == COUNT


def test_a_checkpoint_that_a_tracker_had_to_copy_counts_for_nothing(tmp_path):
    run_dir = tmp_path / "run"
    (run_dir / "tracking").mkdir(parents=True)
    write_run_info(run_dir, RunInfo("uid", "NAVRL", "run", "group", settings={"tracker_disk_budget_mb": 1}))
    publisher = Publisher(run_dir, "tensorboard")
    copy = run_dir / "tracking" / "mlflow" / "checkpoints" / "checkpoint_ep1" / "checkpoint_ep1.pt"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(bytes(2**21))
    publisher._check_budget(1000)
    copy.with_name("large.gif").write_bytes(bytes(2**21))
    with pytest.raises(Unpublishable, match="the disk budget is used up"):
        publisher._check_budget(1000)
    publisher.ledger.close()


def test_nothing_is_in_the_home_directory(bounded):
    base, _ = bounded
    assert list((base / "home").rglob("*")) == []


def test_a_checkpoint_is_on_the_disk_once(tmp_path):
    server = StandIn()
    try:
        env = tracking_run.environment(tmp_path / "home", **server.variables)
        uri = empty_store(tmp_path / "runs" / "mlflow.db")
        result = tracking_run.run(env, root=tmp_path / "runs", rows=30, logger=["wandb", "mlflow"], mode="online",
                                  settings={"tracker_timeout": 60})  # fmt: skip
        assert all("all 30 rows" in line for line in result["lines"]), result["lines"]
        store = client(uri)
        (run,) = children(store)[1]
        kept = Path(run.info.artifact_uri.removeprefix("file://"))
        for path in (result["run_dir"] / "checkpoints").iterdir():
            assert (kept / "checkpoints" / path.stem / path.name).samefile(path)
        files = {path.stat().st_ino for path in tmp_path.rglob("*") if path.is_file() and
                 path.stat().st_size == CHECKPOINT}  # fmt: skip
        assert len(files) == 3
    finally:
        server.close()
