"""The batched simple_spread is mpe2's, step for step: same start and actions, same everything, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mpe2 import simple_spread_v3

from envs.mpe.simple_spread import BatchedSimpleSpread

torch.set_num_threads(1)
TOLERANCE = 1e-9  # the contract is 1e-6; contacts of stiffness 1e3 magnify rounding, so not 1e-15


class Original:
    """Copies of mpe2's own environment, read at the scenario's own float64 observations."""

    def __init__(self, num_envs: int, **settings) -> None:
        settings["N"] = settings.pop("num_agents", 3)
        self.envs = [simple_spread_v3.parallel_env(**settings) for _ in range(num_envs)]
        self.raw = [env.unwrapped for env in self.envs]
        for i, env in enumerate(self.envs):
            env.reset(seed=i)

    def start(self, spread: float, rng: np.random.Generator) -> list[torch.Tensor]:
        """Random positions within ``spread`` and random velocities; the same as tensors ``[E, N, 2]``."""
        for raw in self.raw:
            for agent in raw.world.agents:
                agent.state.p_pos = rng.uniform(-spread, spread, 2)
                agent.state.p_vel = rng.uniform(-1, 1, 2)
            for landmark in raw.world.landmarks:
                landmark.state.p_pos = rng.uniform(-1, 1, 2)
        pos = [[a.state.p_pos for a in raw.world.agents] for raw in self.raw]
        vel = [[a.state.p_vel for a in raw.world.agents] for raw in self.raw]
        goals = [[lm.state.p_pos for lm in raw.world.landmarks] for raw in self.raw]
        return [torch.tensor(np.array(x)) for x in (pos, vel, goals)]

    def observe(self) -> np.ndarray:
        return np.array([[raw.scenario.observation(a, raw.world) for a in raw.world.agents] for raw in self.raw])

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        rewards, terminated, truncated = [], [], []
        for env, joint in zip(self.envs, actions):
            names = env.unwrapped.possible_agents
            _, reward, ends, cuts, _ = env.step(dict(zip(names, joint)))
            rewards.append([reward[name] for name in names])
            assert len(set(ends.values())) == len(set(cuts.values())) == 1
            terminated.append(ends[names[0]])
            truncated.append(cuts[names[0]])
        return self.observe(), np.array(rewards), np.array(terminated), np.array(truncated)


def compare(num_envs: int, steps: int, spread: float, seed: int, stage: int | None = None, **settings) -> int:
    """Run both from equal starts for ``steps`` steps in all; return the number of agent contacts met."""
    rng = np.random.default_rng(seed)
    original = Original(num_envs, **settings)
    batched = BatchedSimpleSpread(num_envs, settings, dtype=torch.float64, auto_reset=False)
    if stage is not None:
        batched.set_stage(stage)
        for raw in original.raw:
            raw.set_curriculum_stage(stage)
    contacts, horizon = 0, settings.get("max_cycles", 25)
    n = settings.get("num_agents", 3)
    for _ in range(-(-steps // (num_envs * horizon))):
        for i, env in enumerate(original.envs):
            env.reset(seed=i)
        obs = batched.set_state(*original.start(spread, rng))
        np.testing.assert_allclose(obs.numpy(), original.observe(), rtol=0, atol=TOLERANCE)
        alive = np.ones(num_envs, bool)
        for _ in range(horizon):
            if settings.get("continuous_actions"):
                actions = rng.uniform(-0.2, 1.2, (num_envs, n, 5)).astype(np.float32)
            else:
                actions = rng.integers(0, 5, (num_envs, n))
            # an mpe2 environment that has ended takes no more actions
            running = [i for i in range(num_envs) if alive[i]]
            if not running:
                break
            step = batched.step(torch.tensor(actions))
            part = Original.__new__(Original)
            part.envs = [original.envs[i] for i in running]
            part.raw = [original.raw[i] for i in running]
            obs, reward, terminated, truncated = part.step(actions[running])
            np.testing.assert_allclose(step.obs.numpy()[running], obs, rtol=0, atol=TOLERANCE)
            np.testing.assert_allclose(step.reward.numpy()[running], reward, rtol=0, atol=TOLERANCE)
            np.testing.assert_array_equal(step.terminated.numpy()[running], terminated)
            np.testing.assert_array_equal(step.truncated.numpy()[running], truncated)
            alive[running] = ~(terminated | truncated)
            contacts += int((batched.world.agent_distance < 0.3).sum()) // 2
        assert not alive.any(), "every episode ends by max_cycles"
    return contacts


@pytest.mark.parametrize("num_agents", range(1, 11))
@pytest.mark.parametrize("continuous", [False, True])
def test_any_number_of_agents(num_agents: int, continuous: bool) -> None:
    contacts = compare(
        4, 200, 0.3, num_agents, num_agents=num_agents, continuous_actions=continuous
    )
    assert contacts > 0 or num_agents == 1


@pytest.mark.parametrize("local_ratio", [0, 0.0, 0.5, 0.9, 1, 1.0])
def test_local_ratio(local_ratio: float) -> None:
    assert compare(8, 600, 0.4, 11, local_ratio=local_ratio) > 20


def test_thousands_of_steps_from_the_usual_starts() -> None:
    assert compare(16, 3000, 1.0, 12) > 20


@pytest.mark.parametrize("max_cycles", [1, 2, 60])
def test_max_cycles(max_cycles: int) -> None:
    compare(4, 240, 0.4, 13, max_cycles=max_cycles)
