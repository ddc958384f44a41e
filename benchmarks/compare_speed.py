"""How long does scripts/compare.py take over many long records, and how much memory?

    python benchmarks/compare_speed.py [--runs 300] [--rows 10000] [--keep DIR]

Makes synthetic groups of five seeds whose rows hold what real ones do (an evaluation every tenth), and runs the
comparison in a process of its own, twice: tables alone, and with all files of --out. Memory is the largest sum over
that process and its children of proportional set sizes (/proc/PID/smaps_rollup: shared pages count once).
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from navrl.config import Config, dump  # noqa: E402
from navrl.metrics.summary import BEHAVIOUR_METRICS, TASK_METRICS  # noqa: E402
from navrl.pipes import Parser, run_program, whole  # noqa: E402

SEEDS = 5
STEPS = 3200  # environment steps a row
STABILITY = (
    "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "actor_grad_norm", "critic_grad_norm",
    "explained_variance", "lr", "episode_length", "episode_reward_mean", "episode_reward_max",
)  # fmt: skip
COST = ("env_steps_per_second", "tracking_seconds", "rollout_seconds", "update_seconds")
EVALUATION = (*TASK_METRICS, *BEHAVIOUR_METRICS)


def make_run(job: tuple[Path, int, int]) -> None:
    """One record of ``rows`` rows: curves that rise and flatten, with noise."""
    directory, number, rows = job
    group, seed = divmod(number, SEEDS)
    rng = np.random.default_rng(number)
    run = directory / "NAVRL" / f"group{group:02d}" / f"mappo_seed{seed + 1}"
    run.mkdir(parents=True)
    names = [*(f"train/{name}" for name in STABILITY), *(f"perf/{name}" for name in COST)]
    evaluated = [f"eval/{name}" for name in EVALUATION]
    rise = 1 - np.exp(-5 * np.arange(rows) / rows)
    often = (-20 + (12 + 0.02 * group) * rise)[:, None] + rng.normal(0, 0.5, (rows, len(names)))
    seldom = (-20 + (12 + 0.02 * group) * rise)[:, None] + rng.normal(0, 0.5, (rows, len(evaluated)))
    plain = '{"step": %d, "time": %.6f, "train/episode_count": %d, ' + ", ".join(f'"{name}": %r' for name in names)
    whole_row = plain + ", " + ", ".join(f'"{name}": %r' for name in evaluated)
    with open(run / "metrics.jsonl", "w", encoding="utf-8") as file:
        for row in range(rows):
            values = (row * STEPS, 0.8 * row, row * 128, *often[row].tolist())
            file.write((whole_row % (*values, *seldom[row].tolist()) if row % 10 == 0 else plain % values) + "}\n")
    config = Config(seed=seed + 1, total_env_steps=rows * STEPS, lr=(group + 1) / 10_000)
    (run / "config.yaml").write_text(dump(config), encoding="utf-8")
    final = {"episodes": 500, "env": "mpe2 1.1.1", "mean": dict(zip(EVALUATION, seldom[-1].tolist())),
             "standard_error": dict.fromkeys(EVALUATION, 0.1)}  # fmt: skip
    (run / "summary.json").write_text(json.dumps({"status": "finished", "final": final}), encoding="utf-8")
    (run / "metadata.json").write_text(json.dumps({"seed": seed + 1, "git_commit": "0" * 40}), encoding="utf-8")


def measure(command: list[str]) -> tuple[float, float, float, int]:
    """(seconds, seconds of processor, peak of the tree's memory in MB, exit code) of a command."""
    begun, peak, before = time.perf_counter(), 0, _processor()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    while child.poll() is None:
        peak = max(peak, sum(map(_memory, _tree(child.pid))))
        time.sleep(0.05)
    return time.perf_counter() - begun, _processor() - before, peak / 1024, child.returncode


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tree(pid: int) -> list[int]:
    found = [pid]
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found += _tree(int(child))
    return found


def _memory(pid: int) -> int:
    """kB; 0 of a process that has gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def main(argv: list[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--runs", type=whole(1), default=300)
    parser.add_argument("--rows", type=whole(1), default=10_000)
    parser.add_argument("--keep", type=Path, help="a directory for the records, used again if they are there")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or Path(temporary)
        if not (root / "NAVRL").exists():
            with ProcessPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(make_run, [(root, number, options.rows) for number in range(options.runs)]))
        size = sum(path.stat().st_size for path in root.rglob("metrics.jsonl"))
        print(f"{options.runs} runs of {options.rows} rows, {size / 1e6:.0f} MB of rows")
        command = [sys.executable, "scripts/compare.py", str(root)]
        failed = 0
        for title, words in (("tables", []), ("tables, figures and files", ["--out", str(Path(temporary) / "out")])):
            seconds, processor, memory, code = measure([*command, *words])
            print(
                f"{title:<28}{seconds:7.1f} s ({processor:.1f} s of processor){memory:8.0f} MB   exit {code}",
                flush=True,
            )
            failed += code != 0
    return int(failed > 0)


if __name__ == "__main__":
    run_program(main)
