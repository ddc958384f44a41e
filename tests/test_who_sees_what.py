"""Actors see their own agent; critics what their algorithm says; entity networks do not care who is called what."""

from __future__ import annotations

import pytest
import torch

from envs.mpe.simple_spread import BatchedSimpleSpread
from learner_tools import CPU, box, entity_spec, learner, learner_config, task_spec
from navrl.algorithms.mappo import MAPPO
from runners.on_policy import OnPolicyRunner


def outputs(algorithm: MAPPO, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(what decides each agent's actions ``[1, B, N, A]``, values ``[1, B, N]``) of observations ``[1, B, N, O]``."""
    starts = torch.zeros(obs.shape[:2], dtype=torch.bool)

    def memory(rows: int) -> torch.Tensor | None:
        size = algorithm.config.hidden_size
        generator = torch.Generator().manual_seed(0)
        return torch.randn(obs.shape[1], rows, size, generator=generator) if algorithm.recurrent else None

    with torch.no_grad():
        dist = algorithm.actor(obs, memory(obs.shape[2]), starts)[0]
        values = algorithm.critic(obs, memory(algorithm.critic.rows), starts)[0]
    return dist.log_probs if hasattr(dist, "log_probs") else dist.mean, values


def loud(algorithm: MAPPO) -> MAPPO:
    """With a policy head that shows differences (it starts at gain 0.01)."""
    with torch.no_grad():
        for name, parameter in algorithm.actor.named_parameters():
            if name.endswith("head.weight"):
                parameter.mul_(100)
    return algorithm


CASES = [
    (network, name, share, action)
    for network in ("mlp", "gru", "entity")
    for name in ("mappo", "ippo")
    for share in (True, False)
    for action in ("discrete", "continuous")
]


@pytest.mark.parametrize("network, name, share, action", CASES)
def test_an_actor_sees_its_own_observation_only_and_a_critic_what_its_algorithm_says(network, name, share, action):
    spec = entity_spec(3)
    if action == "continuous":
        spec = task_spec(3, spec.obs_size, box(3), layout=spec.layout)
    config = learner_config("--network", network, "--algorithm_name", name, hidden_size=16, share_policy=share)
    algorithm = loud(learner(spec, config))
    obs = torch.randn(1, 8, 3, spec.obs_size)
    policy, values = outputs(algorithm, obs)
    for agent in range(3):
        changed = obs.clone()
        changed[:, :, agent] = torch.randn(1, 8, spec.obs_size)
        new_policy, new_values = outputs(algorithm, changed)
        others = [i for i in range(3) if i != agent]
        assert torch.equal(new_policy[:, :, others], policy[:, :, others])
        assert not torch.allclose(new_policy[:, :, agent], policy[:, :, agent])
        assert (new_values[..., agent] - values[..., agent]).abs().max() > 1e-3
        if name == "ippo":
            assert torch.equal(new_values[..., others], values[..., others])
        else:
            assert (new_values[..., others] - values[..., others]).abs().amax((0, 1)).min() > 1e-4


def spread_obs(agents: torch.Tensor, velocities: torch.Tensor, landmarks: torch.Tensor) -> torch.Tensor:
    """Observations ``[1, B, N, O]`` as simple_spread has them, of positions ``[B, N, 2]``."""
    rows = []
    count = agents.shape[1]
    for i in range(count):
        here = agents[:, i : i + 1]
        others = [j for j in range(count) if j != i]
        silence = torch.zeros(len(agents), 2 * len(others))
        offsets = [(landmarks - here).flatten(1), (agents[:, others] - here).flatten(1)]
        rows.append(torch.cat([velocities[:, i], agents[:, i], *offsets, silence], 1))
    return torch.stack(rows, 1).unsqueeze(0)


@pytest.mark.parametrize("name", ["mappo", "ippo"])
@pytest.mark.parametrize("count", [2, 3, 5, 6])
def test_entity_networks_do_not_care_who_is_called_what_and_run_for_any_number(count: int, name: str) -> None:
    config = learner_config("--network", "entity", "--algorithm_name", name, hidden_size=16)
    trained = loud(learner(entity_spec(3), config, seed=1))
    algorithm = learner(entity_spec(count), config, seed=2)
    algorithm.load_state_dict(trained.state_dict())
    generator = torch.Generator().manual_seed(count)
    agents, velocities, landmarks = torch.randn(3, 7, count, 2, generator=generator)
    policy, values = outputs(algorithm, spread_obs(agents, velocities, landmarks))
    assert policy.std(2).min() > 1e-4 and values.std(2).max() > 1e-4, "agents do differ"

    order = torch.randperm(count, generator=generator)
    while torch.equal(order, torch.arange(count)):
        order = torch.randperm(count, generator=generator)
    renamed = outputs(algorithm, spread_obs(agents, velocities, landmarks[:, order]))
    torch.testing.assert_close(renamed[0], policy)
    torch.testing.assert_close(renamed[1], values)
    renamed = outputs(algorithm, spread_obs(agents[:, order], velocities[:, order], landmarks))
    torch.testing.assert_close(renamed[0], policy[:, :, order])
    torch.testing.assert_close(renamed[1], values[:, :, order])

    moved = landmarks.clone()
    moved[:, 0] += 1
    moved = outputs(algorithm, spread_obs(agents, velocities, moved))
    assert (moved[0] - policy).abs().amax((0, 1, 3)).min() > 1e-4, "every landmark counts"


def test_an_entity_network_of_three_trains_on_with_five() -> None:
    config = learner_config("--network", "entity", hidden_size=16, rollout_length=25, num_envs=4)
    first = learner(BatchedSimpleSpread(4, {}).spec, config)
    env = BatchedSimpleSpread(4, {"num_agents": 5})
    algorithm = learner(env.spec, config, seed=3)
    algorithm.load_state_dict(first.state_dict())
    metrics, _ = OnPolicyRunner(config, env, algorithm, 0).iterate()
    assert all(torch.isfinite(value) for value in metrics.values())


def test_a_single_agent_has_nobody_to_see() -> None:
    config = learner_config("--network", "entity", hidden_size=8, rollout_length=5, num_envs=4)
    env = BatchedSimpleSpread(4, {"num_agents": 1})
    runner = OnPolicyRunner(config, env, learner(env.spec, config), 0)
    assert all(torch.isfinite(value) for value in runner.iterate()[0].values())


def test_padded_slots_take_no_part() -> None:
    """Two more slots of each kind, all zero: outputs as without them, and no gradient comes from them."""
    config = learner_config("--network", "entity", hidden_size=16)
    plain = loud(learner(entity_spec(3), config))
    padded_spec = entity_spec(3, agents_seen=4, landmarks_seen=5)
    assert padded_spec.layout.padded
    padded = learner(padded_spec, config, seed=9)
    padded.load_state_dict(plain.state_dict())
    obs = torch.randn(1, 6, 3, entity_spec(3).obs_size)
    landmarks, agents = entity_spec(3).layout.landmarks, entity_spec(3).layout.agents
    nothing, silence = torch.zeros(1, 6, 3, 4), torch.zeros(1, 6, 3, 8)
    wide = torch.cat(
        [obs[..., : landmarks.stop], nothing, obs[..., agents.start : agents.stop], nothing, silence], -1
    )
    assert wide.shape[-1] == padded_spec.obs_size
    for a, b in zip(outputs(padded, wide), outputs(plain, obs)):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("network", ["mlp", "gru", "entity"])
def test_separate_parameters_get_separate_gradients(network: str) -> None:
    spec = entity_spec(3)
    flags = ("--network", network, "--algorithm_name", "ippo", "--no_share_policy")
    algorithm = learner(spec, learner_config(*flags, hidden_size=8))
    shared = learner(spec, learner_config("--network", network, "--algorithm_name", "ippo", hidden_size=8))
    size = {a: sum(p.numel() for p in m.actor.parameters()) for a, m in (("own", algorithm), ("shared", shared))}
    assert size["own"] == 3 * size["shared"]
    networks = [(algorithm.actor.trunk.networks, 0), (algorithm.critic.trunk.networks, 1)]
    obs = torch.randn(1, 4, 3, spec.obs_size)
    starts, hidden = torch.zeros(1, 4, dtype=torch.bool), torch.zeros(4, 3, 8) if network == "gru" else None
    first = [next(n.parameters()) for n in algorithm.actor.trunk.networks]
    assert not torch.equal(first[0], first[1]), "they start apart"
    for agent in range(3):
        for optimizer in algorithm.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        algorithm.actor(obs, hidden, starts)[0].log_probs[:, :, agent, 0].sum().backward()
        algorithm.critic(obs, hidden, starts)[0][..., agent].sum().backward()
        for modules, _ in networks:
            for owner, module in enumerate(modules):
                reached = any(p.grad is not None and (p.grad != 0).any() for p in module.parameters())
                assert reached == (owner == agent)


def test_separate_standard_deviations_of_continuous_actions() -> None:
    spec = task_spec(3, 4, box(3, 2))
    own = learner(spec, learner_config("--network", "mlp", "--no_share_policy", hidden_size=8))
    one = learner(spec, learner_config("--network", "mlp", hidden_size=8))
    assert own.actor.log_std.shape == (3, 2) and one.actor.log_std.shape == (1, 2)


@pytest.mark.parametrize("network", ["mlp", "gru"])
def test_shared_weights_know_who_acts_only_where_agents_differ_in_kind(network: str) -> None:
    same = loud(learner(task_spec(3, 6), learner_config("--network", network, hidden_size=8)))
    alike = torch.randn(1, 4, 1, 6).expand(-1, -1, 3, -1)
    starts = torch.zeros(1, 4, dtype=torch.bool)
    hidden = torch.zeros(4, 3, 8) if network == "gru" else None
    policy = same.actor(alike, hidden, starts)[0].log_probs
    torch.testing.assert_close(policy[:, :, 0], policy[:, :, 1])
    roles = task_spec(3, 6, roles=("speaker", "listener", "listener"))
    different = loud(learner(roles, learner_config("--network", network, hidden_size=8)))
    policy = different.actor(alike, hidden, starts)[0].log_probs
    assert (policy[:, :, 0] - policy[:, :, 1]).abs().max() > 1e-3
    # the identity is a one-hot of the agent's index behind the observation
    encoder = different.actor.trunk.encoder
    by_hand = torch.cat([alike[0, :, 2], torch.tensor([0.0, 0.0, 1.0]).expand(4, 3)], -1)
    seen = []
    encoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    different.actor(alike, hidden, starts)
    assert torch.equal(seen[0][0, :, 2], by_hand)


def test_one_value_serves_all_where_every_agent_gets_the_same_reward() -> None:
    config = learner_config("--network", "mlp", hidden_size=8)
    same, own = (learner(task_spec(3, 6, shared_reward=shared), config) for shared in (True, False))
    obs = torch.randn(1, 4, 3, 6)
    a, b = outputs(same, obs)[1], outputs(own, obs)[1]
    assert a.shape == b.shape == (1, 4, 3)
    assert torch.equal(a[..., 0], a[..., 2]) and not torch.allclose(b[..., 0], b[..., 2])


def test_initial_weights_depend_on_the_seed_alone() -> None:
    config = learner_config("--network", "entity", hidden_size=8)
    torch.manual_seed(1)
    one = MAPPO(entity_spec(3), config, CPU, 4)
    before = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), before), "the global generator is left alone"
    two, three = MAPPO(entity_spec(3), config, CPU, 4), MAPPO(entity_spec(3), config, CPU, 5)
    for a, b in zip(one.actor.state_dict().values(), two.actor.state_dict().values()):
        assert torch.equal(a, b)
    assert not torch.equal(one.critic.head.weight, three.critic.head.weight)
