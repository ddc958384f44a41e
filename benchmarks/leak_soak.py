"""Does anything grow? Memory, files, sockets, threads and child processes over many runs, or many iterations.

    python benchmarks/leak_soak.py --runs 50                               # 50 runs in one Python process
    python benchmarks/leak_soak.py --runs 50 --logger wandb tensorboard
    python benchmarks/leak_soak.py --iterations 2000                       # one run of 2 000 iterations

Each line is what this process holds at that moment, by /proc; at the end the growth since a fifth of the way, when
what is made once (imports, pools, caches) has been made. Exit code 1 where something grew.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in (".", "tests")]

from stop_tools import descendants  # noqa: E402
from tracking_run import processes_with  # noqa: E402

MEMORY_MB = 16.0  # growth of resident memory that the allocator alone may account for
TINY = (
    "--num_envs", "4", "--rollout_length", "25", "--hidden_size", "16", "--mini_batch_size", "100", "--ppo_epoch", "1",
    "--eval_episodes", "2", "--final_eval_episodes", "2", "--num_workers", "0",
)  # fmt: skip


@dataclass
class Usage:
    """What a process holds. memory: resident, MB. children: of any generation."""

    memory: float
    files: int
    sockets: int
    threads: int
    children: int

    @staticmethod
    def now() -> Usage:
        gc.collect()
        targets = []
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the descriptor of this very listing
                targets.append(os.readlink(f"/proc/self/fd/{name}"))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return Usage(
            memory=pages * os.sysconf("SC_PAGE_SIZE") / 2**20, files=len(targets),
            sockets=sum(target.startswith("socket:") for target in targets),
            threads=len(os.listdir("/proc/self/task")), children=len(descendants(os.getpid())),
        )  # fmt: skip

    def grown(self, since: Usage) -> list[str]:
        """What there is more of than `since`."""
        grown = [name for name in ("files", "sockets", "threads", "children") if getattr(self, name) >
                 getattr(since, name)]  # fmt: skip
        return grown + (["memory"] if self.memory - since.memory > MEMORY_MB else [])


def call(argv: list[str]) -> None:
    """`python main.py` in this process. Raises RuntimeError with its output where it does not end well."""
    import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main.main(argv)
    if code:
        raise RuntimeError(f"exit code {code}:\n{out.getvalue()}")


def soak_runs(runs: int, loggers: list[str], root: Path, tell: Callable[[int, Usage], Any]) -> list[Usage]:
    """`runs` whole runs one after the other; what this process holds after each."""
    found = []
    for number in range(1, runs + 1):
        call([*TINY, "--run_dir", str(root), "--total_env_steps", "300", "--log_eval_episodes", "1", "--wandb_mode",
              "offline", *_trackers(loggers)])  # fmt: skip
        found.append(Usage.now())
        tell(number, found[-1])
    return found


def soak_iterations(iterations: int, loggers: list[str], root: Path, tell: Callable[[int, Usage], Any]) -> list[Usage]:
    """One run; what this process holds after each hundredth of it."""
    from runners.on_policy import OnPolicyRunner

    found, iterate, every = [], OnPolicyRunner.iterate, max(iterations // 100, 1)

    def iterate_and_look(self: OnPolicyRunner, **options: Any) -> Any:
        result = iterate(self, **options)
        if self.iteration % every == 0:
            found.append(Usage.now())
            tell(self.iteration, found[-1])
        return result

    OnPolicyRunner.iterate = iterate_and_look
    try:
        call([*TINY, "--run_dir", str(root), "--total_env_steps", str(100 * iterations), "--log_eval_episodes", "1",
              "--eval_interval", "20", "--checkpoint_interval", "50", "--wandb_mode", "offline",
              *_trackers(loggers)])  # fmt: skip
    finally:
        OnPolicyRunner.iterate = iterate
    return found


def _trackers(loggers: list[str]) -> list[str]:
    return [*([] if "wandb" in loggers else ["--no_log_wandb"]), "--logger", "console", *loggers]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--runs", type=int, help="runs in one process (5 at least)")
    kind.add_argument("--iterations", type=int, help="iterations of one run (100 at least)")
    parser.add_argument("--logger", nargs="*", default=["wandb", "tensorboard"], help="trackers beside the console")
    options = parser.parse_args()
    total = options.runs or options.iterations
    if total < (5 if options.runs else 100):
        parser.error("too few to see anything grow")
    shown = max(total // 10, 1)
    print(f"{'run' if options.runs else 'iteration':>9} {'memory MB':>10} {'files':>6} {'sockets':>8} {'threads':>8} "
          f"{'children':>9}")  # fmt: skip

    def tell(number: int, usage: Usage) -> None:
        if number == 1 or number % shown == 0:
            memory, *counts = astuple(usage)
            print(f"{number:>9} {memory:>10.1f} " + "{:>6} {:>8} {:>8} {:>9}".format(*counts),
                  file=sys.__stdout__, flush=True)  # `call` takes the other one

    with tempfile.TemporaryDirectory(prefix="navrl-soak-") as directory:
        soak = soak_runs if options.runs else soak_iterations
        found = soak(total, options.logger, Path(directory), tell)
        orphans = processes_with(directory)  # nobody's children any more
    settled, last = found[len(found) // 5], found[-1]
    grown = last.grown(settled) + (["orphans"] if orphans else [])
    print(f"memory since a fifth of the way: {last.memory - settled.memory:+.1f} MB; "
          + (f"GREW: {', '.join(grown)}" if grown else "nothing grew"))  # fmt: skip
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
