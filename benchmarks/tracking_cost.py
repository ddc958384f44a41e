"""What tracking costs the training loop with 0, 1 and 5 trackers, at the default logging interval.

    python benchmarks/tracking_cost.py
    python benchmarks/tracking_cost.py --rounds 5 --iterations 100

The default configuration, for a few iterations, in one process: the sets of trackers take turns, so that what else this
machine does meets all alike. In the loop: `perf/tracking_seconds` of all rows over the wall time from the first row to
the last. Wall time: the same span against that without trackers in the same round, where trackers' processes, too, take
their share of the cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from leak_soak import call  # noqa: E402

from navrl.tracking.record import read_rows  # noqa: E402

SETS = {
    "0 (local record alone)": [],
    "1 (console)": ["console"],
    "1 (wandb)": ["wandb"],
    "5 (console wandb swanlab mlflow tensorboard)": ["console", "wandb", "swanlab", "mlflow", "tensorboard"],
}
TARGET = 0.02


def run(root: Path, loggers: list[str], iterations: int) -> tuple[float, float, int]:
    """Seconds in tracking, seconds from first to last row, rows; of one run."""
    before = set(root.glob("*/*/*/metrics.jsonl"))
    call(["--run_dir", str(root), "--total_env_steps", str(3200 * iterations), "--final_eval_episodes", "10",
          "--wandb_mode", "offline", *([] if "wandb" in loggers else ["--no_log_wandb"]),
          "--logger", *(loggers or ["[]"])])  # fmt: skip
    (metrics,) = set(root.glob("*/*/*/metrics.jsonl")) - before
    rows = read_rows(metrics.parent)
    return sum(row.get("perf/tracking_seconds", 0.0) for row in rows), rows[-1]["time"] - rows[0]["time"], len(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=40, help="a run; each gives a row")
    options = parser.parse_args()
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in SETS}
    with tempfile.TemporaryDirectory(prefix="navrl-cost-") as directory:
        os.environ["HOME"] = directory  # no key: W&B is offline, nothing outside is asked
        run(Path(directory), [], 2)  # imports and first calls are nobody's cost
        for _ in range(options.rounds):
            for name, loggers in SETS.items():
                found[name].append(run(Path(directory), loggers, options.iterations))
    plain = [seconds for _, seconds, _ in found["0 (local record alone)"]]
    print(f"{options.rounds} rounds of {options.iterations} iterations, {os.cpu_count()} cores, medians")
    print(f"{'trackers':<46}{'in the loop':>12}{'worst round':>12}{'us a row':>10}{'wall time':>11}")
    worst = 0.0
    for name, runs in found.items():
        shares = [cost / seconds for cost, seconds, _ in runs]
        each = statistics.median(1e6 * cost / rows for cost, _, rows in runs)
        wall = statistics.median(seconds / base for (_, seconds, _), base in zip(runs, plain))
        worst = max(worst, statistics.median(shares))
        print(f"{name:<46}{100 * statistics.median(shares):>10.2f} %{100 * max(shares):>10.2f} %{each:>10.0f}"
              f"{'x':>5} {wall:.3f}")  # fmt: skip
    print(f"the most is {100 * worst:.2f} % of {100 * TARGET:.0f} % allowed")
    return 0 if worst <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
