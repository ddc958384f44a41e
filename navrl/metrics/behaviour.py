"""Layer 3: what the agents do, whatever they are paid for; one value per episode."""

from __future__ import annotations

import numpy as np

from navrl.metrics import geometry
from navrl.metrics.trajectories import Trajectories, per_role


def behaviour_metrics(trajectories: Trajectories) -> dict[str, np.ndarray]:
    """Behaviour metrics of each episode: name -> float64 ``[E]``. What the task does not define is absent.

    With positions: collision_count (pair-steps in contact), collision_events (contacts that begin; one that
    exists at reset has begun before step 1); with two agents or more average_agent_distance, min_agent_distance;
    with velocities average_speed.
    With goals: goal_distance, final_goal_distance, goals_covered, path_efficiency (needs a success test),
    goal_conflict_rate (not with own goals, nor with more agents than goals).
    Distances in task units, speeds in task units per time unit. Steps 1 … length count, the reset state does not.
    Several roles: each role's agents alone, see ``trajectories.per_role``.
    """
    return per_role(trajectories, _team_metrics)


def _team_metrics(team: Trajectories) -> dict[str, np.ndarray]:
    values: dict[str, np.ndarray] = {}
    if team.agent_pos is None:
        return values
    contact = geometry.contacts(team)
    begins = (contact[1:] & ~contact[:-1]).sum(axis=2)
    values["collision_count"] = geometry.collision_count(team)
    values["collision_events"] = np.where(team.valid, begins, 0).sum(axis=0).astype(np.float64)
    if team.num_agents > 1:
        pairs = geometry.pair_distances(team)[1:]
        values["average_agent_distance"] = geometry.mean_over_steps(pairs.mean(axis=2), team)
        # Padding repeats the last state, so it cannot change a minimum.
        values["min_agent_distance"] = pairs.min(axis=(0, 2))
    if team.agent_vel is not None:
        speed = np.sqrt(np.square(team.agent_vel[1:]).sum(axis=-1))
        values["average_speed"] = geometry.mean_over_steps(speed.mean(axis=2), team)
    if team.num_goals:
        distance = geometry.goal_distances(team)
        last = geometry.at_last_step(distance, team)
        values["goal_distance"] = geometry.mean_over_steps(distance[1:].mean(axis=2), team)
        values["final_goal_distance"] = last.mean(axis=1)
        values["goals_covered"] = (last < team.goal_radius).mean(axis=1)
        if team.has_success:
            values["path_efficiency"] = path_efficiency(team)
        if not team.own_goals and team.num_agents <= team.num_goals:
            values["goal_conflict_rate"] = geometry.mean_over_steps(_conflict(team)[1:], team)
    return values


def path_efficiency(team: Trajectories) -> np.ndarray:
    """Success weighted by path length (SPL) of each episode, ``[E]`` in 0 … 1.

    Anderson et al. 2018, "On Evaluation of Embodied Navigation Agents", section 4: S · l / max(p, l), here
    averaged over the agents that have a goal (own goals, or an assignment of minimum total distance at the last
    step), with l the straight distance from the reset position to the goal's border and p the path walked
    until the agent first is inside it. An agent that starts inside has 1, one that is never inside 0. S is the
    success of the whole episode at its last step. NaN where positions at the last step are not finite.
    """
    agents, goals = _assignment(team)  # [E, K] each
    episode = np.arange(team.num_episodes)[:, None]
    position = team.agent_pos[:, episode, agents]  # [T + 1, E, K, 2]
    distance = np.sqrt(np.square(position - team.goal_pos[:, episode, goals]).sum(axis=-1))
    # Padding repeats the last state: it adds no path and no first entry.
    inside = distance < team.goal_radius
    first = inside.argmax(axis=0)[None]
    stride = np.sqrt(np.square(np.diff(position, axis=0)).sum(axis=-1))
    walked = np.concatenate([np.zeros_like(stride[:1]), stride.cumsum(axis=0)])
    walked = np.take_along_axis(walked, first, axis=0)[0]
    straight = np.maximum(distance[0] - team.goal_radius, 0.0)
    longer = np.maximum(straight, walked)
    # Who starts inside has nothing to walk: 0 / 0 = 1.
    ratio = np.divide(straight, longer, out=np.ones_like(straight), where=longer > 0)
    ratio = np.where(inside.any(axis=0), ratio, 0.0)
    succeeded = geometry.at_last_step(geometry.success(team, team.goal_radius), team)
    known = np.isfinite(geometry.at_last_step(geometry.agent_goal_distances(team), team)).all(axis=(1, 2))
    return np.where(known, ratio.mean(axis=1) * succeeded, np.nan)


def _assignment(team: Trajectories) -> tuple[np.ndarray, np.ndarray]:
    """Agent and goal of each assigned pair, int ``[E, K]`` each with K = min(N, G)."""
    count = min(team.num_agents, team.num_goals)
    agents = np.tile(np.arange(count), (team.num_episodes, 1))
    goals = agents.copy()
    if team.own_goals:
        return agents, goals
    from scipy.optimize import linear_sum_assignment  # slow to import, needed here alone

    cost = geometry.at_last_step(geometry.agent_goal_distances(team), team)
    for episode in range(team.num_episodes):
        if np.isfinite(cost[episode]).all():
            agents[episode], goals[episode] = linear_sum_assignment(cost[episode])
    return agents, goals


def _conflict(team: Trajectories) -> np.ndarray:
    """1.0 where at least two agents have the same nearest goal (ties: the lower index), ``[T + 1, E]``."""
    nearest = np.sort(geometry.agent_goal_distances(team).argmin(axis=3), axis=2)
    return (np.diff(nearest, axis=2) == 0).any(axis=2).astype(np.float64)
