"""MLflow: resumes, ends of every kind, kills, a server that is away or hangs. No row is lost, and none twice."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
import tracking_run
from mlflow_tools import Server, assert_same_rows, children, client, download, empty_store, rows, runs

from navrl.tracking.mlflow import PARENT_OF, MlflowTracker
from navrl.tracking.ledger import read_ledger
from navrl.tracking.record import read_rows, read_summary
from navrl.tracking.tracker import RunInfo, TrackerUnavailable

pytest.importorskip("mlflow")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A root of runs whose `mlflow.db` the tests share (making one takes seconds): (environment, root, address)."""
    base = tmp_path_factory.mktemp("faults")
    return tracking_run.environment(base / "home"), base / "runs", empty_store(base / "runs" / "mlflow.db")


@pytest.fixture
def in_process(monkeypatch):
    """A tracker that is used in this process sets variables for it; they end with the test."""
    before = dict(os.environ)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    yield
    os.environ.clear()
    os.environ.update(before)


def options(group="group", **settings):
    return {"logger": ["console", "mlflow"], "settings": {"group": group, "tracker_timeout": 30, **settings}}


def uid(run_dir):
    return json.loads((run_dir / "tracking" / "run.json").read_text())["uid"]


def mine(uri, run_dir):
    (run,) = runs(client(uri), f"tags.`navrl.uid` = '{uid(run_dir)}'")
    return run


def without_time(found):
    return {step: {name: value for name, value in row.items() if name != "time"} for step, row in found.items()}


def test_a_resumed_run_is_the_same_mlflow_run_with_each_step_once(place):
    env, root, uri = place
    first = tracking_run.run(env, root=root, name="resumed", rows=20, end="interrupted", exit_code=143, **options("r"))
    run_dir = first["run_dir"]
    assert (mine(uri, run_dir).info.status, children(client(uri), "r")[0].info.status) == ("KILLED", "KILLED")
    tracking_run.run(env, root=root, resume=run_dir, cut=1000, base=0.5, rows=30, **options("r"))
    record, run = read_rows(run_dir), mine(uri, run_dir)
    assert [row["step"] for row in record] == [100 * i for i in range(1, 41)]
    found = without_time(rows(client(uri), run.info.run_id))
    assert_same_rows(found, [{name: value for name, value in row.items() if name != "time"} for row in record])
    assert run.data.params == {"lr": "0.0005", "seed": "1", "nothing": "null", "sizes": "[64, 64]"}
    parent, seeds = children(client(uri), "r")
    assert (len(seeds), run.info.status, parent.info.status) == (1, "FINISHED", "FINISHED")


def test_a_run_that_fails_is_failed_and_so_is_its_group(place):
    env, root, uri = place
    failed = tracking_run.run(env, root=root, name="failed", rows=5, end="failed", exit_code=1, **options("f"))
    run = mine(uri, failed["run_dir"])
    assert (run.info.status, run.data.tags["exit_code"], run.data.tags["status"]) == ("FAILED", "1", "failed")
    assert children(client(uri), "f")[0].info.status == "FAILED"


def test_training_killed_is_failed_with_all_rows(place):
    env, root, uri = place
    process = tracking_run.start(env, root=root, name="killed", rows=1000, pause=0.02, **options("k"))
    run_dir = Path(json.loads(process.stdout.readline())["run_dir"])
    wait(lambda: read_ledger(run_dir / "tracking" / "mlflow").get("rows", 0) > 0)
    process.kill()
    process.communicate()
    wait(lambda: read_ledger(run_dir / "tracking" / "mlflow").get("state") in ("finished", "set aside"))
    run = mine(uri, run_dir)
    assert run.info.status == "FAILED"
    assert_same_rows(rows(client(uri), run.info.run_id), read_rows(run_dir))


def test_training_and_its_helper_killed_at_once_are_caught_up_by_sync(place):
    env, root, uri = place
    process = tracking_run.start(env, root=root, name="both", rows=1000, pause=0.02, **options("b"))
    run_dir = Path(json.loads(process.stdout.readline())["run_dir"])
    ledger = run_dir / "tracking" / "mlflow"
    wait(lambda: read_ledger(ledger).get("rows", 0) > 0)
    os.killpg(read_ledger(ledger)["pid"], signal.SIGKILL)
    process.kill()
    process.communicate()
    assert mine(uri, run_dir).info.status == "RUNNING"
    done = tracking_run.sync(env, run_dir, to="mlflow")
    assert done.returncode == 0, done.stdout + done.stderr
    run = mine(uri, run_dir)
    assert run.info.status == "FAILED" and children(client(uri), "b")[0].info.status == "FAILED"
    assert_same_rows(rows(client(uri), run.info.run_id), read_rows(run_dir))


def test_a_server_that_hangs_and_one_that_is_not_there_get_every_row_at_last(tmp_path):
    server = Server(tmp_path / "server", empty_store(tmp_path / "server.db"))
    env = tracking_run.environment(tmp_path / "home", MLFLOW_HTTP_REQUEST_TIMEOUT="3")
    about = {"root": tmp_path / "runs", **options(mlflow_tracking_uri=server.url, tracker_timeout=3)}
    directories = []
    try:
        process = tracking_run.start(env, name="seen", rows=250, pause=0.03, **about)
        run_dir = Path(json.loads(process.stdout.readline())["run_dir"])
        wait(lambda: read_ledger(run_dir / "tracking" / "mlflow").get("rows", 0) > 0)
        os.killpg(server.process.pid, signal.SIGSTOP)
        directories.append(ended(process, run_dir, 250))
        server.kill()
        process = tracking_run.start(env, name="alone", rows=30, **about)
        directories.append(ended(process, Path(json.loads(process.stdout.readline())["run_dir"]), 30))
        server.start()
        for run_dir in directories:
            done = tracking_run.sync(env, run_dir, to="mlflow")
            assert done.returncode == 0, done.stdout + done.stderr
            run = mine(server.url, run_dir)
            assert run.info.status == "FINISHED"
            assert_same_rows(rows(client(server.url), run.info.run_id), read_rows(run_dir))
            path = max((run_dir / "checkpoints").iterdir())
            artifact = f"checkpoints/{path.stem}/{path.name}"
            assert download(server.url, run.info.run_id, artifact, tmp_path / "got") == path.read_bytes()
        parent, seeds = children(client(server.url))
        assert (parent.info.status, len(seeds)) == ("FINISHED", 2)
    finally:
        server.kill()


def ended(process, run_dir, count):
    """The run went on to its end without the server, in time, and says what is owed and how to send it."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    last = json.loads(out.splitlines()[-1])
    assert last["started"] < 5 and last["slowest"] < 1 and last["finish"] < 20
    assert "publish the rest with: python scripts/sync.py" in last["lines"][0], last
    assert len(read_rows(run_dir)) == count and read_summary(run_dir)["status"] == "finished"
    assert tracking_run.processes_with(str(run_dir)) == []
    return run_dir


def wait(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ---- single troubles, with the tracker in this process


def info(root, name, **fields):
    run_dir = root / "NAVRL" / "group" / name
    run_dir.mkdir(parents=True, exist_ok=True)
    return RunInfo(uid=name, name=name, run_dir=run_dir, started=1.7e9,
                   **{"project": "NAVRL", "group": "single", **fields})  # fmt: skip


def published(run, steps=()):
    tracker = MlflowTracker()
    tracker.start(run)
    for step in steps:
        tracker.log_row(step, 1.7e9 + step, {"time": float(step), "x": step})
    tracker.finish("finished", 0, {"final": {"step": 3, "mean": {"episode_reward": -5.5}}})


def test_a_parameter_too_long_is_whole_in_an_artifact_and_a_changed_one_is_a_tag(place, in_process, tmp_path):
    _, root, uri = place
    published(info(root, "long", config={"lr": 1e-3, "layout": "x" * 7000, "empty": ""}))
    published(info(root, "long", config={"lr": 2e-3, "layout": "x" * 7000, "new": True}))
    (run,) = runs(client(uri), "tags.`navrl.uid` = 'long'")
    assert run.data.params.pop("layout").startswith("x" * 200 + "...")
    assert run.data.params == {"lr": "0.001", "empty": '""', "new": "true"}
    assert run.data.tags["changed.lr"] == "0.002"
    assert download(uri, run.info.run_id, "config/layout.txt", tmp_path) == b"x" * 7000


def test_the_result_is_among_the_metrics_once(place, in_process):
    _, root, uri = place
    for _ in range(2):
        published(info(root, "result"), (1, 2, 3))
    (run,) = runs(client(uri), "tags.`navrl.uid` = 'result'")
    found = rows(client(uri), run.info.run_id)
    assert found[3] == {"time": 3.0, "x": 3.0, "final/mean.episode_reward": -5.5} and list(found) == [1, 2, 3]


def test_rows_wider_than_a_call_are_whole(place, in_process):
    _, root, uri = place
    tracker = MlflowTracker()
    tracker.start(info(root, "wide"))
    for step in (1, 2):
        tracker.log_row(step, 1.7e9 + step, {"time": 1.0, **{f"m{i}": step * i for i in range(700)}})
    tracker.finish("finished", 0, {})
    (run,) = runs(client(uri), "tags.`navrl.uid` = 'wide'")
    for i in (0, 350, 699):
        assert [point.value for point in client(uri).get_metric_history(run.info.run_id, f"m{i}")] == [i, 2 * i]


def test_of_two_parents_made_at_one_moment_one_stays_and_has_all_children(place, in_process):
    _, root, uri = place
    published(info(root, "elder", group="it's two"))
    store = client(uri)
    parent, _ = children(store, "it's two")
    tags = {PARENT_OF: parent.data.tags[PARENT_OF], "group": "it's two"}
    second = store.create_run(parent.info.experiment_id, tags=tags, start_time=int(1.8e12)).info.run_id
    orphan = store.create_run(parent.info.experiment_id, tags={"mlflow.parentRunId": second}).info.run_id
    published(info(root, "younger", group="it's two"))
    kept, found = children(store, "it's two")
    assert kept.info.run_id == parent.info.run_id
    assert {run.data.tags.get("navrl.uid") for run in found} == {"elder", "younger", None}
    assert store.get_run(orphan).data.tags["mlflow.parentRunId"] == kept.info.run_id
    assert store.get_run(second).info.lifecycle_stage == "deleted"


def test_a_deleted_experiment_is_named_with_the_way_out(place, in_process):
    _, root, uri = place
    published(info(root, "gone", project="Gone"))
    experiment = client(uri).get_experiment_by_name("Gone")
    client(uri).delete_experiment(experiment.experiment_id)
    run = info(root, "gone", project="Gone")
    with pytest.raises(TrackerUnavailable, match="mlflow experiments restore"):
        MlflowTracker().start(run)
