"""Faults of a configuration: what they say, which name was probably meant, and what must never be printed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

_SECRET_KEY = re.compile(r"api_?key|access_?key|private_?key|token|passw|secret|credential|(^|_)key$", re.IGNORECASE)
# A W&B key is 40 hexadecimal digits, or begins with wandb_v1_.
_SECRET_VALUE = re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]{40}(?![0-9A-Za-z])|wandb_v\d+_\w+")
MAX_SHOWN = 100  # faults that a message lists
# user:password@host, token@host after a scheme, and ?password=... ; up to the last @, for a password may hold any sign.
_PASSWORD = re.compile(r"(\w+://)\S*@|()\S+:\S*@|((?:password|token|secret|api_?key)=)[^\s&'\"]+", re.IGNORECASE)


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


def is_secret_key(key: str) -> bool:
    """Whether a key, by its name, asks for something that must not be written down (``wandb_api_key``)."""
    return bool(_SECRET_KEY.search(key.replace("-", "_")))


def redact(text: str) -> str:
    """``text`` without what looks like a W&B key, or like a user and password inside an address."""

    def hide(match: re.Match[str]) -> str:
        return f"{match[3]}***" if match[3] else f"{match[1] or ''}***@"

    return _PASSWORD.sub(hide, _SECRET_VALUE.sub("***", text))


def is_secret_value(value: Any) -> bool:
    """Whether a value is, as a whole, what a W&B key looks like."""
    return isinstance(value, str) and _SECRET_VALUE.fullmatch(value.strip()) is not None


def holds_password(value: Any) -> bool:
    """Whether an address carries a user or password (``http://user:password@host``)."""
    return isinstance(value, str) and _PASSWORD.search(value) is not None


def show_key(key: str) -> str:
    """A key that somebody typed, as a message shows it: on one line, shortened, without secrets."""
    key = redact(key if key.isprintable() and key else repr(key))
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
        text = redact(repr(value))
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
    meant = _KNOWN_ELSEWHERE.get(name.lower())
    if meant in known:
        return meant
    lowered = name.lower().replace("-", "_")[:100]

    def likeness(candidate: str) -> float:
        ratio = difflib.SequenceMatcher(None, lowered, candidate.lower()).ratio()
        parts = {part.rstrip("s") for part in lowered.split("_")}
        shared = parts & {part.rstrip("s") for part in candidate.lower().split("_")}
        return ratio + 0.2 * len(shared) / max(1, len(parts))

    return max(known, key=likeness)
