"""Do the batched task and mpe2 itself teach alike? Compare two groups of seeds by the area under a learning curve.

    scripts/run_seeds.sh 1 5 --total_env_steps 200000 --group parity_batched
    scripts/run_seeds.sh 1 5 --total_env_steps 200000 --group parity_mpe2 --env_backend mpe2
    python benchmarks/backend_parity.py runs/NAVRL/parity_batched runs/NAVRL/parity_mpe2

The area is the mean of the curve over its steps (trapezoids), in units of the metric. Seeds are paired; the interval of
the mean difference is the percentile bootstrap over seeds (Efron & Tibshirani 1993, chapter 13).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from navrl.analysis import records, statistics  # noqa: E402

RESAMPLES = 20_000


def areas(group: Path, metric: str, skip: int) -> dict[int, float]:
    """seed -> mean height of the curve from step ``skip`` on."""
    result = {}
    for run in records.load(records.find([group])[0], [metric])[0]:
        steps, values = run.series(metric)
        steps, values = steps[steps >= skip], values[steps >= skip]
        if len(steps):
            result[run.seed] = statistics.area(steps, values, steps[0], steps[-1])
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs=2, type=Path)
    parser.add_argument("--metric", default="eval/episode_reward")
    parser.add_argument("--skip", type=int, default=0, help="leave out evaluations before this step (default: none)")
    options = parser.parse_args()
    first, second = (areas(group, options.metric, options.skip) for group in options.groups)
    seeds = sorted(first.keys() & second.keys())
    if len(seeds) < 2:
        print(f"the groups share {len(seeds)} seeds; two at least are needed", file=sys.stderr)
        return 2
    print(f"area under {options.metric} per seed (mean height)")
    print(f"{'seed':>6}{options.groups[0].name:>24}{options.groups[1].name:>24}{'difference':>14}")
    for seed in seeds:
        print(f"{seed:>6}{first[seed]:>24.3f}{second[seed]:>24.3f}{second[seed] - first[seed]:>14.3f}")
    difference = np.array([second[seed] - first[seed] for seed in seeds])
    resampled = np.random.default_rng(0).choice(difference, (RESAMPLES, len(seeds))).mean(1)
    low, high = np.percentile(resampled, [2.5, 97.5])
    print(f"mean difference {difference.mean():.3f}, 95 % bootstrap interval [{low:.3f}, {high:.3f}], {len(seeds)} seeds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
