"""Whole evaluation episodes as arrays: what the metrics of layers 2 and 3 are computed from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from navrl.files import replacing


@dataclass
class Trajectories:
    """``E`` episodes of at most ``T`` steps with ``N`` agents and ``G`` goals.

    Index 0 of a state array is the reset state, index t the state after step t. Episodes are ragged: what lies
    beyond an episode's length is padding. It is overwritten here (rewards and actions by 0, states by the
    episode's last state), so nothing that is computed from the arrays can depend on it. Inputs are copied.

    rewards: ``[T, E, N]``, stored as float64.
    lengths: ``[E]`` steps of each episode, 1 … T, stored as int64.
    roles: role of each agent; score_role: the role that the plain metric names stand for.
    agent_pos, agent_vel: ``[T + 1, E, N, 2]`` in task units (and per time unit), stored as float64; None where the
        task has no positions.
    goal_pos: ``[T + 1, E, G, 2]``; None, or G = 0, where the task has no goals.
    agent_radii: ``[N]``; two agents are in contact when nearer than the sum of their radii.
    goal_radius: a goal is covered by an agent nearer than this.
    own_goals: goal ``i`` belongs to agent ``i`` (G ≤ N); else any agent covers any goal.
    has_success: the task's success test is "every goal is covered".
    actions: ``[T, E, N]`` or ``[T, E, N, A]`` as taken, or None.

    Raises ValueError for shapes that do not fit each other.
    """

    rewards: np.ndarray
    lengths: np.ndarray
    roles: tuple[str, ...]
    score_role: str
    agent_pos: np.ndarray | None = None
    agent_vel: np.ndarray | None = None
    goal_pos: np.ndarray | None = None
    agent_radii: np.ndarray | None = None
    goal_radius: float | None = None
    own_goals: bool = False
    has_success: bool = False
    actions: np.ndarray | None = None

    def __post_init__(self) -> None:
        self.rewards = np.array(self.rewards, dtype=np.float64)
        self.lengths = np.array(self.lengths, dtype=np.int64)
        self.roles = tuple(self.roles)
        if self.agent_radii is not None:
            self.agent_radii = np.array(self.agent_radii, dtype=np.float64)
        for name in ("agent_pos", "agent_vel", "goal_pos"):
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, np.asarray(value, dtype=np.float64))
        if self.actions is not None:
            self.actions = np.array(self.actions)
        self._check()
        self._overwrite_padding()

    @property
    def num_steps(self) -> int:
        """T, the longest episode that fits."""
        return self.rewards.shape[0]

    @property
    def num_episodes(self) -> int:
        return self.rewards.shape[1]

    @property
    def num_agents(self) -> int:
        return self.rewards.shape[2]

    @property
    def num_goals(self) -> int:
        return 0 if self.goal_pos is None else self.goal_pos.shape[2]

    @property
    def valid(self) -> np.ndarray:
        """bool ``[T, E]``: True where step t + 1 belongs to the episode."""
        return np.arange(self.num_steps)[:, None] < self.lengths

    def team(self, role: str) -> Trajectories:
        """The agents of one role alone, with all goals (own goals: those of these agents)."""
        agents = [index for index, name in enumerate(self.roles) if name == role]
        if not agents:
            raise ValueError(f"role: no agent has role {role!r}; roles are {sorted(set(self.roles))}")
        goals = [index for index in agents if index < self.num_goals] if self.own_goals else slice(None)

        def pick(array: np.ndarray | None, index: list[int] | slice = agents) -> np.ndarray | None:
            return None if array is None else array[:, :, index]

        goal_pos = pick(self.goal_pos, goals)
        return replace(
            self,
            rewards=self.rewards[:, :, agents],
            roles=tuple(self.roles[index] for index in agents),
            score_role=role,
            agent_pos=pick(self.agent_pos),
            agent_vel=pick(self.agent_vel),
            goal_pos=goal_pos,
            agent_radii=None if self.agent_radii is None else self.agent_radii[agents],
            has_success=self.has_success and goal_pos is not None and goal_pos.shape[2] > 0,
            actions=pick(self.actions),
        )

    def episodes(self, indices: Sequence[int]) -> Trajectories:
        """Some of the episodes, cut to the longest of them. IndexError where one does not exist."""
        index = np.asarray(indices, dtype=np.int64)
        steps = int(self.lengths[index].max(initial=0))

        def pick(array: np.ndarray | None, end: int) -> np.ndarray | None:
            return None if array is None else array[:end, index]

        return replace(
            self,
            rewards=self.rewards[:steps, index],
            lengths=self.lengths[index],
            agent_pos=pick(self.agent_pos, steps + 1),
            agent_vel=pick(self.agent_vel, steps + 1),
            goal_pos=pick(self.goal_pos, steps + 1),
            actions=pick(self.actions, steps),
        )

    def save_npz(self, path: str | Path, indices: Sequence[int] | None = None) -> None:
        """Write the episodes ``indices`` (default: all) to ``path``; whole or not at all. No pickled objects."""
        kept = self if indices is None else self.episodes(indices)
        fields = {name: getattr(kept, name) for name in self.__dataclass_fields__}
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, **{name: value for name, value in fields.items() if value is not None})

    def _check(self) -> None:
        if self.rewards.ndim != 3:
            raise ValueError(f"rewards: shape {self.rewards.shape}; expected [steps, episodes, agents]")
        steps, episodes, agents = self.rewards.shape
        if agents == 0 or len(self.roles) != agents:
            raise ValueError(f"roles: {len(self.roles)} for {agents} agents; give one role per agent")
        if self.score_role not in self.roles:
            raise ValueError(f"score_role: {self.score_role!r} is not one of the roles {sorted(set(self.roles))}")
        if self.lengths.shape != (episodes,):
            raise ValueError(f"lengths: shape {self.lengths.shape}; expected one per episode, ({episodes},)")
        if episodes and not (1 <= self.lengths.min() and self.lengths.max() <= steps):
            raise ValueError(f"lengths: from {self.lengths.min()} to {self.lengths.max()}; allowed are 1 to {steps}")
        for name, count in (("agent_pos", agents), ("agent_vel", agents), ("goal_pos", self.num_goals)):
            array, expected = getattr(self, name), (steps + 1, episodes, count, 2)
            if array is not None and array.shape != expected:
                raise ValueError(f"{name}: shape {array.shape}; expected {expected} (index 0 is the reset state)")
        if self.actions is not None and self.actions.shape[:3] + self.actions.shape[4:] != self.rewards.shape:
            raise ValueError(f"actions: shape {self.actions.shape}; expected {self.rewards.shape} or one more axis")
        if self.agent_pos is None and (self.agent_vel is not None or self.goal_pos is not None):
            raise ValueError("agent_pos: missing; velocities and goals are of use only with the agents' positions")
        if self.agent_pos is not None and (self.agent_radii is None or self.agent_radii.shape != (agents,)):
            raise ValueError(f"agent_radii: {self.agent_radii}; with positions give one radius per agent ({agents})")
        if self.num_goals and self.goal_radius is None:
            raise ValueError("goal_radius: missing; with goals say how near covers one")
        if self.own_goals and self.num_goals > agents:
            raise ValueError(f"own_goals: {self.num_goals} goals for {agents} agents; each goal must have its agent")
        if self.has_success and not self.num_goals:
            raise ValueError("has_success: true without goals; success is that every goal is covered")

    def _overwrite_padding(self) -> None:
        padding = ~self.valid
        self.rewards[padding] = 0.0
        if self.actions is not None:
            self.actions[padding] = 0
        state = np.minimum(np.arange(self.num_steps + 1)[:, None], self.lengths)  # [T + 1, E]
        episode = np.arange(self.num_episodes)
        for name in ("agent_pos", "agent_vel", "goal_pos"):
            array = getattr(self, name)
            if array is not None:
                setattr(self, name, array[state, episode])  # a copy


def load_npz(path: str | Path) -> Trajectories:
    """Read what ``save_npz`` wrote. ValueError naming the file where it is something else."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            fields = {name: stored[name] for name in Trajectories.__dataclass_fields__ if name in stored}
        fields["roles"] = tuple(str(role) for role in fields["roles"])
        fields["score_role"] = str(fields["score_role"])
        for name, kind in (("goal_radius", float), ("own_goals", bool), ("has_success", bool)):
            if name in fields:
                fields[name] = kind(fields[name])
        return Trajectories(**fields)
    except FileNotFoundError:
        raise
    except Exception as fault:  # zip, header and key errors alike mean: not ours
        raise ValueError(f"{path}: not a trajectory file of this project ({fault})") from fault


def per_role(
    trajectories: Trajectories, metrics: Callable[[Trajectories], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Apply ``metrics`` to each role's agents alone: ``{role}/name`` for each of several roles, and the plain
    name for ``score_role``. With one role there are only plain names.
    """
    roles = list(dict.fromkeys(trajectories.roles))
    if len(roles) == 1:
        return metrics(trajectories)
    result: dict[str, np.ndarray] = {}
    for role in roles:
        values = metrics(trajectories.team(role))
        result.update({f"{role}/{name}": value for name, value in values.items()})
        if role == trajectories.score_role:
            result.update(values)
    return result
