"""The learner finds the known optimum of tiny tasks; one that needs memory only where there is some."""

from __future__ import annotations

import torch

from learner_tools import RaggedTask, box, learner, learner_config, runner_for, task_spec

COPIES = 64
FLAGS = ("--lr", "1e-2", "--lr_schedule", "linear", "--ppo_epoch", "4", "--hidden_size", "16", "--num_layers", "1")


def train(env: RaggedTask, length: int, iterations: int, *flags: str) -> list[float]:
    """Mean episode reward of each iteration."""
    budget = iterations * length * COPIES
    config = learner_config(*FLAGS, *flags, mini_batch_size=128, total_env_steps=budget, num_envs=COPIES)
    runner = runner_for(learner(env.spec, config, seed=1), env, length, seed=1)
    rewards = []
    for _ in range(iterations):
        runner.iterate()
        rewards.append(runner.episodes.row()["train/episode_reward_mean"])
    return rewards


def test_discrete_matching() -> None:
    """One step; the right one out of four actions is told by two signs: chance 0.25, optimum 1."""

    def reward(before, actions, after, terminated):
        right = (before[..., 0] > 0) + 2 * (before[..., 1] > 0)
        return (actions == right).float()

    env = RaggedTask([1] * COPIES, task_spec(2, 3), reward, "terminated")
    rewards = train(env, 8, 40, "--network", "mlp")
    assert rewards[0] < 0.4 and sum(rewards[-5:]) / 5 > 0.93


def test_continuous_matching() -> None:
    """One step; minus the squared distance to a target that is told: a fixed action gets -0.3 or less, optimum 0."""

    def reward(before, actions, after, terminated):
        target = torch.stack([0.8 * before[..., 0], 0.5 + 0.4 * before[..., 1]], -1)
        return -(actions - target).square().sum(-1)

    env = RaggedTask([1] * COPIES, task_spec(2, 3, box(2, 2)), reward, "terminated")
    rewards = train(env, 4, 50, "--network", "mlp")
    assert rewards[0] < -0.3 and sum(rewards[-5:]) / 5 > -0.05


class Recall(RaggedTask):
    """Four steps: a sign is shown at step 0 only, and asked for at step 3. Observation: (sign or 0, one-hot step)."""

    def __init__(self) -> None:
        super().__init__([4] * COPIES, task_spec(2, 5), self.answer, "terminated")

    def _observe(self) -> torch.Tensor:
        numbers = super()._observe()
        if not bool(self.elapsed.any()):
            self.sign = numbers[..., 0].sign()
        first = (self.elapsed == 0).float().view(-1, 1, 1)
        clock = torch.nn.functional.one_hot(self.elapsed.clamp_max(3), 4).float()
        return torch.cat([self.sign.unsqueeze(-1) * first, clock.unsqueeze(1).expand(-1, 2, -1)], -1)

    def answer(self, before, actions, after, terminated):
        right = torch.where(self.sign > 0, 1, 3)
        return torch.where(actions == right, 1.0, -1.0) * terminated.unsqueeze(-1)


def test_recall_needs_memory() -> None:
    """Chance among five actions: -0.6; the best without memory: 0; with memory: 1. Episodes cross rollouts' ends."""
    forgetful = train(Recall(), 6, 30, "--network", "mlp")
    remembering = train(Recall(), 6, 30, "--network", "gru")
    assert sum(forgetful[-5:]) / 5 < 0.2
    assert sum(remembering[-5:]) / 5 > 0.9
