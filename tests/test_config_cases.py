"""Inputs that broke similar software: each kind ends in the right value or in one clear message, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs import registry
from navrl.config import Config
from navrl.config_sources import Loaded, load
from navrl.faults import ConfigError

CASES = Path(__file__).parent / "cases" / "config"


def load_case(name: str, *argv: str) -> Loaded:
    return load(["--config", str(CASES / name), *argv], {}, registry.validate_settings)


def faults_of(name: str, *argv: str) -> dict[str, str]:
    """Whole fault texts by key."""
    with pytest.raises(ConfigError) as error:
        load_case(name, *argv)
    assert error.value.exit_code == 2
    for fault in error.value.faults:
        assert str(fault) in str(error.value)
        assert name in fault.where
    return {fault.key: str(fault) for fault in error.value.faults}


ACCEPTED = {
    "numbers_as_people_write_them.yaml",
    "minibatch_larger_than_batch.yaml",
    "minibatch_does_not_divide.yaml",
    "empty.yaml",
    "only_comments.yaml",
    "bom_crlf_utf8.yaml",
    "placeholder_entity.yaml",
    "missing_device.yaml",  # the devices there are, only torch knows
}


@pytest.mark.parametrize("name", sorted(path.name for path in CASES.iterdir()))
def test_each_case_is_accepted_or_refused_as_decided(name: str) -> None:
    if name in ACCEPTED:
        load_case(name)
    else:
        assert faults_of(name)


def test_numbers_as_people_write_them_are_numbers() -> None:
    config = load_case("numbers_as_people_write_them.yaml").config
    assert (config.lr, config.adam_eps, config.gamma, config.entropy_coef) == (0.0005, 0.00001, 0.99, 0.01)


def test_a_leading_zero_is_refused_with_the_reason() -> None:
    assert "leading zero" in faults_of("leading_zero_seed.yaml")["seed"]


def test_a_duplicate_key_names_both_lines() -> None:
    assert "lines 3 and 4" in faults_of("duplicate_key.yaml")["lr"]


def test_unknown_keys_are_each_named_with_the_nearest() -> None:
    faults = faults_of("unknown_keys.yaml")
    assert "nearest: entropy_coef" in faults["entrpy_coef"] and "line 2" in faults["entrpy_coef"]
    assert "nearest: activation" in faults["use_relu"]
    assert "nearest: total_env_steps" in faults["num_env_steps"]


def test_a_key_the_task_lacks_is_named_with_the_nearest() -> None:
    faults = faults_of("env_key_the_task_lacks.yaml")
    assert "nearest: max_cycles" in faults["max_cycle"]
    assert "nearest: num_landmark_neighbors" in faults["landmarks"]


def test_an_unknown_task_and_an_unknown_tracker_are_named_with_the_nearest() -> None:
    assert "simple_spread" in faults_of("unknown_task.yaml")["env_id"]
    assert "nearest to 'wandbb': wandb" in faults_of("unknown_tracker.yaml")["logger"]


def test_nested_keys_are_told_where_they_belong() -> None:
    fault = faults_of("nested_where_flat.yaml")["ppo"]
    assert "not nested" in fault and "lr" in fault and "clip_param (for clip)" in fault


def test_a_list_at_the_top_is_refused() -> None:
    assert "must be a mapping" in faults_of("list_at_top.yaml")[""]


def test_all_wrong_types_of_a_file_are_reported_together() -> None:
    faults = faults_of("wrong_types.yaml")
    assert set(faults) == {"lr", "seed", "num_envs", "log_wandb"}
    assert "'one'" in faults["seed"] and "a whole number >= 0" in faults["seed"]
    assert "12.5" in faults["num_envs"]
    assert "true or false" in faults["log_wandb"]


def test_all_values_out_of_range_are_reported_together() -> None:
    assert set(faults_of("out_of_range.yaml")) == {
        "num_envs", "num_agents", "gamma", "gae_lambda", "clip_param", "lr", "max_cycles", "local_ratio",
        "mini_batch_size",
    }  # fmt: skip


def test_faults_of_file_and_command_line_are_reported_together() -> None:
    with pytest.raises(ConfigError) as error:
        load_case("wrong_types.yaml", "--gamma", "3", "--lrr", "3")
    found = {fault.key: fault.where for fault in error.value.faults}
    assert set(found) == {"lr", "seed", "num_envs", "log_wandb", "gamma", "--lrr"}
    assert found["gamma"] == found["--lrr"] == "command line"


def test_nan_and_infinity_are_no_settings() -> None:
    faults = faults_of("nan_and_inf.yaml")
    assert "nan is not allowed" in faults["lr"] and "inf is not allowed" in faults["gamma"]


def test_a_seed_beyond_64_bits_is_refused() -> None:
    assert "2^63-1" in faults_of("seed_beyond_64_bits.yaml")["seed"]


def test_minibatch_sizes_that_do_not_fit_are_said() -> None:
    larger = load_case("minibatch_larger_than_batch.yaml")
    assert larger.config.minibatch_size == larger.config.batch_size
    assert any("mini_batch_size 1000003" in notice for notice in larger.notices)
    uneven = load_case("minibatch_does_not_divide.yaml")
    assert uneven.config.minibatch_size == 999
    assert any("unequal" in notice for notice in uneven.notices)


@pytest.mark.parametrize("name", ["empty.yaml", "only_comments.yaml"])
def test_an_empty_file_is_the_main_job_and_says_so(name: str) -> None:
    loaded = load_case(name)
    assert loaded.config == Config()
    assert any("every key takes its default" in notice for notice in loaded.notices)


def test_a_tab_and_a_wrong_encoding_name_line_and_cause() -> None:
    assert "line 2" in faults_of("tab_indent.yaml")[""] and "tab" in faults_of("tab_indent.yaml")[""]
    assert "line 2" in faults_of("latin1_bytes.yaml")[""] and "UTF-8" in faults_of("latin1_bytes.yaml")[""]


def test_a_byte_order_mark_and_windows_line_ends_work() -> None:
    config = load_case("bom_crlf_utf8.yaml").config
    assert (config.env_id, config.seed, config.wandb_group) == ("simple_spread", 1, "对比实验")


def test_aliases_and_tags_are_refused_and_nothing_is_run(tmp_path: Path) -> None:
    assert "aliases" in faults_of("alias_bomb.yaml")[""]
    assert "tags" in faults_of("python_tag.yaml")[""]
    marker = tmp_path / "owned"
    own = tmp_path / "tag.yaml"
    own.write_text(f'env_id: !!python/object/apply:os.system ["touch {marker}"]\n')
    with pytest.raises(ConfigError, match="tags"):
        load(["--config", str(own)], {})
    assert not marker.exists()


def test_the_sample_entity_warns_once_and_records_offline() -> None:
    loaded = load_case("placeholder_entity.yaml")
    warnings = [notice for notice in loaded.notices if "your_account_or_team_name" in notice]
    assert len(warnings) == 1 and "wandb_entity" in warnings[0] and "line 3" in warnings[0]
    assert loaded.config.wandb_entity is None
    assert loaded.config.wandb_mode == "offline"
    assert "wandb" in loaded.config.trackers


def test_a_key_in_the_file_is_refused_and_printed_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    fault = faults_of("key_in_config.yaml")["wandb_api_key"]
    assert "WANDB_API_KEY" in fault and "wandb login" in fault
    printed = capsys.readouterr()
    assert "0123456789abcdef" not in fault + printed.out + printed.err


@pytest.mark.parametrize("text", [
    "wandb_api_key: [hunter2, hunter2]\n",
    "wandb_api_key: {a: hunter2}\n",
    "ppo: {api_key: hunter2}\n",
    "wandb_token: 010hunter2\n",
    "password: hunter2\npassword: hunter2\n",
    "mlflow_tracking_uri: [http://me:hunter2@host]\n",
    "wandb_proxy: me:hunter2@host://me:hunter2@host/ x\n",
])  # fmt: skip
def test_a_secret_of_any_shape_is_printed_nowhere(tmp_path: Path, text: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load(["--config", str(file)], {})
    assert "hunter2" not in str(error.value)


def test_a_wandb_key_under_another_name_is_refused(tmp_path: Path) -> None:
    key = "0123456789abcdef" * 2 + "01234567"
    file = tmp_path / "c.yaml"
    file.write_text(f"wandb_entity: {key}\nwandb_nam: {key}\n")
    with pytest.raises(ConfigError) as error:
        load(["--config", str(file), "--wandb_name", key], {})
    assert [fault.key for fault in error.value.faults] == ["wandb_nam", "wandb_entity", "wandb_name"]
    assert key not in str(error.value)


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:7"])
def test_devices_have_three_spellings(device: str) -> None:
    assert load(["--device", device], {}).config.device == device


@pytest.mark.parametrize("device", ["gpu", "mps", "cuda:", "cuda:x", "cuda:-1", "cpu\n", "CUDA", "cuda:01"])
def test_other_device_names_are_refused(device: str) -> None:
    with pytest.raises(ConfigError, match="cpu, cuda or cuda:N"):
        load([f"--device={device}"], {})
