"""Hand over a comparison of groups of seeds: one HTML file that opens from disk, or Markdown, or a W&B Report.

    python scripts/report.py GROUP_OR_DIR [ANOTHER ...] --out report.html
    python scripts/report.py GROUP_OR_DIR [ANOTHER ...] --to markdown --out report.md
    python scripts/report.py GROUP_OR_DIR [ANOTHER ...] --to wandb
    python scripts/report.py --from mlflow:http://host:5000:NAVRL --out report.html             runs of a tracker

A GROUP is a directory (a group, a run, a project, a root of runs), or a group's name under --run_dir. The HTML file
needs no network and no other file: summary in words, interactive curves of all four layers, evaluation episodes that
play, configurations with differences marked (pip install -r requirements-plots.txt). Markdown has its figures as PNG
files beside it. A W&B Report shows runs that W&B already has (pip install -r requirements-wandb-report.txt).
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from navrl.analysis.comparison import Comparison, compare  # noqa: E402
from navrl.analysis.curves import AXES, BANDS  # noqa: E402
from navrl.analysis.gather import add_sources, gather, require_metrics  # noqa: E402
from navrl.analysis.records import LeftOut, Run  # noqa: E402
from navrl.analysis.report import data, layers  # noqa: E402
from navrl.files import require_writable, write_text  # noqa: E402
from navrl.pipes import Parser, run_program, whole  # noqa: E402
from navrl.redaction import filter_texts, redact  # noqa: E402

ENDINGS = {"html": "html", "markdown": "md", "wandb": None}  # of the file that a form writes


def main(argv: list[str]) -> int:
    options = _options(argv)
    try:
        runs, left_out, metrics = _runs(options)
        # What a run hides from trackers is hidden from those whom its report is handed to.
        filter_texts({pattern for run in runs for pattern in run.config.get("log_filter") or ()})
        runs = [replace(run, group=redact(run.group), name=redact(run.name)) for run in runs]  # also in pictures
        comparison = compare(
            runs, metrics, left_out=left_out, axes=tuple(AXES), band=options.band, smooth=options.smooth
        )
        made = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        beside = (options.out or Path("report")).absolute().parent
        document = data.document(comparison, beside, made=made, name=options.title)
        for line in _write(options, document, comparison):
            print(line)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        print(f"{package} is not installed: pip install -r requirements-plots.txt", file=sys.stderr)
        return 2
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _runs(options: argparse.Namespace) -> tuple[list[Run], list[LeftOut], list[str]]:
    """The runs asked for, what was left out, and the metrics that the report shows."""
    runs, left_out = gather(options.groups, options.run_dir, options.metric, options.sources, options.wandb_proxy)
    require_metrics(options.metric or (), runs)
    return runs, left_out, layers.ordered(options.metric or {metric for run in runs for metric in run.columns})


def _write(options: argparse.Namespace, document: dict[str, Any], comparison: Comparison) -> list[str]:
    """Write the report in the form asked for -> lines that say where it is."""
    if options.to == "wandb":
        from navrl.analysis.report.wandb_report import publish

        url, notes = publish(document, comparison, entity=options.wandb_entity, project=options.wandb_project,
                             proxy=options.wandb_proxy)  # fmt: skip
        return [*notes, url]
    if options.to == "markdown":
        from navrl.analysis.report.markdown import draw, markdown

        pictures = draw(comparison, options.out)
        write_text(options.out, markdown(document, pictures))
        return [str(options.out), *(str(options.out.with_name(name)) for _, name in pictures)]
    from navrl.analysis.report.page import page

    write_text(options.out, page(document))
    return [str(options.out)]


def _options(argv: list[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="a directory, or a group's name under --run_dir")
    add_sources(parser)
    parser.add_argument("--to", choices=tuple(ENDINGS), default="html", help="form of the report (default: html)")
    parser.add_argument("--out", type=Path, help="file to write (default: report.html, report.md)")
    parser.add_argument("--metric", nargs="+", help="names as in metrics.jsonl (default: all of the four layers)")
    parser.add_argument("--run_dir", type=Path, default=Path(os.environ.get("NAVRL_RUNS") or "runs"),
                        help="root of runs (default: NAVRL_RUNS, else runs)")  # fmt: skip
    parser.add_argument("--title", default="", help="default: the names of the groups")
    parser.add_argument("--band", choices=BANDS, default="bootstrap", help="of the curves (default: bootstrap, 95 %%)")
    parser.add_argument("--smooth", type=whole(0), default=0, metavar="STEPS",
                        help="curves as mean of the last STEPS environment steps (default: 0)")  # fmt: skip
    parser.add_argument("--wandb_entity", help="account that has the runs, for --to wandb (default: as they say)")
    parser.add_argument("--wandb_project", help="project that has the runs, for --to wandb (default: as they say)")
    options = parser.parse_args(argv)
    if not options.groups and not options.sources:
        parser.error("name a GROUP, or a tracker with --from")
    for metric in options.metric or ():
        if layers.layer_of(metric) is None:
            parser.error(f"--metric: {metric!r} is no metric of the four layers (train/..., eval/..., perf/...)")
    for name in ("wandb_entity", "wandb_project"):
        if getattr(options, name) is not None and options.to != "wandb":
            parser.error(f"--{name} says something about wandb, and this goes to {options.to}")
    if options.to == "wandb":
        if options.out:
            parser.error("--out: a W&B Report is no file; its address is printed")
        return options
    options.out = options.out or Path(f"report.{ENDINGS[options.to]}")
    try:
        require_writable(options.out)
    except ValueError as error:
        parser.error(f"--out: {error}")
    return options


if __name__ == "__main__":
    run_program(main)
