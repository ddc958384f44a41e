"""From values per episode to the numbers of a row, their standard errors, and what a task cannot have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

# A value that is not finite is passed on for the health watch to name; numpy need not warn as well.
_QUIET = np.errstate(invalid="ignore", over="ignore")

_REWARD = ("episode_reward", "episode_reward_std", "team_reward", "agent_reward_mean")
_SUCCESS = ("success_rate", "success_rate_any", "success_rate_015", "success_rate_collision_free", "time_to_goal")
_CONTACT = ("collision_count", "collision_events")
_PAIR = ("average_agent_distance", "min_agent_distance")
_GOAL = ("goal_distance", "final_goal_distance", "goals_covered")

TASK_METRICS = (*_REWARD, "episode_length", *_SUCCESS, "normalized_score")
BEHAVIOUR_METRICS = (*_CONTACT, *_PAIR, "average_speed", *_GOAL, "path_efficiency", "goal_conflict_rate")

_NO_ANCHORS = "no random and reference scores are stored for this task setting"


@_QUIET
def summarise(per_episode: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Mean over episodes of each metric, and ``episode_reward_std`` (n − 1; absent below two episodes)."""
    result = {name: float(np.mean(values)) for name, values in per_episode.items() if len(values)}
    for name, values in _rewards(per_episode):
        result[f"{name}_std"] = float(np.std(values, ddof=1))
    return result


@_QUIET
def standard_errors(per_episode: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Standard error of everything that ``summarise`` gives; empty below two episodes.

    Of a mean: s / √n with s the standard deviation (n − 1). Of ``episode_reward_std``: the delta method on
    Var(s²) = (μ₄ − σ⁴ (n − 3) / (n − 1)) / n (Casella & Berger 2002, exercise 5.8), with sample moments.
    """
    result = {
        name: float(np.std(values, ddof=1) / np.sqrt(len(values)))
        for name, values in per_episode.items()
        if len(values) > 1
    }
    for name, values in _rewards(per_episode):
        count, deviation = len(values), np.std(values, ddof=1)
        fourth = np.mean((values - np.mean(values)) ** 4)
        variance = max((fourth - deviation**4 * (count - 3) / (count - 1)) / count, 0.0)
        result[f"{name}_std"] = float(np.sqrt(variance) / (2 * deviation)) if deviation != 0 else 0.0
    return result


def absent(
    roles: Sequence[str],
    score_role: str,
    *,
    positions: bool,
    velocities: bool,
    num_goals: int = 0,
    own_goals: bool = False,
    has_success: bool = False,
    normalized: bool = False,
) -> dict[str, str]:
    """Metrics that this task cannot have -> why, named as they would be (``{role}/name`` for each of several roles).

    positions, velocities: the task tells them. num_goals, own_goals, has_success: as in ``Trajectories``.
    normalized: random and reference scores exist for this very setting (they are of ``score_role``).
    """
    kinds = list(dict.fromkeys(roles))
    result: dict[str, str] = {}
    for role in kinds:
        agents = [index for index, name in enumerate(roles) if name == role]
        goals = sum(index < num_goals for index in agents) if own_goals else num_goals
        reasons = _absent_of_team(len(agents), goals if positions else 0, positions, velocities, own_goals, has_success)
        if not (normalized and role == score_role):
            reasons["normalized_score"] = _NO_ANCHORS
        if len(kinds) > 1:
            result.update({f"{role}/{name}": reason for name, reason in reasons.items()})
        if role == score_role:
            result.update(reasons)
    return result


def _absent_of_team(
    agents: int, goals: int, positions: bool, velocities: bool, own_goals: bool, has_success: bool
) -> dict[str, str]:
    reasons: dict[str, str] = {}

    def leave_out(names: Sequence[str], reason: str) -> None:
        for name in names:
            reasons.setdefault(name, reason)

    if not positions:
        leave_out(BEHAVIOUR_METRICS, "the task does not tell where its agents are")
    if not velocities:
        leave_out(("average_speed",), "the task does not tell its agents' velocities")
    if agents < 2:
        leave_out(_PAIR, "one agent has no pairs")
    if not goals:
        leave_out((*_GOAL, "path_efficiency", "goal_conflict_rate"), "the task names no goals")
    if not (goals and has_success):
        leave_out((*_SUCCESS, "path_efficiency"), "the task names no success test")
    if own_goals:
        leave_out(("goal_conflict_rate",), "every agent has a goal of its own")
    if agents > goals:
        leave_out(("goal_conflict_rate",), "more agents than goals")
    return reasons


def _rewards(per_episode: Mapping[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    return [
        (name, values)
        for name, values in per_episode.items()
        if name.rsplit("/", 1)[-1] == "episode_reward" and len(values) > 1
    ]
