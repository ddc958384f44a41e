"""Runs as comparisons read them: plain values out of local records, and what was left out and why.

A record is read whatever its state: running, resumed, crashed, cut short in a row. One that cannot be understood is
left out with its reason and never ends the comparison of the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from navrl import yaml_io
from navrl.config import recorded
from navrl.faults import ConfigError
from navrl.tracking.record import EVENTS, METRICS, SUMMARY, RecordError, parse_lines, read_summary

# What every Run has beside the metrics that were asked for.
BASE_COLUMNS = ("step", "time", "train/episode_count")
# Below this many bytes of rows a second process costs more than it saves.
WORTH_A_PROCESS = 2**25
_NON_FINITE = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


@dataclass(frozen=True)
class Run:
    """One run, from a local record or a tracker.

    source: its directory, or the tracker's name for it. group, name: as its directories (or the tracker) spell them.
    seed: None where it is not known. status: running, finished, interrupted, failed or crashed.
    config: flat resolved values ({} where lost); metadata and summary: layer 4 and the outcome, as recorded.
    columns: float64 arrays of one length, one entry a row in order of steps: ``step`` (environment steps), ``time``
        (seconds since the run's start), ``train/episode_count``, and each metric that was asked for; NaN where a row
        lacks it or holds no number. non_finite: metric -> rows whose recorded value is NaN or infinite.
    """

    source: str
    group: str
    name: str
    seed: int | None
    status: str
    config: dict[str, Any]
    metadata: dict[str, Any]
    summary: dict[str, Any]
    columns: dict[str, np.ndarray]
    non_finite: dict[str, int] = field(default_factory=dict)

    def series(self, metric: str, axis: str = "step") -> tuple[np.ndarray, np.ndarray]:
        """(positions on ``axis``, values) of the rows that hold a finite value of the metric."""
        values = self.columns.get(metric, np.empty(0))
        kept = np.isfinite(values)
        return self.columns[axis][: len(values)][kept], values[kept]


@dataclass(frozen=True)
class LeftOut:
    """A place that gave no run, and why, in a few words."""

    source: str
    reason: str


def find(paths: Iterable[Path]) -> tuple[list[Path], list[LeftOut]]:
    """Run directories at or below each path (a run, a group, a project or a runs root), sorted, each once.

    A directory is a run's where it holds ``metrics.jsonl``, and where another file of a record is in it and no run below;
    then ``load`` leaves it out.
    """
    found: dict[Path, None] = {}
    left_out = []
    for path in paths:
        path = Path(path).resolve()
        if not path.is_dir():
            left_out.append(LeftOut(str(path), "no such directory" if not path.exists() else "it is no directory"))
            continue
        here = _runs_below(path, depth=3)
        if not here:
            left_out.append(LeftOut(str(path), "no run here (a run directory holds metrics.jsonl)"))
        found |= dict.fromkeys(here)
    return list(found), left_out


def _runs_below(path: Path, depth: int) -> list[Path]:
    if (path / METRICS).is_file() or depth == 0:
        return [path] if _is_run(path) else []
    below = [run for child in sorted(path.iterdir()) if child.is_dir() for run in _runs_below(child, depth - 1)]
    return below or ([path] if _is_run(path) else [])


def load(directories: Sequence[Path], metrics: Iterable[str]) -> tuple[list[Run], list[LeftOut]]:
    """The runs of these directories, in their order, with the columns of ``metrics`` alone.

    What a run's rows take in memory is a few columns, whatever else its rows hold. Files are parsed in two processes
    where there is much of them.
    """
    wanted = tuple(dict.fromkeys((*BASE_COLUMNS, *metrics)))
    jobs = [(directory, wanted) for directory in directories]
    size = sum(_size(directory / METRICS) for directory in directories)
    if size > WORTH_A_PROCESS and len(jobs) > 1:
        with ProcessPoolExecutor(2) as pool:
            results = list(pool.map(_load_one, jobs, chunksize=max(1, len(jobs) // 16)))
    else:
        results = [_load_one(job) for job in jobs]
    return [r for r in results if isinstance(r, Run)], [r for r in results if isinstance(r, LeftOut)]


def metric_names(directories: Iterable[Path]) -> set[str]:
    """Every metric that the first or the last rows of these runs name; "step" and "time" are none."""
    names: set[str] = set()
    for directory in directories:
        try:
            with open(directory / METRICS, "rb") as file:
                head = file.read(2**16)
                file.seek(max(0, _size(directory / METRICS) - 2**16))
                tail = file.read()
        except OSError:
            continue
        for line in (*head.splitlines(), *tail.splitlines()):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            names |= row.keys() if isinstance(row, dict) else set()
    return names - {"step", "time"}


def metadata_of(directory: Path) -> dict[str, Any]:
    """``metadata.json`` of a run; {} where it is lost or damaged, for the rows are still good."""
    try:
        value = json.loads((directory / "metadata.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def config_of(directory: Path) -> dict[str, Any]:
    """``config.yaml`` of a run, as it is written there; {} where it is lost or damaged."""
    try:
        return recorded(yaml_io.read(directory / "config.yaml").values)
    except (ConfigError, OSError, ValueError):
        return {}


def _is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in (METRICS, SUMMARY, "metadata.json")) or (path / EVENTS).is_file()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _load_one(job: tuple[Path, tuple[str, ...]]) -> Run | LeftOut:
    directory, wanted = job
    try:
        data = (directory / METRICS).read_bytes()
        rows = _rows(data, wanted)
        if not rows:
            return LeftOut(str(directory), f"{METRICS} holds no " + ("readable row" if data else "row yet"))
        columns, non_finite = _columns(rows, wanted)
        summary = read_summary(directory)
        metadata = metadata_of(directory)
        config = config_of(directory)
    except FileNotFoundError:
        return LeftOut(str(directory), f"no {METRICS}")
    except (RecordError, OSError, ValueError) as error:
        return LeftOut(str(directory), str(error).partition("\n")[0])
    seed = config.get("seed", metadata.get("seed"))
    return Run(
        source=str(directory), group=directory.parent.name, name=directory.name,
        seed=seed if type(seed) is int else None, status=str(summary.get("status", "crashed")),
        config=config, metadata=metadata, summary=summary, columns=columns, non_finite=non_finite,
    )  # fmt: skip


def _rows(data: bytes, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
    """The wanted values of each row, None where it lacks one. RecordError as ``parse_lines`` raises it."""
    try:
        rows = [tuple(map(orjson.loads(line).get, wanted)) for line in data.splitlines()]
        if all(type(row[0]) is int for row in rows):
            return rows
    except (orjson.JSONDecodeError, AttributeError):  # AttributeError: a line that is no object
        pass
    return [tuple(map(row.get, wanted)) for row in parse_lines(data, METRICS, steps=True)[0]]


def _columns(rows: list[tuple[Any, ...]], wanted: Sequence[str]) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    columns, non_finite = {}, {}
    for name, found in zip(wanted, zip(*rows)):
        if not set(map(type, found)) <= {float, type(None)}:
            found = [None if value is None else _number(value) for value in found]
        values = np.array(found, dtype=float)
        bad = len(values) - int(np.isfinite(values).sum()) - found.count(None)
        if bad:
            non_finite[name] = bad
        columns[name] = values
    order = np.argsort(columns["step"], kind="stable")
    return {name: values[order] for name, values in columns.items()}, non_finite


def _number(value: Any) -> float:
    if type(value) in (float, int):
        try:
            return float(value)
        except OverflowError:  # a whole number of hundreds of digits
            return np.inf
    return _NON_FINITE.get(value, np.nan) if isinstance(value, str) else np.nan
