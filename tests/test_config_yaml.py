"""Strict YAML: every spelling of a number, every way for a file to be wrong, and values that survive a round trip."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import yaml

from navrl import yaml_io
from navrl.config import Config
from navrl.config_sources import load
from navrl.faults import ConfigError


def load_text(tmp_path: Path, text: str | bytes, *argv: str) -> Config:
    file = tmp_path / "c.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(["--config", str(file), *argv], {}).config


def message(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(ConfigError) as error:
        load_text(tmp_path, text)
    return str(error.value)


@pytest.mark.parametrize("text", [
    "5e-4", "1e-5", "1E-2", ".99", "1.", "+1.5", "-0.5", "1e5", "1.5e+3", "-.5E-3", "0.5", "0e3", "6.02e23",
])  # fmt: skip
def test_floats_are_read_as_python_reads_them(text: str) -> None:
    value = yaml_io.scalar(text)
    assert type(value) is float and value == float(text)


@pytest.mark.parametrize("text", ["0", "1", "-7", "+12", "123456789012345678901234567890"])
def test_whole_numbers_are_read_as_python_reads_them(text: str) -> None:
    value = yaml_io.scalar(text)
    assert type(value) is int and value == int(text)


@pytest.mark.parametrize("text", [
    "yes", "no", "on", "off", "y", "n", "tRue", "nULL", "1:30", "190:20:30", "2024-01-01", "0x1F", "0o17", "0b1",
    "1_000", "1e", "e5", ".", "-", "+", "1.5.2", "--1", "inf", "nan", "1,5", "١٢", "<<", "=",
])  # fmt: skip
def test_everything_else_stays_text(text: str) -> None:
    assert yaml_io.scalar(text) == text


def test_the_words_of_the_core_schema() -> None:
    for words, value in (("true True TRUE", True), ("false False FALSE", False), ("null Null NULL ~", None)):
        assert all(yaml_io.scalar(word) is value for word in words.split())
    assert yaml_io.scalar("") is None
    assert yaml_io.scalar(".inf") == math.inf and yaml_io.scalar("-.Inf") == -math.inf
    assert math.isnan(yaml_io.scalar(".NaN"))


@pytest.mark.parametrize("text", ["010", "-007", "00", "00.5", "01e3", "+08"])
def test_a_leading_zero_is_never_guessed(text: str) -> None:
    with pytest.raises(ValueError, match="leading zero"):
        yaml_io.scalar(text)


def test_a_number_of_absurd_length_is_refused() -> None:
    with pytest.raises(ValueError, match="5000 digits"):
        yaml_io.scalar("9" * 5000)


def test_yes_and_no_are_told_how_to_be_written(tmp_path: Path) -> None:
    text = message(tmp_path, "log_wandb: yes\nshare_policy: off\nvalue_clip: 1\n")
    assert "'yes' is not allowed; it must be true or false; write true" in text
    assert "'off' is not allowed; it must be true or false; write false" in text
    assert "value_clip" in text


@pytest.mark.parametrize(("line", "advice"), [
    ("target_kl: None", "nothing is written null"),
    ("lr: '5e-4'", "write 5e-4, without quotes"),
    ("total_env_steps: 2_000_000", "write 2000000, without quotes or underscores"),
    ("total_env_steps: 2e6", "write 2000000"),
    ("wandb_name: 123", "in quotes"),
    ("seed: [1]", "one value is needed"),
    ("network: mpl", "nearest to 'mpl': mlp"),
    ("wandb_tags: exp1", "a list of words"),
])  # fmt: skip
def test_usual_mistakes_are_told_how_to_be_mended(tmp_path: Path, line: str, advice: str) -> None:
    assert advice in message(tmp_path, line + "\n")


@pytest.mark.parametrize(("text", "cause"), [
    ("seed: 1\nlr: &x 1\n", "line 2: anchors and aliases"),
    ("seed: 1\nlr: *x\n", "line 2: anchors and aliases"),
    ("seed: !!int '1'\n", "line 1: tags"),
    ("!x seed: 1\n", "line 1: tags"),
    ("!!python/object:os.system {}\n", "line 1: tags"),
    ("- 1\n", "line 1: the file holds a list"),
    ("just words\n", "line 1: the file holds a single value"),
    ("'null'\n", "line 1: the file holds a single value"),
    ("seed: 1\n---\nseed: 2\n", "line 2"),
    ("seed: [1\n", "line 2"),
    ("seed: 'x\n", "line"),
    ("seed: 1\n lr: 1\n", "line 2"),
    ("seed: @x\n", "line 1"),
    ("seed:\n\t1\n", "line 2: the line begins with a tab"),
    ("seed: 1\n? [a]\n: 1\n", "line 2: a key must be a word"),
    ("seed: 1\nx: \x07\n", "line 2: character #x0007"),
    ("seed: 1\n\x00\n", "line 2: character #x0000"),
    ("a: " + "[" * 5000, "nested this deep"),
    ("a: " + "{a: " * 5000, "nested this deep"),
    ("- " * 5000, "nested this deep"),
    (b"\xff\xfes\x00e\x00", "line 1: byte 0xff is not UTF-8"),
    (b"seed: 1\ngroup: \xed\xa0\x80\n", "line 2"),
    ("<<: {seed: 1}\n", "not nested"),
    ("null: 1\n", "no such key"),
    ("1: 1\n", "no such key"),
    ("\u202egroup: 1\n", "no such key"),
    ("x" * 2**21, "larger than"),
])  # fmt: skip
def test_a_wrong_file_is_one_line_with_place_and_cause(tmp_path: Path, text: str | bytes, cause: str) -> None:
    found = message(tmp_path, text)
    assert cause in found
    assert len(found.splitlines()) == 2 and len(found) < 1000


def test_a_wrong_path_is_one_line_with_the_cause(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path, cause in (
        (tmp_path / "missing.yaml", "there is no such file"),
        (tmp_path, "this is a directory"),
        (loop, "cannot be read"),
        (tmp_path / ("x" * 300), "cannot be read"),
        ("/dev/zero", "larger than"),
        ("a\0b", "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=cause):
            load(["--config", str(path)], {})


def test_an_unreadable_file_is_one_line_with_the_cause(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.touch(mode=0)
    user = os.geteuid()
    if user == 0:  # root reads every file, so be somebody else
        os.seteuid(65534)
    try:
        with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
            load(["--config", str(file)], {})
    finally:
        os.seteuid(user)


def test_duplicates_are_found_under_any_quoting(tmp_path: Path) -> None:
    assert "on lines 1 and 3" in message(tmp_path, "lr: 1\nseed: 1\n'lr': 1\n")


def test_a_flood_of_faults_is_cut_short(tmp_path: Path) -> None:
    found = message(tmp_path, "".join(f"key{i}: {i}\n" for i in range(2000)))
    assert "1950 more unknown keys" in found and len(found.splitlines()) < 60
    found = message(tmp_path, "lr: 1\n" * 1000)
    assert "and 899 more" in found and len(found.splitlines()) == 102


def test_line_ends_byte_order_mark_and_flow_style_make_no_difference(tmp_path: Path) -> None:
    expected = Config(seed=4, lr=1e-3)
    for text in (
        "seed: 4\nlr: 1e-3\n",
        "\ufeffseed: 4\r\nlr: 1e-3\r\n",
        "{seed: 4, lr: 1e-3}",
        "---\nseed: 4\nlr: 1e-3\n...\n",
    ):
        assert load_text(tmp_path, text) == expected


@pytest.mark.parametrize("value", [
    None, True, 0, -5, 2**62, 0.0, -0.5, 1e-5, 5e-324, 1.7976931348623157e308, 1e22, 123456.789, "", " ", "a",
    "yes", "null",
    "~", "True", "010", "1e5", "1:30", "a: b", "#x", "a #b", "'", '"', "\\", "\n", "a\nb\n", "\t", "\x85", "\u2028",
    "\ufeff", "🚀", "对比", "e\u0301", "- x", "[x]", "{x}", "&x", "*x", "!x", "%x", "@x", "`x", "x" * 500,
    "a " * 200,
    [], ["a", "b, c"], [1, 2],
])  # fmt: skip
def test_what_is_emitted_is_read_back_here_and_by_plain_yaml(value: object) -> None:
    text = f"group: {yaml_io.emit(value)}\n"
    ours = yaml_io.parse(text, "x")
    assert ours.faults == [] and ours.values == {"group": value}
    assert type(ours.values["group"]) is type(value)
    assert yaml.safe_load(text) == {"group": value}
