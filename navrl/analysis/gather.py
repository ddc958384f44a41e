"""From what is typed to runs.

A GROUP is a directory, or the name of a group under the root of runs; a SOURCE is a tracker's experiment or project.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from pathlib import Path

from navrl.analysis import records
from navrl.analysis.comparison import has
from navrl.analysis.pull import FORMS, pull
from navrl.analysis.records import LeftOut, Run


def gather(
    words: Sequence[str], root: Path, metrics: Sequence[str] | None, sources: Sequence[str] = (),
    wandb_proxy: str | None = None,
) -> tuple[list[Run], list[LeftOut]]:  # fmt: skip
    """The runs at or below each of these directories or groups, then those of trackers; and what was left out.

    metrics: None means all that there are. sources: as ``pull`` takes them. ValueError for a word that is neither
    directory nor group, for a source that cannot be had, and where nothing is left.
    """
    directories, left_out = records.find([path for word in words for path in places(word, root)])
    runs, unread = records.load(directories, sorted(records.metric_names(directories)) if metrics is None else metrics)
    left_out += unread
    for source in sources:
        pulled, unread = pull(source, metrics, wandb_proxy=wandb_proxy)
        runs, left_out = runs + pulled, left_out + unread
    if not runs:
        reasons = [f"{place.source}: {place.reason}" for place in left_out[:3]]
        raise ValueError("no run to read: " + "; ".join(reasons or [f"{', '.join(sources)} holds none"]))
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


def add_sources(parser: argparse.ArgumentParser) -> None:
    """``--from SOURCE ...`` and how W&B is reached."""
    parser.add_argument("--from", dest="sources", nargs="+", default=[], metavar="SOURCE",
                        help=f"runs that a tracker has: {', '.join(FORMS)}")  # fmt: skip
    parser.add_argument("--wandb_proxy", metavar="ADDRESS", help="proxy for W&B alone")


def require_metrics(metrics: Sequence[str], runs: Sequence[Run]) -> None:
    """ValueError, with the nearest names, for the first metric that no run has a finite value of."""
    for metric in metrics:
        if not any(has(run, metric) for run in runs):
            known = records.metric_names(Path(run.source) for run in runs)
            nearest = difflib.get_close_matches(metric, sorted(known - {metric}), n=3, cutoff=0.0)
            raise ValueError(f"no run has a metric {metric}; nearest: {', '.join(nearest) or 'none'}")
