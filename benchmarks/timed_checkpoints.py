"""Checkpoints of a finished run on a wall-clock grid, evaluated on episodes that no run knows; not a program.

Used by time_to_threshold.py. mpe2 takes seconds an evaluation, so all checkpoints are scanned on the batched task, from
mpe2's own start states and in its float64 (tests/test_batched_spread_equals_mpe2.py holds the two equal); whatever
decides when a threshold is reached is then measured on mpe2 itself.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from envs.base import BatchEnv, Scene
from envs.mpe.controllers import make_controller
from envs.mpe.reference import measured
from envs.mpe.simple_spread import BatchedSimpleSpread
from envs.registry import make_env
from envs.seeding import AFTERWARDS, stream_seed
from navrl.checkpoint import CheckpointStore, load
from runners import report
from runners.evaluation import evaluate
from runners.final import EVALUATION_SEED
from runners.loading import config_of
from runners.policies import ControllerPolicy, LearnedPolicy, Policy
from runners.setup import make_algorithm, make_evaluation_env

CPU = torch.device("cpu")
SHOWN = ("episode_reward", "success_rate", "collision_count")
Means = dict[str, float]  # SHOWN -> mean over episodes


@dataclass
class Point:
    """A checkpoint on the grid.

    clock: seconds from the start of the run's process to the file's appearance. step: environment steps.
    scanned: means on the batched task. original: means on mpe2, where they were asked for, else empty.
    """

    file: str
    clock: float
    step: int
    scanned: Means = field(default_factory=dict)
    original: Means = field(default_factory=dict)

    @property
    def reward(self) -> float:
        """Mean episode reward (scale A), on mpe2 where that is known."""
        return (self.original or self.scanned)["episode_reward"]


def timed(run_dir: Path, started: float) -> list[Point]:
    """Every checkpoint of a run, oldest first. started: when its process began, in seconds since 1970."""
    store = CheckpointStore(run_dir / "checkpoints")
    files = [(store.directory / entry.file, entry.step) for entry in store.entries]
    points = [Point(str(file), file.stat().st_mtime - started, step) for file, step in files]
    return sorted(points, key=lambda point: point.clock)


def on_grid(points: Sequence[Point], spacing: float) -> list[Point]:
    """Of ``points`` (rising clocks) the newest at each multiple of ``spacing`` seconds, each once, up to the last."""
    clocks = [point.clock for point in points]
    ticks = range(1, math.ceil(clocks[-1] / spacing) + 1) if clocks else ()
    chosen = (bisect.bisect_right(clocks, tick * spacing) - 1 for tick in ticks)
    return [points[index] for index in dict.fromkeys(chosen) if index >= 0]


def first_pair(points: Sequence[Point], threshold: float) -> int | None:
    """Index of the first of two points in a row at or above the threshold; None where there are no two."""
    reached = [point.reward >= threshold for point in points]
    return next((i for i in range(len(reached) - 1) if reached[i] and reached[i + 1]), None)


def confirmed(points: Sequence[Point], threshold: float, measure: Callable[[Point], Means]) -> int | None:
    """``first_pair`` by mpe2's numbers for that pair and for the point before it, which fails.

    measure: fills in ``original``. What it says may move the pair; then the new one is measured too.
    """
    while (index := first_pair(points, threshold)) is not None:
        unknown = [point for point in points[max(0, index - 1) : index + 2] if not point.original]
        if not unknown:
            return index
        for point in unknown:
            point.original = measure(point)
    return None


class SameStarts(BatchedSimpleSpread):
    """The batched task in float64, whose every reset puts all copies where ``starts`` (one row a copy) says."""

    def __init__(self, starts: Scene, settings: dict[str, Any]) -> None:
        self._starts = starts
        super().__init__(len(starts.agent_pos), settings, dtype=torch.float64, auto_reset=False)

    def reset(self, seed: int, first_env: int = 0) -> torch.Tensor:
        super().reset(seed, first_env)
        return self.set_state(*self._starts)


class Judge:
    """Evaluates checkpoints of the configuration of ``one``, deterministic actions, all on the same episodes."""

    def __init__(self, one: Point, episodes: int) -> None:
        config = config_of(load(one.file))
        self.episodes, self.seed = episodes, stream_seed(EVALUATION_SEED, AFTERWARDS)
        self.original = make_evaluation_env(config, CPU, episodes, original=True)
        self.batched = SameStarts(self._starts(), self.original.spec.settings)
        self.algorithm = make_algorithm(config, self.original.spec, CPU)

    def scan(self, point: Point) -> Means:
        """On the batched task."""
        return self._play(point, self.batched)

    def measure(self, point: Point) -> Means:
        """On mpe2 itself, as the final evaluation of a run does it."""
        return self._play(point, self.original)

    def luck(self) -> str:
        """How hard these episodes happen to be, in a line: what the reference controller scores on them."""
        spec = self.batched.spec
        here = self._means(ControllerPolicy(make_controller("reference", spec)), self.batched)["episode_reward"]
        line, entry = f"the reference controller scores {here:.3f} in the {self.episodes} episodes", measured(spec)
        if entry is None:
            return line
        return line + " ({mean:.3f} ± {stderr:.3f} in {episodes} others)".format(**entry["reference"])

    def close(self) -> None:
        self.original.close()

    def _play(self, point: Point, env: BatchEnv) -> Means:
        self.algorithm.load_policy(load(point.file)["runner"]["algorithm"])
        return self._means(LearnedPolicy(self.algorithm), env)

    def _means(self, policy: Policy, env: BatchEnv) -> Means:
        row = report.row(evaluate(policy, env, self.episodes, self.seed), env.spec, "")
        return {name: row[name] for name in SHOWN}

    def _starts(self) -> Scene:
        """Where mpe2 starts each episode, float64."""
        copies = self.original.num_envs
        env = make_env(
            self.original.spec.env_id, "mpe2", self.original.spec.settings, copies, dtype=torch.float64,
            auto_reset=False, num_workers=0,
        )  # fmt: skip
        scenes = []
        for first in range(0, self.episodes, copies):
            env.reset(self.seed, first)
            scenes.append(env.scene())
        env.close()
        return Scene(*(torch.cat(parts)[: self.episodes] for parts in zip(*scenes)))
