"""benchmarks/time_to_threshold.py: which checkpoints count, when a threshold is reached; the scan is mpe2's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from timed_checkpoints import Judge, Point, confirmed, first_pair, on_grid  # noqa: E402

from envs.mpe.simple_spread import BatchedSimpleSpread  # noqa: E402
from navrl.algorithms.mappo import MAPPO  # noqa: E402
from navrl.checkpoint import CheckpointStore  # noqa: E402
from navrl.config import Config, dump  # noqa: E402


def curve(*rewards: float) -> list[Point]:
    return [Point("", float(i), i, {"episode_reward": reward}) for i, reward in enumerate(rewards)]


@pytest.mark.parametrize(("clocks", "spacing", "chosen"), [
    ([1.0, 2.0, 4.0, 7.5], 3, [2.0, 4.0, 7.5]),  # at 3, 6, 9 s
    ([3.0, 3.1, 5.9, 6.0], 3, [3.0, 6.0]),  # one that is there at the very second counts
    ([10.0, 11.0], 3, [11.0]),  # none at 3, 6, 9 s
    ([2.0, 11.0], 3, [2.0, 11.0]),  # the same at 3, 6 and 9 s: once, so that it is no pair with itself
    ([], 3, []),
])  # fmt: skip
def test_the_newest_checkpoint_at_each_tick(clocks: list[float], spacing: int, chosen: list[float]) -> None:
    points = [Point("", clock, 0) for clock in clocks]
    assert [point.clock for point in on_grid(points, spacing)] == chosen


@pytest.mark.parametrize(("rewards", "index"), [
    ((-12.0, -9.0, -11.0, -10.0, -9.5), 3), ((-9.0, -9.0), 0), ((-12.0, -9.0), None), ((-9.0,), None), ((), None),
])  # fmt: skip
def test_two_in_a_row_reach_a_threshold(rewards: tuple[float, ...], index: int | None) -> None:
    assert first_pair(curve(*rewards), -10.0) == index


def test_mpe2_has_the_last_word() -> None:
    points, asked = curve(-12.0, -9.9, -9.8, -9.0, -8.0, -7.0), []
    truth = {1: -10.1, 2: -9.8, 3: -9.0}

    def measure(point: Point) -> dict[str, float]:
        asked.append(point.step)
        return {"episode_reward": truth.get(point.step, point.scanned["episode_reward"])}

    assert confirmed(points, -10.0, measure) == 2
    assert sorted(asked) == [0, 1, 2, 3]  # the scan's pair with the one before it, then that of mpe2


def test_a_pair_that_mpe2_finds_earlier_counts() -> None:
    points = curve(-12.0, -10.001, -9.8, -9.0)
    assert confirmed(points, -10.0, lambda point: {"episode_reward": point.scanned["episode_reward"] + 0.01}) == 1


def test_the_scan_plays_the_very_episodes_of_mpe2(tmp_path: Path) -> None:
    config = Config(logger=(), log_wandb=False)
    algorithm = MAPPO(BatchedSimpleSpread(1).spec, config, torch.device("cpu"), 3)
    with torch.no_grad():  # an untrained policy hardly moves: a tie of rounding would decide what it does
        for parameter in algorithm.actor.parameters():
            parameter.mul_(3.0)
    state = {"config": dump(config), "runner": {"algorithm": algorithm.state_dict()}}
    file = CheckpointStore(tmp_path).save(state, step=1, episodes=1, score=None, best=False)
    judge = Judge(Point(str(file), 0.0, 1), 70)  # more than one batch of mpe2's copies
    try:
        scanned, original = judge.scan(Point(str(file), 0.0, 1)), judge.measure(Point(str(file), 0.0, 1))
    finally:
        judge.close()
    assert scanned == pytest.approx(original, abs=1e-3)
