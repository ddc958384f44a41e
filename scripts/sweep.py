"""Run a W&B sweep file offline with Optuna (scripts/sweep.sh calls this).

    python scripts/sweep.py configs/sweep/bayes_fine.yaml --trials 40 --jobs 2 --seeds 1-3 [-- --key value ...]

Given again, on as many machines as share the study, the command goes on until all trials have ended; what was killed
goes on where it was. What follows -- is for main.py and wins over the file's command.

Exit code: 0 all trials ended, some of them early where the file says so · 1 some failed, which are listed · 2 bad
input, nothing was started, or main.py refuses to run here (no such device): its trials wait for another machine ·
130 / 143 / 138 stopped by SIGINT / SIGTERM / SIGUSR1, and the same command goes on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from envs.registry import validate_settings  # noqa: E402
from navrl.faults import ConfigError  # noqa: E402
from navrl.launch.expand import read_seeds  # noqa: E402
from navrl.launch.local import places  # noqa: E402
from navrl.pipes import Parser, run_program, whole  # noqa: E402


def arguments() -> Parser:
    parser = Parser(__doc__)
    parser.add_argument("file", help="the sweep, in W&B's YAML format")
    parser.add_argument("--trials", type=whole(1), metavar="T",
                        help="of the whole sweep, all calls and machines together (default: run_cap of the file; for a "
                             "grid all its points)")  # fmt: skip
    parser.add_argument("--jobs", type=whole(1), metavar="J",
                        help="runs at once here (default: one a core, or K cores with --processes K)")  # fmt: skip
    parser.add_argument("--seeds", nargs="+", metavar="SEED",
                        help="1-3, or 1,2,9: runs of every trial, whose mean is its value (default: the file's seed)")
    parser.add_argument("--storage", help="where the study is: sqlite:///FILE, postgresql://USER@HOST/DATABASE, which "
                        "many machines share, or journal:FILE (default: sqlite, beside the runs)")  # fmt: skip
    parser.add_argument("--retries", type=whole(0), default=2, help="how often a run that crashed is gone on with "
                        "(default: 2)")  # fmt: skip
    parser.add_argument("--heartbeat", type=whole(1), default=15, metavar="SECONDS",
                        help="with a database server: a worker silent for four times as long is dead (default: 15)")
    return parser


def main(argv: list[str]) -> int:
    end = argv.index("--") if "--" in argv else len(argv)
    options = arguments().parse_args(argv[:end])
    try:
        from navrl.sweep.place import locate
        from navrl.sweep.study import StudyError
        from navrl.sweep.worker import Worker, open_worker
    except ImportError as error:
        print(f"{error.name} is not installed: pip install -r requirements-sweep.txt", file=sys.stderr)
        return 2
    try:
        place = locate(
            options.file, argv[end + 1 :], environ=os.environ, task_check=validate_settings,
            seeds=read_seeds(options.seeds) if options.seeds else None, storage=options.storage,
        )  # fmt: skip
        worker: Worker = open_worker(
            place, trials=options.trials, jobs=options.jobs or places(place.base.config), retries=options.retries,
            heartbeat=options.heartbeat,
        )  # fmt: skip
    except (ConfigError, StudyError) as error:
        print(error, file=sys.stderr)
        return 2
    return worker.run()


if __name__ == "__main__":
    run_program(main, unread=1)
