"""Layer 2: how well the task is done, one value per episode."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from navrl.metrics import geometry
from navrl.metrics.trajectories import Trajectories, per_role

WIDE_RADIUS = 0.15  # task units, of success_rate_015

Score = TypeVar("Score", float, np.ndarray)


def task_metrics(trajectories: Trajectories) -> dict[str, np.ndarray]:
    """Task metrics of each episode: name -> float64 ``[E]``. What the task does not define is absent.

    episode_reward: rewards summed over steps, averaged over agents; team_reward: summed over agents;
    agent_reward_mean: episode_reward per step; episode_length: steps.
    With a success test (every goal covered), 0 or 1 an episode: success_rate (at the last step),
    success_rate_any (at any step from 1 on), success_rate_015 (last step, radius 0.15),
    success_rate_collision_free (last step, and no contact at any step from 1 on); and time_to_goal (first step at
    which the test holds; the episode's length where it never does).
    Tasks with several roles: see ``trajectories.per_role``.
    """
    return per_role(trajectories, _team_metrics)


def normalized_score(episode_reward: Score, random: float, reference: float) -> Score:
    """(episode_reward − random) / (reference − random): 0 = the random policy, 1 = the reference controller.

    Takes one reward or an array of them. ValueError where the two anchors are equal or not finite.
    """
    span = reference - random
    if not np.isfinite(span) or span == 0:
        raise ValueError(f"normalized_score: random {random}, reference {reference}; give two finite, unequal rewards")
    return (episode_reward - random) / span


def _team_metrics(team: Trajectories) -> dict[str, np.ndarray]:
    agent_rewards = team.rewards.sum(axis=0)  # [E, N]
    episode_reward = agent_rewards.mean(axis=1)
    values = {
        "episode_reward": episode_reward,
        "team_reward": agent_rewards.sum(axis=1),
        "agent_reward_mean": episode_reward / team.lengths,
        "episode_length": team.lengths.astype(np.float64),
    }
    if team.has_success:
        holds = geometry.success(team, team.goal_radius)
        at_end = geometry.at_last_step(holds, team)
        after_step = holds[1:]  # padding repeats the last state, so it adds no first success
        ever = after_step.any(axis=0)
        values["success_rate"] = at_end.astype(np.float64)
        values["success_rate_any"] = ever.astype(np.float64)
        values["success_rate_015"] = geometry.at_last_step(geometry.success(team, WIDE_RADIUS), team).astype(np.float64)
        values["success_rate_collision_free"] = (at_end & (geometry.collision_count(team) == 0)).astype(np.float64)
        values["time_to_goal"] = np.where(ever, after_step.argmax(axis=0) + 1, team.lengths).astype(np.float64)
    return values
