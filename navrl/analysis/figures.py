"""Figures of a comparison (matplotlib): learning curves, distributions at a step, profiles, behaviour beside reward."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from navrl.analysis.comparison import REWARD, Comparison
from navrl.analysis.groups import Group
from navrl.metrics.summary import BEHAVIOUR_METRICS, TASK_METRICS

# Okabe & Ito's colours, told apart with every kind of colour blindness; the line style changes after each round.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
STYLES = ("-", "--", ":", "-.")
AXIS_NAMES = {"step": "environment steps", "episodes": "episodes", "time": "seconds of training"}
BAND_NAMES = {"bootstrap": "95 % bootstrap interval of the mean", "std": "mean ± standard deviation over seeds",
              "range": "lowest to highest seed"}  # fmt: skip
ARROWS = {"higher": " ↑", "lower": " ↓", None: ""}
DPI = 110
CROWD = 12


def draw_curves(comparison: Comparison, axis: str, out: Path) -> None:
    """One panel a metric: every seed as a thin line, a group's mean as a thick one with its band.

    Of more than ``CROWD`` groups the means alone, for the rest would hide them.

    ValueError where there is nothing to draw, or ``out`` has an ending that matplotlib does not know.
    """
    metrics = [metric for metric in comparison.metrics
               if any((group.label, metric, axis) in comparison.curves for group in comparison.groups)]  # fmt: skip
    if not metrics:
        raise ValueError(f"nothing to draw: no run has a row with any of the metrics along {AXIS_NAMES[axis]}")
    columns, crowded = min(3, len(metrics)), len(comparison.groups) > CROWD
    with _figure(out, -(-len(metrics) // columns), columns) as (figure, axes):
        from matplotlib.ticker import EngFormatter, MaxNLocator

        for panel, metric in zip(axes, metrics):
            for index, group in enumerate(comparison.groups):
                curve = comparison.curves.get((group.label, metric, axis))
                if curve is None:
                    continue
                colour, style = _look(index)
                if not crowded:
                    apart = np.pad(curve.raw, ((0, 0), (0, 1)), constant_values=np.nan)  # one artist for all seeds
                    panel.plot(np.tile([*curve.positions, np.nan], len(apart)), apart.ravel(), color=colour,
                               alpha=0.35, linewidth=0.8)  # fmt: skip
                if not crowded and np.isfinite(curve.low).any():
                    panel.fill_between(curve.positions, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
                panel.plot(curve.positions, curve.mean, style, color=colour, linewidth=2, label=_name(group))
            panel.set_title(_plain(metric) + ARROWS[comparison.better[metric]], fontsize=10)
            panel.set_xlabel(AXIS_NAMES[axis], fontsize=8)
            panel.xaxis.set_major_locator(MaxNLocator(5))
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))
            if metric == REWARD:
                panel.set_ylim(bottom=_bottom(comparison, axis))
        smooth = f"mean of the last {comparison.smooth:g} environment steps" if comparison.smooth else "none"
        smooth += " (thin lines: as recorded)" if comparison.smooth and not crowded else ""
        band = "means over seeds alone" if crowded else f"band: {BAND_NAMES[comparison.band]}"
        _legend(figure, axes, f"{band}; smoothing: {smooth}")


def draw_distribution(comparison: Comparison, out: Path) -> None:
    """One panel a metric: the values of a group's seeds at ``comparison.at``, and their median."""
    outcomes = comparison.outcomes
    _draw_groups(
        comparison, comparison.metrics, out, f"values at environment step {comparison.at}; bar: median over seeds",
        seeds=lambda group, metric: outcomes[group.label, metric].at,
        summary=lambda group, metric, values: (float(np.median(values)), np.nan, np.nan),
    )  # fmt: skip


def draw_behaviour(comparison: Comparison, out: Path) -> None:
    """Final values, layer 2 above layer 3, so that reward that rises together with collisions is seen.

    ValueError where the comparison has no metric of either layer.
    """
    task, behaviour = (
        [metric for metric in comparison.metrics if metric.startswith("eval/") and metric.rsplit("/", 1)[-1] in layer]
        for layer in (TASK_METRICS, BEHAVIOUR_METRICS)
    )
    if not task and not behaviour:
        raise ValueError("nothing to draw: no metric of layer 2 or 3")
    columns = max(len(task), len(behaviour))
    panels = [*task, *[None] * (columns - len(task)), *behaviour, *[None] * (columns - len(behaviour))]

    def iqm(group: Group, metric: str, _: np.ndarray) -> tuple[float, float, float]:
        found = comparison.outcomes[group.label, metric].iqm
        return found.value, found.low, found.high

    _draw_groups(
        comparison, panels, out, "final values; above: task, below: behaviour; bar: interquartile mean, 95 % interval; "
        "arrow: better", columns=columns, summary=iqm,
        seeds=lambda group, metric: comparison.outcomes[group.label, metric].final,
    )  # fmt: skip


def draw_profiles(comparison: Comparison, out: Path) -> None:
    """Performance profiles of the final values of the metrics that have a better direction. ValueError: none has.

    Of more than ``CROWD`` groups without bands.
    """
    known = {metric for _, metric in comparison.profiles}
    metrics = [metric for metric in comparison.metrics if metric in known and comparison.better[metric]]
    if not metrics:
        raise ValueError("nothing to draw: no metric with final values has a better direction")
    columns, crowded = min(3, len(metrics)), len(comparison.groups) > CROWD
    with _figure(out, -(-len(metrics) // columns), columns) as (figure, axes):
        for panel, metric in zip(axes, metrics):
            for index, group in enumerate(comparison.groups):
                profile = comparison.profiles.get((group.label, metric))
                if profile is None:
                    continue
                colour, style = _look(index)
                if not crowded and np.isfinite(profile.low).any():
                    panel.fill_between(profile.values, profile.low, profile.high, color=colour, alpha=0.2, step="post",
                                       linewidth=0)  # fmt: skip
                panel.plot(profile.values, profile.share, style, color=colour, linewidth=2, drawstyle="steps-post",
                           label=_name(group))  # fmt: skip
            panel.set_title(_plain(metric) + ARROWS[comparison.better[metric]], fontsize=10)
            panel.set_xlabel("final value", fontsize=8)
            panel.set_ylabel("share of runs better", fontsize=8)
            panel.set_ylim(-0.03, 1.03)
            if comparison.better[metric] == "lower":  # better is to the right everywhere
                panel.invert_xaxis()
        band = "" if crowded else "; band: 95 % bootstrap interval"
        _legend(figure, axes, "share of runs whose final value is better" + band)


def _draw_groups(
    comparison: Comparison,
    panels: Sequence[str | None],
    out: Path,
    note: str,
    *,
    seeds: Callable[[Group, str], np.ndarray],
    summary: Callable[[Group, str, np.ndarray], tuple[float, float, float]],
    columns: int | None = None,
) -> None:
    """Groups side by side: a dot a seed, and value and interval of ``summary``."""
    columns = columns or min(4, len(panels))
    with _figure(out, -(-len(panels) // columns), columns) as (figure, axes):
        for panel, metric in zip(axes, panels):
            if metric is None:
                panel.set_visible(False)
                continue
            for index, group in enumerate(comparison.groups):
                values = seeds(group, metric)
                values = values[np.isfinite(values)]
                if not len(values):
                    continue
                colour, _ = _look(index)
                spread = index + np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else [index]
                panel.plot(spread, values, "o", color=colour, alpha=0.5, markersize=4, label=_name(group))
                middle, low, high = summary(group, metric, values)
                panel.plot([index - 0.3, index + 0.3], [middle, middle], color=colour, linewidth=2)
                if np.isfinite(low):
                    panel.plot([index, index], [low, high], color=colour, linewidth=2)
            panel.set_title(_plain(metric) + ARROWS[comparison.better[metric]], fontsize=10)
            panel.set_xlim(-0.6, len(comparison.groups) - 0.4)
            panel.set_xticks([])
        _legend(figure, axes, note)


def _bottom(comparison: Comparison, axis: str) -> float | None:
    """An untrained deterministic policy starts far below what matters: the first tenth does not set the scale."""
    lows = [np.nanmin(curve.raw[:, len(curve.positions) // 10 :]) for group in comparison.groups
            if (curve := comparison.curves.get((group.label, REWARD, axis))) is not None]  # fmt: skip
    return min(lows) - 2


def _look(index: int) -> tuple[str, str]:
    return COLOURS[index % len(COLOURS)], STYLES[index // len(COLOURS) % len(STYLES)]


def _name(group: Group) -> str:
    count = f"{len(group.runs)} seed{'s' if len(group.runs) > 1 else ''}"
    name = _plain(f"{group.label} ({count})")
    return " " + name if name.startswith("_") else name  # matplotlib shows no label that begins so


def _plain(text: str) -> str:
    """Text of a record is no formula."""
    return text.replace("$", r"\$")


@contextmanager
def _figure(out: Path, rows: int, columns: int) -> Iterator[tuple[Any, Any]]:
    """(figure, its panels in one list); saved to ``out`` and closed at the end."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=(4.2 * columns, 2.9 * rows), squeeze=False, layout="constrained")
    try:
        for panel in axes.flat:
            panel.grid(alpha=0.3)
            panel.tick_params(labelsize=8)
        yield figure, list(axes.flat)
        for panel in axes.flat:
            if not panel.has_data():
                panel.set_visible(False)
        figure.savefig(out, dpi=DPI)
    finally:
        plt.close(figure)


def _legend(figure: Any, axes: Any, note: str) -> None:
    """One legend below all panels, and what bands and bars are."""
    entries = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels()):
            entries.setdefault(label, handle)
    characters = int(13 * figure.get_figwidth())
    columns = max(1, min(5, characters // (max(map(len, entries), default=0) + 8)))
    figure.set_figheight(figure.get_figheight() + 0.18 * (len(entries) // columns))  # not at the panels' cost
    figure.legend(
        entries.values(), entries.keys(), loc="outside lower center", ncols=columns, fontsize=8,
        title=textwrap.fill(note, characters), title_fontsize=8,
    )  # fmt: skip
