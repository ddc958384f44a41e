"""Evaluation episodes to numbers: a row of metrics, a summary with standard errors, a table for people."""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.base import TaskSpec
from navrl.metrics.behaviour import behaviour_metrics
from navrl.metrics.summary import BEHAVIOUR_METRICS, TASK_METRICS, standard_errors, summarise
from navrl.metrics.task import normalized_score, task_metrics
from navrl.metrics.trajectories import Trajectories


def reference_scores(spec: TaskSpec) -> dict[str, float] | None:
    """Scores of the random policy and the reference controller for this very setting, or None."""
    if spec.env_id != "simple_spread":
        return None
    from envs.mpe.reference import scores

    return scores(spec)


def per_episode(trajectories: Trajectories, spec: TaskSpec) -> dict[str, np.ndarray]:
    """Every layer-2 and layer-3 metric that this task has, one value an episode ``[E]``."""
    values = task_metrics(trajectories) | behaviour_metrics(trajectories)
    anchors = reference_scores(spec)
    if anchors is not None:
        values["normalized_score"] = normalized_score(values["episode_reward"], anchors["random"], anchors["reference"])
    return values


def row(trajectories: Trajectories, spec: TaskSpec, prefix: str = "eval/") -> dict[str, float]:
    """Means over episodes, named as ``metrics.jsonl`` has them."""
    return {prefix + name: value for name, value in summarise(per_episode(trajectories, spec)).items()}


def summary(trajectories: Trajectories, spec: TaskSpec) -> dict[str, Any]:
    """What ``summary.json`` and ``evaluate.py`` give: number of episodes, mean and standard error of each metric."""
    values = per_episode(trajectories, spec)
    return {
        "episodes": int(trajectories.num_episodes),
        "env": f"{spec.package} {spec.package_version}",
        "mean": summarise(values),
        "standard_error": standard_errors(values),
    }


def table(summaries: dict[str, dict[str, Any]]) -> list[str]:
    """Lines of a small table: one metric a line, one column (mean ± standard error) a summary."""
    names = list(dict.fromkeys(name for s in summaries.values() for name in s["mean"]))
    order = {name: i for i, name in enumerate((*TASK_METRICS, *BEHAVIOUR_METRICS))}
    names.sort(key=lambda name: order.get(name, len(order)))
    width = max(len(name) for name in names)
    wide = max(20, *(len(title) + 2 for title in summaries))
    lines = [" " * width + "".join(f"{title:>{wide}}" for title in summaries)]
    for name in names:
        cells = []
        for s in summaries.values():
            mean, error = s["mean"].get(name), s["standard_error"].get(name)
            cells.append("—" if mean is None else f"{mean:.3f}" + ("" if error is None else f" ± {error:.3f}"))
        lines.append(f"{name:<{width}}" + "".join(f"{cell:>{wide}}" for cell in cells))
    return lines
