"""From a configuration to the parts of a run, with every fault found before anything is written."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

import torch

from envs.base import BatchEnv, TaskError, TaskSpec
from envs.registry import TASKS, make_env
from navrl.algorithms.mappo import MAPPO
from navrl.config import Config
from navrl.faults import ConfigError, Fault
from navrl.ranks import ALONE, Ranks, local_device
from navrl.tracking.convert import json_ready

# One evaluation step of more copies than this costs memory (mpe2 copies hold two megabytes each), not time.
EVALUATION_COPIES = {"batched": 512, "original": 50}


def resolve_device(name: str, ranks: Ranks = ALONE) -> torch.device:
    """The device that ``device:`` names. Raises ConfigError that lists what there is."""
    have = ["cpu"]
    if torch.cuda.is_available():
        have += ["cuda"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    if name not in have:
        raise ConfigError([Fault("device", f"{name!r} is not on this machine; there is: {', '.join(have)}")])
    here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.size))
    if name == "cuda" and ranks.size > 1 and torch.cuda.device_count() < here:
        message = f"cuda: {here} processes on this machine need a GPU each; there is: {', '.join(have)}"
        raise ConfigError([Fault("device", message)])
    return torch.device(local_device(name, ranks))


def require_equal_shares(config: Config, ranks: Ranks) -> None:
    """Raises ConfigError where the ranks cannot have equal shares of the copies."""
    if config.num_envs % ranks.size:
        message = f"{config.num_envs} copies cannot be shared equally by {ranks.size} processes; take a multiple of that"
        raise ConfigError([Fault("num_envs", message)])


def make_training_env(config: Config, device: torch.device, ranks: Ranks = ALONE) -> BatchEnv:
    """This rank's share of ``num_envs`` copies, which reset themselves. Raises ConfigError: the task cannot be used."""
    copies = config.num_envs // ranks.size
    return _make(config, config.env_backend, config.task_settings(), copies, device, auto_reset=True)


def make_evaluation_env(config: Config, device: torch.device, episodes: int, *, original: bool) -> BatchEnv:
    """Copies for evaluation: the whole task (no curriculum), each episode played once.

    The batched version, equal to the original step for step, where there is one; with ``original`` always what
    defines the task (mpe2, or the PettingZoo module).
    """
    settings = {k: v for k, v in config.task_settings().items() if not k.startswith("curriculum")}
    task = TASKS.get(config.env_id)
    if task is not None and task.batched and not original:
        return _make(config, "batched", settings, min(episodes, EVALUATION_COPIES["batched"]), device, auto_reset=False)
    backend = "mpe2" if task is not None else "pettingzoo"
    copies = min(episodes, EVALUATION_COPIES["original"])
    return _make(config, backend, settings, copies, torch.device("cpu"), auto_reset=False)


def _make(config: Config, backend: str, settings: dict[str, Any], copies: int, device, *, auto_reset: bool) -> BatchEnv:
    try:
        return make_env(
            config.env_id,
            backend,
            settings,
            copies,
            device=device,
            auto_reset=auto_reset,
            num_workers=config.num_workers,
            worker_timeout=config.worker_timeout,
        )
    except TaskError as error:
        key = error.key or "env_id"
        raise ConfigError([Fault(key, str(error).removeprefix(f"{key}: "))]) from error


def make_algorithm(config: Config, spec: TaskSpec, device: torch.device, ranks: Ranks = ALONE) -> MAPPO:
    """Networks and optimiser for a task. Raises ConfigError where they do not fit it."""
    if config.network == "entity" and spec.layout is None:
        message = (
            f"entity needs a task that says which part of an observation is which; {config.env_id} does not: "
            "use mlp or gru"
        )
        raise ConfigError([Fault("network", message)])
    return MAPPO(spec, config, device, config.seed, ranks)


def describe_task(spec: TaskSpec) -> dict[str, Any]:
    """The task as ``metadata.json`` and checkpoints keep it: plain values."""
    return {
        "env_id": spec.env_id,
        "backend": spec.backend,
        "package": spec.package,
        "package_version": spec.package_version,
        "agents": list(spec.agents),
        "roles": list(spec.roles),
        "score_role": spec.score_role,
        "observation_sizes": list(spec.obs_sizes),
        "action": {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(spec.action).items()},
        "max_cycles": spec.max_cycles,
        "settings": _plain(spec.settings),
    }


def _plain(value: Any) -> Any:
    """A setting as a checkpoint can hold it and another process can compare it: numbers, text, lists, mappings.

    A constructor's default may be anything: a class or a function becomes its name, an object the text of it.
    """
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    value = json_ready(value)
    return re.sub(r" at 0x[0-9a-f]+", "", value) if isinstance(value, str) else value
