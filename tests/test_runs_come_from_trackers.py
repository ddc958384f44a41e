"""Runs that only a tracker has are, once pulled, what their records give: a real MLflow server, W&B's stand-in."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import mlflow_tools
import numpy as np
import pytest
import tracking_run
from test_tracking_wandb_proxy import CountingProxy
from wandb_stand_in import StandIn, free_port
from whole_runs import ROOT, call, run_dirs, tiny_argv

from navrl.analysis.comparison import Outcome, compare
from navrl.analysis.pull import parse, pull
from navrl.analysis.pull_mlflow import runs_of
from navrl.analysis.records import BASE_COLUMNS, Run, load
from navrl.config import Config
from navrl.tracking.client import FILES, ClientError
from navrl.tracking.hub import TrackerHub

pytest.importorskip("wandb")
pytest.importorskip("mlflow")

METRICS = ("eval/episode_reward", "eval/success_rate", "train/entropy", "train/value_loss", "no/such metric")
GROUP = "a group: with 'quotes'"
OTHERS = 201  # runs of another tool: more than one page of them


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory):
    """Two seeds, one of them with values that are not finite, published to an MLflow server and to W&B, and gone."""
    base = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrackerHub, "_keep_code", lambda hub, root: None)
        for seed in (1, 2):
            argv = tiny_argv(base / "runs", "--seed", str(seed), "--group", GROUP, "--total_env_steps", "1200")
            assert call(argv, base / "runs").code == 0
    directories = run_dirs(base / "runs")
    spoil(directories[1] / "metrics.jsonl")
    uri = mlflow_tools.empty_store(base / "mlflow.db")
    server, wandb = mlflow_tools.Server(base / "server", uri), StandIn()
    env = tracking_run.environment(base / "home", **wandb.variables, MLFLOW_TRACKING_URI=server.url)
    for directory, tracker in ((directories[0], "mlflow"), (directories[1], "mlflow"), (directories[1], "wandb")):
        done = tracking_run.sync(env, directory, tracker)
        assert done.returncode == 0, done.stdout + done.stderr
    local, left_out = load(directories, METRICS)
    assert len(local) == 2 and left_out == []
    shutil.rmtree(base / "runs")
    client = mlflow_tools.client(uri)
    experiment = client.get_experiment_by_name("NAVRL").experiment_id
    for number in range(OTHERS):
        client.create_run(experiment, run_name=f"theirs {number}")
    yield SimpleNamespace(local=local, server=server, uri=uri, wandb=wandb)
    server.kill()
    wandb.close()


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """No tracker's variables; nothing of a pull is left in the home directory or among temporary files."""
    for name in [name for name in os.environ if name.startswith(("WANDB", "MLFLOW"))]:
        monkeypatch.delenv(name)
    for name in ("home", "scratch"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    yield
    assert list((tmp_path / "home").iterdir()) == list((tmp_path / "scratch").iterdir()) == []


def spoil(path: Path) -> None:
    """A diverged run's record, as ``LocalRecord`` writes it."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[1]["train/entropy"], rows[2]["train/entropy"], rows[3]["train/value_loss"] = "NaN", "Infinity", "-Infinity"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def the_same(found: Run, local: Run) -> None:
    """All that a comparison reads; where a tracker makes NaN of an infinity, neither is a number to compare."""
    assert (found.group, found.name) == (GROUP, local.name)
    for name in ("seed", "status", "metadata", "non_finite"):
        assert getattr(found, name) == getattr(local, name), name
    assert list(found.columns) == list(local.columns)
    for name, values in local.columns.items():
        theirs = found.columns[name]
        assert theirs.dtype == values.dtype == np.float64
        assert np.array_equal(np.isfinite(theirs), np.isfinite(values)), name
        assert np.array_equal(theirs[np.isfinite(values)], values[np.isfinite(values)]), name
    for part in ("final", "best"):
        kept = ("episodes", "mean", "standard_error", "step")
        assert {key: found.summary[part][key] for key in kept} == {key: local.summary[part][key] for key in kept}
        assert type(found.summary[part]["episodes"]) is type(found.summary[part]["step"]) is int


def test_an_mlflow_server_gives_the_runs_of_the_records(published) -> None:
    found, left_out = pull(f"mlflow:{published.server.url}:NAVRL", METRICS)
    assert [run.seed for run in found] == [1, 2]
    assert [run.non_finite for run in found] == [{}, {"train/entropy": 2, "train/value_loss": 1}]
    for run, local in zip(found, published.local):
        the_same(run, local)
        assert run.config == local.config
    named = [dataclasses.replace(run, group=GROUP) for run in published.local]  # a directory has fewer kinds of letters
    here, there = compare(named, METRICS), compare(found, METRICS)
    assert here.metrics == there.metrics and here.config == there.config and here.metadata == there.metadata
    for expected, outcome in zip(here.outcomes.values(), there.outcomes.values(), strict=True):
        for field in dataclasses.fields(Outcome):
            np.testing.assert_equal(getattr(outcome, field.name), getattr(expected, field.name), field.name)
    assert len(left_out) == OTHERS and all("NAVRL did not make it" in left.reason for left in left_out)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """What the client's process does, in this one, which has MLflow imported already."""
    import mlflow

    (tmp_path / "client" / FILES).mkdir(parents=True)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.chdir(tmp_path / "client")
    yield lambda reference: list(runs_of(**parse(reference)[1], wanted=[*BASE_COLUMNS, *METRICS]))
    mlflow.set_tracking_uri(None)


def test_without_artifacts_the_configuration_has_its_types_back(published, here) -> None:
    """The same database asked directly: only the server leads to its artifacts. And seed 1 has begun again."""
    client = mlflow_tools.client(published.uri)
    (again,) = mlflow_tools.runs(client, "tags.seed = '1'")
    client.update_run(again.info.run_id, status="RUNNING")
    found = sorted(here(f"mlflow:{published.uri}:NAVRL:{GROUP}"), key=lambda run: run.name)
    client.update_run(again.info.run_id, status="FINISHED")
    assert [(run.status, "final" in run.summary) for run in found] == [("running", False), ("finished", True)]
    for run, local in zip(found, published.local):
        science = Config.model_validate(local.config).science()
        assert run.config == science
        assert [type(run.config[key]) for key in science] == [type(value) for value in science.values()]
        assert run.metadata == {} and (run.seed, run.group) == (local.seed, GROUP)
        assert np.array_equal(run.columns["eval/success_rate"], local.columns["eval/success_rate"], equal_nan=True)


@pytest.mark.parametrize(("reference", "words"), [
    ("mlflow:{uri}:NAVLR", "there is no experiment 'NAVLR'; nearest: NAVRL"),
    ("mlflow:{uri}:NAVRL:other", f"there is no group 'other'; nearest: {GROUP}"),
])  # fmt: skip
def test_what_is_not_there_is_said_with_what_comes_nearest(reference: str, words: str, published, here) -> None:
    with pytest.raises(ClientError, match=re.escape(words)):
        here(reference.format(uri=published.uri))


def test_wandb_gives_the_runs_of_the_records(published, monkeypatch) -> None:
    """All of it through a proxy, which is W&B's alone."""
    for name, value in published.wandb.variables.items():
        monkeypatch.setenv(name, value)
    proxy = CountingProxy(published.wandb.url)
    with monkeypatch.context() as patch:
        patch.setenv("WANDB_BASE_URL", "http://wandb.invalid")
        before = dict(os.environ)
        found, left_out = pull("wandb:local/NAVRL", METRICS, wandb_proxy=f"http://127.0.0.1:{proxy.server_port}")
        assert os.environ == before and len(proxy.paths) > 6
    proxy.shutdown()
    proxy.server_close()
    (run,), local = found, published.local[1]
    assert left_out == []
    the_same(run, local)
    assert run.config == local.config
    assert [run.summary[part] for part in ("final", "best")] == [local.summary[part] for part in ("final", "best")]
    for name, values in local.columns.items():
        assert np.array_equal(run.columns[name], values, equal_nan=True), name
    asked = set(published.wandb.dump()["ops"])
    assert {"Runs", "Run", "RunHistoryKeys", "RunParquetHistory", "HistoryPage", "RunFiles"} <= asked
    with pytest.raises(ValueError, match="there is no group 'mine'; nearest: " + re.escape(GROUP)):
        pull("wandb:local/NAVRL:mine", ())
    with pytest.raises(ValueError, match="there is no project 'NAVLR'; nearest: NAVRL"):
        pull("wandb:local/NAVLR", ())


def test_no_torch_is_needed() -> None:
    code = ("import sys, navrl.analysis.pull, navrl.analysis.pull_mlflow, navrl.analysis.pull_wandb; "
            "assert 'torch' not in sys.modules")  # fmt: skip
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


@pytest.mark.parametrize(("reference", "words"), [
    ("mlflow:{server}", "names no runs; write mlflow:URI:EXPERIMENT[:GROUP]"),
    ("mlflow:http://127.0.0.1:{port}:NAVRL", "does not answer"),
    ("mlflow:sqlite:///no/such.db:NAVRL", "there is no sqlite:///"),
    ("mlflow:ftp://host/x:NAVRL", "is no database and no server"),
    ("mlflow:NAVRL", "names no runs"),
    ("wandb:entity", "names no runs; write wandb:ENTITY/PROJECT[:GROUP]"),
    ("wandb:local/NAVRL", "no key is configured"),
    ("tensorboard:here", "names no runs; write mlflow:"),
])  # fmt: skip
def test_what_cannot_be_had_is_said_in_one_line(reference: str, words: str, published) -> None:
    with pytest.raises(ValueError) as raised:
        pull(reference.format(server=published.server.url, port=free_port()), ())
    assert words in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(("reference", "parts"), [
    ("mlflow:http://host:5000:NAVRL", ("http://host:5000", "NAVRL", None)),
    ("mlflow:http://host:NAVRL", ("http://host", "NAVRL", None)),
    ("mlflow:https://u:p@host/path:NAVRL:a:b", ("https://u:p@host/path", "NAVRL", "a:b")),
    ("mlflow:http://[::1]:5000:NAVRL:g", ("http://[::1]:5000", "NAVRL", "g")),
    ("mlflow:sqlite:////abs/mlflow.db:My project:g", ("sqlite:////abs/mlflow.db", "My project", "g")),
    ("mlflow:postgresql+psycopg2://u:p@h:5432/db?x=1:E", ("postgresql+psycopg2://u:p@h:5432/db?x=1", "E", None)),
])  # fmt: skip
def test_an_address_may_hold_colons(reference: str, parts: tuple[str | None, ...]) -> None:
    assert parse(reference) == ("mlflow", dict(zip(("uri", "experiment", "group"), parts)))
