"""Which runs there are, how they are doing and how they differ, at a glance: what ``scripts/runs.py`` shows.

Of a long ``metrics.jsonl`` only pieces are read, so that hundreds of runs take a second or two.
"""

from __future__ import annotations

import datetime
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from navrl import fields
from navrl.analysis.records import LeftOut, config_of, find, metadata_of
from navrl.config import KEYS, Config
from navrl.faults import nearest, show, show_key
from navrl.tracking.record import METRICS, RecordError, read_summary

REWARDS = ("eval/episode_reward", "train/episode_reward_mean")  # the first that a run has is shown
WIDTH = 20  # of a sparkline
PIECES, PIECE = 16, 2**14  # a longer file is read in so many pieces of so many bytes, the last one at its end
RECENT = 50  # rows by which the usual pause is known
BARS = "▁▂▃▄▅▆▇█"

# A run is stalled when it has been silent for this many times its longest recent pause between two rows, and for
# longer than the final evaluation and the last words to trackers (at most two minutes) take.
SILENCES, LEAST_SILENCE = 5.0, 180.0

STATES = ("running", "stalled", "finished", "interrupted", "failed", "crashed")
RECORDED = tuple(state for state in STATES if state != "stalled")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True)
class Listed:
    """One run at a glance.

    directory, group, name: where it is and as its directories spell them. state: one of ``STATES``. seed: None where
    it is not known. step, budget: environment steps done and asked for. metric, reward: which reward is shown, and its
    last value. curve: up to ``WIDTH`` values of it, in order. started, last_row: seconds since 1970; of a run without
    rows ``last_row`` is when its record began. spacing: its longest recent pause between two rows, seconds. commit: the
    newest. Whatever is not recorded is None.
    """

    directory: Path
    group: str
    name: str
    state: str
    seed: int | None
    step: int | None
    budget: int | None
    metric: str | None
    reward: float | None
    curve: tuple[float, ...]
    started: float | None
    last_row: float | None
    spacing: float | None
    commit: str | None


@dataclass(frozen=True)
class Wanted:
    """Which runs are meant; what is empty or None asks for nothing.

    where: configuration key -> value, as ``condition`` gives them. commit: how one of a run's commits begins.
    since: seconds since 1970 after which it wrote a row. states: out of ``STATES``.
    """

    where: Mapping[str, Any] | None = None
    commit: str = ""
    since: float | None = None
    states: Sequence[str] = ()


def condition(text: str) -> tuple[str, Any]:
    """``lr=5e-4`` as (key, value), read and checked as the schema does. ValueError in words."""
    key, equals, word = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is no condition; write KEY=VALUE, as in lr=5e-4")
    if key not in KEYS:
        raise ValueError(f"{show_key(key)}: there is no such key; nearest: {nearest(key, KEYS)}")
    info = Config.model_fields[key]
    try:
        value = fields.from_words([word], info)
        read = Config.model_validate({key: value}, context={"fields_only": True})
    except ValidationError:
        raise ValueError(f"{key}: {show(word)} is not {fields.allowed(info)}") from None
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
    return key, _plain(getattr(read, key))


def moment(text: str, now: float | None = None) -> float:
    """``2d`` (or s, m, h, w) before now, or a date (``2026-11-30``, ``2026-11-30T14:00``), as seconds since 1970.

    ValueError in words.
    """
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text):
        return (time.time() if now is None else now) - float(match[1]) * _UNITS[match[2]]
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is no span or date; write 30m, 12h, 2d, 3w or 2026-11-30") from None


def search(words: Iterable[str], root: Path, wanted: Wanted) -> tuple[list[Listed], list[LeftOut]]:
    """The wanted runs in order of project, group and name, and which words found nothing.

    A word is a directory (a run, a group, a project, a root) or, where there is none, a name under ``root``: of a run
    or a group, of both (``group/run``), or a part of one.
    """
    words = list(words) or [str(root)]
    directories: dict[Path, None] = {}
    left_out: list[LeftOut] = []
    for word in words:
        if Path(word).exists() or word == str(root):
            found, missing = find([Path(word)])
            left_out += missing
        else:
            found = named(word, find([root])[0])
            left_out += [] if found else [LeftOut(word, f"neither a directory nor the name of a run under {root}")]
        directories |= dict.fromkeys(found)
    listed = [glance(directory) for directory in sorted(directories) if _is_wanted(directory, wanted)]
    return [run for run in listed if not wanted.states or run.state in wanted.states], left_out


def named(word: str, directories: Sequence[Path]) -> list[Path]:
    """Those whose name, group or ``group/name`` is the word; where none is, those in which it occurs."""
    def names(directory: Path) -> tuple[str, str, str]:
        group, name = directory.parts[-2:]
        return name, group, f"{group}/{name}"

    exactly = [directory for directory in directories if word in names(directory)]
    return exactly or [directory for directory in directories if word in names(directory)[2]]


def glance(directory: Path, now: float | None = None) -> Listed:
    """A run at a glance. Never raises for what is lost or damaged."""
    now = time.time() if now is None else now
    try:
        summary = read_summary(directory)
    except (RecordError, OSError):
        summary = {}
    metadata, config = metadata_of(directory), config_of(directory)
    started = _seconds(metadata.get("started"))
    pieces, written = _pieces(directory / METRICS)
    rows = _rows(pieces[-1]) if pieces else []
    metric, values = _curve(pieces)
    last_row = started if written is None else written
    times = [row["time"] for row in rows if isinstance(row.get("time"), (int, float))]
    spacing = float(np.diff(times).max()) if len(times) > 1 else None
    state = summary.get("status")
    state = state if state in RECORDED else "crashed"  # of a damaged record too
    if state == "running" and last_row is not None:
        if now - last_row > max(LEAST_SILENCE, SILENCES * (spacing or 0.0)):
            state = "stalled"
    budget, seed, step = config.get("total_env_steps"), config.get("seed"), rows[-1].get("step") if rows else None
    commits = _commits(metadata)
    return Listed(
        directory=directory, group=directory.parent.name, name=directory.name, state=state,
        seed=seed if type(seed) is int else None, step=step if type(step) is int else None,
        budget=budget if type(budget) is int else None, metric=metric, reward=values[-1] if values else None,
        curve=tuple(_thinned(values, WIDTH)), started=started, last_row=last_row, spacing=spacing,
        commit=commits[-1] if commits else None,
    )  # fmt: skip


def sparkline(values: Sequence[float]) -> str:
    """Finite values as bars; a flat curve stays low.

    The lowest bar is the lowest value after the first tenth: an untrained policy starts far below what matters.
    """
    finite = np.asarray([value for value in values if np.isfinite(value)])
    if not len(finite):
        return ""
    low, high = finite[len(finite) // 10 :].min(), finite.max()
    heights = (finite - low) / (high - low) if high > low else np.zeros(len(finite))
    return "".join(BARS[round(height * (len(BARS) - 1))] for height in np.clip(heights, 0, 1))


def _is_wanted(directory: Path, wanted: Wanted) -> bool:
    """What costs least is asked first."""
    if wanted.since is not None and not _last_write(directory) >= wanted.since:
        return False
    if wanted.commit and not any(commit.startswith(wanted.commit) for commit in _commits(metadata_of(directory))):
        return False
    config = config_of(directory) if wanted.where else {}
    return all(_has(config, key, value) for key, value in (wanted.where or {}).items())


def _has(config: Mapping[str, Any], key: str, wanted: Any) -> bool:
    """As it is written or as it is resolved: ``critic_lr: null`` is the value of ``lr`` too."""
    return key in config and (_same(config[key], wanted) or _same(_resolved(config).get(key, config[key]), wanted))


def _resolved(config: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return Config.model_construct(**{key: config[key] for key in KEYS if key in config}).science()
    except (TypeError, ValueError, ArithmeticError):  # a damaged value from which another one follows
        return {}


def _same(recorded: Any, wanted: Any) -> bool:
    return type(recorded) is not bool and recorded == wanted if type(wanted) is not bool else recorded is wanted


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _commits(metadata: Mapping[str, Any]) -> list[str]:
    """Of a run and then of each of its resumes."""
    segments = metadata.get("segments")
    parts = [metadata, *(segments if isinstance(segments, list) else [])]
    return [str(part["git_commit"]) for part in parts if isinstance(part, dict) and part.get("git_commit")]


def _last_write(directory: Path) -> float:
    for name in (METRICS, "metadata.json"):
        try:
            return (directory / name).stat().st_mtime
        except OSError:
            continue
    return 0.0


def _seconds(text: Any) -> float | None:
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return None


def _pieces(path: Path) -> tuple[list[bytes], float | None]:
    """The file, or evenly spaced pieces of it up to its end; and when it was written last."""
    try:
        with open(path, "rb") as file:
            size, written = file.seek(0, 2), path.stat().st_mtime
            starts = [0] if size <= PIECES * PIECE else [int(at) for at in np.linspace(0, size - PIECE, PIECES)]
            length = max(PIECE, size if len(starts) == 1 else 0)
            return [_piece(file, start, length) for start in starts], written
    except OSError:
        return [], None


def _piece(file: Any, start: int, length: int) -> bytes:
    """Whole lines of it: what comes before the first line break may be the rest of a line."""
    file.seek(start)
    data = file.read(length)
    return data if start == 0 else data.partition(b"\n")[2]


def _rows(piece: bytes) -> list[dict[str, Any]]:
    rows = []
    for line in piece.splitlines()[-RECENT:]:
        try:
            row = json.loads(line)
        except ValueError:  # a last line that is being written
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _curve(pieces: Sequence[bytes]) -> tuple[str | None, list[float]]:
    """The reward that the pieces hold, and its values; found as text, for parsing every row would cost seconds."""
    for metric in REWARDS:
        # With what comes behind it: where a piece or a killed writer ends, a number that is cut short is another one.
        number = rb"(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*[,}]"
        pattern = re.compile(rb'"' + re.escape(metric.encode()) + rb'":\s*' + number)
        values = [float(found) for piece in pieces for found in pattern.findall(piece)]
        if values:
            return metric, values
    return None, []


def _thinned(values: Sequence[float], count: int) -> list[float]:
    """At most ``count`` means of neighbours."""
    return [float(np.mean(part)) for part in np.array_split(values, min(count, len(values)))] if values else []
