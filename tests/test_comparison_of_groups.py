"""The comparison as one value: finals, areas, pairs and differences by hand, and what holds for any runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from navrl.analysis import comparison as module
from navrl.analysis import tables
from navrl.analysis.comparison import PAIRED, Comparison, compare
from navrl.analysis.records import LeftOut, Run
from synthetic_runs import make_run

SCORE = "eval/normalized_score"
VALUE = st.one_of(st.floats(-100, 100).map(lambda value: round(value, 3)), st.just(float("nan")), st.just(float("inf")))
RUN = st.dictionaries(st.integers(0, 300), VALUE, min_size=1, max_size=8)
GROUPS = st.lists(st.lists(RUN, min_size=1, max_size=4), min_size=1, max_size=3)


def runs_of(found: list[list[dict[int, float]]], metric: str = "m") -> list[Run]:
    return [make_run(f"g{group}", seed, points, metric=metric)
            for group, members in enumerate(found) for seed, points in enumerate(members)]  # fmt: skip


def plain(value: Any) -> Any:
    """Arrays and NaN made comparable."""
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return plain(vars(value)) if hasattr(value, "__dataclass_fields__") else value


def of(comparison: Comparison, label: str) -> list[Any]:
    """Everything that a comparison says of one group alone."""
    return [plain({key: part for key, part in found.items() if key[0] == label})
            for found in (comparison.outcomes, comparison.curves)]  # fmt: skip


def test_finals_come_from_the_final_evaluation_and_else_from_the_last_row() -> None:
    whole = make_run("g", 1, {0: 0.1, 100: 0.8}, metric=SCORE, final=0.95)
    young = make_run("g", 2, {0: 0.1, 50: 0.6, 60: float("nan")}, metric=SCORE, status="running")
    none = make_run("g", 3, {0: 1.0}, metric="other")
    outcome = compare([whole, young, none], [SCORE]).outcomes["g", SCORE]
    np.testing.assert_array_equal(outcome.final, [0.95, 0.6, np.nan])
    np.testing.assert_array_equal(outcome.final_error, [0.01, np.nan, np.nan])
    assert outcome.final_source == ("summary", "row", "")
    assert outcome.mean.value == pytest.approx(0.775) and outcome.optimality_gap.value == pytest.approx(1 - 0.775)


def test_layer_1_has_no_final_evaluation() -> None:
    run = make_run("g", 1, {0: 2.0, 100: 0.5}, metric="train/entropy")
    run.summary["final"] = {"mean": {"entropy": 9.0}, "standard_error": {}}
    outcome = compare([run], ["train/entropy"]).outcomes["g", "train/entropy"]
    assert outcome.final.tolist() == [0.5] and outcome.final_source == ("row",) and outcome.optimality_gap is None


@pytest.mark.parametrize("final", ["damaged", {"mean": 3}, {"mean": {"normalized_score": "NaN"}}, {"mean": {}}, None])
def test_a_damaged_summary_leaves_the_rows(final: Any) -> None:
    run = make_run("g", 1, {0: 0.1, 100: 0.8}, metric=SCORE)
    run.summary["final"] = final
    assert compare([run], [SCORE]).outcomes["g", SCORE].final.tolist() == [0.8]


def test_areas_are_over_the_steps_that_all_finished_runs_span() -> None:
    one, two = make_run("a", 1, {0: 0.0, 100: 1.0, 200: 1.0}), make_run("b", 1, {50: 0.0, 150: 2.0})
    young = make_run("b", 2, {0: 0.0, 75: 1.0}, status="running")
    found = compare([one, two, young], ["m"])
    assert found.area_range == {"m": (50, 150)}
    assert found.outcomes["a", "m"].area.tolist() == [pytest.approx((0.5 * (0.5 + 1) / 2 * 100 + 50) / 100)]
    np.testing.assert_array_equal(found.outcomes["b", "m"].area, [1.0, np.nan])
    running = compare([young], ["m"])
    assert running.area_range == {"m": (0, 75)} and running.outcomes["b", "m"].area.tolist() == [0.5]
    apart = compare([make_run("a", 1, {0: 0.0, 10: 1.0}), make_run("b", 1, {20: 0.0, 30: 1.0})], ["m"])
    assert apart.area_range == {} and np.isnan(apart.outcomes["a", "m"].area).all()


def test_thresholds_and_values_at_a_step() -> None:
    runs = [make_run("g", seed, points, metric=SCORE) for seed, points in
            enumerate(({0: 0.1, 100: 0.95}, {0: 0.1, 100: 0.5, 200: 0.91}, {0: 0.2, 50: 0.3}))]  # fmt: skip
    outcome = compare(runs, [SCORE], at=100).outcomes["g", SCORE]
    assert outcome.threshold == 0.9 and outcome.steps_to_threshold.tolist() == [100, 200, np.inf]
    np.testing.assert_array_equal(outcome.at, [0.95, 0.5, np.nan])
    low = compare([make_run("g", 1, {0: 3.0, 9: 1.0}, metric="eval/collision_count")], ["eval/collision_count"],
                  thresholds={"eval/collision_count": 2.0}).outcomes["g", "eval/collision_count"]  # fmt: skip
    assert low.steps_to_threshold.tolist() == [9] and low.at is None
    assert compare(runs, [SCORE], thresholds={}).outcomes["g", SCORE].steps_to_threshold is None


def test_the_middle_of_steps_to_a_threshold_is_a_step_or_never() -> None:
    assert tables.middle_steps(np.array([300.0, 100.0, 200.0])) == 200
    assert tables.middle_steps(np.array([100.0, np.inf, 200.0, np.nan])) == 200
    assert tables.middle_steps(np.array([100.0, np.inf, 200.0, np.inf])) == np.inf
    assert math.isnan(tables.middle_steps(np.array([np.nan])))
    runs = [make_run("g", seed, {0: 0.1, 100: value}, metric=SCORE) for seed, value in enumerate((0.95, 0.2, 0.3))]
    assert tables.reached(compare(runs, [SCORE]).outcomes["g", SCORE]) == "never (1 of 3)"


def test_pairs_know_which_direction_is_better() -> None:
    for metric, first_is_better in (
        ("eval/episode_reward", 1.0),
        ("eval/collision_count", 0.0),
        ("eval/average_speed", 1.0),
    ):
        runs = [make_run(label, seed, {0: value + seed / 100}, metric=metric)
                for label, value in (("high", 2.0), ("low", 1.0)) for seed in range(5)]  # fmt: skip
        (pair,) = compare(runs, [metric]).pairs
        assert (pair.first, pair.second) == ("high", "low") and pair.improvement.value == first_is_better
        assert pair.difference.value == pytest.approx(1.0), "in the metric's unit, whatever is better"


def test_of_many_groups_the_first_is_compared_with_each() -> None:
    few = [make_run(f"g{index}", 1, {0: 1.0}) for index in range(PAIRED)]
    assert len(compare(few, ["m"]).pairs) == PAIRED * (PAIRED - 1) // 2
    found = compare([*few, make_run("last", 1, {0: 1.0})], ["m"])
    assert [(pair.first, pair.second) for pair in found.pairs] == [("g0", group.label) for group in found.groups[1:]]
    assert f"{PAIRED + 1} groups: only the first, g0, is compared with each other one by one" in found.warnings


def test_differences_between_and_inside_groups() -> None:
    runs = [make_run("a", 1, {0: 1.0}, metadata={"git_commit": "x", "versions": {"torch": "1"}}),
            make_run("b", 1, {0: 1.0}, lr=1e-3, metadata={"git_commit": "y", "versions": {"torch": "1"}}),
            make_run("b", 2, {0: 1.0}, lr=2e-3, metadata={"git_commit": "y", "versions": {"torch": "1"}})]  # fmt: skip
    found = compare(runs, ["m"])
    assert [(part.key, part.values) for part in found.config] == [
        ("lr", {"a": 5e-4, "b": (1e-3, 2e-3)}), ("critic_lr", {"a": 5e-4, "b": (1e-3, 2e-3)})]  # fmt: skip
    assert [(part.key, part.values) for part in found.metadata] == [("git_commit", {"a": "x", "b": "y"})]


def test_metrics_that_no_run_has_are_dropped_and_nothing_is_refused() -> None:
    found = compare([make_run("g", 1, {0: 1.0})], ["m", "nope", "m"], left_out=[LeftOut("x", "empty")])
    assert found.metrics == ("m",) and found.left_out == (LeftOut("x", "empty"),)
    nothing = compare([make_run("g", 1, {0: float("nan")})], ["m"])
    assert nothing.metrics == () and nothing.pairs == () and nothing.curves == {}
    with pytest.raises(ValueError, match="nothing to compare"):
        compare([], ["m"])


def test_curves_along_every_axis_that_was_asked_for() -> None:
    found = compare(
        [make_run("g", 1, {0: 1.0, 100: 2.0})], ["m"], axes=("step", "episodes", "time"), band="std", smooth=5
    )
    assert {axis: curve.positions.tolist() for (_, _, axis), curve in found.curves.items()} == {
        "step": [0, 100], "episodes": [0, 4], "time": [0, 1]}  # fmt: skip
    assert (found.band, found.smooth) == ("std", 5)


@settings(max_examples=25, deadline=None)
@given(GROUPS, st.randoms(use_true_random=False))
def test_the_order_of_runs_changes_nothing(found: list[list[dict[int, float]]], random: Any) -> None:
    runs = runs_of(found)
    mixed = runs.copy()
    random.shuffle(mixed)
    one, two = compare(runs, ["m"]), compare(mixed, ["m"])
    assert one.metrics == two.metrics and sorted(one.warnings) == sorted(two.warnings)
    for group in one.groups:
        assert of(one, group.label) == of(two, group.label)


@settings(max_examples=25, deadline=None)
@given(GROUPS)
def test_what_holds_for_any_runs(found: list[list[dict[int, float]]]) -> None:
    comparison = compare(runs_of(found), ["m"], at=100)
    assert plain(comparison.outcomes) == plain(compare(runs_of(found), ["m"], at=100).outcomes), (
        "the same figures again"
    )
    for group, members in zip(comparison.groups, found):
        if not comparison.metrics:
            assert not any(np.isfinite(list(points.values())).any() for points in members)
            continue
        outcome = comparison.outcomes[group.label, "m"]
        lasts = []
        for points in members:
            whole = [points[step] for step in sorted(points) if math.isfinite(points[step])]
            lasts.append(whole[-1] if whole else math.nan)
        np.testing.assert_array_equal(outcome.final, lasts)
        known = outcome.final[np.isfinite(outcome.final)]
        if len(known):
            assert known.min() - 1e-9 <= outcome.iqm.value <= known.max() + 1e-9
        assert math.isnan(outcome.iqm.low) == (len(known) < 2), "an interval from two runs on"
        assert math.isnan(outcome.iqm.value) == (not len(known))
        bad = [not all(map(math.isfinite, points.values())) for points in members]
        said = [line for line in comparison.warnings if line.startswith(f"{group.label}: m has rows that are NaN")]
        assert len(said) == any(bad)


@settings(max_examples=30, deadline=None)
@given(st.lists(RUN, min_size=2, max_size=4), st.data())
def test_rows_that_are_not_there_and_rows_that_are_nan_are_one_thing(found: list[dict[int, float]], data: Any) -> None:
    without = [{step: value for step, value in points.items() if math.isfinite(value)} for points in found]
    if not all(without):
        return
    ends = [max(points) for points in without]  # a run's last row stays: it says how far the run came
    with_nan = [{step: value for step, value in points.items() if step <= end} for points, end in zip(found, ends)]
    one, two = (compare(runs_of([members]), ["m"], at=100) for members in (with_nan, without))
    assert of(one, "g0") == of(two, "g0")


@pytest.mark.parametrize("value", [0.0, -3.5])
def test_a_constant_metric(value: float) -> None:
    runs = [make_run(label, seed, {0: value, 10: value}) for label in ("a", "b") for seed in range(3)]
    found = compare(runs, ["m"])
    outcome = found.outcomes["a", "m"]
    for estimate in (outcome.iqm, outcome.mean, outcome.median, outcome.area_iqm):
        assert (estimate.value, estimate.low, estimate.high) == (value, value, value)
    (pair,) = found.pairs
    assert (pair.improvement.value, pair.improvement.low, pair.improvement.high) == (0.5, 0.5, 0.5)
    assert pair.difference.value == 0.0
    profile = found.profiles["a", "m"]
    assert set(profile.share.tolist()) == {0.0, 1.0} and (np.diff(profile.values) > 0).all()


def test_one_seed_has_figures_and_no_intervals() -> None:
    found = compare([make_run("a", 1, {0: 1.0, 10: 2.0}), make_run("b", 1, {0: 1.0, 10: 3.0})], ["m"])
    for estimate in (found.outcomes["a", "m"].iqm, found.pairs[0].improvement, found.pairs[0].difference):
        assert math.isfinite(estimate.value) and math.isnan(estimate.low) and math.isnan(estimate.high)
    assert np.isnan(found.curves["a", "m", "step"].low).all() and found.curves["a", "m", "step"].mean.tolist() == [
        1.0,
        2.0,
    ]
    assert np.isnan(found.profiles["a", "m"].low).all()


def test_every_metric_that_is_compared_by_default_is_one_that_navrl_records() -> None:
    from navrl.metrics.summary import BEHAVIOUR_METRICS, TASK_METRICS

    known = {*TASK_METRICS, *BEHAVIOUR_METRICS}
    assert {metric.removeprefix("eval/") for metric in module.DEFAULT_METRICS} <= known
    assert not module.HIGHER & module.LOWER
