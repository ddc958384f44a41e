"""report.py --to wandb makes a W&B Report of runs that W&B has, through W&B's own client (server: the stand-in)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import tracking_run
from report_tools import GROUPS, report, train_groups
from wandb_stand_in import StandIn

pytest.importorskip("wandb_workspaces")


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return train_groups(tmp_path_factory.mktemp("to_wandb") / "runs", seeds=(1,))


@pytest.fixture(scope="module")
def server(groups: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    """W&B with the run of the first group."""
    server = StandIn()
    env = tracking_run.environment(tmp_path_factory.mktemp("home"), **server.variables)
    (run,) = groups[0].iterdir()
    done = tracking_run.sync(env, run, "wandb")
    assert done.returncode == 0, done.stdout + done.stderr
    yield server
    server.close()


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key, no server, no variables of W&B."""
    for name in [name for name in os.environ if name.startswith("WANDB")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_report_has_the_words_and_panels_over_these_runs_alone(
    groups: list[Path], server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    code, out, err = report(*groups, "--to", "wandb", "--title", "two algorithms")
    assert code == 0, err
    said, url = out.splitlines()
    (view,) = server.dump()["views"].values()
    assert url == f"{server.url}/local/NAVRL/reports/two-algorithms--{view['id']}"
    assert (view["displayName"], view["project"]["name"], view["type"]) == ("two algorithms", "NAVRL", "runs")
    (missing,) = groups[1].iterdir()
    assert said == f"{GROUPS[1]}: W&B does not have {missing.name}; publish with scripts/sync.py --to wandb"

    blocks = json.loads(view["spec"])["blocks"]
    (text,) = [block["content"] for block in blocks if block["type"] == "markdown-block"]
    assert "## Summary" in text and "| **algorithm\\_name** | **mappo** | **ippo** |" in text and "](" not in text
    grids = [block["metadata"] for block in blocks if block["type"] == "panel-grid"]
    assert len(grids) == 4  # layers
    shown = [panel["config"]["metrics"] for grid in grids for panel in grid["panelBankSectionConfig"]["panels"]]
    assert ["train/entropy"] in shown and ["eval/success_rate"] in shown and ["eval/collision_count"] in shown
    for grid in grids:
        assert [runset["name"] for runset in grid["runSets"]] == list(GROUPS)
        for runset, group in zip(grid["runSets"], groups):
            ids = {json.loads((run / "tracking" / "run.json").read_text())["uid"] for run in group.iterdir()}
            filters = json.dumps(runset["filters"])
            assert all(identity in filters for identity in ids), filters


def test_what_cannot_be_a_report_is_one_line(
    groups: list[Path], server: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*words: str | Path) -> str:
        code, out, err = report(*words)
        assert code == 2 and out == "" and err.count("\n") == 1, (code, out, err)
        return err

    views = len(server.dump()["views"])
    monkeypatch.setenv("WANDB_BASE_URL", server.url)
    assert "no key is configured; log in with `wandb login`" in refused(*groups, "--to", "wandb")
    monkeypatch.setenv("WANDB_API_KEY", server.variables["WANDB_API_KEY"])
    assert "there is no project local/elsewhere" in refused(*groups, "--to", "wandb", "--wandb_project", "elsewhere")
    secret = tmp_path / "runs" / "NAVRL" / "secret"
    shutil.copytree(groups[0], secret)
    for run in secret.iterdir():
        info = json.loads((run / "tracking" / "run.json").read_text())
        info["settings"]["privacy"] = "strict"
        (run / "tracking" / "run.json").write_text(json.dumps(info))
    assert "privacy: strict sends nothing to W&B" in refused(secret, "--to", "wandb")
    assert "--out: a W&B Report is no file" in refused(*groups, "--to", "wandb", "--out", tmp_path / "report")
    assert "--wandb_entity says something about wandb" in refused(*groups, "--wandb_entity", "me")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    assert "http://127.0.0.1:9 does not answer" in refused(*groups, "--to", "wandb")
    assert len(server.dump()["views"]) == views, "what is refused makes nothing"
