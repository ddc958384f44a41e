"""Whatever is typed: a Config that survives its own file, or faults of one line each; never another exception."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from navrl import fields, yaml_io
from navrl.config import KEYS, Config, dump
from navrl.config_sources import Loaded, load
from navrl.faults import ConfigError

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check(argv: list[str]) -> Loaded | None:
    """Load; a refusal must be well-formed, and what is accepted must survive dump and load."""
    try:
        loaded = load(argv, {})
    except ConfigError as error:
        assert error.faults
        for fault in error.faults:
            assert "\n" not in str(fault) and fault.message and len(str(fault)) < 2000
        return None
    except SystemExit as end:
        assert end.code == 0 and {"--help", "-h"} & set(argv)
        return None
    again = load_text(dump(loaded.config))
    if not any("holds a password" in line for line in dump(loaded.config).splitlines()):
        assert again.config == loaded.config
    return loaded


def load_text(text: str | bytes) -> Loaded:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "c.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(["--config", str(file)], {})


def check_text(text: str | bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "c.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        check(["--config", str(file)])


NUMBERS = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from(["5e-4", "1E-2", ".99", "010", "0x1F", "1_0", "-.5", "9" * 400]),
)
WORDS = st.one_of(
    st.text(max_size=12),
    NUMBERS.map(str),
    st.sampled_from(["null", "None", "true", "False", "yes", "~", "", "[", "]", "[]", "{}", "a,b", "console",
                     "[console, wandb]",
                     "-x", "--", "-", "=", "*a", "&a x", "!!int 1", "'", '"', "# x", "- x", "a: b", "\t", "\0", "%", "mlp"]),
)  # fmt: skip
KEY_LIKE = st.one_of(st.sampled_from(KEYS), st.sampled_from(KEYS).map(lambda key: key[:-1]), st.text(max_size=8))
LINES = st.one_of(
    st.tuples(KEY_LIKE, st.sampled_from([": ", ":", " : ", ":\n  ", ": [", ": {"]), WORDS).map("".join),
    st.text(max_size=20),
    st.sampled_from(["---", "...", "# comment", "%YAML 1.1", "? x", "- a", "\tx: 1", "<<: *a", "{", "}"]),
)  # fmt: skip


@QUICK
@given(st.lists(LINES, max_size=6).map("\n".join))
def test_any_text_of_lines_is_a_config_or_faults(text: str) -> None:
    check_text(text)


@QUICK
@given(st.binary(max_size=200))
def test_any_bytes_are_a_config_or_faults(data: bytes) -> None:
    check_text(data)


@QUICK
@given(st.lists(st.one_of(
    WORDS,
    st.sampled_from(KEYS).map(lambda key: f"--{key}"),
    st.tuples(KEY_LIKE, WORDS).map(lambda pair: f"--{pair[0]}={pair[1]}"),
    st.sampled_from(["--no_log_wandb", "--config", "--resume", "--help", "-h", "--no_lr"]),
), max_size=6))  # fmt: skip
def test_any_words_are_a_config_or_faults(argv: list[str]) -> None:
    check(argv)


@QUICK
@given(st.dictionaries(st.sampled_from(KEYS), WORDS, max_size=5))
def test_file_and_flag_agree_on_numbers_and_switches(values: dict[str, str]) -> None:
    """What a file accepts as a plain scalar, the command line reads as the same value."""
    for key, word in values.items():
        info = Config.model_fields[key]
        if fields.is_list(info) or fields.inner(info)[0] is str:
            continue
        try:
            value = yaml_io.scalar(word)
            expected = getattr(Config(**{key: value}), key)
        except (ValueError, ValidationError):
            continue
        assert getattr(load([f"--{key}={word}"], {}).config, key) == expected


def value_of(key: str) -> st.SearchStrategy[Any]:
    """Values that the field takes, drawn from its own declaration."""
    info = Config.model_fields[key]
    kind, nullable = fields.inner(info)
    names = st.text(min_size=1, max_size=30).filter(lambda text: bool(text.strip()) and "\0" not in text)
    if key == "device":
        strategy: st.SearchStrategy[Any] = st.sampled_from(["cpu", "cuda", "cuda:0", "cuda:12"])
    elif key == "wandb_proxy":
        strategy = st.sampled_from(["http://host:3128", "socks5://10.0.0.1:1"])
    elif key == "mlflow_tracking_uri":
        strategy = st.sampled_from(["sqlite:///mlflow.db", "http://localhost:5000"])
    elif key == "named_keys":
        strategy = st.lists(st.sampled_from(["lr", "gamma", "network"]), unique=True)
    elif key == "log_filter":
        strategy = st.lists(names.map(re.escape), unique=True, max_size=4)
    elif key == "curriculum_advance_at":
        strategy = st.lists(st.integers(1, 2**70), min_size=1, unique=True).map(sorted)
    elif fields.is_list(info):
        items = st.sampled_from(fields.choices(info)) if fields.choices(info) else names
        strategy = st.lists(items, unique=True, max_size=4)
    elif fields.choices(info):
        strategy = st.sampled_from(fields.choices(info))
    elif kind is bool:
        strategy = st.booleans()
    elif kind is str:
        strategy = names
    elif kind is int:
        strategy = st.integers(0, 2**63 - 1) | st.integers(0, 100)
    else:
        strategy = st.floats(0, 1) | st.integers(0, 3)
    return st.none() | strategy if nullable else strategy


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.fixed_dictionaries({}, optional={key: value_of(key) for key in KEYS}))
def test_every_config_survives_its_own_file(values: dict[str, Any]) -> None:
    for key in list(values):
        try:
            Config.model_validate({key: values[key]}, context={"fields_only": True})
        except ValidationError:
            del values[key]
    try:
        config = Config(**values)
    except ValidationError:  # keys that need each other: another test's matter
        clash = ("curriculum_advance_at", "trace", "privacy", "chunk_length", "layer_norm", "hidden_size",
                 "critic_hidden_size", "processes")  # fmt: skip
        config = Config(**{key: value for key, value in values.items() if key not in clash})
    text = dump(config)
    again = load_text(text).config
    assert again == config
    assert dump(again) == text
