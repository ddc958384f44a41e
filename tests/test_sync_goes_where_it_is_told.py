"""`scripts/sync.py`: a finished run goes to a server that is chosen only now, by a flag, without any variable."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import mlflow_tools
import pytest
import tracking_run
from read_swanlab import records
from wandb_stand_in import StandIn
from whole_runs import ROOT

from navrl.tracking.record import read_rows


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    base = tmp_path_factory.mktemp("sync")
    env = tracking_run.environment(base / "home")
    return env, tracking_run.run(env, root=base / "runs", rows=20, logger=["console"])["run_dir"]


def sync(env, run_dir, *flags):
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "sync.py"), str(run_dir), *flags],
        env=env, cwd=run_dir.parents[3], text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=90,
    )  # fmt: skip


def test_to_a_store_of_mlflow_whatever_the_variable_says(finished, tmp_path):
    env, run_dir = finished
    chosen, other = mlflow_tools.empty_store(tmp_path / "chosen" / "m.db"), tmp_path / "other.db"
    done = sync(env | {"MLFLOW_TRACKING_URI": f"sqlite:///{other}"}, run_dir, "--to", "mlflow", "--mlflow_tracking_uri",
                chosen)  # fmt: skip
    assert done.returncode == 0 and "mlflow has 20 of 20 rows" in done.stdout, done.stdout + done.stderr
    store = mlflow_tools.client(chosen)
    _, (child,) = mlflow_tools.children(store)
    mlflow_tools.assert_same_rows(mlflow_tools.rows(store, child.info.run_id), read_rows(run_dir))
    assert not other.exists()


def test_to_a_relative_file_counts_from_here(finished):
    env, run_dir = finished
    here = run_dir.parents[3]
    mlflow_tools.empty_store(here / "here.db")
    done = sync(env, run_dir, "--to", "mlflow", "--mlflow_tracking_uri", "sqlite:///here.db")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(mlflow_tools.runs(mlflow_tools.client(f"sqlite:///{here / 'here.db'}"))) == 2  # the group and the run


def test_to_a_team_and_project_of_wandb(finished):
    env, run_dir = finished
    server = StandIn()
    try:
        done = sync(env | server.variables, run_dir, "--to", "wandb", "--wandb_entity", "their-team", "--wandb_project",
                    "shared")  # fmt: skip
        assert done.returncode == 0 and "wandb has 20 of 20 rows" in done.stdout, done.stdout + done.stderr
        assert "/their-team/shared/" in done.stdout
        assert server.steps(run_dir) == [100 * i for i in range(1, 21)]
    finally:
        server.close()


def test_swanlab_stays_here_where_that_is_asked(finished):
    env, run_dir = finished
    done = sync(env | {"SWANLAB_MODE": "online"}, run_dir, "--to", "swanlab", "--swanlab_mode", "offline")
    assert done.returncode == 0 and "swanlab has 20 of 20 rows" in done.stdout, done.stdout + done.stderr
    assert "no key" not in done.stdout  # as it would be said of a mode that was not to be had
    assert {scalar.step for scalar in records(run_dir)["scalar"]} == {100 * i for i in range(1, 21)}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--to", "wandb", "--mlflow_tracking_uri", "http://h:1"), "--mlflow_tracking_uri says something about mlflow"),
        (("--to", "tensorboard", "--swanlab_mode", "offline"), "--swanlab_mode says something about swanlab"),
        (("--to", "mlflow", "--mlflow_tracking_uri", "ftp://h/x"), "'ftp://h/x' is no database and no server"),
        (("--to", "mlflow", "--mlflow_tracking_uri", ""), "mlflow_tracking_uri: a value is needed"),
        (("--to", "nowhere"), "invalid choice: 'nowhere'"),
    ],
)
def test_a_flag_that_cannot_mean_anything_is_refused_before_anything_is_written(finished, flags, words):
    env, run_dir = finished
    before = sorted(os.listdir(run_dir / "tracking"))
    done = sync(env, run_dir, *flags)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1 and sorted(os.listdir(run_dir / "tracking")) == before


def test_what_was_chosen_once_is_not_kept(finished):
    info = json.loads((finished[1] / "tracking" / "run.json").read_text())
    assert not {"wandb_entity", "wandb_project", "mlflow_tracking_uri"} & set(info["settings"])
