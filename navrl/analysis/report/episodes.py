"""Recorded evaluation episodes as what the page's player needs: plain lists, rounded, within a budget of bytes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from navrl.metrics import geometry
from navrl.metrics.trajectories import Trajectories, load_npz

BUDGET = 4 * 2**20  # bytes of JSON that all episodes of a page may take
MAX_FRAMES = 500  # of a longer episode every k-th step is drawn
_FILE = re.compile(r"eval_step(\d+)_episode(\d+)\.npz")


def find(run_dir: Path) -> dict[int, Path]:
    """Episode index -> file, of the run's newest recorded evaluation; {} where it has none."""
    found = [(int(m[1]), int(m[2]), path) for path in run_dir.glob("media/*.npz") if (m := _FILE.fullmatch(path.name))]
    newest = max((step for step, _, _ in found), default=0)
    return {index: path for step, index, path in sorted(found) if step == newest}


def collect(run_dirs: Sequence[Path | None], budget: int = BUDGET) -> tuple[list[dict[str, Any]], list[str]]:
    """(episodes of all runs for the player, notes on what is not among them).

    run_dirs: None for a run without a directory here. Each episode has ``run``, the place in ``run_dirs``. Where all
    would take more than ``budget`` bytes of JSON, the first episode of every run comes first.
    """
    files = [{} if directory is None else find(directory) for directory in run_dirs]
    places = sorted((index, run) for run, found in enumerate(files) for index in found)
    episodes, notes, size = [], [], 0
    for place, (index, run) in enumerate(places):
        try:
            trajectories = load_npz(files[run][index])
        except (ValueError, OSError) as error:
            notes.append(f"an episode cannot be read: {files[run][index].name} ({type(error).__name__})")
            continue
        if trajectories.agent_pos is None or not trajectories.num_episodes:
            notes.append("episodes of a task that does not say where its agents are cannot be drawn")
            continue
        episode = {"run": run, "index": index, **drawable(trajectories)}
        size += len(json.dumps(episode))
        if size > budget:
            left = len(places) - place
            notes.append(f"{left} of {len(places)} recorded episodes are left out to keep the page small")
            break
        episodes.append(episode)
    return episodes, list(dict.fromkeys(notes))


def drawable(trajectories: Trajectories) -> dict[str, Any]:
    """The first episode of ``trajectories`` as plain lists; it must have positions.

    steps: T. frames: the steps drawn (0 = reset state), rising; lists of the same length are of these moments:
    agents ``[frames][N][2]``, goals (one row where they never move) ``[..][G][2]``, both in task units;
    touching: agents in contact; covered: goals covered, as the metrics of the score role count them; reward: summed
    so far, mean over the agents of the score role.
    contacts: every step from 1 on with a pair in contact. success: first step from 1 on at which the task's test
    holds (None: never), success_at_end: it holds at step T; has_success: the task has a test.
    radii: of the agents, goal_radius; reach: the largest coordinate that has to be in the picture.
    """
    one = trajectories.episodes([0])
    steps = int(one.lengths[0])
    frames = list(range(0, steps, -(-steps // MAX_FRAMES))) + [steps]
    team = one.team(one.score_role)
    touching = geometry.touching(one.agent_pos[:, 0], one.agent_radii)  # [T + 1, N]
    agents, goals = one.agent_pos[:, 0], one.goal_pos[:, 0] if one.num_goals else np.zeros((steps + 1, 0, 2))
    covered = np.zeros((steps + 1, one.num_goals), dtype=bool)
    success = np.zeros(steps + 1, dtype=bool)
    if team.num_goals:
        near = geometry.goal_distances(team)[:, 0] < one.goal_radius
        # With own goals a team has its agents' goals only.
        owners = [i for i, role in enumerate(one.roles) if role == one.score_role and i < one.num_goals]
        covered[:, owners if one.own_goals else slice(None)] = near
    if team.has_success:
        success = geometry.success(team, one.goal_radius)[:, 0]
    held = np.flatnonzero(success[1:]) + 1
    finite = np.concatenate([agents[frames].ravel(), goals[frames].ravel()])
    reach = max(1.0, float(np.abs(finite[np.isfinite(finite)]).max(initial=0.0))) + float(one.agent_radii.max())
    digits = max(0, 3 - math.floor(math.log10(reach)))
    rewards = np.concatenate([[0.0], team.rewards[:, 0].mean(axis=1).cumsum()])
    moving = bool((goals != goals[:1]).any())
    return {
        "steps": steps,
        "frames": frames,
        "agents": _plain(agents[frames], digits),
        "goals": _plain(goals[frames] if moving else goals[:1], digits),
        "touching": [np.flatnonzero(touching[t]).tolist() for t in frames],
        "covered": [np.flatnonzero(covered[t]).tolist() for t in frames],
        "reward": _plain(rewards[frames], 3),
        "contacts": (np.flatnonzero(touching[1:].any(axis=1)) + 1).tolist(),
        "has_success": bool(team.has_success),
        "success": int(held[0]) if len(held) else None,
        "success_at_end": bool(success[-1]),
        "radii": one.agent_radii.tolist(),
        "goal_radius": one.goal_radius,
        "reach": round(reach, digits),
    }


def _plain(values: np.ndarray, digits: int) -> list:
    """Nested lists, rounded; what is not finite stays where its neighbours can be drawn: at the origin."""
    return np.round(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0), digits).tolist()
