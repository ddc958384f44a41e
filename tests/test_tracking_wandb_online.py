"""W&B online against the stand-in server: every row once, artifacts byte for byte, whatever happened before."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import tracking_run
from wandb_stand_in import KEY, StandIn

from navrl.files import sha256_of
from navrl.tracking.convert import from_json
from navrl.tracking.ledger import read_ledger
from navrl.tracking.record import read_rows, read_summary

pytest.importorskip("wandb")


@pytest.fixture(scope="module")
def server():
    server = StandIn()
    yield server
    server.close()


def wait_for(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return value


def committed(server, run_dir):
    """{file name: sha256} of the model artifacts that the server holds for a run."""
    dump = server.dump()
    uid = json.loads((run_dir / "tracking" / "run.json").read_text())["uid"]
    ids = [
        key
        for key, artifact in dump["artifacts"].items()
        if artifact["run"] == uid and artifact["type"] == "model" and artifact["state"] == "COMMITTED"
    ]
    prefix = "/_put/artifact/"
    return {
        path.rsplit("/", 1)[1]: digest
        for path, digest in dump["sha256"].items()
        if path.startswith(prefix) and path[len(prefix) :].split("/")[0] in ids
    }


def test_an_online_run_arrives_whole(tmp_path, server):
    env = tracking_run.environment(tmp_path / "home", **server.variables)
    result = tracking_run.run(env, root=tmp_path / "runs", rows=60, source_root=tracking_run.ROOT)
    run_dir, run = result["run_dir"], server.run(result["run_dir"])
    assert result["lines"] == [f"wandb: all 60 rows, {server.url}/local/NAVRL/runs/{run['name']}"]
    rows = read_rows(run_dir)
    got = [row for row in run["history"] if not any(isinstance(value, dict) for value in row.values())]
    assert len(got) == len(rows) == 60
    for row, line in zip(rows, got):
        line = {name: from_json(value) for name, value in line.items() if not name.startswith("_")}
        assert set(line) == set(row)
        assert all(line[name] == value or (math.isnan(line[name]) and math.isnan(value)) for name, value in row.items())
    assert (run["exitcode"], run["inserts"], run["groupName"], run["jobType"]) == (0, 1, "group", "train")
    assert committed(server, run_dir) == {path.name: sha256_of(path) for path in (run_dir / "checkpoints").iterdir()}
    assert list((tmp_path / "home").rglob("*")) == []
    # The key is nowhere: neither on disk nor in what was sent.
    assert KEY not in json.dumps(server.dump())
    for path in run_dir.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
    # Published again, nothing changes.
    before = server.dump()
    assert tracking_run.sync(env, run_dir).returncode == 0
    after = server.dump()
    assert after["runs"][run["name"]]["history"] == run["history"]
    assert set(after["artifacts"]) == set(before["artifacts"])


def test_an_offline_run_that_moved_syncs_once_with_an_empty_home(tmp_path, server):
    env = tracking_run.environment(tmp_path / "home")
    result = tracking_run.run(env, root=tmp_path / "runs", rows=40)
    moved = tmp_path / "elsewhere" / "run"
    moved.parent.mkdir()
    shutil.move(result["run_dir"], moved)
    shutil.rmtree(tmp_path / "home")
    env = tracking_run.environment(tmp_path / "home2", **server.variables)
    first = tracking_run.sync(env, moved)
    assert first.returncode == 0, first.stderr
    assert "wandb has 40 of 40 rows" in first.stdout
    steps = server.steps(moved)
    assert steps == [row["step"] for row in read_rows(moved)]
    assert committed(server, moved) == {path.name: sha256_of(path) for path in (moved / "checkpoints").iterdir()}
    assert list((tmp_path / "home2").rglob("*")) == []
    before, run = server.dump(), server.run(moved)
    assert tracking_run.sync(env, moved).returncode == 0
    after, again = server.dump(), server.run(moved)
    assert after["artifacts"] == before["artifacts"]
    assert again["inserts"] == 1 and again["history"] == run["history"]
    config, first_config = ({k: v for k, v in part["config"].items() if k != "_wandb"} for part in (again, run))
    assert config == first_config  # `_wandb`: what W&B notes of its own use
    model = "/_put/artifact/"
    blobs = [{k: v for k, v in dump["sha256"].items() if k.startswith(model)} for dump in (before, after)]
    assert blobs[0] == blobs[1] and len(blobs[0]) >= 4


def test_a_killed_run_is_closed_as_crashed_by_its_child(tmp_path, server):
    env = tracking_run.environment(tmp_path / "home", **server.variables)
    process = tracking_run.start(env, root=tmp_path / "runs", rows=30, pause=0.01, end="hang")
    run_dir = Path(json.loads(process.stdout.readline())["run_dir"])
    wait_for(lambda: len(read_rows(run_dir)) >= 29)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_for(lambda: read_ledger(run_dir / "tracking" / "wandb").get("state") == "finished")
    assert server.steps(run_dir) == [row["step"] for row in read_rows(run_dir)]
    assert server.run(run_dir)["exitcode"] == 1
    assert read_summary(run_dir)["status"] == "crashed"
    wait_for(lambda: not tracking_run.processes_with(str(tmp_path)))


def test_a_resumed_run_continues_the_same_run_with_each_step_once(tmp_path, server):
    env = tracking_run.environment(tmp_path / "home", **server.variables)
    process = tracking_run.start(env, root=tmp_path / "runs", rows=40, end="hang")
    run_dir = Path(json.loads(process.stdout.readline())["run_dir"])
    wait_for(
        lambda: (
            len(read_rows(run_dir)) >= 39 and len(server.steps(run_dir)) >= 39
            if (run_dir / "tracking/wandb/started").exists()
            else False
        )
    )
    process.send_signal(signal.SIGKILL)
    process.communicate()
    tracking_run.run(env, resume=run_dir, cut=3000, rows=30, base=1.0)  # rows 31 ... 60, after a checkpoint at 30
    assert [row["step"] for row in read_rows(run_dir)] == [100 * i for i in range(1, 61)]
    assert server.steps(run_dir) == [100 * i for i in range(1, 61)]
    assert (server.run(run_dir)["inserts"], server.run(run_dir)["exitcode"]) == (1, 0)


@pytest.mark.parametrize("moment", [0.0, 1.5])
def test_a_killed_tracker_process_loses_nothing_after_sync(tmp_path, server, moment):
    env = tracking_run.environment(tmp_path / "home", **server.variables)
    process = tracking_run.start(env, root=tmp_path / "runs", rows=200, pause=0.015)
    run_dir = Path(json.loads(process.stdout.readline())["run_dir"])
    ledger = run_dir / "tracking" / "wandb"
    pid = wait_for(lambda: read_ledger(ledger).get("pid"))
    time.sleep(moment)
    os.killpg(pid, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert len(read_rows(run_dir)) == 200
    assert "publish the rest with" in out
    done = tracking_run.sync(env, run_dir)
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.steps(run_dir) == [row["step"] for row in read_rows(run_dir)]
    assert committed(server, run_dir) == {path.name: sha256_of(path) for path in (run_dir / "checkpoints").iterdir()}


def test_an_id_that_another_run_has_is_refused(tmp_path, server):
    env = tracking_run.environment(tmp_path / "home", WANDB_RUN_ID="chosen", **server.variables)
    tracking_run.run(env, root=tmp_path / "runs", rows=3)
    assert len(server.dump()["runs"]["chosen"]["history"]) == 6
    process = tracking_run.start(env, root=tmp_path / "runs", rows=3)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0 and "WANDB_RUN_ID: 'chosen' is already used by" in err
    # The server knows it even where this machine does not.
    result = tracking_run.run(env, root=tmp_path / "other", rows=3, logger=["console", "wandb"])
    assert "WANDB_RUN_ID: 'chosen' is already used on the server" in result["out"]
    assert len(server.dump()["runs"]["chosen"]["history"]) == 6


def test_keep_artifacts_final_uploads_no_other(tmp_path, server):
    env = tracking_run.environment(tmp_path / "home", **server.variables)
    result = tracking_run.run(env, root=tmp_path / "runs", rows=20, settings={"keep_artifacts": "final"})
    assert committed(server, result["run_dir"]) == {}
    assert len(list((result["run_dir"] / "checkpoints").iterdir())) == 2
