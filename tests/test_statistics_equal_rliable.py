"""Aggregates and their intervals are those of rliable (Agarwal et al. 2021): to 1e-9 on the same resamples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from navrl.analysis import curves, statistics
from navrl.analysis.statistics import Estimate

# Made by tests/rliable_numbers.py with rliable 1.2.0.
THEIRS = json.loads((Path(__file__).parent / "data" / "rliable.json").read_text(encoding="utf-8"))
AGGREGATES = {"iqm": statistics.iqm, "mean": statistics.mean, "median": statistics.median,
              "optimality_gap": statistics.optimality_gap}  # fmt: skip


def equal(found: Estimate, theirs: list[float]) -> bool:
    return np.allclose([found.value, found.low, found.high], theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("case", THEIRS["groups"])
def test_aggregates_of_a_group(case: str, name: str) -> None:
    theirs: dict[str, Any] = THEIRS["groups"][case]
    assert equal(statistics.estimate(AGGREGATES[name], np.array(theirs["scores"])), theirs[name])
    value, low, high = theirs[name]
    assert low <= value <= high and low < high, "a case that says something"


@pytest.mark.parametrize("case", THEIRS["couples"])
def test_probability_of_improvement(case: str) -> None:
    theirs = THEIRS["couples"][case]
    first, second = np.array(theirs["first"]), np.array(theirs["second"])
    found = statistics.probability_of_improvement(first, second)
    assert equal(found, theirs["probability_of_improvement"])


def test_performance_profiles() -> None:
    theirs = THEIRS["profile"]
    found = curves.profile(np.array(theirs["scores"])[:, 0], np.array(theirs["values"]))
    np.testing.assert_allclose(found.share, theirs["share"], rtol=0, atol=1e-9)
    np.testing.assert_allclose([found.low, found.high], theirs["interval"], rtol=0, atol=1e-9)
    assert len(set(theirs["share"])) > 5, "a case that says something"


def test_their_own_resamples_give_the_same_interval_within_chance() -> None:
    value, low, high = THEIRS["own draws"]["iqm"]
    found = statistics.estimate(statistics.iqm, np.array(THEIRS["own draws"]["scores"]))
    assert found.value == pytest.approx(value, abs=1e-9)
    # An end of the interval has a standard error of about 0.004 with 10 000 resamples.
    assert found.low == pytest.approx(low, abs=0.03) and found.high == pytest.approx(high, abs=0.03)
    assert high - low > 0.2


def test_the_mean_and_its_interval_are_those_of_scipy() -> None:
    scores = np.array(THEIRS["groups"]["ten seeds"]["scores"])[:, 0]
    found = statistics.estimate(statistics.mean, scores)
    theirs = scipy.stats.bootstrap((scores,), np.mean, method="percentile", n_resamples=20_000, rng=1)
    assert found.low == pytest.approx(theirs.confidence_interval.low, abs=0.02)
    assert found.high == pytest.approx(theirs.confidence_interval.high, abs=0.02)
