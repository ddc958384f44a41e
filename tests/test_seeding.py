"""Start states depend on (seed, environment, episode) alone and are distributed as mpe2's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from envs import seeding
from envs.mpe.simple_spread import BatchedSimpleSpread

# The generator's first outputs from state 0, as published with it (Vigna's splitmix64.c; Java's SplittableRandom).
PUBLISHED = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def starts(num_envs: int, seed: int, episodes: int, first_env: int = 0) -> torch.Tensor:
    """Observations ``[episodes, E, N, O]`` at the start of each episode."""
    env = BatchedSimpleSpread(num_envs, {"max_cycles": 1}, dtype=torch.float64)
    stay = torch.zeros(num_envs, 3, dtype=torch.int64)
    return torch.stack([env.reset(seed, first_env)] + [env.step(stay).obs for _ in range(episodes - 1)])


def test_the_mixer_gives_the_published_outputs() -> None:
    gamma, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1
    states = [(i * gamma) & mask for i in range(3)]
    assert [seeding.mix64(state) for state in states] == PUBLISHED
    words = torch.tensor([state - (1 << 64) if state >= 1 << 63 else state for state in states])
    assert [int(word) & mask for word in seeding._mix64(words)] == PUBLISHED


def test_the_tensor_version_equals_integer_arithmetic() -> None:
    seed, envs, episodes = 12345678901234567890, [0, 1, 7, 2**40], [0, 3, 2**33, 5]
    got = seeding.uniform(seed, torch.tensor(envs), torch.tensor(episodes), 5)
    for row, env, episode in zip(got, envs, episodes):
        key = seeding.mix64(seeding.mix64(seeding.mix64(seed & (2**64 - 1)) ^ env) ^ episode)
        assert row.tolist() == [(seeding.mix64(key ^ i) >> 11) * 2.0**-53 for i in range(5)]


def test_one_seed_starts_alike_and_another_differently() -> None:
    assert torch.equal(starts(4, 1, 3), starts(4, 1, 3))
    assert not torch.isclose(starts(4, 1, 3), starts(4, 2, 3)).all(-1).all(-1).any()


def test_every_environment_and_episode_starts_differently() -> None:
    positions = starts(50, 3, 40)[..., 0, 2:4].flatten(0, 1)
    assert len({tuple(p) for p in positions.tolist()}) == 2000


def test_the_number_of_copies_changes_no_start() -> None:
    many = starts(20, 4, 5)
    assert torch.equal(many[:, :7], starts(7, 4, 5))
    assert torch.equal(many[:, 13:], starts(7, 4, 5, first_env=13))


def test_a_start_does_not_depend_on_when_its_episode_begins() -> None:
    """With ``terminate_on_success`` copies drift apart in time; their k-th starts are those of everybody's."""
    expected = starts(16, 6, 40)
    env = BatchedSimpleSpread(16, {"max_cycles": 4, "terminate_on_success": True}, dtype=torch.float64)
    # as many landmarks as agents: success by chance is rare, so put some copies onto their goals now and then
    generator = torch.Generator().manual_seed(0)
    env.reset(6)
    count, drifted = [0] * 16, False
    for t in range(60):
        if t % 3 == 0:
            scene = env.scene()
            lucky = torch.rand(16, 1, 1, generator=generator) < 0.3
            elapsed = env.state_dict()["elapsed"]
            env.set_state(torch.where(lucky, scene.goal_pos, scene.agent_pos), scene.agent_vel * 0, scene.goal_pos)
            state = env.state_dict()
            env.load_state_dict({**state, "elapsed": elapsed})
        step = env.step(torch.zeros(16, 3, dtype=torch.int64))
        for i in (step.terminated | step.truncated).nonzero().flatten().tolist():
            count[i] += 1
            assert torch.equal(step.obs[i], expected[count[i], i])
        drifted = drifted or len(set(count)) > 3
    assert drifted and min(count) > 5


def test_starts_are_uniform_at_rest_and_unrelated() -> None:
    env = BatchedSimpleSpread(2000, dtype=torch.float64)
    env.reset(7)
    scene = env.scene()
    assert (scene.agent_vel == 0).all()
    numbers = torch.cat([scene.agent_pos.flatten(1), scene.goal_pos.flatten(1)], 1).numpy()  # [2000, 12]
    from_mpe2 = mpe2_starts(2000)
    for column in range(12):
        assert stats.kstest(numbers[:, column], stats.uniform(-1, 2).cdf).pvalue > 1e-4
        assert stats.ks_2samp(numbers[:, column], from_mpe2[:, column]).pvalue > 1e-4
    # between any two coordinates, neighbouring copies and neighbouring episodes: |r| of 2000 pairs, 5 sigma
    limit = 5 / np.sqrt(2000)
    for a, b in itertools.combinations(range(12), 2):
        assert abs(np.corrcoef(numbers[:, a], numbers[:, b])[0, 1]) < limit
    next_episode = starts(2000, 7, 2)[1, :, 0, 2].numpy()
    next_seed = starts(2000, 8, 1)[0, :, 0, 2].numpy()
    for other in (np.roll(numbers[:, 0], 1), next_episode, next_seed):
        assert abs(np.corrcoef(numbers[:, 0], other)[0, 1]) < limit


def mpe2_starts(count: int) -> np.ndarray:
    from mpe2 import simple_spread_v3

    env = simple_spread_v3.parallel_env()
    rows = []
    for seed in range(count):
        env.reset(seed=seed)
        entities = env.unwrapped.world.entities
        assert all((e.state.p_vel == 0).all() for e in entities)
        rows.append(np.concatenate([e.state.p_pos for e in entities]))
    return np.array(rows)


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_streams_and_integer_seeds_never_meet(seed: int) -> None:
    kinds = (seeding.TRAIN, seeding.SELECTION, seeding.FINAL, seeding.AFTERWARDS)
    streams = [seeding.stream_seed(seed, kind) for kind in kinds]
    assert len(set(streams)) == 4 and all(0 <= s < 2**63 for s in streams)
    drawn = [seeding.episode_seed(s, env, k) for s in streams for env in range(10) for k in range(10)]
    assert len(set(drawn)) == 400 and all(0 <= s < 2**63 for s in drawn)


def test_no_final_episode_has_the_seed_of_a_training_episode() -> None:
    """Of 300 000 seeds of 32 bits about 10 pairs would be equal."""
    train, final = seeding.stream_seed(1, seeding.TRAIN), seeding.stream_seed(0, seeding.FINAL)
    drawn = [seeding.episode_seed(train, env, k) for env in range(256) for k in range(1170)]
    drawn += [seeding.episode_seed(final, env, 0) for env in range(500)]
    assert len(set(drawn)) == len(drawn) and max(drawn) > 2**62


def test_a_shorter_seed_is_the_longer_ones_head() -> None:
    assert seeding.episode_seed(5, 6, 7, bits=32) == seeding.episode_seed(5, 6, 7) >> 31 < 2**32
