"""A comparison as tables: text for people, CSV for programs, LaTeX for papers."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from navrl.analysis.caveats import shown
from navrl.analysis.comparison import Comparison, Difference, Outcome
from navrl.analysis.run_card import printable
from navrl.analysis.statistics import CONFIDENCE, RESAMPLES, SEED, Estimate

LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{char: "\\" + char for char in "&%$#_{}"},
})  # fmt: skip
METHOD = (f"[low, high]: {CONFIDENCE:.0%} stratified bootstrap over seeds (percentile, {RESAMPLES} resamples, seed "
          f"{SEED}). iqm: interquartile mean over seeds. area: mean height of the learning curve.")  # fmt: skip


@dataclass(frozen=True)
class Table:
    """rows: one cell a column of ``header``: text, whole numbers, floats or an Estimate; None and NaN are no value."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[Any, ...]]


# ---------------------------------------------------------------------------------------------- contents


def overview(comparison: Comparison) -> Table:
    """One row a group: its seeds, how far its runs came, seconds of training and commit."""
    rows = []
    for group in comparison.groups:
        seeds = " ".join("?" if run.seed is None else str(run.seed) for run in group.runs)
        commits = dict.fromkeys(
            str(run.metadata["git_commit"])[:10] for run in group.runs if run.metadata.get("git_commit")
        )
        seconds = group.seconds[np.isfinite(group.seconds)]
        mean = float(seconds.mean()) if len(seconds) else None
        rows.append((group.label, len(group.runs), seeds, _span(group.steps), mean, " ".join(commits)))
    return Table("groups", ("group", "runs", "seeds", "steps", "seconds", "commit"), rows)


def results(comparison: Comparison, metric: str) -> Table:
    """One row a group: aggregates of its final values, areas, and steps to the threshold."""
    outcomes = [comparison.outcomes[group.label, metric] for group in comparison.groups]
    direction = comparison.better[metric]
    title = metric + (f" ({direction} is better)" if direction else "")
    columns: dict[str, Callable[[Outcome], Any]] = {
        "group": lambda outcome: outcome.group,
        "runs": lambda outcome: int(np.isfinite(outcome.final).sum()),
        "iqm": lambda outcome: outcome.iqm,
        "median": lambda outcome: outcome.median,
        "mean": lambda outcome: outcome.mean,
    }
    if any(outcome.optimality_gap is not None for outcome in outcomes):
        columns["optimality gap"] = lambda outcome: outcome.optimality_gap
    if metric in comparison.area_range:
        low, high = comparison.area_range[metric]
        columns[f"area {low:.0f}-{high:.0f}"] = lambda outcome: outcome.area_iqm
    if outcomes[0].threshold is not None:
        columns[f"steps to {outcomes[0].threshold:g}"] = lambda outcome: reached(outcome)
    if comparison.at is not None:
        columns[f"at {comparison.at}"] = lambda outcome: _seen(outcome.at)
    rows = [tuple(cell(outcome) for cell in columns.values()) for outcome in outcomes]
    return Table(title, tuple(columns), rows)


def all_results(comparison: Comparison) -> Table:
    """One row a metric and group, with everything that is known: for programs."""
    rows = []
    for metric in comparison.metrics:
        low, high = comparison.area_range.get(metric, (None, None))
        for group in comparison.groups:
            found = comparison.outcomes[group.label, metric]
            steps = found.steps_to_threshold
            rows.append({
                "metric": metric,
                "better": comparison.better[metric],
                "group": group.label,
                "runs": int(np.isfinite(found.final).sum()),
                "iqm": found.iqm,
                "median": found.median,
                "mean": found.mean,
                "optimality gap": found.optimality_gap,
                "area from": low,
                "area to": high,
                "area": found.area_iqm,
                "threshold": found.threshold,
                "steps to threshold": None if steps is None else middle_steps(steps),
                "runs that reached it": None if steps is None else int(np.isfinite(steps).sum()),
            })  # fmt: skip
    return _table("results", rows)


def seeds(comparison: Comparison) -> Table:
    """One row a run and metric."""
    rows = []
    for group in comparison.groups:
        for index, run in enumerate(group.runs):
            for metric in comparison.metrics:
                found = comparison.outcomes[group.label, metric]
                steps = found.steps_to_threshold
                rows.append({
                    "group": group.label,
                    "run": run.name,
                    "seed": run.seed,
                    "status": run.status,
                    "steps": int(group.steps[index]),
                    "seconds": float(group.seconds[index]),
                    "metric": metric,
                    "final": float(found.final[index]),
                    "standard error": float(found.final_error[index]),
                    "from": found.final_source[index],
                    "area": float(found.area[index]),
                    "steps to threshold": None if steps is None else float(steps[index]),
                    "at": None if found.at is None else float(found.at[index]),
                })  # fmt: skip
    return _table("seeds", rows)


def finals_by_seed(comparison: Comparison) -> Table:
    """One row a metric and group: the final value of each of its runs, by seed."""
    rows, stars = [], False
    for metric in comparison.metrics:
        for group in comparison.groups:
            outcome = comparison.outcomes[group.label, metric]
            names = ("?" if run.seed is None else str(run.seed) for run in group.runs)
            values = (f"{name}: {number(value)}{'*' if source == 'row' else ''}"
                      for name, value, source in zip(names, outcome.final, outcome.final_source))  # fmt: skip
            rows.append((metric, group.label, "  ".join(values)))
            stars = stars or "row" in outcome.final_source
    note = " (*: of the last row that has it, no final evaluation)" if stars else ""
    return Table("final values by seed" + note, ("metric", "group", "final"), rows)


def pairs(comparison: Comparison) -> Table:
    """One row a metric and two groups: how likely a run of the first is better (larger, where neither is better)."""
    rows = [(pair.metric, pair.first, pair.second, pair.improvement, pair.difference) for pair in comparison.pairs]
    header = ("metric", "first", "second", "P(first better)", "iqm of first - second")
    return Table("between groups", header, rows)


def differences(title: str, comparison: Comparison, found: Sequence[Difference]) -> Table:
    """One row a key, one column a group."""
    labels = tuple(group.label for group in comparison.groups)
    rows = [(difference.key, *(setting(difference.values[label]) for label in labels)) for difference in found]
    return Table(title, ("key", *labels), rows)


def setting(value: Any) -> str:
    """A group's value of one key, or all of those that its runs have."""
    if isinstance(value, tuple):
        return " | ".join("-" if part is None else shown(part) for part in value)
    return "-" if value is None else shown(value)


def reached(outcome: Outcome) -> str:
    """Median steps to the threshold, and how many runs got there."""
    steps = outcome.steps_to_threshold[~np.isnan(outcome.steps_to_threshold)]
    middle = middle_steps(steps)
    words = "-" if math.isnan(middle) else "never" if math.isinf(middle) else f"{middle:.0f}"
    return words if math.isnan(middle) else f"{words} ({int(np.isfinite(steps).sum())} of {len(steps)})"


def middle_steps(steps: np.ndarray) -> float:
    """Median where some steps are inf (never): of an even number the upper of the middle two, so that it is a step.

    NaN where no run has a row.
    """
    known = np.sort(steps[~np.isnan(steps)])
    return float(known[len(known) // 2]) if len(known) else math.nan


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    return Table(title, tuple(rows[0]) if rows else (), [tuple(row.values()) for row in rows])


# ---------------------------------------------------------------------------------------------- forms


def as_text(table: Table) -> str:
    """Columns aligned, the title above."""
    rows = [table.header, *([cell_text(cell) for cell in row] for row in table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([table.title, *("  " + line for line in lines)]) + "\n"


def as_csv(table: Table) -> str:
    """Full precision; an Estimate is three columns; no value is an empty field."""
    spread = [
        column for column in range(len(table.header)) if any(isinstance(row[column], Estimate) for row in table.rows)
    ]
    header = [name for column, title in enumerate(table.header)
              for name in ((title, f"{title} low", f"{title} high") if column in spread else (title,))]  # fmt: skip
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in table.rows:
        writer.writerow(field for column, cell in enumerate(row) for field in _fields(cell, column in spread))
    return text.getvalue()


def as_latex(comparison: Comparison) -> str:
    """Interquartile means with intervals, one row a metric and one column a group (package booktabs)."""
    arrows = {"higher": r" $\uparrow$", "lower": r" $\downarrow$", None: ""}
    labels = [group.label for group in comparison.groups]
    lines = [
        "% " + METHOD,
        r"\begin{tabular}{l" + "c" * len(labels) + "}",
        r"\toprule",
        " & ".join(["metric", *(label.translate(LATEX) for label in labels)]) + r" \\",
        r"\midrule",
    ]
    for metric in comparison.metrics:
        cells = (_latex(comparison.outcomes[label, metric].iqm) for label in labels)
        lines.append(" & ".join([metric.translate(LATEX) + arrows[comparison.better[metric]], *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def number(value: float) -> str:
    """Four digits; none is a dash."""
    return "-" if math.isnan(value) else f"{value:.4g}"


def cell_text(cell: Any) -> str:
    if isinstance(cell, Estimate):
        return number(cell.value) + ("" if math.isnan(cell.low) else f" [{number(cell.low)}, {number(cell.high)}]")
    if isinstance(cell, float):
        return number(cell)
    return "-" if cell is None or cell == "" else printable(cell)


def _fields(cell: Any, spread: bool) -> Iterator[Any]:
    parts = (
        (cell.value, cell.low, cell.high) if isinstance(cell, Estimate) else (cell, None, None) if spread else (cell,)
    )
    for part in parts:
        part = "" if part is None or (isinstance(part, float) and math.isnan(part)) else part
        # a spreadsheet would compute a name that begins like a formula
        yield f"'{part}" if isinstance(part, str) and part.startswith(("=", "+", "-", "@", "\t")) else part


def _latex(found: Estimate) -> str:
    if math.isnan(found.value):
        return "--"
    middle = f"${number(found.value)}$"
    return middle if math.isnan(found.low) else f"{middle} {{\\small $[{number(found.low)}, {number(found.high)}]$}}"


def _span(values: np.ndarray) -> str:
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low} to {high}"


def _seen(values: np.ndarray | None) -> str:
    known = values[np.isfinite(values)] if values is not None else np.empty(0)
    return (
        "-" if not len(known) else f"{number(float(np.median(known)))} ({number(known.min())} to {number(known.max())})"
    )
