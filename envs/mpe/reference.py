"""What random play and the reference controller score in a task setting: the 0 and 1 of ``normalized_score``.

The figures lie in ``reference_scores.json``; ``scripts/measure_reference.py`` measures them again.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from envs.base import TaskSpec

PATH = Path(__file__).with_name("reference_scores.json")
# What a figure was measured for; every other setting must have the value that it had then.
MEASURED_BY = ("num_agents", "local_ratio", "max_cycles", "continuous_actions")
MEASURED_AT = {
    "terminate_on_success": False, "num_agent_neighbors": None, "num_landmark_neighbors": None, "curriculum": False,
}  # fmt: skip


@functools.cache
def _table() -> dict[tuple[Any, ...], dict[str, Any]]:
    rows = json.loads(PATH.read_text(encoding="utf-8"))["scores"]
    return {tuple(row[key] for key in MEASURED_BY): row for row in rows}


def measured(spec: TaskSpec) -> dict[str, Any] | None:
    """The whole entry of this very setting, or None where it was not measured.

    ``random`` and ``reference`` are each ``{"mean", "stderr", "episodes"}``: episode reward (scale A).
    """
    settings = spec.settings
    if spec.env_id != "simple_spread" or any(settings.get(key) != value for key, value in MEASURED_AT.items()):
        return None
    return _table().get(tuple(settings.get(key) for key in MEASURED_BY))


def scores(spec: TaskSpec) -> dict[str, float] | None:
    """``{"random": ..., "reference": ...}``, mean episode rewards, or None for a setting that was not measured."""
    entry = measured(spec)
    return entry and {name: entry[name]["mean"] for name in ("random", "reference")}
