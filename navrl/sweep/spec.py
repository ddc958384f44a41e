"""A sweep as W&B's YAML file says it, read as W&B reads it and checked before anything is started.

What W&B's server and agent would do with the file is done by Optuna here; what has no counterpart is refused by name,
so that a file never means one thing online and another one offline. The format:
https://docs.wandb.ai/models/sweeps/sweep-config-keys
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from navrl import fields, yaml_io
from navrl.command_line import without
from navrl.config import Config
from navrl.faults import ConfigError, Fault, show, show_key
from navrl.source import project_root
from navrl.sweep.parameters import Parameter, read_parameters
from navrl.sweep.yaml_file import Section, document

METHODS = ("grid", "random", "bayes")
TOP = (
    "program", "method", "metric", "parameters", "early_terminate", "command", "run_cap", "name", "description",
    "project", "entity",
)  # fmt: skip
ONLINE_ONLY = ("apiVersion", "kind", "controller", "job", "image_uri", "metrics", "scheduler")
# How W&B's agent calls a program where the file does not say it
COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")
# What is decided by the sweep for each trial
DECIDED = {
    "resume": "a trial that was begun goes on by itself",
    "if_exists": "a trial that was begun goes on by itself",
    "experiment_name": "the name of a trial is built from its parameters",
    "wandb_name": "the name of a trial is built from its parameters",
}


@dataclass(frozen=True)
class Hyperband:
    """``early_terminate``: the counts of logged values after which a trial has to be among the best 1/eta."""

    bands: tuple[int, ...]
    eta: float


@dataclass(frozen=True)
class Sweep:
    """A checked sweep file.

    words: what every trial has on ``main.py``'s command line. target: a value of the metric at which no further trial
    is begun. run_cap: number of trials, where the file says it.
    """

    method: str
    metric: str
    maximize: bool
    parameters: tuple[Parameter, ...]
    words: tuple[str, ...]
    hyperband: Hyperband | None = None
    target: float | None = None
    run_cap: int | None = None

    def words_of(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """The command line of one trial, without its seed, as W&B's agent would write it: ``--key=value``."""
        return (*self.words, *(f"--{key}={_as_word(key, value)}" for key, value in values.items()))

    def identity(self) -> dict[str, Any]:
        """What must be equal for two commands to share one study, as plain values."""
        names = ("method", "metric", "maximize", "hyperband")
        return {name: _plain(getattr(self, name)) for name in names} | {
            f"parameters.{p.key}": _plain(p) for p in self.parameters
        }


def read(path: Path | str, further: Sequence[str] = ()) -> Sweep:
    """The sweep in a W&B sweep file. further: words for ``main.py`` that win over those of the file's ``command``.

    Raises ConfigError with all that is wrong.
    """
    faults: list[Fault] = []
    top = Section(document(path), "", str(path), faults)
    top.require_known(TOP, ONLINE_ONLY)
    method = top.word("method", METHODS)
    metric, maximize, target = _metric(top)
    parameters, constants = read_parameters(top, method)
    for key in DECIDED.keys() & constants.keys():
        top.fault(f"parameters.{key}", DECIDED[key])
    words = _words(top, further, {p.key for p in parameters} | set(constants))
    if not faults:
        words = _named(words, top, parameters, Path(path).stem)
        words += [f"--{key}={_as_word(key, value)}" for key, value in constants.items()]
    hyperband = _hyperband(top)
    cap = top.number("run_cap", whole=True, low=1) if "run_cap" in top.values else None
    if faults:
        raise ConfigError(faults)
    assert method is not None and metric is not None
    return Sweep(
        method=method, metric=metric, maximize=maximize, target=target, parameters=tuple(parameters),
        words=tuple(words), hyperband=hyperband, run_cap=cap,
    )  # fmt: skip


def without_seed(sweep: Sweep) -> Sweep:
    """The sweep without a seed in its words: each run of a trial is given its own."""
    return replace(sweep, words=tuple(without(sweep.words, {"seed"})))


# ---------------------------------------------------------------------------------------------- its sections


def _metric(top: Section) -> tuple[str | None, bool, float | None]:
    if top.values.get("metric") is None:
        top.fault("metric", "it is missing: a trial is judged by `name: train/episode_reward_mean`, `goal: maximize`")
    section = top.section("metric")
    if section is None:
        return None, False, None
    section.require_known(("name", "goal", "target"), ("impute", "impute_while_running"))
    name = section.text("name")
    if name is None or "/" not in name:
        section.fault("name", "it must be a metric of the record, as train/episode_reward_mean, eval/normalized_score")
    goal = section.word("goal", ("minimize", "maximize")) if "goal" in section.values else "minimize"
    target = section.number("target") if "target" in section.values else None
    return name, goal == "maximize", target


def _hyperband(top: Section) -> Hyperband | None:
    section = top.section("early_terminate")
    if section is None:
        return None
    section.require_known(("type", "min_iter", "max_iter", "s", "eta", "strict"))
    section.word("type", ("hyperband",))
    if section.values.get("strict") not in (None, False):
        section.fault("strict", "only W&B's server has the strict rule; leave it out")
    eta = section.number("eta", above=1) if "eta" in section.values else 3
    if not {"min_iter", "max_iter"} & section.values.keys():
        section.fault("", "write min_iter, or max_iter and s: after how many values of the metric trials are compared")
        return None
    if "min_iter" in section.values:
        first = section.number("min_iter", whole=True, low=1)
        if first is None or eta is None:
            return None
        bands = [int(first * eta**i) for i in range(100) if first * eta**i < 2**31]
    else:
        last, count = section.number("max_iter", whole=True, low=1), section.number("s", low=1)
        if last is None or count is None or eta is None:
            return None
        bands = sorted(int(last / eta**i) for i in range(1, min(int(count), 100) + 1) if last / eta**i >= 1)
        if not bands:
            section.fault("max_iter", f"{last} is too small for eta {eta:g}: there is no band")
    return Hyperband(tuple(dict.fromkeys(bands)), float(eta))


# ---------------------------------------------------------------------------------------------- the command


def _words(top: Section, further: Sequence[str], searched: set[str]) -> list[str]:
    """What ``command`` gives to every trial beside its parameters, changed by ``further``."""
    program = top.text("program")
    if program is None or Path(program).name != "main.py":
        top.fault("program", f"{show(program)} is not allowed; trials are runs of main.py")
    command = top.values.get("command", list(COMMAND))
    if not isinstance(command, list) or not all(isinstance(word, (str, int, float)) for word in command):
        top.fault("command", "it must be a list of words")
        return []
    command = [str(word) for word in command]
    for macro in ("${program}", "${args}"):
        if command.count(macro) != 1:
            top.fault("command", f"{macro} must be in it once")
            return []
    words = [word for word in command[command.index("${program}") + 1 :] if word != "${args}"]
    for word in words:
        if "${" in word:
            top.fault("command", f"{show(word)}: offline only {', '.join(COMMAND)} are known")
    for key in _keys(further):
        if key in searched:
            top.fault(f"--{show_key(key)}", "it is a parameter of the sweep; change it there")
    words = [*without(_found(words), _keys(further)), *further]
    for key in _keys(words):
        if key in DECIDED:
            top.fault(f"--{key}", DECIDED[key])
        elif key in searched and key not in _keys(further):
            top.fault(f"parameters.{key}", f"it stands in command too, as --{key}; keep one")
    return words


def _found(words: Sequence[str]) -> list[str]:
    """``words`` with the whole path of a configuration that is not where the user stands but in NAVRL.

    The shipped files name one so, and can be run from anywhere.
    """
    found = list(words)
    for place, word in enumerate(words):
        flag = "--config=" if word.startswith("--config=") else ""
        path = word.removeprefix(flag)
        here = project_root() / path
        if (flag or words[place - 1 : place] == ["--config"]) and not os.path.exists(path) and os.path.exists(here):
            found[place] = f"{flag}{here}"
    return found


def _named(words: list[str], top: Section, parameters: Sequence[Parameter], stem: str) -> list[str]:
    """``words`` with the names that all trials share: one group, and every parameter in the name of a run."""
    given = _keys(words)
    words = list(words)
    if not given & {"group", "wandb_group"}:
        words.append(f"--group={top.text('name') or stem}")
    for key, flag in (("project", "wandb_project"), ("entity", "wandb_entity")):
        if (value := top.text(key)) and not given & {flag, f"{key}_name"}:
            words.append(f"--{flag}={value}")
    if "named_keys" not in given:
        words.append("--named_keys=" + ",".join(parameter.key for parameter in parameters))
    return words


def _keys(words: Sequence[str]) -> set[str]:
    return {word[2:].partition("=")[0] for word in words if re.match(r"--\w", word)}


def _as_word(key: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if fields.inner(Config.model_fields[key])[0] is int and isinstance(value, float) and value == int(value):
        value = int(value)
    return yaml_io.emit(value)


def _plain(value: Any) -> Any:
    if isinstance(value, (Parameter, Hyperband)):
        return {name: _plain(item) for name, item in asdict(value).items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
