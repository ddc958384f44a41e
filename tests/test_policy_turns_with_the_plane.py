"""Where the task looks the same after quarter turns and mirrorings, what a policy does turns and mirrors with it."""

from __future__ import annotations

import itertools

import pytest
import torch

from envs.mpe.simple_spread import BatchedSimpleSpread
from learner_tools import CPU, learner_config
from navrl.algorithms.mappo import MAPPO
from navrl.networks.frames import LandmarkFrame, WorldFrame
from runners.on_policy import OnPolicyRunner

# The square's symmetries: every signed permutation matrix of the plane.
SQUARE = [
    torch.tensor([[x, 0.0], [0.0, y]])[rows]
    for x, y, rows in itertools.product((1.0, -1.0), (1.0, -1.0), ([0, 1], [1, 0]))
]
COPIES = 64


def made(*flags: str, num_agents: int = 3, **settings: object) -> tuple[BatchedSimpleSpread, MAPPO]:
    settings = {"num_agents": num_agents} | settings
    env = BatchedSimpleSpread(COPIES, settings=settings, dtype=torch.float64)
    policy = MAPPO(env.spec, learner_config("--hidden_size", "16", *flags), CPU, seed=3)
    policy.actor.double(), policy.critic.double()
    with torch.no_grad():
        for name, parameter in policy.actor.named_parameters():
            if name.endswith("head.weight"):
                parameter.mul_(100)  # a head that shows differences (it starts at gain 0.01)
    return env, policy


def played(env: BatchedSimpleSpread, policy: MAPPO, turn: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Agents' positions ``[T, E, N, 2]`` and rewards of an episode in a turned world."""
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(3, COPIES, env.spec.num_agents, 2, generator=generator, dtype=torch.float64) * 2 - 1
    obs = env.set_state(*(p @ turn.T for p in (points[0], points[1], points[2])))
    starts = torch.zeros(COPIES, dtype=torch.bool)
    where, rewards = [], []
    for _ in range(10):
        step = env.step(policy.act(obs, policy.initial_hidden(COPIES), starts, None)[0])
        obs = step.obs
        where.append(env.scene().agent_pos)
        rewards.append(step.reward)
    return torch.stack(where), torch.stack(rewards)


CASES = [
    pytest.param(("--network", network), continuous, n, id=f"{network}-{'continuous' if continuous else 'discrete'}-{n}")
    for network, continuous, n in itertools.product(("entity", "mlp"), (False, True), (1, 3, 4))
]


@pytest.mark.parametrize("flags, continuous, n", CASES)
def test_a_turned_world_gives_the_turned_episode(flags, continuous, n) -> None:
    env, policy = made(*flags, num_agents=n, continuous_actions=continuous)
    here, rewards = played(env, policy, torch.eye(2, dtype=torch.float64))
    assert (here[-1] - here[0]).abs().amax() > 0.5  # they do move
    for turn in SQUARE:
        there, same = played(env, policy, turn.double())
        torch.testing.assert_close(there, here @ turn.double().T)
        torch.testing.assert_close(same, rewards)


@pytest.mark.parametrize("flags", [("--no_canonical_frame",), ("--network", "gru")])
def test_without_the_frame_it_need_not(flags) -> None:
    env, policy = made(*flags)
    assert isinstance(policy.frame, WorldFrame)
    here, _ = played(env, policy, torch.eye(2, dtype=torch.float64))
    there, _ = played(env, policy, SQUARE[1].double())
    assert not torch.allclose(there, here @ SQUARE[1].double().T, atol=1e-2)


def test_the_landmarks_centre_lies_in_one_octant() -> None:
    env, policy = made()
    frame = policy.frame
    assert isinstance(frame, LandmarkFrame)
    obs, codes = frame.into(env.reset(1))
    x, y = obs[..., 4:10].unflatten(-1, (3, 2)).mean(-2).unbind(-1)
    assert (x >= y).all() and (y >= 0).all()
    assert set(codes.flatten().tolist()) == set(range(8))  # the starts lie in all eight


def test_what_is_brought_in_comes_back() -> None:
    _, policy = made()
    codes = torch.arange(8).repeat_interleave(5)
    actions = torch.arange(5).repeat(8)
    moves = torch.nn.functional.one_hot(actions, 5).double()
    assert torch.equal(policy.frame.back(actions, codes), policy.frame.back(moves, codes).argmax(-1))
    for code in range(8):  # each code names all five actions, and no two codes alike
        assert sorted(policy.frame.back(torch.arange(5), torch.full((5,), code)).tolist()) == list(range(5))
    assert len({tuple(row) for row in policy.frame.meant.tolist()}) == 8


def test_the_value_is_the_same_from_every_side() -> None:
    env, policy = made()
    obs = env.reset(2)
    with torch.no_grad():
        values = policy.critic(policy.frame.into(obs.unsqueeze(0))[0])[0]
        for turn in SQUARE:
            turned = (obs.unflatten(-1, (-1, 2)) @ turn.double().T).flatten(-2)
            same = policy.critic(policy.frame.into(turned.unsqueeze(0))[0])[0]
            torch.testing.assert_close(same, values)


@pytest.mark.parametrize("continuous", [False, True])
def test_what_was_done_is_what_is_learned_from(continuous) -> None:
    """Before its first step the update finds the probabilities that acting had: all ratios are 1."""
    config = learner_config("--hidden_size", "16", "--num_envs", "8", "--ppo_epoch", "1", mini_batch_size=None)
    env = BatchedSimpleSpread(8, settings={"num_agents": 3, "continuous_actions": continuous})
    runner = OnPolicyRunner(config, env, MAPPO(env.spec, config, CPU, seed=1), 1)
    metrics, _ = runner.iterate()
    assert metrics["approx_kl"].abs() < 1e-6 and metrics["clip_fraction"] == 0
