"""Signals at random moments of every phase of a run: exit code, seconds from start to end, and is the resume exact?

    python benchmarks/stop_signals.py [--each 4] [--seed 0] [--trackers tensorboard]

For each phase, ``--each`` runs get SIGINT, SIGTERM or SIGUSR1 at a random call of what that phase does: alone, with
their process group (a terminal's Ctrl-C), or with all processes they started (Slurm). All have trackers, and a worker
process in the final evaluation. Half of them get a second signal at a random moment after the first. Each is then
resumed and compared with a run that nobody stopped. Exit code 1 where a code or a number is not as it should be.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from exactness import compare
from machine import machine

import stop_tools  # noqa: E402
from whole_runs import resume, run_dirs, summary, tiny_argv, train  # noqa: E402

from navrl.checkpoint import CheckpointStore  # noqa: E402

FLAGS = ("--total_env_steps", "2400", "--eval_interval", "2", "--checkpoint_interval", "2", "--log_eval_episodes", "1")
CALLS = {  # at most so many of each in a run of FLAGS
    "start-up": 1, "opening": 1, "trackers start": 1, "trackers import": 1, "iteration": 6, "collect": 150, "update": 48,
    "evaluation": 4, "checkpoint": 3, "amid a file": 30, "final workers start": 1, "final evaluation": 1,
    "animation": 1, "trackers close": 1,
}  # fmt: skip
DECIDED = ("animation", "trackers close")  # the result is there: the signal changes nothing
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=4, help="runs a phase")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trackers", nargs="*", default=["tensorboard"], choices=("tensorboard", "wandb", "mlflow"))
    options = parser.parse_args()
    chance, faults = random.Random(options.seed), []
    stop_tools.hub.TrackerHub._keep_code = lambda *_: None
    print(f"{'phase':<22}{'exit codes':<34}{'slowest run':>12}{'second signals':>16}{'trackers whole':>16}{'difference':>12}")
    with tempfile.TemporaryDirectory() as scratch:
        whole = train(Path(scratch) / "whole", *FLAGS).run_dir
        for phase, calls in CALLS.items():
            codes: Counter[int] = Counter()
            slowest, seconds, published, largest = 0.0, 0, [0, 0], 0.0
            for index in range(options.each):
                root = Path(scratch) / f"{phase}-{index}"
                root.mkdir()
                first, twice = chance.choice(SIGNALS), index % 2 == 1 and phase != "start-up"
                whom = chance.choice(("self", "group", "tree"))
                moments = [(phase, chance.randint(1, calls), first)]
                if twice:
                    second = chance.choice([number for number in SIGNALS if number != first])
                    moments.append((chance.choice(("amid a file", "collect", "update")), chance.randint(1, 8), second))
                argv = tiny_argv(root, *FLAGS, "--num_workers", "1", "--logger", "console", *options.trackers,
                                 "--wandb_mode", "offline")  # fmt: skip
                if "wandb" in options.trackers:
                    argv.remove("--no_log_wandb")
                began = time.monotonic()
                code = stop_tools.wait(stop_tools.start(argv, root / "said.txt", *moments, whom=whom), 200)
                said = (root / "said.txt").read_text()
                codes[code] += 1
                at = f"{phase} {moments} to {whom}: "
                allowed = {0} if phase in DECIDED else {128 + first}
                if twice:
                    allowed.add(128 + second)
                    seconds += code == 128 + second
                if code not in allowed or "Traceback" in said:
                    faults.append(f"{at}ended with {code}\n{said}")
                if phase == "start-up":
                    if run_dirs(root):
                        faults.append(f"{at}something was written")
                    continue
                (run_dir,) = run_dirs(root)
                slowest = max(slowest, time.monotonic() - began)
                for has in summary(run_dir).get("trackers", {}).values():
                    published[0] += has["state"] == "local" or (has["state"], has["owed"]) == ("finished", 0)
                    published[1] += 1
                store = CheckpointStore(run_dir / "checkpoints")
                if store.entries and store.newest()[2]:
                    faults.append(f"{at}{store.newest()[2]}")
                if resume(run_dir, "--num_workers", "0", "--logger", "console").code:
                    faults.append(f"{at}cannot be resumed")
                    continue
                largest = max(largest, *compare(whole, run_dir).values())
            told = ", ".join(f"{code} x {count}" for code, count in sorted(codes.items()))
            print(f"{phase:<22}{told:<34}{slowest:>10.1f} s{seconds:>16}{f'{published[0]} of {published[1]}':>16}{largest:>12g}",
                  flush=True)  # fmt: skip
            if largest:
                faults.append(f"{phase}: a resume is not exact")
            if published[0] < published[1]:
                faults.append(f"{phase}: a tracker has not all")
    print(machine("mpe2"))
    for fault in faults:
        print(f"FAULT {fault}")
    print(f"{len(faults)} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
