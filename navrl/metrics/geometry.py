"""Distances, contacts and coverage along trajectories; shared by task and behaviour metrics.

Every function takes the agents of one role (see ``trajectories.per_role``). Axis 0 of what it returns starts at
the reset state, like the arrays it is computed from.
"""

from __future__ import annotations

import numpy as np

from navrl.metrics.trajectories import Trajectories


def mean_over_steps(values: np.ndarray, trajectories: Trajectories) -> np.ndarray:
    """Mean ``[E]`` of ``values [T, E]`` (step 1 first) over each episode's own steps."""
    return np.where(trajectories.valid, values, 0.0).sum(axis=0) / trajectories.lengths


def at_last_step(values: np.ndarray, trajectories: Trajectories) -> np.ndarray:
    """``values [T + 1, E, ...]`` at each episode's last step, ``[E, ...]``."""
    return values[trajectories.lengths, np.arange(trajectories.num_episodes)]


def pair_distances(trajectories: Trajectories) -> np.ndarray:
    """Distance of each unordered pair of agents, ``[T + 1, E, P]`` with P = N (N − 1) / 2."""
    return _pair_distances(trajectories.agent_pos)


def contacts(trajectories: Trajectories) -> np.ndarray:
    """bool ``[T + 1, E, P]``: the pair is nearer than the sum of its radii."""
    return _pair_contacts(trajectories.agent_pos, trajectories.agent_radii)


def touching(positions: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """bool ``[..., N]``: the agent is in contact with some other; positions ``[..., N, 2]``, radii ``[N]``."""
    first, second = np.triu_indices(len(radii), k=1)
    agents = np.arange(len(radii))
    is_of_pair = (first[:, None] == agents) | (second[:, None] == agents)
    return _pair_contacts(positions, radii) @ is_of_pair


def collision_count(trajectories: Trajectories) -> np.ndarray:
    """Pairs in contact, summed over steps 1 … length: ``[E]``."""
    return np.where(trajectories.valid, contacts(trajectories)[1:].sum(axis=2), 0).sum(axis=0).astype(np.float64)


def agent_goal_distances(trajectories: Trajectories) -> np.ndarray:
    """Distance of every agent to every goal, ``[T + 1, E, N, G]``."""
    return _norm(trajectories.agent_pos[:, :, :, None] - trajectories.goal_pos[:, :, None])


def goal_distances(trajectories: Trajectories) -> np.ndarray:
    """Distance of each goal to its nearest agent (own goals: to its own agent), ``[T + 1, E, G]``."""
    if trajectories.own_goals:
        return _norm(trajectories.agent_pos[:, :, : trajectories.num_goals] - trajectories.goal_pos)
    return agent_goal_distances(trajectories).min(axis=2)


def success(trajectories: Trajectories, radius: float) -> np.ndarray:
    """bool ``[T + 1, E]``: every goal has its agent (any agent, unless goals are own) nearer than ``radius``."""
    return (goal_distances(trajectories) < radius).all(axis=2)


def _pair_distances(positions: np.ndarray) -> np.ndarray:
    first, second = np.triu_indices(positions.shape[-2], k=1)
    return _norm(positions[..., first, :] - positions[..., second, :])


def _pair_contacts(positions: np.ndarray, radii: np.ndarray) -> np.ndarray:
    first, second = np.triu_indices(len(radii), k=1)
    return _pair_distances(positions) < radii[first] + radii[second]


def _norm(vectors: np.ndarray) -> np.ndarray:
    return np.sqrt(np.square(vectors).sum(axis=-1))
