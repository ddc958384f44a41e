"""A policy back from wherever its checkpoint is: a file, a run directory, a W&B artifact."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from envs.base import TaskSpec
from navrl import yaml_io
from navrl.checkpoint import CheckpointError, CheckpointStore, load
from navrl.config import Config
from navrl.faults import ConfigError, Fault, show
from navrl.files import sha256_of
from runners.setup import describe_task


def read_checkpoint(source: str, which: str = "best") -> tuple[dict[str, Any], Path]:
    """The state behind ``PATH``, ``RUN_DIR`` (its ``which``: best or last) or ``wandb:entity/project/artifact:alias``.

    Returns (state, file); an artifact's file is gone again, only its name is left. Raises ConfigError (key
    ``checkpoint``) where there is none that can be used.
    """
    try:
        if not source or "\0" in source:
            raise CheckpointError(f"{source!r} is no path; give a file, a run directory or wandb:entity/project/artifact")
        if source.startswith("wandb:"):
            with tempfile.TemporaryDirectory(prefix="navrl-artifact-") as directory:
                path = _download_from_wandb(source.removeprefix("wandb:"), Path(directory))
                return load(path), Path(path.name)
        elif Path(source).is_dir():
            directory = Path(source)
            store = CheckpointStore(directory / "checkpoints" if (directory / "checkpoints").is_dir() else directory)
            if not store.entries:
                raise CheckpointError(f"{directory} holds no checkpoint; name a run directory or a file in it")
            path = store.path(which if which != "best" or store.best else "last")
        else:
            path = Path(source)
        return load(path), path
    except CheckpointError as error:
        raise ConfigError([Fault("checkpoint", str(error))]) from error


def misfit(state: dict[str, Any], spec: TaskSpec) -> str:
    """Why the policy of a checkpoint does not fit the task, as far as the two tasks say it; one line."""
    there, here = state.get("task"), describe_task(spec)
    names = ("env_id", "action", "observation_sizes", "agents")
    differ = [name for name in names if isinstance(there, dict) and there.get(name) != here[name]]
    if not differ:
        return "its network has other weights than its configuration says"
    words = [f"{name.replace('_', ' ')} {_brief(there.get(name))} in the checkpoint, "
             f"{_brief(here[name])} in the task" for name in differ]
    return "; ".join(words)


def _brief(value: Any) -> str:
    """An action as ``discrete (5)``; the rest as it is."""
    return f"{value.get('kind')} ({value.get('size')})" if isinstance(value, dict) else show(value)


def config_of(state: dict[str, Any], overrides: dict[str, Any] | None = None) -> Config:
    """The configuration inside a checkpoint, with some values replaced (task settings of an evaluation)."""
    document = yaml_io.parse(state["config"], "checkpoint")
    values = document.values | (overrides or {})
    return Config.model_validate(values)


def _download_from_wandb(name: str, directory: Path) -> Path:
    """Fetch a model artifact into ``directory`` and check it against the digest in its metadata."""
    try:
        import wandb
    except ImportError:
        raise CheckpointError("wandb is not installed; pip install wandb, or give a file") from None
    try:
        artifact = wandb.Api(timeout=20).artifact(name)
        artifact.download(root=str(directory))
    except Exception as error:  # W&B raises many kinds; each means that the artifact cannot be had
        raise CheckpointError(f"wandb:{name}: {' '.join(str(error).split())[:300]}") from None
    files = sorted(directory.glob("checkpoint_ep*.pt"))
    if len(files) != 1:
        raise CheckpointError(f"wandb:{name}: holds {len(files)} checkpoint files, expected 1")
    expected = artifact.metadata.get("sha256")
    if expected and sha256_of(files[0]) != expected:
        raise CheckpointError(f"wandb:{name}: damaged on the way (its SHA-256 is not the recorded one)")
    return files[0]
