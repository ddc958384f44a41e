"""Faults of a configuration: what they say, and which name was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, NamedTuple

from navrl.redaction import redact_typed

MAX_SHOWN = 100  # faults that a message lists


class Fault(NamedTuple):
    """One thing that is wrong with the configuration.

    key: the key at fault ("" where the fault is a whole file's). message: value, cause and what is allowed.
    where: file and line, the command line, or the environment variable that said so.
    """

    key: str
    message: str
    where: str = ""

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.key}{place}: {self.message}" if self.key else f"{self.where}: {self.message}"


class ConfigError(Exception):
    """The configuration cannot be used; ``faults`` says all that is wrong with it. Exit code 2."""

    exit_code = 2

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = list(faults)
        count = len(self.faults)
        head = f"bad configuration, nothing was started ({count} fault{'s' if count != 1 else ''}):"
        lines = [f"  - {fault}" for fault in self.faults[:MAX_SHOWN]]
        if count > MAX_SHOWN:
            lines.append(f"  - and {count - MAX_SHOWN} more")
        super().__init__("\n".join([head, *lines]))


def show_key(key: str) -> str:
    """A key that somebody typed, as a message shows it: on one line, shortened, without secrets."""
    key = redact_typed(key if key.isprintable() and key else repr(key))
    return key if len(key) <= 60 else key[:57] + "..."


def secret_fault(key: str, where: str) -> Fault:
    """The refusal of a secret. Its value is not an argument, so that it cannot be printed."""
    return Fault(
        key,
        "a key or password is not taken from a configuration or a command line, where others can read it; "
        "set the environment variable of its maker (W&B: WANDB_API_KEY), or run `wandb login` once",
        where,
    )


def show(value: Any, limit: int = 60) -> str:
    """A value as a message shows it: on one line, in YAML's spelling, shortened, without secrets."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        text = "[" + ", ".join(show(item) for item in value) + "]"
    elif isinstance(value, dict):
        text = "{" + ", ".join(str(key) for key in value) + "}"
    elif isinstance(value, int) and abs(value) >= 10**limit:
        text = f"a whole number of more than {limit} digits"
    else:
        text = redact_typed(repr(value))
    return text if len(text) <= limit else text[: limit - 3] + "..."


# Names that people bring from the official MAPPO code, HARL, CleanRL and Stable-Baselines3.
_KNOWN_ELSEWHERE = {
    "n_rollout_threads": "num_envs",
    "n_envs": "num_envs",
    "episode_length": "rollout_length",
    "num_steps": "rollout_length",
    "n_steps": "rollout_length",
    "num_env_steps": "total_env_steps",
    "total_timesteps": "total_env_steps",
    "learning_rate": "lr",
    "opti_eps": "adam_eps",
    "anneal_lr": "lr_schedule",
    "use_linear_lr_decay": "lr_schedule",
    "use_relu": "activation",
    "n_epochs": "ppo_epoch",
    "update_epochs": "ppo_epoch",
    "num_mini_batch": "mini_batch_size",
    "clip": "clip_param",
    "clip_coef": "clip_param",
    "clip_range": "clip_param",
    "ent_coef": "entropy_coef",
    "vf_coef": "value_loss_coef",
    "use_valuenorm": "value_norm",
    "use_popart": "value_norm",
    "data_chunk_length": "chunk_length",
    "layer_n": "num_layers",
    "share_policy_parameters": "share_policy",
    "scenario_name": "env_id",
    "env_name": "env_id",
    "algo": "algorithm_name",
    "cuda": "device",
    "n": "num_agents",
}


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that ``name`` most likely meant (always one of ``known``)."""
    known = list(known)
    meant = _KNOWN_ELSEWHERE.get(name.lower().replace("-", "_"))
    if meant in known:
        return meant
    lowered = name.lower().replace("-", "_")[:100]

    def likeness(candidate: str) -> float:
        ratio = difflib.SequenceMatcher(None, lowered, candidate.lower()).ratio()
        parts = {part.rstrip("s") for part in lowered.split("_")}
        shared = parts & {part.rstrip("s") for part in candidate.lower().split("_")}
        return ratio + 0.2 * len(shared) / max(1, len(parts))

    return max(known, key=likeness)
