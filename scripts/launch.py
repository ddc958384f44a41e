"""Run configurations × seeds × a grid of values: each run once, many at a time.

    python scripts/launch.py --config A.yaml B.yaml --seeds 1-5 --set lr=3e-4,7e-4 --jobs 4 -- --total_env_steps 200000

What follows -- are main.py's flags, for every run. Given again, the command skips what is finished, goes on with what
was interrupted or crashed, and waits for what still runs. --dry-run prints the runs, one command a line.

Engines: local (processes of this machine); ray (the cluster of RAY_ADDRESS, or one of its own here); slurm (an array
job, which this submits and leaves).

Exit code: 0 all finished (slurm: submitted) · 1 some failed, which are listed · 2 bad input, nothing was started ·
130 / 143 / 138 stopped by SIGINT / SIGTERM / SIGUSR1, which every run got: each has a checkpoint, and the same command
goes on.
"""

from __future__ import annotations

import contextlib
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from envs.registry import validate_settings  # noqa: E402
from navrl.faults import ConfigError  # noqa: E402
from navrl.launch import local, ray  # noqa: E402
from navrl.launch.expand import Planned, expand, read_grid, read_seeds  # noqa: E402
from navrl.launch.local import Halt, Job, Outcome  # noqa: E402
from navrl.launch.slurm import SlurmError, submit  # noqa: E402
from navrl.launch.state import conflicts  # noqa: E402
from navrl.launch.table import Line, Table  # noqa: E402
from navrl.pipes import Parser, run_program, whole  # noqa: E402


def arguments() -> Parser:
    parser = Parser(__doc__)
    parser.add_argument("--config", nargs="+", required=True, metavar="FILE", help="YAML files, each a configuration")
    parser.add_argument("--seeds", nargs="+", required=True, metavar="SEED", help="1-5, or 1,2,9, or both")
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=V1,V2",
        help="values of a key that each make a configuration; several keys make their grid",
    )
    parser.add_argument("--engine", choices=("local", "ray", "slurm"), default="local", help="default: local")
    parser.add_argument(
        "--jobs",
        type=whole(1),
        help="runs at once (default: local one a core, or K cores with --processes K; else all)",
    )
    parser.add_argument(
        "--retries",
        type=whole(0),
        default=2,
        help="how often a run that crashed, or whose node was lost, is gone on with (default: 2)",
    )
    parser.add_argument(
        "--cpus", type=whole(1), help="CPUs that each run asks Ray or Slurm for (default: its --processes, else 1)"
    )
    parser.add_argument("--gpus", type=whole(0), help="GPUs likewise (default: 0)")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and end")
    return parser


def main(argv: list[str]) -> int:
    end = argv.index("--") if "--" in argv else len(argv)
    parser = arguments()
    options = parser.parse_args(argv[:end])
    if options.engine == "local" and (options.cpus or options.gpus):
        parser.error("--cpus and --gpus ask Ray or Slurm for room; with --engine local --jobs bounds what runs at once")
    try:
        seeds, grid = read_seeds(options.seeds), read_grid(options.set)
        plan = expand(options.config, seeds, grid, argv[end + 1 :], os.environ, validate_settings)
        faults = [fault for run in plan for fault in conflicts(run)]
        if faults:
            raise ConfigError(faults)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    if options.dry_run:
        for run in plan:
            print(run.line())
        return 0
    try:
        if options.engine == "slurm":
            print(submit(plan, jobs=options.jobs, **room_of(plan, options), retries=options.retries))
            return 0
        return run_here(plan, options)
    except SlurmError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"run_dir: cannot write {error.filename}: {error.strerror}; choose a directory that can be written with "
              "--run_dir", file=sys.stderr)  # fmt: skip
        return 2


def run_here(plan: Sequence[Planned], options: Namespace) -> int:
    """With this process to look after the runs; returns the exit code. Raises OSError."""
    halt, room = Halt(), room_of(plan, options)
    with contextlib.ExitStack() as opened:
        if options.engine == "ray":
            try:
                opened.enter_context(ray.connected(**room))
            except ray.ClusterError as error:
                print(error, file=sys.stderr)
                return 2
        opened.enter_context(local.signals_to(halt))
        table = opened.enter_context(Table())
        if options.engine == "ray":
            outcomes = ray.run_all(
                plan, jobs=options.jobs, **room, retries=options.retries, halt=halt,
                look=lambda remotes: table.show([line_of_remote(remote) for remote in remotes]),
            )  # fmt: skip
        else:
            jobs = options.jobs or min(local.places(run.config) for run in plan)
            outcomes = local.run_all(
                plan, jobs=jobs, retries=options.retries, halt=halt,
                look=lambda jobs: table.show([line_of_job(job) for job in jobs]),
            )  # fmt: skip
        table.show([Line(outcome.run, outcome.status, outcome.reason) for outcome in outcomes], last=True)
    return conclude(outcomes, halt)


def conclude(outcomes: Sequence[Outcome], halt: Halt) -> int:
    """Say what is not finished; returns the exit code."""
    for outcome in outcomes:
        if outcome.status == "failed":
            print(f"failed: {outcome.run.label}: {outcome.reason} ({local.log_of(outcome.run)})", file=sys.stderr)
    left = sum(outcome.status in ("interrupted", "waiting") for outcome in outcomes)
    if left:
        print(f"{left} of {len(outcomes)} runs are to be gone on with: give the same command again", file=sys.stderr)
    if halt.signals and left:
        return 128 + halt.signals[0]
    return int(any(outcome.status != "finished" for outcome in outcomes))


def room_of(plan: Sequence[Planned], options: Namespace) -> dict[str, int]:
    """The CPUs and GPUs that each run asks for: as one array job all ask for the same."""
    return {"cpus": options.cpus or max(run.config.processes for run in plan), "gpus": options.gpus or 0}


def line_of_job(job: Job) -> Line:
    if job.outcome is not None:
        return Line(job.run, job.outcome.status, job.outcome.reason)
    if job.running:
        return Line(job.run, "running", f"attempt {job.attempts}" if job.attempts > 1 else "")
    return Line(job.run, "elsewhere" if job.elsewhere else "waiting")


def line_of_remote(remote: ray.Remote) -> Line:
    if remote.outcome is not None:
        return Line(remote.run, remote.outcome.status, remote.outcome.reason)
    return Line(remote.run, "running" if remote.running else "waiting")


if __name__ == "__main__":
    run_program(main, unread=1)
