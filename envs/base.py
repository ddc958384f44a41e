"""What a task is: the one protocol that every environment, batched or in worker processes, meets.

A task is a batch. All tensors are ``[num_envs, num_agents, ...]`` on one device; a single environment is a
batch of one, so a runner cannot tell the batched MPE from PettingZoo copies in worker processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch


class TaskError(ValueError):
    """A task or one of its settings cannot be used; ``key`` names the configuration key at fault."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class EnvironmentFault(RuntimeError):
    """An environment misbehaved while running (raised, hung, died, returned a wrong shape or a NaN)."""


@dataclass(frozen=True)
class ActionSpec:
    """Actions of one agent.

    kind: ``"discrete"`` (actions are int64 ``[E, N]``) or ``"continuous"`` (float ``[E, N, size]``).
    size: number of choices, or number of action dimensions; the largest over the agents.
    sizes: the same for each agent; a smaller one than ``size`` is masked (discrete) or ignored (continuous).
    low, high: bounds of a continuous action, one per dimension (empty where discrete).
    """

    kind: str
    size: int
    sizes: tuple[int, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class EntityGroup:
    """``count`` entities of ``size`` numbers each, from index ``start`` of an observation on."""

    start: int
    count: int
    size: int

    @property
    def stop(self) -> int:
        return self.start + self.count * self.size


@dataclass(frozen=True)
class ObservationLayout:
    """Which slice of an agent's observation is what; positions of entities are relative to the agent.

    own: the agent's own features (MPE: velocity, position). padded: entities may be zero-padded
    (``num_*_neighbors`` larger than what exists), then an all-zero slot is "no entity".
    square: the whole observation is pairs (x, y), the actions are MPE's (nothing, left, right, down, up), and turning
    the plane by quarter turns or mirroring it changes neither how the task moves on nor its rewards.
    """

    own: EntityGroup
    landmarks: EntityGroup
    agents: EntityGroup
    communication: EntityGroup | None = None
    padded: bool = False
    square: bool = False


@dataclass(frozen=True)
class Geometry:
    """What the behaviour metrics need to know of a task that has positions.

    agent_radii: one radius per agent, for contacts (distance < sum of radii).
    num_goals: goals (simple_spread: landmarks); 0 where the task names none.
    goal_radius: a goal is covered by an agent nearer than this; None without goals.
    own_goals: goal ``i`` belongs to agent ``i`` (else any agent covers any goal).
    has_success: every goal covered = success.
    """

    agent_radii: tuple[float, ...]
    num_goals: int = 0
    goal_radius: float | None = None
    own_goals: bool = False
    has_success: bool = False


@dataclass(frozen=True)
class TaskSpec:
    """Everything about a task that does not change while it runs."""

    env_id: str
    backend: str  # "batched" | "pettingzoo" (mpe2 through PettingZoo says "mpe2")
    package: str  # what defines the task, e.g. "mpe2"
    package_version: str
    agents: tuple[str, ...]
    roles: tuple[str, ...]  # one per agent
    score_role: str
    obs_sizes: tuple[int, ...]  # true size per agent; smaller ones are zero-padded to obs_size
    action: ActionSpec
    max_cycles: int | None  # None: the task has no time limit that we know
    shared_reward: bool  # every agent of every role always gets the same reward
    layout: ObservationLayout | None = None
    geometry: Geometry | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # resolved task settings

    @property
    def num_agents(self) -> int:
        return len(self.agents)

    @property
    def obs_size(self) -> int:
        return max(self.obs_sizes)


class Step(NamedTuple):
    """One step of the batch.

    obs: ``[E, N, O]`` what to act on next (after auto-reset where an episode ended).
    reward: ``[E, N]``. terminated, truncated: bool ``[E]``; never both true for one environment.
    final_obs: ``[E, N, O]`` the true last observation, before auto-reset (rows of running episodes equal
        ``obs``), or None where it is known without looking at the device that no episode ended.
    """

    obs: torch.Tensor
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    final_obs: torch.Tensor | None


class Scene(NamedTuple):
    """Where everything is, in task units: positions and velocities of agents, positions of goals."""

    agent_pos: torch.Tensor  # [E, N, 2]
    agent_vel: torch.Tensor  # [E, N, 2]
    goal_pos: torch.Tensor  # [E, G, 2]


class BatchEnv(ABC):
    """``num_envs`` copies of one task, stepped together."""

    spec: TaskSpec
    num_envs: int
    device: torch.device
    dtype: torch.dtype
    auto_reset: bool

    @abstractmethod
    def reset(self, seed: int, first_env: int = 0) -> torch.Tensor:
        """Start all copies at episode 0 and return observations ``[E, N, O]``.

        The start of copy ``i``'s episode ``k`` depends on ``(seed, first_env + i, k)`` alone.
        """

    @abstractmethod
    def step(self, actions: torch.Tensor) -> Step:
        """Advance every copy by one step. Actions: see ``ActionSpec``.

        With ``auto_reset`` an ended episode is replaced by the copy's next one at once. Without it the world
        simply goes on (evaluation ignores what follows the end of an episode).
        """

    def scene(self) -> Scene | None:
        """Current positions (only meaningful between steps of an env without auto-reset), or None."""
        return None

    def set_stage(self, stage: int) -> None:
        """Set the curriculum stage from the next step on; a no-op for a task without a curriculum."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit: tensors and plain Python values only."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> torch.Tensor:
        """Restore ``state_dict`` and return the current observations ``[E, N, O]``."""

    def close(self) -> None:
        """Release processes and memory. Safe to call twice."""
