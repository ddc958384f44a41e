"""From what is typed to runs: a GROUP is a directory, or the name of a group under the root of runs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from navrl.analysis import records
from navrl.analysis.comparison import has
from navrl.analysis.records import LeftOut, Run


def gather(words: Sequence[str], root: Path, metrics: Sequence[str]) -> tuple[list[Run], list[LeftOut]]:
    """The runs at or below each of these directories or groups, with ``metrics``; and what was left out.

    ValueError for a word that is neither, and where nothing is left.
    """
    directories, left_out = records.find([path for word in words for path in places(word, root)])
    runs, unread = records.load(directories, metrics)
    left_out += unread
    if not runs:
        raise ValueError("no run to read: " + "; ".join(f"{place.source}: {place.reason}" for place in left_out[:3]))
    return runs, left_out


def places(word: str, root: Path) -> list[Path]:
    """The directory of this name, else the groups of this name under ``root`` (of every project).

    ValueError, with the nearest names, where there is neither.
    """
    path = Path(word)
    if path.is_dir():
        return [path]
    groups = [path for path in sorted(root.glob("*/*")) if path.is_dir()] if root.is_dir() else []
    named = [group for group in groups if group.name == word]
    if named:
        return named
    nearest = difflib.get_close_matches(word, sorted({group.name for group in groups}), n=3)
    help_ = f"; nearest: {', '.join(nearest)}" if nearest else ""
    raise ValueError(f"{word}: neither a directory nor a group under {root}{help_}")


def require_metrics(metrics: Sequence[str], runs: Sequence[Run]) -> None:
    """ValueError, with the nearest names, for the first metric that no run has a finite value of."""
    for metric in metrics:
        if not any(has(run, metric) for run in runs):
            known = records.metric_names(Path(run.source) for run in runs)
            nearest = difflib.get_close_matches(metric, sorted(known - {metric}), n=3, cutoff=0.0)
            raise ValueError(f"no run has a metric {metric}; nearest: {', '.join(nearest) or 'none'}")
