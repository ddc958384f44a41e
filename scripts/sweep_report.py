"""Say what a sweep found: parameter importance, parallel coordinates, slices, and the best configuration as YAML.

    python scripts/sweep_report.py configs/sweep/bayes_fine.yaml --out sweep_report [--storage URL] [-- --key value ...]

FILE, --storage, --seeds and the words after -- are those that the sweep was run with. A sweep that still runs can be
looked at too. Then: python main.py --config sweep_report/best.yaml --seed 1
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from envs.registry import validate_settings  # noqa: E402
from navrl.faults import ConfigError  # noqa: E402
from navrl.launch.expand import read_seeds  # noqa: E402
from navrl.pipes import Parser, run_program  # noqa: E402


def main(argv: list[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("file", help="the sweep, in W&B's YAML format")
    parser.add_argument("--storage", help="where the study is (default: sweeps.db beside the runs)")
    parser.add_argument("--seeds", nargs="+", metavar="SEED", help="as for the sweep; best.yaml takes the first")
    parser.add_argument("--out", type=Path, default=Path("sweep_report"), help="directory (default: sweep_report)")
    end = argv.index("--") if "--" in argv else len(argv)
    options = parser.parse_args(argv[:end])
    try:
        import optuna  # noqa: F401, I001
        import matplotlib  # noqa: F401
        import sklearn  # noqa: F401  (Optuna's importance)

        from navrl.sweep import report
        from navrl.sweep.place import locate
        from navrl.sweep.study import StudyError
    except ImportError as error:
        print(f"{error.name} is not installed: pip install -r requirements-sweep.txt", file=sys.stderr)
        return 2
    try:
        place = locate(
            options.file, argv[end + 1 :], environ=os.environ, task_check=validate_settings,
            seeds=read_seeds(options.seeds) if options.seeds else None, storage=options.storage,
        )  # fmt: skip
        print(report.write(place, report.load(place), options.out))
    except (ConfigError, StudyError) as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"--out {options.out}: cannot be written ({error.strerror})", file=sys.stderr)
        return 2
    for path in sorted(options.out.iterdir()):
        print(path)
    return 0


if __name__ == "__main__":
    run_program(main)
