"""Programs measured against each other: fresh processes in turn on one core, medians and ratios; not a program.

A machine's speed changes by the minute, so a ratio is only ever taken within a round: ours and every peer, one after
the other, and the median and range of these ratios over the rounds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from navrl.pipes import Parser

DRIVERS = Path(__file__).resolve().parent / "peers"
OURS = "NAVRL"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
LIMIT = 1800  # seconds; a driver that takes longer hangs


class DriverError(Exception):
    """A driver that failed; the message is one line."""


@dataclass(frozen=True)
class Contestant:
    """A driver of benchmarks/peers and its words; it prints one JSON line (benchmarks/peers/timing.py)."""

    name: str
    python: Path | str
    driver: str
    words: tuple[str, ...]
    differs: str = ""  # from ours, in words, for the table


def add_flags(parser: Parser) -> None:
    made = "what benchmarks/peers/setup.sh DIR made (default: .venv-peers); none: ours alone"
    parser.add_argument("--peers", metavar="DIR", default=".venv-peers", help=made)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="default: the last usable one")


def peers_directory(parser: Parser, options: Any, *needed: str) -> Path | None:
    """The directory that ``--peers`` names, None for ``none``. Ends in one line (exit 2) where ``needed`` is missing.

    needed: paths in the directory beside the virtual environment's Python.
    """
    if options.core not in os.sched_getaffinity(0):
        usable = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
        parser.error(f"--core: {options.core} is not usable by this process; take one of: {usable}")
    if options.peers == "none":
        return None
    place = Path(options.peers).absolute()
    for path in ("venv/bin/python", *needed):
        if not (place / path).exists():
            parser.error(f"--peers: {options.peers} lacks {path}; make it (benchmarks/peers/setup.sh {options.peers}), "
                         "or measure ours alone (--peers none)")  # fmt: skip
    return place


def measure(contestant: Contestant, core: int) -> dict[str, Any]:
    """One fresh process on one core; what its driver printed. Raises DriverError."""
    command = [str(contestant.python), str(DRIVERS / contestant.driver), *contestant.words]
    try:
        ended = subprocess.run(
            command, env=os.environ | ONE_THREAD, capture_output=True, text=True, timeout=LIMIT,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )  # fmt: skip
        if ended.returncode == 0:
            return json.loads(ended.stdout.splitlines()[-1])
        reason = (ended.stderr.strip() or f"exit {ended.returncode}").splitlines()[-1]
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError) as error:
        reason = str(error)
    raise DriverError(f"{contestant.name} ({contestant.driver}): {reason}")


def alternate(contestants: Sequence[Contestant], rounds: int, core: int) -> dict[str, list[dict[str, Any]]]:
    """By name, what each printed in each round. Raises DriverError."""
    found: dict[str, list[dict[str, Any]]] = {contestant.name: [] for contestant in contestants}
    for number in range(rounds):
        for contestant in contestants:
            if sys.stderr.isatty():
                print(f"\r\033[Kround {number + 1} of {rounds}: {contestant.name}", end="", file=sys.stderr, flush=True)
            found[contestant.name].append(measure(contestant, core))
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return found


def rates(results: Sequence[dict[str, Any]]) -> list[float]:
    """Environment steps a second, one a round."""
    return [result["env_steps_per_second"] for result in results]


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(ours, theirs)]


def spread(values: Sequence[float], digits: int = 0) -> str:
    """median (min .. max)"""
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} .. {max(values):,.{digits}f})"


def versions(results: dict[str, list[dict[str, Any]]]) -> str:
    """Versions behind each name, for the foot of a table."""
    return "; ".join(
        f"{name}: " + ", ".join(f"{package} {version}" for package, version in found[0]["versions"].items())
        for name, found in results.items()
    )
