"""Everything about one run on one screen: which run was that, and with what?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from navrl import yaml_io
from navrl.analysis.listing import Listed
from navrl.analysis.records import config_of, metadata_of
from navrl.config import KEYS, Config
from navrl.faults import show
from navrl.tracking.record import RecordError, read_summary

SCORES = ("episode_reward", "success_rate", "collision_count", "normalized_score")


def details(run: Listed) -> dict[str, Any]:
    """What ``card`` shows, as plain values.

    changed: key -> (value, default) where they differ, in the schema's order. checkpoints: as the index beside them
    lists those that are there, with ``best`` true for the best.
    """
    metadata = metadata_of(run.directory)
    try:
        summary = read_summary(run.directory)
    except (RecordError, OSError):
        summary = {}
    return {"metadata": metadata, "summary": summary, "changed": changed(config_of(run.directory)),
            "checkpoints": _checkpoints(run.directory)}  # fmt: skip


def changed(config: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """key -> (value, the task's default), where they differ; keys that the schema does not know have default None."""
    given = {"env_id": config["env_id"]} if isinstance(config.get("env_id"), str) else {}
    try:
        defaults = Config.model_validate(given, context={"fields_only": True}).model_dump()
    except ValidationError:
        defaults = Config().model_dump()
    defaults["env_id"] = Config.model_fields["env_id"].default
    known = {key: list(value) if isinstance(value, tuple) else value for key, value in defaults.items()}
    order = (*KEYS, *(key for key in config if key not in KEYS))
    return {key: (config[key], known.get(key)) for key in order if key in config and config[key] != known.get(key)}


def card(run: Listed) -> list[str]:
    """Lines for people."""
    facts = details(run)
    metadata, summary = facts["metadata"], facts["summary"]
    lines = [f"{run.group}/{run.name}: {run.state}"]

    def say(what: str, value: Any) -> None:
        if value not in (None, "", []):
            lines.append(f"  {what:<12} {value}")

    say("where", run.directory)
    say("started", metadata.get("started"))
    say("ended", metadata.get("ended"))
    say("reason", summary.get("reason"))
    say("command", metadata.get("command"))
    say("commit", _commit(metadata, run.directory))
    segments = metadata.get("segments")
    for segment in segments[1:] if isinstance(segments, list) else ():
        if isinstance(segment, dict):
            at = f"{segment.get('started', '?')} at step {segment.get('step', '?')}"
            say("resumed", f"{at}: {segment.get('command', '')}")
    if run.step is not None:
        say("steps", f"{run.step:,}" + (f" of {run.budget:,}" if run.budget else ""))
    for part in ("final", "best"):
        say(part, _scores(summary.get(part)))
    lines.append("  differs from the defaults")
    for key, (value, default) in facts["changed"].items():
        lines.append(f"    {key}: {_value(value)}  (default {_value(default)})")
    if facts["checkpoints"]:
        lines.append("  checkpoints")
    for entry in facts["checkpoints"]:
        score = entry.get("score")
        step = entry.get("step")
        lines.append(f"    checkpoints/{entry['file']}  step {f'{step:,}' if _is_number(step) else '?'}"
                     + (f"  eval/episode_reward {score:.2f}" if _is_number(score) else "")
                     + ("  best" if entry["best"] else ""))  # fmt: skip
    if run.state in ("interrupted", "failed", "crashed"):
        lines.append(f"  go on        python main.py --resume {run.directory}")
    lines += [f"  again        python main.py --config {run.directory / 'config.yaml'}",
              f"  evaluate     python scripts/evaluate.py --checkpoint {run.directory}"]  # fmt: skip
    return [printable(line) for line in lines]


def printable(text: object) -> str:
    """A text of a record or a directory's name without what a terminal would obey."""
    return "".join(char if char.isprintable() else "?" for char in str(text))


def _value(value: Any) -> str:
    try:
        return yaml_io.emit(value)
    except TypeError:  # a mapping: a file that was written over holds what no configuration does
        return show(value)


def _commit(metadata: Mapping[str, Any], directory: Path) -> str:
    commit = metadata.get("git_commit")
    if not commit:
        return ""
    branch = f" ({metadata['git_branch']})" if metadata.get("git_branch") else ""
    diff = " with changes: code.diff" if metadata.get("git_dirty") and (directory / "code.diff").is_file() else ""
    return f"{commit}{branch}{diff}"


def _scores(part: Any) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("mean"), dict):
        return ""
    errors = part.get("standard_error") if isinstance(part.get("standard_error"), dict) else {}
    said = [f"{name} {part['mean'][name]:.3f}" + (f" ± {errors[name]:.3f}" if _is_number(errors.get(name)) else "")
            for name in SCORES if _is_number(part["mean"].get(name))]  # fmt: skip
    where = f" ({part.get('episodes', '?')} episodes of {part.get('env', 'the task')}, step {part.get('step', '?')})"
    return ", ".join(said) + where if said else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _checkpoints(directory: Path) -> list[dict[str, Any]]:
    try:
        index = json.loads((directory / "checkpoints" / "index.json").read_text(encoding="utf-8"))
        entries = [entry | {"best": entry["file"] == index.get("best")} for entry in index["checkpoints"]]
        return [entry for entry in entries if (directory / "checkpoints" / entry["file"]).is_file()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
