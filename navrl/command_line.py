"""The command line, generated from the schema: ``--key value`` or ``--key=value`` for every key, and the help text."""

from __future__ import annotations

import argparse
import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from navrl import fields, yaml_io
from navrl.faults import Fault, nearest, secret_fault, show, show_key
from navrl.redaction import is_secret_key, redact_typed
from navrl.tracking.fetch import FORMS

WHERE = "command line"
SPECIAL = {
    "config": ("FILE", "YAML file to start from; without it every key takes its default."),
    "resume": ("RUN_DIR", "Directory of a run to continue; where that is gone, its checkpoint in a tracker: "
                          f"{', '.join(form for forms in FORMS.values() for form in forms)}."),
}


@dataclass
class Flags:
    """What the command line says. ``values`` still have to pass the schema; ``faults`` could not even be read."""

    config: str | None = None
    resume: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


def _parser(model: type[BaseModel]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="main.py",
        usage="python main.py [--config FILE] [--key value | --key=value] ...",
        description="Run one experiment. A key on the command line wins over the environment (tracker settings only), "
        "which wins over the YAML file, which wins over the default.",
        epilog="A list is written a,b or a b or '[\"a\", \"b\"]'; nothing is written null; a switch is also turned off "
        "by --no_key.",
        add_help=False,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=8, width=110),
    )
    group = parser.add_argument_group("Where to start")
    group.add_argument("--help", action="store_true", help="Show this text and end.")
    for name, (metavar, text) in SPECIAL.items():
        group.add_argument(f"--{name}", nargs="*", action="append", metavar=metavar, help=text)
    groups: dict[str, Any] = {}
    for key, info in model.model_fields.items():
        section = str(info.json_schema_extra["section"])  # type: ignore[index]
        if section not in groups:
            groups[section] = parser.add_argument_group(section)
        default = yaml_io.emit(info.get_default())
        text = f"{info.description} [{fields.allowed(info)}; default: {default}]"
        groups[section].add_argument(f"--{key}", nargs="*", action="append", metavar="VALUE",
                                     help=text.replace("%", "%%"))
        if fields.is_bool(info):
            groups[section].add_argument(f"--no_{key}", nargs="*", action="append", help=argparse.SUPPRESS)
    return parser


def help_text(model: type[BaseModel]) -> str:
    """Every key with type, default and meaning, by section."""
    # argparse shows how many words it would take; how many a key takes is said in its text
    return re.sub(r"\[(\w+) \.\.\.\]", r"\1", _parser(model).format_help())


def _join_negative_numbers(argv: Sequence[str]) -> list[str]:
    """``--lr -1e-3`` as ``--lr=-1e-3``, which argparse would else take for a flag."""
    words: list[str] = []
    for word in argv:
        previous = words[-1] if words else ""
        if word.startswith("-") and previous.startswith("--") and "=" not in previous:
            try:
                number = not isinstance(yaml_io.scalar(word), str)
            except ValueError:
                number = True
            if number:
                words[-1] = f"{previous}={word}"
                continue
        words.append(word)
    return words


def parse(argv: Sequence[str], model: type[BaseModel]) -> Flags:
    """Read ``argv`` by the fields of ``model``. Never raises for what a person typed: see ``Flags.faults``."""
    flags = Flags()
    known, rest = _parser(model).parse_known_args(_join_negative_numbers(argv))
    given = {name: occurrences for name, occurrences in vars(known).items() if occurrences}
    for name, info in model.model_fields.items():
        _read_key(flags, name, info, given.get(name, []), given.get(f"no_{name}", []))
    for name in SPECIAL:
        occurrences = given.get(name, [])
        if len(occurrences) > 1:
            flags.faults.append(Fault(name, "given twice; keep one", WHERE))
        elif occurrences and (len(occurrences[0]) != 1 or not occurrences[0][0]):
            flags.faults.append(Fault(name, f"takes one path, not {len(occurrences[0])}", WHERE))
        elif occurrences:
            setattr(flags, name, occurrences[0][0])
    flags.faults += _unknown_words(rest, model)
    return flags


def _read_key(flags: Flags, name: str, info: Any, on: list[list[str]], off: list[list[str]]) -> None:
    if len(on) + len(off) > 1:
        flags.faults.append(Fault(name, "given twice; keep one", WHERE))
        return
    if off:
        if off[0]:
            flags.faults.append(Fault(name, f"--no_{name} takes no value", WHERE))
        else:
            flags.values[name] = False
        return
    if not on:
        return
    words = on[0]
    if not words:
        if fields.is_bool(info):
            flags.values[name] = True
        else:
            flags.faults.append(Fault(name, f"needs a value: {fields.allowed(info)}", WHERE))
        return
    try:
        flags.values[name] = fields.from_words(words, info)
    except ValueError as error:
        flags.faults.append(Fault(name, redact_typed(str(error)), WHERE))


def _unknown_words(rest: Sequence[str], model: type[BaseModel]) -> list[Fault]:
    """A fault for each flag that is none, with the words after it, and for each word that belongs to no flag."""
    faults: list[Fault] = []
    names = [*model.model_fields, *SPECIAL, "help"]
    secret_given = any(word.startswith("--") and is_secret_key(word) for word in rest)
    taken = False  # whether the words that follow belong to an unknown flag
    for word in rest:
        if word.startswith("--") and len(word) > 2:
            name, joined, _ = word[2:].partition("=")
            taken = not joined
            if is_secret_key(name):
                faults.append(secret_fault(show_key(name), WHERE))
            else:
                faults.append(Fault(f"--{show_key(name)}", f"there is no such flag; nearest: --{nearest(name, names)}",
                                    WHERE))
        elif not taken:
            text = "a word" if secret_given else show(word)
            hint = "; a configuration file is given as --config FILE" if word.endswith((".yaml", ".yml")) else ""
            faults.append(Fault("", f"{text} belongs to no flag{hint}", WHERE))
    return faults


def without(words: Sequence[str], keys: Container[str]) -> list[str]:
    """``words`` of main.py without the flags of these keys and their values."""
    kept, taken = [], False
    for word in words:
        if word.startswith("--"):
            taken = word[2:].partition("=")[0] in keys
        if not taken:
            kept.append(word)
    return kept
