"""Draw learning curves of runs or groups of seeds.

    python scripts/plot.py runs/NAVRL/GROUP [ANOTHER_GROUP ...] --out curves.png [--metrics eval/success_rate ...]

Tables and statistics beside them: scripts/compare.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from navrl.analysis.comparison import compare  # noqa: E402
from navrl.analysis.figures import draw_curves  # noqa: E402
from navrl.analysis.gather import gather, require_metrics  # noqa: E402
from navrl.files import require_writable  # noqa: E402
from navrl.pipes import Parser, run_program  # noqa: E402

# One panel each: does it solve the task (layer 2), how (layer 3), is training sane (layer 1).
DEFAULT_METRICS = (
    "eval/episode_reward",
    "eval/success_rate",
    "eval/collision_count",
    "eval/goal_distance",
    "train/entropy",
    "train/explained_variance",
)


def main(argv: list[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("paths", nargs="+", help="group directories or run directories")
    parser.add_argument("--metrics", nargs="+", help="names as in metrics.jsonl")
    parser.add_argument("--out", type=Path, default=Path("curves.png"), help="default: curves.png")
    options = parser.parse_args(argv)
    try:
        require_writable(options.out)
    except ValueError as error:
        parser.error(f"--out: {error}")
    if len(options.out.suffix) < 2:  # matplotlib would write another file than the one that was asked about
        parser.error(f"--out: {options.out} does not say which kind of image; name it .png, .svg or .pdf")
    wanted = options.metrics or DEFAULT_METRICS
    try:
        runs, left_out = gather(options.paths, Path("runs"), wanted)
        require_metrics(options.metrics or (), runs)  # of the default ones, a young run may lack some
        draw_curves(compare(runs, wanted, left_out=left_out), "step", options.out)
    except ImportError:
        print("matplotlib is not installed: pip install -r requirements-plots.txt", file=sys.stderr)
        return 2
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for place in left_out:
        print(f"left out: {place.source}: {place.reason}", file=sys.stderr)
    print(options.out)
    return 0


if __name__ == "__main__":
    run_program(main)
