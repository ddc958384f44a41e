"""Names are built from the run, shown as they are, and safe, readable and unique on disk and in W&B."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from navrl.config_sources import load
from navrl.naming import Names, compact, names, safe_directory


def named(*argv: str) -> Names:
    return names(load(argv, {}))


def test_the_main_job_has_the_names_of_the_contract() -> None:
    assert named() == Names(
        project="NAVRL",
        group="mpe_simple_spread_3a_mappo",
        experiment_name="mappo_seed1",
        wandb_project="NAVRL",
        wandb_group="mpe_simple_spread_3a_mappo",
        wandb_name="mappo_seed1",
    )


def test_one_group_is_one_configuration_whatever_the_seed() -> None:
    assert named("--lr", "1e-3", "--seed", "5").group == named("--lr=1e-3").group == "mpe_simple_spread_3a_mappo_lr1e-3"
    assert named("--lr", "1e-3", "--seed", "5").experiment_name == "mappo_seed5_lr1e-3"
    assert named("--gamma", "0.9", "--lr", "1e-3").group == named("--lr", "1e-3", "--gamma", "0.9").group


def test_only_what_the_command_line_changed_is_remembered_for_names() -> None:
    assert load(["--seed", "5", "--lr", "1e-3", "--device", "cuda"], {}).config.named_keys == ("lr",)


def test_what_changes_no_result_is_not_in_a_name() -> None:
    assert named("--device", "cuda", "--log_interval", "3", "--logger", "console", "--run_dir", "x") == named()


def test_a_flag_that_repeats_the_file_changes_no_name(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("lr: 7e-3\n")
    assert named("--config", str(file), "--lr", "0.007") == named("--config", str(file)) == named()
    assert named("--config", str(file), "--lr", "5e-4").group.endswith("_lr5e-4")


def test_keys_that_the_group_names_anyway_are_not_repeated() -> None:
    assert named("--num_agents", "5", "--algorithm_name", "ippo").group == "mpe_simple_spread_5a_ippo"
    assert named("--env_id", "simple_tag", "--env_backend", "batched").group == "mpe_simple_tag_mappo"


def test_a_task_by_module_and_function_is_named_by_both() -> None:
    assert named("--env_id", "pettingzoo:a.rps_v2:parallel_env").group == "a.rps_v2_mappo"
    assert named("--env_id", "pettingzoo:b.rps_v2:parallel_env").group == "b.rps_v2_mappo"
    assert named("--env_id", "pettingzoo:a.rps_v2").group == "a.rps_v2_mappo"
    assert named("--env_id", "pettingzoo:a.rps_v2:make").group == "a.rps_v2_make_mappo"


@pytest.mark.parametrize(("neutral", "twin", "field", "wandb_field"), [
    ("--project_name", "--wandb_project", "project", "wandb_project"),
    ("--group", "--wandb_group", "group", "wandb_group"),
    ("--experiment_name", "--wandb_name", "experiment_name", "wandb_name"),
])  # fmt: skip
def test_each_name_follows_its_twin_both_ways(neutral: str, twin: str, field: str, wandb_field: str) -> None:
    for argv, expected in (
        ((neutral, "a"), ("a", "a")),
        ((twin, "b"), ("b", "b")),
        ((neutral, "a", twin, "b"), ("a", "b")),
    ):
        found = named(*argv)
        assert (getattr(found, field), getattr(found, wandb_field)) == expected


def test_display_names_are_kept_as_they_are() -> None:
    for name in ("a/b", "🚀", "%s", "x" * 300, "a\nb", "con"):
        assert named("--experiment_name", name).experiment_name == name


@pytest.mark.parametrize(("value", "text"), [
    (0.001, "1e-3"), (5e-4, "5e-4"), (7.5e-4, "7.5e-4"), (0.95, "0.95"), (0.99, "0.99"), (1.0, "1"), (10.0, "10"),
    (0.0, "0"),
    (0.01, "0.01"), (1e-5, "1e-5"), (1e-8, "1e-8"), (800, "800"), (2_000_000, "2e6"), (12345, "12345"), (64, "64"),
    (0, "0"),
    (True, "true"), (False, "false"), (None, "null"), ("mlp", "mlp"), ((5, 10), "5-10"), (1.25e-12, "1.25e-12"),
])  # fmt: skip
def test_values_are_compact(value: object, text: str) -> None:
    assert compact(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63))
def test_a_compact_number_is_that_very_number(value: float) -> None:
    assert Decimal(compact(value)) == Decimal(repr(value))
    assert len(compact(value)) <= len(repr(value))


HOSTILE = [
    "a/b", "../../x", ".", "..", "...", "x" * 300, "对" * 100, "con", "CON", "con.txt", "nul", "COM1", "lpt9.x",
    "trailing ",
    " leading", "🚀", "🚀🚀", "%s", "a\nb", "a\0b", "", " ", "-rf", "~", "~root", ".hidden", "dot.", "a\\b", "C:x", "a:b",
    "a|b",
    "*", "?", "$HOME", "`x`", "\udcff", "e\u0301", "\u00e9", "\u202etxt", "\ufeffx", "a b", "a_b", "_", "__", "a\tb",
    "a~12345678",
    "con~12345678",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_directory_name_is_one_safe_component(tmp_path: Path, name: str) -> None:
    check_directory(name)
    made = tmp_path / safe_directory(name)
    made.mkdir()
    assert made.parent == tmp_path and made.resolve().parent == tmp_path.resolve()
    assert os.listdir(tmp_path) == [safe_directory(name)]


def check_directory(name: str) -> None:
    safe = safe_directory(name)
    assert 1 <= len(safe.encode()) <= 100
    assert safe[0] not in ".-~" and safe[-1] not in ". ~"
    assert all(char.isalnum() or char in "-_.+=~" for char in safe)
    assert safe.split(".")[0].split("~")[0].lower() not in {"con", "prn", "aux", "nul", "com1", "lpt9"}


def test_readable_names_stay_and_others_stay_readable() -> None:
    for name in ("mappo_seed1", "mpe_simple_spread_3a_mappo_lr1e-3", "对比实验", "a.b+c=d", "Größe", "x" * 100):
        assert safe_directory(name) == name
    assert safe_directory("a/b").startswith("a_b~")
    assert safe_directory("../../x").startswith("x~")
    assert safe_directory("x" * 300).startswith("x" * 91 + "~")
    assert safe_directory("对比 实验").startswith("对比_实验~")


def test_hostile_names_never_share_a_directory() -> None:
    pool = [*HOSTILE, *(safe_directory(name) for name in HOSTILE), "x" * 301, "a_b", "x"]
    assert len({safe_directory(name) for name in set(pool)}) == len(set(pool))


@given(st.text(), st.text())
def test_any_two_names_get_two_safe_directories(first: str, second: str) -> None:
    check_directory(first)
    assert (safe_directory(first) == safe_directory(second)) == (first == second)
