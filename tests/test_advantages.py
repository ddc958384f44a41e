"""Advantages equal the naive double loop, bootstrap where an episode was cut, and never cross a border."""

from __future__ import annotations

import pytest
import torch

from envs.mpe.simple_spread import BatchedSimpleSpread
from learner_tools import RaggedTask, filled_rollout, learner, learner_config, no_reward, runner_for, task_spec
from navrl.rollout import gae

GAMMA, LAMBDA = 0.95, 0.9


def naive_gae(rewards, values, next_values, terminated, truncated, gamma, lam):
    """Sum over l of (gamma lambda)^l delta_{t+l} up to the episode's end: eq. 16 of the paper, word for word."""
    steps, num_envs, num_agents = rewards.shape
    advantages = torch.zeros_like(rewards)
    for e in range(num_envs):
        for i in range(num_agents):
            for t in range(steps):
                total, factor = 0.0, 1.0
                for later in range(t, steps):
                    future = 0.0 if terminated[later, e] else gamma * float(next_values[later, e, i])
                    total += factor * (float(rewards[later, e, i]) + future - float(values[later, e, i]))
                    factor *= gamma * lam
                    if terminated[later, e] or truncated[later, e]:
                        break
                advantages[t, e, i] = total
    return advantages


@pytest.mark.parametrize("gamma, lam", [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.0, 0.5)])
def test_gae_equals_the_double_loop(gamma: float, lam: float) -> None:
    generator = torch.Generator().manual_seed(3)
    rewards, values, next_values = torch.randn(3, 17, 6, 2, generator=generator, dtype=torch.float64)
    kind = torch.randint(0, 6, (17, 6), generator=generator)
    terminated, truncated = kind == 0, kind == 1
    assert terminated.any() and truncated.any()
    arguments = (rewards, values, next_values, terminated, truncated, gamma, lam)
    torch.testing.assert_close(gae(*arguments), naive_gae(*arguments), rtol=1e-12, atol=1e-12)


def test_with_lambda_one_the_return_is_the_discounted_sum_of_rewards() -> None:
    rewards = torch.randn(9, 1, 1, dtype=torch.float64)
    values, next_values = torch.randn(2, 9, 1, 1, dtype=torch.float64)
    next_values[:-1] = values[1:]
    ends = torch.zeros(9, 1, dtype=torch.bool)
    ends[-1] = True
    returns = gae(rewards, values, next_values, ends, ~ends & False, 0.9, 1.0) + values
    assert returns[0].item() == pytest.approx(sum(0.9**t * rewards[t].item() for t in range(9)))


class ValueOf:
    """V of a whole episode so far, by the critic alone: an episode's observations are replayed from their start."""

    def __init__(self, algorithm, num_envs: int) -> None:
        self.algorithm, self.history = algorithm, [[] for _ in range(num_envs)]

    @torch.no_grad()
    def __call__(self, env: int, obs: torch.Tensor) -> torch.Tensor:
        sequence = torch.stack([*self.history[env], obs]).unsqueeze(1)
        starts = torch.zeros(len(sequence), 1, dtype=torch.bool)
        hidden = None
        if self.algorithm.recurrent:
            hidden = torch.zeros(1, self.algorithm.critic.rows, self.algorithm.config.hidden_size, dtype=obs.dtype)
        return self.algorithm.critic(sequence, hidden, starts)[0][-1, 0]


@pytest.mark.parametrize("ends", ["truncated", "terminated", "mixed"])
@pytest.mark.parametrize("network", ["mlp", "gru"])
@pytest.mark.parametrize("algorithm_name, share", [("mappo", True), ("ippo", True), ("ippo", False)])
def test_advantages_vanish_where_the_critic_is_exact(network: str, ends: str, algorithm_name: str, share: bool) -> None:
    """reward = V(s) - gamma V(true next s): every error of the critic is 0, unless something looks past a border."""
    lengths = [5, 3, 7, 1, 11, 4]
    config = learner_config("--network", network, "--algorithm_name", algorithm_name, hidden_size=8,
                            share_policy=share, gamma=GAMMA)  # fmt: skip
    spec = task_spec(2, 4)
    algorithm = learner(spec, config, dtype=torch.float64)
    value = ValueOf(algorithm, len(lengths))

    def reward(before, actions, after, terminated):
        rows = []
        for e in range(len(lengths)):
            now = value(e, before[e])
            value.history[e].append(before[e])
            rows.append(now - GAMMA * value(e, after[e]) * ~terminated[e])
            if len(value.history[e]) == lengths[e]:
                value.history[e] = []
        return torch.stack(rows)

    env = RaggedTask(lengths, spec, reward, ends, torch.float64)
    runner = runner_for(algorithm, env, length=8)
    for _ in range(3):  # memory is carried from one rollout to the next
        runner.collect()
        rollout = runner.rollout
        values, next_values, _ = algorithm.evaluate_values(rollout)
        assert values.std() > 0.05
        advantages = gae(rollout.rewards, values, next_values, rollout.terminated, rollout.truncated, GAMMA, LAMBDA)
        assert advantages.abs().max() < 1e-9


class ConstantReward(BatchedSimpleSpread):
    """The real batched task, its reward replaced by 0.7."""

    def _reward(self) -> torch.Tensor:
        return torch.full((self.num_envs, self.spec.num_agents), 0.7)


def constant_critic(algorithm, value: float) -> None:
    for head in algorithm.critic.heads():
        head.weight.data.zero_()
        head.bias.data.fill_(value)


@pytest.mark.parametrize("network", ["mlp", "gru", "entity"])
@pytest.mark.parametrize("length", [25, 10, 40, 1])
def test_a_task_cut_every_25_steps_has_no_advantages_when_values_are_r_over_1_minus_gamma(
    network: str, length: int
) -> None:
    env = ConstantReward(4, {})
    algorithm = learner(env.spec, learner_config("--network", network, hidden_size=8))
    constant_critic(algorithm, 0.7 / (1 - GAMMA))
    runner = runner_for(algorithm, env, length)
    for _ in range(3):
        runner.collect()
        r = runner.rollout
        values, next_values, _ = algorithm.evaluate_values(r)
        advantages = gae(r.rewards, values, next_values, r.terminated, r.truncated, GAMMA, LAMBDA)
        assert advantages.abs().max() < 1e-4


def test_a_terminated_episode_has_no_future() -> None:
    """With V = r / (1 - gamma) only the last step's error is not 0: -gamma V, seen back through (gamma lambda)^k."""
    spec = task_spec(2, 4)
    env = RaggedTask([6], spec, lambda before, *_: no_reward(before, *_) + 0.7, "terminated")
    algorithm = learner(spec, learner_config("--network", "mlp", hidden_size=8))
    value = 0.7 / (1 - GAMMA)
    constant_critic(algorithm, value)
    rollout = filled_rollout(algorithm, env, 9)
    values, next_values, _ = algorithm.evaluate_values(rollout)
    advantages = gae(rollout.rewards, values, next_values, rollout.terminated, rollout.truncated, GAMMA, LAMBDA)
    expected = [-GAMMA * value * (GAMMA * LAMBDA) ** (5 - t) for t in range(6)] + [0.0] * 3
    torch.testing.assert_close(advantages[:, 0, 0], torch.tensor(expected), rtol=1e-4, atol=1e-4)
