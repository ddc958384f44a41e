"""Learning rate and entropy bonus follow their schedules; target_kl ends an update's epochs."""

from __future__ import annotations

import pytest
import torch

from envs.mpe.simple_spread import BatchedSimpleSpread
from learner_tools import CPU, learner_config
from navrl.algorithms.mappo import MAPPO
from runners.on_policy import OnPolicyRunner

BATCH = 4 * 5


def start(*flags: str, **changes) -> OnPolicyRunner:
    settings = {"num_envs": 4, "rollout_length": 5, "hidden_size": 8, "total_env_steps": 10 * BATCH, "lr": 1e-3}
    config = learner_config("--network", "mlp", *flags, **(settings | changes))
    env = BatchedSimpleSpread(4, {})
    return OnPolicyRunner(config, env, MAPPO(env.spec, config, CPU, 1), 1)


def rates(runner: OnPolicyRunner, iterations: int) -> list[float]:
    logged = []
    for _ in range(iterations):
        logged.append(runner.iterate()[1]["train/lr"])
        assert [g["lr"] for g in runner.algorithm.optimizers["adam"].param_groups][0] == pytest.approx(logged[-1])
    return logged


def test_a_linear_rate_falls_to_zero_at_the_budget() -> None:
    runner = start("--lr_schedule", "linear", critic_lr=5e-3)
    assert rates(runner, 10) == pytest.approx([1e-3 * (1 - k / 10) for k in range(10)])
    assert runner.algorithm.optimizers["adam"].param_groups[1]["lr"] == pytest.approx(5e-3 * 0.1)
    assert runner.env_steps == runner.config.total_env_steps and runner.schedules()[0] == 0


def test_past_lr_decay_steps_nothing_moves() -> None:
    runner = start("--lr_schedule", "linear", lr_decay_steps=2 * BATCH)
    assert rates(runner, 2) == pytest.approx([1e-3, 5e-4])
    before = [p.clone() for p in runner.algorithm.actor.parameters()]
    assert rates(runner, 2) == [0, 0]
    assert all(torch.equal(a, b) for a, b in zip(before, runner.algorithm.actor.parameters()))


def test_a_longer_decay_ends_above_zero_and_a_constant_rate_stays() -> None:
    assert rates(start("--lr_schedule", "linear", lr_decay_steps=20 * BATCH), 10)[-1] == pytest.approx(1e-3 * 0.55)
    assert rates(start("--lr_schedule", "constant", lr_decay_steps=2 * BATCH), 4) == [1e-3] * 4


@pytest.mark.parametrize("end, expected", [(None, [0.1, 0.1, 0.1]), (0.0, [0.1, 0.05, 0.0]), (0.3, [0.1, 0.2, 0.3])])
def test_the_entropy_bonus_ends_where_it_is_told(end: float | None, expected: list[float]) -> None:
    runner = start("--lr_schedule", "constant", entropy_coef=0.1, entropy_coef_end=end)
    used = []
    update = runner.algorithm.update
    runner.algorithm.update = lambda rollout, scale, coef, *more: (used.append(coef), update(rollout, scale, coef, *more))[1]
    for _ in range(11):
        runner.iterate()
    assert [used[0], used[5], used[10]] == pytest.approx(expected)


@pytest.mark.parametrize("end, expected", [(None, [4] * 11), (1, [4, 4, 3, 3, 3, 2, 2, 2, 2, 1, 1]), (6, [4, 4, 4, 5, 5, 5, 5, 5, 6, 6, 6])])
def test_the_passes_end_where_they_are_told(end: int | None, expected: list[int]) -> None:
    runner = start(ppo_epoch=4, ppo_epoch_end=end, mini_batch_size=None)
    steps, step = 0, runner.algorithm.step

    def counted(part, coef):
        nonlocal steps
        steps += 1
        return step(part, coef)

    runner.algorithm.step = counted
    counts = []
    for _ in range(11):
        before = steps
        runner.iterate()
        counts.append(steps - before)
    assert counts == expected


@pytest.mark.parametrize("target_kl, epochs", [(None, 8), (1e9, 8), (1e-12, 2)])
def test_target_kl_stops_the_epochs(target_kl: float | None, epochs: int) -> None:
    """With one minibatch the first epoch sees the policy that acted (KL 0), the second one a changed one."""
    runner = start(target_kl=target_kl, ppo_epoch=8, mini_batch_size=None, lr=1e-2)
    count = 0
    step = runner.algorithm.step

    def counted(part, coef):
        nonlocal count
        count += 1
        return step(part, coef)

    runner.algorithm.step = counted
    metrics, _ = runner.iterate()
    assert count == epochs
    assert metrics["approx_kl"] > 0


@pytest.mark.parametrize("changes, epochs", [((0.9, 0.3), 1), ((0.3, 0.9), 1), ((0.1, 0.7), 4), ((0.7, 0.1), 4)])
def test_an_epoch_is_judged_by_the_mean_of_its_minibatches(changes: tuple[float, float], epochs: int) -> None:
    """Neither the first nor the last minibatch alone decides: the target is 0.5, of two equal minibatches."""
    runner = start(target_kl=0.5, ppo_epoch=4, mini_batch_size=BATCH // 2)
    step, steps = runner.algorithm.step, []

    def with_given_change(part, coef):
        steps.append(changes[len(steps) % 2])
        return step(part, coef) | {"approx_kl": torch.tensor(steps[-1])}

    runner.algorithm.step = with_given_change
    runner.iterate()
    assert len(steps) == 2 * epochs


def test_curriculum_stages_follow_the_steps() -> None:
    seen = []
    runner = start(curriculum=True, curriculum_advance_at=(BATCH, 3 * BATCH))
    runner.env.set_stage = seen.append
    for _ in range(5):
        runner.iterate()
    assert seen == [0, 1, 1, 2, 2]
