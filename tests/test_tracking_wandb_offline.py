"""W&B offline: what its own reader finds in its own file is what the local record holds."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path

import pytest
import read_wandb
import tracking_run

from navrl.config import Config
from navrl.tracking import wandb as backend
from navrl.tracking.convert import from_json
from navrl.tracking.record import read_events, read_rows, read_summary

pytest.importorskip("wandb")
ROOT = Path(__file__).resolve().parent.parent


def same(a, b):
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    base = tmp_path_factory.mktemp("offline")
    env = tracking_run.environment(base / "home")
    result = tracking_run.run(
        env, root=base / "runs", rows=60, mode="auto", logger=["console", "wandb", "tensorboard"], source_root=ROOT
    )
    return base, result, read_wandb.read_run(result["run_dir"])


def test_without_a_key_auto_is_offline_and_says_how_to_sync(finished):
    _, result, _ = finished
    assert "no key is configured" in result["out"]
    assert f"python scripts/sync.py {result['run_dir']} --to wandb" in result["lines"][0]
    assert "60 rows are kept offline" in result["lines"][0]
    assert read_summary(result["run_dir"])["trackers"]["wandb"] == {
        "state": "local",
        "rows": 60,
        "owed": 60,
        "destination": "offline",
    }


def test_every_row_is_there_with_every_value(finished):
    _, result, run = finished
    rows = read_rows(result["run_dir"])
    got = read_wandb.curves(run["history"])
    assert len(got) == len(rows) == 60
    for row, line in zip(rows, got):
        assert set(row) == set(line)
        assert all(same(value, from_json(line[name])) for name, value in row.items()), (row, line)


def test_wall_times_are_those_of_the_rows(finished):
    _, result, run = finished
    clock = [event for event in read_events(result["run_dir"]) if event["event"] == "clock"][0]
    for row, line in zip(read_rows(result["run_dir"]), run["history"]):
        assert line["_timestamp"] == pytest.approx(clock["wall"] + row["time"], abs=0.01)


def test_names_config_axis_and_exit_code(finished):
    _, _, run = finished
    about = run["run"]
    assert (about["project"], about["run_group"], about["job_type"], about["display_name"], about["tags"]) == (
        "NAVRL",
        "group",
        "train",
        "mappo seed1",
        ["smoke"],
    )
    config = {key: value for key, value in run["config"].items() if not key.startswith("_")}
    assert config == {"lr": 5e-4, "seed": 1, "nothing": None, "sizes": [64, 64]}
    assert any(metric.get("glob_name") == "*" and metric.get("step_metric") == "step" for metric in run["metrics"])
    assert run["exit_code"] == 0
    assert run["alerts"][0]["title"] == "entropy collapse"
    assert json.loads(json.dumps(run["summary"]))["status"] == "finished"
    assert "git_commit" in json.dumps(run["summary"]) and '"running"' not in json.dumps(run["summary"])
    assert {"metadata.json", "navrl_config.yaml"} <= set(run["files"])


def test_checkpoints_and_code_are_artifacts_without_a_second_copy(finished):
    _, result, run = finished
    models = [artifact for artifact in run["artifacts"] if artifact["type"] == "model"]
    assert [artifact["name"] for artifact in models] == ["navrl_pettingzoo_some_task_mappo"] * 6
    entry = models[-1]["manifest"]["contents"][0]
    assert (entry["path"], entry["local_path"]) == ("checkpoint_ep60.pt", "checkpoints/checkpoint_ep60.pt")
    assert set(models[-1]["aliases"]) == {"latest", "best", "mappo_seed1-best"}
    metadata = json.loads(models[-1]["metadata"])
    assert (metadata["run"], metadata["seed"], metadata["step"], metadata["episodes"]) == ("mappo seed1", 1, 6000, 60)
    assert len(metadata["sha256"]) == 64
    code = next(artifact for artifact in run["artifacts"] if artifact["type"] == "code")
    paths = {entry["path"] for entry in code["manifest"]["contents"]}
    assert "navrl/tracking/record.py" in paths and not any(path.startswith("runs/") for path in paths)
    copies = [path for path in Path(result["run_dir"]).rglob("*") if path.is_file() and path.stat().st_size == 5000]
    assert {path.parent.name for path in copies} == {"checkpoints"}


def test_the_episode_is_a_table(finished):
    _, _, run = finished
    (line,) = [row for row in run["history"] if "eval/trajectory._type" in row]
    assert (line["eval/trajectory.nrows"], line["eval/trajectory.ncols"], line["step"]) == (12, 5, 6000)


def test_animation_and_table_are_there(finished):
    _, result, run = finished
    (line,) = [row for row in run["history"] if "eval/episode._type" in row]
    assert (line["eval/episode._type"], line["eval/episode.caption"], line["step"]) == ("video-file", "episode 0", 6000)
    (stored,) = Path(result["run_dir"]).glob("tracking/wandb/wandb/offline-run-*/files/" + line["eval/episode.path"])
    assert stored.read_bytes() == tracking_run.GIF
    (line,) = [row for row in run["history"] if "eval/goals._type" in row]
    (table,) = Path(result["run_dir"]).glob("tracking/wandb/wandb/offline-run-*/files/" + line["eval/goals.path"])
    assert json.loads(table.read_text())["columns"] == ["goal", "distance"]
    first, second = json.loads(table.read_text())["data"]
    assert first == ["a", 0.5] and second[0] == "b" and math.isnan(second[1])


def test_nothing_is_written_outside_the_run_and_nothing_stays_alive(finished):
    base, _, _ = finished
    assert list((base / "home").rglob("*")) == []
    assert {path.name for path in base.iterdir()} == {"home", "runs"}
    deadline = time.monotonic() + 10
    while (left := tracking_run.processes_with(str(base))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def test_training_is_neither_delayed_nor_slowed(finished):
    _, result, _ = finished
    assert result["started"] < 5
    assert result["cost"] / 60 < 0.01  # seconds a row, with three backends


def test_tensorboard_holds_the_same_rows(finished):
    _, result, _ = finished
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(
        str(result["run_dir"] / "tracking" / "tensorboard" / "events"), {"scalars": 0, "tensors": 0}
    )
    events.Reload()
    for name in ("train/loss", "odd/inf", "odd/nan", "eval/episode_reward"):
        expected = [(row["step"], row[name]) for row in read_rows(result["run_dir"]) if name in row]
        got = [(event.step, event.value) for event in events.Scalars(name)]
        assert [step for step, _ in got] == [step for step, _ in expected]
        assert all(same(a, b) or a == pytest.approx(b, rel=1e-6) for (_, a), (_, b) in zip(expected, got))


def test_the_user_s_own_directory_is_obeyed(tmp_path):
    env = tracking_run.environment(tmp_path / "home", WANDB_DIR=str(tmp_path / "mine"), WANDB_MODE="dryrun")
    result = tracking_run.run(env, root=tmp_path / "runs", rows=3)
    assert len(list((tmp_path / "mine").glob("wandb/offline-run-*/*.wandb"))) == 1
    assert list(Path(result["run_dir"]).glob("tracking/wandb/wandb")) == []


def test_without_wandb_the_run_goes_on_and_says_so(tmp_path):
    hidden = tmp_path / "hidden" / "wandb"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('not here')\n")
    env = tracking_run.environment(tmp_path / "home", PYTHONPATH=str(hidden.parent))
    result = tracking_run.run(env, root=tmp_path / "runs", rows=5, logger=["console", "wandb"])
    assert "wandb: not installed" in result["out"]
    assert len(read_rows(result["run_dir"])) == 5 and read_summary(result["run_dir"])["status"] == "finished"


@pytest.mark.parametrize("how", [{"mode": "disabled"}, {"logger": Config(logger=["wandb"], log_wandb=False).trackers}])
def test_disabled_starts_nothing(tmp_path, how):
    result = tracking_run.run(tracking_run.environment(tmp_path / "home"), root=tmp_path / "runs", rows=5, **how)
    assert result["lines"] == [] and not (result["run_dir"] / "tracking" / "wandb").exists()


@pytest.mark.parametrize(
    "asked, environ, expected",
    [
        ("auto", {}, "offline"),
        ("auto", {"WANDB_MODE": "online"}, "online"),
        ("auto", {"WANDB_MODE": "dryrun"}, "offline"),
        ("offline", {"WANDB_MODE": "online"}, "offline"),
        ("online", {}, "online"),
        ("auto", {"WANDB_API_KEY": "k", "WANDB_BASE_URL": "http://127.0.0.1:9"}, "offline"),
    ],
)
def test_mode(asked, environ, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert backend.choose_mode(asked, environ=environ)[0] == expected


@pytest.mark.parametrize("asked", ["auto", "online", None])
def test_privacy_strict_is_offline_with_a_key_and_a_live_server(asked, tmp_path, monkeypatch):
    def ask(*_):
        raise AssertionError("a server was asked")

    monkeypatch.setattr(backend, "answers", lambda *_: True)
    environ = {"WANDB_API_KEY": "k", "WANDB_MODE": "online" if asked is None else ""}
    assert backend.choose_mode(asked, environ=environ)[0] == "online"
    monkeypatch.setattr(backend, "answers", ask)
    assert backend.choose_mode(asked, environ=environ, strict=True) == ("offline", "privacy: strict sends nothing")


def test_what_a_resume_changed_in_the_code_is_sent_too(tmp_path):
    env = tracking_run.environment(tmp_path / "home")
    run_dir = tracking_run.run(env, root=tmp_path / "runs", rows=2, source_root=ROOT)["run_dir"]
    (run_dir / "code.diff").write_text("# another diff than that of now\n")
    tracking_run.run(env, root=tmp_path / "runs", resume=run_dir, cut=100, base=0.5, rows=2, source_root=ROOT)
    assert "code-2.diff" in read_wandb.read_run(run_dir)["files"]


def test_a_strict_run_goes_to_no_server(tmp_path):
    """The setting reaches the tracker: WANDB_MODE and a key together would else be online."""
    env = tracking_run.environment(
        tmp_path / "home", WANDB_API_KEY="k" * 40, WANDB_MODE="online", WANDB_BASE_URL="http://127.0.0.1:9"
    )
    told = {"logger": ["console", "wandb"], "settings": {"privacy": "strict"}}
    result = tracking_run.run(env, root=tmp_path / "runs", rows=2, **told)
    assert read_summary(result["run_dir"])["trackers"]["wandb"]["state"] == "local"
    assert "privacy: strict sends nothing; it is kept offline" in result["out"]


def test_a_key_is_found_where_wandb_keeps_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert not backend.has_key({})
    (tmp_path / ".netrc").write_text("machine api.wandb.ai\n  login user\n  password " + "a" * 40 + "\n")
    os.chmod(tmp_path / ".netrc", 0o600)
    assert backend.has_key({})
    assert not backend.has_key({"WANDB_BASE_URL": "http://other.example"})
    assert backend.has_key({"WANDB_API_KEY": "x"})
