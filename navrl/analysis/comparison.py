"""A comparison of groups of seeds as one plain value: what scripts/compare.py prints and scripts/report.py draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from navrl.analysis.curves import Curve, Profile
from navrl.analysis.groups import Group
from navrl.analysis.records import LeftOut, Run
from navrl.analysis.statistics import Estimate


@dataclass(frozen=True)
class Outcome:
    """What the runs of one group reached in one metric. Arrays are float64 ``[runs]``, in the order of ``group.runs``.

    final: of the last parameters. NaN where a run has none (or none that is finite).
    final_error: standard error of ``final`` over evaluation episodes; NaN where it is not known.
    final_source: for each run ``"summary"`` (the final evaluation, ``summary.json``), ``"row"`` (the last row that has
        the metric: an evaluation during training, or layer 1) or ``""`` (no value).
    iqm, mean, median: of ``final`` over runs. optimality_gap: of normalized scores, else None.
    area: mean height of the learning curve over ``Comparison.area_range``; NaN where a curve does not span it.
    area_iqm: of ``area`` over runs.
    threshold: the value to be reached, or None. steps_to_threshold: environment steps of the first row that reached
        it; inf: never; NaN: no row; None without a threshold.
    at: the value at ``Comparison.at``: of the last row up to there; NaN where a run has not come so far. None where
        no step was asked for.
    """

    group: str
    metric: str
    final: np.ndarray
    final_error: np.ndarray
    final_source: tuple[str, ...]
    iqm: Estimate
    mean: Estimate
    median: Estimate
    optimality_gap: Estimate | None
    area: np.ndarray
    area_iqm: Estimate
    threshold: float | None
    steps_to_threshold: np.ndarray | None
    at: np.ndarray | None


@dataclass(frozen=True)
class Pair:
    """Two groups in the final value of one metric. first, second: labels.

    improvement: probability that a run of ``first`` is better than one of ``second`` (a metric that has no better
        direction: that it is larger). difference: interquartile mean of ``first`` minus that of ``second``, in the
        metric's unit.
    """

    metric: str
    first: str
    second: str
    improvement: Estimate
    difference: Estimate


@dataclass(frozen=True)
class Difference:
    """One setting that is not the same everywhere.

    key: of the configuration, or a dotted name of ``metadata.json`` (``git_commit``, ``versions.torch``).
    values: label -> the group's value, or a tuple of its runs' different values; None where it is not recorded.
    """

    key: str
    values: dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """Groups of seeds compared. ``label`` is always a group's, unique here; dictionaries are in the groups' order.

    metrics: as in ``metrics.jsonl``, those that some run has.
    better: metric -> ``"higher"``, ``"lower"`` or None (neither is better).
    outcomes: (label, metric) -> Outcome, for every group and metric.
    pairs: for every metric and two groups, the one given first before the other.
    curves: (label, metric, axis) -> Curve, for every axis asked for: ``step``, ``episodes``, ``time``; left out where
        no run of a group has a point.
    profiles: (label, metric) -> Profile of the finals.
    config, metadata: what differs between (or inside) groups, in the schema's order.
    area_range: metric -> (first, last) environment step over which areas are taken; metrics without one are absent.
    at: the environment step asked for, or None.
    warnings: one line each: what a reader must know before believing the figures.
    left_out: what gave no run, or a run that does not count, and why.
    band: ``"bootstrap"``, ``"std"`` or ``"range"``: what the bands of the curves are. smooth: width of the curves'
        moving mean in units of the axis, 0 for none.
    """

    groups: tuple[Group, ...]
    metrics: tuple[str, ...]
    better: dict[str, str | None]
    outcomes: dict[tuple[str, str], Outcome]
    pairs: tuple[Pair, ...]
    curves: dict[tuple[str, str, str], Curve]
    profiles: dict[tuple[str, str], Profile]
    config: tuple[Difference, ...]
    metadata: tuple[Difference, ...]
    area_range: dict[str, tuple[float, float]]
    at: int | None
    warnings: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    band: str
    smooth: float


def compare(
    runs: Sequence[Run],
    metrics: Sequence[str],
    *,
    left_out: Sequence[LeftOut] = (),
    axes: Sequence[str] = ("step",),
    band: str = "bootstrap",
    smooth: float = 0.0,
    at: int | None = None,
    thresholds: Mapping[str, float] | None = None,
) -> Comparison:
    """Compare the groups of these runs. Groups come in the order in which their first runs do.

    metrics: those loaded with the runs; one that no run has is dropped. left_out: as ``records.load`` or ``pull`` gave
    it; runs that do not count are added. thresholds: metric -> value (default: ``DEFAULT_THRESHOLDS``).
    ValueError where no run is left.
    """
    raise NotImplementedError
