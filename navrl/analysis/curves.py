"""Learning curves of groups of seeds on shared positions, with bands; values at a step; performance profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from navrl.analysis import statistics
from navrl.analysis.records import Run

AXES = {"step": "step", "episodes": "train/episode_count", "time": "time"}  # axis -> column
BANDS = ("bootstrap", "std", "range")
POINTS = 250  # of a curve, at most: about what a panel shows


@dataclass(frozen=True)
class Curve:
    """A metric of one group along one axis, its runs at shared positions. All arrays float64.

    positions: ``[points]``, rising, in units of the axis (environment steps, episodes, seconds of training): those of
        rows, of all runs together, thinned to 250; between two rows of a run its value is interpolated.
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


def points(run: Run, metric: str, axis: str = "step", smooth: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """(positions, values) of the rows that hold a finite value of the metric, positions rising, each once.

    A row that does not say its place on the axis gets it from its neighbours. smooth: each value becomes the mean of
    those of the last ``smooth`` environment steps.
    """
    steps, values = run.series(metric)
    if smooth > 0:
        values = _trailing_mean(steps, values, smooth)
    if axis == "step":
        positions = steps
    else:
        places, at = run.series(AXES[axis])
        if not len(places):
            return np.empty(0), np.empty(0)
        if places[0] > 0:  # every run begins at step 0 with no episode and no second behind it
            places, at = np.concatenate(([0.0], places)), np.concatenate(([0.0], at))
        positions = np.interp(steps, places, np.maximum.accumulate(at))
    last = np.flatnonzero(np.diff(positions, append=np.inf) > 0)  # of rows in one place the last
    return positions[last], values[last]


def align(runs: Sequence[Run], metric: str, axis: str, band: str = "bootstrap", smooth: float = 0.0) -> Curve | None:
    """The runs' curves at the positions of all their rows together, thinned to ``POINTS``; None where none has a row.

    Between two rows of a run its value is interpolated. band: ``bootstrap`` (95 % interval of the mean over runs),
    ``std`` (mean ± standard deviation over runs, n − 1) or ``range`` (lowest and highest run).
    """
    rough = [points(run, metric, axis) for run in runs]
    has = np.array([len(positions) > 0 for positions, _ in rough])
    if not has.any():
        return None
    positions = np.unique(np.concatenate([positions for positions, _ in rough]))
    if len(positions) > POINTS:
        positions = positions[np.linspace(0, len(positions) - 1, POINTS).round().astype(int)]
    raw = _at(positions, rough)
    values = _at(positions, [points(run, metric, axis, smooth) for run in runs]) if smooth > 0 else raw
    present = values[has]  # NaN where one of them has none, and so in its mean and band
    low, high = _band(present, band) if len(present) > 1 else np.full((2, len(positions)), np.nan)
    return Curve(positions, values, raw, present.mean(0), low, high, len(present))


def at_step(run: Run, metric: str, step: float) -> float:
    """Value of the last row up to ``step`` that has the metric; NaN without one, or where the run is not yet there."""
    steps, values = run.series(metric)
    before = np.searchsorted(steps, step, side="right")
    return float(values[before - 1]) if before and run.columns["step"][-1] >= step else float("nan")


def profile(finals: np.ndarray, values: np.ndarray, *, lower: bool = False) -> Profile:
    """Share of runs better than each of ``values``: above it, or (``lower``) below it. finals: ``[runs]``, no NaN."""

    def shares(scores: np.ndarray) -> np.ndarray:
        return ((scores < values) if lower else (scores > values)).mean(-2)

    scores = finals[:, None]
    low = high = np.full(len(values), np.nan)
    if len(finals) > 1:
        low, high = statistics.interval(shares(statistics.resample(scores)[: statistics.BAND_RESAMPLES]))
    return Profile(values, shares(scores), low, high)


def _at(positions: np.ndarray, curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    rows = [np.interp(positions, x, y, left=np.nan, right=np.nan) if len(x) else np.full(len(positions), np.nan)
            for x, y in curves]  # fmt: skip
    return np.array(rows)


def _band(values: np.ndarray, band: str) -> tuple[np.ndarray, np.ndarray]:
    if band == "range":
        return values.min(0), values.max(0)
    if band == "std":
        mean, deviation = values.mean(0), values.std(0, ddof=1)
        return mean - deviation, mean + deviation
    return statistics.mean_band(values)


def _trailing_mean(steps: np.ndarray, values: np.ndarray, width: float) -> np.ndarray:
    """Mean over the rows within the last ``width`` steps of each row, itself included."""
    total = np.concatenate(([0.0], np.cumsum(values)))
    first = np.searchsorted(steps, steps - width, side="right")
    end = np.arange(1, len(steps) + 1)
    return (total[end] - total[first]) / (end - first)
