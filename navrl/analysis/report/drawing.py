"""What the page's scripts draw: curves thinned to what a page can hold, profiles, and how each group looks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from navrl.analysis.comparison import Comparison
from navrl.analysis.curves import POINTS as MOST_POINTS
from navrl.analysis.curves import Curve
from navrl.analysis.figures import AXIS_NAMES
from navrl.analysis.report import layers
from navrl.redaction import redact_all

# Hues of Okabe & Ito's palette (distinct for every kind of colour vision), dark enough to be read as text on white;
# lines differ in their dashes too.
COLOURS = ("#0072B2", "#C04F00", "#00795A", "#AA4499", "#8A6100", "#332288", "#1F78A8", "#000000")
DASHES = ("solid", "dash", "dot", "dashdot")
NUMBERS = 700_000  # that all curves of a page may hold together: about 6 MB
POINTS = (40, 1500)  # of a curve: at least, at most


def look(place: int) -> dict[str, str]:
    """``colour`` and ``dash`` (in plotly's words) of the group at this place: not those of any of 31 neighbours."""
    dash = DASHES[(place + place // len(COLOURS)) % len(DASHES)]
    return {"colour": COLOURS[place % len(COLOURS)], "dash": dash}


def drawing(
    comparison: Comparison, shorts: Sequence[str], drawn: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """(what the page's scripts draw, notes on what curves leave out). drawn: the episodes.

    groups: name, short, colour, dash. runs: name, seed, group (a place in ``groups``). axes: name -> label.
    metrics: name -> title, about, better, layer, curves: for each axis, for each group None or
        x ``[points]``, runs ``[runs of the group][points]``, mean, low, high ``[points]``; None where no value is.
    profiles: metric -> for each group None or x, share, low, high. episodes: see ``episodes.drawable``.
    """
    groups = comparison.groups
    axes = [axis for axis in AXIS_NAMES if any(key[2] == axis for key in comparison.curves)]
    lines = sum(len(group.runs) + 4 for group in comparison.groups)
    limit = NUMBERS // max(1, lines * len(axes) * len(comparison.metrics))
    limit = min(max(limit, POINTS[0]), POINTS[1])
    notes = []
    rows = max((len(run.columns["step"]) for group in groups for run in group.runs), default=0)
    if rows > MOST_POINTS:
        notes.append(f"curves show at most {MOST_POINTS} evenly spaced points of up to {rows:,} rows: a peak between two "
                     "of them is not drawn")  # fmt: skip
    if any(len(curve.positions) > limit for curve in comparison.curves.values()):
        notes.append(f"to keep the page small, curves are drawn with at most {limit} points, highest and lowest kept")
    metrics = {}
    for metric in layers.ordered(comparison.metrics):
        curves = {axis: [_curve(comparison.curves.get((group.label, metric, axis)), limit) for group in groups]
                  for axis in axes}  # fmt: skip
        metrics[metric] = {"title": layers.title(metric), "about": layers.about(metric), "curves": curves,
                           "better": comparison.better.get(metric), "layer": layers.layer_of(metric)}  # fmt: skip
    profiles = {}
    for metric in layers.ordered(metric for _, metric in comparison.profiles if comparison.better[metric]):
        found = [comparison.profiles.get((group.label, metric)) for group in comparison.groups]
        profiles[metric] = [None if p is None else {"x": _rounded(p.values), "share": _rounded(p.share),
                                                    "low": _rounded(p.low), "high": _rounded(p.high)}
                            for p in found]  # fmt: skip
    return {
        "groups": redact_all([
            {"name": group.label, "short": short, **look(place)}
            for place, (group, short) in enumerate(zip(comparison.groups, shorts))
        ]),
        "runs": redact_all([{"name": run.name, "seed": run.seed, "group": place}
                            for place, group in enumerate(comparison.groups) for run in group.runs]),
        "axes": {axis: AXIS_NAMES[axis] for axis in axes},
        "metrics": metrics,
        "profiles": profiles,
        "episodes": drawn,
    }, notes  # fmt: skip


def _curve(curve: Curve | None, limit: int) -> dict[str, Any] | None:
    if curve is None:
        return None
    kept = outstanding(curve.runs, limit)
    return {
        "x": _rounded(curve.positions[kept], 9),
        "runs": [_rounded(values[kept]) for values in curve.runs],
        "mean": _rounded(curve.mean[kept]),
        "low": _rounded(curve.low[kept]),
        "high": _rounded(curve.high[kept]),
    }


def outstanding(values: np.ndarray, limit: int) -> np.ndarray:
    """Which of ``[runs, points]`` are drawn: all, or the first, the last and those with the lowest and the highest
    value of each of (limit − 2) / 2 stretches, so that no peak is lost. Indices, rising."""
    points = values.shape[1]
    if points <= limit:
        return np.arange(points)
    low = np.nan_to_num(values, nan=np.inf).min(axis=0)
    high = np.nan_to_num(values, nan=-np.inf).max(axis=0)
    borders = np.linspace(0, points, (limit - 2) // 2 + 1).astype(int)
    kept = {0, points - 1}
    for begin, end in zip(borders[:-1], borders[1:]):
        kept |= {int(begin + low[begin:end].argmin()), int(begin + high[begin:end].argmax())}
    return np.array(sorted(kept))


def _rounded(values: np.ndarray, digits: int = 6) -> list[float | None]:
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values.tolist()]
