"""Who is evaluated together: checkpoints and controllers that play one task, the same episodes each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from envs.base import TaskError, TaskSpec
from envs.mpe.controllers import CONTROLLERS, make_controller
from navrl.config import TASK_SETTINGS, Config
from navrl.faults import ConfigError, Fault, show
from navrl.tracking.fetch import is_reference
from runners.loading import config_of, misfit, read_checkpoint
from runners.policies import ControllerPolicy, LearnedPolicy, Policy
from runners.setup import make_algorithm

# What two checkpoints must agree in to play one task; the curriculum is no part of an evaluation.
TASK_KEYS = ("env_id", *(key for key in TASK_SETTINGS if key != "curriculum"))


@dataclass(frozen=True)
class Entrant:
    """title: unique among those it plays with. state: of its checkpoint; None: it is the controller ``title``."""

    title: str
    state: dict[str, Any] | None = None

    def config(self, changed: Mapping[str, Any]) -> Config:
        """The configuration in its checkpoint with the task settings ``changed``. Raises ConfigError."""
        try:
            return config_of(self.state, dict(changed))
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            where = ".".join(map(str, problem["loc"])) or "configuration"
            message = f"{self.title}: its {where} cannot be used: {problem['msg']}"
            raise ConfigError([Fault("checkpoint", message)]) from error

    def policy(self, changed: Mapping[str, Any], spec: TaskSpec, seed: int, sampled: bool) -> Policy:
        """Its policy for a task. seed: of a random controller, and of actions that are ``sampled``.

        Raises ConfigError where it does not fit the task.
        """
        if self.state is None:
            try:
                return ControllerPolicy(make_controller(self.title, spec, seed))
            except TaskError as error:
                raise ConfigError([Fault("policy", str(error).removeprefix("policy: "))]) from error
        algorithm = make_algorithm(self.config(changed), spec, torch.device("cpu"))
        try:
            algorithm.load_policy(self.state["runner"]["algorithm"])
        except (RuntimeError, KeyError, TypeError, ValueError, AttributeError) as error:
            message = f"{self.title} does not fit this task: {misfit(self.state, spec)}"
            raise ConfigError([Fault("checkpoint", message)]) from error
        return LearnedPolicy(algorithm, torch.Generator().manual_seed(seed) if sampled else None)


def checkpoints(sources: Sequence[str], which: str, settings: Mapping[str, Any]) -> list[Entrant]:
    """Those behind each file, run directory or tracker's reference, as ``read_checkpoint`` takes them. ConfigError."""
    names = titles(sources)
    return [Entrant(name, read_checkpoint(source, which, settings)[0]) for name, source in zip(names, sources)]


def titles(sources: Sequence[str]) -> list[str]:
    """For each source its shortest ending that no other and no controller has. ConfigError for one given twice."""
    parts = [[part for part in Path(source).parts if part != "checkpoints"] or [source] for source in sources]
    places = [_place(source) for source in sources]
    found = []
    for index, own in enumerate(parts):
        others = parts[:index] + parts[index + 1 :]
        if own in others or places[index] in places[:index]:
            raise ConfigError([Fault("checkpoint", f"{sources[index]} is given twice")])
        count = next(n for n in range(1, len(own) + 1) if n == len(own) or all(o[-n:] != own[-n:] for o in others))
        found.append("/".join(own[-count:]))
    short = [title.removesuffix(".pt") for title in found]
    plain = [brief if short.count(brief) == 1 else title for brief, title in zip(short, found)]
    return [f"{title} (checkpoint)" if title in CONTROLLERS else title for title in plain]


def _place(source: str) -> Path | str:
    """Where it is, however it was spelled; no path stays as it is."""
    if is_reference(source) or "\0" in source:
        return source
    place = Path(os.path.realpath(source))
    return place.parent if place.name == "checkpoints" else place


def one_task(entrants: Sequence[Entrant], changed: Mapping[str, Any]) -> Config:
    """The configuration under which these checkpoints play, that of the first.

    changed: task settings that were asked for; in these no two differ. Raises ConfigError where another checkpoint was
    trained on another task.
    """
    first, *others = [(entrant.title, entrant.config(changed)) for entrant in entrants]
    faults = []
    for title, config in others:
        for key in TASK_KEYS:
            here, there = getattr(first[1], key), getattr(config, key)
            if here != there:
                way = f"say which to play: --{key} {show(here)}" if key != "env_id" else "one table is of one task"
                faults.append(Fault("checkpoint", f"{title} was trained with {key} {show(there)}, {first[0]} with "
                                                  f"{show(here)}; {way}"))  # fmt: skip
    if faults:
        raise ConfigError(faults)
    return first[1]
