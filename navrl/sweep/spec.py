"""A sweep as W&B's YAML file says it, read as W&B reads it and checked before anything is started.

What W&B's server and agent would do with the file is done by Optuna here; what has no counterpart is refused by name, so
that a file never means one thing online and another one offline. The format:
https://docs.wandb.ai/models/sweeps/sweep-config-keys
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from navrl import fields, yaml_io
from navrl.config import SCIENCE_KEYS, Config
from navrl.faults import ConfigError, Fault, nearest, show, show_key

METHODS = ("grid", "random", "bayes")
TOP = (
    "program", "method", "metric", "parameters", "early_terminate", "command", "run_cap", "name", "description", "project",
    "entity",
)  # fmt: skip
ONLINE_ONLY = ("apiVersion", "kind", "controller", "job", "image_uri", "metrics", "scheduler")
# How W&B's agent calls a program where the file does not say it
COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")
DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "constant": ("value",),
    "categorical": ("values",),
    "int_uniform": ("min", "max"),
    "uniform": ("min", "max"),
    "q_uniform": ("min", "max", "q"),
    "log_uniform_values": ("min", "max"),
    "q_log_uniform_values": ("min", "max", "q"),
    "inv_log_uniform_values": ("min", "max"),
    "log_uniform": ("min", "max"),
    "inv_log_uniform": ("min", "max"),
}
MAX_POINTS = 10_000  # of a grid; a larger one is a typing mistake
# Keys that no trial may have of its own, and why
NOT_SWEPT = {
    "seed": "seeds are no hyperparameter: --seeds runs several of every trial",
    "env_id": "returns of different tasks are not comparable; write one sweep a task",
    "num_agents": "returns of different tasks are not comparable; write one sweep a task",
}
# What is decided by the sweep for each trial
DECIDED = {
    "resume": "a trial that was begun goes on by itself",
    "if_exists": "a trial that was begun goes on by itself",
    "experiment_name": "the name of a trial is built from its parameters",
    "wandb_name": "the name of a trial is built from its parameters",
}


@dataclass(frozen=True)
class Parameter:
    """One hyperparameter that is searched: a set of choices, or a range from low to high, both included.

    log: uniform in the logarithm. whole: whole numbers only. q: multiples of this (W&B's quantized distributions).
    """

    key: str
    choices: tuple[Any, ...] | None = None
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    q: float | None = None

    def points(self) -> tuple[Any, ...] | None:
        """All its values, where a grid goes over them: choices and int_uniform; else None."""
        if self.choices is not None:
            return self.choices
        if not self.whole or self.q is not None or self.high - self.low >= MAX_POINTS:
            return None
        return tuple(range(int(self.low), int(self.high) + 1))

    def samples(self) -> tuple[Any, ...]:
        """Values that have to be allowed: all choices, or the ends of the range."""
        ends = (self.low, self.high)
        return self.choices if self.choices is not None else tuple(map(int, ends)) if self.whole else ends


@dataclass(frozen=True)
class Hyperband:
    """``early_terminate``: the counts of logged values after which a trial has to be among the best 1/eta."""

    bands: tuple[int, ...]
    eta: float


@dataclass(frozen=True)
class Sweep:
    """A checked sweep file.

    words: what every trial has on ``main.py``'s command line. target: a value of the metric at which no further trial is
    begun. run_cap: number of trials, where the file says it.
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
    name, document = str(path), _document(path)
    faults: list[Fault] = []
    top = _Section(document, "", name, faults)
    top.require_known(TOP, ONLINE_ONLY)
    method = top.word("method", METHODS)
    metric, maximize, target = _metric(top)
    parameters, constants = _parameters(top, method)
    words = _words(top, further, {p.key for p in parameters} | set(constants))
    if not faults:
        words = _named(words, top, parameters, Path(path).stem)
        words += [f"--{key}={_as_word(key, value)}" for key, value in constants.items()]
    hyperband = _hyperband(top)
    cap = top.number("run_cap", whole=True, low=1) if "run_cap" in document else None
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


def tidy(value: float) -> float:
    """Without the noise of binary fractions: 0.30000000000000004 is 0.3."""
    return float(f"{value:.12g}")


# ---------------------------------------------------------------------------------------------- the file


class _Loader(yaml.SafeLoader):
    """W&B's reader (YAML 1.1), except that a key given twice is refused instead of lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                problem = f"the key {show(key)} is no text; write it in quotes"
            elif key in seen:
                problem = f"{show_key(key)} is given twice; keep one"
            else:
                seen.add(key)
                continue
            raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
        return super().construct_mapping(node, deep)


def _document(path: Path | str) -> dict[str, Any]:
    name = str(path)
    try:
        with open(path, "rb") as file:
            text = file.read(yaml_io.MAX_BYTES + 1).decode("utf-8-sig")
        if len(text) > yaml_io.MAX_BYTES:
            raise ConfigError([Fault("", f"larger than {yaml_io.MAX_BYTES} bytes; this is no sweep file", name)])
        document = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}, line {mark.line + 1}" if mark else name
        raise ConfigError([Fault("", error.problem or "not valid YAML", place)]) from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        cause = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise ConfigError([Fault("", f"cannot be read: {cause}", name)]) from None
    if not isinstance(document, dict):
        raise ConfigError([Fault("", "a sweep file is a mapping with method, metric, parameters and command", name)])
    return document


class _Section:
    """One mapping of the file and where its faults go."""

    def __init__(self, values: Mapping[str, Any], path: str, file: str, faults: list[Fault]) -> None:
        self.values, self.path, self.file, self.faults = values, path, file, faults

    def fault(self, key: str, message: str) -> None:
        self.faults.append(Fault(f"{self.path}{key}".rstrip("."), message, self.file))

    def require_known(self, known: Sequence[str], online_only: Sequence[str] = ()) -> None:
        for key in self.values:
            if key in online_only:
                self.fault(show_key(key), "only W&B's server can do that; take it out to run the sweep offline")
            elif key not in known:
                self.fault(show_key(key), f"there is no such key in a sweep file; nearest: {nearest(key, known)}")

    def section(self, key: str) -> _Section | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            self.fault(key, f"{show(value)} is not allowed; it must be a mapping")
        return _Section(value, f"{self.path}{key}.", self.file, self.faults) if isinstance(value, dict) else None

    def word(self, key: str, words: Sequence[str]) -> str | None:
        value = self.values.get(key)
        if isinstance(value, str) and value in words:
            return value
        missing = key not in self.values
        self.fault(key, f"{'it is missing' if missing else f'{show(value)} is not allowed'}; write one of {', '.join(words)}")
        return None

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        self.fault(key, f"{show(value)} is not allowed; it must be text that is not empty")
        return None

    def number(self, key: str, *, whole: bool = False, low: float = -math.inf, above: float = -math.inf) -> Any:
        """The number at ``key``; None with a fault where there is none or it is out of bounds."""
        value = self.values.get(key)
        kind = "a whole number" if whole else "a number"
        bounds = f" >= {low:g}" if low > -math.inf else f" > {above:g}" if above > -math.inf else ""
        good = isinstance(value, (int,) if whole else (int, float)) and not isinstance(value, bool)
        if good and math.isfinite(value) and value >= low and value > above:
            return value
        problem = "it is missing" if key not in self.values else f"{show(value)} is not allowed"
        self.fault(key, f"{problem}; it must be {kind}{bounds}{_text_number(value)}")
        return None


def _text_number(value: Any) -> str:
    """How to write a number that W&B's reader (YAML 1.1) takes for text: ``1e-5``."""
    if not isinstance(value, str):
        return ""
    try:
        number = yaml_io.scalar(value)
    except ValueError:
        return ""
    if not isinstance(number, (int, float)) or isinstance(number, bool):
        return ""
    return f"; W&B's reader takes {value} for text, write {yaml_io.emit(number)}"


# ---------------------------------------------------------------------------------------------- its sections


def _metric(top: _Section) -> tuple[str | None, bool, float | None]:
    if top.values.get("metric") is None:
        top.fault("metric", "it is missing: a trial is judged by `name: train/episode_reward_mean`, `goal: maximize`")
    section = top.section("metric")
    if section is None:
        return None, False, None
    section.require_known(("name", "goal", "target"), ("impute", "impute_while_running"))
    name = section.text("name")
    if name is None or "/" not in name:
        section.fault("name", "it must be a metric of the record, as train/episode_reward_mean or eval/normalized_score")
    goal = section.word("goal", ("minimize", "maximize")) if "goal" in section.values else "minimize"
    target = section.number("target") if "target" in section.values else None
    return name, goal == "maximize", target


def _parameters(top: _Section, method: str | None) -> tuple[list[Parameter], dict[str, Any]]:
    """The parameters that are searched, and the constants."""
    parameters: list[Parameter] = []
    constants: dict[str, Any] = {}
    if not top.values.get("parameters"):
        top.fault("parameters", "it is missing: write what is searched, one key of main.py each")
    whole = top.section("parameters")
    for key in whole.values if whole is not None else ():
        count = len(whole.faults)
        if key not in Config.model_fields:
            whole.fault(show_key(key), f"there is no such key; nearest: {nearest(key, SCIENCE_KEYS)}")
        section = whole.section(key)
        if section is None:
            if len(whole.faults) == count:
                whole.fault(key, "it must be a mapping: value, values, or min and max")
            continue
        read = _parameter(key, section)
        if read is None or len(whole.faults) > count:
            continue
        if isinstance(read, Parameter):
            _require_searchable(whole, read, method)
            parameters.append(read)
        else:
            constants[key] = read[0]
            if key in DECIDED:
                whole.fault(key, DECIDED[key])
        for value in read.samples() if isinstance(read, Parameter) else read:
            _require_allowed(whole, key, value)
    if whole is not None and not parameters and not top.faults:
        top.fault("parameters", "nothing is searched: every parameter is constant")
    return parameters, constants


def _require_searchable(parameters: _Section, parameter: Parameter, method: str | None) -> None:
    key = parameter.key
    if key in NOT_SWEPT:
        parameters.fault(key, NOT_SWEPT[key])
    elif key not in SCIENCE_KEYS:
        parameters.fault(key, "it changes no result, so there is nothing to search; give it one `value`")
    elif method == "grid" and parameter.points() is None:
        parameters.fault(key, "a grid needs `values` or int_uniform; other ranges are for random and bayes")


def _require_allowed(parameters: _Section, key: str, value: Any) -> None:
    info = Config.model_fields[key]
    kind = fields.inner(info)[0]
    if kind is int and isinstance(value, float) and value == int(value):
        value = int(value)  # as the trial's command line has it
    if isinstance(value, (list, dict)):
        parameters.fault(key, f"{show(value)}: a list or mapping is no value of a trial")
        return
    try:
        Config.model_validate({key: value}, context={"fields_only": True})
    except ValidationError:
        hint = _text_number(value) if kind in (int, float) else ""
        message = f"{show(value)} is not allowed; it must be {fields.allowed(info)}"
        parameters.fault(key, message + (hint or fields.hint(value, info)))


def _parameter(key: str, section: _Section) -> Parameter | tuple[Any] | None:
    """A parameter that is searched, ``(value,)`` for a constant, or None with a fault."""
    values = section.values
    if "parameters" in values:
        section.fault("parameters", "keys of main.py are not nested; write those inside it one level up")
        return None
    if "probabilities" in values:
        section.fault("probabilities", "weighted choices have no counterpart in Optuna; leave them out")
        return None
    given = values.get("distribution")
    if given is not None and (not isinstance(given, str) or given not in DISTRIBUTIONS):
        section.fault("distribution", f"{show(given)} has no counterpart offline; write one of {', '.join(DISTRIBUTIONS)}")
        return None
    distribution = given or _inferred(values)
    if distribution is None:
        section.fault("", "write value, values, or min and max")
        return None
    section.require_known(("distribution", *DISTRIBUTIONS[distribution]))
    if distribution == "constant":
        if "value" not in values:
            section.fault("value", "it is missing")
        return (values.get("value"),)
    if distribution == "categorical":
        choices = values.get("values")
        if not isinstance(choices, list) or not choices:
            section.fault("values", "it must be a list of at least one value")
        elif len({(type(choice), str(choice)) for choice in choices}) < len(choices):
            section.fault("values", "a value is given twice; keep one")
        else:
            return Parameter(key, choices=tuple(choices))
        return None
    return _range(key, distribution, section)


def _inferred(values: Mapping[str, Any]) -> str | None:
    """The distribution of a parameter that names none, as W&B infers it."""
    if "value" in values:
        return "constant"
    if "values" in values:
        return "categorical"
    if "min" in values and "max" in values:
        ends = (values["min"], values["max"])
        return "int_uniform" if all(isinstance(end, int) and not isinstance(end, bool) for end in ends) else "uniform"
    return None


def _range(key: str, distribution: str, section: _Section) -> Parameter | None:
    whole = distribution == "int_uniform"
    low, high = section.number("min", whole=whole), section.number("max", whole=whole)
    quantized = distribution.startswith("q_")
    q = section.number("q", above=0) if "q" in section.values else 1
    if low is None or high is None or q is None:
        return None
    if low >= high:
        section.fault("min", f"{show(low)} is not below max, {show(high)}")
        return None
    log = "log" in distribution
    if log and not distribution.endswith("_values"):  # its bounds are exponents
        ends = (-high, -low) if distribution.startswith("inv") else (low, high)
        if max(map(abs, ends)) > 700:
            section.fault("max", "exp of it is beyond any number; log_uniform_values takes the bounds themselves")
            return None
        low, high = (tidy(math.exp(end)) for end in ends)
    if log and low <= 0:
        section.fault("min", f"{show(low)} has no logarithm; it must be > 0")
        return None
    if quantized:
        whole = all(isinstance(number, int) for number in (low, high, q))
        low, high = tidy(round(low / q) * q), tidy(round(high / q) * q)
        if low >= high or (log and low <= 0):
            section.fault("q", f"{show(q)} is too large for this range")
            return None
    return Parameter(key, low=low, high=high, log=log, whole=whole, q=q if quantized else None)


def _hyperband(top: _Section) -> Hyperband | None:
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


def _words(top: _Section, further: Sequence[str], searched: set[str]) -> list[str]:
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
            top.fault("command", f"{show(word)}: offline only ${{env}}, ${{interpreter}}, ${{program}} and ${{args}} are known")
    for key in _keys(further):
        if key in searched:
            top.fault(f"--{show_key(key)}", "it is a parameter of the sweep; change it there")
    words = [*without(words, _keys(further)), *further]
    for key in _keys(words):
        if key in DECIDED:
            top.fault(f"--{key}", DECIDED[key])
        elif key in searched and key not in _keys(further):
            top.fault(f"parameters.{key}", f"it stands in command too, as --{key}; keep one")
    return words


def _named(words: list[str], top: _Section, parameters: Sequence[Parameter], stem: str) -> list[str]:
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


def without(words: Sequence[str], keys: set[str]) -> list[str]:
    """``words`` of main.py without the flags of these keys and their values."""
    kept, taken = [], False
    for word in words:
        if word.startswith("--"):
            taken = word[2:].partition("=")[0] in keys
        if not taken:
            kept.append(word)
    return kept


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
