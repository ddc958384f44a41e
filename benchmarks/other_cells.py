"""Does the tuned recipe hold elsewhere: other numbers of agents, rewards, actions, few copies; and without training?

    python benchmarks/other_cells.py --out cells [--seeds 1-3] [--only default num_agents4] [--jobs 2]
    python benchmarks/other_cells.py --out cells -- --total_env_steps 400000     # after --: main.py's flags, for all

Trains every cell with the same recipe, each run in one process on one core, and shows what the runs' own final
evaluations say (last parameters, 500 episodes of mpe2): mean over seeds, least and most. normalized_score: the random
policy is 0, the reference controller 1, both measured for that very cell. Then the runs of the default cell (three
agents) play with more agents than they were trained with, the same weights, by scripts/evaluate.py.

Given again it skips what is finished and goes on with what was stopped.
Exit code: 0 · 1 a run failed · 2 bad input.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from variants import ROOT, arguments, trained

from navrl.launch.expand import Planned
from navrl.pipes import run_program, whole
from navrl.tracking.record import read_summary

# With 8 copies an iteration is a sixteenth of the default one: the intervals are sixteen times longer.
CELLS = {
    "default": "",
    "num_agents2": "--num_agents 2",
    "num_agents4": "--num_agents 4",
    "num_agents5": "--num_agents 5",
    "num_agents6": "--num_agents 6",
    "local_ratio0": "--local_ratio 0",
    "local_ratio0.9": "--local_ratio 0.9",
    "continuous_actions": "--continuous_actions true",
    "num_envs8": "--num_envs 8 --eval_interval 160 --checkpoint_interval 400 --log_interval 16",
}
PLAYED_AT = (5, 6)  # agents, by what was trained in the default cell
COLUMNS = {"episode_reward": 2, "normalized_score": 3, "success_rate": 3, "collision_count": 2}  # metric -> decimals


def transfer(runs: Sequence[Planned], episodes: int) -> dict[int, list[Mapping[str, Any]]]:
    """Agents -> means of each run's last parameters with so many of them, on mpe2. Raises RuntimeError."""
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory) / "result.json"
        command = [sys.executable, "scripts/evaluate.py", "--which", "last", "--episodes", str(episodes),
                   "--num_agents", *map(str, PLAYED_AT), "--json", str(result),
                   "--checkpoint", *(str(run.run_dir) for run in runs)]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        results = json.loads(result.read_text(encoding="utf-8"))["results"]
    return {count: [one["mean"] for one in results if one["num_agents"] == count] for count in PLAYED_AT}


def line(title: str, means: Sequence[Mapping[str, Any]]) -> str:
    """One row: mean over seeds (least .. most) of each column; a dash where a metric is not defined."""
    cells = []
    for name, decimals in COLUMNS.items():
        values = np.array([one[name] for one in means if name in one])
        cells.append(
            "-" if not len(values) else
            f"{values.mean():.{decimals}f} ({values.min():.{decimals}f} .. {values.max():.{decimals}f})"
        )  # fmt: skip
    return f"{title:<26}{len(means):>5}" + "".join(f"{cell:>30}" for cell in cells)


def main(argv: list[str]) -> int:
    parser = arguments(__doc__, CELLS, "1-3")
    parser.add_argument("--episodes", type=whole(2), default=500, help="of runs with more agents (default: 500)")
    options, plan = trained(parser, CELLS, argv)
    print(f"{'cell':<26}{'seeds':>5}" + "".join(f"{name:>30}" for name in COLUMNS))
    for cell, runs in plan.items():
        print(line(cell, [read_summary(run.run_dir)["final"]["mean"] for run in runs]))
    default = plan.get("default", [])
    if default and default[0].config.network == "entity":
        try:
            for count, means in transfer(default, options.episodes).items():
                print(line(f"default, played by {count}", means))
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    run_program(main)
