"""A comparison as one document of plain values: all that a report shows, whatever it is shown in.

Every text passes the project's redaction here; how it is escaped is the matter of what shows it.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from navrl.analysis.caveats import in_seeds
from navrl.analysis.comparison import Comparison, Outcome, Pair
from navrl.analysis.figures import BAND_NAMES
from navrl.analysis.groups import Group, made_of
from navrl.analysis.records import Run
from navrl.analysis.report import directory, episodes, layers, words
from navrl.analysis.report.drawing import drawing, look
from navrl.analysis.statistics import Estimate
from navrl.redaction import redact_all

ALL_PAIRS = 4  # groups of which every pair is shown
# What says where and by whom a run was made. A report is handed on; none of it is needed to read one.
PRIVATE = ("hostname", "user")
_BULKY = ("env.agents", "env.roles", "env.observation_sizes", "env.action.sizes", "env.action.low", "env.action.high")


def document(comparison: Comparison, beside: Path, *, made: str, name: str = "") -> dict[str, Any]:
    """Everything of a report, as JSON takes it.

    beside: the directory that the report will lie in; links to checkpoints start there. made: when it was made, as it
    is to be read. name: its title (default: the groups' labels).

    title, made, scale (of rewards, "" where not known), about (how the figures are made), summary, warnings, alerts,
    left_out, notes: what is said in words.
    groups, runs, outcomes, speed, config, metadata: tables. drawing: what the page's scripts draw (``drawing.py``).
    """
    shorts = words.short_labels([group.label for group in comparison.groups])
    runs = [run for group in comparison.groups for run in group.runs]
    found, notes = episodes.collect([directory.directory_of(run) for run in runs])
    drawn, thinned = drawing(comparison, shorts, found)
    notes += thinned
    if len(comparison.groups) > ALL_PAIRS:
        notes.append(f"of {len(comparison.groups)} groups, differences are shown to the first one, {shorts[0]}")
    said = [(run.name, line) for run in runs for line in directory.alerts(run)]
    texts = redact_all({
        "title": name or " against ".join(shorts),
        "made": made,
        "scale": _values(run.metadata["return_scale"] for run in runs if run.metadata.get("return_scale")),
        "about": _about(comparison),
        "summary": [{"kind": s.kind, "text": s.text} for s in words.summary(comparison)],
        "warnings": list(comparison.warnings),
        "alerts": [{"run": run, "text": line} for run, line in said],
        "left_out": [{"source": Path(left.source).name or left.source, "reason": left.reason}
                     for left in comparison.left_out],
        "notes": notes,
        "groups": [_group(group, short, place) for place, (group, short) in enumerate(zip(comparison.groups, shorts))],
        "layers": [_layer(comparison, layer) for layer in layers.LAYERS],
        "runs": [_run(comparison, group, place, number, beside) for place, group in enumerate(comparison.groups)
                 for number in range(len(group.runs))],
        "headlines": [m for m in words.HEADLINES if m in comparison.metrics],
        "outcomes": [_outcome(comparison, metric, shorts) for metric in comparison.metrics
                     if layers.layer_of(metric) in (2, 3)],
        "speed": _speed(comparison, shorts),
        "config": _config(comparison),
    })  # fmt: skip
    return {**texts, "metadata": _metadata(comparison), "drawing": drawn}


def _about(comparison: Comparison) -> list[str]:
    sources = {source for outcome in comparison.outcomes.values() for source in outcome.final_source
               if outcome.metric.startswith("eval/")}  # fmt: skip
    finals = {
        "summary": "Final values are those of the last parameters in the final evaluation (summary.json)",
        "row": "Final values are those of the last evaluation during training",
    }
    said = [finals[source] for source in ("summary", "row") if source in sources]
    if len(said) == 2:
        said = ["Final values are those of the last parameters in the final evaluation; where a run has none, of its "
                "last evaluation during training (marked *)"]  # fmt: skip
    smooth = f", smoothed over {words.whole(comparison.smooth)} steps" if comparison.smooth else ", not smoothed"
    return [
        *said,
        "figures are interquartile means over seeds, intervals 95 % percentile intervals of the stratified bootstrap "
        "over seeds (Agarwal et al. 2021)",
        "the probability of improvement is that of a seed of one group being better than a seed of the other",
        f"bands of curves: {BAND_NAMES[comparison.band]} over all seeds of a group{smooth}",
    ]


def _group(group: Group, short: str, place: int) -> dict[str, Any]:
    steps, seconds = group.steps, group.seconds
    return {
        "name": group.label,
        "short": short,
        **look(place),
        "seeds": in_seeds(group),
        "steps": _range(steps),
        "seconds": words.duration(float(np.nanmean(seconds)) if np.isfinite(seconds).any() else np.nan),
    }


def _layer(comparison: Comparison, layer: layers.Layer) -> dict[str, Any]:
    metrics = [metric for metric in layers.ordered(comparison.metrics) if layers.layer_of(metric) == layer.number]
    return {"number": layer.number, "title": layer.title, "question": layer.question, "metrics": metrics}


def _run(comparison: Comparison, group: Group, place: int, number: int, beside: Path) -> dict[str, Any]:
    run = group.runs[number]
    finals = {}
    for metric in words.HEADLINES:
        if metric in comparison.metrics:
            finals[metric] = _final(comparison.outcomes[group.label, metric], number)
    return {
        "group": place,
        "name": run.name,
        "seed": run.seed,
        "status": run.status,
        "steps": words.whole(group.steps[number]),
        "seconds": words.duration(group.seconds[number]),
        "finals": finals,
        "started": str(run.metadata.get("started", ""))[:16].replace("T", " "),
        "command": _command(run.metadata.get("command")),
        "checkpoints": directory.checkpoints(run, beside),
    }


def _final(outcome: Outcome, number: int) -> str:
    value, error = outcome.final[number], outcome.final_error[number]
    text = words.number(value)
    if math.isfinite(error):
        text += f" ± {words.number(error)}"
    return text + ("*" if outcome.final_source[number] == "row" else "")


def _outcome(comparison: Comparison, metric: str, shorts: Sequence[str]) -> dict[str, Any]:
    names = dict(zip((group.label for group in comparison.groups), shorts))
    cells = []
    for group in comparison.groups:
        outcome = comparison.outcomes[group.label, metric]
        seeds = [{"seed": run.name if run.seed is None else f"seed {run.seed}", "value": _final(outcome, number)}
                 for number, run in enumerate(group.runs)]  # fmt: skip
        gap = outcome.optimality_gap
        cells.append({**_estimate(outcome.iqm), "median": words.number(outcome.median.value), "seeds": seeds,
                      "gap": None if gap is None else _estimate(gap)})  # fmt: skip
    better = comparison.better.get(metric)
    shown = [pair for pair in comparison.pairs if pair.metric == metric and _shows(comparison, pair)]
    pairs = [_pair(pair, better, names) for pair in shown]
    return {"metric": metric, "title": layers.title(metric), "about": layers.about(metric), "better": better,
            "layer": layers.layer_of(metric), "groups": cells, "pairs": pairs}  # fmt: skip


def _shows(comparison: Comparison, pair: Pair) -> bool:
    """Of many groups, pairs with the first one alone: all would be a table that nobody reads."""
    return len(comparison.groups) <= ALL_PAIRS or pair.first == comparison.groups[0].label


def _pair(pair: Pair, better: str | None, names: dict[str, str]) -> dict[str, Any]:
    best = words.winner(pair, better)
    return {
        "first": names[pair.first],
        "second": names[pair.second],
        "difference": _estimate(pair.difference),
        "improvement": {"value": f"{pair.improvement.value:.2f}", "interval": words.odds(pair.improvement)},
        "winner": None if best is None else names[best],
    }


def _estimate(estimate: Estimate) -> dict[str, str]:
    return {"value": words.number(estimate.value), "interval": words.interval(estimate)}


def _speed(comparison: Comparison, shorts: Sequence[str]) -> list[dict[str, Any]]:
    """How fast each group gets there: one row a headline, and one a metric with a threshold."""
    rows = []
    for metric in layers.ordered(comparison.area_range):
        asked = any(comparison.outcomes[group.label, metric].threshold is not None for group in comparison.groups)
        if metric not in words.HEADLINES and not asked:
            continue
        cells = []
        for group in comparison.groups:
            outcome = comparison.outcomes[group.label, metric]
            reached = outcome.steps_to_threshold
            cells.append({
                "area": _estimate(outcome.area_iqm),
                "threshold": None if outcome.threshold is None else words.number(outcome.threshold),
                "steps": [] if reached is None else ["never" if math.isinf(s) else words.whole(s) for s in reached],
            })  # fmt: skip
        first, last = comparison.area_range[metric]
        rows.append({"metric": metric, "title": layers.title(metric), "groups": cells,
                     "range": f"{words.whole(first)} to {words.whole(last)}"})  # fmt: skip
    return rows


def _config(comparison: Comparison) -> list[dict[str, Any]]:
    """Every result-changing key with each group's value; ``differs`` where it is not one value everywhere."""
    keys = dict.fromkeys(key for group in comparison.groups for key in (*group.config, *group.mixed))
    rows = []
    for key in keys:
        values = [_values(group.mixed[key]) if key in group.mixed else plain(group.config.get(key))
                  for group in comparison.groups]  # fmt: skip
        differs = len(set(values)) > 1 or any(key in group.mixed for group in comparison.groups)
        rows.append({"key": key, "values": values, "differs": differs})
    return rows


def _metadata(comparison: Comparison) -> list[dict[str, Any]]:
    """Every fact of ``metadata.json`` that is one of a group, as ``_config`` has it."""
    facts = [[_facts(run) for run in group.runs] for group in comparison.groups]
    keys = dict.fromkeys(key for group in facts for run in group for key in run)
    rows = []
    for key in keys:
        values = [_values(run.get(key) for run in group) for group in facts]
        differs = len({plain(run.get(key)) for group in facts for run in group}) > 1
        rows.append({"key": key, "values": values, "differs": differs})
    return rows


def _facts(run: Run) -> dict[str, Any]:
    """``made_of`` without what is private or bulky, and how often the run was resumed."""
    facts = {key: value for key, value in redact_all(made_of(run)).items()
             if key.rpartition(".")[2] not in PRIVATE and key not in _BULKY}  # fmt: skip
    segments = run.metadata.get("segments")
    if isinstance(segments, list) and len(segments) > 1:
        facts["resumed"] = len(segments) - 1
    return facts


def _command(command: Any) -> str:
    """A command line without the place of its interpreter."""
    try:
        program, *arguments = shlex.split(str(command or ""))
    except ValueError:
        return ""
    return shlex.join([Path(program).name, *arguments])


def plain(value: Any) -> str:
    """A recorded value as one reads it: true, null, 0.0005, [a, b]."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(plain, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {plain(inner)}" for key, inner in value.items()) + "}"
    return str(value)


def _values(values: Iterable[Any], limit: int = 4) -> str:
    """Different values of a group's runs, each once."""
    texts = list(dict.fromkeys(map(plain, values)))
    return ", ".join(texts[:limit]) + (f" and {len(texts) - limit} more" if len(texts) > limit else "")


def _range(values: np.ndarray) -> str:
    low, high = float(values.min()), float(values.max())
    return words.whole(low) if low == high else f"{words.whole(low)} to {words.whole(high)}"
