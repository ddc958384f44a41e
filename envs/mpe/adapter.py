"""What PettingZoo's API hides of an mpe2 task: positions, the curriculum, the exact state of a running episode.

Imported by worker processes, so it imports no torch. Everything here reads and writes ``env.unwrapped``;
stepping and observing go through PettingZoo's API alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# Whose return is "the" score where no role is called "agent", or where the pursuers are what is trained
SCORE_ROLES = {
    "simple_tag": "adversary",
    "simple_world_comm": "adversary",
    "simple_speaker_listener": "listener",
    "simple_crypto": "bob",
    "collect_treasure": "collector",
}
_ALWAYS_SHARED = {"simple", "simple_speaker_listener", "simple_formation", "simple_line"}
_SHARED_WITHOUT_LOCAL = {"simple_spread", "simple_reference"}


@dataclass(frozen=True)
class WorldFacts:
    """Constants of one mpe2 task: its short name, agents' radii, number of goals, whether rewards are shared."""

    task: str
    radii: tuple[float, ...]
    num_goals: int
    shared_reward: bool
    num_agent_neighbors: int | None
    num_landmark_neighbors: int | None


def is_mpe2(env: Any) -> bool:
    raw = env.unwrapped
    return type(raw).__module__.startswith("mpe2.") and hasattr(raw, "world")


def facts(env: Any) -> WorldFacts:
    raw = env.unwrapped
    task = type(raw).__module__.rsplit(".", 1)[-1]
    agents = raw.world.agents
    shared = (
        task in _ALWAYS_SHARED or len(agents) == 1 or (task in _SHARED_WITHOUT_LOCAL and raw.local_ratio == 0)
    )
    return WorldFacts(
        task=task,
        radii=tuple(float(agent.size) for agent in agents),
        num_goals=len(raw.world.landmarks) if task == "simple_spread" else 0,
        shared_reward=shared,
        num_agent_neighbors=getattr(raw.scenario, "num_agent_neighbors", None),
        num_landmark_neighbors=getattr(raw.scenario, "num_landmark_neighbors", None),
    )


def repair_curriculum(env: Any) -> None:
    """Make ``set_curriculum_stage`` of a task with ``curriculum=True`` do what mpe2 documents; else leave it alone.

    A fault of mpe2 1.1.1: ``BaseScenario.curriculum_stage`` is a property whose setter does nothing, so that every
    scenario stays at stage 0 for ever. A plain attribute in its place is all that the scenarios need.
    """
    scenario = env.unwrapped.scenario
    if not getattr(scenario, "curriculum", False):
        return
    scenario.set_curriculum_stage(1)
    works = scenario.curriculum_stage == 1
    scenario.set_curriculum_stage(0)
    if not works:
        kind = type(scenario)
        scenario.__class__ = type(kind.__name__, (kind,), {"curriculum_stage": 0, "__module__": kind.__module__})


def write_scene(env: Any, agent_pos: np.ndarray, agent_vel: np.ndarray, goal_pos: np.ndarray) -> None:
    """Fill ``[N, 2]``, ``[N, 2]`` and ``[G, 2]`` (simple_spread: landmarks; other tasks: G = 0)."""
    world = env.unwrapped.world
    for j, agent in enumerate(world.agents):
        agent_pos[j] = agent.state.p_pos
        agent_vel[j] = agent.state.p_vel
    for j in range(len(goal_pos)):
        goal_pos[j] = world.landmarks[j].state.p_pos


def save(env: Any) -> str:
    """The running episode as JSON text (Python writes and reads every float64 exactly).

    An mpe2 environment cannot be copied or pickled for this: EzPickle rebuilds it from its constructor's
    arguments, which starts another episode without a word. So every attribute of the world, of its entities and
    of the scenario is written; an attribute of a kind that cannot be written raises TypeError.
    """
    raw = env.unwrapped
    entities = raw.world.entities
    index = {id(entity): i for i, entity in enumerate(entities)}
    state = {
        "steps": raw.steps,
        "np_random": _encode(raw.np_random, index),
        "world": {k: _encode(v, index) for k, v in vars(raw.world).items() if k not in ("agents", "landmarks")},
        "entities": [{k: _encode(v, index) for k, v in vars(entity).items()} for entity in entities],
        "scenario": {k: _encode(v, index) for k, v in vars(raw.scenario).items()},
    }
    return json.dumps(state, separators=(",", ":"))


def load(env: Any, text: str) -> None:
    """Put ``save``'s episode into an environment that was built with the same arguments and has just been reset.

    The reset leaves PettingZoo's own book-keeping (agents alive, whose turn) as it is between two joint steps.
    """
    raw = env.unwrapped
    state = json.loads(text)
    entities = raw.world.entities
    raw.steps = state["steps"]
    raw.np_random.bit_generator.state = state["np_random"]["generator"]
    _restore(raw.world, state["world"], entities)
    for entity, fields in zip(entities, state["entities"], strict=True):
        _restore(entity, fields, entities)
    _restore(raw.scenario, state["scenario"], entities)


def _encode(value: Any, entities: Mapping[int, int]) -> Any:
    """Plain JSON values stand for themselves; everything else is a one-key object that names its kind."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value.item() if isinstance(value, np.generic) else value  # np.float64 is a float too
    if isinstance(value, np.generic):
        return {"scalar": value.item(), "dtype": str(value.dtype)}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, np.random.Generator):
        return {"generator": value.bit_generator.state}
    if id(value) in entities:
        return {"entity": entities[id(value)]}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_encode(item, entities) for item in value]}
    if type(value).__module__.startswith("mpe2.") and hasattr(value, "__dict__"):  # EntityState, AgentState, Action
        return {"fields": {k: _encode(v, entities) for k, v in vars(value).items()}}
    raise TypeError(f"cannot save an attribute of type {type(value).__name__}")


def _restore(target: Any, fields: Mapping[str, Any], entities: list[Any]) -> None:
    for name, encoded in fields.items():
        setattr(target, name, _decode(encoded, getattr(target, name, None), entities))


def _decode(encoded: Any, current: Any, entities: list[Any]) -> Any:
    if not isinstance(encoded, dict):
        return encoded
    if "scalar" in encoded:
        return np.dtype(encoded["dtype"]).type(encoded["scalar"])
    if "array" in encoded:
        return np.array(encoded["array"], dtype=encoded["dtype"]).reshape(encoded["shape"])
    if "generator" in encoded:
        current.bit_generator.state = encoded["generator"]
        return current
    if "entity" in encoded:
        return entities[encoded["entity"]]
    if "fields" in encoded:
        _restore(current, encoded["fields"], entities)
        return current
    kind: Callable[[Any], Any] = list if "list" in encoded else tuple
    return kind(_decode(item, None, entities) for item in next(iter(encoded.values())))
