"""Means, standard errors and the list of what a task cannot have."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats

from navrl.metrics.behaviour import behaviour_metrics
from navrl.metrics.summary import BEHAVIOUR_METRICS, TASK_METRICS, absent, standard_errors, summarise
from navrl.metrics.task import task_metrics
from navrl.metrics.trajectories import Trajectories


def test_means_and_the_standard_deviation_with_n_minus_one():
    got = summarise({"episode_reward": np.array([1.0, 2.0, 6.0]), "prey/episode_reward": np.array([1.0, 1.0, 4.0])})
    assert got["episode_reward"] == 3.0
    assert got["episode_reward_std"] == pytest.approx(np.sqrt((4 + 1 + 9) / 2))
    assert got["prey/episode_reward_std"] == pytest.approx(np.sqrt(3))
    assert all(type(value) is float for value in got.values())


def test_standard_errors_are_scipys():
    sample = np.random.default_rng(0).normal(size=40)
    assert standard_errors({"collision_count": sample})["collision_count"] == pytest.approx(scipy.stats.sem(sample))


def test_one_episode_has_a_mean_and_no_spread():
    one = {"episode_reward": np.array([5.0])}
    assert summarise(one) == {"episode_reward": 5.0}
    assert standard_errors(one) == {}


def test_no_episode_has_nothing():
    assert summarise({"episode_reward": np.array([])}) == {}
    assert standard_errors({"episode_reward": np.array([])}) == {}


@pytest.mark.parametrize("law", ["normal", "exponential"])
def test_the_standard_error_of_the_deviation_is_what_repetition_gives(law):
    samples = getattr(np.random.default_rng(1), law)(size=(4000, 400))
    told = np.mean([standard_errors({"episode_reward": row})["episode_reward_std"] for row in samples[:400]])
    assert told == pytest.approx(samples.std(axis=1, ddof=1).std(), rel=0.08)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_a_value_that_is_not_finite_is_passed_on_without_noise(value):
    sample = {"episode_reward": np.array([1.0, value, 2.0])}
    assert not np.isfinite(standard_errors(sample)["episode_reward_std"])
    assert value == 1e300 or not np.isfinite(summarise(sample)["episode_reward"])


def test_equal_rewards_have_no_error():
    same = {"episode_reward": np.full(9, -3.0)}
    assert standard_errors(same) == {"episode_reward": 0.0, "episode_reward_std": 0.0}


ROLES = [("agent",), ("agent", "agent"), ("agent",) * 3, ("hunter", "hunter", "prey"), ("speaker", "listener")]


@pytest.mark.parametrize("roles", ROLES)
@pytest.mark.parametrize("positions, velocities", [(False, False), (True, False), (True, True)])
def test_every_metric_is_either_given_or_listed_as_absent(roles, positions, velocities):
    agents = len(roles)
    for goals, own_goals, has_success in itertools.product(range(4), (False, True), (False, True)):
        if (own_goals and goals > agents) or (has_success and not goals) or (goals and not positions):
            continue
        spatial = {}
        if positions:
            spatial = dict(
                agent_pos=np.zeros((3, 2, agents, 2)),
                agent_vel=np.zeros((3, 2, agents, 2)) if velocities else None,
                goal_pos=np.zeros((3, 2, goals, 2)),
                agent_radii=np.ones(agents),
                goal_radius=0.1,
                own_goals=own_goals,
                has_success=has_success,
            )
        tr = Trajectories(np.ones((2, 2, agents)), np.array([2, 1]), roles, roles[0], **spatial)
        given = set(summarise({**task_metrics(tr), **behaviour_metrics(tr)}))
        listed = absent(
            roles, roles[0], positions=positions, velocities=velocities,
            num_goals=goals, own_goals=own_goals, has_success=has_success,
        )  # fmt: skip
        names = {*TASK_METRICS, *BEHAVIOUR_METRICS}
        if len(set(roles)) > 1:
            names |= {f"{role}/{name}" for role in roles for name in names}
        assert given | set(listed) == names
        assert not given & set(listed)
        assert all(reason for reason in listed.values())


def test_a_stored_reference_makes_the_normalized_score_present():
    facts = dict(positions=True, velocities=True, num_goals=3, has_success=True)
    assert absent(("agent",) * 3, "agent", normalized=True, **facts) == {}
    assert list(absent(("agent",) * 3, "agent", **facts)) == ["normalized_score"]
