"""Sweep files are W&B's: what its schema takes, read as it reads them; what cannot be done offline is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import sweep_tools
import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from whole_runs import ROOT

from envs.registry import validate_settings
from navrl.faults import ConfigError
from navrl.sweep import search, spec
from navrl.sweep.place import locate

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # written for an earlier pydantic
    from sweeps.config import schema_violations_from_proposed_config
    from sweeps.params import HyperParameter

SHIPPED = sorted((ROOT / "configs" / "sweep").glob("*.yaml"))
SEARCHED = {"lr", "entropy_coef", "gamma", "mini_batch_size", "gae_lambda", "clip_param"}


def test_the_shipped_files_are_there() -> None:
    assert {"grid_coarse", "bayes_fine", "bayes_score"} <= {path.stem for path in SHIPPED}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_file_is_one_to_wandb_too(path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    assert schema_violations_from_proposed_config(content) == []
    assert schema_violations_from_proposed_config(content | {"bands": 3}) != []
    assert set(content["parameters"]) == SEARCHED
    for key, parameter in content["parameters"].items():
        numbers = [value for name, value in parameter.items() if name in ("min", "max")] + parameter.get("values", [])
        kind = int if key == "mini_batch_size" else float
        assert numbers and all(type(number) is kind for number in numbers), f"{key}: {numbers}"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_main_takes_every_end_of_a_shipped_file(path: Path) -> None:
    place = locate(str(path), [], environ={}, task_check=validate_settings, seeds=None, storage=None)
    for parameter in place.sweep.parameters:
        for value in parameter.samples():
            config = place.plan({parameter.key: value}, 3).config
            assert getattr(config, parameter.key) == value and config.seed == 3
    assert place.base.group == f"sweep_{path.stem}" and place.base.project == "NAVRL"


CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "a range of whole numbers": ({"min": 16, "max": 64}, IntDistribution(16, 64)),
    "a range of numbers": ({"min": 0.1, "max": 0.5}, FloatDistribution(0.1, 0.5)),
    "uniform": ({"distribution": "uniform", "min": 0, "max": 1}, FloatDistribution(0, 1)),
    "in the logarithm": ({"distribution": "log_uniform_values", "min": 1e-4, "max": 0.1},
                         FloatDistribution(1e-4, 0.1, log=True)),
    "its bounds as exponents": ({"distribution": "log_uniform", "min": -9.210340371976182, "max": -2.302585092994046},
                                FloatDistribution(1e-4, 0.1, log=True)),
    "of the inverse": ({"distribution": "inv_log_uniform_values", "min": 1e-4, "max": 0.1},
                       FloatDistribution(1e-4, 0.1, log=True)),
    "of the inverse, exponents": ({"distribution": "inv_log_uniform", "min": 2.302585092994046,
                                   "max": 9.210340371976182}, FloatDistribution(1e-4, 0.1, log=True)),
    "in steps": ({"distribution": "q_uniform", "min": 0.1, "max": 0.5, "q": 0.1},
                 FloatDistribution(0.1, 0.5, step=0.1)),
    "in whole steps": ({"distribution": "q_uniform", "min": 64, "max": 256, "q": 64},
                       IntDistribution(64, 256, step=64)),
    "choices": ({"values": [0.1, 0.2]}, CategoricalDistribution((0.1, 0.2))),
    "choices by name": ({"distribution": "categorical", "values": [True, False]},
                        CategoricalDistribution((True, False))),
}  # fmt: skip
KEYS = {"uniform": "gae_lambda", "a range of whole numbers": "hidden_size", "in whole steps": "hidden_size",
        "choices by name": "value_clip"}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_distribution_is_optunas(case: str, tmp_path: Path) -> None:
    parameter, expected = CASES[case]
    key = KEYS.get(case, "clip_param")
    sweep = spec.read(sweep_tools.sweep_file(tmp_path, parameters={key: parameter}))
    assert search.space(sweep) == {key: expected}
    assert HyperParameter(key, parameter).type is not None  # W&B's engine takes it too


def test_bounds_of_a_distribution_are_those_of_wandbs_own_engine(tmp_path: Path) -> None:
    """Its percent point function at 0 and 1 against ours, for each kind of range."""
    for case, (parameter, expected) in CASES.items():
        if not isinstance(expected, CategoricalDistribution):
            theirs = HyperParameter("clip_param", dict(parameter))
            ends = sorted(float(theirs.ppf(x)) for x in (1e-12, 1 - 1e-12))
            assert ends == pytest.approx([expected.low, expected.high], rel=1e-6), case


def test_constants_and_fixed_words_reach_every_trial(tmp_path: Path) -> None:
    parameters = sweep_tools.SEARCHED | {"gamma": {"value": 0.95}}
    file = sweep_tools.sweep_file(tmp_path, parameters=parameters, project="ours")
    place = locate(str(file), ["--num_envs", "8"], environ={}, task_check=validate_settings, seeds=[7], storage=None)
    run = place.plan({"lr": 3e-4, "entropy_coef": 0.0, "clip_param": 0.2}, 7)
    assert (run.config.gamma, run.config.num_envs, run.config.lr, run.config.seed) == (0.95, 8, 3e-4, 7)
    assert (run.project, run.group) == ("ours", "tiny")
    for part in ("seed7", "lr3e-4", "entropy_coef0", "clip_param0.2"):  # also where the value is the file's own
        assert part in run.name


def test_a_group_is_named_after_the_file_where_it_names_none(tmp_path: Path) -> None:
    for name, group in ((None, "sweep"), ("by name", "by name")):
        file = sweep_tools.sweep_file(tmp_path, command=None, name=name)
        place = locate(str(file), [], environ={}, task_check=validate_settings, seeds=None, storage=None)
        assert place.base.group == group


BAD: dict[str, tuple[dict[str, Any] | str, tuple[str, ...]]] = {
    "a typing mistake": ({"metod": "bayes"}, ("metod", "nearest: method")),
    "no method": ({"method": None}, ("method", "grid, random, bayes")),
    "a method of the server": ({"method": "custom"}, ("method", "'custom'")),
    "what the server alone does": ({"scheduler": {"engine": "optuna"}}, ("scheduler", "only W&B's server")),
    "no metric": ({"metric": None}, ("metric", "missing")),
    "a metric without its layer": ({"metric": {"name": "reward"}}, ("metric.name", "train/episode_reward_mean")),
    "a goal": ({"metric": {"name": "train/x", "goal": "max"}}, ("metric.goal", "maximize")),
    "imputing": ({"metric": {"name": "train/x", "impute": "best"}}, ("metric.impute", "only W&B's server")),
    "no parameters": ({"parameters": {}}, ("parameters", "missing")),
    "only constants": ({"parameters": {"lr": {"value": 1e-3}}}, ("parameters", "nothing is searched")),
    "an unknown parameter": ({"parameters": {"learning_rate": {"values": [1e-3]}}}, ("learning_rate", "nearest: lr")),
    "a bare value": ({"parameters": {"lr": 0.1}}, ("parameters.lr", "mapping")),
    "text for a number": ({"parameters": {"lr": {"values": ["1e-5"]}}}, ("parameters.lr", "write 1.0e-05")),
    "text for a bound": ({"parameters": {"lr": {"min": "1e-5", "max": 0.1}}}, ("parameters.lr.min", "")),
    "text for a log bound": ({"parameters": {"lr": {"distribution": "log_uniform_values", "min": "1e-5", "max": 0.1}}},
                             ("parameters.lr.min", "write 1.0e-05")),
    "out of range": ({"parameters": {"gamma": {"min": 0.9, "max": 1.5}}}, ("parameters.gamma", "1.5", "<= 1")),
    "min above max": ({"parameters": {"gamma": {"min": 0.9, "max": 0.8}}}, ("parameters.gamma.min", "below max")),
    "no logarithm": ({"parameters": {"entropy_coef": {"distribution": "log_uniform_values", "min": 0.0, "max": 0.1}}},
                     ("parameters.entropy_coef.min", "> 0")),
    "no counterpart": ({"parameters": {"lr": {"distribution": "normal", "mu": 0, "sigma": 1}}},
                       ("parameters.lr.distribution", "'normal'")),
    "weights": ({"parameters": {"lr": {"values": [0.1, 0.2], "probabilities": [0.5, 0.5]}}},
                ("parameters.lr.probabilities",)),
    "nesting": ({"parameters": {"lr": {"parameters": {"a": {"value": 1}}}}}, ("parameters.lr.parameters", "nested")),
    "a step that is unknown there": ({"parameters": {"lr": {"min": 0.1, "max": 0.2, "q": 0.1}}}, ("parameters.lr.q",)),
    "a range in a grid": ({"method": "grid", "parameters": {"lr": {"min": 0.1, "max": 0.2}}},
                          ("parameters.lr", "grid needs `values`")),
    "the seed": ({"parameters": {"seed": {"values": [1, 2]}}}, ("parameters.seed", "--seeds")),
    "the task": ({"parameters": {"num_agents": {"values": [3, 4]}}}, ("parameters.num_agents", "not comparable")),
    "what changes no result": ({"parameters": {"device": {"values": ["cpu", "cuda"]}}},
                               ("parameters.device", "no result")),
    "twice the same": ({"parameters": {"lr": {"values": [0.1, 0.1]}}}, ("parameters.lr.values", "twice")),
    "another program": ({"program": "train.py"}, ("program", "'train.py'")),
    "no arguments": ({"command": ["${program}"]}, ("command", "${args}")),
    "another macro": ({"command": ["${program}", "${args_json}", "${args}"]}, ("command", "${args_json}")),
    "a flag and a parameter": ({"command": ["${program}", "--lr=0.1", "${args}"]}, ("parameters.lr", "keep one")),
    "a name for all": ({"command": ["${program}", "--experiment_name=x", "${args}"]},
                       ("experiment_name", "parameters")),
    "an unknown flag": ({"command": ["${program}", "--nmu_envs=3", "${args}"]}, ("--nmu_envs", "nearest: --num_envs")),
    "no such early end": ({"early_terminate": {"type": "envelope", "min_iter": 1}}, ("early_terminate.type",)),
    "the strict rule": ({"early_terminate": {"type": "hyperband", "min_iter": 1, "strict": True}},
                        ("early_terminate.strict",)),
    "bands of nothing": ({"early_terminate": {"type": "hyperband", "max_iter": 2, "s": 2, "eta": 3}},
                         ("early_terminate.max_iter", "no band")),
    "no bands": ({"early_terminate": {"type": "hyperband"}}, ("early_terminate", "min_iter")),
    "a cap": ({"run_cap": 0}, ("run_cap", "whole number >= 1")),
    "no number of trials": ({}, ("--trials", "how many")),
    "a list at the top": ("- 1\n", ("mapping",)),
    "a key twice": ("method: grid\nmethod: bayes\n", ("method", "given twice", "line 2")),
    "no YAML": ("a: [\n", ("line",)),
    "a key of a number": ("1: 2\n", ("quotes",)),
    "code": ("a: !!python/object/apply:os.getcwd []\n", ("could not determine a constructor",)),
    "bytes": ("\x00", ("",)),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_done_is_said_in_a_line_and_nothing_is_written(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import sweep

    content, words = BAD[case]
    file = sweep_tools.sweep_file(tmp_path, **(content if isinstance(content, dict) else {}))
    if isinstance(content, str):
        file.write_text(content)
    before = sorted(tmp_path.rglob("*"))
    assert sweep.main([str(file)]) == 2
    out, err = capsys.readouterr()
    lines = err.strip().splitlines()
    assert out == "" and "Traceback" not in err
    assert len(lines) == 2 and lines[0].startswith("bad configuration"), err
    for word in words:
        assert word in lines[1], err
    assert sorted(tmp_path.rglob("*")) == before


def test_all_faults_of_a_file_are_said_together(tmp_path: Path) -> None:
    file = sweep_tools.sweep_file(
        tmp_path, metod="x", run_cap="many", parameters={"lr": {"values": [2.0]}, "gama": {"min": 0.1, "max": 0.2}}
    )
    with pytest.raises(ConfigError) as caught:
        spec.read(file)
    assert [fault.key for fault in caught.value.faults] == ["metod", "parameters.lr", "parameters.gama", "run_cap"]


@pytest.mark.parametrize("variable", ["WANDB_NAME", "WANDB_RUN_ID"])
def test_a_name_of_one_run_in_the_environment_is_refused(variable: str, tmp_path: Path) -> None:
    file = sweep_tools.sweep_file(tmp_path)
    with pytest.raises(ConfigError, match=variable):
        locate(str(file), [], environ={variable: "x"}, task_check=validate_settings, seeds=None, storage=None)


def test_numbers_stay_numbers_on_their_way_to_main(tmp_path: Path) -> None:
    """What W&B's agent would write as --key=value, main.py reads back as the very value."""
    values = {"lr": 1e-05, "hidden_size": 64.0, "value_clip": False, "critic_lr": None, "activation": "tanh",
              "gamma": 0.1 + 0.2}  # fmt: skip
    file = sweep_tools.sweep_file(tmp_path, parameters={"clip_param": {"min": 0.1, "max": 0.2}})
    place = locate(str(file), [], environ={}, task_check=validate_settings, seeds=None, storage=None)
    config = place.plan(values, 1).config
    assert {key: getattr(config, key) for key in values} == values
    assert isinstance(config.hidden_size, int)


def test_the_shell_script_is_one_command_from_anywhere(tmp_path: Path) -> None:
    done = subprocess.run([str(ROOT / "scripts" / "sweep.sh"), "--help"], cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode == 0 and "--storage" in done.stdout, done.stderr
    shutil.copy(ROOT / "configs" / "sweep" / "bayes_fine.yaml", tmp_path / "mine.yaml")  # names one of NAVRL's files
    refused = ("--storage", "mysql://x", "--trials", "1", "--", "--run_dir", "mine")
    for file, word in (("mine.yaml", "mysql://x"), ("none.yaml", "none.yaml")):
        done = subprocess.run([str(ROOT / "scripts" / "sweep.sh"), file, *refused], cwd=tmp_path, text=True,
                              capture_output=True)  # fmt: skip
        assert done.returncode == 2 and word in done.stderr.splitlines()[-1], done.stderr
    text = (ROOT / "scripts" / "sweep.sh").read_text()
    assert "set -euo pipefail" in text and len(text.splitlines()) <= 20
    assert re.match(r"#!/usr/bin/env bash\n# ", text)


def test_a_missing_optuna_is_one_line(tmp_path: Path) -> None:
    hidden = tmp_path / "optuna.py"
    hidden.write_text("raise ModuleNotFoundError(\"No module named 'optuna'\", name='optuna')\n")
    for script in ("sweep.py", "sweep_report.py"):
        done = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / script), str(SHIPPED[0])], text=True, capture_output=True,
            cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 2
        assert done.stderr == "optuna is not installed: pip install -r requirements-sweep.txt\n"


