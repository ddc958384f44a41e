"""A W&B sweep file as W&B reads it: YAML 1.1, mappings in mappings, and where in them each fault is."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from navrl import yaml_io
from navrl.faults import ConfigError, Fault, nearest, show, show_key


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


def document(path: Path | str) -> dict[str, Any]:
    """The mapping that the file holds. Raises ConfigError naming file, line where there is one, and cause."""
    name = str(path)
    try:
        with open(path, "rb") as file:
            text = file.read(yaml_io.MAX_BYTES + 1).decode("utf-8-sig")
        if len(text) > yaml_io.MAX_BYTES:
            raise ConfigError([Fault("", f"larger than {yaml_io.MAX_BYTES} bytes; this is no sweep file", name)])
        content = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}, line {mark.line + 1}" if mark else name
        raise ConfigError([Fault("", error.problem or "not valid YAML", place)]) from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        cause = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise ConfigError([Fault("", f"cannot be read: {cause}", name)]) from None
    if not isinstance(content, dict):
        raise ConfigError([Fault("", "a sweep file is a mapping with method, metric, parameters and command", name)])
    return content


class Section:
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

    def section(self, key: str) -> Section | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            self.fault(key, f"{show(value)} is not allowed; it must be a mapping")
        return Section(value, f"{self.path}{key}.", self.file, self.faults) if isinstance(value, dict) else None

    def word(self, key: str, words: Sequence[str]) -> str | None:
        """The one of ``words`` at ``key``; None with a fault where it is none of them."""
        value = self.values.get(key)
        if isinstance(value, str) and value in words:
            return value
        self.fault(key, f"{self._problem(key)}; write one of {', '.join(words)}")
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
        self.fault(key, f"{self._problem(key)}; it must be {kind}{bounds}{text_number(value)}")
        return None

    def _problem(self, key: str) -> str:
        return f"{show(self.values[key])} is not allowed" if key in self.values else "it is missing"


def text_number(value: Any) -> str:
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
