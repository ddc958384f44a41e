"""Minibatches hold each sample once an epoch, whatever their size, and their order does not matter."""

from __future__ import annotations

import pytest
import torch

from learner_tools import RaggedTask, filled_rollout, learner, learner_config, random_reward, task_spec

STEPS, ENVS = 12, 5
SIZES = [1, 2, 7, 12, 25, 59, 60, 61, 1000, None]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("network, chunk", [("mlp", None), ("gru", 1), ("gru", 3), ("gru", None)])
def test_every_sample_is_used_once_an_epoch(size: int | None, network: str, chunk: int | None) -> None:
    config = learner_config("--network", network, hidden_size=4, chunk_length=chunk, mini_batch_size=size)
    algorithm = learner(task_spec(2, 4), config)
    index = torch.arange(STEPS * ENVS).view(STEPS, ENVS)
    batch = {"index": index, "per_agent": index.unsqueeze(-1).expand(-1, -1, 2)}
    length = 1 if network == "mlp" else chunk or STEPS
    if network == "gru":
        batch |= {"actor_memory": index.view(STEPS, ENVS, 1, 1), "critic_memory": index.view(STEPS, ENVS, 1, 1)}
    orders = []
    for _ in range(2):
        parts = list(algorithm.minibatches(batch, STEPS, ENVS))
        seen = torch.cat([part["index"].flatten() for part in parts])
        assert torch.equal(seen.sort().values, index.flatten())
        orders.append(seen.tolist())
        counts = [part["index"].shape[1] for part in parts]
        assert max(counts) - min(counts) <= 1, "near-equal, so that no sample weighs more than another"
        if size is not None:
            assert max(counts) * length <= max(size, length)
        else:
            assert len(parts) == 1
        for part in parts:
            assert part["index"].shape[0] == length
            assert torch.equal(part["per_agent"][..., 1], part["index"])
            assert (part["index"].diff(dim=0) == ENVS).all(), "a chunk is consecutive steps of one copy"
            if network == "gru":
                assert torch.equal(part["actor_memory"].flatten(), part["index"][0]), "memory before its first step"
                assert torch.equal(part["critic_memory"].flatten(), part["index"][0])
    assert len(parts) == 1 or orders[0] != orders[1], "a fresh order each epoch"


def ready(network: str, seed: int = 0, **changes):
    spec = task_spec(2, 4)
    changes = {"hidden_size": 8, "chunk_length": 3, "max_grad_norm": None} | changes
    algorithm = learner(spec, learner_config("--network", network, **changes), dtype=torch.float64)
    algorithm.shuffle_generator.manual_seed(seed)
    env = RaggedTask([3, 4, 7, 2, 12], spec, random_reward, "mixed", torch.float64)
    return algorithm, filled_rollout(algorithm, env, STEPS)


@pytest.mark.parametrize("network", ["mlp", "gru"])
@pytest.mark.parametrize("size", [7, 20, 59])
def test_the_full_gradient_is_the_weighted_mean_over_minibatches(network: str, size: int) -> None:
    """Held parameters: rate 0. Each minibatch's gradient weighs as many samples as it holds."""

    def mean_gradient(mini_batch_size: int | None) -> list[torch.Tensor]:
        algorithm, rollout = ready(network, mini_batch_size=mini_batch_size, ppo_epoch=1)
        totals = None

        def step(part, coef):
            nonlocal totals
            loss, stats = algorithm.loss(part, coef)
            share = part["actions"].numel() / rollout.actions.numel()
            grads = torch.autograd.grad(loss, [*algorithm.actor.parameters(), *algorithm.critic.parameters()])
            totals = [share * g + (0 if totals is None else t) for g, t in zip(grads, totals or grads)]
            return stats

        algorithm.step = step
        algorithm.update(rollout, 0.0, 0.01)
        return totals

    for a, b in zip(mean_gradient(size), mean_gradient(None)):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("network", ["mlp", "gru"])
def test_the_order_within_a_minibatch_does_not_matter(network: str) -> None:
    results = []
    for seed in (1, 2):
        algorithm, rollout = ready(network, seed, mini_batch_size=None, ppo_epoch=3)
        algorithm.update(rollout, 1.0, 0.01)
        results.append([*algorithm.actor.parameters(), *algorithm.critic.parameters()])
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
