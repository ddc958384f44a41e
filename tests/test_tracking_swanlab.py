"""SwanLab offline: what its own reader finds in its own file is what the local record holds."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest
import tracking_run
from read_swanlab import records
from wandb_stand_in import free_port

from navrl.tracking import swanlab as backend
from navrl.tracking.record import read_events, read_rows, read_summary
from navrl.tracking.tracker import RunInfo, TrackerUnavailable

pytest.importorskip("swanlab")
OPTIONS = {"logger": ["console", "swanlab"]}


def state_of(finish):
    return type(finish).DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number[finish.state].name


def rows(run_dir):
    """({step: {metric: value}}, {step: wall time})"""
    found, walls = {}, {}
    for scalar in records(run_dir)["scalar"]:
        row = found.setdefault(scalar.step, {})
        assert scalar.key not in row, f"{scalar.key} twice at step {scalar.step}"
        row[scalar.key] = scalar.value.number
        walls[scalar.step] = scalar.timestamp.ToMilliseconds() / 1000
    return found, walls


def assert_same_rows(found, record):
    assert found == {
        row["step"]: {name: value for name, value in row.items() if name != "step" and math.isfinite(value)}
        for row in record
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    base = tmp_path_factory.mktemp("swanlab")
    env = tracking_run.environment(base / "home")
    return base, tracking_run.run(env, root=base / "runs", rows=60, **OPTIONS)


def test_every_finite_value_of_every_row_is_there_once(finished):
    _, result = finished
    assert "60 rows are kept offline; publish with: python scripts/sync.py" in result["lines"][0]
    assert_same_rows(rows(result["run_dir"])[0], read_rows(result["run_dir"]))


def test_wall_times_are_those_of_the_rows(finished):
    _, result = finished
    (clock,) = [event for event in read_events(result["run_dir"]) if event["event"] == "clock"]
    walls = rows(result["run_dir"])[1]
    for row in read_rows(result["run_dir"]):
        assert walls[row["step"]] == pytest.approx(clock["wall"] + row["time"], abs=0.01)


def test_names_config_and_end(finished):
    _, result = finished
    found = records(result["run_dir"])
    (start,) = found["start"]
    assert (start.project, start.name, start.group, list(start.tags), start.job_type) == (
        "NAVRL", "mappo seed1", "group", ["smoke"], "train")  # fmt: skip
    assert start.id == json.loads((result["run_dir"] / "tracking" / "run.json").read_text())["uid"]
    (config,) = (result["run_dir"] / "tracking" / "swanlab").glob("run-*/files/config.yaml")
    import yaml

    values = {name: entry["value"] for name, entry in yaml.safe_load(config.read_text()).items()}
    assert (values["lr"], values["seed"], values["sizes"], values["status"]) == (5e-4, 1, [64, 64], "finished")
    assert "metadata" not in values
    (end,) = found["finish"]
    assert state_of(end) == "RUN_STATE_FINISHED"


def test_media_tables_alerts_and_checkpoints_are_there(finished):
    _, result = finished
    media = {}
    for record in records(result["run_dir"])["media"]:
        for item in record.value.items:
            (file,) = (result["run_dir"] / "tracking" / "swanlab").rglob(item.filename)
            media[record.key, record.step] = file.read_bytes()
    assert media["eval/episode", 6000] == tracking_run.GIF
    assert media["eval/goals", 6000].decode().splitlines()[2] == "a | 0.5"
    assert media["alerts/entropy collapse", 300] == b"warn: entropy collapse: entropy is near zero"
    facts = json.loads(media["metadata", 0])
    assert facts["git_commit"] == "0" * 40 and "status" not in facts and "ended" not in facts
    text = media["checkpoint/best", 6000].decode()
    sent = [event for event in read_events(result["run_dir"]) if event["event"] == "artifact"][-1]
    assert "file: checkpoints/checkpoint_ep60.pt" in text and f"sha256: {sent['metadata']['sha256']}" in text


def test_nothing_is_written_outside_the_run_and_nothing_stays_alive(finished):
    base, result = finished
    assert list((base / "home").rglob("*")) == []
    assert {path.name for path in base.iterdir()} == {"home", "runs"}
    assert {path.name for path in (base / "runs").rglob("swanlog*")} == set()
    deadline = time.monotonic() + 10
    while (left := tracking_run.processes_with(str(base))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


@pytest.mark.parametrize("end, state", [("interrupted", "ABORTED"), ("failed", "CRASHED")])
def test_a_run_that_was_cut_short_says_so_and_a_resume_has_each_step_once(tmp_path, end, state):
    env = tracking_run.environment(tmp_path / "home")
    first = tracking_run.run(env, root=tmp_path / "runs", rows=20, end=end, exit_code=1, **OPTIONS)
    run_dir = first["run_dir"]
    (record,) = records(run_dir)["finish"]
    assert state_of(record) == f"RUN_STATE_{state}"
    tracking_run.run(env, root=tmp_path / "runs", resume=run_dir, cut=1000, base=0.5, rows=30, **OPTIONS)
    assert [row["step"] for row in read_rows(run_dir)] == [100 * i for i in range(1, 41)]
    assert_same_rows(rows(run_dir)[0], read_rows(run_dir))  # the resumed values, and one directory only


def test_training_and_its_helper_killed_at_once_are_caught_up_by_sync(tmp_path):
    env = tracking_run.environment(tmp_path / "home")
    process = tracking_run.start(env, root=tmp_path / "runs", rows=1000, pause=0.01, **OPTIONS)
    run_dir = Path(json.loads(process.stdout.readline())["run_dir"])
    ledger = run_dir / "tracking" / "swanlab"
    tracking_run.kill_publisher(ledger, rows=20)
    process.kill()
    process.communicate()
    done = tracking_run.sync(env, run_dir, to="swanlab")
    assert done.returncode == 0 and "no key is configured" in done.stdout, done.stdout + done.stderr
    assert_same_rows(rows(run_dir)[0], read_rows(run_dir))


def test_a_server_that_does_not_answer_leaves_the_run_offline(tmp_path):
    env = tracking_run.environment(
        tmp_path / "home", SWANLAB_API_KEY="k" * 21, SWANLAB_API_HOST=f"http://127.0.0.1:{free_port()}"
    )
    result = tracking_run.run(env, root=tmp_path / "runs", rows=5, settings={"swanlab_mode": "online"}, **OPTIONS)
    assert "does not answer; it is kept offline" in result["out"] and "kept offline" in result["lines"][0]
    assert_same_rows(rows(result["run_dir"])[0], read_rows(result["run_dir"]))
    assert "k" * 21 not in result["out"]


def test_disabled_starts_nothing_and_strict_tells_no_metadata(tmp_path):
    env = tracking_run.environment(tmp_path / "home")
    off = tracking_run.run(env, root=tmp_path / "runs", rows=2, settings={"swanlab_mode": "disabled"}, **OPTIONS)
    assert off["lines"] == [] and not (off["run_dir"] / "tracking" / "swanlab").exists()
    strict = tracking_run.run(env, root=tmp_path / "runs", rows=2, settings={"privacy": "strict"}, **OPTIONS)
    (config,) = (strict["run_dir"] / "tracking" / "swanlab").glob("run-*/files/config.yaml")
    assert "metadata" not in config.read_text()
    assert "metadata" not in {record.key for record in records(strict["run_dir"])["media"]}
    assert read_summary(strict["run_dir"])["trackers"]["swanlab"]["state"] == "local"


@pytest.mark.parametrize(
    "told, said, live, key, expected",
    [
        (None, None, True, True, "offline"),
        ("online", None, True, True, "online"),
        ("online", "offline", True, True, "online"),
        (None, "cloud", True, True, "online"),
        ("online", None, True, False, "offline"),
        ("offline", None, False, True, "online"),  # published later: it is meant to arrive
        ("offline", None, False, False, "offline"),
        ("local", None, False, True, "local"),
        ("offline", "local", False, True, "local"),
    ],
)
def test_mode(monkeypatch, told, said, live, key, expected):
    monkeypatch.delenv("SWANLAB_MODE", raising=False)
    if said:
        monkeypatch.setenv("SWANLAB_MODE", said)
    assert backend.choose_mode(told, live=live, key=key)[0] == expected


def test_the_dashboard_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "swanboard", None)
    monkeypatch.setenv("SWANLAB_LOG_DIR", str(tmp_path))
    run = RunInfo("u", "p", "n", "g", settings={"swanlab_mode": "local"}, run_dir=tmp_path, training_pid=1)
    with pytest.raises(TrackerUnavailable, match=r"swanlab\[dashboard\]"):
        backend.SwanlabTracker().start(run)
