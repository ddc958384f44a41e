"""A sweep of tiny runs for tests: its file, its workers as programs, and whether its study and its runs agree."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
import stop_tools
import yaml
from optuna.trial import TrialState
from whole_runs import ROOT

from navrl.sweep import slots
from navrl.sweep.study import open_storage

METRIC = "train/episode_reward_mean"
# 10 iterations of 4 copies x 25 steps
TINY = {
    "num_envs": 4, "rollout_length": 25, "total_env_steps": 1000, "hidden_size": 16, "mini_batch_size": 50,
    "ppo_epoch": 1, "eval_interval": 5, "eval_episodes": 2, "final_eval_episodes": 2, "log_eval_episodes": 0,
    "checkpoint_interval": 2, "num_workers": 0, "log_wandb": False, "logger": ["console"],
}  # fmt: skip
SEARCHED = {
    "lr": {"distribution": "log_uniform_values", "min": 1.0e-4, "max": 1.0e-2},
    "entropy_coef": {"min": 0.0, "max": 0.1},
    "clip_param": {"values": [0.1, 0.2, 0.3]},
}


def sweep_file(directory: Path, config: dict[str, Any] | None = None, **changes: Any) -> Path:
    """``sweep.yaml`` over the tiny run, in ``directory``, with its runs there. changes: its keys; None removes one."""
    base = directory / "base.yaml"
    base.write_text(yaml.safe_dump(TINY | {"run_dir": str(directory / "runs")} | (config or {})))
    content = {
        "program": "main.py", "method": "random", "metric": {"name": METRIC, "goal": "maximize"},
        "parameters": SEARCHED,
        "command": ["${env}", "${interpreter}", "${program}", f"--config={base}", "--group=tiny", "${args}"],
    } | changes  # fmt: skip
    path = directory / "sweep.yaml"
    kept = {key: value for key, value in content.items() if value is not None}
    path.write_text(yaml.safe_dump(kept, sort_keys=False))
    return path


def worker(file: Path, *flags: str, **options: Any) -> subprocess.Popen:
    """``scripts/sweep.py`` in a session of its own."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} | options
    return subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / "sweep.py"), str(file), *flags], cwd=ROOT, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL, start_new_session=True, **options,
    )  # fmt: skip


def finish(process: subprocess.Popen, code: int = 0, timeout: float = 240) -> str:
    """What a worker said until it ended, with this exit code. One that does not end is killed with its runs."""
    try:
        said, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        kill(process, with_runs=True)
        raise
    assert process.returncode == code, said
    return said


def kill(process: subprocess.Popen, *, with_runs: bool) -> int:
    """kill -9 of a worker, or of it and its runs at one moment. Returns how many processes that were."""
    victims = [process.pid, *(stop_tools.descendants(process.pid) if with_runs else ())]
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()
    return len(victims)


def until(true: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.05)


def trials_of(storage: str, study: str = "NAVRL/tiny") -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name=study, storage=open_storage(storage)[0]).get_trials(deepcopy=False)


def records(root: Path) -> dict[str, list[dict[str, Any]]]:
    """GROUP/NAME -> rows of each run under a runs root, read without NAVRL's own reader."""
    found = {}
    for path in sorted(root.glob("*/*/*/metrics.jsonl")):
        found[f"{path.parent.parent.name}/{path.parent.name}"] = [json.loads(line) for line in path.open()]
    return found


def problems(
    trials: list[optuna.trial.FrozenTrial], root: Path, total: int, seeds: int, metric: str = METRIC
) -> list[str]:
    """What is lost or doubled in a sweep that has ended: its study held against the records of its runs."""
    wrong = []
    board = slots.slots_of(trials)
    if len(board) != total:
        wrong.append(f"{len(board)} trials count, not {total}")
    kept = [t for t in trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    places = [t.user_attrs.get(slots.SLOT, t.number) for t in kept]
    if len(set(places)) != len(places):
        wrong.append(f"two results for one trial: {sorted(places)}")
    if any(not t.state.is_finished() for t in trials):
        wrong.append(f"unfinished: {[(t.number, t.state.name) for t in trials if not t.state.is_finished()]}")
    runs = records(root)
    used = [label for t in kept for label in t.user_attrs["runs"]]
    if len(set(used)) != len(used):
        wrong.append("a run belongs to two trials")
    needed = {label for t in kept if t.state == TrialState.COMPLETE for label in t.user_attrs["runs"]}
    if not needed <= set(runs) <= set(used):  # a trial that ended early may have seeds that were never begun
        wrong.append(f"runs of no trial {sorted(set(runs) - set(used))}, without record {sorted(needed - set(runs))}")
    for label, rows in runs.items():
        steps = [row["step"] for row in rows]
        if steps != sorted(set(steps)):
            wrong.append(f"{label}: a step twice or out of order")
        status = json.loads((root / "NAVRL" / label / "summary.json").read_text())["status"]
        owner = next((t for t in kept if label in t.user_attrs["runs"]), None)
        if owner is not None and owner.state == TrialState.COMPLETE and status != "finished":
            wrong.append(f"{label}: {status}")
    for trial in kept:
        if trial.state != TrialState.COMPLETE:
            continue
        rows = [runs[label] for label in trial.user_attrs["runs"] if label in runs]
        last = [[row[metric] for row in each if metric in row][-1] for each in rows]
        if len(last) != seeds or not math.isclose(trial.value, fmean(last), rel_tol=1e-12):
            wrong.append(f"trial {trial.number}: value {trial.value}, its runs ended with {last}")
    return wrong
