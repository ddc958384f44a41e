"""Statistics over seeds: against plain loops, and what holds for any scores."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from navrl.analysis import statistics

SCORE = st.floats(-1e3, 1e3).map(lambda value: round(value, 3))
SCORES = st.integers(1, 9).flatmap(lambda runs: arrays(float, runs, elements=SCORE))
AGGREGATES = (statistics.iqm, statistics.mean, statistics.median, statistics.optimality_gap)


def iqm_by_hand(scores: list[float]) -> float:
    cut = len(scores) // 4
    kept = sorted(scores)[cut : len(scores) - cut]
    return sum(kept) / len(kept)


@given(SCORES)
def test_the_interquartile_mean_of_a_plain_loop(scores: np.ndarray) -> None:
    assert statistics.iqm(scores[:, None]) == pytest.approx(iqm_by_hand(scores.tolist()), abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(SCORES, SCORES)
def test_the_probability_of_improvement_counts_pairs(first: np.ndarray, second: np.ndarray) -> None:
    pairs = list(itertools.product(first.tolist(), second.tolist()))
    by_hand = sum((one > two) + 0.5 * (one == two) for one, two in pairs) / len(pairs)
    found = statistics.probability_of_improvement(first, second)
    assert found.value == pytest.approx(by_hand, abs=1e-12)
    assert statistics.probability_of_improvement(second, first).value == pytest.approx(1 - by_hand, abs=1e-12)
    assert np.isnan(found.low) if min(len(first), len(second)) < 2 else 0 <= found.low <= found.high <= 1


@settings(max_examples=25, deadline=None)
@given(SCORES, st.randoms(use_true_random=False))
def test_what_holds_for_any_scores(scores: np.ndarray, random) -> None:  # noqa: ANN001
    for aggregate in AGGREGATES:
        found = statistics.estimate(aggregate, scores)
        assert found == statistics.estimate(aggregate, scores) or len(scores) == 1, "equal scores, equal figures"
        shuffled = scores.tolist()
        random.shuffle(shuffled)
        assert statistics.estimate(aggregate, np.array(shuffled)).value == pytest.approx(found.value, abs=1e-9)
        if len(scores) == 1:
            assert np.isnan([found.low, found.high]).all(), "one seed has no interval"
        else:
            assert found.low <= found.high
        if aggregate is not statistics.optimality_gap:
            assert scores.min() - 1e-9 <= found.value <= scores.max() + 1e-9
            moved = statistics.estimate(aggregate, scores * 2 + 3)
            np.testing.assert_allclose(
                [moved.value, moved.low, moved.high],
                [found.value * 2 + 3, found.low * 2 + 3, found.high * 2 + 3],
                atol=1e-8,
            )


@pytest.mark.parametrize("value", [0.0, -7.25, 1.5])
def test_a_constant_has_an_interval_of_no_width(value: float) -> None:
    for aggregate in (statistics.iqm, statistics.mean, statistics.median):
        found = statistics.estimate(aggregate, np.full(5, value))
        assert (found.value, found.low, found.high) == (value, value, value)
    gap = statistics.estimate(statistics.optimality_gap, np.full(5, value))
    assert (gap.value, gap.low, gap.high) == (max(1 - value, 0.0),) * 3
    same = statistics.probability_of_improvement(np.full(5, value), np.full(3, value))
    assert (same.value, same.low, same.high) == (0.5, 0.5, 0.5)


def test_nothing_has_no_figure() -> None:
    for found in (statistics.estimate(statistics.iqm, np.empty(0)),
                  statistics.probability_of_improvement(np.empty(0), np.ones(3))):  # fmt: skip
        assert np.isnan([found.value, found.low, found.high]).all()


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        found = statistics.estimate(statistics.mean, rng.normal(3.0, 1.0, 20))
        hits += found.low <= 3.0 <= found.high
    assert 175 <= hits <= 199, "95 % of 200 is 190; the percentile interval of 20 values is a little narrow"


def test_a_difference_of_interquartile_means() -> None:
    rng = np.random.default_rng(2)
    first, second = np.sort(rng.normal(1, 1, 8)), np.sort(rng.normal(0, 1, 8))  # alike in order: equal draws would show
    found = statistics.difference_of_iqm(first, second)
    assert found.value == pytest.approx(iqm_by_hand(first.tolist()) - iqm_by_hand(second.tolist()))
    own = np.random.default_rng(7)
    draws = [iqm_by_hand(own.choice(first, 8).tolist()) - iqm_by_hand(own.choice(second, 8).tolist())
             for _ in range(4000)]  # fmt: skip
    low, high = np.percentile(draws, [2.5, 97.5])
    assert found.low == pytest.approx(low, abs=0.1) and found.high == pytest.approx(high, abs=0.1)
    assert found.low < found.value < found.high


def test_resamples_of_two_groups_are_independent() -> None:
    scores = np.random.default_rng(0).normal(size=(8, 1))
    one, two = (statistics.resample(scores, stream).mean((1, 2)) for stream in (0, 1))
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.05


def test_many_seeds_take_no_more_memory_than_their_resamples() -> None:
    rng = np.random.default_rng(0)
    tracemalloc.start()
    found = statistics.probability_of_improvement(rng.normal(0.2, 1, 200), rng.normal(0, 1, 200))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.4 < found.low < found.value < found.high < 0.7
    assert peak < 3e8, "10 000 resamples of 200 x 200 pairs would be 3.2 GB"


def test_each_task_is_resampled_on_its_own() -> None:
    scores = np.array([[0.0, 10.0], [1.0, 11.0], [2.0, 12.0]])
    drawn = statistics.resample(scores)
    assert set(np.unique(drawn[..., 0])) == {0, 1, 2} and set(np.unique(drawn[..., 1])) == {10, 11, 12}
    assert not (drawn[..., 0] + 10 == drawn[..., 1]).all()


def test_the_band_is_the_bootstrap_of_each_point() -> None:
    values = np.random.default_rng(1).normal(size=(5, 7))
    low, high = statistics.mean_band(values)
    for point in range(7):
        means = statistics.resample(values[:, point, None])[: statistics.BAND_RESAMPLES].mean((1, 2))
        np.testing.assert_allclose([low[point], high[point]], np.percentile(means, [2.5, 97.5]), atol=1e-9)


def test_the_area_is_that_of_trapezoids_over_its_width() -> None:
    positions, values = np.array([0.0, 10.0, 30.0]), np.array([0.0, 2.0, 4.0])
    assert statistics.area(positions, values, 0, 30) == pytest.approx((10 * 1 + 20 * 3) / 30)
    assert statistics.area(positions, values, 5, 20) == pytest.approx((5 * 1.5 + 10 * 2.5) / 15), "ends interpolated"
    assert statistics.area(positions, values, 10, 10) == 2.0, "one point: its height"
    assert np.isnan(statistics.area(positions, values, 0, 31)) and np.isnan(
        statistics.area(positions[1:], values[1:], 0, 30)
    )
    assert np.isnan(statistics.area(np.empty(0), np.empty(0), 0, 1))


@given(st.lists(st.tuples(st.integers(0, 1000), SCORE), min_size=2, max_size=20, unique_by=lambda point: point[0]))
def test_the_area_of_any_curve_is_the_mean_of_its_fine_interpolation(points: list[tuple[int, float]]) -> None:
    positions, values = (np.array(part, dtype=float) for part in zip(*sorted(points)))
    low, high = positions[0], positions[-1]
    whole = np.arange(low, high + 1)
    fine = np.interp(whole, positions, values)
    by_hand = sum((fine[:-1] + fine[1:]) / 2) / (high - low)
    assert statistics.area(positions, values, low, high) == pytest.approx(by_hand, abs=1e-6)


def test_steps_to_a_threshold() -> None:
    steps, values = np.array([0.0, 10.0, 20.0, 30.0]), np.array([0.1, 0.95, 0.5, 0.9])
    assert statistics.first_reaching(steps, values, 0.9) == 10
    assert statistics.first_reaching(steps, values, 0.99) == np.inf
    assert statistics.first_reaching(steps, values, 0.5, lower=True) == 0
    assert statistics.first_reaching(steps, values[::-1], 0.1, lower=True) == 30
    assert np.isnan(statistics.first_reaching(np.empty(0), np.empty(0), 0.9))
