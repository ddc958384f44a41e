"""SwanLab online, with its own client, against a stand-in server on loopback."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tracking_run
from swanlab_stand_in import SwanlabStandIn

from navrl.tracking.record import read_rows


@pytest.fixture
def server() -> Iterator[SwanlabStandIn]:
    server = SwanlabStandIn()
    yield server
    server.close()


def _run(server: SwanlabStandIn, tmp_path: Path, mode: str, **options: Any) -> tuple[dict[str, str], dict[str, Any]]:
    env = tracking_run.environment(tmp_path / "home", **server.variables)
    told = {"logger": ["console", "swanlab"], "rows": 30, "settings": {"swanlab_mode": mode}} | options
    return env, tracking_run.run(env, root=tmp_path / "runs", timeout=120, **told)


def _assert_all_rows_once(server: SwanlabStandIn, run_dir: Path) -> dict[str, Any]:
    """What the server holds of the one run equals the record, but for what is not finite. Returns it."""
    (run,) = server.runs.values()
    wanted = {
        (name, row["step"]): value
        for row in read_rows(run_dir)
        for name, value in row.items()
        if name != "step" and math.isfinite(value)
    }
    assert run["scalars"].keys() == wanted.keys()
    for place, value in wanted.items():
        assert run["scalars"][place] == pytest.approx(value, rel=1e-6)  # SwanLab keeps single precision
    assert run["twice"] == 0
    return run


def test_a_run_is_there_with_its_names_rows_media_and_state(server: SwanlabStandIn, tmp_path: Path) -> None:
    env, done = _run(server, tmp_path, "online")
    assert "swanlab: all 30 rows" in done["out"], done["out"]
    run = _assert_all_rows_once(server, done["run_dir"])
    assert server.projects == {"NAVRL"} and run["state"] == "FINISHED"
    about = run["about"]
    assert (about["name"], about["cluster"], about["job"]) == ("mappo seed1", "group", "train")
    assert about["labels"] == [{"name": "smoke"}]
    assert run["profile"]["config"]["lr"]["value"] == 5e-4
    assert {"eval/episode", "eval/goals", "checkpoint/best"} <= {item["key"] for item in run["media"]}
    assert any(path.endswith(".gif") for path in server.blobs)

    again = tracking_run.sync(env, done["run_dir"], "swanlab")
    assert again.returncode == 0, again.stdout + again.stderr
    _assert_all_rows_once(server, done["run_dir"])


def test_an_offline_run_is_published_later(server: SwanlabStandIn, tmp_path: Path) -> None:
    env, done = _run(server, tmp_path, "offline")
    assert server.runs == {}
    published = tracking_run.sync(env, done["run_dir"], "swanlab")
    assert published.returncode == 0, published.stdout + published.stderr
    assert _assert_all_rows_once(server, done["run_dir"])["state"] == "FINISHED"


def test_a_failed_run_is_crashed_there(server: SwanlabStandIn, tmp_path: Path) -> None:
    _, done = _run(server, tmp_path, "online", end="failed", exit_code=1)
    assert _assert_all_rows_once(server, done["run_dir"])["state"] == "CRASHED"
