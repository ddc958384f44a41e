"""Where values come from: precedence, the environment, the run's own file on a repeat or resume."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from navrl.config import Config, dump, kind_of
from navrl.config_sources import ENVIRONMENT, Loaded, load
from navrl.faults import ConfigError
from navrl.naming import names


def load_with(tmp_path: Path, text: str, *argv: str, environ: Mapping[str, str] | None = None) -> Loaded:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    return load(["--config", str(file), *argv], environ or {})


def make_run(tmp_path: Path, loaded: Loaded) -> Path:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(dump(loaded.config))
    return run


def test_command_line_over_environment_over_file_over_default(tmp_path: Path) -> None:
    environ = {"WANDB_PROJECT": "env", "WANDB_ENTITY": "env"}
    text = "wandb_project: file\nwandb_entity: file\nwandb_group: file\n"
    loaded = load_with(tmp_path, text, "--wandb_project", "flag", environ=environ)
    config, sources = loaded.config, loaded.sources
    assert (config.wandb_project, config.wandb_entity, config.wandb_group, config.wandb_name) == (
        "flag", "env", "file", None)  # fmt: skip
    assert [sources[key] for key in ("wandb_project", "wandb_entity", "wandb_group", "wandb_name")] == [
        "cli", "env", "yaml", "default"]  # fmt: skip
    assert loaded.resume is None


def test_the_makers_variables_are_obeyed() -> None:
    config = load([], {
        "WANDB_MODE": "offline", "WANDB_PROJECT": "p", "WANDB_ENTITY": "e", "WANDB_RUN_GROUP": "g", "WANDB_NAME": "n",
        "WANDB_TAGS": "a,b", "SWANLAB_MODE": "cloud", "MLFLOW_TRACKING_URI": "http://host:5000", "NAVRL_RUNS": "/data",
        "LR": "1", "WANDB_API_KEY": "hunter2",
    }).config  # fmt: skip
    assert (config.wandb_mode, config.wandb_project, config.wandb_entity) == ("offline", "p", "e")
    assert (config.wandb_group, config.wandb_name, config.wandb_tags) == ("g", "n", ("a", "b"))
    assert (config.swanlab_mode, config.mlflow_tracking_uri, config.run_dir) == ("online", "http://host:5000", "/data")
    assert config.science() == Config().science()
    assert "hunter2" not in dump(config)


def test_no_variable_reaches_the_science() -> None:
    assert {kind_of(key) for key in ENVIRONMENT.values()} <= {"tracker", "path"}


def test_an_empty_variable_is_unset_and_a_wrong_one_is_named() -> None:
    assert load([], {"WANDB_MODE": "", "WANDB_NAME": ""}).config == Config()
    with pytest.raises(ConfigError, match="environment variable WANDB_MODE.*'sideways' is not allowed"):
        load([], {"WANDB_MODE": "sideways"})


def test_old_words_of_wandb_are_understood() -> None:
    assert load([], {"WANDB_MODE": "dryrun"}).config.wandb_mode == "offline"


def test_the_sample_entity_is_noticed_wherever_it_stands(tmp_path: Path) -> None:
    for loaded in (
        load([], {"WANDB_ENTITY": "your_account_or_team_name"}),
        load(["--wandb_entity", "your_account_or_team_name"], {}),
    ):
        assert loaded.config.wandb_entity is None and loaded.config.wandb_mode == "offline"
        assert len(loaded.notices) == 1
    disabled = load_with(tmp_path, "wandb_entity: your_account_or_team_name\nwandb_mode: disabled\n")
    assert disabled.config.wandb_mode == "disabled"


def test_a_logger_on_the_command_line_says_that_the_file_adds_wandb(tmp_path: Path) -> None:
    loaded = load_with(tmp_path, "log_wandb: True\n", "--logger", "console")
    assert loaded.config.trackers == ("console", "wandb")
    assert any("--no_log_wandb" in notice for notice in loaded.notices)


def test_keys_that_need_each_other_are_judged_with_the_rest_where_they_can_be() -> None:
    for argv, keys in (
        (("--lr", "abc", "--curriculum_advance_at", "5"), {"lr", "curriculum_advance_at"}),
        (("--curriculum", "maybe", "--curriculum_advance_at", "5"), {"curriculum"}),
        (("--privacy", "strict", "--wandb_mode", "online", "--log_wandb", "maybe"), {"log_wandb"}),
    ):
        with pytest.raises(ConfigError) as error:
            load(argv, {})
        assert {fault.key for fault in error.value.faults} == keys


def test_a_good_flag_does_not_hide_a_bad_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line 1.*'abc' is not allowed"):
        load_with(tmp_path, "lr: abc\n", "--lr", "1e-3")


def test_settings_are_checked_with_the_task_and_reported_with_the_rest(tmp_path: Path) -> None:
    seen = []

    def check(env_id: str, env_backend: str, settings: dict[str, object]) -> list[tuple[str, str]]:
        seen.append((env_id, env_backend, settings))
        return [("local_ratio", "local_ratio: this task knows no such setting")]

    text = "env_id: simple_tag\nenv_backend: mpe2\nlocal_ratio: 0.5\nmax_cycles: 0\nlrr: 1\n"
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        load(["--config", str(tmp_path / "c.yaml")], {}, check)
    assert seen == [("simple_tag", "mpe2", {"local_ratio": 0.5})]
    faults = {fault.key: (fault.message, fault.where) for fault in error.value.faults}
    assert set(faults) == {"local_ratio", "max_cycles", "lrr"}
    message, where = faults["local_ratio"]
    assert message == "this task knows no such setting (--local_ratio null leaves it to the task)"
    assert where.endswith("c.yaml, line 3")


def test_the_task_is_not_asked_where_its_name_is_no_name(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("env_id: 3\n")
    with pytest.raises(ConfigError) as error:
        load(["--config", str(tmp_path / "c.yaml")], {}, lambda *_: pytest.fail("asked"))
    assert [fault.key for fault in error.value.faults] == ["env_id"]


def test_the_written_file_repeats_the_run_and_its_names(tmp_path: Path) -> None:
    first = load(["--lr", "1e-3", "--env_id", "pettingzoo:a.b:c", "--logger", "console", "--wandb_tags", "x y"], {})
    run = make_run(tmp_path, first)
    again = load(["--config", str(run / "config.yaml")], {})
    assert again.config == first.config
    assert names(again) == names(first)
    other_seed = load(["--config", str(run / "config.yaml"), "--seed", "2"], {})
    assert names(other_seed).group == names(first).group
    assert names(other_seed).experiment_name == "mappo_seed2_lr1e-3"
    other_lr = load(["--config", str(run / "config.yaml"), "--lr", "3e-4"], {})
    assert names(other_lr).group == "a.b_c_mappo_lr3e-4"


def test_a_resumed_run_keeps_its_config_and_may_change_what_is_not_science(tmp_path: Path) -> None:
    run = make_run(tmp_path, load(["--lr", "1e-3", "--experiment_name", "mine"], {}))
    same = load(["--resume", str(run)], {"WANDB_NAME": "other", "NAVRL_RUNS": "/other", "WANDB_MODE": "offline"})
    assert same.resume == run
    assert (same.config.lr, same.config.experiment_name, same.config.wandb_name) == (1e-3, "mine", None)
    assert (same.config.run_dir, same.config.wandb_mode) == ("runs", "offline")
    changed = load(["--resume", str(run), "--total_env_steps", "4000000", "--log_interval", "9", "--device", "cuda",
                    "--logger", "tensorboard"], {})
    assert changed.config.total_env_steps == 4_000_000
    assert changed.config.named_keys == ("lr",)


def test_a_resumed_run_refuses_another_science_key_by_key(tmp_path: Path) -> None:
    run = make_run(tmp_path, load([], {}))
    with pytest.raises(ConfigError) as error:
        load(["--resume", str(run), "--lr", "1e-3", "--seed", "9", "--group", "other", "--log_interval", "2"], {})
    faults = {fault.key: fault.message for fault in error.value.faults}
    assert set(faults) == {"lr", "seed", "group"}
    assert "is 1 in the run and cannot become 9" in faults["seed"]


def test_resume_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--resume takes the directory of a run"):
        load(["--resume", str(tmp_path)], {})
    run = make_run(tmp_path, load([], {}))
    with pytest.raises(ConfigError, match="leave out --config"):
        load(["--resume", str(run), "--config", "x.yaml"], {})


@pytest.mark.parametrize(("argv", "words"), [
    (("--network", "gru", "--mini_batch_size", "803"), "whole chunks"),
    (("--total_env_steps", "100"), "less than the"),
    (("--lr_schedule", "constant", "--ppo_epoch_end", "null", "--lr_decay_steps", "100"), "no effect"),
])  # fmt: skip
def test_what_may_not_be_meant_is_said(argv: tuple[str, ...], words: str) -> None:
    assert any(words in notice for notice in load(argv, {}).notices)
