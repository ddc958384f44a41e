"""A comparison of groups of seeds as one plain value: what scripts/compare.py prints and scripts/report.py draws."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from navrl.analysis import caveats, statistics
from navrl.analysis.curves import Curve, Profile, align, at_step, profile
from navrl.analysis.groups import Group, common, group_runs, made_of, science
from navrl.analysis.records import LeftOut, Run
from navrl.analysis.statistics import Estimate
from navrl.config import SCIENCE_KEYS

REWARD, COLLISIONS = "eval/episode_reward", "eval/collision_count"
# Does it solve the task (layer 2), and is how it does so reasonable (layer 3)?
DEFAULT_METRICS = (
    REWARD, "eval/normalized_score", "eval/success_rate", "eval/time_to_goal",
    COLLISIONS, "eval/final_goal_distance", "eval/path_efficiency", "eval/average_speed",
)  # fmt: skip
DEFAULT_THRESHOLDS = {"eval/normalized_score": 0.9}
HIGHER = frozenset((
    "episode_reward", "team_reward", "agent_reward_mean", "episode_reward_mean", "episode_reward_max", "success_rate",
    "success_rate_any", "success_rate_015", "success_rate_collision_free", "normalized_score", "goals_covered",
    "path_efficiency", "explained_variance", "env_steps_per_second",
))  # fmt: skip
LOWER = frozenset((
    "time_to_goal", "collision_count", "collision_events", "goal_distance", "final_goal_distance", "goal_conflict_rate",
    "rollout_seconds", "update_seconds", "eval_seconds", "tracking_seconds",
))  # fmt: skip
PROFILE_POINTS = 101
PAIRED = 12  # groups; of more the first is compared with each other one


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
    pairs: for every metric and two groups, the one given first before the other; of more than ``PAIRED`` groups the
        first and each other one.
    curves: (label, metric, axis) -> Curve, for every axis asked for: ``step``, ``episodes``, ``time``; left out where
        no run of a group has a point.
    profiles: (label, metric) -> Profile of the finals.
    config, metadata: what differs between (or inside) groups; configuration in the schema's order.
    area_range: metric -> (first, last) environment step over which areas are taken; metrics without one are absent.
    at: the environment step asked for, or None.
    warnings: one line each: what a reader must know before believing the figures.
    left_out: what gave no run, or a run that does not count, and why.
    band: ``"bootstrap"``, ``"std"`` or ``"range"``: what the bands of the curves are. smooth: width of the curves'
        moving mean in environment steps, 0 for none.
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
    groups, again = group_runs(runs)
    if not groups:
        raise ValueError("nothing to compare: no run was read")
    metrics = tuple(metric for metric in dict.fromkeys(metrics) if any(has(run, metric) for run in runs))
    thresholds = DEFAULT_THRESHOLDS if thresholds is None else thresholds
    ranges = {metric: found for metric in metrics if (found := _area_range(groups, metric)) is not None}
    outcomes = {
        (group.label, metric): _outcome(group, metric, ranges.get(metric), thresholds.get(metric), at)
        for group in groups
        for metric in metrics
    }
    pairs = tuple(
        _pair(metric, outcomes[first.label, metric], outcomes[second.label, metric])
        for metric in metrics
        for first, second in _couples(groups)
    )
    curves = {
        (group.label, metric, axis): curve
        for group in groups
        for metric in metrics
        for axis in axes
        if (curve := align(group.runs, metric, axis, band, smooth)) is not None
    }
    return Comparison(
        groups=groups,
        metrics=metrics,
        better={metric: better(metric) for metric in metrics},
        outcomes=outcomes,
        pairs=pairs,
        curves=curves,
        profiles=_profiles(groups, metrics, outcomes),
        config=_differences(groups, science, SCIENCE_KEYS),
        metadata=_differences(groups, made_of, ()),
        area_range=ranges,
        at=at,
        warnings=tuple(dict.fromkeys(_warnings(groups, metrics, outcomes, pairs))),
        left_out=(*left_out, *again),
        band=band,
        smooth=smooth,
    )


def _couples(groups: Sequence[Group]) -> list[tuple[Group, Group]]:
    couples = itertools.combinations(groups, 2)
    return [(first, second) for first, second in couples if len(groups) <= PAIRED or first is groups[0]]


def better(metric: str) -> str | None:
    """``"higher"`` or ``"lower"``, whichever is better; None where neither is."""
    name = metric.rsplit("/", 1)[-1]
    return "higher" if name in HIGHER else "lower" if name in LOWER else None


def has(run: Run, metric: str) -> bool:
    """Whether the run has any finite value of the metric, in a row or in its final evaluation."""
    return bool(np.isfinite(run.columns.get(metric, np.empty(0))).any()) or final_value(run, metric)[2] != ""


def final_value(run: Run, metric: str) -> tuple[float, float, str]:
    """(value, standard error over episodes, source) of the last parameters, as ``Outcome`` has them."""
    final = run.summary.get("final")
    layer, _, name = metric.partition("/")
    if layer == "eval" and isinstance(final, Mapping):
        value, error = (_number(final.get(part), name) for part in ("mean", "standard_error"))
        if np.isfinite(value):
            return value, error, "summary"
    _, values = run.series(metric)
    return (float(values[-1]), np.nan, "row") if len(values) else (np.nan, np.nan, "")


def _number(part: Any, name: str) -> float:
    value = part.get(name) if isinstance(part, Mapping) else None
    return float(value) if type(value) in (int, float) and np.isfinite(value) else np.nan


def _area_range(groups: Sequence[Group], metric: str) -> tuple[float, float] | None:
    """The steps that the curves of all finished runs span, so that areas of different groups are of one range.

    Where none has finished: of all. A run that does not span it has no area.
    """
    runs = [run for group in groups for run in group.runs if len(run.series(metric)[0])]
    runs = [run for run in runs if run.status == "finished"] or runs
    if not runs:
        return None
    spans = [run.series(metric)[0] for run in runs]
    low, high = max(steps[0] for steps in spans), min(steps[-1] for steps in spans)
    return (float(low), float(high)) if low <= high else None


def _outcome(
    group: Group, metric: str, area_range: tuple[float, float] | None, threshold: float | None, at: int | None
) -> Outcome:
    finals = [final_value(run, metric) for run in group.runs]
    final = np.array([value for value, _, _ in finals])
    scores = final[np.isfinite(final)]
    series = [run.series(metric) for run in group.runs]
    areas = np.array([np.nan if area_range is None else statistics.area(*curve, *area_range) for curve in series])
    lower = better(metric) == "lower"
    is_score = metric.rsplit("/", 1)[-1] == "normalized_score"
    return Outcome(
        group=group.label,
        metric=metric,
        final=final,
        final_error=np.array([error for _, error, _ in finals]),
        final_source=tuple(source for _, _, source in finals),
        iqm=statistics.estimate(statistics.iqm, scores),
        mean=statistics.estimate(statistics.mean, scores),
        median=statistics.estimate(statistics.median, scores),
        optimality_gap=statistics.estimate(statistics.optimality_gap, scores) if is_score else None,
        area=areas,
        area_iqm=statistics.estimate(statistics.iqm, areas[np.isfinite(areas)]),
        threshold=threshold,
        steps_to_threshold=None if threshold is None else np.array(
            [statistics.first_reaching(*curve, threshold, lower=lower) for curve in series]),
        at=None if at is None else np.array([at_step(run, metric, at) for run in group.runs]),
    )  # fmt: skip


def _pair(metric: str, first: Outcome, second: Outcome) -> Pair:
    one, two = (outcome.final[np.isfinite(outcome.final)] for outcome in (first, second))
    sign = -1.0 if better(metric) == "lower" else 1.0
    return Pair(
        metric=metric,
        first=first.group,
        second=second.group,
        improvement=statistics.probability_of_improvement(sign * one, sign * two),
        difference=statistics.difference_of_iqm(one, two),
    )


def _profiles(
    groups: Sequence[Group], metrics: Sequence[str], outcomes: Mapping[tuple[str, str], Outcome]
) -> dict[tuple[str, str], Profile]:
    profiles = {}
    for metric in metrics:
        finals = {group.label: outcomes[group.label, metric].final for group in groups}
        finals = {label: found[np.isfinite(found)] for label, found in finals.items()}
        known = np.concatenate(list(finals.values()))
        if not len(known):
            continue
        margin = 0.05 * (np.ptp(known) or abs(known[0]) or 1.0)
        values = np.linspace(known.min() - margin, known.max() + margin, PROFILE_POINTS)
        for label, found in finals.items():
            if len(found):
                profiles[label, metric] = profile(found, values, lower=better(metric) == "lower")
    return profiles


def _differences(
    groups: Sequence[Group], values_of: Callable[[Run], Mapping[str, Any]], order: Sequence[str]
) -> tuple[Difference, ...]:
    """What is not the same in all runs; keys that ``order`` names first, in its order."""
    values = {group.label: [values_of(run) for run in group.runs] for group in groups}
    _, mixed = common([mapping for found in values.values() for mapping in found])
    rank = {key: index for index, key in enumerate(order)}
    keys = sorted(mixed, key=lambda key: rank.get(key, len(rank)))
    return tuple(Difference(key, {label: _one_or_all(key, found) for label, found in values.items()}) for key in keys)


def _one_or_all(key: str, values: Sequence[Mapping[str, Any]]) -> Any:
    different: list[Any] = []
    for mapping in values:
        if mapping and mapping.get(key) not in different:
            different.append(mapping.get(key))
    return tuple(different) if len(different) > 1 else different[0] if different else None


def _warnings(
    groups: Sequence[Group],
    metrics: Sequence[str],
    outcomes: Mapping[tuple[str, str], Outcome],
    pairs: Sequence[Pair],
) -> Iterator[str]:
    yield from caveats.of_groups(groups)
    for group in groups:
        sources = {metric: outcomes[group.label, metric].final_source for metric in metrics}
        yield from caveats.of_finals(group.label, group.runs, sources)
    difference = {(pair.metric, pair.first, pair.second): pair.difference for pair in pairs}
    if len(groups) > PAIRED:
        yield f"{len(groups)} groups: only the first, {groups[0].label}, is compared with each other one by one"
    for first, second in _couples(groups):
        reward, collisions = (difference.get((metric, first.label, second.label)) for metric in (REWARD, COLLISIONS))
        if reward is not None and collisions is not None:
            yield from caveats.of_behaviour(first.label, second.label, reward, collisions)
