"""A run is a value: its configuration decides every number, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest
from whole_runs import differences, last_state, program, rows, run_dirs, same_run, tiny_argv, train

pytestmark = pytest.mark.usefixtures("no_code_copy")

SHORT = ("--total_env_steps", "1600", "--eval_interval", "2")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("base"), *SHORT).run_dir


def of_training(run_dir: Path) -> list[dict]:
    """Training numbers of the rows that have them."""
    found = [{k: v for k, v in row.items() if k == "step" or k.startswith("train/")} for row in rows(run_dir)]
    return [row for row in found if "train/policy_loss" in row]


def test_the_same_command_gives_the_same_numbers_in_another_process(base: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "77")  # nor does the order of sets change anything
    process = program(tiny_argv(tmp_path, *SHORT))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    same_run(base, run_dirs(tmp_path)[0])


def test_another_seed_gives_other_numbers(base: Path, tmp_path: Path) -> None:
    other = rows(train(tmp_path, *SHORT, "--seed", "2").run_dir)
    for mine, its in zip(rows(base)[1:], other[1:], strict=True):
        for name in ("train/policy_loss", "train/entropy", "train/episode_reward_mean"):
            assert mine[name] != its[name]


WATCHING = {
    "evaluation more often": ("--eval_interval", "1"),
    "evaluation never": ("--eval_interval", "1000"),
    "more evaluation episodes": ("--eval_episodes", "9", "--final_eval_episodes", "3"),
    "sampled evaluation too": ("--eval_sampled",),
    "checkpoints at every iteration": ("--checkpoint_interval", "1"),
    "episodes kept": ("--log_eval_episodes", "3"),
    "a silent console": ("--logger", "tensorboard"),
    "another name": ("--experiment_name", "x", "--group", "y", "--wandb_tags", "a,b"),
    "every artifact": ("--keep_artifacts", "all"),
}


@pytest.mark.parametrize("change", WATCHING)
def test_watching_a_run_changes_no_training_number(change: str, base: Path, tmp_path: Path) -> None:
    other = train(tmp_path, *SHORT, *WATCHING[change])
    assert other.code == 0, other.err
    assert of_training(other.run_dir) == of_training(base)
    mine, its = last_state(base)["runner"], last_state(other.run_dir)["runner"]
    assert differences(mine, its) == []


def test_logging_less_often_gives_some_of_the_same_rows(base: Path, tmp_path: Path) -> None:
    """Losses of the rows that are left are the same; episodes are those since the last row, so their means differ."""
    other = of_training(train(tmp_path, *SHORT, "--log_interval", "2").run_dir)
    mine = {row["step"]: row for row in of_training(base)}
    assert [row["step"] for row in other] == [800, 1600]
    for row in other:
        pair = [mine[row["step"] - 400], mine[row["step"]]]
        assert row["train/episode_reward_mean"] == pytest.approx(sum(r["train/episode_reward_mean"] for r in pair) / 2)
        assert row["train/episode_reward_max"] == max(r["train/episode_reward_max"] for r in pair)
        for name, value in row.items():
            if not name.startswith("train/episode_reward"):
                assert value == pair[1][name], name
