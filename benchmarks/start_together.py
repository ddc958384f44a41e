"""Start many runs of one configuration in one second in one directory: does each have a directory and an id of its own?

    python benchmarks/start_together.py [--runs 20] [--logger console mlflow] [--root DIRECTORY]

Each is a process with the same words, one of which is --if_exists new, forked from this one that has torch imported: so
they come within milliseconds, which imports would spread over seconds. All must end well, hold the same numbers
(their seed is the same), and, with mlflow, be as many children of one group in one SQLite store. Then as many processes
resume one of them at once: one goes on, the others are refused. Exit code 1 where any of this fails.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from exactness import compare, each_step_once
from machine import machine

import mlflow_tools  # noqa: E402
import stop_tools  # noqa: E402
from whole_runs import resume, run_dirs, tiny_argv, train  # noqa: E402

from navrl.tracking.record import read_events  # noqa: E402

STEPS, TOTAL = 400, 1600


def end_of(children: list[int], root: Path, timeout: float = 1200.0) -> list[tuple[int, str]]:
    """(exit code, last line that it said) of each."""
    ends = []
    for number, child in enumerate(children):
        code = stop_tools.wait(child, timeout)
        ends.append((code, (root / f"said-{number}.txt").read_text().strip().splitlines()[-1]))
        (root / f"said-{number}.txt").unlink()
    return ends


def over(child: int) -> bool:
    """Whether it has ended; it can still be waited for."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--logger", nargs="+", default=["console"], choices=("console", "mlflow", "tensorboard"))
    parser.add_argument("--root", type=Path, default=None, help="where the runs go (default: a temporary directory)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = options.root or Path(scratch)
        store = mlflow_tools.empty_store(root / "store" / "mlflow.db") if "mlflow" in options.logger else ""
        argv = tiny_argv(root / "runs", "--total_env_steps", str(TOTAL), "--if_exists", "new", "--group", "together",
                         "--logger", *options.logger)  # fmt: skip
        if store:
            argv += ["--mlflow_tracking_uri", store]
        stop_tools.hub.TrackerHub._keep_code = lambda *_: None  # a second of git each
        train(root / "first", "--total_env_steps", "400")  # all that a run imports is there when it is forked
        began = time.monotonic()
        children = [stop_tools.start(argv, root / f"said-{number}.txt") for number in range(options.runs)]
        started = time.monotonic() - began
        codes = [code for code, _ in end_of(children, root)]
        took = time.monotonic() - began
        found = run_dirs(root / "runs")
        uids = {read_events(run_dir)[0]["uid"] for run_dir in found}
        differences = {max(compare(found[0], run_dir).values()) for run_dir in found}
        facts = {
            "processes": (options.runs, options.runs),
            "ended with 0": (codes.count(0), options.runs),
            "run directories": (len(found), options.runs),
            "run ids": (len(uids), options.runs),
            "records with each step once": (sum(each_step_once(run_dir, TOTAL, STEPS) for run_dir in found), options.runs),
            "largest difference between any two": (max(differences, default=None), 0.0),
        }
        if store:
            client = mlflow_tools.client(store)
            _, published = mlflow_tools.children(client, group="together")
            facts["children of one group in MLflow"] = (len(published), options.runs)
            whole = sum(len(mlflow_tools.rows(client, run.info.run_id)) == TOTAL // STEPS + 1 for run in published)
            facts["of them with every row once"] = (whole, options.runs)
        # a run that goes on until all others have been refused
        argv = ["--resume", str(found[0]), "--total_env_steps", "1000000000"]
        children = [stop_tools.start(argv, root / f"said-{number}.txt") for number in range(options.runs)]
        while sum(not over(child) for child in children) > 1:
            time.sleep(0.1)
        for child in children:
            if not over(child):
                os.kill(child, signal.SIGTERM)
        ends = end_of(children, root)
        refused = [line for code, line in ends if code == 2 and "in use by another process" in line]
        facts["processes that resumed one run"] = (sum(code == 143 for code, _ in ends), 1)
        facts["refused, for it is in use"] = (len(refused), options.runs - 1)
        facts["another one resumed and ended well"] = (resume(found[1]).code, 0)
    print(f"{machine('mpe2')}; {options.runs} processes started in {started:.2f} s, ended after {took:.0f} s")
    for name, (value, wanted) in facts.items():
        print(f"{name:<40}{value}{'' if value == wanted else f'   NOT {wanted}'}")
    for line in refused[:1]:
        print(line)
    return int(any(value != wanted for value, wanted in facts.values()))


if __name__ == "__main__":
    sys.exit(main())
