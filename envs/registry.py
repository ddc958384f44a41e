"""Which tasks exist, which settings each takes, and how one is made.

Importing this module imports neither torch nor a task: a configuration is checked before either is needed.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    import torch

    from envs.base import BatchEnv

BACKENDS = ("batched", "mpe2", "pettingzoo")


@dataclass(frozen=True)
class Setting:
    """One setting of a batched task: its default, a test of a value, and in words what passes the test."""

    default: Any
    accepts: Callable[[Any], bool]
    allowed: str


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_share(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _flag(default: bool) -> Setting:
    return Setting(default, lambda value: isinstance(value, bool), "True or False")


def _count(default: int) -> Setting:
    return Setting(default, _is_count, "an integer of at least 1")


def _neighbors() -> Setting:
    return Setting(None, lambda value: value is None or _is_count(value), "null (all) or an integer of at least 1")


@dataclass(frozen=True)
class Task:
    """One short name: the PettingZoo module behind it, the batched version if there is one, and its settings.

    renamed: our configuration key -> the original constructor's argument. settings: of the batched version.
    """

    module: str
    batched: str | None = None  # "module:Class"
    renamed: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Setting] = field(default_factory=dict)


_NUM_AGENTS = {"num_agents": "N"}

TASKS: dict[str, Task] = {
    "simple_spread": Task(
        "mpe2.simple_spread_v3",
        batched="envs.mpe.simple_spread:BatchedSimpleSpread",
        renamed=_NUM_AGENTS,
        settings={
            "num_agents": _count(3),
            "max_cycles": _count(25),
            "local_ratio": Setting(0.5, _is_share, "a number from 0 to 1"),
            "continuous_actions": _flag(False),
            "terminate_on_success": _flag(False),
            "num_agent_neighbors": _neighbors(),
            "num_landmark_neighbors": _neighbors(),
            "curriculum": _flag(False),
        },
    ),
    "simple": Task("mpe2.simple_v3"),
    "simple_adversary": Task("mpe2.simple_adversary_v3"),
    "simple_crypto": Task("mpe2.simple_crypto_v3"),
    "simple_formation": Task("mpe2.simple_formation_v1", renamed=_NUM_AGENTS),
    "simple_line": Task("mpe2.simple_line_v1", renamed=_NUM_AGENTS),
    "simple_push": Task("mpe2.simple_push_v3"),
    "simple_reference": Task("mpe2.simple_reference_v3"),
    "simple_speaker_listener": Task("mpe2.simple_speaker_listener_v4"),
    "simple_tag": Task("mpe2.simple_tag_v3"),
    "simple_world_comm": Task("mpe2.simple_world_comm_v3"),
    "collect_treasure": Task("mpe2.collect_treasure_v1"),
}


def task_names() -> list[str]:
    """Every short name, sorted."""
    return sorted(TASKS)


def package_version(package: str) -> str:
    """Installed version of a distribution, ``"unknown"`` where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def resolve_settings(task: str, settings: dict[str, Any]) -> dict[str, Any]:
    """All settings of a batched task, defaults filled in. Raises ``TaskError`` for the first fault."""
    faults = _faults_of_batched(TASKS[task], settings)
    if faults:
        from envs.base import TaskError

        raise TaskError(faults[0][1], key=faults[0][0])
    return {name: settings.get(name, setting.default) for name, setting in TASKS[task].settings.items()}


def validate_settings(env_id: str, env_backend: str, settings: dict[str, Any]) -> list[tuple[str, str]]:
    """Every fault of a task's configuration as (key, message); empty where ``make_env`` will accept it.

    ``settings``: only the task settings that were given. Imports the task's package for the original
    backends (their constructor's signature is the list of settings), nothing for the batched one.
    """
    if env_backend not in BACKENDS:
        return [("env_backend", f"env_backend: {env_backend!r} is not one of {', '.join(BACKENDS)}")]
    if env_id.startswith("pettingzoo:"):
        if env_backend == "batched":
            return [("env_backend", f"env_backend: batched has no version of {env_id}; use env_backend: pettingzoo")]
        return _faults_of_original(env_id, {}, settings)
    task = TASKS.get(env_id)
    if task is None:
        return [("env_id", _unknown_task(env_id))]
    if env_backend == "batched":
        if task.batched is None:
            have = ", ".join(name for name in task_names() if TASKS[name].batched)
            return [(
                "env_backend",
                f"env_backend: batched has no version of {env_id} (it has: {have}); use env_backend: mpe2",
            )]  # fmt: skip
        return _faults_of_batched(task, settings)
    return _faults_of_original(env_id, task.settings, settings)


def make_env(
    env_id: str,
    env_backend: str,
    settings: dict[str, Any],
    num_envs: int,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    auto_reset: bool = True,
    num_workers: int | None = None,
    worker_timeout: float = 60.0,
) -> BatchEnv:
    """``num_envs`` copies of a task, ready for ``reset``.

    settings: task settings by configuration key. dtype: of observations and rewards, default float32.
    num_workers, worker_timeout (seconds): worker processes of the original backends; ignored by the batched one.
    Raises ``TaskError`` for the first fault that ``validate_settings`` would report.
    """
    import torch

    from envs.base import TaskError

    faults = validate_settings(env_id, env_backend, settings)
    if not faults and num_envs < 1:
        faults = [("num_envs", f"num_envs: {num_envs} is not an integer of at least 1")]
    if faults:
        raise TaskError(faults[0][1], key=faults[0][0])
    dtype = dtype or torch.float32
    if env_backend == "batched":
        module, _, name = TASKS[env_id].batched.partition(":")
        batched = getattr(importlib.import_module(module), name)
        return batched(num_envs, settings, device=device, dtype=dtype, auto_reset=auto_reset)

    from envs.pettingzoo import PettingZooEnv

    module, function = _original(env_id)
    renamed = TASKS[env_id].renamed if env_id in TASKS else {}
    return PettingZooEnv(
        module,
        function,
        {renamed.get(key, key): value for key, value in settings.items()},
        num_envs=num_envs,
        num_workers=num_workers,
        timeout=worker_timeout,
        auto_reset=auto_reset,
        device=device,
        dtype=dtype,
        env_id=env_id,
        backend=env_backend,
        settings={**_defaults_of_original(env_id), **settings},
    )


def _defaults_of_original(env_id: str) -> dict[str, Any]:
    """Values of the settings that were not given: the batched version's, so that both say the same, or the maker's."""
    task = TASKS.get(env_id)
    if task and task.settings:
        return {name: setting.default for name, setting in task.settings.items()}
    ours = {theirs: key for key, theirs in (task.renamed if task else {}).items()}
    arguments = _constructor_arguments(*_original(env_id)) or {}
    return {ours.get(name, name): value for name, value in arguments.items() if value is not inspect.Parameter.empty}


def _unknown_task(env_id: str) -> str:
    near = difflib.get_close_matches(env_id, TASKS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(task_names())}"
    return f"env_id: there is no task {env_id!r}; {hint} (any other: pettingzoo:module:function)"


def _unknown_setting(key: str, env_id: str, known: list[str]) -> tuple[str, str]:
    renamed = {theirs: ours for ours, theirs in (TASKS[env_id].renamed if env_id in TASKS else {}).items()}
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    if key in renamed:
        hint = f"{key} is called {renamed[key]} here; "
    return key, f"{key}: {env_id} has no such setting; {hint}it takes {', '.join(known) or 'none'}"


def _faults_of_values(table: dict[str, Setting], settings: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (key, f"{key}: {value!r} is not {table[key].allowed}")
        for key, value in settings.items()
        if key in table and not table[key].accepts(value)
    ]


def _faults_of_batched(task: Task, settings: dict[str, Any]) -> list[tuple[str, str]]:
    known = list(task.settings)
    name = next(name for name, other in TASKS.items() if other is task)
    unknown = [_unknown_setting(key, name, known) for key in settings if key not in known]
    return unknown + _faults_of_values(task.settings, settings)


def _faults_of_original(
    env_id: str, table: dict[str, Setting], settings: dict[str, Any]
) -> list[tuple[str, str]]:
    from envs.base import TaskError

    try:
        names = _constructor_arguments(*_original(env_id))
    except TaskError as error:
        return [(error.key or "env_id", str(error))]
    faults = _faults_of_values(table, settings)
    if names is None:  # **kwargs all the way: the constructor itself will have to judge
        return faults
    ours = {theirs: key for key, theirs in (TASKS[env_id].renamed if env_id in TASKS else {}).items()}
    known = [ours.get(name, name) for name in names]
    return [_unknown_setting(key, env_id, known) for key in settings if key not in known] + faults


def _original(env_id: str) -> tuple[str, str]:
    """Module and function that make one ``ParallelEnv``. Raises ``TaskError`` for a malformed address."""
    if not env_id.startswith("pettingzoo:"):
        return TASKS[env_id].module, "parallel_env"
    parts = env_id.split(":")[1:]
    if len(parts) > 2 or not all(parts):
        from envs.base import TaskError

        raise TaskError(f"env_id: {env_id!r} is not of the form pettingzoo:module:function", key="env_id")
    return parts[0], parts[1] if len(parts) == 2 else "parallel_env"


def _constructor_arguments(module: str, function: str) -> dict[str, Any] | None:
    """Keyword arguments of ``module.function`` and their defaults (or ``Parameter.empty``); None if it is not said.

    PettingZoo wraps constructors in ``parallel_env(**kwargs)``, which says nothing; then the module's
    ``raw_env`` is what receives them. Raises ``TaskError`` naming what cannot be imported or found.
    """
    from envs.base import TaskError

    address = f"pettingzoo:{module}:{function}"
    try:
        source = importlib.import_module(module)
    except Exception as error:  # whatever a third-party module raises while it is imported
        raise TaskError(
            f"env_id: {address} cannot be used: importing {module} failed with {type(error).__name__}: {error}",
            key="env_id",
        ) from error
    maker = getattr(source, function, None)
    if not callable(maker):
        raise TaskError(f"env_id: {address} cannot be used: {module} has no function {function}", key="env_id")
    for candidate in (maker, getattr(source, "raw_env", None)):
        if candidate is None:
            continue
        parameters = inspect.signature(candidate).parameters.values()
        if not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters):
            return {p.name: p.default for p in parameters if p.name != "render_mode"}
    return None
