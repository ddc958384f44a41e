"""`trace: weave`: an episode is one Weave trace beside its table, and Weave can cost the run nothing.

Weave's own client sends to the stand-in server, from the environment that `.ci/run` makes of requirements-weave.txt.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tracking_run
from conftest import WEAVE_PYTHON
from wandb_stand_in import KEY, StandIn

from navrl.tracking.record import read_rows
from navrl.tracking.weave import episode_calls

needs_weave = pytest.mark.requires_service("weave")
STEPS, AGENTS = 4, 3  # of the episode that tracking_run.py records


@pytest.fixture
def server() -> Iterator[StandIn]:
    server = StandIn()
    yield server
    server.close()


def _run(server: StandIn, tmp_path: Path, **options: Any) -> dict[str, Any]:
    env = tracking_run.environment(tmp_path / "home", **server.variables, **options.pop("variables", {}))
    told = {"logger": ["console", "wandb"], "mode": "online", "settings": {"trace": "weave"}, "rows": 10} | options
    return tracking_run.run(env, root=tmp_path / "runs", timeout=120, **told)


def test_an_episode_is_a_tree_of_calls_with_the_same_ids_each_time(tmp_path: Path) -> None:
    path = tmp_path / "episode.npz"
    positions = np.random.default_rng(0).random((STEPS, AGENTS, 2))
    np.savez(path, positions=positions, rewards=np.full((STEPS, AGENTS), 0.5))
    told = {"name": "eval/episode_0", "step": 800, "run": "mappo_seed1", "project_id": "e/p", "run_id": "e/p/r"}
    root, *calls = episode_calls(path, wall=1_800_000_000.0, **told)
    assert root["parent_id"] is None and root["output"] == {"episode_reward": 0.5 * STEPS}
    assert root["inputs"] == {"run": "mappo_seed1", "episode": "eval/episode_0", "step": 800, "steps": 4, "agents": 3}
    assert [(call["inputs"]["t"], call["inputs"]["agent"]) for call in calls] == [
        (t + 1, agent) for t in range(STEPS) for agent in range(AGENTS)
    ]
    for call, position in zip(calls, positions.reshape(-1, 2), strict=True):
        assert call["inputs"]["positions"] == position.tolist() and call["output"] == {"rewards": 0.5}
        assert (call["parent_id"], call["trace_id"]) == (root["id"], root["trace_id"])
        assert root["started_at"] <= call["started_at"] < call["ended_at"] <= root["ended_at"]
    assert len({call["id"] for call in (root, *calls)}) == 1 + STEPS * AGENTS
    again = episode_calls(path, wall=1_800_000_009.0, **told)
    assert [call["id"] for call in again] == [call["id"] for call in (root, *calls)]
    other = episode_calls(path, wall=1_800_000_000.0, **told | {"step": 900})
    assert not {call["id"] for call in other} & {call["id"] for call in again}


def test_without_the_package_one_line_says_so_and_the_tables_go(server: StandIn, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "weave.py").write_text("raise ImportError('hidden')\n")
    paths = os.pathsep.join(filter(None, [str(hidden), os.environ.get("PYTHONPATH")]))
    done = _run(server, tmp_path, variables={"PYTHONPATH": paths})
    assert done["err"].count("trace: weave: not installed") + done["out"].count("trace: weave: not installed") == 1
    assert server.steps(done["run_dir"]) == [row["step"] for row in read_rows(done["run_dir"])]
    assert _tables(server, done["run_dir"]) == 2 and server.dump()["traces"] == {}


@needs_weave
def test_an_episode_goes_to_weave_once_beside_its_table(server: StandIn, tmp_path: Path) -> None:
    done = _run(server, tmp_path, python=str(WEAVE_PYTHON))
    run_dir, run = done["run_dir"], server.run(done["run_dir"])
    traces = server.dump()["traces"]
    assert len(traces) == 1 + STEPS * AGENTS and _tables(server, run_dir) == 2
    (root,) = [call for call in traces.values() if call["parent_id"] is None]
    assert root["display_name"] == "eval/trajectory at step 1000" and root["inputs"]["steps"] == STEPS
    assert root["project_id"] == f"{run['entity']}/{run['project']}"
    assert root["wb_run_id"] == f"{root['project_id']}/{run['name']}" and root["wb_run_step"] == 1000
    assert base64.b64decode(root["authorization"].removeprefix("Basic ")).decode() == f"api:{KEY}"
    assert {call["parent_id"] for call in traces.values()} == {None, root["id"]}

    env = tracking_run.environment(tmp_path / "home", **server.variables)
    again = tracking_run.sync(env, run_dir, python=str(WEAVE_PYTHON))
    assert again.returncode == 0, again.stdout + again.stderr
    assert server.dump()["traces"] == traces and _tables(server, run_dir) == 2


@needs_weave
def test_an_offline_run_brings_its_traces_when_it_is_published(server: StandIn, tmp_path: Path) -> None:
    done = _run(server, tmp_path, python=str(WEAVE_PYTHON), mode="offline")
    assert "online only" in done["out"] + done["err"] and server.dump()["traces"] == {}
    published = tracking_run.sync(tracking_run.environment(tmp_path / "home", **server.variables), done["run_dir"],
                                  python=str(WEAVE_PYTHON))
    assert published.returncode == 0, published.stdout + published.stderr
    assert len(server.dump()["traces"]) == 1 + STEPS * AGENTS


@needs_weave
def test_a_trace_server_that_fails_costs_no_row_and_no_table(server: StandIn, tmp_path: Path) -> None:
    server.fault("no traces")
    done = _run(server, tmp_path, python=str(WEAVE_PYTHON))
    assert done["out"].count("eval/trajectory at step 1000 is left out, its table is there") == 1
    assert server.steps(done["run_dir"]) == [row["step"] for row in read_rows(done["run_dir"])]
    assert _tables(server, done["run_dir"]) == 2


@needs_weave
def test_a_trace_that_fails_for_a_moment_is_sent_again_and_its_table_is_there_once(server, tmp_path: Path) -> None:
    server.fault("no traces:503:2")
    done = _run(server, tmp_path, python=str(WEAVE_PYTHON))
    assert "trying again" in done["out"] and "left out" not in done["out"]
    assert len(server.dump()["traces"]) == 1 + STEPS * AGENTS and _tables(server, done["run_dir"]) == 2


@needs_weave
@pytest.mark.parametrize("fault", ["no traces:400:1", "no traces:503:5"])  # refused; down for longer than one is tried
def test_a_trace_that_is_left_out_takes_no_later_one_with_it(server, tmp_path: Path, fault: str) -> None:
    server.fault(fault)
    names = ["eval/a", "eval/b", "eval/c", "eval/d"]
    done = _run(server, tmp_path, python=str(WEAVE_PYTHON), trajectories=names)
    refused = 1 if "400" in fault else 3  # 3 tries of the first, then one of each
    assert [done["out"].count(f"{name} at step 1000 is left out") for name in names] == [1] * refused + [0] * (
        4 - refused)
    roots = {call["inputs"]["episode"] for call in server.dump()["traces"].values() if call["parent_id"] is None}
    assert roots == set(names[refused:]) and _tables(server, done["run_dir"]) == len(names) + 1
    assert server.steps(done["run_dir"]) == [row["step"] for row in read_rows(done["run_dir"])]


def _tables(server: StandIn, run_dir: Path) -> int:
    """History lines that hold a table: the trajectory and the table of goals."""
    cells = [value for row in server.run(run_dir)["history"] for value in row.values() if isinstance(value, dict)]
    return sum(cell.get("_type") == "table-file" for cell in cells)
