"""What an update learns from: values in real units, returns in the critic's, standardised advantages."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from learner_tools import RaggedTask, learner, learner_config, random_reward, runner_for, task_spec
from test_advantages import naive_gae


def loud_reward(*arguments: torch.Tensor) -> torch.Tensor:
    return 10 + 5 * random_reward(*arguments)


@pytest.mark.parametrize("roles", [("agent", "agent"), ("one", "other")])
@pytest.mark.parametrize("kind", ["none", "running", "popart"])
def test_the_batch_equals_one_made_by_hand(kind: str, roles: tuple[str, str]) -> None:
    spec = task_spec(2, 4, roles=roles)
    config = learner_config("--network", "mlp", "--value_norm", kind, hidden_size=8, gamma=0.9, gae_lambda=0.8)
    algorithm = learner(spec, config, seed=3, dtype=torch.float64)
    runner = runner_for(algorithm, RaggedTask([3, 5, 4, 9], spec, loud_reward, "mixed", torch.float64), 10)
    for _ in range(2):
        runner.iterate()
    runner.collect()
    rollout = runner.rollout

    mean, std = (float(m) for m in algorithm.value_norm.moments())
    assert kind == "none" or std > 2
    with torch.no_grad():
        values = algorithm.critic(rollout.obs)[0] * std + mean
        led_to = torch.stack([rollout.final_obs[t] for t in range(10)])
        next_values = algorithm.critic(led_to)[0] * std + mean
    advantages = naive_gae(rollout.rewards, values, next_values, rollout.terminated, rollout.truncated, 0.9, 0.8)
    returns = advantages + values

    batches = []
    algorithm.minibatches = lambda batch, *_: (batches.append(batch), iter(()))[1]
    metrics = algorithm.update(rollout, 1.0, 0.0)
    batch = batches[0]
    new_mean, new_std = (float(m) for m in algorithm.value_norm.moments())
    assert kind == "none" or abs(new_mean - mean) > 1e-3
    with torch.no_grad():
        predicted = algorithm.critic(rollout.obs)[0]  # PopArt has rescaled the head by now
    torch.testing.assert_close(batch["old_values"], predicted, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(batch["returns"], (returns - new_mean) / new_std, rtol=1e-9, atol=1e-9)

    a = advantages.numpy()
    axes = (0, 1, 2) if roles[0] == roles[1] else (0, 1)  # roles have scales of their own
    expected = (a - a.mean(axes, keepdims=True)) / a.std(axes, keepdims=True)
    np.testing.assert_allclose(batch["advantages"].numpy(), expected, rtol=1e-6)
    r, v = returns.numpy(), values.numpy()
    assert metrics["explained_variance"].item() == pytest.approx(1 - np.var(r - v) / np.var(r))


def test_metrics_are_means_over_all_minibatches_of_all_epochs() -> None:
    spec = task_spec(2, 4)
    config = learner_config("--network", "mlp", hidden_size=8, ppo_epoch=3, mini_batch_size=10)
    algorithm = learner(spec, config)
    runner = runner_for(algorithm, RaggedTask([3, 5, 4, 9], spec, random_reward, "mixed"), 10)
    rows = []
    step = algorithm.step
    algorithm.step = lambda part, coef: (rows.append(step(part, coef)), dict(rows[-1]))[1]
    metrics, _ = runner.iterate()
    assert len(rows) == 12 and len(rows[0]) == 7
    for name in rows[0]:
        assert metrics[name].item() == pytest.approx(sum(row[name].item() for row in rows) / 12, rel=1e-5, abs=1e-7)
