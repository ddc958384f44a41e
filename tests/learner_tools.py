"""What the tests of the learner share: configurations, task descriptions, a small task with ragged episodes."""

from __future__ import annotations

from typing import Any, Callable

import torch

from envs.base import ActionSpec, BatchEnv, Step, TaskSpec
from envs.mpe.simple_spread_spec import layout
from envs.seeding import uniform
from navrl.algorithms.mappo import MAPPO
from navrl.config import Config
from navrl.config_sources import load
from navrl.rollout import Rollout
from runners.on_policy import OnPolicyRunner

CPU = torch.device("cpu")


def learner_config(*flags: str, **changes: Any) -> Config:
    """The configuration that ``flags`` give; ``changes`` overrides single keys, unchecked. Critics are as wide as actors."""
    return load(list(flags), {}).config.model_copy(update={"critic_hidden_size": None} | changes)


def task_spec(
    num_agents: int = 3,
    obs_size: int = 6,
    action: ActionSpec | None = None,
    roles: tuple[str, ...] | None = None,
    **changes: Any,
) -> TaskSpec:
    """A task with 5 discrete actions, one role and rewards of each agent's own, unless told otherwise."""
    roles = roles or ("agent",) * num_agents
    values = {
        "env_id": "toy",
        "backend": "batched",
        "package": "tests",
        "package_version": "0",
        "agents": tuple(f"agent_{i}" for i in range(num_agents)),
        "roles": roles,
        "score_role": roles[0],
        "obs_sizes": (obs_size,) * num_agents,
        "action": action or ActionSpec("discrete", 5, (5,) * num_agents),
        "max_cycles": None,
        "shared_reward": False,
    }
    return TaskSpec(**(values | changes))


def box(num_agents: int = 3, size: int = 2) -> ActionSpec:
    return ActionSpec("continuous", size, (size,) * num_agents, (-1.0, 0.0, -2.0)[:size], (1.0, 1.0, 3.0)[:size])


def entity_spec(num_agents: int = 3, agents_seen: int | None = None, landmarks_seen: int | None = None) -> TaskSpec:
    """Observations laid out as those of simple_spread."""
    slices = layout(num_agents, agents_seen, landmarks_seen)
    return task_spec(num_agents, slices.communication.stop, layout=slices)


class RaggedTask(BatchEnv):
    """Copy e's episodes last ``lengths[e]`` steps; observations are uniform on [-1, 1], fresh at every step.

    ends: ``truncated``, ``terminated``, or ``mixed`` (episodes of a copy end in turn one way and the other).
    reward: called with (obs before, actions, true next obs, terminated) -> ``[E, N]``.
    """

    def __init__(
        self,
        lengths: list[int],
        spec: TaskSpec,
        reward: Callable[..., torch.Tensor],
        ends: str = "truncated",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.spec, self.num_envs, self.device, self.dtype, self.auto_reset = spec, len(lengths), CPU, dtype, True
        self.lengths, self.reward, self.ends = torch.tensor(lengths), reward, ends

    def reset(self, seed: int, first_env: int = 0) -> torch.Tensor:
        self.seed = seed
        self.elapsed = torch.zeros(self.num_envs, dtype=torch.int64)
        self.episode = torch.zeros(self.num_envs, dtype=torch.int64)
        self.obs = self._observe()
        return self.obs

    def _observe(self) -> torch.Tensor:
        numbers = self.spec.num_agents * self.spec.obs_size
        moment = self.episode * 1000 + self.elapsed
        flat = uniform(self.seed, torch.arange(self.num_envs), moment, numbers) * 2 - 1
        return flat.to(self.dtype).view(self.num_envs, self.spec.num_agents, self.spec.obs_size)

    def step(self, actions: torch.Tensor) -> Step:
        before = self.obs
        self.elapsed = self.elapsed + 1
        done = self.elapsed >= self.lengths
        kind = {"truncated": 0, "terminated": 1, "mixed": self.episode % 2}[self.ends]
        terminated = done & (torch.as_tensor(kind) == 1)
        final_obs = self._observe()
        reward = self.reward(before, actions, final_obs, terminated)
        self.elapsed = self.elapsed * ~done
        self.episode = self.episode + done
        self.obs = self._observe()
        return Step(self.obs, reward, terminated, done & ~terminated, final_obs)

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed, "elapsed": self.elapsed, "episode": self.episode}

    def load_state_dict(self, state: dict[str, Any]) -> torch.Tensor:
        self.seed, self.elapsed, self.episode = state["seed"], state["elapsed"], state["episode"]
        self.obs = self._observe()
        return self.obs


def no_reward(before: torch.Tensor, actions: torch.Tensor, after: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return torch.zeros(before.shape[:2], dtype=before.dtype)


def random_reward(before: torch.Tensor, actions: torch.Tensor, after: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Depends on what happened, differs between agents."""
    return after.sum(-1) + before[..., 0]


def learner(spec: TaskSpec, config: Config, seed: int = 0, dtype: torch.dtype = torch.float32) -> MAPPO:
    algorithm = MAPPO(spec, config, CPU, seed)
    algorithm.actor.to(dtype)
    algorithm.critic.to(dtype)
    return algorithm


def runner_for(algorithm: MAPPO, env: BatchEnv, length: int, seed: int = 0) -> OnPolicyRunner:
    """The real runner with rollouts of ``length`` steps, in the dtype of ``env`` (networks must have the same)."""
    algorithm.config = algorithm.config.model_copy(update={"rollout_length": length})
    runner = OnPolicyRunner(algorithm.config, env, algorithm, seed)
    memory = algorithm.config.hidden_size if algorithm.recurrent else None
    runner.rollout = Rollout(env.spec, env.num_envs, length, memory, CPU, env.dtype)
    if algorithm.recurrent:
        runner.hidden = runner.hidden.to(env.dtype)
        shape = (env.num_envs, algorithm.critic.rows, memory)
        runner.rollout.critic_hidden = torch.zeros(shape, dtype=env.dtype)
    return runner


def filled_rollout(algorithm: MAPPO, env: BatchEnv, length: int, seed: int = 0) -> Rollout:
    """One rollout, from the first steps of all copies on."""
    runner = runner_for(algorithm, env, length, seed)
    runner.collect()
    return runner.rollout
