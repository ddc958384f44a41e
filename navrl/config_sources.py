"""Where a run's values come from: command line, environment (tracker settings only), YAML file, default.

``load`` gathers them in this order of precedence and reports all faults of all of them at once. Nothing here imports
torch, an environment or a tracker: ``--help`` must be fast.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from navrl import command_line, fields, yaml_io
from navrl.config import KEYS, MAIN_TASK, SCIENCE_KEYS, TASK_SETTINGS, Config, kind_of, recorded
from navrl.faults import ConfigError, Fault, nearest, secret_fault, show, show_key
from navrl.pipes import settle_output
from navrl.redaction import is_secret_key, is_secret_value, redact_typed
from navrl.tracking.fetch import is_reference

if TYPE_CHECKING:
    from navrl.recovery import LostRun

SAMPLE_ENTITY = "your_account_or_team_name"  # as train_mpe.yaml shows it; nobody's account
MAX_UNKNOWN = 50  # unknown keys that are each looked up; a file with more is something else

Source = Literal["cli", "env", "yaml", "default"]
# (env_id, env_backend, settings) -> (key, message) of every setting that the task does not take
TaskCheck = Callable[[str, str, dict[str, Any]], Iterable[Sequence[str]]]

# Environment variables that mean what the trackers' makers say. Old words of theirs are translated.
ENVIRONMENT = {
    "WANDB_MODE": "wandb_mode",
    "WANDB_PROJECT": "wandb_project",
    "WANDB_ENTITY": "wandb_entity",
    "WANDB_RUN_GROUP": "wandb_group",
    "WANDB_NAME": "wandb_name",
    "WANDB_TAGS": "wandb_tags",
    "SWANLAB_MODE": "swanlab_mode",
    "MLFLOW_TRACKING_URI": "mlflow_tracking_uri",
    "NAVRL_RUNS": "run_dir",
}
_OLD_WORDS = {("WANDB_MODE", "dryrun"): "offline", ("WANDB_MODE", "run"): "online", ("SWANLAB_MODE", "cloud"): "online"}


@dataclass(frozen=True)
class Loaded:
    """A checked configuration and where it came from.

    sources: for every key the layer that decided it. notices: things worth a line on the console, no faults.
    resume: the run directory to continue, if one was given. lost: the run to continue where a tracker's checkpoint was
    given instead, its directory being gone.
    """

    config: Config
    sources: Mapping[str, Source]
    notices: tuple[str, ...] = ()
    resume: Path | None = None
    lost: LostRun | None = None


@dataclass
class _Layer:
    """Values from one place, with where each was said."""

    source: Source
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)


def _layer_faults(layer: _Layer) -> list[Fault]:
    """What is wrong with single values of a layer. Faulty and unknown keys are taken out of it."""
    faults = []
    unknown = [key for key in layer.values if key not in Config.model_fields]
    for key in unknown[:MAX_UNKNOWN]:
        faults.append(_unknown(key, layer.values[key], layer.places[key]))
    if len(unknown) > MAX_UNKNOWN:
        faults.append(Fault("", f"{len(unknown) - MAX_UNKNOWN} more unknown keys; this is no configuration file",
                            layer.places[unknown[MAX_UNKNOWN]]))
    for key in unknown:
        del layer.values[key]
    for key in [key for key, value in layer.values.items() if is_secret_value(value) and kind_of(key) != "path"]:
        del layer.values[key]
        faults.append(secret_fault(key, layer.places[key]))
    try:
        Config.model_validate(layer.values, context={"fields_only": True})
    except ValidationError as error:
        for key in dict.fromkeys(str(detail["loc"][0]) for detail in error.errors(include_url=False)):
            faults.append(_bad_value(key, layer.values.pop(key), layer.places[key]))
    return faults


def _unknown(key: str, value: Any, where: str) -> Fault:
    if is_secret_key(key):
        return secret_fault(show_key(key), where)
    message = f"there is no such key; nearest: {nearest(key, KEYS)}"
    if isinstance(value, dict):
        inside = ", ".join(name if name in KEYS else f"{nearest(name, KEYS)} (for {show_key(name)})"
                           for name in value if not is_secret_key(name))
        message = f"keys are not nested; write those inside it at the top level: {inside or 'none was given'}"
    return Fault(show_key(key), message, where)


def _bad_value(key: str, value: Any, where: str) -> Fault:
    info = Config.model_fields[key]
    message = f"{show(value)} is not allowed; it must be {fields.allowed(info)}{fields.hint(value, info)}"
    words = fields.choices(info)
    if words:
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(item, str) and item not in words:
                message += f"; nearest to {show(item)}: {nearest(item, words)}"
    return Fault(key, message, where)


def _environment_layer(environ: Mapping[str, str]) -> tuple[_Layer, list[Fault]]:
    layer, faults = _Layer("env"), []
    for variable, key in ENVIRONMENT.items():
        text = environ.get(variable, "")
        if not text:
            continue
        layer.places[key] = f"environment variable {variable}"
        try:
            layer.values[key] = fields.from_words([_OLD_WORDS.get((variable, text), text)], Config.model_fields[key])
        except ValueError as error:
            faults.append(Fault(key, redact_typed(str(error)), layer.places[key]))
    return layer, faults


def _file_layer(path: str, run_dir: str | None) -> tuple[_Layer, list[Fault], list[str]]:
    layer = _Layer("yaml")
    notices: list[str] = []
    try:
        document = yaml_io.read(path)
    except ConfigError as error:
        if run_dir is not None:
            return layer, [fault._replace(message=f"{fault.message}; --resume takes the directory of a run")
                           for fault in error.faults], notices
        return layer, error.faults, notices
    if document.empty:
        notices.append(f"{path} sets nothing: every key takes its default (the main job, MAPPO on {MAIN_TASK})")
    return _layer_of(document), document.faults, notices


def _layer_of(document: yaml_io.Document) -> _Layer:
    values = recorded(document.values)
    return _Layer("yaml", values, {key: document.where(key) for key in (*document.lines, *values)})


def _recovered(reference: str, layers: Sequence[_Layer], faults: list[Fault]) -> tuple[LostRun, _Layer]:
    """The run behind a tracker's checkpoint and the configuration in it.

    Raises ConfigError, before any tracker is asked, where something is wrong with what was typed.
    """
    faults = faults + [fault for layer in layers for fault in _layer_faults(layer)]
    if faults:
        raise ConfigError(faults)
    typed = Config.model_validate({key: value for layer in layers for key, value in layer.values.items()},
                                  context={"fields_only": True})
    from navrl.recovery import recover  # reads a checkpoint, with torch

    lost = recover(reference, typed.model_dump())
    document = yaml_io.parse(lost.state["config"], f"configuration in {reference}")
    if document.faults:
        raise ConfigError(document.faults)
    return lost, _layer_of(document)


def load(
    argv: Sequence[str],
    environ: Mapping[str, str],
    task_check: TaskCheck | None = None,
) -> Loaded:
    """Gather, check and freeze the configuration of one run.

    argv: the words after the program's name. environ: ``os.environ``. task_check: names the settings that the task
    does not take (``envs.registry.validate_settings``); it also gets to say that there is no such task.

    Prints the help text and raises SystemExit(0) for ``--help``. Raises ConfigError with all faults together.
    """
    if "--help" in argv or "-h" in argv:
        with contextlib.suppress(BrokenPipeError):  # `--help | head`
            print(command_line.help_text(Config), flush=True)
        settle_output()
        raise SystemExit(0)
    flags = command_line.parse(argv, Config)
    faults = list(flags.faults)
    notices: list[str] = []
    on_command_line = _Layer("cli", flags.values, dict.fromkeys(flags.values, "command line"))
    in_environment, more = _environment_layer(environ)
    faults += more
    in_file, unread, lost = _Layer("yaml"), False, None
    path = flags.config
    if flags.resume is not None:
        if flags.config is not None:
            faults.append(Fault("config", "--resume takes the run's own configuration; leave out --config",
                                "command line"))
        # A run keeps its names, whatever the shell of the day says; and its place, as long as it has one.
        kept = {"wandb_project", "wandb_group", "wandb_name"} | (set() if is_reference(flags.resume) else {"run_dir"})
        in_environment.values = {k: v for k, v in in_environment.values.items() if k not in kept}
        if is_reference(flags.resume):
            path = None
            lost, in_file = _recovered(flags.resume, (in_environment, on_command_line), faults)
        else:
            path = str(Path(flags.resume) / "config.yaml")
    if path is not None:
        in_file, more, notices = _file_layer(path, flags.resume)
        faults += more
        unread = bool(more)

    unusable = {fault.key for fault in faults}
    layers = (in_file, in_environment, on_command_line)
    for layer in layers:
        found = _layer_faults(layer)
        unusable |= {fault.key for fault in found}
        faults += found
    values = {key: value for layer in layers for key, value in layer.values.items()}
    sources: dict[str, Source] = dict.fromkeys(KEYS, "default")
    sources.update({key: layer.source for layer in layers for key in layer.values})
    places = {key: layer.places[key] for layer in layers for key in layer.values}

    below = Config.model_validate(in_file.values, context={"fields_only": True})
    above = Config.model_validate(values, context={"fields_only": True})
    if flags.resume is None:
        values["named_keys"] = _named_keys(below, above, on_command_line.values)
    elif unread:  # nothing can be held against values that are not the run's
        raise ConfigError(faults)
    else:
        faults += [fault._replace(where=places.get(fault.key, "")) for fault in resume_faults(below, above)]
    notices += _replace_sample_entity(values, places)

    config = Config.model_validate(values, context={"fields_only": True})
    faults += [fault._replace(where=places.get(fault.key, "")) for fault in config.cross_faults(unusable)]
    if task_check is not None and not unusable & {"env_id", "env_backend"}:
        faults += _task_faults(config, task_check, sources, places, unusable)
    if faults:
        raise ConfigError(faults)
    return Loaded(config, sources, tuple(notices + _notices(config, sources)),
                  resume=Path(flags.resume) if flags.resume and not lost else None, lost=lost)


def _named_keys(below: Config, config: Config, given: Mapping[str, Any]) -> tuple[str, ...]:
    changed = {key for key in given if key in SCIENCE_KEYS and key != "seed"
               and getattr(below, key) != getattr(config, key)}
    return (*config.named_keys, *(key for key in KEYS if key in changed and key not in config.named_keys))


def _replace_sample_entity(values: dict[str, Any], places: Mapping[str, str]) -> list[str]:
    if values.get("wandb_entity") != SAMPLE_ENTITY:
        return []
    values["wandb_entity"] = None
    if values.get("wandb_mode", "auto") == "auto":
        values["wandb_mode"] = "offline"
    return [f"wandb_entity ({places['wandb_entity']}) is still the sample value {SAMPLE_ENTITY}: W&B records offline; "
            f"write your account or team there, or null"]


def _task_faults(config: Config, task_check: TaskCheck, sources: Mapping[str, Source], places: Mapping[str, str],
                 unusable: set[str]) -> list[Fault]:
    settings = {key: value for key, value in config.task_settings().items() if key not in unusable}
    faults = []
    for found in task_check(config.env_id, config.env_backend, settings):
        key, message = found[0], found[1].removeprefix(f"{found[0]}: ")
        if key in TASK_SETTINGS and sources[key] == "yaml":
            message += f" (--{key} null leaves it to the task)"
        faults.append(Fault(key, message, places.get(key, "")))
    return faults


def _notices(config: Config, sources: Mapping[str, Source]) -> list[str]:
    """What is allowed, and may still not be what was meant."""
    notices = []
    batch = config.batch_size
    if config.mini_batch_size is not None and config.mini_batch_size > batch:
        notices.append(f"mini_batch_size {config.mini_batch_size} is more than the {batch} joint steps of an "
                       f"iteration: each epoch is one minibatch of all of them")
    elif batch % config.minibatch_size:
        notices.append(f"mini_batch_size {config.mini_batch_size} does not divide the {batch} joint steps of an "
                       f"iteration: minibatches are unequal, and every step is used once an epoch")
    if config.network == "gru" and config.mini_batch_size is not None and config.minibatch_size % config.chunk_steps:
        notices.append(f"mini_batch_size {config.mini_batch_size} is rounded to whole chunks of "
                       f"{config.chunk_steps} steps (network: gru)")
    if config.total_env_steps < batch:
        notices.append(f"total_env_steps {config.total_env_steps} is less than the {batch} steps of one iteration")
    scheduled = (config.entropy_coef_end, config.ppo_epoch_end)
    if config.lr_decay_steps is not None and config.lr_schedule == "constant" and scheduled == (None, None):
        notices.append("lr_decay_steps has no effect: lr_schedule is constant, entropy_coef_end and ppo_epoch_end are null")
    if sources["logger"] == "cli" and sources["log_wandb"] == "yaml" and config.log_wandb:
        if "wandb" not in config.logger:
            notices.append("log_wandb: true in the file adds wandb to logger; --no_log_wandb leaves it out")
    return notices


def recorded_config(run_dir: Path) -> Config | None:
    """The configuration that a run has had so far; None where its process died before it was written.

    Raises ConfigError where it cannot be used.
    """
    path = run_dir / "config.yaml"
    if not path.exists():
        return None
    try:
        return Config.model_validate(recorded(yaml_io.read(path).values))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(map(str, problem["loc"])) or "configuration"
        raise ConfigError([Fault(key, f"cannot be used: {problem['msg']}", str(path))]) from error


def resume_faults(old: Config, new: Config, *, repeated: bool = False) -> list[Fault]:
    """Keys that a resumed run may not change: what was learnt so far would be another experiment's.

    The budget (``total_env_steps``), trackers, intervals, paths and the machine may change. repeated: not --resume, but
    the command again. Which keys were typed made the name then, and the name is the same.
    """
    faults = []
    instead = "give this one another --group" if repeated else "start a new run for that"
    for key in KEYS:
        if repeated and key == "named_keys":
            continue
        if kind_of(key) in ("science", "name") and key != "total_env_steps" and getattr(old, key) != getattr(new, key):
            faults.append(Fault(key, f"is {show(getattr(old, key))} in the run and cannot become "
                                     f"{show(getattr(new, key))} on resume; {instead}"))
    return faults
