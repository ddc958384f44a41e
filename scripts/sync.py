"""Publish runs from their local records: `python scripts/sync.py RUN_DIR... --to wandb`.

Sends what is still owed, from wherever the run directory is now, to a tracker that may be chosen only now.
Twice is once.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def main(argv: list[str]) -> int:
    from navrl.pipes import Parser
    from navrl.tracking.ledger import read_ledger
    from navrl.tracking.publish import SETTINGS_VARIABLE
    from navrl.tracking.record import is_alive
    from navrl.tracking.registry import TRACKERS

    parser = Parser(__doc__)
    parser.add_argument("run_dirs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument("--to", required=True, choices=sorted(TRACKERS), help="tracker")
    parser.add_argument("--wandb_mode", default="online", choices=["online", "offline"],
                        help="where W&B gets it (default: online)")
    parser.add_argument("--wandb_proxy", default=None, help="proxy for W&B alone (a password in one is never stored)")
    arguments = parser.parse_args(argv)
    worst = 0
    for run_dir in arguments.run_dirs:
        run_dir = run_dir.absolute()
        if not (run_dir / "metrics.jsonl").is_file():
            print(f"{run_dir}: no run directory (no metrics.jsonl in it)", file=sys.stderr)
            worst = 2
            continue
        if is_alive(run_dir):
            print(f"{run_dir}: still running; what is there now is published")
        # A process of its own for each run: trackers keep state in their process, and one that hangs can be ended.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        if arguments.wandb_proxy:
            environment[SETTINGS_VARIABLE] = json.dumps({"wandb_proxy": arguments.wandb_proxy})
        done = subprocess.run([sys.executable, "-m", "navrl.tracking.publish", str(run_dir), "--to", arguments.to,
                               "--wandb_mode", arguments.wandb_mode],
                              stdin=subprocess.DEVNULL, env=environment)
        ledger = read_ledger(run_dir / "tracking" / arguments.to)
        rows = sum(1 for _ in open(run_dir / "metrics.jsonl", "rb"))
        print(f"{run_dir}: {arguments.to} has {min(ledger.get('rows', 0), rows)} of {rows} rows"
              + (f", {ledger['url']}" if ledger.get("url") else "")
              + ("" if done.returncode == 0 else f"; not complete: {ledger.get('error') or 'see above'}"))
        worst = max(worst, 1 if done.returncode else 0)
    return worst


if __name__ == "__main__":
    from navrl.pipes import run_program

    run_program(main)
