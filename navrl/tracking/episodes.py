"""One evaluation episode, read from its `.npz`, step by step and agent by agent: what tables and traces are made of."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from navrl.metrics.geometry import touching
from navrl.metrics.trajectories import Trajectories, load_npz
from navrl.tracking.tracker import Unpublishable

ACTED = ("action", "actions", "reward", "rewards", "contact")       # in a trace, a span's outputs; the rest are inputs


def episode_arrays(path: Path) -> dict[str, np.ndarray]:
    """Arrays `[steps, agents, ...]` of the first episode in `path`.

    A trajectory file of this project gives position, velocity and nearest-goal distance as the agent saw them before it
    acted, then action, reward, and whether it touched another agent after the step. Any other file gives its arrays
    whose first two axes are the commonest. Raises Unpublishable where there are none.
    """
    try:
        return _of_trajectories(load_npz(path))
    except ValueError:
        pass
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    shapes = [array.shape[:2] for array in arrays.values() if array.ndim >= 2]
    if not shapes:
        raise Unpublishable(f"{path.name} holds no array of steps and agents")
    shape = max(set(shapes), key=shapes.count)
    return {name: array for name, array in arrays.items() if array.shape[:2] == shape}


def episode_table(path: Path) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of an episode: one row a step and agent."""
    arrays = episode_arrays(path)
    steps, agents = next(iter(arrays.values())).shape[:2]
    columns, parts = ["t", "agent"], [np.repeat(np.arange(steps), agents), np.tile(np.arange(agents), steps)]
    for name, array in arrays.items():
        flat = array.reshape(steps * agents, -1)
        columns += [name] if flat.shape[1] == 1 else [f"{name}_{i}" for i in range(flat.shape[1])]
        parts += list(flat.T)
    return columns, [list(row) for row in zip(*(part.tolist() for part in parts))]


def _of_trajectories(trajectories: Trajectories) -> dict[str, np.ndarray]:
    one = trajectories.episodes([0])
    steps = int(one.lengths[0])
    before, after = slice(0, steps), slice(1, steps + 1)       # state 0 is the reset state
    arrays: dict[str, np.ndarray] = {}
    if one.agent_pos is not None:
        arrays["position"] = one.agent_pos[before, 0]
        if one.agent_vel is not None:
            arrays["velocity"] = one.agent_vel[before, 0]
        if one.goal_pos is not None and one.goal_pos.shape[2]:
            away = one.agent_pos[before, 0, :, None] - one.goal_pos[before, 0, None]
            arrays["nearest_goal"] = np.linalg.norm(away, axis=-1).min(axis=-1)
    if one.actions is not None:
        arrays["action"] = one.actions[before, 0]
    arrays["reward"] = one.rewards[before, 0]
    if one.agent_pos is not None:
        arrays["contact"] = touching(one.agent_pos[after, 0], one.agent_radii)
    return arrays
