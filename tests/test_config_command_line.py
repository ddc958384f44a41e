"""Flags: every key, both spellings, lists and switches as people and sweep agents write them, no silent typo."""

from __future__ import annotations

import pytest

from navrl.config import KEYS, Config
from navrl.config_sources import load
from navrl.faults import ConfigError


def flags(*argv: str) -> Config:
    return load(argv, {}).config


def refused(*argv: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as error:
        load(argv, {})
    return {fault.key: fault.message for fault in error.value.faults}


def test_both_spellings_of_a_flag() -> None:
    expected = Config(lr=3e-4, gamma=0.95, mini_batch_size=512)
    named = {"named_keys"}
    for argv in (
        ("--lr=3e-4", "--gamma=0.95", "--mini_batch_size=512"),
        ("--lr", "3e-4", "--gamma", "0.95", "--mini_batch_size", "512"),
    ):
        assert flags(*argv).model_dump(exclude=named) == expected.model_dump(exclude=named)


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_a_flag(key: str) -> None:
    assert "there is no such flag" not in str(refused(f"--{key}=\0", "--lrr=1").get(key))
    assert key in refused(f"--{key}=\0", f"--{key}=\0")


@pytest.mark.parametrize("argv", [
    ("--logger", '["console","wandb"]'),
    ("--logger", "console,wandb"),
    ("--logger", "console", "wandb"),
    ("--logger=console,wandb",),
    ("--logger", "console,", "wandb"),
    ("--logger", "[console, wandb]"),
    ("--logger", "[console,", "wandb]"),
    ("--logger=['console', 'wandb']",),
])  # fmt: skip
def test_a_list_is_taken_in_each_of_its_forms(argv: tuple[str, ...]) -> None:
    config = flags(*argv)
    assert config.logger == config.trackers == ("console", "wandb")


def test_an_empty_list_is_a_list() -> None:
    assert flags("--logger", "[]").logger == flags("--logger=").logger == ()


def test_items_of_a_list_of_words_stay_words() -> None:
    assert flags("--wandb_tags", "1e3", "010,yes").wandb_tags == ("1e3", "010", "yes")
    assert flags("--wandb_tags", '["a, b", "c"]').wandb_tags == ("a, b", "c")


@pytest.mark.parametrize("argv", [
    ("--log_wandb", "False"), ("--log_wandb=false",), ("--no_log_wandb",), ("--log_wandb", "0"), ("--log_wandb=FALSE",),
])  # fmt: skip
def test_a_switch_is_off_in_each_of_its_forms(argv: tuple[str, ...]) -> None:
    assert flags(*argv).trackers == ("console",)
    assert flags("--logger", "console,wandb", *argv).trackers == ("console",)


@pytest.mark.parametrize("argv", [
    ("--log_wandb",), ("--log_wandb", "True"), ("--log_wandb=true",), ("--log_wandb", "1"),
    ("--log_wandb", "--seed", "1"),
])  # fmt: skip
def test_a_switch_is_on_in_each_of_its_forms(argv: tuple[str, ...]) -> None:
    assert "wandb" in flags("--logger", "console", *argv).trackers


def test_a_switch_takes_nothing_else() -> None:
    assert "true or false; write true" in refused("--log_wandb", "yes")["log_wandb"]
    assert "takes no value" in refused("--no_log_wandb", "true")["log_wandb"]
    assert "there is no such flag" in refused("--no_lr")["--no_lr"]


@pytest.mark.parametrize("text", ["null", "None", "none", "~", ""])
def test_nothing_has_several_spellings(text: str) -> None:
    config = flags(f"--mini_batch_size={text}", f"--wandb_group={text}", f"--num_agents={text}")
    assert (config.mini_batch_size, config.wandb_group, config.num_agents) == (None, None, None)
    assert flags("--curriculum_advance_at", "null").curriculum_advance_at is None


def test_text_stays_text_and_numbers_are_numbers() -> None:
    config = flags("--wandb_name", "123", "--wandb_group", "true", "--seed", "7", "--gamma", "1", "--huber_delta=1e1")
    assert (config.wandb_name, config.wandb_group, config.seed) == ("123", "true", 7)
    assert (config.gamma, config.huber_delta) == (1.0, 10.0)


def test_words_that_are_switches_too() -> None:
    assert flags("--value_norm", "true").value_norm == "running"
    assert flags("--value_norm", "False").value_norm == "none"
    assert flags("--value_norm", "popart").value_norm == "popart"
    assert "one of none, running, popart" in refused("--value_norm", "yes")["value_norm"]


@pytest.mark.parametrize("argv", [
    ("--lr", "-1e-3"), ("--lr=-1e-3",), ("--lr", "-.5"), ("--lr", "-.inf"), ("--lr", "-3"),
])  # fmt: skip
def test_a_negative_number_is_a_value(argv: tuple[str, ...]) -> None:
    faults = refused(*argv)
    assert list(faults) == ["lr"] and "is not allowed" in faults["lr"]


def test_a_stage_list() -> None:
    for argv in (("5", "9"), ("5,9",), ("[5, 9]",)):
        assert flags("--curriculum", "--curriculum_advance_at", *argv).curriculum_advance_at == (5, 9)
    assert flags("--curriculum", "--curriculum_advance_at=5").curriculum_advance_at == (5,)
    assert "increasing" in refused("--curriculum", "--curriculum_advance_at", "9,5")["curriculum_advance_at"]
    assert "leading zero" in refused("--curriculum_advance_at", "05")["curriculum_advance_at"]


def test_no_flag_is_abbreviated_or_guessed() -> None:
    faults = refused("--see", "3", "--lrr=3", "--log-wandb", "--LR", "1", "--learning_rate", "1")
    assert {key: message.rsplit(": ", 1)[1] for key, message in faults.items()} == {
        "--see": "--seed", "--lrr": "--lr", "--log-wandb": "--log_wandb", "--LR": "--lr", "--learning_rate": "--lr",
    }  # fmt: skip


def test_the_same_key_twice_is_refused() -> None:
    assert "given twice" in refused("--lr", "1e-3", "--lr", "1e-3")["lr"]
    assert "given twice" in refused("--log_wandb", "--no_log_wandb")["log_wandb"]
    assert "given twice" in refused("--config", "a", "--config", "b")["config"]


def test_a_flag_without_its_value_says_what_it_takes() -> None:
    assert "needs a value: a number > 0" in refused("--lr")["lr"]
    assert "needs a value: a number > 0" in refused("--lr", "--seed", "1")["lr"]
    assert "takes one value, not 2" in refused("--lr", "1e-3", "1e-4")["lr"]
    assert "takes one path, not 0" in refused("--config")["config"]
    assert "takes one path" in refused("--config=")["config"]
    assert "takes one path, not 2" in refused("--resume", "a", "b")["resume"]


def test_a_word_that_belongs_to_no_flag_is_refused() -> None:
    assert "--config FILE" in refused("configs/train/train_mpe.yaml")[""]
    assert "'-x' belongs to no flag" in refused("--seed", "1", "-x")[""]
    assert "'stray'" in refused("--seed=1", "stray")[""]
    assert set(refused("--lrr=3", "stray")) == {"--lrr", ""}
    assert set(refused("--lrr", "3")) == {"--lrr"}


@pytest.mark.parametrize("argv", [
    ("--wandb_api_key", "hunter2"),
    ("--wandb_api_key=hunter2",),
    ("--WANDB-API-KEY", "hunter2"),
    ("--token", "hunter2", "--lr", "1e-3"),
    ("--wandb_api_key", "--lr=1e-3", "hunter2"),
    ("--wandb_key", "a", "hunter2"),
    ("--password=x", "hunter2"),
])  # fmt: skip
def test_a_secret_on_the_command_line_is_refused_and_not_printed(argv: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as error:
        load(argv, {})
    assert "hunter2" not in str(error.value)
    assert "WANDB_API_KEY" in str(error.value)
