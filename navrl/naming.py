"""Names of runs: built from the run itself, kept as they are for display, made safe for directories."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from navrl.config import SCIENCE_KEYS, Config
from navrl.config_sources import Loaded

MAX_BYTES = 100  # of a directory name; the file systems in use allow 255, and a path holds three of ours

# Already part of every built group name.
_IN_EVERY_GROUP = ("env_id", "num_agents", "algorithm_name", "seed")
# Windows refuses these whatever the extension; a directory of runs gets copied there too.
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Names:
    """Display names. ``wandb_*`` differ from the neutral ones only where both were given."""

    project: str
    group: str
    experiment_name: str
    wandb_project: str
    wandb_group: str
    wandb_name: str


def names(loaded: Loaded) -> Names:
    """The names of a run: given ones, else ones built from the run, never random.

    A neutral name that is unset follows its W&B twin, and the other way round. ``wandb_project`` left at its default
    counts as unset.
    """
    config = loaded.config
    suffix = _suffix(config)
    default_project = Config.model_fields["wandb_project"].get_default()
    project = config.project_name or config.wandb_project
    group = config.group or config.wandb_group or _task_name(config) + f"_{config.algorithm_name}" + suffix
    experiment = config.experiment_name or config.wandb_name or f"{config.algorithm_name}_seed{config.seed}" + suffix
    return Names(
        project=project,
        group=group,
        experiment_name=experiment,
        wandb_project=project if config.wandb_project == default_project else config.wandb_project,
        wandb_group=config.wandb_group or group,
        wandb_name=config.wandb_name or experiment,
    )


def _task_name(config: Config) -> str:
    """``mpe_simple_spread_3a``; a task by module and function is named by them in full."""
    if config.env_id.startswith("pettingzoo:"):
        module, _, function = config.env_id.removeprefix("pettingzoo:").partition(":")
        base = module if function in ("", "parallel_env") else f"{module}_{function}"
    else:
        base = f"mpe_{config.env_id}"
    return base if config.num_agents is None else f"{base}_{config.num_agents}a"


def _suffix(config: Config) -> str:
    # In the schema's order, so that the order in which keys were typed makes no second group.
    keys = (key for key in SCIENCE_KEYS if key in config.named_keys and key not in _IN_EVERY_GROUP)
    return "".join(f"_{key}{compact(getattr(config, key))}" for key in keys)


def compact(value: Any) -> str:
    """A value in few characters, different for different values of a key: 0.001 is ``1e-3``, True is ``true``."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "-".join(compact(item) for item in value)
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return str(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    plain = format(Decimal(repr(value)).normalize(), "f")
    mantissa = str(digits[0]) + ("." + "".join(map(str, digits[1:])) if len(digits) > 1 else "")
    scientific = f"{'-' if sign else ''}{mantissa}e{int(exponent) + len(digits) - 1}"
    return scientific if len(scientific) < len(plain) else plain


def _hash(text: str, length: int = 8) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def runs_root(run_dir: Path, project: str, group: str) -> Path | None:
    """The directory that holds the runs, where ``run_dir`` lies in it as PROJECT/GROUP/NAME (display names); None for
    a run directory that was moved away from there."""
    at_home = (run_dir.parent.name, run_dir.parent.parent.name) == (safe_directory(group), safe_directory(project))
    return run_dir.parents[2] if at_home else None


def safe_directory(name: str) -> str:
    """One directory name for a display name: safe on every system, readable, at most 100 bytes of UTF-8.

    Letters and digits of any script, ``-``, ``_``, ``.``, ``+`` and ``=`` stay. A name that had to be changed ends
    in ``~`` and 8 digits of its hash; ``~`` itself never stays, so two names never share a directory. For the same
    reason it is to be called once, on the display name, not on its own result.
    """
    kept = "".join(char if char.isalnum() or char in "-_.+=" else "_" for char in unicodedata.normalize("NFC", name))
    reserved = _RESERVED.match(kept) is not None
    if kept == name and kept and not reserved and kept[0] not in ".-" and kept[-1] != "." \
            and len(kept.encode()) <= MAX_BYTES:
        return kept
    room = MAX_BYTES - 9
    kept = kept.encode("utf-8", "replace")[:room].decode("utf-8", "ignore").strip("._-") or "name"
    if _RESERVED.match(kept):
        kept = ("_" + kept).encode()[:room].decode("utf-8", "ignore")
    return f"{kept}~{_hash(name)}"
