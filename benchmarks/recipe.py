"""What of the recipe matters: the main job with one thing changed at a time, over seeds.

    python benchmarks/recipe.py --out recipe [--seeds 1-5] [--only default mlp] [--jobs 2] [-- --total_env_steps 600000]

Every run trains in one process on one core and is judged by its own final evaluation: last parameters, 500 episodes of
mpe2. The table: interquartile mean over seeds with its 95 % bootstrap interval, how it differs from the default, success,
collisions, and the seconds that training took. Given again it skips what is finished and goes on with what was stopped.
Exit code: 0 · 1 a run failed · 2 bad input.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from variants import arguments, trained

from navrl.analysis.statistics import difference_of_iqm, estimate, iqm
from navrl.pipes import run_program
from navrl.tracking.record import read_summary

VARIANTS = {
    "default": "",
    "world_frame": "--canonical_frame false",
    "mlp": "--network mlp",
    "ippo": "--algorithm_name ippo",
    "adam_lr2e-3": "--optimizer adam --lr 2e-3",
    "lr1.5e-3": "--lr 1.5e-3",
    "wide_critic": "--critic_hidden_size null",
    "constant_passes": "--ppo_epoch_end null",
    "gamma0.95": "--gamma 0.95",
    "gamma0.99_lambda0.95": "--gamma 0.99 --gae_lambda 0.95",
    "entropy0.01": "--entropy_coef 0.01",
    "minibatch1600": "--mini_batch_size 1600",
    "num_envs512": "--num_envs 512 --eval_interval 3 --checkpoint_interval 6",
}
WIDTHS = (28, 28, 10, 12, 9)


def seconds_of(run_dir: Path) -> float:
    """Seconds of training until the last row."""
    return json.loads((run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])["time"]


def line(name: str, run_dirs: Sequence[Path], default: np.ndarray | None) -> str:
    """One row of the table. default: rewards of the default variant's seeds, None for itself or where it was left out."""
    means = [read_summary(run_dir)["final"]["mean"] for run_dir in run_dirs]
    rewards = np.array([mean["episode_reward"] for mean in means])
    found = estimate(iqm, rewards)
    cells = [f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"]
    if default is None:
        cells.append("")
    else:
        apart = difference_of_iqm(rewards, default)
        cells.append(f"{apart.value:+.3f} [{apart.low:+.3f}, {apart.high:+.3f}]")
    cells += [f"{np.median([mean[key] for mean in means]):.3f}" for key in ("success_rate", "collision_count")]
    cells.append(f"{np.median([seconds_of(run_dir) for run_dir in run_dirs]):.0f}")
    return f"{name:<29}{len(means):>5}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS))


def main(argv: list[str]) -> int:
    _, plan = trained(arguments(__doc__, VARIANTS, "1-5"), VARIANTS, argv)
    titles = ("reward: IQM [95 %]", "beside default", "success", "collisions", "seconds")
    print(f"{'variant':<29}{'seeds':>5}" + "".join(f"{title:>{width}}" for title, width in zip(titles, WIDTHS)))
    reference = None
    if "default" in plan:
        finals = [read_summary(run.run_dir)["final"]["mean"]["episode_reward"] for run in plan["default"]]
        reference = np.array(finals)
    for name, runs in plan.items():
        print(line(name, [run.run_dir for run in runs], None if name == "default" else reference))
    return 0


if __name__ == "__main__":
    run_program(main)
