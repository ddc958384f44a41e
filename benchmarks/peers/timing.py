"""What every driver here shares: a rate that leaves the first call out, and one JSON line. Standard library alone."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import time
from collections.abc import Callable


def sizes(description: str | None) -> argparse.ArgumentParser:
    """What every driver of an environment is told: ``num_agents``, ``num_envs`` and ``seconds``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--num_agents", type=int, required=True)
    parser.add_argument("--num_envs", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    return parser


def rate(play: Callable[[], object], env_steps: int, seconds: float) -> float:
    """Environment steps a second of ``play``, which makes ``env_steps`` and waits for them, repeated for ``seconds``.

    The first call is left out: it allocates, and where something compiles late it compiles then.
    """
    play()
    calls, begin = 0, time.perf_counter()
    while (passed := time.perf_counter() - begin) < seconds or not calls:
        play()
        calls += 1
    return calls * env_steps / passed


def report(env_steps_per_second: float, packages: tuple[str, ...], compile_seconds: float | None = None) -> None:
    """Print the driver's one line. compile_seconds: None where nothing is compiled."""
    versions = {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in packages}
    print(json.dumps({
        "env_steps_per_second": env_steps_per_second, "compile_seconds": compile_seconds, "versions": versions,
    }))  # fmt: skip
