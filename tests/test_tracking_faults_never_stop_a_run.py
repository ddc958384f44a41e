"""A server that refuses, hangs, fails or goes away: training starts and ends in time, and sync brings what is owed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import tracking_run
from wandb_stand_in import KEY, StandIn, free_port

from navrl.tracking.record import read_rows, read_summary

pytest.importorskip("wandb")
PATIENCE = 3.0  # tracker_timeout of these runs, seconds


@pytest.fixture
def server():
    server = StandIn()
    yield server
    server.close()


def whole(result, rows):
    assert [row["step"] for row in read_rows(result["run_dir"])] == [100 * i for i in range(1, rows + 1)]
    assert read_summary(result["run_dir"])["status"] == "finished"
    assert result["started"] < 5 and result["slowest"] < 1


@pytest.mark.parametrize(
    "fault, mode", [("hang", "auto"), ("500", "auto"), ("hang", "online"), ("500", "online"), ("401", "online")]
)
def test_a_server_that_is_broken_at_the_start(tmp_path, server, fault, mode):
    server.fault(fault)
    env = tracking_run.environment(tmp_path / "home", **server.variables)
    result = tracking_run.run(env, root=tmp_path / "runs", rows=30, mode=mode, settings={"tracker_timeout": PATIENCE})
    whole(result, 30)
    assert result["finish"] < PATIENCE + 12
    (line,) = result["lines"]
    assert f"publish {'with' if 'offline' in line else 'the rest with'}: python scripts/sync.py" in line
    assert tracking_run.processes_with(str(result["run_dir"])) == []
    server.fault("none")
    done = tracking_run.sync(env, result["run_dir"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.steps(result["run_dir"]) == [100 * i for i in range(1, 31)]


def test_nobody_listens_at_all(tmp_path):
    env = tracking_run.environment(
        tmp_path / "home", WANDB_BASE_URL=f"http://127.0.0.1:{free_port()}", WANDB_API_KEY=KEY
    )
    result = tracking_run.run(env, root=tmp_path / "runs", rows=30, logger=["console", "wandb"])
    whole(result, 30)
    assert "does not answer" in result["out"] and "30 rows are kept offline" in result["lines"][0]


def test_a_server_that_fails_for_a_while_gets_everything(tmp_path, server):
    env = tracking_run.environment(tmp_path / "home", **server.variables)
    process = tracking_run.start(env, root=tmp_path / "runs", rows=200, pause=0.03)
    run_dir = Path(json.loads(process.stdout.readline())["run_dir"])
    deadline = time.monotonic() + 30
    while not server.dump()["runs"] and time.monotonic() < deadline:
        time.sleep(0.05)
    server.fault("500")
    time.sleep(3)
    server.fault("none")
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    if "wandb: all 200 rows" not in out:
        assert tracking_run.sync(env, run_dir).returncode == 0
    assert server.steps(run_dir) == [100 * i for i in range(1, 201)]


def test_a_server_that_hangs_at_the_end_is_left_in_time_and_caught_up(tmp_path, server):
    env = tracking_run.environment(tmp_path / "home", **server.variables)
    process = tracking_run.start(
        env, root=tmp_path / "runs", rows=150, pause=0.02, settings={"tracker_timeout": PATIENCE}
    )
    run_dir = Path(json.loads(process.stdout.readline())["run_dir"])
    deadline = time.monotonic() + 30
    while not server.dump()["runs"] and time.monotonic() < deadline:
        time.sleep(0.05)
    server.fault("hang")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    result = json.loads(out.splitlines()[-1])
    assert result["finish"] < PATIENCE + 12 and "publish the rest with" in result["lines"][0]
    assert len(read_rows(run_dir)) == 150
    assert tracking_run.processes_with(str(run_dir)) == []
    server.fault("none")
    done = tracking_run.sync(env, run_dir)
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.steps(run_dir) == [100 * i for i in range(1, 151)]


def test_a_slow_server_that_makes_progress_is_not_cut(tmp_path, server):
    server.fault("slow:0.2")
    env = tracking_run.environment(tmp_path / "home", **server.variables)
    result = tracking_run.run(env, root=tmp_path / "runs", rows=60, settings={"tracker_timeout": 10}, timeout=130)
    assert result["lines"][0].startswith("wandb: all 60 rows")
    assert server.steps(result["run_dir"]) == [100 * i for i in range(1, 61)]


def test_without_a_key_online_asks_nobody_and_says_what_to_do(tmp_path, server):
    env = tracking_run.environment(tmp_path / "home", WANDB_BASE_URL=server.url)
    result = tracking_run.run(env, root=tmp_path / "runs", rows=10, mode="online", logger=["console", "wandb"])
    whole(result, 10)
    assert "wandb login" in result["out"]
