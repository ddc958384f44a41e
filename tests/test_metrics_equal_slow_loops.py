"""The vectorised metrics against plain loops that follow the definitions word by word, on random ragged episodes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from navrl.metrics.behaviour import behaviour_metrics
from navrl.metrics.task import task_metrics
from navrl.metrics.trajectories import Trajectories

EPISODES, STEPS = 50, 9


def random_trajectories(seed, agents, goals, own_goals=False, roles=None, padding=0.0, spread=0.6):
    rng = np.random.default_rng(seed)
    goal_pos = rng.normal(scale=spread / 3, size=(1, EPISODES, goals, 2))
    lengths = rng.integers(1, STEPS + 1, EPISODES)
    arrays = dict(
        rewards=rng.normal(size=(STEPS, EPISODES, agents)),
        agent_pos=np.cumsum(rng.normal(scale=spread / 3, size=(STEPS + 1, EPISODES, agents, 2)), axis=0),
        agent_vel=rng.normal(size=(STEPS + 1, EPISODES, agents, 2)),
        goal_pos=np.repeat(goal_pos, STEPS + 1, axis=0),
        actions=rng.normal(size=(STEPS, EPISODES, agents, 3)),
    )
    for name, array in arrays.items():
        first = 1 if name in ("agent_pos", "agent_vel", "goal_pos") else 0
        for episode, length in enumerate(lengths):
            array[first + length :, episode] = padding
    return Trajectories(
        **arrays,
        lengths=lengths,
        roles=roles or ("agent",) * agents,
        score_role=(roles or ("agent",))[0],
        agent_radii=rng.uniform(0.05, 0.3, agents),
        goal_radius=0.3,
        own_goals=own_goals,
        has_success=goals > 0,
    )


def slow(tr, members, owned):
    """name -> list of one value per episode. members: indices of a role's agents; owned: goal -> agent, or None."""
    result = {}
    goals = list(range(tr.num_goals)) if owned is None else [goal for goal, agent in owned.items() if agent in members]
    for e in range(tr.num_episodes):
        length = int(tr.lengths[e])
        reward = [sum(tr.rewards[t, e, i] for t in range(length)) for i in members]
        one = {
            "episode_reward": sum(reward) / len(members),
            "team_reward": sum(reward),
            "agent_reward_mean": sum(reward) / len(members) / length,
            "episode_length": length,
        }
        pairs = list(itertools.combinations(members, 2))
        where = lambda t, i: tr.agent_pos[t, e, i]  # noqa: E731
        apart = lambda t, i, j: math.dist(where(t, i), where(t, j))  # noqa: E731
        touching = lambda t, i, j: apart(t, i, j) < tr.agent_radii[i] + tr.agent_radii[j]  # noqa: E731
        steps = range(1, length + 1)
        one["collision_count"] = sum(touching(t, i, j) for t in steps for i, j in pairs)
        one["collision_events"] = sum(touching(t, i, j) and not touching(t - 1, i, j) for t in steps for i, j in pairs)
        if pairs:
            gaps = [[apart(t, i, j) for i, j in pairs] for t in steps]
            one["average_agent_distance"] = sum(sum(row) / len(row) for row in gaps) / length
            one["min_agent_distance"] = min(min(row) for row in gaps)
        speeds = [math.hypot(*tr.agent_vel[t, e, i]) for t in steps for i in members]
        one["average_speed"] = sum(speeds) / len(speeds)
        if goals:
            one.update(slow_goals(tr, e, length, members, owned, goals, where, one["collision_count"]))
        for name, value in one.items():
            result.setdefault(name, []).append(float(value))
    return result


def slow_goals(tr, e, length, members, owned, goals, where, collisions):
    one = {}
    to_goal = lambda t, i, g: math.dist(where(t, i), tr.goal_pos[t, e, g])  # noqa: E731
    if owned is None:
        gap = lambda t, g: min(to_goal(t, i, g) for i in members)  # noqa: E731
    else:
        gap = lambda t, g: to_goal(t, owned[g], g)  # noqa: E731
    holds = lambda t, radius: all(gap(t, g) < radius for g in goals)  # noqa: E731
    steps = range(1, length + 1)
    one["goal_distance"] = sum(sum(gap(t, g) for g in goals) / len(goals) for t in steps) / length
    one["final_goal_distance"] = sum(gap(length, g) for g in goals) / len(goals)
    one["goals_covered"] = sum(gap(length, g) < tr.goal_radius for g in goals) / len(goals)
    reached = [t for t in steps if holds(t, tr.goal_radius)]
    one["success_rate"] = holds(length, tr.goal_radius)
    one["success_rate_any"] = bool(reached)
    one["success_rate_015"] = holds(length, 0.15)
    one["success_rate_collision_free"] = one["success_rate"] and collisions == 0
    one["time_to_goal"] = reached[0] if reached else length
    if owned is None and len(members) <= len(goals):
        conflicts = 0
        for t in steps:
            nearest = [min(goals, key=lambda g: to_goal(t, i, g)) for i in members]
            conflicts += len(set(nearest)) < len(nearest)
        one["goal_conflict_rate"] = conflicts / length
    # Every way to pair min(N, G) agents and goals, the cheapest at the last step.
    if owned is not None:
        pairing = [(owned[g], g) for g in goals]
    elif len(members) <= len(goals):
        ways = (list(zip(members, chosen)) for chosen in itertools.permutations(goals, len(members)))
        pairing = min(ways, key=lambda way: sum(to_goal(length, i, g) for i, g in way))
    else:
        ways = (list(zip(chosen, goals)) for chosen in itertools.permutations(members, len(goals)))
        pairing = min(ways, key=lambda way: sum(to_goal(length, i, g) for i, g in way))
    ratios = []
    for i, g in pairing:
        entry = next((t for t in range(length + 1) if to_goal(t, i, g) < tr.goal_radius), None)
        if entry is None:
            ratios.append(0.0)
        elif entry == 0:
            ratios.append(1.0)
        else:
            straight = to_goal(0, i, g) - tr.goal_radius
            walked = sum(math.dist(where(t, i), where(t - 1, i)) for t in range(1, entry + 1))
            ratios.append(straight / max(straight, walked))
    one["path_efficiency"] = sum(ratios) / len(ratios) * one["success_rate"]
    return one


def fast(tr):
    return {**task_metrics(tr), **behaviour_metrics(tr)}


def assert_same(got, expected):
    assert set(got) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("agents, goals", list(itertools.product(range(1, 6), range(6))))
def test_one_role(agents, goals):
    tr = random_trajectories(100 * agents + goals, agents, goals)
    assert_same(fast(tr), slow(tr, list(range(agents)), None))


@pytest.mark.parametrize("agents, goals", [(1, 1), (2, 1), (3, 3), (5, 4)])
def test_own_goals(agents, goals):
    tr = random_trajectories(7 * agents + goals, agents, goals, own_goals=True)
    assert_same(fast(tr), slow(tr, list(range(agents)), {goal: goal for goal in range(goals)}))


@pytest.mark.parametrize("own_goals", [False, True])
def test_several_roles(own_goals):
    roles = ("hunter", "prey", "hunter", "prey", "prey")
    tr = random_trajectories(3, 5, 2, own_goals=own_goals, roles=roles)
    owned = {0: 0, 1: 1} if own_goals else None
    expected = {}
    for role in ("prey", "hunter"):
        alone = slow(tr, [i for i in range(5) if roles[i] == role], owned)
        expected.update({f"{role}/{name}": values for name, values in alone.items()})
    expected.update(alone)  # hunter scores
    assert_same(fast(tr), expected)


def test_the_random_cases_are_not_trivial():
    got = fast(random_trajectories(303, 3, 3))
    for name in ("success_rate", "success_rate_any", "collision_events", "path_efficiency", "goal_conflict_rate"):
        assert 0 < got[name].mean() < got[name].size and len(set(got[name])) > 1, name
    assert (got["success_rate"] < got["success_rate_any"]).any()


@pytest.mark.parametrize("padding", [np.nan, np.inf, -1e300, 0.05])
def test_padding_never_influences_anything(padding):
    clean, dirty = random_trajectories(11, 3, 3), random_trajectories(11, 3, 3, padding=padding)
    with np.errstate(all="raise"):
        got, expected = fast(dirty), fast(clean)
    for name in expected:
        np.testing.assert_array_equal(got[name], expected[name], err_msg=name)


def test_an_episode_alone_and_in_a_batch_has_the_same_values():
    tr = random_trajectories(5, 4, 5)
    whole = fast(tr)
    for episode in range(0, EPISODES, 7):
        alone = fast(tr.episodes([episode]))
        for name in whole:
            np.testing.assert_allclose(alone[name], whole[name][[episode]], rtol=1e-12, err_msg=name)
