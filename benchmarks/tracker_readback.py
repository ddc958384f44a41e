"""One run with all five trackers at once; what each of them holds, value by value, against metrics.jsonl.

    python benchmarks/tracker_readback.py

A real training with console, W&B, MLflow (its own server), SwanLab and TensorBoard. Some rows have NaN and infinities
added, which a healthy run does not make. W&B is offline during the run; `scripts/sync.py` then sends the run to the
stand-in server, and both are read. What is documented to become of a value (`read_back.TREATMENT`): MLflow has NaN for
an infinity, SwanLab leaves out what is not finite, TensorBoard keeps 32-bit floats.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import read_back
from mlflow_tools import Server, empty_store
from read_back import Points, compare
from tracking_run import environment, sync
from wandb_stand_in import StandIn

from leak_soak import call
from navrl.tracking.record import read_rows

ODD = {"odd/nan": math.nan, "odd/infinity": math.inf, "odd/minus_infinity": -math.inf}
SHOWN = ("train/policy_loss", "train/episode_count", "eval/episode_reward", "perf/tracking_seconds", *ODD)
TRAINING = (
    "--num_envs", "16", "--total_env_steps", "40000", "--hidden_size", "16", "--mini_batch_size", "100",
    "--ppo_epoch", "2", "--eval_interval", "10", "--eval_episodes", "8", "--final_eval_episodes", "4",
    "--log_eval_episodes", "1", "--checkpoint_interval", "10", "--num_workers", "0", "--tracker_timeout", "60",
    "--experiment_name", "run", "--group", "readback", "--logger", "console", "wandb", "mlflow", "swanlab",
    "tensorboard", "--wandb_mode", "offline",
)  # fmt: skip


def train(root: Path, uri: str) -> Path:
    """The run, in this process; every seventh row has NaN and infinities too. Returns its directory."""
    from runners.experiment import Experiment

    row_of = Experiment._training_row

    def odd_row(self: Experiment, *arguments: Any) -> dict[str, Any]:
        row = row_of(self, *arguments)
        return row | (ODD if self.runner.iteration % 7 == 0 else {})

    Experiment._training_row = odd_row
    try:
        call([*TRAINING, "--run_dir", str(root), "--mlflow_tracking_uri", uri])
    finally:
        Experiment._training_row = row_of
    return root / "NAVRL" / "readback" / "run"


def console_lines(run_dir: Path, record: list[dict[str, Any]]) -> tuple[int, int]:
    """(rows with an evaluation, of these the ones that console.log shows with their reward)."""
    said = (run_dir / "console.log").read_text(encoding="utf-8").splitlines()
    evaluated = [row for row in record if "eval/episode_reward" in row]
    shown = [row for row in evaluated if any(
        line.startswith(f"step {row['step']:,} ") and f"eval reward {row['eval/episode_reward']:.2f}" in line
        for line in said)]  # fmt: skip
    return len(evaluated), len(shown)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="navrl-readback-") as directory:
        base = Path(directory)
        os.environ["HOME"] = str(base / "home")
        (base / "home").mkdir()
        mlflow, wandb = Server(base / "server", empty_store(base / "server.db")), StandIn()
        try:
            run_dir = train(base / "runs", mlflow.url)
            done = sync(environment(base / "home", **wandb.variables), run_dir)
            if done.returncode:
                print(done.stdout + done.stderr, file=sys.stderr)
            readers: dict[str, tuple[str, Callable[[], Points]]] = {
                "W&B, offline file": ("wandb", lambda: read_back.from_wandb_files(run_dir)),
                "W&B, stand-in server": ("wandb", lambda: read_back.from_wandb_server(wandb, run_dir)),
                "MLflow, its server": ("mlflow", lambda: read_back.from_mlflow(mlflow.url, run_dir)),
                "SwanLab, offline file": ("swanlab", lambda: read_back.from_swanlab(run_dir)),
                "TensorBoard, event files": ("tensorboard", lambda: read_back.from_tensorboard(run_dir)),
            }
            record = read_rows(run_dir)
            points = {name: read() for name, (_, read) in readers.items()}
            return report(record, points, {name: tracker for name, (tracker, _) in readers.items()},
                          console_lines(run_dir, record))  # fmt: skip
        finally:
            mlflow.kill()
            wandb.close()


def report(record: list[dict[str, Any]], points: dict[str, Points], trackers: dict[str, str],
           console: tuple[int, int]) -> int:  # fmt: skip
    values = [value for row in record for name, value in row.items() if name != "step"]
    odd = sum(not math.isfinite(value) for value in values)
    print(f"metrics.jsonl: {len(record)} rows, {len(values)} values, {odd} of them NaN or infinite\n")
    print(f"{'tracker':<26}{'rows':>6}{'rows equal':>12}{'values':>8}{'expected':>10}{'twice':>7}{'foreign':>9}")
    good = console[0] == console[1]
    for name, found in points.items():
        difference = compare(found, record, trackers[name])
        print(f"{name:<26}{len({step for step, _ in found}):>6}{difference.rows - difference.lost:>12}"
              f"{sum(map(len, found.values())):>8}{difference.values:>10}{difference.twice:>7}{difference.foreign:>9}"
              + (f"  {difference.first}" if difference.first else ""))  # fmt: skip
        good = good and not (difference.lost or difference.twice or difference.foreign)
    print(f"{'console':<26}{console[1]} of {console[0]} evaluations are in its lines\n")
    row = next(row for row in record if "odd/nan" in row and "eval/episode_reward" in row)
    print(f"the row of step {row['step']}, as each has it")
    print(f"{'':<26}" + "".join(f"{name:>24}" for name in SHOWN))
    print(f"{'metrics.jsonl':<26}" + "".join(f"{row[name]:>24.17g}" for name in SHOWN))
    for name, found in points.items():
        cells = (found.get((row["step"], metric), []) for metric in SHOWN)
        print(f"{name:<26}" + "".join(f"{cell[0]:>24.17g}" if cell else f"{'-':>24}" for cell in cells))
    print("\nevery row is equal everywhere" if good else "\nNOT EQUAL")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
