"""Publish runs from their local records: `python scripts/sync.py RUN_DIR... --to wandb`.

Sends what is still owed, from wherever the run directory is now, to a tracker (and a server of it) that may be chosen
only now. Twice is once. What the run was told about it holds unless a flag here, or the tracker's own variable, says
otherwise.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


# Flags that are one tracker's: how its variable of the same meaning is called; None: it has none that comes first.
FLAGS = {
    "wandb": {"wandb_mode": None, "wandb_entity": None, "wandb_project": None, "wandb_proxy": None},
    "swanlab": {"swanlab_mode": "SWANLAB_MODE"},
    "mlflow": {"mlflow_tracking_uri": "MLFLOW_TRACKING_URI"},
}


def main(argv: list[str]) -> int:
    from navrl.pipes import Parser
    from navrl.redaction import filter_texts, redact
    from navrl.tracking.ledger import read_ledger
    from navrl.tracking.mlflow import usable_address
    from navrl.tracking.publish import SETTINGS_VARIABLE, read_run_info
    from navrl.tracking.record import RecordError, is_alive
    from navrl.tracking.registry import TRACKERS
    from navrl.tracking.tracker import TrackerUnavailable

    parser = Parser(__doc__)
    parser.add_argument("run_dirs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument("--to", required=True, choices=sorted(TRACKERS), help="tracker")
    parser.add_argument("--wandb_mode", choices=["online", "offline"], help="where W&B gets it (default: online)")
    parser.add_argument("--wandb_entity", type=_text, help="W&B account or team")
    parser.add_argument("--wandb_project", type=_text, help="W&B project")
    parser.add_argument("--wandb_proxy", type=_text, help="proxy for W&B alone (a password in one is never stored)")
    parser.add_argument("--swanlab_mode", choices=["online", "offline", "local"],
                        help="where SwanLab gets it (default: online where a key is configured)")
    parser.add_argument("--mlflow_tracking_uri", type=_text, help="MLflow server or database")
    arguments = parser.parse_args(argv)
    for tracker, flags in FLAGS.items():
        for flag in flags:
            if getattr(arguments, flag) is not None and tracker != arguments.to:
                parser.error(f"--{flag} says something about {tracker}, and this goes to {arguments.to}")
    given = {flag: getattr(arguments, flag) for flag in FLAGS.get(arguments.to, ()) if getattr(arguments, flag)}
    try:
        usable_address(given.get("mlflow_tracking_uri", "sqlite:///mlflow.db"))
    except TrackerUnavailable as error:
        parser.error(str(error))
    worst = 0
    for run_dir in arguments.run_dirs:
        run_dir = run_dir.absolute()
        if not (run_dir / "metrics.jsonl").is_file():
            print(f"{run_dir}: no run directory (no metrics.jsonl in it)", file=sys.stderr)
            worst = 2
            continue
        try:
            filter_texts(read_run_info(run_dir).settings.get("log_filter") or ())
        except RecordError:                       # the publisher says it
            filter_texts(())
        if is_alive(run_dir):
            print(redact(f"{run_dir}: still running; what is there now is published"))
        # A process of its own for each run: trackers keep state in their process, and one that hangs can be ended.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        environment[SETTINGS_VARIABLE] = json.dumps({k: v for k, v in given.items() if k != "wandb_mode"})
        environment |= {variable: given[flag] for flag, variable in FLAGS.get(arguments.to, {}).items()
                        if variable and flag in given}
        done = subprocess.run([sys.executable, "-m", "navrl.tracking.publish", str(run_dir), "--to", arguments.to,
                               "--wandb_mode", given.get("wandb_mode", "online")],
                              stdin=subprocess.DEVNULL, env=environment)
        ledger = read_ledger(run_dir / "tracking" / arguments.to)
        rows = sum(1 for _ in open(run_dir / "metrics.jsonl", "rb"))
        print(redact(f"{run_dir}: {arguments.to} has {min(ledger.get('rows', 0), rows)} of {rows} rows"
                     + (f", {ledger['url']}" if ledger.get("url") else "")
                     + ("" if done.returncode == 0 else f"; not complete: {ledger.get('error') or 'see above'}")))
        worst = max(worst, 1 if done.returncode else 0)
    return worst


def _text(value: str) -> str:
    if not value.strip():
        raise argparse.ArgumentTypeError("a value is needed")
    return value


if __name__ == "__main__":
    from navrl.pipes import run_program

    run_program(main, unread=1)
