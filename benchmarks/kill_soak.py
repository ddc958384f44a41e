"""Kill -9 a run at random moments and resume it each time until it finishes; is it the run that was never killed?

    python benchmarks/kill_soak.py [--kills 100] [--backend batched] [--seed 0] [--root DIRECTORY]

Each attempt is a process of its own (forked from this one, which has torch imported already: three seconds less each).
It is killed after a random time, or a random moment after a random number of new rows; alone or with all its children
(publishers, and workers of --backend mpe2); now and then one of these is killed a moment before. One attempt in four
has MLflow as a tracker, with an SQLite store. The killed run must be equal to a whole one in every part, its record
have each step once, and the store, after one sync, each row once. Exit code 1 where any of this fails; files that are
left over are counted, not judged.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from exactness import compare, each_step_once
from machine import machine

import mlflow_tools  # noqa: E402
import stop_tools  # noqa: E402
import tracking_run  # noqa: E402
from whole_runs import run_dirs, tiny_argv  # noqa: E402

from navrl.checkpoint import CheckpointStore  # noqa: E402
from navrl.tracking.record import read_rows  # noqa: E402

STEPS = 100  # an iteration: 4 copies x 25 steps
KEEP_CODE = stop_tools.hub.TrackerHub._keep_code
FLAGS = ("--num_envs", "4", "--mini_batch_size", "25", "--checkpoint_interval", "3", "--eval_interval", "10",
         "--group", "soak")  # fmt: skip


def end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def lines(run_dir: Path | None) -> int:
    try:
        return (run_dir / "metrics.jsonl").read_bytes().count(b"\n") if run_dir else 0
    except OSError:
        return 0


class Soak:
    def __init__(self, root: Path, kills: int, backend: str, seed: int) -> None:
        self.root, self.kills, self.random = root, kills, random.Random(seed)
        self.total = 6 * kills * STEPS
        self.flags = (*FLAGS, "--env_backend", backend, "--total_env_steps", str(self.total))
        self.workers = backend != "batched"
        if self.workers:
            self.flags += ("--num_workers", "1")
        self.store = mlflow_tools.empty_store(root / "store" / "mlflow.db")
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []

    @property
    def run_dir(self) -> Path | None:
        found = run_dirs(self.root / "killed")
        return found[0] if found else None

    def attempt(self) -> int:
        """Start or resume the run; returns the process id."""
        tracked = self.random.random() < 0.25
        self.counts["attempts with MLflow"] += tracked
        # the copy of the code takes a second of git each time; one attempt in four shows that a kill amid it does no harm
        stop_tools.hub.TrackerHub._keep_code = KEEP_CODE if tracked else lambda *_: None
        loggers = ("--logger", "console", *(["mlflow"] if tracked else ()), "--mlflow_tracking_uri", self.store)
        if self.run_dir is None:
            argv = [*tiny_argv(self.root / "killed", *self.flags, *loggers), "--if_exists", "resume"]
        else:
            argv = ["--resume", str(self.run_dir), *loggers]
        return stop_tools.start(argv, self.root / "said.txt")

    def kill(self, pid: int) -> bool:
        """Kill at a random moment; False where the run was over before."""
        begun, rows = time.monotonic(), lines(self.run_dir)
        timed = self.random.random() < 0.3
        seconds, more = self.random.uniform(0, 1.5), self.random.randint(1, 8)
        alone = self.random.random() < 0.1  # now and then a publisher dies before the run does
        while time.monotonic() - begun < (seconds if timed else 60) and (timed or lines(self.run_dir) < rows + more):
            time.sleep(0.002)
            if os.waitpid(pid, os.WNOHANG)[0]:
                return False
        if not timed:
            time.sleep(self.random.uniform(0, 0.03))
        below = stop_tools.descendants(pid)
        if alone and below:
            self.counts["children killed alone"] += 1
            end(self.random.choice(below))
            time.sleep(self.random.uniform(0, 0.1))
        end(pid)
        if self.random.random() < 0.5:
            self.counts["killed with its children"] += bool(below)
            for child in below:
                end(child)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) == 1 and alone and self.workers:
            self.counts["ended with the worker that was killed"] += 1
        elif os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            self.faults.append(f"ended by itself with {os.waitstatus_to_exitcode(status)}, see said.txt")
            return False
        self.counts["at a random time" if timed else "amid the loop"] += 1
        return True

    def look(self) -> None:
        """What a kill left behind is whole."""
        if self.run_dir is None:
            self.counts["before there was a run directory"] += 1
            return
        steps = [row["step"] for row in read_rows(self.run_dir)]
        if steps != list(range(0, STEPS * len(steps), STEPS)):
            self.faults.append(f"the record's steps after a kill: {steps}")
        store = CheckpointStore(self.run_dir / "checkpoints")
        if store.entries:
            state, path, problems = store.newest()
            self.faults += problems
            if state["runner"]["env_steps"] > steps[-1]:
                self.faults.append(f"the record ends at {steps[-1]}, behind {path.name}")
        else:
            self.counts["before the first checkpoint"] += 1

    def run(self) -> None:
        done = 0
        while done < self.kills:
            pid = self.attempt()
            if not self.kill(pid):
                print(f"the run was over after {done} kills", flush=True)
                break
            done += 1
            self.look()
            if done % 10 == 0:
                print(f"{done} kills, {lines(self.run_dir)} of {self.total // STEPS + 1} rows", flush=True)
        self.counts["kills"] = done
        code = stop_tools.wait(self.attempt(), 600)
        if code:
            self.faults.append(f"the last attempt ended with {code}, see said.txt")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--backend", choices=("batched", "mpe2"), default="batched")
    parser.add_argument("--seed", type=int, default=0, help="of the moments; the machine adds its own chance")
    parser.add_argument("--root", type=Path, default=None, help="where the runs go (default: a temporary directory)")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        root = options.root or Path(scratch)
        root.mkdir(parents=True, exist_ok=True)
        soak = Soak(root, options.kills, options.backend, options.seed)
        whole_code = stop_tools.wait(stop_tools.start(tiny_argv(root / "whole", *soak.flags), root / "said.txt"), 600)
        assert whole_code == 0, (root / "said.txt").read_text()
        (whole,) = run_dirs(root / "whole")
        soak.run()
        run_dir = soak.run_dir
        synced = tracking_run.sync(dict(os.environ), run_dir, "mlflow", timeout=300)
        store = mlflow_tools.client(soak.store)
        _, (published,) = mlflow_tools.children(store, group="soak")
        found = mlflow_tools.rows(store, published.info.run_id)  # a metric twice at a step is a fault there
        record = {row["step"]: row for row in read_rows(run_dir)}
        missing = sum(step not in found or not row.keys() - {"step"} <= found[step].keys() for step, row in record.items())
        stale = [path for path in run_dir.rglob("*.tmp")]
        indexed = {entry.file for entry in CheckpointStore(run_dir / "checkpoints").entries}
        orphans = [path for path in run_dir.glob("checkpoints/*.pt") if path.name not in indexed]
        results = {
            **soak.counts,
            "attempts": len([1 for line in (run_dir / "tracking" / "events.jsonl").open() if '"event": "attempt"' in line]),
            "rows cut and made again": sum(len(path.read_text().splitlines()) for path in run_dir.glob("metrics.cut-*")),
            "each step once in the record": each_step_once(run_dir, soak.total, STEPS),
            "sync": f"exit code {synced.returncode}, {synced.stdout.strip().splitlines()[-1:]}",
            "rows in MLflow": f"{len(found)} of {len(record)}, {missing} not whole, none twice",
            "temporary files left": len(stale),
            "checkpoints left that no index names": len(orphans),
        }
        differences = compare(whole, run_dir)
    print(machine("mpe2"))
    for name, value in results.items():
        print(f"{name:<40}{value}")
    for name, value in differences.items():
        print(f"{'largest difference: ' + name:<40}{value:g}")
    for fault in soak.faults:
        print(f"FAULT {fault}")
    good = not soak.faults and not missing and len(found) == len(record) and synced.returncode == 0
    good = good and results["each step once in the record"] and max(differences.values()) == 0
    print(f"{'equal' if good else 'NOT EQUAL'}, {time.monotonic() - began:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
