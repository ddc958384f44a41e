"""One size in a fresh process, for memory.py: how long an iteration takes and how much memory it needs at most.

    python benchmarks/one_size.py env|train LIMIT_GB ROUNDS SECONDS [--key value ...]     (main.py's keys)

A round is a rollout with random actions drawn beforehand (env), or collecting and learning (train). The first one is
not counted; then come ROUNDS of them, more where they are short, fewer once SECONDS are over. Prints one JSON line:
``seconds`` of each, ``peak_mb`` of the process and ``begin_mb`` before there was an environment of this size (a tiny
one has run by then, so that the difference is this size's own), ``rollout_mb`` and ``world_mb`` of what stays allocated.
Where LIMIT_GB does not do: ``{"fits": false}``.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch  # noqa: E402

from envs.registry import validate_settings  # noqa: E402
from envs.seeding import TRAIN, stream_seed  # noqa: E402
from navrl.config import Config  # noqa: E402
from navrl.config_sources import load  # noqa: E402
from runners.on_policy import OnPolicyRunner  # noqa: E402
from runners.setup import make_algorithm, make_training_env  # noqa: E402

CPU = torch.device("cpu")
AT_LEAST = 1.0  # seconds of rounds, however short they are


def memory_mb(which: str) -> float:
    """Resident set of this process, VmRSS now or VmHWM at most (getrusage's maximum knows the parent's too)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{which}:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/self/status does not say {which}")


def env_round(config: Config) -> tuple[Callable[[], Any], dict[str, float]]:
    """A rollout of the environment alone."""
    env = make_training_env(config, CPU)
    env.reset(stream_seed(config.seed, TRAIN))
    shape, action = (config.rollout_length, env.num_envs, env.spec.num_agents), env.spec.action
    actions = torch.randint(0, action.size, shape) if action.kind == "discrete" else torch.rand(*shape, action.size)

    def play() -> None:
        for joint in actions:
            env.step(joint)

    return play, {"world_mb": megabytes(env.world.rows)}


def train_round(config: Config) -> tuple[Callable[[], Any], dict[str, float]]:
    """An iteration of training."""
    env = make_training_env(config, CPU)
    runner = OnPolicyRunner(config, env, make_algorithm(config, env.spec, CPU), stream_seed(config.seed, TRAIN))
    stored = [value for value in vars(runner.rollout).values() if isinstance(value, torch.Tensor)]
    return runner.iterate, {"world_mb": megabytes(env.world.rows), "rollout_mb": megabytes(*stored)}


def megabytes(*tensors: torch.Tensor) -> float:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors) / 2**20


def main(part: str, limit_gb: float, rounds: int, enough: float, words: list[str]) -> dict[str, Any]:
    config = load(words, {}, validate_settings).config
    torch.set_num_threads(1)
    make = {"env": env_round, "train": train_round}[part]
    make(config.model_copy(update={"num_envs": 1, "num_agents": 2}))[0]()
    begin = memory_mb("VmRSS")
    limit = int(limit_gb * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))  # an allocation beyond it fails instead of swapping
    try:
        play, held = make(config)
        play()  # first calls are slower
        seconds: list[float] = []
        while not seconds or (sum(seconds) < enough and (len(seconds) < rounds or sum(seconds) < AT_LEAST)):
            start = time.perf_counter()
            play()
            seconds.append(time.perf_counter() - start)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        return {"fits": False}
    return {"fits": True, "seconds": seconds, "begin_mb": begin, "peak_mb": memory_mb("VmHWM"), **held}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5:])))
