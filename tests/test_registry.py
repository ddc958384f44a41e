"""Every task has a short name, every setting reaches the task, and a wrong one is named before anything starts."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest
import torch
from mpe2.all_modules import mpe_environments

from envs.base import TaskError
from envs.registry import TASKS, make_env, resolve_settings, task_names, validate_settings


def test_every_mpe2_task_has_a_short_name() -> None:
    modules = {task.module for task in TASKS.values()}
    assert modules == {module.__name__ for module in mpe_environments.values()}


def test_checking_a_batched_configuration_imports_no_torch() -> None:
    code = (
        "import sys; from envs.registry import validate_settings as v; "
        "assert v('simple_spread', 'batched', {'num_agents': 0, 'x': 1}); "
        "assert not v('simple_spread', 'batched', {'num_agents': 5}); "
        "assert not {'torch', 'numpy', 'mpe2', 'pettingzoo'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("name", task_names())
def test_a_task_takes_the_settings_of_its_own_constructor(name: str) -> None:
    raw = importlib.import_module(TASKS[name].module).raw_env
    ours = {theirs: key for key, theirs in TASKS[name].renamed.items()}
    for argument, parameter in inspect.signature(raw).parameters.items():
        if argument != "render_mode":
            assert validate_settings(name, "mpe2", {ours.get(argument, argument): parameter.default}) == []
    ((key, message),) = validate_settings(name, "mpe2", {"max_cycle": 5})
    assert key == "max_cycle" and "did you mean max_cycles?" in message


def test_the_batched_defaults_are_mpe2s() -> None:
    from mpe2.simple_spread_v3 import raw_env

    theirs = {name: p.default for name, p in inspect.signature(raw_env).parameters.items()}
    theirs["num_agents"] = theirs.pop("N")
    ours = resolve_settings("simple_spread", {})
    assert ours == {name: theirs[name] for name in ours}


@pytest.mark.parametrize("backend", ["batched", "mpe2"])
@pytest.mark.parametrize("settings, key, words", [
    ({"num_agents": 0}, "num_agents", "num_agents: 0 is not an integer of at least 1"),
    ({"num_agents": True}, "num_agents", "True is not an integer"),
    ({"num_agents": 3.0}, "num_agents", "3.0 is not an integer"),
    ({"max_cycles": -1}, "max_cycles", "-1"),
    ({"local_ratio": 1.5}, "local_ratio", "local_ratio: 1.5 is not a number from 0 to 1"),
    ({"local_ratio": float("nan")}, "local_ratio", "nan"),
    ({"continuous_actions": 1}, "continuous_actions", "True or False"),
    ({"num_agent_neighbors": 0}, "num_agent_neighbors", "null (all) or an integer of at least 1"),
    ({"num_agent": 3}, "num_agent", "did you mean num_agents?"),
    ({"N": 3}, "N", "is called num_agents here"),
])  # fmt: skip
def test_a_wrong_setting_is_named(backend: str, settings: dict, key: str, words: str) -> None:
    ((got, message),) = validate_settings("simple_spread", backend, settings)
    assert got == key and words in message and "\n" not in message
    with pytest.raises(TaskError) as error:
        make_env("simple_spread", backend, settings, 1)
    assert error.value.key == key and str(error.value) == message


def test_all_faults_are_reported_together() -> None:
    faults = validate_settings("simple_spread", "batched", {"num_agents": 0, "speed": 1, "local_ratio": -1})
    assert {key for key, _ in faults} == {"num_agents", "speed", "local_ratio"}


@pytest.mark.parametrize("env_id, backend, key, words", [
    ("simple_spred", "batched", "env_id", "did you mean simple_spread?"),
    ("qqqq", "mpe2", "env_id", "known: collect_treasure"),
    ("simple_tag", "batched", "env_backend", "use env_backend: mpe2"),
    ("pettingzoo:a:b", "batched", "env_backend", "use env_backend: pettingzoo"),
    ("simple_spread", "fast", "env_backend", "'fast' is not one of batched, mpe2, pettingzoo"),
    ("pettingzoo:", "pettingzoo", "env_id", "pettingzoo:module:function"),
    ("pettingzoo:a:b:c", "pettingzoo", "env_id", "pettingzoo:module:function"),
    ("pettingzoo:no_such_module_at_all", "pettingzoo", "env_id", "No module named 'no_such_module_at_all'"),
    ("pettingzoo:mpe2.simple_v3:nothing", "pettingzoo", "env_id", "mpe2.simple_v3 has no function nothing"),
    ("pettingzoo:mpe2.simple_v3:__name__", "pettingzoo", "env_id", "has no function __name__"),
])  # fmt: skip
def test_a_wrong_task_is_named(env_id: str, backend: str, key: str, words: str) -> None:
    ((got, message),) = validate_settings(env_id, backend, {})
    assert got == key and words in message and "\n" not in message


@pytest.mark.parametrize("backend", ["batched", "mpe2"])
def test_when_a_stage_begins_is_no_setting_of_the_task(backend: str) -> None:
    """The runner counts steps and calls ``set_stage``."""
    ((key, _),) = validate_settings("simple_spread", backend, {"curriculum_advance_at": [1000]})
    assert key == "curriculum_advance_at"


def test_every_setting_reaches_the_batched_task() -> None:
    given = {
        "num_agents": 4, "max_cycles": 7, "local_ratio": 0.25, "continuous_actions": True,
        "terminate_on_success": True, "num_agent_neighbors": 2, "num_landmark_neighbors": 3, "curriculum": True,
    }  # fmt: skip
    env = make_env("simple_spread", "batched", given, 6, dtype=torch.float64, auto_reset=False)
    assert env.spec.settings == given and set(given) == set(TASKS["simple_spread"].settings)
    assert env.num_envs == 6 and env.dtype == torch.float64 and not env.auto_reset
    assert env.spec.num_agents == 4 and env.spec.max_cycles == 7 and env.spec.action.kind == "continuous"
    assert env.spec.layout.landmarks.count == 3 and env.spec.layout.agents.count == 2
    assert env.reset(0).shape == (6, 4, 4 + 6 + 4 + 4)


def test_a_task_without_a_batched_version_is_made_in_workers_with_its_own_settings() -> None:
    env = make_env("simple_spread", "mpe2", {"num_agents": 2, "max_cycles": 3}, 2, num_workers=1)
    try:
        assert env.spec.num_agents == 2 and env.spec.max_cycles == 3 and env.spec.backend == "mpe2"
        assert env.spec.settings == resolve_settings("simple_spread", {"num_agents": 2, "max_cycles": 3})
        ends = []
        env.reset(0)
        for _ in range(3):
            ends.append(env.step(torch.zeros(2, 2, dtype=torch.int64)).truncated.all().item())
        assert ends == [False, False, True]
    finally:
        env.close()


def test_no_copies_is_an_error() -> None:
    with pytest.raises(TaskError, match="num_envs: 0"):
        make_env("simple_spread", "batched", {}, 0)


def test_settings_that_were_not_given_are_the_original_makers() -> None:
    env = make_env("simple_formation", "mpe2", {"max_cycles": 3}, 1, num_workers=0)
    try:
        assert env.spec.settings["num_agents"] == 4 == env.spec.num_agents
        assert env.spec.settings["max_cycles"] == 3 and env.spec.settings["terminate_on_success"] is False
    finally:
        env.close()
