"""Preempt a task of an array job and kill another's run: do all runs finish, and are they the right ones?

    python benchmarks/slurm_preemption.py [--steps 20000] [--stand-in]

2 configurations × 3 seeds, `launch.py --engine slurm --jobs 2`, on a Slurm of its own (as root, with Debian's packages
slurmctld, slurmd, slurm-client and munge), else, or with --stand-in, on tests/slurm_stand_in.py. Once two runs have a
checkpoint, the batch shell of the first task gets SIGUSR1, as before a time limit, and the run of the second SIGKILL.
Every run is compared with the same run by a local launcher. Exit code 1 where anything is not as it should be.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from exactness import compare
from machine import machine

import slurm_stand_in  # noqa: E402
import slurm_up  # noqa: E402
from launch_tools import LAUNCH, open_records  # noqa: E402
from whole_runs import run_dirs, summary, tiny_argv  # noqa: E402

from navrl.tracking.record import read_events, read_rows  # noqa: E402


def launch(root: Path, steps: int, *words: str, environ: dict[str, str]) -> subprocess.CompletedProcess:
    (root.parent / "tiny.yaml").write_text("env_id: simple_spread\n")
    flags = tiny_argv(root, "--total_env_steps", str(steps), "--checkpoint_interval", "5")
    return subprocess.run(
        [*LAUNCH, "--config", "tiny.yaml", "--seeds", "1-3", "--set", "lr=1e-3,2e-3", "--jobs", "2", *words,
         "--", *flags],
        cwd=root.parent, env=environ | {"OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip


def training(root: Path) -> dict[Path, int]:
    """Run directory -> process, of the runs that have a checkpoint and go on."""
    return {
        run: pid for run, pid in open_records(1).items() if root in run.parents and list(run.glob("checkpoints/*.pt"))
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20000, help="of each run, a multiple of 400 (default: 20000)")
    parser.add_argument("--stand-in", action="store_true")
    options = parser.parse_args()
    facts: dict[str, tuple[object, object]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        root, local = Path(scratch) / "slurm" / "runs", Path(scratch) / "local" / "runs"
        root.parent.mkdir(), local.parent.mkdir()
        stand_in = options.stand_in or not slurm_up.is_here()
        directory = Path(scratch) / "cluster"
        with slurm_stand_in.Slurm(directory) if stand_in else slurm_up.Slurm(directory, cpus=2) as slurm:
            what = "tests/slurm_stand_in.py" if stand_in else slurm.version()
            said = launch(root, options.steps, "--engine", "slurm", environ=slurm.environ)
            print(said.stdout + said.stderr, end="", flush=True)
            facts["exit code of the launcher"] = (said.returncode, 0)
            while len(there := training(root)) < 2:
                time.sleep(0.05)
            first, second = sorted(there)
            slurm.preempt(1)
            os.kill(there[second], signal.SIGKILL)
            print("preempted the first task, killed the run of the second", flush=True)
            again = launch(root, options.steps, "--engine", "slurm", environ=slurm.environ).stdout
            facts["a second launcher submits nothing meanwhile"] = ("nothing more is submitted" in again, True)
            slurm.wait(1800)
            facts["nor afterwards"] = (launch(root, options.steps, "--engine", "slurm", environ=slurm.environ).stdout,
                                       "6 of 6 finished, 0 running: nothing to submit\n")  # fmt: skip
        runs = run_dirs(root)
        facts["runs"] = (len(runs), 6)
        facts["finished"] = (sum(summary(run)["status"] == "finished" for run in runs), 6)
        events = {run: read_events(run) for run in runs}
        attempts = {run: sum(event["event"] == "attempt" for event in events[run]) for run in runs}
        facts["processes that wrote the two runs"] = ([attempts[first], attempts[second]], [2, 2])
        facts["of every other run"] = ({attempts[run] for run in runs if run not in there}, {1})
        stopped = [event["exit_code"] for event in events[first] if event["event"] == "finish"]
        facts["exit codes of the preempted run"] = (stopped, [138, 0])
        cuts = [event["step"] for run in there for event in events[run] if event["event"] == "cut"]
        facts["both went on from a checkpoint (a step above 0)"] = (min(cuts) > 0, True)
        steps = list(range(0, options.steps + 1, 400))
        facts["runs with each step once"] = (sum([row["step"] for row in read_rows(run)] == steps for run in runs), 6)
        facts["exit code of a local launcher"] = (launch(local, options.steps, environ=dict(os.environ)).returncode, 0)
        same = [max(compare(a, b).values()) for a, b in zip(run_dirs(local), runs)]
        facts["largest difference to its runs"] = (max(same), 0.0)
    print(f"{machine('mpe2')}, {what}")
    for name, (value, wanted) in facts.items():
        print(f"{name:<52}{str(value).strip()}{'' if value == wanted else f'   NOT {wanted}'}")
    return int(any(value != wanted for value, wanted in facts.values()))


if __name__ == "__main__":
    sys.exit(main())
