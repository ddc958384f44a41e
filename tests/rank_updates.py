"""The first iteration of training in float64, as one of the processes of a run: torchrun tests/rank_updates.py FILE.

Rank 0 saves for each kind of learner what it had: the first gradient, the parameters after the update, the metrics.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Any

import torch

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

from envs.mpe.simple_spread import BatchedSimpleSpread  # noqa: E402
from learner_tools import CPU, learner_config  # noqa: E402
from navrl.algorithms.mappo import MAPPO  # noqa: E402
from navrl.ranks import RankFailed, Ranks, connected  # noqa: E402
from navrl.rollout import Rollout  # noqa: E402
from runners.companions import place_in_run  # noqa: E402
from runners.on_policy import OnPolicyRunner  # noqa: E402

ENVS, STEPS = 8, 30  # 30 steps: an episode ends amid the rollout, so time limits bootstrap on every rank
CASES = {
    "default": (),
    "mlp with popart": ("--network", "mlp", "--value_norm", "popart"),
    "gru": ("--network", "gru", "--chunk_length", "10"),
    "ippo with own rewards and a KL limit": ("--algorithm_name", "ippo", "--target_kl", "1e-12"),
    "continuous actions": ("--continuous_actions", "true", "--entropy_coef", "0.01"),
}


class Watched(MAPPO):
    """Keeps the gradient of its first step."""

    gradient: torch.Tensor | None = None

    def step(self, part: dict[str, Any], entropy_coef: float) -> dict[str, torch.Tensor]:
        stats = super().step(part, entropy_coef)
        if self.gradient is None:
            parameters = [*self.actor.parameters(), *self.critic.parameters()]
            self.gradient = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
        return stats


def first_iteration(ranks: Ranks, flags: tuple[str, ...]) -> dict[str, torch.Tensor]:
    config = learner_config(
        *flags, "--num_envs", str(ENVS), "--rollout_length", str(STEPS), "--hidden_size", "16", "--seed", "3",
        "--ppo_epoch", "2", mini_batch_size=None, max_grad_norm=None,
    )  # fmt: skip
    env = BatchedSimpleSpread(ENVS // ranks.size, config.task_settings(), dtype=torch.float64)
    algorithm = Watched(env.spec, config, CPU, config.seed, ranks)
    algorithm.actor.double()
    algorithm.critic.double()
    runner = OnPolicyRunner(config, env, algorithm, config.seed)
    memory = config.hidden_size if algorithm.recurrent else None
    runner.rollout = Rollout(env.spec, env.num_envs, STEPS, memory, CPU, torch.float64)
    if algorithm.recurrent:
        runner.hidden = runner.hidden.double()
        runner.rollout.critic_hidden = torch.zeros(env.num_envs, algorithm.critic.rows, memory, dtype=torch.float64)
    metrics, _ = runner.iterate()
    weights = [*algorithm.actor.parameters(), *algorithm.critic.parameters()]
    assert algorithm.gradient is not None and math.isfinite(algorithm.gradient.sum())
    return {
        "gradient": algorithm.gradient,
        "weights": torch.cat([weight.detach().flatten() for weight in weights]),
        **{name: value.double() for name, value in metrics.items()},
        **{name: torch.tensor(float(value)) for name, value in runner.episodes.row().items()},
        "value moments": torch.stack(algorithm.value_norm.moments()),
    }


def main(path: str) -> None:
    torch.set_num_threads(1)
    place = place_in_run(os.environ)
    ranks = Ranks(place.rank, place.size)
    with connected(ranks, CPU):
        results = {name: first_iteration(ranks, flags) for name, flags in CASES.items()}
        alike = ranks.gather([result["weights"].numpy().tobytes() for result in results.values()])
        assert alike == [alike[0]] * ranks.size, "the ranks' parameters drift apart"
        try:
            with ranks.together():
                if ranks.rank == 1:
                    raise ValueError("it broke")
        except (RankFailed, ValueError) as error:
            results["an error of rank 1"] = str(error)
    if ranks.first:
        torch.save(results, path)
    else:
        os._exit(0)  # as main.py does


if __name__ == "__main__":
    main(sys.argv[1])
