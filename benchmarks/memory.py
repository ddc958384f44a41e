"""Throughput and memory against copies and against agents: of the environment alone, and of training.

    python benchmarks/memory.py [--limit-gb 12] [--rounds 3] --plots docs/images
    python benchmarks/memory.py --copies 1 64 1024 --agents 2 4 8 -- --network mlp      # after --: main.py's flags

Every size runs in a fresh process on one core: a rollout of 25 steps with random actions, and a whole iteration of the
default recipe. Given are medians over the rounds (least .. most) and the peak of the resident set, of which "added" is
what the size itself needs (beyond Python, torch and a tiny run). Growth is the slope in log-log over the upper half of
the sizes, where overhead no longer hides it: 1 is linear. A size that needs more than --limit-gb, or whose process more
than --limit-s, is said and skipped; against agents it is then a quarter of the copies, and so on.

Exit code: 0 · 1 something grows faster than linearly in copies (beyond 1.1), or a size failed · 2 bad input.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import shlex
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from machine import machine  # noqa: E402

from envs.registry import validate_settings  # noqa: E402
from navrl.config import Config  # noqa: E402
from navrl.config_sources import load  # noqa: E402
from navrl.faults import ConfigError  # noqa: E402
from navrl.pipes import Parser, run_program, whole  # noqa: E402

PARTS = {"env": "environment alone", "train": "training"}
LINEAR = 1.1  # growth that still counts as such
PAGES = 1.0  # MB that come and go with the allocator
ENOUGH = 30.0  # seconds of rounds; one is measured in any case


@dataclass(frozen=True)
class Size:
    """What one size took. steps: environment steps a round. Memory in MB; rollout is None without one."""

    copies: int
    agents: int
    steps: int
    seconds: list[float]
    begin_mb: float
    peak_mb: float
    world_mb: float
    rollout_mb: float | None = None

    @property
    def added_mb(self) -> float:
        return max(0.0, self.peak_mb - self.begin_mb)

    @property
    def rate(self) -> float:
        """Environment steps a second."""
        return self.steps / statistics.median(self.seconds)


def measure(part: str, copies: int, agents: int, options: argparse.Namespace) -> Size | str:
    """One size in a process of its own, or why it is skipped. Raises RuntimeError."""
    words = [*options.words, "--num_envs", str(copies), "--num_agents", str(agents)]
    limits = (options.limit_gb, options.rounds, ENOUGH)
    command = [sys.executable, "benchmarks/one_size.py", part, *map(str, limits), *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    too_large = f"needs more than {options.limit_gb:g} GB"
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=options.limit_s
        )
    except subprocess.TimeoutExpired:
        return f"takes more than {options.limit_s} s"
    if ended.returncode == -signal.SIGKILL:  # the kernel was faster than the limit
        return too_large
    if ended.returncode:
        reason = (ended.stderr.strip() or f"exit code {ended.returncode}").splitlines()[-1]
        raise RuntimeError(f"{part}, {copies} copies, {agents} agents: {reason}")
    found = json.loads(ended.stdout.splitlines()[-1])
    return Size(copies, agents, copies * options.rollout_length, **found) if found.pop("fits") else too_large


def against_copies(options: argparse.Namespace) -> dict[str, list[Size]]:
    """By part, the sizes that fitted, smallest first. Raises RuntimeError."""
    sizes: dict[str, list[Size]] = {part: [] for part in PARTS}
    for part, copies in itertools.product(PARTS, options.copies):
        found = measure(part, copies, options.num_agents, options)
        show(part, copies, options.num_agents, found)
        sizes[part] += [] if isinstance(found, str) else [found]
    return sizes


def against_agents(options: argparse.Namespace) -> dict[str, list[Size]]:
    """The same; each with ``at_copies`` copies, or as few as it takes to fit."""
    sizes: dict[str, list[Size]] = {part: [] for part in PARTS}
    for part in PARTS:
        copies = options.at_copies
        for agents in options.agents:
            while isinstance(found := measure(part, copies, agents, options), str) and copies > 1:
                show(part, copies, agents, found)
                copies = max(1, copies // 4)
            show(part, copies, agents, found)
            sizes[part] += [] if isinstance(found, str) else [found]
    return sizes


def show(part: str, copies: int, agents: int, size: Size | str) -> None:
    """A size as soon as it is known."""
    head = f"{PARTS[part]:<18}{copies:>7}{agents:>7}"
    if isinstance(size, str):
        print(f"{head}   {size}: skipped", flush=True)
        return
    rates = [size.steps / seconds for seconds in size.seconds]
    spread = f"{size.rate:,.0f} ({min(rates):,.0f} .. {max(rates):,.0f})"
    rollout = "-" if size.rollout_mb is None else f"{size.rollout_mb:.2f}"
    print(f"{head}{spread:>36}{1e3 * statistics.median(size.seconds):>12.1f}{size.peak_mb:>9.0f}{size.added_mb:>9.0f}"
          f"{size.world_mb:>9.2f}{rollout:>9}", flush=True)  # fmt: skip


def growth(x: Sequence[float], y: Sequence[float]) -> float:
    """Slope of log y over log x in the upper half of the points (three at least), of those above 0; NaN without three."""
    count = max(3, math.ceil(len(x) / 2))
    x, y = np.array(x[-count:]), np.array(y[-count:])
    seen = y > 0
    return float(np.polyfit(np.log(x[seen]), np.log(y[seen]), 1)[0]) if seen.sum() > 2 else math.nan


def growths(sizes: Sequence[Size], axis: str) -> dict[str, float]:
    """Of time, added memory and what stays allocated, in ``axis``.

    In agents it is that of a copy, for the number of copies differs. Added memory of less than PAGES is not counted.
    """
    copies = np.array([1 if axis == "copies" else size.copies for size in sizes])
    measured = {
        "time": [statistics.median(size.seconds) for size in sizes],
        "added memory": [size.added_mb if size.added_mb > PAGES else 0.0 for size in sizes],
        "the world's rows": [size.world_mb for size in sizes],
        "the rollout": [size.rollout_mb for size in sizes if size.rollout_mb is not None],
    }
    x = [getattr(size, axis) for size in sizes]
    return {name: growth(x, np.array(values) / copies) for name, values in measured.items() if len(values) == len(x)}


def say_where_quadratic(agents: Sequence[int]) -> None:
    """What grows faster than the agents, by counting."""
    print("\nWhere it is more than linear in agents: numbers a copy and step, N agents, L = N landmarks. The first two,"
          "\nquadratic, are held by environment and rollout; the third, cubic, exists while a network runs, for a"
          "\nminibatch (update), a step of all copies (acting) or a whole rollout (its values).")  # fmt: skip
    print(f"{'N':>4}{'relative positions 2N(N-1+L)':>32}{'observations N(4+2L+4(N-1))':>32}"
          f"{'pairs that an entity encoder embeds NL(N-1)':>46}")  # fmt: skip
    for n in agents:
        print(f"{n:>4}{2 * n * (2 * n - 1):>32,}{n * (4 + 2 * n + 4 * (n - 1)):>32,}{n * n * (n - 1):>46,}")


def draw(sizes: dict[str, list[Size]], axis: str, out: Path) -> None:
    """Throughput and memory, log-log, with what linear (agents: quadratic and cubic) growth would be."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (speed, memory) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for (part, found), colour in zip(sizes.items(), ("tab:blue", "tab:orange")):
        if not found:
            continue
        x = [getattr(size, axis) for size in found]
        speed.plot(x, [size.rate for size in found], "o-", color=colour, label=PARTS[part])
        if axis == "copies":
            memory.plot(x, [size.peak_mb for size in found], "o-", color=colour, label=PARTS[part])
        else:  # the copies differ
            memory.plot(x, [size.added_mb / size.copies for size in found], "o-", color=colour, label=PARTS[part])
            for size, at in zip(found, x):
                speed.annotate(f"{size.copies}", (at, size.rate), fontsize=7, textcoords="offset points", xytext=(3, 4))
    speed.set_title("environment steps a second" + ("" if axis == "copies" else " (small: copies)"), fontsize=10)
    memory.set_title("peak resident set, MB" if axis == "copies" else "added memory a copy, MB", fontsize=10)
    ticks = sorted({getattr(size, axis) for found in sizes.values() for size in found})
    for panel in (speed, memory):
        panel.set_xscale("log", base=2)
        panel.set_xticks(ticks, [str(tick) for tick in ticks])
        panel.set_yscale("log")
        panel.set_xlabel(axis)
        panel.grid(alpha=0.3, which="both")
        panel.legend(fontsize=8)
    figure.savefig(out, dpi=130)
    plt.close(figure)
    print(out)


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 2**20:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of gigabytes above 0")
    return value


def arguments() -> Parser:
    parser = Parser(__doc__)
    parser.add_argument("--copies", type=whole(1), nargs="+", default=[4**k for k in range(8)],
                        help="default: 1 4 .. 16384")  # fmt: skip
    parser.add_argument("--agents", type=whole(1), nargs="+", default=[2, 4, 8, 16, 32, 64], help="default: 2 4 .. 64")
    parser.add_argument("--at-copies", type=whole(1), default=128, help="against agents (default: 128)")
    parser.add_argument("--rounds", type=whole(1), default=3, help="a size, after one more (default: 3)")
    parser.add_argument("--limit-gb", type=positive, default=12.0, help="memory that a size may take (default: 12)")
    parser.add_argument("--limit-s", type=whole(1), default=400, help="seconds that a size may take (default: 400)")
    parser.add_argument("--plots", type=Path, metavar="DIR",
                        help="write scaling_copies.png and scaling_agents.png there (needs matplotlib)")  # fmt: skip
    return parser


def main(argv: list[str]) -> int:
    end = argv.index("--") if "--" in argv else len(argv)
    parser = arguments()
    options = parser.parse_args(argv[:end])
    options.words = ["--config", str(ROOT / "configs/train/train_mpe.yaml"), *argv[end + 1 :]]
    options.copies, options.agents = sorted(set(options.copies)), sorted(set(options.agents))
    try:
        config: Config = load(options.words, {}, validate_settings).config
        for copies, agents in ((max(options.copies), config.num_agents), (options.at_copies, max(options.agents))):
            load([*options.words, "--num_envs", str(copies), "--num_agents", str(agents)], {}, validate_settings)
        if options.plots:
            import matplotlib  # noqa: F401

            if not options.plots.is_dir():
                parser.error(f"--plots: {options.plots} is no directory")
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except ImportError:
        parser.error("--plots: matplotlib is not installed (pip install -r requirements-plots.txt)")
    if config.env_id != "simple_spread" or config.env_backend != "batched":
        parser.error("env_id, env_backend: the batched simple_spread alone is measured")
    options.num_agents, options.rollout_length = config.num_agents, config.rollout_length
    print(f"{machine()}; one core, one thread; {options.rounds} rounds")
    print(f"python benchmarks/memory.py {shlex.join(argv)}")
    print(f"{'':<18}{'copies':>7}{'agents':>7}{'env steps/s':>36}{'ms a round':>12}{'peak MB':>9}{'added':>9}"
          f"{'world':>9}{'rollout':>9}", flush=True)  # fmt: skip
    try:
        copies, agents = against_copies(options), against_agents(options)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    print("\ngrowth (1 is linear)")
    worst = math.nan
    for axis, found in (("copies", copies), ("agents", agents)):
        for part, sizes in found.items():
            slopes = growths(sizes, axis)
            words = ", ".join(f"{name} {slope:.2f}" for name, slope in slopes.items())
            print(f"{PARTS[part]}, in {axis}{'' if axis == 'copies' else ' (a copy)'}: {words}")
            if axis == "copies":
                worst = np.fmax(worst, np.fmax(slopes["time"], slopes["added memory"]))
    say_where_quadratic(options.agents)
    if options.plots:
        draw(copies, "copies", options.plots / "scaling_copies.png")
        draw(agents, "agents", options.plots / "scaling_agents.png")
    verdict = "not measured" if math.isnan(worst) else "NO" if worst > LINEAR else "yes"
    print(f"no worse than linear in copies: {verdict} (the fastest growth is {worst:.2f})")
    return int(verdict != "yes")


if __name__ == "__main__":
    run_program(main)
