"""Any PettingZoo ``ParallelEnv`` as a batched task: many copies, stepped in worker processes."""

from __future__ import annotations

import os
import re
import weakref
from typing import Any

import numpy as np
import torch

from envs.base import (
    ActionSpec,
    BatchEnv,
    EnvironmentFault,
    Geometry,
    ObservationLayout,
    Scene,
    Step,
    TaskError,
    TaskSpec,
)
from envs.copies import CopyFault, Description, Refusal
from envs.mpe import adapter, simple_spread_spec
from envs.workers import LocalGroup, WorkerGroup

_COUNTERS = ("episode", "steps", "terminated", "truncated")
_NUMPY = {torch.float32: "float32", torch.float64: "float64"}


class PettingZooEnv(BatchEnv):
    """``num_envs`` copies of ``module.function(**kwargs)``, each an environment of PettingZoo's parallel API.

    num_workers: processes to step them in; None = one a core, 0 = none, all in this process.
    timeout: seconds after which a worker that finishes no call into any copy is hung (not with 0 workers).
    Agents are in ``possible_agents`` order; an agent's role is its name without a trailing ``_<number>``.
    Observations of fewer numbers than the largest are followed by zeros; a ``Discrete`` one is one-hot.
    All agents of an episode end together: terminated if any agent terminated, else truncated. Without
    ``auto_reset`` an ended copy stays as it was at its end, with reward 0, for the API cannot go further.
    Copy ``i``'s episode ``k`` starts with ``reset(seed=episode_seed(seed, first_env + i, k))``, of 63 bits for mpe2
    and of 32 for other tasks.

    exact_resume: ``state_dict`` holds running episodes exactly (mpe2); otherwise ``load_state_dict`` goes on at the
    start of the next episode of each copy that was amid one.

    Raises TaskError (``env_id``) for a task that cannot be used: not importable, refuses its arguments, unknown or
    mixed spaces, unbounded actions, agents that are not there from the start. Any later misbehaviour raises
    EnvironmentFault, which names copy, agent and step as far as known, and ends all workers.
    """

    def __init__(
        self,
        module: str,
        function: str,
        kwargs: dict[str, Any],
        *,
        num_envs: int,
        num_workers: int | None = None,
        timeout: float = 60.0,
        auto_reset: bool = True,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        env_id: str,
        backend: str,
        settings: dict[str, Any],
    ) -> None:
        if num_envs < 1:
            raise TaskError(f"num_envs is {num_envs}; at least 1 is needed", "num_envs")
        if dtype not in _NUMPY:
            raise ValueError(f"dtype is {dtype}; torch.float32 or torch.float64 can be used")
        self.num_envs = num_envs
        self.device = torch.device(device)
        self.dtype = dtype
        self.auto_reset = auto_reset
        workers = min(_cores() if num_workers is None else num_workers, num_envs)
        try:
            self._group: LocalGroup | WorkerGroup
            if workers == 0:
                self._group = LocalGroup(module, function, kwargs, num_envs)
            else:
                self._group = WorkerGroup(module, function, kwargs, num_envs, workers, timeout)
            # Also at interpreter exit, and where the object is dropped without a close
            self._closer = weakref.finalize(self, self._group.close)
            task = self._group.task
            self.exact_resume = task.exact_state
            self.spec = _spec(task, env_id, backend, settings)
            self._arrays = self._group.attach(_NUMPY[dtype], auto_reset)
        except Refusal as refusal:
            raise TaskError(f"{env_id} cannot be used: {refusal}", "env_id") from refusal
        except CopyFault as fault:
            raise EnvironmentFault(str(fault)) from fault
        self._sizes = torch.tensor(task.action_sizes)
        self._seed: tuple[int, int] | None = None
        self._stage: int | None = None
        self._gone: str | None = None  # why the workers no longer answer

    def reset(self, seed: int, first_env: int = 0) -> torch.Tensor:
        """See ``BatchEnv.reset``."""
        self._call("reset", seed, first_env)
        self._seed = (seed, first_env)
        return self._tensor("obs")

    def step(self, actions: torch.Tensor) -> Step:
        """See ``BatchEnv.step``. Continuous actions are clipped to the bounds.

        Raises ValueError for actions of a wrong shape or kind, not finite, or beyond an agent's choices.
        """
        if self._seed is None:
            raise RuntimeError("reset() must come before step()")
        self._arrays["actions"][...] = self._checked(actions.detach().cpu()).numpy()
        self._call("step")
        obs = self._tensor("obs")
        terminated, truncated = self._arrays["terminated"].copy(), self._arrays["truncated"].copy()
        ended = terminated | truncated
        final_obs = None
        if ended.any():
            final = self._arrays["obs"].copy()
            final[ended] = self._arrays["final_obs"][ended]
            final_obs = torch.from_numpy(final).to(self.device)
        return Step(
            obs,
            self._tensor("reward"),
            torch.from_numpy(terminated).to(self.device),
            torch.from_numpy(truncated).to(self.device),
            final_obs,
        )

    def scene(self) -> Scene | None:
        """See ``BatchEnv.scene``; None where the task is not mpe2's."""
        if self.spec.geometry is None:
            return None
        self._call("scene")
        return Scene(self._tensor("agent_pos"), self._tensor("agent_vel"), self._tensor("goal_pos"))

    def set_stage(self, stage: int) -> None:
        """Call ``set_curriculum_stage(stage)`` of every copy that has it."""
        self._call("stage", stage)
        self._stage = stage

    def state_dict(self) -> dict[str, Any]:
        """See ``BatchEnv.state_dict`` and ``exact_resume``. Raises RuntimeError before the first reset."""
        if self._seed is None:
            raise RuntimeError("reset() must come before state_dict()")
        worlds = [world for part in self._call("save") for world in part] if self.exact_resume else None
        counters = {name: torch.from_numpy(self._arrays[name].copy()) for name in _COUNTERS}
        return {
            "agents": list(self.spec.agents),
            "seed": self._seed[0],
            "first_env": self._seed[1],
            "stage": self._stage,
            "obs": torch.from_numpy(self._arrays["obs"].copy()),
            "worlds": worlds,
            **counters,
        }

    def load_state_dict(self, state: dict[str, Any]) -> torch.Tensor:
        """See ``BatchEnv.load_state_dict``. Raises ValueError where the state is of another task or batch size."""
        if state["agents"] != list(self.spec.agents) or tuple(state["obs"].shape) != self._arrays["obs"].shape:
            raise ValueError(
                f"this state is of agents {state['agents']} and observations {tuple(state['obs'].shape)}, the "
                f"environment has {list(self.spec.agents)} and {self._arrays['obs'].shape}"
            )
        worlds = state["worlds"] if self.exact_resume else None
        for name in ("obs", *_COUNTERS):
            self._arrays[name][...] = state[name].cpu().numpy()
        if worlds is None:
            # With auto-reset a copy at step 0 has not left its start: that very episode can be repeated
            self._arrays["episode"] += self._arrays["steps"] > 0
        if state["stage"] is not None:
            self.set_stage(state["stage"])
        parts = [None if worlds is None else worlds[a : a + n] for a, n in self._group.split()]
        self._call_each("load", [(state["seed"], state["first_env"], part) for part in parts])
        self._seed = (state["seed"], state["first_env"])
        return self._tensor("obs")

    def close(self) -> None:
        """End the workers and free their memory. Safe to call twice."""
        self._closer()
        self._gone = self._gone or "it was closed"

    def worker_pids(self) -> list[int]:
        """Process ids of the workers that run."""
        return self._group.pids()

    def _call(self, command: str, *arguments: Any) -> list[Any]:
        return self._call_each(command, [arguments] * len(self._group.split()))

    def _call_each(self, command: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        if self._gone is not None:
            raise EnvironmentFault(f"{self.spec.env_id} no longer runs: {self._gone}")
        try:
            return self._group.call_each(command, arguments)
        except CopyFault as fault:
            self._gone = str(fault)
            self._closer()
            raise EnvironmentFault(str(fault)) from None
        except BaseException as error:
            self._gone = f"{command} was interrupted by {type(error).__name__}"
            self._closer()
            raise

    def _tensor(self, name: str) -> torch.Tensor:
        # a copy: the workers write the next step into the same memory
        return torch.from_numpy(np.array(self._arrays[name])).to(self.device, self.dtype)

    def _checked(self, actions: torch.Tensor) -> torch.Tensor:
        if tuple(actions.shape) != self._arrays["actions"].shape:
            raise ValueError(f"actions have shape {tuple(actions.shape)}, expected {self._arrays['actions'].shape}")
        if self.spec.action.kind == "discrete":
            if actions.is_floating_point() or actions.is_complex() or actions.dtype == torch.bool:
                raise ValueError(f"actions have dtype {actions.dtype}, expected integers")
            wrong = (actions < 0) | (actions >= self._sizes)
            if wrong.any():
                copy, agent = wrong.nonzero()[0].tolist()
                raise ValueError(
                    f"action {int(actions[copy, agent])} of copy {copy}, agent {self.spec.agents[agent]} is none of "
                    f"its {self.spec.action.sizes[agent]} choices"
                )
        elif not torch.isfinite(actions).all():
            copy, agent = (~torch.isfinite(actions)).any(-1).nonzero()[0].tolist()
            raise ValueError(f"the action of copy {copy}, agent {self.spec.agents[agent]} is not finite")
        return actions


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def role(agent: str) -> str:
    """An agent's name without its trailing number: ``adversary_0`` -> ``adversary``."""
    return re.sub(r"_\d+$", "", agent)


def _spec(task: Description, env_id: str, backend: str, settings: dict[str, Any]) -> TaskSpec:
    roles = tuple(role(agent) for agent in task.agents)
    score_role = "agent" if "agent" in roles else roles[0]
    layout: ObservationLayout | None = None
    geometry: Geometry | None = None
    if task.world is not None:
        geometry = Geometry(agent_radii=task.world.radii)
        known = adapter.SCORE_ROLES.get(task.world.task)
        score_role = known if known in roles else score_role
        if task.world.task == "simple_spread":
            count = len(task.agents)
            geometry = simple_spread_spec.geometry(count)
            layout = simple_spread_spec.layout(
                count, task.world.num_agent_neighbors, task.world.num_landmark_neighbors
            )
    return TaskSpec(
        env_id=env_id,
        backend=backend,
        package=task.package,
        package_version=task.version,
        agents=task.agents,
        roles=roles,
        score_role=score_role,
        obs_sizes=task.obs_sizes,
        action=ActionSpec(task.action_kind, max(task.action_sizes), task.action_sizes, task.low, task.high),
        max_cycles=task.max_cycles,
        shared_reward=task.world is not None and task.world.shared_reward,
        layout=layout,
        geometry=geometry,
        settings=dict(settings),
    )
