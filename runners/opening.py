"""A run's directory: made for a new run, or taken up again with the checkpoint that it continues from."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from navrl import yaml_io
from navrl.checkpoint import CheckpointError, CheckpointStore
from navrl.config import KEYS, Config, config_hash, kind_of, recorded
from navrl.config_sources import Loaded, recorded_config, resume_faults
from navrl.faults import ConfigError, Fault, show
from navrl.metrics.health import Health
from navrl.naming import Names, names, safe_directory
from navrl.recovery import LostRun, make_directory
from navrl.redaction import redact_all
from navrl.tracking.hub import refuse_taken_run_id
from navrl.tracking.record import LocalRecord, RecordError, Unwritable
from runners.on_policy import OnPolicyRunner
from runners.setup import describe_task

# What a checkpoint's task must share with the run's; a newer package that defines the same task may go on.
SAME_TASK = ("env_id", "agents", "observation_sizes", "action", "settings")
# What a checkpoint holds beside its configuration and task, and what that is
NEEDED = {"runner": dict, "health": dict, "best_score": float, "owed": (dict, type(None)), "elapsed": (int, float)}
MAX_NAMED = 5  # keys in the notice of a mixed group


@dataclass
class OpenRun:
    """An open record and, where the run is continued, what it continues from.

    state: the checkpoint, already loaded into the runner; None where the run begins at step 0.
    changed: keys whose values differ from the run's so far, as [before, now]. origin: the tracker's checkpoint that it
    continues from, its earlier directory being gone. notices: lines for the console.
    """

    record: LocalRecord | None = None
    state: dict[str, Any] | None = None
    changed: dict[str, list[Any]] = field(default_factory=dict)
    origin: dict[str, Any] | None = None
    notices: list[str] = field(default_factory=list)


def open_run(loaded: Loaded, runner: OnPolicyRunner) -> OpenRun:
    """Open or make the run's directory. Raises ConfigError where it cannot be had; nothing was written then."""
    opened = OpenRun()
    wish = "resume" if loaded.resume or loaded.lost else "if_exists"  # what asked for this directory

    def admit(run_dir: Path) -> None:  # holds the run's lock; what it raises leaves the run as it was
        before = recorded_config(run_dir)
        if before is not None:
            faults = resume_faults(before, loaded.config, repeated=True)
            if faults:
                raise ConfigError(faults)
            opened.changed = _changes(before, loaded.config)
        opened.state = _newest_checkpoint(run_dir, runner, opened.notices)
        if opened.state is not None:
            _require_budget(wish, before, loaded.config, runner.env_steps)

    key = wish
    try:
        name = names(loaded)
        if loaded.resume is not None:
            opened.record = LocalRecord.open(loaded.resume, admit)
        elif loaded.lost is not None:
            _require_file_names(run_dir=loaded.config.run_dir, experiment_name=name.experiment_name)
            opened.record = _bring_back(loaded.lost, loaded.config, name, runner, opened)
        else:
            directories = [safe_directory(part) for part in (name.project, name.group, name.experiment_name)]
            _require_file_names(run_dir=loaded.config.run_dir, experiment_name="/".join(directories))
            run_id = os.environ.get("WANDB_RUN_ID")
            if run_id and "wandb" in loaded.config.trackers:
                root = Path(loaded.config.run_dir).expanduser().absolute()
                resumed = root.joinpath(*directories) if loaded.config.if_exists == "resume" else None
                key = "wandb_run_id"
                refuse_taken_run_id(root, run_id, own=resumed)
                key = wish
            opened.record = LocalRecord.create(
                loaded.config.run_dir, *directories, if_exists=loaded.config.if_exists, admit=admit
            )
    except Unwritable as error:
        raise ConfigError([Fault("run_dir", str(error))]) from error
    except (RecordError, CheckpointError) as error:
        raise ConfigError([Fault(key, str(error))]) from error
    opened.notices += _mixed_group(opened.record.run_dir, loaded.config)
    return opened


def _bring_back(
    lost: LostRun, config: Config, name: Names, runner: OnPolicyRunner, opened: OpenRun
) -> LocalRecord:
    """The record of a run whose directory is made anew; all is checked before that is."""
    before = Config.model_validate(recorded(yaml_io.parse(lost.state["config"], lost.reference).values))
    opened.changed, opened.origin, opened.state = _changes(before, config), lost.origin, lost.state
    opened.notices += lost.notices
    _take_up(lost.state, lost.reference, runner, opened.notices)
    _require_budget("resume", before, config, runner.env_steps)
    root = Path(config.run_dir).expanduser().absolute()
    run_dir = make_directory(lost, root, name, if_exists=config.if_exists)
    opened.notices.append(f"step {runner.env_steps} came back from {lost.reference}; the rows up to there are in the "
                          "tracker alone")
    return LocalRecord.open(run_dir)


def _require_budget(key: str, before: Config | None, now: Config, trained: int) -> None:
    """Raises ConfigError where less is asked than there is."""
    budget = now.total_env_steps
    # The last iteration of a run may end beyond its own budget; only a budget made smaller is a mistake.
    if budget < trained and (before is None or budget < before.total_env_steps):
        message = f"total_env_steps {budget} is less than the {trained} steps already trained"
        raise ConfigError([Fault(key, message)])


def _require_file_names(**names: str) -> None:
    """Raises ConfigError for a name that this machine's file system encoding (the locale's) cannot spell."""
    for key, name in names.items():
        try:
            os.fsencode(name)
        except UnicodeEncodeError:
            message = f"{name!a} is no file name in this shell's locale: set LC_ALL=C.UTF-8"
            raise ConfigError([Fault(key, message)]) from None


def _changes(before: Config, now: Config) -> dict[str, list[Any]]:
    pairs = {key: (getattr(before, key), getattr(now, key)) for key in KEYS if kind_of(key) != "path"}
    return {
        key: redact_all(pair)
        for key, pair in pairs.items()
        if pair[0] != pair[1]
    }


def _mixed_group(run_dir: Path, config: Config) -> list[str]:
    """A notice where another run of the group has another configuration: their mean over seeds would be of nothing.

    Built group names tell configurations apart by what the command line changed; an edited YAML file, a given group
    and a longer budget on resume they do not see.
    """
    here, own_hash = config.science(), config_hash(config)
    for path in sorted(run_dir.parent.glob("*/metadata.json")):
        if path.parent == run_dir:
            continue
        try:
            if json.loads(path.read_text(encoding="utf-8"))["config_hash"] == own_hash:
                continue
            other = recorded_config(path.parent)
        except (OSError, ValueError, KeyError, TypeError, ConfigError):
            continue  # half made, or of a version whose keys are others: nothing can be said about it
        there = here if other is None else other.science()
        keys = [key for key in here if key != "seed" and here[key] != there[key]]
        if keys:
            named = [f"{key} {show(there[key])} there, {show(here[key])} here" for key in keys[:MAX_NAMED]]
            more = f"; and {len(keys) - MAX_NAMED} more" if len(keys) > MAX_NAMED else ""
            return [f"group {run_dir.parent.name} holds more than one configuration; {path.parent.name} differs: "
                    f"{'; '.join(named)}{more}. Give this one another --group to compare them"]
    return []


def _newest_checkpoint(run_dir: Path, runner: OnPolicyRunner, notices: list[str]) -> dict[str, Any] | None:
    """Load the newest usable checkpoint into ``runner``; None where the run died before it made its first one."""
    store = CheckpointStore(run_dir / "checkpoints")
    if not store.entries:
        notices.append(f"{run_dir} holds no checkpoint yet: it begins again at step 0")
        return None
    state, path, problems = store.newest()
    notices += [f"checkpoint left out: {problem}" for problem in problems]
    if problems:
        notices.append(f"going on from {path}")
    _take_up(state, path, runner, notices)
    return state


def _take_up(state: dict[str, Any], path: Path | str, runner: OnPolicyRunner, notices: list[str]) -> None:
    """Load a checkpoint into ``runner``. Raises CheckpointError where it does not fit."""
    try:
        task, here = state["task"], describe_task(runner.env.spec)
        for name in SAME_TASK:
            if task[name] != here[name]:
                raise CheckpointError(f"{path} is of another task: its {name} is {task[name]}, here it is {here[name]}")
        lacking = [name for name in NEEDED if name not in state]
        if lacking:
            raise CheckpointError(f"{path} lacks {', '.join(lacking)}: a run cannot go on from it")
        for name, kinds in NEEDED.items():
            if not isinstance(state[name], kinds):
                raise CheckpointError(f"{path}: its {name} is damaged")
        Health().load_state_dict(state["health"])
        runner.load_state_dict(state["runner"])
    except (RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is of another size or network: {str(error).splitlines()[0]}") from error
    if not runner.exact_resume:
        notices.append(f"{runner.env.spec.env_id} cannot be saved amid an episode: every copy begins a new one")
