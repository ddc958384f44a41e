"""One conversion of whatever a loop logs into plain Python numbers, done once for every tracker.

Torch and numpy are never imported: their scalars and arrays are known by `.item()`, `.tolist()` and `.ndim`.
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any

LONGEST_VECTOR = 16
_INT64 = 2**63
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def plain(value: Any) -> Any:
    """A number, 0-d array or array as int, float, str, None or (nested) list; anything else comes back as it is.

    bool becomes 0 or 1; an integer that 64 bits cannot hold becomes a float, which trackers take.
    """
    if value is None or isinstance(value, str):
        return value
    if hasattr(value, "tolist"):                  # numpy and torch, any precision, any device
        value = value.detach().tolist() if hasattr(value, "detach") else value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Integral):
        value = int(value)
        if -_INT64 <= value < _INT64:
            return value
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, Real) or type(value).__name__ == "Decimal":
        return float(value)
    return value


def scalars(metrics: Mapping[str, Any]) -> tuple[dict[str, int | float], dict[str, str]]:
    """Split what was logged into curves and what cannot be one.

    Returns (`{name: number}`, `{name: why it is no curve}`). A vector of up to 16 numbers becomes `name_0`, `name_1`,
    ... Order is kept. None means absent and is left out without a reason. Never raises.
    """
    curves: dict[str, int | float] = {}
    refused: dict[str, str] = {}
    for name, value in metrics.items():
        name = str(name)
        try:
            value = plain(value)
        except Exception as error:                # a broken array must not stop a run
            refused[name] = f"{type(value).__name__} that cannot be read ({error})"
            continue
        if value is None:
            continue
        if isinstance(value, (int, float)):
            curves[name] = value
        elif isinstance(value, list):
            if not all(isinstance(item, (int, float)) for item in value):
                refused[name] = "an array of more than one dimension, or not of numbers"
            elif len(value) > LONGEST_VECTOR:
                refused[name] = f"{len(value)} numbers (a vector of up to {LONGEST_VECTOR} becomes curves)"
            else:
                curves.update({f"{name}_{i}": item for i, item in enumerate(value)})
        else:
            refused[name] = f"a {type(value).__name__}, not a number"
    return curves, refused


def json_ready(value: Any) -> Any:
    """`value` as what strict JSON can hold: non-finite numbers as "NaN", "Infinity", "-Infinity", paths as text."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return [json_ready(item) for item in sorted(value, key=str)]
    if isinstance(value, PurePath):
        return str(value)
    value = plain(value)
    if isinstance(value, list):
        return [json_ready(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (int, float, str)):
        return value
    return str(value)


def from_json(value: Any) -> Any:
    """The number that a string such as "NaN" stands for; everything else unchanged."""
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value


def flat(values: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by dots; empty where `values` is no mapping."""
    if not isinstance(values, Mapping):
        return {}
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found
