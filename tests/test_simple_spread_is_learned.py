"""48,000 steps of simple_spread already beat doing nothing (-24.4 on scale A) by a clear margin."""

from __future__ import annotations

import pytest

from envs.mpe.simple_spread import BatchedSimpleSpread
from learner_tools import CPU, learner_config
from navrl.algorithms.mappo import MAPPO
from runners.on_policy import OnPolicyRunner


# Measured over seeds 1-3, mean of the last 3 iterations: entity -18.4, -20.3, -19.4; mlp -20.5, -21.3, -20.4.
@pytest.mark.parametrize("flags", [("--lr", "1e-3", "--hidden_size", "32"), ("--network", "mlp", "--lr", "2e-3")],
                         ids=["entity", "mlp"])  # fmt: skip
def test_training_improves_the_return(flags: tuple[str, ...]) -> None:
    config = learner_config(*flags, "--mini_batch_size", "400", "--num_envs", "64", "--total_env_steps", "48000")
    env = BatchedSimpleSpread(64, {})
    runner = OnPolicyRunner(config, env, MAPPO(env.spec, config, CPU, 1), 1)
    rewards = []
    while runner.env_steps < config.total_env_steps:
        runner.iterate()
        rewards.append(runner.episodes.row()["train/episode_reward_mean"])
    assert rewards[0] < -25
    assert sum(rewards[-3:]) / 3 > -22.5
