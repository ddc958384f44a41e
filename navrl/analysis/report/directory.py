"""What a run's own directory adds to its numbers: checkpoints with digests, and what the watch over training said."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from navrl.analysis.records import Run
from navrl.tracking.record import RecordError, read_events

INDEX = "index.json"  # of navrl/checkpoint.py, which imports torch


def directory_of(run: Run) -> Path | None:
    """Where a run's record lies; None for one that only a tracker has."""
    path = Path(run.source)
    return path if path.is_absolute() and path.is_dir() else None


def checkpoints(run: Run, beside: Path) -> list[dict[str, Any]]:
    """Checkpoints of a run, oldest first: ``file``, ``step``, ``aliases``, ``sha256``, ``link``; None where not known.

    link: relative to the directory ``beside``, quoted for a URL, of a file that exists.
    """
    aliases, steps = {}, {}
    for artifact in run.summary.get("artifacts") or []:
        if isinstance(artifact, dict) and artifact.get("file"):
            aliases[str(artifact["file"])] = [str(alias) for alias in artifact.get("aliases") or []]
            steps[str(artifact["file"])] = artifact.get("step")
    directory = directory_of(run)
    digests = {} if directory is None else _index(directory / "checkpoints" / INDEX)
    found = []
    for name in dict.fromkeys([*digests, *aliases]):
        path = None if directory is None else directory / "checkpoints" / name
        exists = path is not None and path.is_file()
        entry = digests.get(name, {})
        found.append({
            "file": name,
            "step": entry.get("step", steps.get(name)),
            "aliases": aliases.get(name, []),
            "sha256": entry.get("sha256"),
            "link": quote(Path(os.path.relpath(path, beside)).as_posix()) if exists else None,
        })  # fmt: skip
    return found


def alerts(run: Run) -> list[str]:
    """What the watch over this run said, one line each, in order."""
    directory = directory_of(run)
    if directory is None:
        return []
    try:
        events = read_events(directory)
    except (RecordError, OSError):
        return []
    said = [event for event in events if event.get("event") == "alert"]
    return [f"step {event.get('step')}: {event.get('title')}: {event.get('text')}" for event in said]


def _index(path: Path) -> dict[str, dict[str, Any]]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["checkpoints"]
        return {str(entry["file"]): entry for entry in entries}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
