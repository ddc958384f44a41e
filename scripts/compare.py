"""Compare groups of seeds: tables with intervals, learning curves, profiles, and what to know before believing them.

    python scripts/compare.py GROUP_OR_DIR [ANOTHER ...] [--metric eval/episode_reward ...] [--out DIR]
    python scripts/compare.py --from mlflow:http://host:5000:NAVRL wandb:entity/project:group      runs of trackers

A GROUP is a directory (a group, a run, a project, a root of runs), or a group's name under --run_dir. Runs may still be
running. With --out the tables are written as text, CSV and LaTeX beside the figures (pip install -r
requirements-plots.txt). Statistics as Agarwal et al. 2021 define them: navrl/analysis/statistics.py.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from navrl.analysis import tables  # noqa: E402
from navrl.analysis.comparison import DEFAULT_METRICS, DEFAULT_THRESHOLDS, Comparison, compare  # noqa: E402
from navrl.analysis.curves import AXES, BANDS  # noqa: E402
from navrl.analysis.gather import add_sources, gather, require_metrics  # noqa: E402
from navrl.analysis.run_card import printable  # noqa: E402
from navrl.files import require_writable, write_text  # noqa: E402
from navrl.pipes import Parser, run_program, whole  # noqa: E402

MANY_PAIRS = 40  # of groups, in the text; all are in pairs.csv


def main(argv: list[str]) -> int:
    options = _options(argv)
    thresholds = dict(options.threshold) if options.threshold else DEFAULT_THRESHOLDS
    asked = [*(options.metric or ()), *(metric for metric, _ in options.threshold or ())]
    wanted = [*(options.metric or DEFAULT_METRICS), *asked]
    try:
        runs, left_out = gather(options.groups, options.run_dir, wanted, options.sources, options.wandb_proxy)
        require_metrics(asked, runs)  # of the default ones, a task or a young run may lack some
        comparison = compare(
            runs, wanted, left_out=left_out, axes=(options.axis,) if options.out else (), band=options.band,
            smooth=options.smooth, at=options.at, thresholds=thresholds,
        )  # fmt: skip
        if not comparison.metrics:
            raise ValueError(f"no run has any of {', '.join(wanted)}; name other metrics with --metric")
        text = as_text(comparison)
        if options.out:
            write(comparison, text, options.axis, options.out)
    except ImportError as error:  # it is there and does not work
        print(f"--out: {error}; pip install -r requirements-plots.txt", file=sys.stderr)
        return 2
    except (ValueError, OSError) as error:
        print(f"{error}", file=sys.stderr)
        return 2
    print(text, end="")
    if options.out:
        print(f"\nwritten to {options.out}")
    return 0


def as_text(comparison: Comparison) -> str:
    """What the console shows."""
    parts = [tables.overview(comparison)]
    parts += [tables.results(comparison, metric) for metric in comparison.metrics]
    parts.append(tables.finals_by_seed(comparison))
    if 0 < len(comparison.pairs) <= MANY_PAIRS * len(comparison.metrics):
        parts.append(tables.pairs(comparison))
    for title, found in (("configuration", comparison.config), ("made of", comparison.metadata)):
        if found:
            parts.append(tables.differences(f"{title}: what differs", comparison, found))
    lists = [("warnings", comparison.warnings),
             ("left out", [f"{place.source}: {place.reason}" for place in comparison.left_out])]  # fmt: skip
    said = [f"{title}\n" + "".join(f"  {printable(line)}\n" for line in lines) for title, lines in lists if lines]
    return "\n".join([*map(tables.as_text, parts), *said, tables.METHOD + "\n"])


def write(comparison: Comparison, text: str, axis: str, out: Path) -> None:
    """Tables and figures, one file each."""
    from navrl.analysis import figures

    out.mkdir(exist_ok=True)
    write_text(out / "comparison.txt", text)
    contents = {
        "results": tables.all_results(comparison),
        "seeds": tables.seeds(comparison),
        "pairs": tables.pairs(comparison),
        "configuration": tables.differences("configuration", comparison, comparison.config),
    }
    for name, table in contents.items():
        write_text(out / f"{name}.csv", tables.as_csv(table))
    write_text(out / "results.tex", tables.as_latex(comparison))
    drawings = {
        "curves": lambda path: figures.draw_curves(comparison, axis, path),
        "behaviour": lambda path: figures.draw_behaviour(comparison, path),
        "profiles": lambda path: figures.draw_profiles(comparison, path),
        "distribution": lambda path: figures.draw_distribution(comparison, path),
    }
    for name, draw in drawings.items():
        path = out / f"{name}.png"
        path.unlink(missing_ok=True)  # of an earlier comparison
        if name == "distribution" and comparison.at is None:
            continue
        try:
            draw(path)
        except ValueError as error:  # nothing of its kind among these metrics
            print(f"{path.name}: {error}", file=sys.stderr)


def _options(argv: list[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="a directory, or a group's name under --run_dir")
    add_sources(parser)
    parser.add_argument(
        "--metric", nargs="+", help="names as in metrics.jsonl (default: reward, success and behaviour)"
    )
    parser.add_argument("--out", type=Path, help="directory for tables and figures (default: the text alone)")
    parser.add_argument("--run_dir", type=Path, default=Path(os.environ.get("NAVRL_RUNS") or "runs"),
                        help="root of runs (default: NAVRL_RUNS, else runs)")  # fmt: skip
    parser.add_argument("--at", type=whole(0), metavar="STEP", help="also the values at this environment step")
    parser.add_argument("--threshold", type=_threshold, nargs="+", metavar="METRIC=VALUE",
                        help="steps until a metric reaches a value (default: eval/normalized_score=0.9)")  # fmt: skip
    parser.add_argument("--axis", choices=tuple(AXES), default="step", help="x axis of the curves (default: step)")
    parser.add_argument("--band", choices=BANDS, default="bootstrap", help="around means (default: bootstrap, 95 %%)")
    parser.add_argument("--smooth", type=whole(0), default=0, metavar="STEPS",
                        help="curves as mean of the last STEPS environment steps (default: 0, none)")  # fmt: skip
    options = parser.parse_args(argv)
    if not options.groups and not options.sources:
        parser.error("name a GROUP, or a tracker with --from")
    if options.out:
        if importlib.util.find_spec("matplotlib") is None:
            parser.error("--out: matplotlib is not installed: pip install -r requirements-plots.txt")
        try:
            if options.out.exists() and not options.out.is_dir():
                raise ValueError(f"{options.out} is a file; name a directory")
            require_writable(options.out / "x" if options.out.is_dir() else options.out)
        except ValueError as error:
            parser.error(f"--out: {error}")
    return options


def _threshold(text: str) -> tuple[str, float]:
    metric, _, word = text.rpartition("=")
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not metric or not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not METRIC=VALUE, as eval/success_rate=0.8")
    return metric, value


if __name__ == "__main__":
    run_program(main)
