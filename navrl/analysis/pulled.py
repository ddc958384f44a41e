"""What a tracker holds of a run, made into the parts of a ``Run``: the same for every tracker."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from navrl import yaml_io
from navrl.analysis.records import BASE_COLUMNS, LeftOut, Run
from navrl.config import recorded
from navrl.faults import ConfigError
from navrl.tracking.client import ClientError
from navrl.tracking.convert import json_ready

Points = Mapping[str, Mapping[int, float]]  # metric -> environment step -> value


def run_of(
    *, source: str, group: str, name: str, seed: int | None, status: str, config: dict[str, Any],
    metadata: dict[str, Any], outcome: dict[str, Any], points: Points, wanted: Sequence[str] | None,
) -> Run | LeftOut:  # fmt: skip
    """A run with one row for each step that has a ``time``: every row has one, and nothing else that is sent.

    wanted: its columns, ``BASE_COLUMNS`` first; None: those and every metric of ``points``.
    """
    steps = sorted(points.get("time", ()))
    if not steps:
        return LeftOut(source, "it holds no row yet")
    columns, non_finite = {"step": np.asarray(steps, dtype=float)}, {}
    for metric in dict.fromkeys((*BASE_COLUMNS[1:], *sorted(points))) if wanted is None else wanted[1:]:
        values = points.get(metric, {})
        columns[metric] = np.asarray([values.get(step, np.nan) for step in steps], dtype=float)
        if bad := sum(step in values and not np.isfinite(values[step]) for step in steps):
            non_finite[metric] = bad
    seed = config.get("seed", metadata.get("seed", seed))
    return Run(source=source, group=group, name=name, seed=seed if type(seed) is int else None, status=status,
               config=config, metadata=metadata, summary={"status": status} | outcome, columns=columns,
               non_finite=non_finite)  # fmt: skip


def outcome(values: Mapping[str, Any], sections: Mapping[str, str]) -> dict[str, Any]:
    """``final`` and ``best`` as ``summary.json`` has them, out of ``SECTION/mean.METRIC`` and the like.

    sections: part of the summary -> its section in the tracker.
    """
    found: dict[str, Any] = {}
    for part, section in sections.items():
        for key, value in values.items():
            place, _, rest = key.partition("/")
            if place != section:
                continue
            inner, dot, metric = rest.partition(".")
            if dot:
                found.setdefault(part, {}).setdefault(inner, {})[metric] = json_ready(value)
            else:
                found.setdefault(part, {})[inner] = int(value) if inner in ("step", "episodes") else json_ready(value)
    return found


def config_in(path: Path | None) -> dict[str, Any]:
    """``config.yaml`` as a tracker gave it back; {} where it gave none."""
    try:
        return recorded(yaml_io.read(path).values) if path else {}
    except (ConfigError, OSError, ValueError):
        return {}


def metadata_in(path: Path | None) -> dict[str, Any]:
    """``metadata.json`` as a tracker gave it back; {} where it gave none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def missing(what: str, name: str, known: Iterable[str]) -> ClientError:
    """That there is no such experiment, project or group, and which come nearest."""
    known = sorted(set(known))
    nearest = difflib.get_close_matches(name, known, n=3, cutoff=0.0)
    return ClientError(f"there is no {what} {name!r}; " + (f"nearest: {', '.join(nearest)}" if nearest else
                                                           f"there is no {what} at all"))
