"""Hand over a comparison of groups of seeds: one HTML file that opens from disk, or Markdown, or a W&B Report.

    python scripts/report.py GROUP_OR_DIR [ANOTHER ...] --out report.html
    python scripts/report.py GROUP_OR_DIR [ANOTHER ...] --to markdown --out report.md
    python scripts/report.py GROUP_OR_DIR [ANOTHER ...] --to wandb

A GROUP is a directory (a group, a run, a project, a root of runs), or a group's name under --run_dir. The HTML file
needs no network and no other file: summary in words, interactive curves of all four layers, evaluation episodes that
play, configurations with differences marked. It needs plotly (pip install -r requirements-plots.txt).
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import datetime, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from navrl.analysis import gather, records  # noqa: E402
from navrl.analysis.comparison import compare  # noqa: E402
from navrl.analysis.curves import AXES, BANDS  # noqa: E402
from navrl.analysis.report import data, layers  # noqa: E402
from navrl.files import require_writable, write_text  # noqa: E402
from navrl.pipes import Parser, run_program, whole  # noqa: E402
from navrl.redaction import filter_texts  # noqa: E402

PLOTS = "is not installed: pip install -r requirements-plots.txt"


def main(argv: list[str]) -> int:
    options = _options(argv)
    try:
        paths = [path for word in options.groups for path in gather.places(word, options.run_dir)]
        known = records.metric_names(records.find(paths)[0])
        metrics = layers.ordered(options.metric or known)
        runs, left_out = gather.gather(options.groups, options.run_dir, metrics)
        if options.metric:
            gather.require_metrics(options.metric, runs)
        # What a run hides from trackers is hidden from those whom its report is handed to.
        filter_texts({pattern for run in runs for pattern in run.config.get("log_filter") or ()})
        comparison = compare(
            runs, metrics, left_out=left_out, axes=tuple(AXES), band=options.band, smooth=options.smooth
        )
        made = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        document = data.document(comparison, options.out.absolute().parent, made=made, name=options.title)
        from navrl.analysis.report.page import page

        write_text(options.out, page(document))
    except ImportError as error:
        print(f"{error.name} {PLOTS}", file=sys.stderr)
        return 2
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(options.out)
    return 0


def _options(argv: list[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("groups", nargs="+", metavar="GROUP", help="a directory, or a group's name under --run_dir")
    parser.add_argument("--out", type=Path, help="file to write (default: report.html, report.md)")
    parser.add_argument("--metric", nargs="+", help="names as in metrics.jsonl (default: all of the four layers)")
    parser.add_argument("--run_dir", type=Path, default=Path(os.environ.get("NAVRL_RUNS") or "runs"),
                        help="root of runs (default: NAVRL_RUNS, else runs)")  # fmt: skip
    parser.add_argument("--title", default="", help="default: the names of the groups")
    parser.add_argument("--band", choices=BANDS, default="bootstrap", help="of the curves (default: bootstrap, 95 %%)")
    parser.add_argument("--smooth", type=whole(0), default=0, metavar="STEPS",
                        help="curves as mean of the last STEPS environment steps (default: 0, as recorded)")  # fmt: skip
    options = parser.parse_args(argv)
    options.out = options.out or Path("report.html")
    try:
        require_writable(options.out)
    except ValueError as error:
        parser.error(f"--out: {error}")
    return options


if __name__ == "__main__":
    run_program(main)
