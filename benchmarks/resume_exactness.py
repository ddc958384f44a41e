"""Stopped anywhere and resumed, is a run the run that was never stopped? A table of differences, which must all be 0.

    python benchmarks/resume_exactness.py [--seed 0] [--only TEXT] [--out docs/resume_exactness.md]

Each configuration runs once whole, and is stopped and resumed in several ways; every attempt is a process of its own.
Compared are the newest checkpoint (parameters; the optimisers' moments; all else: value moments, generators,
environments, half-finished episodes), every row of metrics.jsonl apart from `time` and `perf/`, and the final
evaluation. Exit code 1 where a difference is not 0.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from exactness import PARTS, ROOT, compare
from machine import machine

import stop_tools  # noqa: E402
from whole_runs import metadata, run_dirs, tiny_argv, train  # noqa: E402

BASE = ("--num_envs", "4", "--rollout_length", "10", "--mini_batch_size", "20", "--total_env_steps", "800",
        "--eval_interval", "5", "--checkpoint_interval", "4")  # fmt: skip
ITERATIONS, STEPS = 20, 40  # of BASE; rollouts of 10 steps cut the episodes of 25 in the middle
IPPO, CONTINUOUS = ("--algorithm_name", "ippo"), ("--continuous_actions",)
MPE2 = ("--env_backend", "mpe2", "--num_workers")
CURRICULUM = ("--curriculum", "--curriculum_advance_at", "200,500")
THREADS = ("--torch_threads", "2", "--num_envs", "32", "--hidden_size", "64", "--mini_batch_size", "320",
           "--total_env_steps", str(ITERATIONS * 320))  # fmt: skip
CONSTANT = ("--lr_schedule", "constant", "--ppo_epoch_end", "null")


def network(name: str, *flags: str) -> tuple[str, ...]:
    return ("--network", name, *flags)


CONFIGURATIONS: dict[str, tuple[str, ...]] = {
    "mappo mlp discrete, batched": network("mlp"),
    "mappo mlp continuous, mpe2 in 1 worker, popart": network("mlp", *CONTINUOUS, *MPE2, "1", "--value_norm", "popart"),
    "mappo gru discrete, batched, no value norm": network("gru", "--chunk_length", "5", "--value_norm", "none"),
    "mappo gru continuous, mpe2 in 2 workers": network("gru", *CONTINUOUS, *MPE2, "2"),
    "mappo entity discrete, batched, constant lr": network("entity", *CONSTANT),
    "mappo entity continuous, batched, popart, curriculum": network(
        "entity", *CONTINUOUS, "--value_norm", "popart", *CURRICULUM),
    "ippo mlp discrete, mpe2 in 2 workers, curriculum": network("mlp", *IPPO, *MPE2, "2", *CURRICULUM),
    "ippo mlp continuous, batched, constant lr, entropy bonus falls": network(
        "mlp", *IPPO, *CONTINUOUS, *CONSTANT, "--entropy_coef", "0.05", "--entropy_coef_end", "0"),
    "ippo gru discrete, batched, one policy an agent": network("gru", *IPPO, "--no_share_policy"),
    "ippo gru continuous, batched, popart": network("gru", *IPPO, *CONTINUOUS, "--value_norm", "popart"),
    "ippo entity discrete, mpe2 in 1 worker": network("entity", *IPPO, *MPE2, "1"),
    "ippo entity continuous, batched, no value norm": network("entity", *IPPO, *CONTINUOUS, "--value_norm", "none"),
    "mappo mlp discrete, batched, 2 torch threads": network("mlp", *THREADS),
    "mappo gru discrete, batched, 2 torch threads": network("gru", *THREADS),
    "mappo mlp discrete, batched, lr_decay_steps given": network("mlp", "--lr_decay_steps", "1200"),
}  # fmt: skip


def lines_below(root: Path) -> int:
    """Rows of the run below this directory, if there is one yet."""
    return sum(path.read_bytes().count(b"\n") for path in root.glob("*/*/*/metrics.jsonl"))


class Runs:
    """The runs of one configuration below one directory."""

    def __init__(self, root: Path, flags: tuple[str, ...], chance: random.Random) -> None:
        self.root, self.flags, self.chance = root, (*BASE, *flags), chance
        root.mkdir(parents=True)
        self.whole = self.finish(self.argv("whole"))

    def argv(self, name: str, *flags: str) -> list[str]:
        return tiny_argv(self.root / name, *self.flags, *flags)

    def finish(self, argv: list[str]) -> Path:
        """Run to the end; its directory."""
        code = stop_tools.wait(stop_tools.start(argv, self.root / "said.txt"), 300)
        if code:
            raise RuntimeError(f"ended with {code}: {(self.root / 'said.txt').read_text()[-2000:]}")
        where = argv[argv.index("--resume") + 1] if "--resume" in argv else argv[argv.index("--run_dir") + 1]
        return Path(where) if "--resume" in argv else run_dirs(Path(where))[0]

    def at_iteration(self, argv: list[str], root: Path) -> Path:
        """Stop at a random iteration."""
        iteration = self.chance.randint(1, ITERATIONS - 1)
        child = stop_tools.start(argv, self.root / "said.txt", ("iteration", iteration, signal.SIGTERM))
        assert stop_tools.wait(child, 300) == 143, (self.root / "said.txt").read_text()[-2000:]
        return run_dirs(root)[0]

    def by(self, number: int, argv: list[str], root: Path) -> Path:
        """Send the signal at a random moment after a random number of rows."""
        for _ in range(10):
            if self.hit(number, argv, root, self.chance.randint(1, ITERATIONS - 3)):
                return run_dirs(root)[0]
            shutil.rmtree(root)  # it was over before the signal came: another moment
        raise RuntimeError("the run is over before any signal comes")

    def hit(self, number: int, argv: list[str], root: Path, rows: int) -> bool:
        """Start it and send the signal a moment after there are so many rows; whether it met the run."""
        child = stop_tools.start(argv, self.root / "said.txt")
        deadline = time.monotonic() + 300
        while lines_below(root) < rows:
            assert time.monotonic() < deadline, (self.root / "said.txt").read_text()[-2000:]
            time.sleep(0.001)
        time.sleep(self.chance.uniform(0, 0.04))
        os.kill(child, number)
        code = stop_tools.wait(child, 300)
        assert code in (0, 143, -number), (self.root / "said.txt").read_text()[-2000:]
        return code != 0


@dataclass
class Stop:
    """One line of the table."""

    configuration: str
    how: str
    steps: list[int]  # at which the run was taken up again
    differences: dict[str, float]


def stops(configuration: str, runs: Runs) -> Iterator[Stop]:
    """Stop and resume in every way that this configuration is for."""

    def line(how: str, run_dir: Path) -> Stop:
        steps = [segment["step"] for segment in metadata(run_dir)["segments"]]
        return Stop(configuration, how, steps[1:] or steps, compare(runs.whole, run_dir))

    def resumed(how: str, stop: Callable[[list[str], Path], Path], *flags: str) -> Stop:
        name = how.replace(" ", "-")
        run_dir = stop(runs.argv(name), runs.root / name)
        return line(how, runs.finish(["--resume", str(run_dir), *flags]))

    def term(argv: list[str], root: Path) -> Path:
        return runs.by(signal.SIGTERM, argv, root)

    def kill(argv: list[str], root: Path) -> Path:
        return runs.by(signal.SIGKILL, argv, root)

    yield resumed("stop at an iteration", runs.at_iteration)
    yield resumed("SIGTERM", term)
    yield resumed("kill -9", kill)
    if configuration == "mappo mlp discrete, batched":

        def moved(argv: list[str], root: Path) -> Path:
            place = root.parent / "elsewhere" / "a" / "b" / "run"
            place.parent.mkdir(parents=True)
            return Path(shutil.move(kill(argv, root), place))

        yield resumed("kill -9, then moved", moved)
        root, argv = runs.root / "often", runs.argv("often")
        for rows, number in enumerate((signal.SIGKILL, signal.SIGTERM) * 3):
            assert runs.hit(number, argv, root, 1 + 2 * rows)
            argv = ["--resume", str(run_dirs(root)[0])]
        yield line("kill -9 and SIGTERM in turn", runs.finish(argv))
    if configuration == "mappo entity discrete, batched, constant lr":
        trackers = ("--logger", "console", "tensorboard", "wandb", "--log_wandb", "--wandb_mode", "offline")
        yield resumed("SIGTERM, then with TensorBoard and W&B", term, *trackers)
    if configuration == "mappo gru continuous, mpe2 in 2 workers":
        yield resumed("kill -9, then in 1 worker", kill, "--num_workers", "1")
    if configuration.endswith(("constant lr", "lr_decay_steps given")):  # nothing depends on the budget
        # a multiple of the evaluation interval: the last iteration of the smaller budget is evaluated in both
        budget = STEPS * runs.chance.choice((5, 10, 15))
        run_dir = runs.finish(runs.argv("smaller", "--total_env_steps", str(budget)))
        yield line("a smaller budget, then the whole", runs.finish(["--resume", str(run_dir), "--total_env_steps", "800"]))


def all_stops(name: str, seed: int, root: Path) -> list[Stop]:
    """Everything of one configuration, in a process of its own."""
    runs = Runs(root / str(list(CONFIGURATIONS).index(name)), CONFIGURATIONS[name], random.Random(f"{seed} {name}"))
    found = []
    for stop in stops(name, runs):
        found.append(stop)
        print(f"{stop.configuration}: {stop.how}, at {stop.steps}: {stop.differences}", flush=True)
    return found


def table(lines: list[Stop]) -> str:
    head = ["configuration", "stopped by", "taken up at step", *PARTS]
    rows = [
        [stop.configuration, stop.how, ", ".join(map(str, stop.steps)), *(f"{stop.differences[part]:g}" for part in PARTS)]
        for stop in lines
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the moments; the machine adds its own chance")
    parser.add_argument("--only", default="", help="configurations whose name holds this (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="configurations at a time (default: one a core)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "resume_exactness.md")
    options = parser.parse_args()
    began = time.monotonic()
    stop_tools.hub.TrackerHub._keep_code = lambda *_: None  # a second of git for each of some hundred processes
    with tempfile.TemporaryDirectory() as scratch:
        train(Path(scratch) / "first", "--total_env_steps", "400")  # all that a run imports is there when it is forked
        names = [name for name in CONFIGURATIONS if options.only in name]
        with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("fork")) as pool:
            done = pool.map(all_stops, names, [options.seed] * len(names), [Path(scratch)] * len(names))
            lines = [stop for of_one in done for stop in of_one]
    largest = max(value for stop in lines for value in stop.differences.values())
    text = f"""# Resume is exact

Stopped anywhere and resumed, a run is the run that was never stopped. Each line is one run that was stopped as it says
and resumed to its end; the numbers are the largest absolute differences to the same run left alone. "Other state" is
all else that a checkpoint holds: value moments, random generators, environments, half-finished episodes. "Metrics" are
all rows of `metrics.jsonl` without `time` and `perf/`. After `kill -9` the run continues from its last checkpoint.

{len(lines)} lines, {sum(len(stop.steps) for stop in lines)} stops, largest difference {largest:g}.

{table(lines)}

Made in {time.monotonic() - began:.0f} s by `python benchmarks/resume_exactness.py --seed {options.seed}` on {machine('mpe2')}.
The moments of signals are random: every run of the command stops at others.

Conditions: the CPU, and the same number of torch threads before and after; mpe2 and the batched task, whose episodes
are saved amid (other PettingZoo tasks begin a new episode in every copy and say so).
"""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text, encoding="utf-8")
    print(f"{len(lines)} lines, largest difference {largest:g}: {options.out}")
    return int(largest > 0)


if __name__ == "__main__":
    sys.exit(main())
