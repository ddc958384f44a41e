"""Read a run back from W&B's own offline file, with W&B's own reader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def records(path: Path) -> list[dict[str, Any]]:
    """All records of a `.wandb` file, in order."""
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path)],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "WANDB_CONFIG_DIR": scratch, "HOME": scratch},
        )
    return [json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith("{")]


def read_run(run_dir: Path) -> dict[str, Any]:
    """history, config, run (name, group, ...), artifacts, alerts, exit_code of all offline segments of a run."""
    run: dict[str, Any] = {"history": [], "artifacts": [], "alerts": [], "files": [], "summary": {}, "exit_code": None}
    for path in sorted(Path(run_dir).glob("tracking/wandb/wandb/offline-run-*/*.wandb")):
        for record in records(path):
            kind, value = record["type"], record.get(record["type"], {})
            if kind == "history":
                run["history"].append(value["item"])
            elif kind == "run":
                run["run"], run["config"] = value, value["config"]["update"]
            elif kind == "artifact":
                run["artifacts"].append(value)
            elif kind == "alert":
                run["alerts"].append(value)
            elif kind == "metric":
                run.setdefault("metrics", []).append(value)
            elif kind == "summary":
                run["summary"].update(value.get("update", {}))
            elif kind == "files":
                run["files"] += [file["path"] for file in value["files"]]
            elif kind == "exit":
                run["exit_code"] = value.get("exit_code", 0)
    return run


def curves(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """History lines without what W&B adds itself, and without lines that are media or tables."""
    rows = [{key: value for key, value in row.items() if not key.startswith("_")} for row in history]
    return [
        row for row in rows if not any(isinstance(value, dict) or key.endswith("._type") for key, value in row.items())
    ]
