"""Policies that played the same episodes: their differences, whose errors are small because they are paired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def difference(values: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Mean over episodes of ``values - base`` of each metric that both have, and its standard error.

    values, base: metric -> one value an episode ``[E]``, of the same episodes in the same order. The standard error is
    s / √E with s the standard deviation (n − 1) of the differences; absent below two episodes.
    """
    changes = {name: values[name] - base[name] for name in values if name in base}
    errors = {name: standard_error(change) for name, change in changes.items() if len(change) > 1}
    return {"mean": {name: float(change.mean()) for name, change in changes.items()}, "standard_error": errors}


def standard_error(values: Any) -> float:
    """Of the mean of ``[E]`` values, E > 1."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))
