"""rliable's own numbers on the resamples that navrl/analysis/statistics.py draws: tests/data/rliable.json.

rliable 1.2.0 needs arch, which does not import beside pandas 3; so the numbers are kept, and this is what made them:

    python3 -m venv V
    V/bin/pip install rliable==1.2.0 'pandas<3' numpy==2.4.6 scipy==1.17.1
    V/bin/python tests/rliable_numbers.py > tests/data/rliable.json
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rliable import library, metrics

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from navrl.analysis import statistics  # noqa: E402

AGGREGATES: dict[str, Callable[[np.ndarray], float]] = {
    "iqm": metrics.aggregate_iqm,
    "mean": metrics.aggregate_mean,
    "optimality_gap": metrics.aggregate_optimality_gap,
    # rliable's is a median over tasks: runs given as tasks, it is the one over runs.
    "median": lambda scores: metrics.aggregate_median(scores.mean(1)[None]),
}


def cases() -> dict[str, np.ndarray]:
    """Runs of one task and of several, with ties, on either side of the reference's score."""
    rng = np.random.default_rng(5)
    return {
        "five seeds": rng.normal(0.9, 0.1, (5, 1)),
        "ten seeds": rng.normal(-7.0, 0.3, (10, 1)),
        "three tasks": rng.normal(0.9, 0.2, (7, 3)),
        "ties": np.array([[0.5], [0.5], [1.0], [1.0], [1.0], [0.2]]),
        "two seeds": np.array([[0.25], [1.5]]),
    }


def couples() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(6)
    return {
        "equal numbers": (rng.normal(0.2, 1, (5, 1)), rng.normal(0, 1, (5, 1))),
        "more of the second": (rng.normal(0.2, 1, (5, 1)), rng.normal(0, 1, (8, 1))),
        "three tasks": (rng.normal(0.2, 1, (5, 3)), rng.normal(0, 1, (6, 3))),
        "ties": (np.array([[1.0], [2.0], [2.0], [3.0]]), np.array([[2.0], [2.0], [3.0], [0.0], [1.0]])),
    }


def same_draws(*scores: np.ndarray) -> None:
    """rliable's bootstrap draws the runs that ours draws: one resample after the other."""
    drawn = [iter(statistics._drawn(*part.shape, stream)) for stream, part in enumerate(scores)]

    def of_one(bootstrap: library.StratifiedBootstrap) -> tuple[np.ndarray, ...]:
        return next(drawn[0]), *bootstrap._strata_indices

    def of_two(bootstrap: library.StratifiedIndependentBootstrap) -> tuple[list, dict]:
        return [(next(indices), *strata) for indices, strata in zip(drawn, bootstrap._args_strata_indices)], {}

    library.StratifiedBootstrap.update_indices = of_one
    library.StratifiedIndependentBootstrap.update_indices = of_two


def estimate(scores: Any, function: Callable[..., float]) -> list[float]:
    """[value, low, high]"""
    points, intervals = library.get_interval_estimates(
        {"group": scores}, lambda *parts: np.array([function(*parts)]), reps=statistics.RESAMPLES
    )
    return [float(points["group"][0]), *intervals["group"][:, 0].tolist()]


def main() -> None:
    found: dict[str, Any] = {
        "versions": {name: importlib.metadata.version(name) for name in ("rliable", "arch", "numpy", "scipy")},
        "resamples": statistics.RESAMPLES,
        "groups": {},
        "couples": {},
    }
    own = (library.StratifiedBootstrap.update_indices, library.StratifiedIndependentBootstrap.update_indices)
    for name, scores in cases().items():
        found["groups"][name] = {"scores": scores.tolist()}
        for title, aggregate in AGGREGATES.items():
            same_draws(scores)
            found["groups"][name][title] = estimate(scores, aggregate)
    for name, (first, second) in couples().items():
        same_draws(first, second)
        numbers = estimate([first, second], metrics.probability_of_improvement)
        found["couples"][name] = {
            "first": first.tolist(),
            "second": second.tolist(),
            "probability_of_improvement": numbers,
        }
    scores, values = cases()["ten seeds"], np.linspace(-8, -6, 21)
    same_draws(scores)
    shares, intervals = library.create_performance_profile({"group": scores}, values, reps=statistics.BAND_RESAMPLES)
    found["profile"] = {"scores": scores.tolist(), "values": values.tolist(), "share": shares["group"].tolist(),
                        "interval": intervals["group"].tolist()}  # fmt: skip
    library.StratifiedBootstrap.update_indices, library.StratifiedIndependentBootstrap.update_indices = own
    np.random.seed(3)  # rliable draws from numpy's global generator
    found["own draws"] = {"scores": scores.tolist(), "iqm": estimate(scores, metrics.aggregate_iqm)}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
