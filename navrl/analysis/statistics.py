"""Statistics over seeds: aggregates with stratified bootstrap intervals, as Agarwal et al. 2021 define them.

"Deep reinforcement learning at the edge of the statistical precipice" (NeurIPS 2021), whose library is rliable. Scores
are float64 ``[runs, tasks]``; tasks are the strata: the runs of each are resampled on their own. A group of NAVRL has
one task, and its scores may be given as ``[runs]``. Scores hold no NaN: a run without one is left out before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 10_000
BAND_RESAMPLES = 1_000  # of curves, at each of their points: the first ones of RESAMPLES
# Every interval is of the same resamples: equal records give equal output, whatever else is compared beside them.
SEED = 0

Aggregate = Callable[[np.ndarray], np.ndarray]  # [..., runs, tasks] -> [...]


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % percentile interval; ``low`` and ``high`` are NaN below two runs, all three below one."""

    value: float
    low: float
    high: float


NO_ESTIMATE = Estimate(np.nan, np.nan, np.nan)


def mean(scores: np.ndarray) -> np.ndarray:
    """Mean over runs and tasks."""
    return scores.mean((-2, -1))


def iqm(scores: np.ndarray) -> np.ndarray:
    """Interquartile mean: the mean of what is left of all scores without the lowest and the highest quarter.

    Of n scores ⌊n / 4⌋ go at either end, as scipy.stats.trim_mean(scores, 0.25) has it.
    """
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    return flat[..., cut : flat.shape[-1] - cut].mean(-1)


def median(scores: np.ndarray) -> np.ndarray:
    """Median over runs (of their means over tasks).

    rliable's ``aggregate_median`` is the median over tasks of means over runs: of one task that would be the mean.
    """
    return np.median(scores.mean(-1), axis=-1)


def optimality_gap(scores: np.ndarray) -> np.ndarray:
    """How far scores stay below 1, the reference's: mean of 1 − min(score, 1)."""
    return 1.0 - np.minimum(scores, 1.0).mean((-2, -1))


def probability_of_improvement(first: np.ndarray, second: np.ndarray) -> Estimate:
    """P(a run of ``first`` scores higher than one of ``second``), mean over tasks; a tie counts one half.

    The Mann-Whitney U statistic over the number of pairs; the runs of each group are resampled on their own.
    """
    first, second = _matrix(first), _matrix(second)
    if not (len(first) and len(second)):
        return NO_ESTIMATE
    wins = 0.5 + 0.5 * np.sign(first[:, None] - second[None])
    if len(first) < 2 or len(second) < 2:
        return _estimate(wins.mean(), None)
    # A resample weighs each run by how often it was drawn, so that its pairs need not be formed.
    one, two = _weights(*first.shape, 0), _weights(*second.shape, 1)
    tasks = range(first.shape[1])
    resampled = np.mean([((one[..., task] @ wins[..., task]) * two[..., task]).sum(1) for task in tasks], axis=0)
    return _estimate(wins.mean(), resampled)


def difference_of_iqm(first: np.ndarray, second: np.ndarray) -> Estimate:
    """Interquartile mean of ``first`` minus that of ``second``; the runs of each are resampled on their own."""
    first, second = _matrix(first), _matrix(second)
    if not (len(first) and len(second)):
        return NO_ESTIMATE
    enough = len(first) > 1 and len(second) > 1
    resampled = iqm(resample(first, 0)) - iqm(resample(second, 1)) if enough else None
    return _estimate(iqm(first) - iqm(second), resampled)


def estimate(aggregate: Aggregate, scores: np.ndarray) -> Estimate:
    """``aggregate`` of the scores with its stratified bootstrap interval."""
    scores = _matrix(scores)
    if not len(scores):
        return NO_ESTIMATE
    return _estimate(aggregate(scores), aggregate(resample(scores)) if len(scores) > 1 else None)


def resample(scores: np.ndarray, stream: int = 0) -> np.ndarray:
    """``[runs, tasks]`` -> ``[RESAMPLES, runs, tasks]``: runs drawn with replacement, for each task on its own.

    Different streams are independent of each other.
    """
    runs, tasks = scores.shape
    return scores[_drawn(runs, tasks, stream), np.arange(tasks)]


def interval(resampled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) of the percentile interval over the first axis (Efron & Tibshirani 1993, chapter 13)."""
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(resampled, (tail, 100.0 - tail), axis=0)
    return low, high


def mean_band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pointwise bootstrap interval of the mean over runs of ``[runs, points]`` -> (low, high), each ``[points]``."""
    return interval(_weights(len(values), 1, 0)[:BAND_RESAMPLES, :, 0] @ values)


def area(positions: np.ndarray, values: np.ndarray, low: float, high: float) -> float:
    """Mean height of a curve between ``low`` and ``high``, in the values' unit: its area (trapezoids) over the width.

    positions, values: float64 ``[points]``, positions rising. NaN where the curve does not span the range.
    """
    if not len(positions) or positions[0] > low or positions[-1] < high:
        return float("nan")
    inside = (positions > low) & (positions < high)
    x = np.concatenate(([low], positions[inside], [high]))
    y = np.interp(x, positions, values)
    return float(np.trapezoid(y, x) / (high - low)) if high > low else float(y[0])


def first_reaching(positions: np.ndarray, values: np.ndarray, threshold: float, *, lower: bool = False) -> float:
    """The first position whose value is at least ``threshold`` (``lower``: at most); inf where none is, NaN of none."""
    if not len(positions):
        return float("nan")
    reached = values <= threshold if lower else values >= threshold
    return float(positions[np.argmax(reached)]) if reached.any() else float("inf")


def _matrix(scores: np.ndarray) -> np.ndarray:
    scores = np.asarray(scores, dtype=float)
    return scores[:, None] if scores.ndim == 1 else scores


def _estimate(value: np.ndarray, resampled: np.ndarray | None) -> Estimate:
    low, high = (np.nan, np.nan) if resampled is None else interval(resampled)
    return Estimate(float(value), float(low), float(high))


@lru_cache(maxsize=32)
def _drawn(runs: int, tasks: int, stream: int) -> np.ndarray:
    """Indices of runs, int64 ``[RESAMPLES, runs, tasks]``."""
    return np.random.default_rng([SEED, stream]).integers(runs, size=(RESAMPLES, runs, tasks))


@lru_cache(maxsize=32)
def _weights(runs: int, tasks: int, stream: int) -> np.ndarray:
    """Share of each run in each resample, float64 ``[RESAMPLES, runs, tasks]``."""
    drawn = _drawn(runs, tasks, stream)
    places = np.arange(RESAMPLES * tasks).reshape(RESAMPLES, 1, tasks) * runs + drawn
    counts = np.bincount(places.ravel(), minlength=RESAMPLES * tasks * runs).reshape(RESAMPLES, tasks, runs)
    return np.ascontiguousarray(counts.swapaxes(1, 2) / runs)
