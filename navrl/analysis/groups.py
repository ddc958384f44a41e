"""Groups of seeds: which runs count, and what differs inside a group and between groups."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np

from navrl.analysis.records import LeftOut, Run
from navrl.config import SCIENCE_KEYS, Config

# Parts of metadata.json that say what a run was made of; the others are its own (times, segments, what is absent).
MADE_OF = ("git_commit", "git_dirty", "return_scale", "env", "versions", "machine", "torch")


@dataclass(frozen=True)
class Group:
    """One configuration, run with several seeds.

    label: its name, made longer where two groups of a comparison share one; unique in a comparison.
    source: its directory, or the tracker's place.
    runs: those that count, by seed: of one seed and configuration that was run twice the newest finished one.
    config: the result-changing values that all its runs share (``seed`` is none of them).
    mixed: key -> one value a run (None where a run lacks it), of result-changing keys in which its runs differ though
        they should not.
    """

    label: str
    source: str
    runs: tuple[Run, ...]
    config: dict[str, Any] = field(default_factory=dict)
    mixed: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def seeds(self) -> int:
        """Different seeds among its runs; a run whose seed is not known counts as one."""
        known = {run.seed for run in self.runs if run.seed is not None}
        return len(known) + sum(run.seed is None for run in self.runs)

    @property
    def steps(self) -> np.ndarray:
        """Last recorded environment step of each run, float64 ``[runs]``."""
        return np.array([run.columns["step"][-1] for run in self.runs])

    @property
    def seconds(self) -> np.ndarray:
        """Seconds of training up to the last row of each run, float64 ``[runs]``; NaN where no row says it."""
        return np.array([np.fmax.reduce(run.columns["time"]) for run in self.runs])


def group_runs(runs: Iterable[Run]) -> tuple[tuple[Group, ...], list[LeftOut]]:
    """The groups of these runs, in the order of their first runs, and the runs that do not count.

    A group is what lies in one directory (or one place of a tracker) under one group name. A run given twice counts
    once.
    """
    places: dict[tuple[str, str], dict[str, Run]] = {}
    for run in runs:
        places.setdefault((run.source.rpartition("/")[0], run.group), {}).setdefault(run.source, run)
    labels = _labels(list(places))
    groups, left_out = [], []
    for place, members in places.items():
        counted, again = _one_a_seed(list(members.values()))
        shared, mixed = common([science(run) for run in counted])
        groups.append(Group(labels[place], place[0], tuple(counted), shared, mixed))
        left_out += again
    return tuple(groups), left_out


def science(run: Run) -> dict[str, Any]:
    """The values that can change the run's result, without ``seed``; {} where its configuration is lost.

    Resolved as trackers get them (``critic_lr: null`` is the value of ``lr``), so that a run read from its directory
    and one pulled from a tracker compare equal. Not checked: a value that this version refuses still is a run's value.
    """
    try:
        values = Config.model_construct(**run.config).science() if run.config else {}
    except (TypeError, ValueError, ArithmeticError):  # a damaged value from which another one follows
        values = {key: run.config[key] for key in SCIENCE_KEYS if key in run.config}
    values.pop("seed", None)
    return values


def made_of(run: Run) -> dict[str, Any]:
    """What the run was made of, out of ``metadata.json``: dotted name -> value (``versions.torch``)."""
    return _flat({key: run.metadata[key] for key in MADE_OF if key in run.metadata})


def common(values: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
    """(key -> value that all share, key -> one value a mapping where they differ; None where one lacks the key).

    An empty mapping is not known and differs from nothing.
    """
    known = [mapping for mapping in values if mapping]
    shared, mixed = {}, {}
    for key in dict.fromkeys(key for mapping in known for key in mapping):
        first = known[0].get(key)
        if all(key in mapping and mapping[key] == first for mapping in known):
            shared[key] = first
        else:
            mixed[key] = tuple(mapping.get(key) for mapping in values)
    return shared, mixed


def _one_a_seed(runs: list[Run]) -> tuple[list[Run], list[LeftOut]]:
    twins: dict[Any, list[Run]] = {}
    for run in runs:
        identity = run.source if run.seed is None else (run.seed, json.dumps(science(run), sort_keys=True, default=str))
        twins.setdefault(identity, []).append(run)
    counted, left_out = [], []
    for same in twins.values():
        newest = max(same, key=_age)
        counted.append(newest)
        left_out += [
            LeftOut(run.source, f"seed {run.seed} was run again: {newest.name} ({newest.status}) counts")
            for run in sorted(same, key=lambda run: run.source)
            if run is not newest
        ]
    counted.sort(key=lambda run: (run.seed is None, run.seed or 0, run.name, run.source))
    return counted, left_out


def _age(run: Run) -> tuple[bool, str, int, str]:
    """Later is newer. Where no times are known the name tells: the record numbers what it makes (``...-2``)."""
    moment = run.metadata.get("started")
    return run.status == "finished", moment if isinstance(moment, str) else "", len(run.name), run.source


def _labels(places: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The shortest ending of each place that no other has; the group's name at least."""
    paths = {place: (*PurePath(place[0]).parts, place[1]) for place in places}
    for place, parts in paths.items():  # a run's directory lies in the group's own
        paths[place] = parts[:-1] if parts[-2:] == (place[1], place[1]) else parts
    labels = {}
    for place, parts in paths.items():
        for count in range(1, len(parts) + 1):
            if sum(other[-count:] == parts[-count:] for other in paths.values()) == 1:
                break
        labels[place] = "/".join(parts[-count:]) or place[1]
    return labels


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat
