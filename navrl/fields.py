"""What a field of the schema takes, in words for messages and in types for reading text."""

from __future__ import annotations

import math
import types
import typing
from typing import Annotated, Any, Literal

import annotated_types
from pydantic.fields import FieldInfo

from navrl import yaml_io
from navrl.faults import show

MAX_INT = 2**63 - 1


def _bare(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind


def inner(info: FieldInfo) -> tuple[Any, bool]:
    """The field's type without ``| None`` and validators, and whether None is allowed."""
    if typing.get_origin(info.annotation) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(info.annotation) if kind is not type(None)]
        assert len(kinds) == 1, "a field is one type, or that type or null"
        return _bare(kinds[0]), True
    return _bare(info.annotation), False


def is_list(info: FieldInfo) -> bool:
    """Whether the field takes a list (kept as a tuple)."""
    return typing.get_origin(inner(info)[0]) is tuple


def is_bool(info: FieldInfo) -> bool:
    return inner(info)[0] is bool


def choices(info: FieldInfo) -> tuple[str, ...]:
    """The words that a field, or an item of a list field, takes; empty where it takes other things."""
    kind = inner(info)[0]
    if typing.get_origin(kind) is tuple:
        kind = typing.get_args(kind)[0]
    return typing.get_args(kind) if typing.get_origin(kind) is Literal else ()


def _number(value: Any) -> str:
    if value == MAX_INT:
        return "2^63-1"
    return str(int(value)) if value == int(value) else str(value)


def _bounds(info: FieldInfo) -> str:
    low = high = ""
    for limit in info.metadata:
        if isinstance(limit, annotated_types.Ge):
            low = f">= {_number(limit.ge)}"
        elif isinstance(limit, annotated_types.Gt):
            low = f"> {_number(limit.gt)}"
        elif isinstance(limit, annotated_types.Le):
            high = f"<= {_number(limit.le)}"
        elif isinstance(limit, annotated_types.Lt):
            high = f"< {_number(limit.lt)}"
    return " and ".join(part for part in (low, high) if part)


def allowed(info: FieldInfo) -> str:
    """What the field takes, in words: ``a whole number >= 1 and <= 1024, or null``."""
    kind, nullable = inner(info)
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    if "allowed" in extra:
        text = str(extra["allowed"])
    elif is_list(info):
        text = "a list of " + (", ".join(choices(info)) or "words")
    elif choices(info):
        text = "one of " + ", ".join(choices(info))
    else:
        text = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind]
        bounds = _bounds(info)
        text += f" {bounds}" if bounds else ""
    return f"{text}, or null" if nullable else text


def hint(value: Any, info: FieldInfo) -> str:
    """How to mend a value of the wrong type, where there is a usual cause; else nothing."""
    kind, nullable = inner(info)
    if isinstance(value, str):
        if any("\udc80" <= char <= "\udcff" for char in value):
            return "; its characters cannot be read in this shell's locale: set LC_ALL=C.UTF-8"
        if value in ("None", "none") and nullable:
            return "; nothing is written null"
        if kind is bool and value.lower() in ("yes", "on", "y", "1"):
            return "; write true"
        if kind is bool and value.lower() in ("no", "off", "n", "0"):
            return "; write false"
        if kind in (int, float):
            try:
                if isinstance(yaml_io.scalar(value.replace("_", "")), (int, float)):
                    return f"; write {value.replace('_', '')}, without quotes or underscores"
            except ValueError:
                pass
    if kind is int and isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) < 1e18:
        return f"; write {int(value)}"
    if kind is str and isinstance(value, (int, float)):
        return '; write text that looks like this in quotes'
    if isinstance(value, list) and not is_list(info):
        return "; one value is needed, not a list"
    return ""


def from_words(words: list[str], info: FieldInfo) -> Any:
    """A value given as words on the command line (or in an environment variable), read by the field's type.

    The result still has to pass the schema. Raises ValueError with a reason where words cannot be read at all.
    """
    kind, nullable = inner(info)
    if is_list(info):
        if len(words) == 1 and words[0].strip() in ("null", "None", "~") and nullable:
            return None
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        if extra.get("whole_words") and words != ["[]"] and not words[0].startswith(('["', "['")):
            return list(words)
        return _list(words, as_text=typing.get_args(kind)[0] is not int)
    if len(words) > 1:
        raise ValueError(f"takes one value, not {len(words)}: {show(' '.join(words))}")
    text = words[0]
    if nullable and text in ("", "null", "None", "none", "~"):
        return None
    if kind is bool and text in ("0", "1"):
        return text == "1"
    if kind is str:
        return text
    value = yaml_io.scalar(text)
    if choices(info):
        return value if isinstance(value, bool) else text
    return value


def _list(words: list[str], as_text: bool) -> list[Any]:
    """``["a", "b"]``, ``a,b`` and ``a b``: three ways in which shells and sweep agents pass a list."""
    joined = " ".join(words).strip()
    if joined.startswith("["):
        return yaml_io.flow_list(joined)
    items = [part.strip() for word in words for part in word.split(",") if part.strip()]
    return list(items) if as_text else [yaml_io.scalar(item) for item in items]
