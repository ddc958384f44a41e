"""Layers 2 and 3 on trajectories small enough to work out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from navrl.metrics.behaviour import behaviour_metrics
from navrl.metrics.task import normalized_score, task_metrics
from navrl.metrics.trajectories import Trajectories


def one_episode(paths, goals=(), *, rewards=None, radius=0.1, body=0.15, own_goals=False, success=None, **more):
    """An episode from each agent's list of positions (reset state first) and fixed goals."""
    agent_pos = np.array(paths, dtype=float).transpose(1, 0, 2)[:, None]  # [T + 1, 1, N, 2]
    steps, _, agents, _ = agent_pos.shape
    goal_pos = np.broadcast_to(np.array(goals, dtype=float).reshape(1, 1, -1, 2), (steps, 1, len(goals), 2))
    return Trajectories(
        rewards=np.zeros((steps - 1, 1, agents)) if rewards is None else np.array(rewards, dtype=float)[:, None],
        lengths=[steps - 1],
        roles=("agent",) * agents,
        score_role="agent",
        agent_pos=agent_pos,
        goal_pos=goal_pos,
        agent_radii=[body] * agents,
        goal_radius=radius,
        own_goals=own_goals,
        has_success=len(goals) > 0 if success is None else success,
        **more,
    )


def values(trajectories):
    found = {**task_metrics(trajectories), **behaviour_metrics(trajectories)}
    assert all(value.shape == (trajectories.num_episodes,) and value.dtype == np.float64 for value in found.values())
    return {name: float(value[0]) for name, value in found.items()}


def along_x(*xs):
    return [(x, 0.0) for x in xs]


def test_rewards_sum_over_steps_and_average_over_agents():
    got = values(one_episode([along_x(0, 0, 0), along_x(5, 5, 5)], rewards=[[1, 2], [3, 6]]))
    assert got["episode_reward"] == 6.0  # agents earned 4 and 8
    assert got["team_reward"] == 12.0
    assert got["agent_reward_mean"] == 3.0
    assert got["episode_length"] == 2.0


def test_two_agents_overlapping_for_three_steps():
    got = values(one_episode([along_x(0, 0, 0, 0, 0, 0), along_x(1, 0.2, 0.1, 0.2, 1, 1)]))
    assert got["collision_count"] == 3.0
    assert got["collision_events"] == 1.0
    assert got["min_agent_distance"] == 0.1
    assert got["average_agent_distance"] == pytest.approx((0.2 + 0.1 + 0.2 + 1 + 1) / 5)


def test_touching_bodies_are_not_in_contact():
    assert values(one_episode([along_x(0, 0), along_x(1, 0.5)], body=0.25))["collision_count"] == 0.0


def test_contact_at_reset_has_begun_before_step_one():
    got = values(one_episode([along_x(0, 0, 0, 0), along_x(0.1, 0.1, 1, 0.1)]))
    assert got["collision_count"] == 2.0
    assert got["collision_events"] == 1.0  # only the one at step 3 begins


def test_contact_at_reset_alone_is_no_collision():
    got = values(one_episode([along_x(0, 0), along_x(0.1, 1)], [(0, 0), (1, 0)]))
    assert got["collision_count"] == got["collision_events"] == 0.0
    assert got["success_rate_collision_free"] == 1.0
    assert got["min_agent_distance"] == 1.0


def test_three_agents_in_one_heap_are_three_pairs_a_step():
    got = values(one_episode([along_x(3, 0, 0), along_x(6, 0.01, 0.01), along_x(9, 0.02, 0.02)]))
    assert got["collision_count"] == 6.0
    assert got["collision_events"] == 3.0


def test_radii_of_a_pair_are_added():
    pair = one_episode([along_x(0, 0), along_x(9, 0.5)])
    small_and_large = Trajectories(**{**vars(pair), "agent_radii": np.array([0.1, 0.45])})
    assert values(pair)["collision_count"] == 0.0
    assert values(small_and_large)["collision_count"] == 1.0


def test_speed_is_the_norm_of_the_velocity_and_skips_the_reset_state():
    velocity = np.array([[[99, 99], [99, 99]], [[3, 4], [0, 0]], [[0, 1], [0, 0]]], dtype=float)[:, None]
    got = values(one_episode([along_x(0, 0, 0), along_x(5, 5, 5)], agent_vel=velocity))
    assert got["average_speed"] == (5 + 0 + 1 + 0) / 4


def test_goal_distance_is_to_the_nearest_agent_whoever_it_is():
    got = values(one_episode([along_x(0, 0, 0), along_x(1, 2, 3)], [(0.5, 0), (3, 0)]))
    assert got["goal_distance"] == pytest.approx(((0.5 + 1) / 2 + (0.5 + 0) / 2) / 2)
    assert got["final_goal_distance"] == pytest.approx(0.25)
    assert got["goals_covered"] == 0.5
    assert got["success_rate"] == 0.0


def test_own_goals_are_covered_by_their_owner_alone():
    swapped = one_episode([along_x(0, 0), along_x(1, 1)], [(1, 0), (0, 0)], own_goals=True)
    got = values(swapped)
    assert got["success_rate"] == got["goals_covered"] == got["path_efficiency"] == 0.0
    assert got["final_goal_distance"] == 1.0
    assert "goal_conflict_rate" not in got
    assert values(Trajectories(**{**vars(swapped), "own_goals": False}))["success_rate"] == 1.0


def test_a_goal_is_covered_only_inside_its_radius():
    at_border = values(one_episode([along_x(1, 0.25)], [(0, 0)], radius=0.25))
    assert at_border["goals_covered"] == at_border["success_rate"] == at_border["path_efficiency"] == 0.0
    assert values(one_episode([along_x(1, 0.2499)], [(0, 0)], radius=0.25))["goals_covered"] == 1.0


def test_success_reached_and_left_again():
    got = values(one_episode([along_x(1, 0.5, 0.05, 0.12)], [(0, 0)]))
    assert got["success_rate"] == 0.0
    assert got["success_rate_any"] == 1.0
    assert got["success_rate_015"] == 1.0
    assert got["time_to_goal"] == 2.0


def test_success_at_reset_is_at_no_step():
    got = values(one_episode([along_x(0, 1, 1)], [(0, 0)]))
    assert got["success_rate_any"] == 0.0
    assert got["time_to_goal"] == 2.0  # never: the length


def test_success_with_a_contact_on_the_way_is_not_collision_free():
    got = values(one_episode([along_x(0, 1, 0), along_x(1, 1, 1)], [(0, 0), (1, 0)]))
    assert got["success_rate"] == 1.0
    assert got["success_rate_collision_free"] == 0.0


def test_a_straight_walk_is_short_of_one_by_the_last_step_inside_the_border_alone():
    got = values(one_episode([along_x(1, 0.5, 0.25, 0.1)], [(0, 0)], radius=0.125))
    assert got["path_efficiency"] == pytest.approx(0.875 / 0.9)


def test_a_detour_has_straight_over_walked():
    detour = [(2, 0), (2, 1), (0, 1), (0, 0)]  # 1 + 2 + 1 walked, 2 − 0.5 straight to the border
    assert values(one_episode([detour], [(0, 0)], radius=0.5))["path_efficiency"] == pytest.approx(1.5 / 4)


def test_the_path_ends_at_the_first_entry():
    wanders_inside = [(2, 0), (0, 0), (0, 0.4), (0, -0.4), (0, 0)]
    assert values(one_episode([wanders_inside], [(0, 0)], radius=0.5))["path_efficiency"] == pytest.approx(1.5 / 2)


def test_the_border_itself_is_not_inside():
    over_the_border = along_x(2, 0.5, 0)
    assert values(one_episode([over_the_border], [(0, 0)], radius=0.5))["path_efficiency"] == pytest.approx(1.5 / 2)


def test_starting_inside_has_path_efficiency_one():
    assert values(one_episode([along_x(0.05, 3, 0.05)], [(0, 0)]))["path_efficiency"] == 1.0


def test_path_efficiency_is_zero_without_success():
    # Agent 0 stands on its goal all the time, agent 1 never enters its own: the episode fails.
    assert values(one_episode([along_x(0, 0), along_x(3, 2)], [(0, 0), (1, 0)]))["path_efficiency"] == 0.0


def test_an_agent_that_never_enters_its_assigned_goal_has_zero():
    # Two goals, both covered by agent 0; agent 1 is assigned one of them and stays away.
    got = values(one_episode([along_x(0, 0), along_x(3, 3)], [(0.05, 0), (-0.05, 0)]))
    assert got["success_rate"] == 1.0
    assert got["path_efficiency"] == 0.5


def test_goals_are_assigned_by_total_distance_at_the_last_step():
    # Nearest pair first would take agent 1 - goal 0 (0.9) and leave agent 0 - goal 1 (3.0); the least total is
    # agent 0 - goal 0 (1.1) and agent 1 - goal 1 (1.0).
    got = values(one_episode([[(0, 5), (0, 0)], [(2, 8), (2, 0)]], [(1.1, 0), (3, 0)], radius=1.2))
    first, second = (np.hypot(1.1, 5) - 1.2) / 5, (np.hypot(1, 8) - 1.2) / 8
    assert got["path_efficiency"] == pytest.approx((first + second) / 2)


def test_more_agents_than_goals_average_over_the_assigned_ones():
    got = values(one_episode([along_x(2, 0), along_x(7, 7), along_x(9, 9)], [(0, 0)], radius=0.5))
    assert got["success_rate"] == 1.0
    assert got["path_efficiency"] == pytest.approx(1.5 / 2)
    assert "goal_conflict_rate" not in got


def test_goal_conflict_is_two_agents_with_one_nearest_goal():
    got = values(one_episode([along_x(0, 0.1, 0.1, 0.1), along_x(0, 0.2, 0.9, 0.3)], [(0, 0), (1, 0)]))
    assert got["goal_conflict_rate"] == pytest.approx(2 / 3)


def test_what_one_agent_or_a_task_without_positions_cannot_have_is_absent():
    alone = values(one_episode([along_x(0, 1)]))
    assert set(alone) == {
        "episode_reward", "team_reward", "agent_reward_mean", "episode_length", "collision_count", "collision_events"
    }  # fmt: skip
    blind = Trajectories(rewards=np.ones((3, 2, 2)), lengths=[3, 2], roles=("a", "a"), score_role="a")
    assert behaviour_metrics(blind) == {}
    assert set(task_metrics(blind)) == {"episode_reward", "team_reward", "agent_reward_mean", "episode_length"}


def test_goals_without_a_success_test_have_no_success_metrics():
    got = values(one_episode([along_x(0, 0)], [(0, 0)], success=False))
    assert got["goals_covered"] == 1.0
    assert not {"success_rate", "time_to_goal", "path_efficiency"} & set(got)


def test_roles_are_never_averaged_together():
    two = one_episode([along_x(0, 0, 0), along_x(5, 5, 5), along_x(5.1, 5.1, 5.1)], rewards=[[1, -1, -3], [1, -1, -3]])
    mixed = Trajectories(**{**vars(two), "roles": ("prey", "hunter", "hunter"), "score_role": "hunter"})
    got = values(mixed)
    assert got["prey/episode_reward"] == 2.0
    assert got["hunter/episode_reward"] == got["episode_reward"] == -4.0
    assert got["hunter/team_reward"] == got["team_reward"] == -8.0
    assert got["hunter/collision_count"] == got["collision_count"] == 2.0
    assert got["prey/collision_count"] == 0.0
    assert "prey/average_agent_distance" not in got
    assert got["average_agent_distance"] == pytest.approx(0.1)


def test_own_goals_stay_with_their_owners_in_a_role():
    base = one_episode([along_x(0, 0), along_x(1, 1), along_x(2, 2)], [(0, 3), (1, 4)], own_goals=True)
    got = values(Trajectories(**{**vars(base), "roles": ("a", "b", "b"), "score_role": "b"}))
    assert got["a/final_goal_distance"] == 3.0
    assert got["b/final_goal_distance"] == got["final_goal_distance"] == 4.0
    ownerless = values(Trajectories(**{**vars(base), "roles": ("a", "a", "b"), "score_role": "b"}))
    assert "b/final_goal_distance" not in ownerless and "success_rate" not in ownerless
    assert ownerless["a/final_goal_distance"] == 3.5


def test_normalized_score_has_random_at_zero_and_the_reference_at_one():
    assert normalized_score(-26.8, random=-26.8, reference=-6.7) == 0.0
    assert normalized_score(-6.7, random=-26.8, reference=-6.7) == 1.0
    np.testing.assert_allclose(normalized_score(np.array([-4.0, -2.0]), random=-4.0, reference=0.0), [0.0, 0.5])
    for reference in (-4.0, np.nan):
        with pytest.raises(ValueError, match="normalized_score"):
            normalized_score(-1.0, random=-4.0, reference=reference)


def test_a_position_that_is_not_finite_is_seen_and_breaks_nothing():
    broken = one_episode([along_x(0, np.nan), along_x(1, 1)], [(0, 0), (1, 0)])
    got = values(broken)
    assert np.isnan(got["goal_distance"]) and np.isnan(got["path_efficiency"])
    assert got["success_rate"] == 0.0


def test_who_touches_whom_is_one_rule_for_metrics_tables_and_animations(tmp_path):
    from PIL import Image

    from navrl.animation import CONTACT_COLOUR, write_animation
    from navrl.metrics.geometry import touching
    from navrl.tracking.episodes import episode_table

    # agents 0 and 2 come within 0.3 of each other at step 2; agent 1 stays exactly 0.5 away from agent 0
    played = one_episode([along_x(0, 0, 0), [(0, 0.5)] * 3, along_x(1, 0.5, 0.25)], [(0, -0.5)])
    assert touching(played.agent_pos, played.agent_radii)[:, 0].tolist() == [[False] * 3] * 2 + [[True, False, True]]
    assert touching(np.zeros((4, 2, 1, 2)), np.ones(1)).tolist() == [[[False]] * 2] * 4, "nobody touches itself"
    assert touching(np.array([[0.0, 0], [0.25, 0]]), np.array([0.125, 0.125])).tolist() == [False] * 2, "at the border"
    assert values(played)["collision_count"] == 1

    played.save_npz(tmp_path / "episode.npz")
    columns, rows = episode_table(tmp_path / "episode.npz")
    found = {(row[columns.index("t")], row[columns.index("agent")]): row[columns.index("contact")] for row in rows}
    assert [place for place, contact in found.items() if contact] == [(1, 0), (1, 2)]

    write_animation(played, tmp_path / "episode.gif")
    red = tuple(int(CONTACT_COLOUR[i : i + 2], 16) for i in (1, 3, 5))
    with Image.open(tmp_path / "episode.gif") as picture:
        ringed = []
        for index in range(picture.n_frames):
            picture.seek(index)
            away = np.abs(np.asarray(picture.convert("RGB")).astype(int) - red).max(-1)
            ringed.append(bool((away < 12).any()))
    assert ringed == [False, False, True]
