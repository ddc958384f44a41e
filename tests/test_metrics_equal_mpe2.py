"""On real simple_spread episodes the metrics agree with what mpe2 itself counts and pays."""

from __future__ import annotations

import numpy as np
import pytest

from navrl.metrics.behaviour import behaviour_metrics
from navrl.metrics.task import task_metrics
from navrl.metrics.trajectories import Trajectories

EPISODES, STEPS, AGENTS = 40, 25, 3


@pytest.fixture(scope="module")
def played():
    """Trajectories, and from mpe2's own functions: colliding pairs, summed goal reward, covered goals at the end."""
    from mpe2 import simple_spread_v3

    env = simple_spread_v3.parallel_env(N=AGENTS, max_cycles=STEPS, local_ratio=0.5)
    rng = np.random.default_rng(0)
    rewards = np.zeros((STEPS, EPISODES, AGENTS))
    pos, vel, goal = (np.zeros((STEPS + 1, EPISODES, AGENTS, 2)) for _ in range(3))
    collisions, goal_reward, covered = np.zeros(EPISODES), np.zeros(EPISODES), np.zeros(EPISODES)
    for episode in range(EPISODES):
        env.reset(seed=episode)
        world, scenario = env.unwrapped.world, env.unwrapped.scenario
        for agent, landmark in zip(world.agents, world.landmarks, strict=True):
            agent.state.p_pos = landmark.state.p_pos + rng.normal(scale=0.1, size=2)  # so that goals are met
        for step in range(STEPS + 1):
            if step:
                actions = {name: int(rng.integers(5)) for name in env.agents}
                rewards[step - 1, episode] = list(env.step(actions)[1].values())
                pairs = [(a, b) for i, a in enumerate(world.agents) for b in world.agents[:i]]
                collisions[episode] += sum(scenario.is_collision(a, b) for a, b in pairs)
                goal_reward[episode] += scenario.global_reward(world)
            pos[step, episode] = [agent.state.p_pos for agent in world.agents]
            vel[step, episode] = [agent.state.p_vel for agent in world.agents]
            goal[step, episode] = [landmark.state.p_pos for landmark in world.landmarks]
        covered[episode] = scenario.benchmark_data(world.agents[0], world)[3]
    trajectories = Trajectories(
        rewards, np.full(EPISODES, STEPS), ("agent",) * AGENTS, "agent", pos, vel, goal,
        agent_radii=[agent.size for agent in world.agents], goal_radius=scenario.CAPTURE_RADIUS, has_success=True,
    )  # fmt: skip
    return trajectories, collisions, goal_reward, covered


def test_contacts_and_goals_are_mpe2s(played):
    trajectories, collisions, goal_reward, covered = played
    behaviour = behaviour_metrics(trajectories)
    assert collisions.sum() > 0 and 0 < covered.mean() < AGENTS
    np.testing.assert_array_equal(behaviour["collision_count"], collisions)
    np.testing.assert_allclose(behaviour["goals_covered"] * AGENTS, covered)
    np.testing.assert_allclose(-behaviour["goal_distance"] * STEPS * AGENTS, goal_reward, rtol=1e-12)


def test_the_reward_is_half_the_goal_reward_minus_a_third_of_the_collisions(played):
    trajectories, collisions, goal_reward, _ = played
    expected = goal_reward / 2 - collisions / 3
    np.testing.assert_allclose(task_metrics(trajectories)["episode_reward"], expected, rtol=1e-12)
