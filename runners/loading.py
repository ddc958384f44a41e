"""A policy back from wherever its checkpoint is: a file, a run directory, a tracker."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envs.base import TaskSpec
from navrl import yaml_io
from navrl.checkpoint import CheckpointError, CheckpointStore, load
from navrl.config import Config, recorded
from navrl.faults import ConfigError, Fault, show
from navrl.tracking.fetch import FORMS, FetchError, fetch, is_reference
from runners.setup import describe_task


def read_checkpoint(
    source: str, which: str = "best", settings: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], Path]:
    """The state behind ``PATH``, ``RUN_DIR`` (its ``which``: best or last) or a tracker's checkpoint (``fetch.FORMS``).

    settings: how a tracker is reached, as ``fetch`` takes them. Returns (state, file); a fetched file is gone again,
    only its name is left. Raises ConfigError (key ``checkpoint``) where there is none that can be used.
    """
    try:
        if not source or "\0" in source:
            forms = ", ".join(form for forms in FORMS.values() for form in forms)
            raise CheckpointError(f"{source!r} is no path; give a file, a run directory or {forms}")
        if is_reference(source):
            return _fetched(source, settings or {})
        if Path(source).is_dir():
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
    except OSError as error:  # of a path that no file can have
        raise ConfigError([Fault("checkpoint", f"{error.filename or source}: {error.strerror}")]) from error


def _fetched(reference: str, settings: Mapping[str, Any]) -> tuple[dict[str, Any], Path]:
    with tempfile.TemporaryDirectory(prefix="navrl-fetch-") as directory:
        try:
            (found,) = fetch(reference, Path(directory), settings)
            return load(found.path), Path(found.path.name)
        except (FetchError, OSError) as error:
            raise CheckpointError(str(error)) from error
        except CheckpointError as error:
            raise CheckpointError(f"{reference}: {str(error).replace(f'{directory}/', '')}") from error


def misfit(state: dict[str, Any], spec: TaskSpec) -> str:
    """Why the policy of a checkpoint does not fit the task, as far as the two tasks say it; one line."""
    there, here = state.get("task"), describe_task(spec)
    names = ("env_id", "action", "observation_sizes", "agents")
    differ = [name for name in names if isinstance(there, dict) and there.get(name) != here[name]]
    if not differ:
        return "its parameters are missing, or others than its configuration says"
    words = [f"{name.replace('_', ' ')} {_brief(there.get(name))} in the checkpoint, "
             f"{_brief(here[name])} in the task" for name in differ]
    return "; ".join(words)


def _brief(value: Any) -> str:
    """An action as ``discrete (5)``; the rest as it is."""
    return f"{value.get('kind')} ({value.get('size')})" if isinstance(value, dict) else show(value)


def config_of(state: dict[str, Any], overrides: dict[str, Any] | None = None) -> Config:
    """The configuration inside a checkpoint, with some values replaced (task settings of an evaluation)."""
    document = yaml_io.parse(state["config"], "checkpoint")
    values = recorded(document.values) | (overrides or {})
    return Config.model_validate(values)
