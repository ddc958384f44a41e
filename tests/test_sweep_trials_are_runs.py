"""`wandb agent` runs main.py trial by trial: each is a whole local run, and W&B's run of the sweep has its rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.parse
from pathlib import Path

import tracking_run
import yaml
from wandb_stand_in import StandIn
from whole_runs import ROOT, run_dirs, tiny_argv

from navrl.tracking.record import read_rows, read_summary

GRID = [{"lr": 0.001, "seed": 1}, {"lr": 0.003, "seed": 2}]


def test_each_trial_keeps_its_id_group_name_and_seed(tmp_path: Path) -> None:
    server = StandIn()
    try:
        server.get("/_fault?grid=" + urllib.parse.quote(json.dumps(GRID)))
        fixed = [word for word in tiny_argv(tmp_path / "runs", "--wandb_mode", "online") if word != "--no_log_wandb"]
        fixed = [word for word in fixed if word not in ("--logger", "console")]
        sweep = {
            "program": str(ROOT / "main.py"),
            "method": "grid",
            "metric": {"name": "eval/episode_reward", "goal": "maximize"},
            "parameters": {key: {"values": [trial[key] for trial in GRID]} for key in GRID[0]},
            "command": [sys.executable, "${program}", *fixed, "${args}"],
        }
        (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(sweep))
        env = tracking_run.environment(tmp_path / "home", **server.variables, WANDB_SILENT="false")
        path = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])

        def wandb(*command: str) -> str:
            done = subprocess.run(
                [sys.executable, "-m", "wandb", *command], env=env | {"PATH": path}, cwd=tmp_path, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout
            return done.stdout

        wandb("sweep", "--project", "NAVRL", "sweep.yaml")
        (sweep_id,) = server.dump()["sweeps"]
        said = wandb("agent", f"local/NAVRL/{sweep_id}")

        found = run_dirs(tmp_path / "runs")
        assert len(found) == len(GRID), said
        for number, trial in enumerate(GRID, 1):
            run = server.dump()["runs"][f"swrun{number}"]
            (run_dir,) = [path for path in found if _run_id(path) == f"swrun{number}"]
            assert run["sweep"] == sweep_id
            lr = ("1e-3", "3e-3")[number - 1]
            assert run["groupName"].startswith("mpe_simple_spread_3a_mappo_") and f"lr{lr}" in run["groupName"]
            assert run["displayName"].startswith(f"mappo_seed{trial['seed']}_") and f"lr{lr}" in run["displayName"]
            assert "seed" not in run["groupName"]
            config = {key: value["value"] for key, value in run["config"].items() if key != "_wandb"}
            assert {key: config[key] for key in trial} == trial
            assert config["num_envs"] == 16
            summary = read_summary(run_dir)
            assert summary["status"] == "finished" and summary["trackers"]["wandb"]["owed"] == 0
            steps = [row["step"] for row in run["history"] if "_timestamp" in row and not _media(row)]
            assert steps == [row["step"] for row in read_rows(run_dir)]
            assert run["exitcode"] == 0
    finally:
        server.close()


def _run_id(run_dir: Path) -> str:
    return json.loads((run_dir / "tracking" / "run.json").read_text())["settings"]["wandb_run_id"]


def _media(row: dict) -> bool:
    return any(isinstance(value, dict) for value in row.values())
