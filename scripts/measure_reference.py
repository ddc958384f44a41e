"""Measure what random play and the reference controller score, and write envs/mpe/reference_scores.json.

python scripts/measure_reference.py [--episodes 1000] [--random-episodes 10000] [--num_agents 1 2 3 4 5 6]

Runs on the batched simple_spread in float64, which tests/test_batched_spread_equals_mpe2.py holds to mpe2. Starts:
seed 0 of envs.seeding, copies 0 to episodes - 1. One process a core at most; entries that are not asked for stay.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

from envs.mpe.controllers import make_controller  # noqa: E402
from envs.mpe.reference import MEASURED_BY, PATH  # noqa: E402
from envs.registry import make_env, package_version  # noqa: E402
from navrl.files import write_text  # noqa: E402
from navrl.pipes import Parser, run_program, whole  # noqa: E402

MAX_CYCLES = 25


def play(policy: str, settings: dict, episodes: int) -> dict[str, float]:
    """Mean episode reward, its standard error and the sample size of ``episodes`` episodes."""
    torch.set_num_threads(1)
    env = make_env("simple_spread", "batched", settings, episodes, dtype=torch.float64, auto_reset=False)
    controller = make_controller(policy, env.spec)
    obs, total = env.reset(0), 0.0
    for _ in range(env.spec.max_cycles):
        step = env.step(controller.act(obs))
        obs, total = step.obs, total + step.reward.mean(1)
    stderr = total.std() / episodes**0.5
    return {"mean": round(float(total.mean()), 4), "stderr": round(float(stderr), 4), "episodes": episodes}


def measure(settings: dict, episodes: int, random_episodes: int) -> dict:
    """One entry of the table."""
    return {
        **settings,
        "random": play("random", settings, random_episodes),
        "reference": play("reference", settings, episodes),
    }


def main(argv: list[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--episodes", type=whole(2), default=1000)
    parser.add_argument("--random-episodes", type=whole(2), default=10000)
    parser.add_argument("--num_agents", type=whole(1), nargs="+", default=[1, 2, 3, 4, 5, 6])
    parser.add_argument("--processes", type=whole(1), default=len(os.sched_getaffinity(0)))
    args = parser.parse_args(argv)
    wanted = [
        {"num_agents": n, "local_ratio": ratio, "max_cycles": MAX_CYCLES, "continuous_actions": continuous}
        for n in args.num_agents
        for continuous in (False, True)
        for ratio in (0.0, 0.5, 0.9)
    ]
    rows = {}
    if PATH.exists():
        rows = {tuple(row[k] for k in MEASURED_BY): row for row in json.loads(PATH.read_text())["scores"]}
    with ProcessPoolExecutor(args.processes) as pool:
        jobs = [pool.submit(measure, settings, args.episodes, args.random_episodes) for settings in wanted]
        for job in as_completed(jobs):
            row = job.result()
            rows[tuple(row[k] for k in MEASURED_BY)] = row
            print(json.dumps(row), flush=True)
            write(rows)
    return 0


def write(rows: dict[tuple, dict]) -> None:
    """Replace the table at once, sorted, one entry a line."""
    about = {
        "unit": "episode reward: summed over steps, averaged over agents (scale A of mpe2 v3)",
        "measured_on": f"batched simple_spread in float64, equal to mpe2 {package_version('mpe2')}",
        "command": "python scripts/measure_reference.py",
    }
    lines = ",\n".join("  " + json.dumps(rows[key]) for key in sorted(rows))
    write_text(PATH, f'{{\n "about": {json.dumps(about)},\n "scores": [\n{lines}\n ]\n}}\n')


if __name__ == "__main__":
    run_program(main)
