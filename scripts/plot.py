"""Draw learning curves of runs or groups of seeds.

    python scripts/plot.py runs/NAVRL/GROUP [ANOTHER_GROUP ...] --out curves.png [--metrics eval/success_rate ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from navrl.analysis.curves import DEFAULT_METRICS, labelled, plot, require_metrics  # noqa: E402
from navrl.files import require_writable  # noqa: E402
from navrl.pipes import Parser, run_program  # noqa: E402
from navrl.tracking.record import RecordError  # noqa: E402


def main(argv: list[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("paths", nargs="+", type=Path, help="group directories or run directories")
    parser.add_argument("--metrics", nargs="+", help="names as in metrics.jsonl")
    parser.add_argument("--out", type=Path, default=Path("curves.png"), help="default: curves.png")
    options = parser.parse_args(argv)
    try:
        require_writable(options.out)
    except ValueError as error:
        parser.error(f"--out: {error}")
    try:
        groups = labelled(options.paths)
        if options.metrics:  # of the default ones, a young run may lack some
            require_metrics(groups, options.metrics)
        plot(groups, options.metrics or DEFAULT_METRICS, options.out)
    except ImportError:
        print("matplotlib is not installed: pip install -r requirements-plots.txt", file=sys.stderr)
        return 2
    except (RecordError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(options.out)
    return 0


if __name__ == "__main__":
    run_program(main)
