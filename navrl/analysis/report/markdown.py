"""The report as Markdown (GitHub's tables), with figures as PNG files beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from navrl.analysis import figures
from navrl.analysis.comparison import DEFAULT_METRICS, Comparison

MOST = 9  # metrics in a picture, where none of the usual ones is there
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#+!|~&$])")


def escaped(text: Any) -> str:
    """A text that Markdown shows as it stands, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(str(text).split()))


def draw(comparison: Comparison, report: Path) -> list[tuple[str, str]]:
    """Write figures of the usual metrics beside ``report`` -> (caption, file name) of each.

    ImportError without matplotlib.
    """
    some = [metric for metric in DEFAULT_METRICS if metric in comparison.metrics] or comparison.metrics[:MOST]
    comparison = replace(comparison, metrics=tuple(some))
    drawings = {
        "curves": ("Learning curves", lambda path: figures.draw_curves(comparison, "step", path)),
        "behaviour": ("Task above behaviour", lambda path: figures.draw_behaviour(comparison, path)),
        "profiles": ("Performance profiles", lambda path: figures.draw_profiles(comparison, path)),
    }
    made = []
    for name, (caption, make) in drawings.items():
        path = report.with_name(f"{report.stem}_{name}.png")
        try:
            make(path)
        except ValueError:  # nothing of its kind among these metrics
            continue
        made.append((caption, path.name))
    return made


def markdown(document: dict[str, Any], pictures: Sequence[tuple[str, str]] = ()) -> str:
    """``data.document`` as Markdown. pictures: (caption, file name) as ``draw`` made them."""
    groups = document["groups"]
    shorts = [group["short"] for group in groups]
    scale = f"; rewards are on scale {document['scale']}" if document["scale"] else ""
    parts = [
        f"# {escaped(document['title'])}",
        escaped(f"NAVRL report, {document['made']}{scale}"),
        _list(map(_group, groups)),
        "## Summary",
        _list(sentence["text"] for sentence in document["summary"]),
    ]  # fmt: skip
    if document["warnings"]:
        parts += ["### Before you believe it", _list(document["warnings"])]
    if document["alerts"]:
        said = (f"{alert['run']}: {alert['text']}" for alert in document["alerts"])
        parts += ["### What the watch over training said", _list(said)]
    parts += ["## Outcome", _outcome(document["outcomes"], shorts)]
    parts += [f"![{escaped(caption)}]({quote(name)})" for caption, name in pictures]
    parts += ["## Configuration", _settings(document["config"], shorts), "## What the runs were made of",
              _settings(document["metadata"], shorts), "## Checkpoints", _checkpoints(document["runs"]),
              "## How it is made", _list([*document["about"], *document["notes"]])]  # fmt: skip
    if document["left_out"]:
        parts += ["### Left out", _list(f"{left['source']}: {left['reason']}" for left in document["left_out"])]
    return "\n\n".join(part for part in parts if part) + "\n"


def _outcome(rows: Sequence[dict[str, Any]], shorts: Sequence[str]) -> str:
    pairs = [f"{pair['first']} − {pair['second']}" for pair in (rows[0]["pairs"] if rows else ())]
    chances = [f"P({pair['first']} better)" for pair in (rows[0]["pairs"] if rows else ())]
    header = ["metric", *shorts, *(name for both in zip(pairs, chances) for name in both)]
    table = []
    for row in rows:
        better = f" ({row['better']} is better)" if row["better"] else ""
        cells = [_estimate(cell) for cell in row["groups"]]
        for pair in row["pairs"]:
            cells += [_estimate(pair["difference"]), _estimate(pair["improvement"]) if row["better"] else ""]
        table.append([row["title"] + better, *cells])
    return _table(header, table)


def _settings(rows: Sequence[dict[str, Any]], shorts: Sequence[str]) -> str:
    """What differs comes first, in bold."""
    ordered = sorted(rows, key=lambda row: not row["differs"])
    cells = [[row["key"], *row["values"]] for row in ordered]
    return _table(["key", *shorts], cells, [row["differs"] for row in ordered])


def _checkpoints(runs: Sequence[dict[str, Any]]) -> str:
    lines = ["| run | checkpoint | step | is | SHA-256 |", "|---|---|---|---|---|"]
    for run in runs:
        for checkpoint in run["checkpoints"]:
            name = escaped(checkpoint["file"])
            link = f"[{name}]({checkpoint['link']})" if checkpoint["link"] else name
            cells = [escaped(run["name"]), link, escaped(checkpoint["step"]), escaped(", ".join(checkpoint["aliases"])),
                     escaped(checkpoint["sha256"] or "not recorded here")]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 2 else "None is recorded."


def _group(group: dict[str, Any]) -> str:
    return f"{group['name']}: {group['seeds']}, {group['steps']} steps, {group['seconds']} a run"


def _estimate(estimate: dict[str, str]) -> str:
    return estimate["value"] + (f" ({estimate['interval']})" if estimate["interval"] else "")


def _list(lines: Iterable[Any]) -> str:
    return "\n".join(f"- {escaped(line)}" for line in lines)


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]], bold: Sequence[bool] = ()) -> str:
    lines = [f"| {' | '.join(map(escaped, header))} |", "|" + "---|" * len(header)]
    for place, row in enumerate(rows):
        mark = "**" if place < len(bold) and bold[place] else ""
        cells = [f"{mark}{escaped(cell)}{mark}" if str(cell) else "" for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
