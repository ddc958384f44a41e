"""The section ``parameters`` of a sweep file: what is searched, in which range, and what is constant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from navrl import fields
from navrl.config import SCIENCE_KEYS, Config
from navrl.faults import nearest, show, show_key
from navrl.sweep.yaml_file import Section, text_number

# What W&B calls them, and the keys that each has
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


def read_parameters(top: Section, method: str | None) -> tuple[list[Parameter], dict[str, Any]]:
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
        for value in read.samples() if isinstance(read, Parameter) else read:
            _require_allowed(whole, key, value)
    if whole is not None and not parameters and not top.faults:
        top.fault("parameters", "nothing is searched: every parameter is constant")
    return parameters, constants


def _require_searchable(parameters: Section, parameter: Parameter, method: str | None) -> None:
    key = parameter.key
    if key in NOT_SWEPT:
        parameters.fault(key, NOT_SWEPT[key])
    elif key not in SCIENCE_KEYS:
        parameters.fault(key, "it changes no result, so there is nothing to search; give it one `value`")
    elif method == "grid" and parameter.points() is None:
        parameters.fault(key, "a grid needs `values` or int_uniform; other ranges are for random and bayes")


def _require_allowed(parameters: Section, key: str, value: Any) -> None:
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
        hint = text_number(value) if kind in (int, float) else ""
        message = f"{show(value)} is not allowed; it must be {fields.allowed(info)}"
        parameters.fault(key, message + (hint or fields.hint(value, info)))


def _parameter(key: str, section: Section) -> Parameter | tuple[Any] | None:
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
        section.fault("distribution", f"{show(given)} is not known offline; write one of {', '.join(DISTRIBUTIONS)}")
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


def _range(key: str, distribution: str, section: Section) -> Parameter | None:
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


def tidy(value: float) -> float:
    """Without the noise of binary fractions: 0.30000000000000004 is 0.3."""
    return float(f"{value:.12g}")
