"""One group is one configuration; where a run breaks that, one line says so and names what differs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from navrl.config import config_hash, dump
from navrl.config_sources import Loaded, load
from runners.opening import open_run
from whole_runs import resume, run_dirs, train

SHORT = ("--total_env_steps", "400", "--eval_interval", "99", "--group", "g")


def add_run(root: Path, name: str, loaded: Loaded) -> Path:
    """What a run leaves that the notice reads."""
    run_dir = root / "NAVRL" / "g" / name
    run_dir.mkdir(parents=True)
    (run_dir / "config.yaml").write_text(dump(loaded.config))
    (run_dir / "metadata.json").write_text(json.dumps({"config_hash": config_hash(loaded.config)}))
    return run_dir


def notices(root: Path, *argv: str) -> list[str]:
    opened = open_run(load(["--run_dir", str(root), "--group", "g", "--experiment_name", "new", *argv], {}), None)
    opened.record.close()
    return opened.notices


def test_two_seeds_of_one_configuration_need_no_words(tmp_path: Path) -> None:
    add_run(tmp_path, "one", load(["--seed", "1", "--device", "cuda", "--log_interval", "7"], {}))
    add_run(tmp_path, "two", load(["--seed", "2", "--critic_lr", str(load([], {}).config.lr)], {}))
    assert notices(tmp_path, "--seed", "3") == []


def test_an_edited_file_is_noticed_with_both_values(tmp_path: Path) -> None:
    add_run(tmp_path, "same", load([], {}))
    file = tmp_path / "edited.yaml"
    file.write_text("clip_param: 0.1\ncurriculum: true\n")
    add_run(tmp_path, "other", load(["--config", str(file)], {}))
    (notice,) = notices(tmp_path)
    assert notice.startswith("group g holds more than one configuration; other differs: ")
    assert "clip_param 0.1 there, 0.2 here" in notice and "curriculum true there, false here" in notice
    assert notice.count(" there, ") == 2 and "\n" not in notice


def test_many_differences_are_counted_not_listed(tmp_path: Path) -> None:
    changed = ("--gamma", "0.5", "--gae_lambda", "0.5", "--clip_param", "0.3", "--ppo_epoch", "7", "--num_agents", "4",
               "--hidden_size", "32", "--seed", "4")  # fmt: skip
    add_run(tmp_path, "other", load(changed, {}))
    (notice,) = notices(tmp_path)
    assert notice.count(" there, ") == 5 and "; and 1 more." in notice


@pytest.mark.parametrize("damage", ["metadata.json", "config.yaml"])
def test_a_run_that_cannot_be_read_stops_nothing(damage: str, tmp_path: Path) -> None:
    for content in ("{", "[]", "no_such_key: 1\n", ""):
        run_dir = add_run(tmp_path, f"odd{len(content)}", load(["--gamma", "0.5"], {}))
        (run_dir / damage).write_text(content)
    (add_run(tmp_path, "young", load(["--gamma", "0.5"], {})) / damage).unlink()
    assert notices(tmp_path) == []


def test_whole_runs_say_it_on_the_console(tmp_path: Path) -> None:
    first = train(tmp_path, *SHORT)
    assert first.code == 0 and "more than one configuration" not in first.out + first.err
    second = train(tmp_path, *SHORT, "--seed", "2")
    assert second.code == 0 and "more than one configuration" not in second.out + second.err
    third = train(tmp_path, *SHORT, "--seed", "3", "--gamma", "0.5")
    assert third.code == 0 and (third.out + third.err).count("group g holds more than one configuration") == 1
    assert "gamma" in (third.out + third.err) and "0.5 here" in (third.out + third.err)
    longer = resume(run_dirs(tmp_path)[0], "--total_env_steps", "800")
    assert longer.code == 0 and "total_env_steps 400 there, 800 here" in longer.out + longer.err
