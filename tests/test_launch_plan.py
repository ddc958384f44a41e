"""The plan of a launch: each configuration with each seed, a directory for each run, one group a configuration."""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_runs import ROOT, call, run_dirs, tiny_argv

from envs.registry import validate_settings
from navrl.config_sources import load
from navrl.faults import ConfigError
from navrl.launch import local
from navrl.launch.expand import expand, read_grid, read_seeds
from navrl.naming import names

ENVIRON = {"NAVRL_RUNS": "/nowhere/runs"}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {"a.yaml": "lr: 5e-4\n", "b.yaml": "algorithm_name: ippo\n", "x/a.yaml": "gamma: 0.8\n",
                       "grouped.yaml": "group: mine\n", "named.yaml": "wandb_name: mappo_seed1\n"}.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def plan(
    configs: list[str], seeds: str = "1-2", grid: tuple[str, ...] = (), further: tuple[str, ...] = (), **environ: str
):
    return expand(configs, read_seeds([seeds]), read_grid(grid), further, ENVIRON | environ, validate_settings)


def refusal(*arguments, **named) -> str:
    with pytest.raises(ConfigError) as refused:
        plan(*arguments, **named)
    return str(refused.value)


def test_files_values_and_seeds_in_this_order(files: Path) -> None:
    runs = plan(["a.yaml", "b.yaml"], "3,1", ("lr=1e-3,2e-3", "gamma=0.9,0.95"), ("--num_agents", "2"))
    expected = itertools.product(["mappo", "ippo"], [1e-3, 2e-3], [0.9, 0.95], [3, 1])
    found = [(run.config.algorithm_name, run.config.lr, run.config.gamma, run.config.seed) for run in runs]
    assert found == list(expected) and {run.config.num_agents for run in runs} == {2}
    assert len({run.run_dir for run in runs}) == len(runs) == 16


def test_one_group_is_one_configuration(files: Path) -> None:
    for configs, grid, further in (
        (["a.yaml"], ("lr=5e-4,7e-4",), ()),
        (["a.yaml", "b.yaml"], ("lr=5e-4,7e-4",), ()),
        (["a.yaml", "grouped.yaml"], ("lr=5e-4,7e-4",), ()),
        (["a.yaml", "b.yaml"], ("lr=5e-4,7e-4",), ("--group", "all of them", "--wandb_group=w")),
        (["a.yaml", "b.yaml"], (), ("--wandb_group=w", "--lr", "1e-3")),
    ):
        groups: dict[str, set] = {}
        for run in plan(configs, "1-3", grid, further):
            wandb = names(load(run.argv, ENVIRON, validate_settings)).wandb_group
            for group in (run.group, f"W&B {wandb}"):
                groups.setdefault(group, set()).add(tuple(sorted((run.config.science() | {"seed": 0}).items())))
        assert all(len(configurations) == 1 for configurations in groups.values()), groups
        assert len(groups) == 2 * len(configs) * max(1, len(grid) * 2)


def test_several_files_are_told_apart_by_their_stem_and_one_is_not(files: Path) -> None:
    assert {run.group for run in plan(["a.yaml"])} == {"mpe_simple_spread_3a_mappo"}
    assert {run.group for run in plan(["a.yaml", "b.yaml"])} == {
        "mpe_simple_spread_3a_mappo_a", "mpe_simple_spread_3a_ippo_b"}  # fmt: skip
    assert {run.group for run in plan(["grouped.yaml"])} == {"mine"}
    assert {run.group for run in plan(["grouped.yaml"], grid=("lr=1e-3,2e-3",))} == {"mine_lr1e-3", "mine_lr2e-3"}


def test_each_process_of_a_run_has_a_core(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless --jobs or --cpus say otherwise."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import launch

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(10)))
    for processes, jobs in {1: 10, 4: 2, 16: 1}.items():
        runs = plan(["a.yaml", "b.yaml"], "1", further=("--processes", str(processes), "--num_envs", "32"))
        assert {local.places(run.config) for run in runs} == {jobs}
        words = ["--config", "a.yaml", "--seeds", "1"]
        assert launch.room_of(runs, launch.arguments().parse_args(words)) == {"cpus": processes, "gpus": 0}
        asked = launch.arguments().parse_args([*words, "--cpus", "3", "--gpus", "1"])
        assert launch.room_of(runs, asked) == {"cpus": 3, "gpus": 1}


def test_a_line_of_the_dry_run_is_the_run_itself(files: Path, no_code_copy: None) -> None:
    """Pasted in a shell it has the planned directory; and so has main.py in a loop of one's own."""
    further = tiny_argv(files / "runs", "--total_env_steps", "400", "--experiment_name", "it's $HOME  \\ {}")
    (run,) = plan(["a.yaml"], "7", ("lr=1e-3",), tuple(further))
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "launch.py"), "--config", "a.yaml", "--seeds", "7", "--set", "lr=1e-3",
         "--dry-run", "--", *further],
        env=os.environ | ENVIRON, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == run.line() + "\n" and not (files / "runs").exists()
    pasted = subprocess.run(
        ["bash", "-c", f"python() {{ printf '%s\\0' \"$@\"; }}; {done.stdout}"], capture_output=True, text=True
    )
    assert pasted.stdout.split("\0")[:-1] == ["main.py", *run.argv] == shlex.split(done.stdout)[1:]
    assert call(list(run.argv), files / "runs").code == 0
    assert run_dirs(files / "runs") == [run.run_dir]
    (simple,) = plan(["a.yaml"], "3")
    by_hand = names(load(["--config", "a.yaml", "--seed", "3"], ENVIRON, validate_settings))
    assert (simple.project, simple.group, simple.name) == (by_hand.project, by_hand.group, by_hand.experiment_name)


@settings(deadline=None, max_examples=6)
@given(
    lrs=st.lists(st.floats(1e-6, 1), min_size=1, max_size=3, unique=True),
    minis=st.lists(st.sampled_from(["null", "100", "400"]), min_size=1, max_size=2, unique=True),
    seeds=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=2, unique=True),
)
def test_any_grid_has_a_directory_for_each_run(lrs: list[float], minis: list[str], seeds: list[int]) -> None:
    grid = {"lr": [repr(lr) for lr in lrs], "mini_batch_size": minis}
    configs = [str(ROOT / "configs" / "train" / "train_mpe.yaml")]
    runs = expand(configs, seeds, grid, (), ENVIRON, validate_settings)
    assert len({run.run_dir for run in runs}) == len(runs) == len(lrs) * len(minis) * len(seeds)
    assert runs == expand(configs, seeds, grid, (), ENVIRON, validate_settings)


@pytest.mark.parametrize(("words", "seeds"), [
    (["1-5"], [1, 2, 3, 4, 5]), (["3", "1"], [3, 1]), (["1,2,9"], [1, 2, 9]), (["1 2", "4-5,7"], [1, 2, 4, 5, 7]),
    (["0"], [0]),
])  # fmt: skip
def test_seeds_as_people_write_them(words: list[str], seeds: list[int]) -> None:
    assert read_seeds(words) == seeds


@pytest.mark.parametrize(("words", "said"), [
    (["5-1"], "5-1"), (["a"], "'a' is no seed"), (["-1"], "-1"), (["1.5"], "1.5"), ([""], "none is given"),
    (["1-3,2"], "seed 2 is given twice"), (["9223372036854775808"], "is no seed"),
    (["1-100000"], "more than 10000 seeds"),
])  # fmt: skip
def test_seeds_that_are_none(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_seeds(words)
    assert said in str(refused.value) and "--seeds" in str(refused.value)


def test_a_list_is_one_value() -> None:
    assert read_grid(["curriculum_advance_at=[100,200],[300]", "lr=1,2"]) == {
        "curriculum_advance_at": ["[100,200]", "[300]"], "lr": ["1", "2"]}  # fmt: skip


@pytest.mark.parametrize(("grid", "said"), [
    (("lr",), "'lr' is not KEY=VALUE"), (("lr=",), "KEY=VALUE"), (("lr=1,,2",), "KEY=VALUE"),
    (("lrr=1",), "nearest: lr"), (("seed=1,2",), "--seeds"), (("device=cpu,cuda",), "device changes no result"),
    (("lr=1e-3", "lr=2e-3"), "given twice"),
])  # fmt: skip
def test_values_that_are_none(grid: tuple[str, ...], said: str, files: Path) -> None:
    assert said in refusal(["a.yaml"], grid=grid)


def test_all_faults_of_all_runs_in_one_message(files: Path) -> None:
    (files / "bad.yaml").write_text("gamma: 2\nlrr: 1\n")
    said = refusal(["a.yaml", "bad.yaml", "none.yaml"], "1-3", ("lr=1e-3,fast",))
    assert "4 faults" in said
    for part in (
        "gamma (bad.yaml, line 1)",
        "lrr (bad.yaml, line 2)",
        "lr (command line): 'fast'",
        "none.yaml: there is no such",
    ):
        assert said.count(part) == 1, said


@pytest.mark.parametrize(("further", "said"), [
    (("--seed", "3"), "--seeds decides that"), (("--config=b.yaml",), "--config decides that"),
    (("--lr=1",), "--set decides that"),
    (("--if_exists", "new"), "repeating the command"), (("--resume", "x"), "--resume"),
])  # fmt: skip
def test_what_the_plan_decides_is_not_given_beside_it(further: tuple[str, ...], said: str, files: Path) -> None:
    assert said in refusal(["a.yaml"], "1-2", ("lr=1e-3,2e-3",), further)


def test_runs_that_would_meet_are_refused(files: Path) -> None:
    assert "wandb_name: two of the runs would be" in refusal(["named.yaml"], "1-2")
    assert "experiment_name" in refusal(["a.yaml"], "1-2", (), ("--experiment_name", "x"))
    assert "two files of one name" in refusal(["a.yaml", "x/a.yaml"])
    assert "one value twice" in refusal(["a.yaml"], "1", ("lr=1e-3,0.001",))
    assert "WANDB_RUN_ID" in refusal(["a.yaml"], "1-2", WANDB_RUN_ID="abc")
    assert "wandb_name" in refusal(["a.yaml"], "1-2", WANDB_NAME="abc")
    assert "at most 10000" in refusal(["a.yaml"], "1-5000", ("lr=1e-3,2e-3,3e-3",))
