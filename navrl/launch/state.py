"""What became of a planned run, read from its local record alone."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from navrl.config_sources import recorded_config, resume_faults
from navrl.faults import ConfigError, Fault
from navrl.launch.expand import Planned
from navrl.tracking.record import METRICS, RecordError, is_alive, read_summary

TAIL = 2**16  # bytes of metrics.jsonl that a look reads: some fifty rows
REWARDS = ("eval/episode_reward", "train/episode_reward_mean")


@dataclass(frozen=True)
class State:
    """status: waiting (no record yet), running, finished, interrupted, failed or crashed. step: environment steps.

    reward: ``eval/episode_reward``, before the first evaluation ``train/episode_reward_mean``. seconds_left: to the end
    of training at the speed so far. None where nothing is known yet.
    """

    status: str
    step: int | None = None
    reward: float | None = None
    seconds_left: float | None = None


def state_of(run: Planned) -> State:
    """Its state now. A run that ended on a smaller budget than planned is interrupted: it goes on."""
    try:
        status = str(read_summary(run.run_dir).get("status") or "waiting")
    except RecordError:  # main.py writes it anew
        status = "crashed"
    if status in ("waiting", "crashed") and is_alive(run.run_dir):  # it has its lock and no summary yet
        status = "running"
    if status == "finished" and _budget(run.run_dir) < run.config.total_env_steps:
        status = "interrupted"
    rows = _last_rows(run.run_dir)
    step = max((row["step"] for row in rows), default=None)
    reward = next((row[name] for name in REWARDS for row in reversed(rows) if type(row.get(name)) is float), None)
    return State(status, step, reward, _seconds_left(rows, run.config.total_env_steps))


def conflicts(run: Planned) -> list[Fault]:
    """Why the record in the run's directory is no beginning of this run; nothing where it is, or where none is."""
    try:
        before = recorded_config(run.run_dir)
    except ConfigError as error:
        return error.faults
    if before is None:
        return []
    faults = resume_faults(before, run.config, repeated=True)
    step, budget = state_of(run).step or 0, run.config.total_env_steps
    if budget < min(step, before.total_env_steps):
        faults.append(Fault("total_env_steps", f"{budget} is less than the {step} steps already trained"))
    return [fault._replace(where=str(run.run_dir)) for fault in faults]


def _budget(run_dir: Path) -> int:
    """``total_env_steps`` that the record says; 0 where it is lost."""
    try:
        config = recorded_config(run_dir)
    except ConfigError:
        return 0
    return config.total_env_steps if config is not None else 0


def _last_rows(run_dir: Path) -> list[dict[str, Any]]:
    try:
        with open(run_dir / METRICS, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            lines = file.read().splitlines()
    except OSError:
        return []
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:  # the first and the last line may be cut
            continue
        if isinstance(row, dict) and type(row.get("step")) is int:
            rows.append(row)
    return rows


def _seconds_left(rows: list[dict[str, Any]], total: int) -> float | None:
    """From the last rows' speed; ``time`` is the run's own clock, which stands while it does not train."""
    timed = [row for row in rows if type(row.get("time")) in (int, float) and math.isfinite(row["time"])]
    if len(timed) < 2:
        return None
    first, last = timed[0], timed[-1]
    steps, seconds = last["step"] - first["step"], last["time"] - first["time"]
    return max(total - last["step"], 0) * seconds / steps if steps > 0 else None
