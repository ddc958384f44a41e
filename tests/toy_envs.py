"""Small PettingZoo environments of the tests' own: one that works, and one per way to misbehave.

Each is one function, named as ``toy_envs:function``; worker processes import this file as the tests do.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from pettingzoo import ParallelEnv


class Counter(ParallelEnv):
    """Observes ``[start, step, last action]``, the start drawn from the seed; reward = action; ends at ``length``."""

    metadata: dict[str, Any] = {"name": "counter"}

    def __init__(
        self,
        agents: tuple[str, ...] = ("agent_0", "agent_1"),
        length: int = 5,
        observations: Any = None,
        actions: Any = None,
        ends: str = "truncation",
    ) -> None:
        self.possible_agents = list(agents)
        self.length = length
        self.max_cycles = length
        self.ends = ends
        self._observation_spaces = observations or {a: Box(-np.inf, np.inf, (3,), np.float32) for a in agents}
        self._action_spaces = actions or {a: Discrete(4) for a in agents}

    def observation_space(self, agent: str) -> Any:
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents = self.possible_agents[:]
        self.start = float(np.random.default_rng(seed).uniform())
        self.count = 0
        return {a: self.observe(a, 0.0) for a in self.agents}, {a: {} for a in self.agents}

    def observe(self, agent: str, action: float) -> Any:
        return np.array([self.start, self.count, action], np.float32)

    def reward(self, agent: str, action: Any) -> Any:
        return float(np.sum(action))

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        self.count += 1
        end = self.count >= self.length
        agents = self.agents
        observations = {a: self.observe(a, float(np.sum(actions[a]))) for a in agents}
        rewards = {a: self.reward(a, actions[a]) for a in agents}
        terminations = {a: end and self.ends == "termination" for a in agents}
        truncations = {a: end and self.ends == "truncation" for a in agents}
        if end:
            self.agents = []
        return observations, rewards, terminations, truncations, {a: {} for a in agents}


def counter(**kwargs: Any) -> Counter:
    return Counter(**kwargs)


def mixed_ends() -> Counter:
    """At the end one agent terminates while the other is truncated."""

    class Mixed(Counter):
        def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
            obs, rewards, terms, truncs, infos = super().step(actions)
            if not self.agents:
                terms["agent_0"], truncs["agent_0"] = True, False
            return obs, rewards, terms, truncs, infos

    return Mixed()


def unequal() -> Counter:
    """Speaker with 3 choices and listener with 5; observations of 2 x 2 and of one in 3."""

    class Unequal(Counter):
        def observe(self, agent: str, action: float) -> Any:
            return np.full((2, 2), self.count + 1, np.float64) if agent == "speaker_0" else 7 + self.count % 3

    agents = ("speaker_0", "listener_12")
    return Unequal(
        agents,
        observations={agents[0]: Box(0, 99, (2, 2), np.float64), agents[1]: Discrete(3, start=7)},
        actions={agents[0]: Discrete(3, start=10), agents[1]: Discrete(5)},
    )


def continuous() -> Counter:
    """Reward is the sum of the action as it arrives; a 2-dimensional and a 1-dimensional action."""
    agents = ("agent_0", "agent_1")
    return Counter(agents, actions={agents[0]: Box(-1, 2, (2,), np.float32), agents[1]: Box(-1, 2, (1,), np.float32)})


def bits() -> Counter:
    class Bits(Counter):
        def observe(self, agent: str, action: float) -> Any:
            return np.array([1, 0, 1, self.count % 2], np.int8)

    return Bits(observations={a: MultiBinary(4) for a in ("agent_0", "agent_1")})


def staged() -> Counter:
    """Reward is the curriculum stage."""

    class Staged(Counter):
        stage = 0

        def set_curriculum_stage(self, stage: int) -> None:
            self.stage = stage

        def reward(self, agent: str, action: Any) -> Any:
            return float(self.stage)

    return Staged()


def noisy() -> Counter:
    """Prints at every reset."""

    class Noisy(Counter):
        def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
            print("noise", flush=True)
            return super().reset(seed, options)

    return Noisy()


def without_torch() -> Counter:
    """Cannot be built where torch has been imported."""
    if "torch" in sys.modules:
        raise RuntimeError("torch was imported in a worker")
    return Counter()


# ---- refused at construction ---------------------------------------------------------------------------------


def _with(observation: Any = None, action: Any = None) -> Counter:
    agents = ("agent_0", "agent_1")
    plain_observation, plain_action = Box(-1, 1, (3,), np.float32), Discrete(4)
    return Counter(
        agents,
        observations={agents[0]: plain_observation, agents[1]: observation or plain_observation},
        actions={agents[0]: plain_action, agents[1]: action or plain_action},
    )


def observes_dict() -> Counter:
    return _with(observation=Dict({"a": Discrete(2)}))


def observes_image() -> Counter:
    return _with(observation=Box(0, 255, (64, 64, 3), np.uint8))


def acts_multi_discrete() -> Counter:
    return _with(action=MultiDiscrete([2, 3]))


def acts_mixed() -> Counter:
    return _with(action=Box(-1, 1, (2,), np.float32))


def acts_unbounded() -> Counter:
    agents = ("agent_0", "agent_1")
    return Counter(agents, actions={a: Box(-np.inf, 1, (2,), np.float32) for a in agents})


def acts_in_different_bounds() -> Counter:
    agents = ("agent_0", "agent_1")
    return Counter(agents, actions={a: Box(-1, 1 + i, (2,), np.float32) for i, a in enumerate(agents)})


def late_agent() -> Counter:
    class Late(Counter):
        def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
            result = super().reset(seed, options)
            self.agents = ["agent_0"]
            return result

    return Late()


def old_generator() -> Counter:
    """Draws its start from numpy's RandomState, which takes seeds of at most 32 bits."""

    class Old(Counter):
        def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
            super().reset(seed, options)
            self.start = float(np.random.RandomState(seed).uniform())
            return {a: self.observe(a, 0.0) for a in self.agents}, {a: {} for a in self.agents}

    return Old()


def broken_constructor() -> Counter:
    raise AssertionError("no luck today")


# ---- faults while running, at step 3 of an episode -----------------------------------------------------------


class Faulty(Counter):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def observe(self, agent: str, action: float) -> Any:
        value = super().observe(agent, action)
        if self.count < 3 or agent != "agent_1":
            return value
        if self.fault == "shape":
            return value[:2]
        if self.fault == "dtype":
            return value.astype(np.complex64)
        if self.fault == "text":
            return np.array(["a", "b", "c"])
        if self.fault == "nan observation":
            return value * np.float32(np.nan)
        return value

    def reward(self, agent: str, action: Any) -> Any:
        if self.count >= 3 and agent == "agent_1":
            if self.fault == "nan reward":
                return float("nan")
            if self.fault == "vector reward":
                return np.zeros(2)
            if self.fault == "text reward":
                return "lots"
        return super().reward(agent, action)

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        if self.count >= 2:
            if self.fault == "raise":
                raise KeyError("a bug in the task")
            if self.fault == "exit":
                sys.exit(3)
            if self.fault == "hang":
                while True:
                    time.sleep(0.01)
            if self.fault == "busy":
                while True:
                    pass
            if self.fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == "exit now":
                os._exit(7)
        observations, rewards, terminations, truncations, infos = super().step(actions)
        if self.count == 3:
            if self.fault == "agent dies":
                terminations["agent_1"] = True
                self.agents = ["agent_0"]
            if self.fault == "agent vanishes":
                self.agents = ["agent_0"]
            if self.fault == "agent appears":
                self.agents = ["agent_0", "agent_1", "agent_2"]
            if self.fault == "no observation":
                del observations["agent_1"]
            if self.fault == "no reward":
                del rewards["agent_1"]
            if self.fault == "no flag":
                del truncations["agent_1"]
        return observations, rewards, terminations, truncations, infos


def faulty(fault: str) -> Faulty:
    return Faulty(fault)


def slow(seconds: float) -> Counter:
    class Slow(Counter):
        def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
            time.sleep(seconds)
            return super().step(actions)

    return Slow()


def deaf(**kwargs: Any) -> Counter:
    """Its close never returns."""

    class Deaf(Counter):
        def close(self) -> None:
            time.sleep(1000)

    return Deaf(**kwargs)
