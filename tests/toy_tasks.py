"""Small PettingZoo tasks to train on: one that can be solved, one of several roles, one that breaks late."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from toy_envs import Counter


class Guess(Counter):
    """Each agent sees a number from 0 to 3, another at every step, and gets 1 for naming it: at best 5 an episode."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.rng = np.random.default_rng(seed)
        self.told = dict.fromkeys(self.possible_agents, 0)
        return super().reset(seed, options)

    def observe(self, agent: str, action: float) -> Any:
        self.told[agent] = int(self.rng.integers(4))
        return np.eye(4, dtype=np.float32)[self.told[agent]]

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        self.asked = dict(self.told)
        return super().step(actions)

    def reward(self, agent: str, action: Any) -> float:
        return float(int(action) == self.asked[agent])


def guess() -> Guess:
    agents = ("agent_0", "agent_1")
    return Guess(agents, observations={a: Box(0, 1, (4,), np.float32) for a in agents})


class Colour(Enum):
    RED = np.float64(0.5)


def odd_defaults(
    colour: Any = Colour.RED, start: Any = np.array([1.0, np.inf]), make: Any = Counter, pay: Any = lambda x: x,
    thing: Any = object(), named: Any = {"a": (1, None)},
) -> Guess:
    """Its settings, none of them given, are values that a checkpoint must not hold as they are."""
    return guess()


def hunters_and_prey() -> Counter:
    """Two hunters are paid 1 a step, the prey -10, whatever they do; the prey has fewer actions and sees less."""

    class Roles(Counter):
        def reward(self, agent: str, action: Any) -> float:
            return -10.0 if agent.startswith("prey") else 1.0

        def observe(self, agent: str, action: float) -> Any:
            return super().observe(agent, action)[: 2 if agent.startswith("prey") else 3]

    agents = ("hunter_0", "hunter_1", "prey_0")
    return Roles(
        agents,
        observations={a: Box(-np.inf, np.inf, (2 if a == "prey_0" else 3,), np.float32) for a in agents},
        actions={a: Discrete(2 if a == "prey_0" else 4) for a in agents},
    )


class CountsEpisodes(Counter):
    """``episode`` is the number of the present one: 5 episodes in 25 steps, so the 12th is in the third rollout."""

    episode = 0

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.episode += 1
        return super().reset(seed, options)


def nan_in_third_iteration() -> Counter:
    """A reward that is not a number, at step 3 of the 12th episode."""

    class Late(CountsEpisodes):
        def reward(self, agent: str, action: Any) -> float:
            bad = self.episode == 12 and self.count == 3 and agent == "agent_1"
            return float("nan") if bad else super().reward(agent, action)

    return Late()


def raises_in_third_iteration() -> Counter:
    """A bug of the task's own, in its 12th episode."""

    class Raises(CountsEpisodes):
        def reward(self, agent: str, action: Any) -> float:
            if self.episode == 12:
                raise KeyError("a bug in the task")
            return super().reward(agent, action)

    return Raises()


def raises_at_second_reset() -> Counter:
    """A bug of the task's own, when the run begins: its first reset is the look at what it is."""

    class Raises(CountsEpisodes):
        def observe(self, agent: str, action: float) -> Any:
            if self.episode == 2:
                raise KeyError("a bug in reset")
            return super().observe(agent, action)

    return Raises()


# ---- health: tasks that change when 25 rollouts of 25 steps, 5 episodes each, are over


class GuessThenChange(Guess):
    """``late`` turns true with the 126th episode of a copy."""

    episode = 0

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.episode += 1
        return super().reset(seed, options)

    @property
    def late(self) -> bool:
        return self.episode > 125


def _guess_like(task: type[Guess]) -> Guess:
    agents = ("agent_0", "agent_1")
    return task(agents, observations={a: Box(-np.inf, np.inf, (4,), np.float32) for a in agents})


def _pays(late: float, early: float = 1.0) -> Guess:
    class Pays(GuessThenChange):
        def reward(self, agent: str, action: Any) -> float:
            return super().reward(agent, action) * (late if self.late else early)

    return _guess_like(Pays)


def _shows(late: float) -> Guess:
    class Shows(GuessThenChange):
        def observe(self, agent: str, action: float) -> Any:
            return super().observe(agent, action) * np.float32(late if self.late else 1.0)

    return _guess_like(Shows)


def pays_1000_times_more_later() -> Guess:
    return _pays(1000.0)


def pays_beyond_squares() -> Guess:
    """Finite rewards whose squares are beyond float32."""
    return _pays(1e25, early=1e25)


def shows_1000_times_more_later() -> Guess:
    return _shows(1000.0)


def shows_a_tenth_later() -> Guess:
    return _shows(0.1)


def pays_by_lot() -> Guess:
    """The reward has nothing to do with what is seen or done."""

    class Lot(Guess):
        def reward(self, agent: str, action: Any) -> float:
            return float(self.rng.normal())

    return _guess_like(Lot)
