"""Memory: cleared at borders, stored as acting left it, trained through chunks that equal the whole where they can."""

from __future__ import annotations

import pytest
import torch

from envs.mpe.simple_spread import BatchedSimpleSpread
from learner_tools import RaggedTask, box, filled_rollout, learner, learner_config, random_reward, runner_for, task_spec
from navrl.networks.recurrent import GRUCore
from runners.on_policy import OnPolicyRunner

LENGTHS = [3, 7, 5, 1, 12]


def test_the_core_equals_torch_gru_on_each_episode() -> None:
    core = GRUCore(6).double()
    whole = torch.nn.GRU(6, 6).double()
    for name, parameter in core.cell.named_parameters():
        torch.nn.init.normal_(parameter, std=0.5)
        getattr(whole, f"{name}_l0").data.copy_(parameter)
    x = torch.randn(10, 2, 3, 6, dtype=torch.float64)
    hidden = torch.randn(2, 3, 6, dtype=torch.float64)
    starts = torch.zeros(10, 2, dtype=torch.bool)
    starts[4, 0] = starts[0, 1] = starts[9, 1] = True
    out, last = core(x, hidden, starts)
    nothing = torch.zeros(1, 3, 6, dtype=torch.float64)
    for env, first, end, state in ((0, 0, 4, hidden[:1]), (0, 4, 10, nothing), (1, 0, 9, nothing), (1, 9, 10, nothing)):
        expected, final = whole(x[first:end, env], state)
        torch.testing.assert_close(out[first:end, env], expected)
        if end == 10:
            torch.testing.assert_close(last[env], final[0])


@pytest.mark.parametrize("share", [True, False])
def test_what_an_episode_does_depends_on_nothing_before_it(share: bool) -> None:
    spec = task_spec(2, 4)
    config = learner_config("--network", "gru", hidden_size=8, share_policy=share)
    algorithm = learner(spec, config)
    obs = torch.randn(9, 1, 2, 4)
    starts = torch.zeros(9, 1, dtype=torch.bool)
    starts[5] = True
    other = obs.clone()
    other[:5] = torch.randn(5, 1, 2, 4)
    for network, rows in ((algorithm.actor, 2), (algorithm.critic, algorithm.critic.rows)):
        def run(x: torch.Tensor, scale: float) -> torch.Tensor:
            out = network(x, scale * torch.ones(1, rows, 8), starts)[0]
            return getattr(out, "log_probs", out)

        a, b = run(obs, 0.0), run(other, 1.0)
        assert torch.equal(a[5:], b[5:]) and not torch.allclose(a[4], b[4])


@pytest.mark.parametrize("name", ["mappo", "ippo"])
@pytest.mark.parametrize("network", ["mlp", "gru"])
def test_a_critic_is_as_wide_as_it_is_told(network: str, name: str) -> None:
    flags = ("--network", network, "--algorithm_name", name)
    config = learner_config(*flags, hidden_size=8, critic_hidden_size=12, num_envs=4)
    env = BatchedSimpleSpread(4, settings={"num_agents": 2})
    runner = OnPolicyRunner(config, env, learner(env.spec, config), 0)
    assert {head.in_features for head in runner.algorithm.critic.heads()} == {12}
    assert runner.algorithm.actor.trunk.head.in_features == 8
    for _ in range(2):
        metrics, _ = runner.iterate()
    assert all(torch.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("network", ["mlp", "gru"])
@pytest.mark.parametrize("action", [None, box(2)], ids=["discrete", "continuous"])
@pytest.mark.parametrize("chunk_length", [None, 4, 1])
@pytest.mark.parametrize("share", [True, False])
def test_before_the_first_step_the_ratio_is_one(network, action, chunk_length, share) -> None:
    """Memory, borders and chunks of the update reproduce what acting did, in the first rollout and the next."""
    spec = task_spec(2, 4, action)
    config = learner_config(
        "--network", network, hidden_size=8, chunk_length=chunk_length, share_policy=share, mini_batch_size=7
    )
    algorithm = learner(spec, config, dtype=torch.float64)
    runner = runner_for(algorithm, RaggedTask(LENGTHS, spec, random_reward, "mixed", torch.float64), 12)
    algorithm.step = lambda part, coef: algorithm.loss(part, coef)[1]  # learns nothing
    for _ in range(2):
        runner.collect()
        metrics = algorithm.update(runner.rollout, 1.0, 0.0)
        assert abs(metrics["approx_kl"]) < 1e-20 and metrics["clip_fraction"] == 0
        # advantages have mean 0: minus their mean, up to unequal minibatches
        assert abs(metrics["policy_loss"]) < 0.1


@pytest.mark.parametrize("network", ["mlp", "gru"])
def test_before_the_first_step_the_critic_repeats_its_values(network: str) -> None:
    spec = task_spec(2, 4)
    config = learner_config("--network", network, hidden_size=8, chunk_length=3, mini_batch_size=None)
    algorithm = learner(spec, config, dtype=torch.float64)
    runner = runner_for(algorithm, RaggedTask(LENGTHS, spec, random_reward, "mixed", torch.float64), 12)
    parts = []
    algorithm.step = lambda part, _: (parts.append(part), {"approx_kl": torch.zeros(())})[1]
    for _ in range(2):
        runner.collect()
        algorithm.update(runner.rollout, 1.0, 0.0)
        part = parts.pop()
        values, _ = algorithm.critic(part["obs"], part["critic_memory"], part.get("starts"))
        torch.testing.assert_close(values.detach(), part["old_values"], rtol=1e-9, atol=1e-9)


def gradients(chunk_length: int | None, lengths: list[int]) -> list[torch.Tensor]:
    spec = task_spec(2, 4)
    config = learner_config("--network", "gru", hidden_size=8, ppo_epoch=1, mini_batch_size=None,
                            max_grad_norm=None, chunk_length=chunk_length)  # fmt: skip
    algorithm = learner(spec, config, dtype=torch.float64)
    rollout = filled_rollout(algorithm, RaggedTask(lengths, spec, random_reward, "truncated", torch.float64), 12)
    algorithm.update(rollout, 0.0, 0.01)
    return [p.grad for p in (*algorithm.actor.parameters(), *algorithm.critic.parameters())]


def test_chunks_equal_the_whole_where_they_are_the_whole_or_borders_fall_on_theirs() -> None:
    for a, b in zip(gradients(12, [5, 7, 9]), gradients(None, [5, 7, 9])):
        torch.testing.assert_close(a, b)
    for a, b in zip(gradients(4, [4, 2, 4]), gradients(None, [4, 2, 4])):  # no gradient crosses an episode's border
        torch.testing.assert_close(a, b)
    differs = [not torch.allclose(a, b) for a, b in zip(gradients(4, [12, 9]), gradients(None, [12, 9]))]
    assert any(differs), "shorter chunks cut the gradient within an episode"
