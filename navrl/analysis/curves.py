"""Learning curves of one or more groups of seeds, read from their local records."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from navrl.tracking.record import read_rows

# One panel each by default: does it solve the task (layer 2), how (layer 3), is training sane (layer 1).
DEFAULT_METRICS = (
    "eval/episode_reward",
    "eval/success_rate",
    "eval/collision_count",
    "eval/goal_distance",
    "train/entropy",
    "train/explained_variance",
)


@dataclass(frozen=True)
class Curve:
    """A metric of one group along one axis, its runs at shared positions. All arrays float64.

    positions: ``[points]``, rising, in units of the axis (environment steps, episodes, seconds of training): those of
        the rows where all runs have the same, else evenly spaced with values interpolated in between.
    runs: ``[runs, points]`` in the order of ``Group.runs``, smoothed where that was asked for; NaN outside a run's own
        rows. raw: the same before smoothing.
    mean, low, high: ``[points]``: mean over runs and its band; NaN where not every run that has the metric has a value
        (so that no mean jumps where a run ends). low and high are NaN for one run too.
    count: number of runs that have the metric.
    """

    positions: np.ndarray
    runs: np.ndarray
    raw: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    count: int


@dataclass(frozen=True)
class Profile:
    """Performance profile (Agarwal et al. 2021): share of a group's runs that are better than each value.

    values: float64 ``[points]``, the same for all groups of a comparison. share, low, high: ``[points]`` in 0 ... 1
    with the pointwise 95 % bootstrap interval (NaN for one run).
    """

    values: np.ndarray
    share: np.ndarray
    low: np.ndarray
    high: np.ndarray


def find_runs(path: Path) -> list[Path]:
    """The run directories at or below ``path``, sorted. ValueError where there is none."""
    runs = sorted(found.parent for found in [*path.glob("metrics.jsonl"), *path.glob("*/metrics.jsonl")])
    if not runs:
        raise ValueError(f"{path}: no run here (a run directory holds metrics.jsonl; a group directory holds runs)")
    return runs


def curve(run_dir: Path, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """(environment steps, values) of the rows that have the metric, float64."""
    points = [(row["step"], row[metric]) for row in read_rows(run_dir) if isinstance(row.get(metric), (int, float))]
    steps, values = zip(*points) if points else ((), ())
    return np.asarray(steps, dtype=float), np.asarray(values, dtype=float)


def mean_curve(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean over runs at the steps where every run has a value."""
    by_step = [dict(zip(steps.tolist(), values.tolist())) for steps, values in curves]
    shared = sorted(set.intersection(*map(set, by_step)))
    values = [[run[step] for step in shared] for run in by_step]
    return np.asarray(shared), np.mean(values, axis=0) if shared else np.asarray([])


def labelled(paths: Sequence[Path]) -> dict[str, list[Path]]:
    """label -> run directories of each path, in order. Paths whose last parts are alike get longer labels."""
    resolved = list(dict.fromkeys(path.resolve() for path in paths))
    labels = {}
    for path in resolved:
        for count in range(1, len(path.parts) + 1):
            end = path.parts[-count:]
            if sum(other.parts[-count:] == end for other in resolved) == 1:
                break
        labels[str(Path(*end))] = find_runs(path)
    return labels


def require_metrics(groups: dict[str, list[Path]], metrics: Sequence[str]) -> None:
    """ValueError for the first metric that no run has a number of."""
    rows = (row for runs in groups.values() for run in runs for row in read_rows(run))
    known = {name for row in rows for name, value in row.items() if isinstance(value, (int, float))} - {"step"}
    for metric in metrics:
        if metric not in known:
            nearest = difflib.get_close_matches(metric, sorted(known), n=3, cutoff=0.0)
            raise ValueError(f"no run has a metric {metric}; nearest: {', '.join(nearest) or 'none, they are empty'}")


def plot(groups: dict[str, list[Path]], metrics: Sequence[str], out: Path) -> None:
    """One panel a metric; every seed as a thin line, the mean over a group's seeds as a thick one. ValueError: no row."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter, MaxNLocator

    columns = min(3, len(metrics))
    rows = -(-len(metrics) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(4.2 * columns, 2.9 * rows), squeeze=False)
    for axis in axes.flat[len(metrics) :]:
        axis.set_visible(False)
    for axis, metric in zip(axes.flat, metrics):
        for index, (label, runs) in enumerate(groups.items()):
            colour = f"C{index}"
            curves = [c for c in (curve(run, metric) for run in runs) if len(c[0])]
            for steps, values in curves:
                axis.plot(steps, values, color=colour, alpha=0.35, linewidth=0.8)
            if curves:
                axis.plot(*mean_curve(curves), color=colour, linewidth=2, label=f"{label} ({len(curves)} seeds)")
        axis.set_title(metric, fontsize=10)
        axis.set_xlabel("environment steps", fontsize=8)
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.3)
        if metric.endswith("episode_reward"):  # an untrained deterministic policy starts far below what matters
            low = min((values[len(values) // 10 :].min() for run in groups.values() for _, values in
                       (curve(r, metric) for r in run) if len(values)), default=None)  # fmt: skip
            if low is not None:
                axis.set_ylim(bottom=low - 2)
    if not any(axis.lines for axis in axes.flat):
        plt.close(figure)
        raise ValueError(f"nothing to draw: no run has a row with any of {', '.join(metrics)}")
    axes.flat[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(out, dpi=110)
    plt.close(figure)
