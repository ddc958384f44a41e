"""Flat, strict YAML: numbers as people write them, nothing executed, nothing dropped in silence.

Numbers, booleans and null follow the core schema of YAML 1.2 (specification 1.2.2, section 10.3.2), without its
octal and hexadecimal forms. So ``5e-4`` is a number, which plain YAML 1.1 reads as text; ``yes``, ``1:30`` and
``2024-01-01`` are text. Anchors, aliases and tags are refused: a flat mapping needs none of them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from navrl.faults import ConfigError, Fault, show, show_key
from navrl.redaction import is_secret_key

MAX_BYTES = 1 << 20  # far beyond any configuration; bounds what a wrong path (a checkpoint, /dev/zero) can cost
_MAX_DEPTH = 4

_NULL = re.compile(r"(?:null|Null|NULL|~|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_INF = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z")
_NAN = re.compile(r"\.(?:nan|NaN|NAN)\Z")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")


def scalar(text: str) -> Any:
    """Read one unquoted YAML scalar: None, bool, int, float or, where it is none of these, the text itself.

    Raises ValueError for a number with a leading zero (octal to some readers, decimal to others) and for a whole
    number too long to convert.
    """
    if _NULL.match(text):
        return None
    if _BOOL.match(text):
        return text.lower() == "true"
    if _FLOAT.match(text):  # every _INT is a _FLOAT too
        if _LEADING_ZERO.match(text):
            shown = text if len(text) <= 40 else text[:37] + "..."
            raise ValueError(
                f"{shown} has a leading zero, which some YAML readers take as octal; "
                f"write the number without it, or text in quotes"
            )
        if not _INT.match(text):
            return float(text)
        if len(text) > 1000:
            raise ValueError(f"a whole number of {len(text)} digits is beyond any range")
        return int(text)
    if _INF.match(text):
        return -math.inf if text.startswith("-") else math.inf
    if _NAN.match(text):
        return math.nan
    return text


@dataclass
class Document:
    """What a file says: ``values`` and ``lines`` (1-based) by key, and what is wrong with the file itself."""

    name: str
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    empty: bool = False

    def where(self, key: str) -> str:
        return f"{self.name}, line {self.lines[key]}" if key in self.lines else self.name


class _Refused(yaml.MarkedYAMLError):
    """Valid YAML that a configuration has no use for."""


class _StrictLoader(yaml.SafeLoader):
    """Composes nodes only. Tags and aliases never get as far as an object being made."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _Refused(problem="anchors and aliases (& and *) are refused; write the value out",
                           problem_mark=event.start_mark)
        if getattr(event, "tag", None) is not None:
            raise _Refused(problem="tags (!...) are refused; nothing in a configuration is executed",
                           problem_mark=event.start_mark)
        if self._depth >= _MAX_DEPTH:
            raise _Refused(problem="values nested this deep are refused; a configuration is one flat mapping",
                           problem_mark=event.start_mark)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


def _plain(node: yaml.Node) -> Any:
    """A composed node as plain Python. Raises ValueError where ``scalar`` does."""
    if isinstance(node, yaml.ScalarNode):
        return scalar(node.value) if node.style is None else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item) for item in node.value]
    return {str(_plain(key)): _plain(value) for key, value in node.value}


def _compose(text: str, name: str) -> yaml.Node | None:
    """The one document of ``text`` as a node. Raises ConfigError with line and cause."""
    for number, line in enumerate(text.split("\n"), 1):
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        if "\t" in indent and line.strip() and not line.lstrip().startswith("#"):
            raise ConfigError([Fault("", "the line begins with a tab; indent with spaces, or not at all",
                                     f"{name}, line {number}")])
    try:
        return _StrictLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}, line {mark.line + 1}" if mark else name
        cause = error.problem or error.context or "not valid YAML"
        raise ConfigError([Fault("", cause, place)]) from None
    except yaml.reader.ReaderError as error:
        # position counts from the reader's current buffer; the character itself is unambiguous
        at = text.find(chr(error.character)) if isinstance(error.character, int) else -1
        number = text.count("\n", 0, max(at, 0)) + 1
        raise ConfigError([Fault("", f"character #x{error.character:04x} is not allowed in YAML",
                                 f"{name}, line {number}")]) from None


def parse(text: str, name: str) -> Document:
    """Read the text of one flat mapping. ``name`` is how messages call it.

    Duplicate keys, keys that are not text and malformed numbers are collected in ``faults``; what leaves no mapping
    to go on with (syntax, alias, tag, a list at the top) raises ConfigError.
    """
    document = Document(name)
    root = _compose(text, name)
    if root is None or (isinstance(root, yaml.ScalarNode) and root.style is None and _NULL.match(root.value)):
        document.empty = True
        return document
    if not isinstance(root, yaml.MappingNode):
        kind = "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
        raise ConfigError([Fault("", f"the file holds {kind}; it must be a mapping, one `key: value` a line",
                                 f"{name}, line {root.start_mark.line + 1}")])
    for key_node, value_node in root.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            document.faults.append(Fault("", "a key must be a word, not a list or mapping", f"{name}, line {line}"))
            continue
        key = key_node.value
        if key in document.lines:
            twice = f"given twice, on lines {document.lines[key]} and {line}; keep one"
            document.faults.append(Fault(show_key(key), twice, name))
            continue
        document.lines[key] = line
        if is_secret_key(key):
            document.values[key] = None  # the value goes no further than this
            continue
        try:
            document.values[key] = _plain(value_node)
        except ValueError as error:
            document.faults.append(Fault(key, str(error), f"{name}, line {line}"))
    return document


def read(path: str | Path) -> Document:
    """Read a configuration file (UTF-8, with or without a byte order mark; any line ends).

    Raises ConfigError naming file, line where there is one, and cause.
    """
    name = str(path)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError([Fault("", "there is no such file", name)]) from None
    except IsADirectoryError:
        raise ConfigError([Fault("", "this is a directory; name a .yaml file in it", name)]) from None
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise ConfigError([Fault("", f"cannot be read: {cause}", repr(name) if "\0" in name else name)]) from None
    if len(data) > MAX_BYTES:
        raise ConfigError([Fault("", f"larger than {MAX_BYTES} bytes; this is no configuration file", name)])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([Fault("", f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8",
                                 f"{name}, line {line}")]) from None
    return parse(text, name)


def flow_list(text: str) -> list[Any]:
    """Read ``[a, b]``. Raises ValueError where ``text`` is not one list in brackets."""
    try:
        root = _compose(text, "the list")
    except ConfigError as error:
        raise ValueError(f"{show(text)} is not a list in brackets: {error.faults[0].message}") from None
    if not isinstance(root, yaml.SequenceNode):
        raise ValueError(f"{show(text)} is not a list in brackets")
    return [_plain(item) for item in root.value]


_BARE = re.compile(r"[A-Za-z_][\w./+-]*\Z", re.ASCII)
_YAML_1_1_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def emit(value: Any) -> str:
    """One value as YAML text that this module reads back as the same value, and plain YAML 1.1 does too."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text = repr(value)
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(emit(item) for item in value) + "]"
    if _BARE.match(value) and value.lower() not in _YAML_1_1_WORDS:
        return value
    return yaml.dump(value, default_style='"', allow_unicode=True, width=math.inf, Dumper=yaml.SafeDumper).rstrip("\n")
