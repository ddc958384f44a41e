"""MLflow in an SQLite file, behind its own server and in PostgreSQL: what its client finds is the local record."""

from __future__ import annotations

import json
import math
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import tracking_run
from mlflow_tools import (
    Postgres,
    Server,
    assert_same_rows,
    children,
    client,
    download,
    empty_store,
    registry_at,
    rows,
    runs,
)

from navrl.metrics.trajectories import Trajectories
from navrl.tracking import mlflow as backend
from navrl.tracking.record import read_events, read_rows, read_summary
from navrl.tracking.tracker import RunInfo, TrackerUnavailable

pytest.importorskip("mlflow")
ROOT = Path(__file__).resolve().parent.parent
PLACES = ["sqlite", pytest.param("postgres", marks=pytest.mark.requires_service("postgresql")), "server"]


def start_seeds(base, uri, seeds, rows=20, **options):
    """Seeds of one group, all at once."""
    env = tracking_run.environment(base / "home")
    settings = {"mlflow_tracking_uri": uri, "tracker_timeout": 60, **options.pop("settings", {})}
    started = [
        tracking_run.start(env, root=base / "runs", name=f"mappo_seed{seed}", rows=rows, logger=["console", "mlflow"],
                           settings={**settings, "seed": seed, "experiment_name": f"mappo seed{seed}"}, **options)
        for seed in seeds
    ]  # fmt: skip
    directories = []
    for process in started:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert f"mlflow: all {rows} rows" in out, out + err
        directories.append(Path(json.loads(out.splitlines()[0])["run_dir"]))
    return directories


@pytest.fixture(scope="module", params=PLACES)
def group(request, tmp_path_factory):
    """Seeds that begin at one moment on an empty store: (uri to read, base, run directories)."""
    base = tmp_path_factory.mktemp(request.param)
    keeper = None
    if request.param == "sqlite":
        told, uri = None, f"sqlite:///{base / 'runs' / 'mlflow.db'}"
    elif request.param == "postgres":
        keeper = Postgres()
        told = uri = keeper.url
    else:
        keeper = Server(base / "server", empty_store(base / "server.db"))
        told = uri = keeper.url
    try:
        seeds = (1, 2, 3) if request.param == "sqlite" else (1, 2)
        directories = start_seeds(base, told, seeds, rows=20, source_root=ROOT, settings={"trace": "mlflow"})
        yield uri, base, directories
    finally:
        if keeper is not None:
            keeper.kill() if isinstance(keeper, Server) else keeper.close()


@pytest.fixture(scope="module")
def first(group):
    """(client, the first seed's MLflow run, its run directory, uri)."""
    uri, _, directories = group
    store = client(uri)
    _, seeds = children(store)
    return store, next(run for run in seeds if run.data.tags["seed"] == "1"), directories[0], uri


def test_the_group_has_one_parent_and_a_child_a_seed_and_all_have_ended(group):
    uri, _, directories = group
    parent, seeds = children(client(uri))
    assert (parent.info.run_name, parent.info.status) == ("group", "FINISHED")
    assert sorted(run.info.run_name.replace(" ", "_") for run in seeds) == [path.name for path in directories]
    assert {run.info.status for run in seeds} == {"FINISHED"}
    assert len(runs(client(uri))) == 1 + len(directories)
    for directory in directories:
        assert read_summary(directory)["trackers"]["mlflow"]["owed"] == 0


def test_every_row_of_every_seed_is_there_once_with_every_value(group):
    uri, _, directories = group
    store = client(uri)
    _, seeds = children(store)
    by_name = {run.info.run_name.replace(" ", "_"): run for run in seeds}
    for directory in directories:
        record = read_rows(directory)
        assert len(record) == 20
        assert_same_rows(rows(store, by_name[directory.name].info.run_id), record)


def test_wall_times_are_those_of_the_rows(first):
    store, run, directory, _ = first
    (clock,) = [event for event in read_events(directory) if event["event"] == "clock"]
    points = {point.step: point.timestamp for point in store.get_metric_history(run.info.run_id, "train/loss")}
    for row in read_rows(directory):
        assert points[row["step"]] == pytest.approx(1000 * (clock["wall"] + row["time"]), abs=2)
    (end,) = [event for event in read_events(directory) if event["event"] == "finish"]
    (attempt,) = [event for event in read_events(directory) if event["event"] == "attempt"]
    assert run.info.start_time == pytest.approx(1000 * attempt["wall"], abs=2)
    assert run.info.end_time == pytest.approx(1000 * end["wall"], abs=2)


def test_config_is_parameters_and_metadata_and_alerts_are_tags_and_artifacts(first, tmp_path):
    _, run, directory, uri = first
    assert run.data.params == {"lr": "0.0005", "seed": "1", "nothing": "null", "sizes": "[64, 64]"}
    tags = run.data.tags
    assert (tags["group"], tags["seed"], tags["env_id"], tags["algorithm_name"], tags["tags"]) == (
        "group", "1", "pettingzoo:some:task", "mappo", "smoke")  # fmt: skip
    assert tags["metadata.git_commit"] == tags["mlflow.source.git.commit"] == "0" * 40
    assert (tags["status"], tags["exit_code"]) == ("finished", "0")
    assert tags["nonfinite.odd/inf"] == "+Infinity at step 100"
    assert tags["alert.entropy collapse"] == "warn: step 300: entropy is near zero"
    alert = download(uri, run.info.run_id, "alerts/step_300_entropy_collapse.txt", tmp_path)
    assert b"entropy is near zero" in alert
    for name in ("config.yaml", "metadata.json"):
        assert download(uri, run.info.run_id, name, tmp_path) == (directory / name).read_bytes()


def test_checkpoints_come_back_byte_by_byte_as_artifacts_and_as_model_versions(first, tmp_path):
    import mlflow

    store, run, directory, uri = first
    name = "navrl_pettingzoo_some_task_mappo"
    for path in directory.glob("checkpoints/*.pt"):
        artifact = f"checkpoints/{path.stem}/{path.name}"
        assert download(uri, run.info.run_id, artifact, tmp_path / path.stem) == path.read_bytes()
    versions = [v for v in store.search_model_versions(f"name = '{name}'") if v.run_id == run.info.run_id]
    assert sorted(version.tags["step"] for version in versions) == ["1000", "2000"]
    last = store.get_model_version_by_alias(name, "mappo_seed1-best")
    assert (last.run_id, last.tags["step"], last.tags["episodes"]) == (run.info.run_id, "2000", "20")
    for alias in ("newest", "best"):
        version = store.get_model_version_by_alias(name, alias)
        whose = directory.parent / store.get_run(version.run_id).info.run_name.replace(" ", "_")
        with registry_at(uri):
            got = Path(mlflow.artifacts.download_artifacts(f"models:/{name}@{alias}", dst_path=str(tmp_path / alias)))
        (file,) = got.glob("*.pt")
        assert file.read_bytes() == (whose / "checkpoints" / file.name).read_bytes()


def test_animations_and_tables_are_artifacts(first, tmp_path):
    _, run, _, uri = first
    base = "media/eval/episode/step_2000/episode_0.gif"
    assert download(uri, run.info.run_id, base, tmp_path) == tracking_run.GIF
    assert download(uri, run.info.run_id, base + ".txt", tmp_path) == b"episode 0"
    table = json.loads(download(uri, run.info.run_id, "tables/eval/goals/step_2000.json", tmp_path))
    assert table == {"columns": ["goal", "distance"], "data": [["a", 0.5], ["b", "NaN"]]}
    assert json.loads(run.data.tags["mlflow.loggedArtifacts"]) == [
        {"path": "tables/eval/goals/step_2000.json", "type": "table"}
    ]


def test_an_episode_is_a_trace_of_a_span_a_step_and_agent(first):
    store, run, _, _ = first
    mine = f"tag.`navrl.uid` = '{run.data.tags['navrl.uid']}'"
    found = store.search_traces([run.info.experiment_id], filter_string=mine)
    (trace,) = [store.get_trace(trace.info.trace_id) for trace in found]
    assert trace.info.trace_metadata["mlflow.sourceRun"] == run.info.run_id
    assert trace.info.tags["step"] == "2000" and "mlflow.user" not in trace.info.trace_metadata
    root, *spans = sorted(trace.data.spans, key=lambda span: span.span_id)
    assert (root.name, root.parent_id, root.outputs) == ("eval/trajectory", None, {"episode_reward": 4.0})
    assert [span.name for span in spans] == [f"step {t} agent {a}" for t in range(1, 5) for a in range(3)]
    assert {span.parent_id for span in spans} == {root.span_id}
    positions = np.arange(24.0).reshape(4, 3, 2)
    for span, position in zip(spans, positions.reshape(12, 2)):
        assert span.inputs == {"positions": position.tolist()} and span.outputs == {"rewards": 1.0}


def test_nothing_is_written_outside_and_nothing_stays_alive(group):
    _, base, directories = group
    assert list((base / "home").rglob("*")) == []
    assert {path.name for path in base.iterdir()} <= {"home", "runs", "server", "server.db"}
    for directory in directories:
        inside = {path.name for path in (directory / "tracking" / "mlflow").iterdir()}
        assert all(name in (".lock", "ledger.json", "log.txt") or name.startswith("sent-") for name in inside)
    deadline = time.monotonic() + 10
    while (left := tracking_run.processes_with(str(base / "runs"))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def test_twice_is_once_also_without_the_list_of_what_was_sent(group, first, tmp_path):
    """Another copy of the run directory knows nothing of what was sent, and still sends nothing twice."""
    store, run, directory, uri = first
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    for path in (copy / "tracking" / "mlflow").glob("sent-*"):
        path.unlink()
    before = len(store.search_model_versions(f"run_id = '{run.info.run_id}'"))
    env = tracking_run.environment(tmp_path / "home", MLFLOW_TRACKING_URI=uri)
    done = tracking_run.sync(env, copy, to="mlflow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mlflow has 20 of 20 rows" in done.stdout
    assert_same_rows(rows(store, run.info.run_id), read_rows(directory))
    assert len(store.search_model_versions(f"run_id = '{run.info.run_id}'")) == before == 2
    seeds = len(group[2])
    assert len(store.search_traces([run.info.experiment_id])) == seeds and len(runs(store)) == 1 + seeds
    again = store.get_run(run.info.run_id)
    assert (again.info.status, again.info.end_time) == ("FINISHED", run.info.end_time)


# ---- without a store


def info(tmp_path, **settings):
    return RunInfo("u", "NAVRL", "run", "group", settings=settings, run_dir=tmp_path / "NAVRL" / "group" / "run")


def test_the_default_store_is_a_file_beside_the_runs_and_for_a_moved_run_inside_it(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = info(tmp_path)
    assert backend.store_address(run) == f"sqlite:///{tmp_path}/mlflow.db"
    run.run_dir = tmp_path / "elsewhere" / "run"
    assert backend.store_address(run) == f"sqlite:///{tmp_path}/elsewhere/run/tracking/mlflow/mlflow.db"


def test_what_is_said_when_a_run_is_published_later_counts_more_than_what_was_told(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://later:5000")
    run = info(tmp_path, mlflow_tracking_uri="http://then:5000")
    assert backend.store_address(run) == "http://later:5000"
    run.training_pid = 1
    assert backend.store_address(run) == "http://then:5000"


def test_a_relative_file_counts_from_where_the_command_was_given(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("PWD", "/somewhere")
    run = info(tmp_path, mlflow_tracking_uri="sqlite:///mine.db")
    assert backend.store_address(run) == "sqlite:////somewhere/mine.db"


@pytest.mark.parametrize("address", ["./mlruns", "file:///tmp/mlruns", "ftp://somewhere"])
def test_an_address_that_is_no_store_is_refused_with_the_way_out(tmp_path, monkeypatch, address):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(TrackerUnavailable, match="write sqlite:///FILE"):
        backend.store_address(info(tmp_path, mlflow_tracking_uri=address))


def test_a_password_that_was_not_kept_is_asked_for_rather_than_another_store_taken(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = info(tmp_path)
    (run.run_dir / "tracking").mkdir(parents=True)
    (run.run_dir / "tracking" / "run.json").write_text('{"settings": {"mlflow_tracking_uri": "postgresql://***@h/d"}}')
    with pytest.raises(TrackerUnavailable, match="set MLFLOW_TRACKING_URI"):
        backend.store_address(run)


def test_privacy_strict_reaches_no_other_machine(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(TrackerUnavailable, match="privacy: strict"):
        backend.MlflowTracker().start(info(tmp_path, mlflow_tracking_uri="http://192.0.2.1:5000", privacy="strict"))


def test_names_of_all_kinds_become_names_that_mlflow_takes():
    from mlflow.utils.validation import _validate_metric_name, _validate_tag_name

    for name in ("train/loss", "a[0]@b", "../up", "/root//x/", "ünder", "", "a:b", "y" * 400, "eval/{role}"):
        _validate_metric_name(backend.mlflow_name(name))
        _validate_tag_name(backend.mlflow_name(name))


def test_a_trace_of_a_trajectory_file_has_observation_action_reward_and_contact(tmp_path):
    steps, agents, lengths = 4, 2, np.array([3, 4])
    positions = np.zeros((steps + 1, 2, agents, 2))
    positions[:, :, 1, 0] = 1.0
    positions[2, 0, 1, 0] = 0.2  # after step 2 of the first episode they touch
    file = Trajectories(
        rewards=np.arange(16.0).reshape(steps, 2, agents), lengths=lengths,
        roles=("agent",) * agents, score_role="agent", agent_pos=positions, agent_vel=positions + 5,
        goal_pos=np.full((steps + 1, 2, 1, 2), 3.0),
        agent_radii=np.full(agents, 0.15), goal_radius=0.1, actions=np.ones((steps, 2, agents), dtype=np.int64),
    )  # fmt: skip
    path = tmp_path / "e.npz"
    file.save_npz(path)
    run = RunInfo(uid="u", project="NAVRL", name="mappo_seed1", group="group")
    about = {"name": "eval/episode_0", "step": 100, "wall": 1000.0, "experiment": "0", "run_id": "r", "run": run}
    trace, spans = backend.episode_trace(path, **about)
    assert len(spans) == 1 + 3 * agents  # the first episode ended after three steps
    assert trace.trace_id == backend.episode_trace(path, **about)[0].trace_id
    second = spans[1 + agents + 1]  # step 2, agent 1
    assert second.name == "step 2 agent 1"
    assert second.inputs == {
        "position": [1.0, 0.0], "velocity": [6.0, 5.0], "nearest_goal": pytest.approx(math.hypot(2, 3))
    }  # fmt: skip
    assert second.outputs == {"action": 1, "reward": 5.0, "contact": True}
    assert [span.outputs["contact"] for span in spans[1:]] == [False, False, True, True, False, False]
