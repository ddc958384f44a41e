"""Run health: watches every row of a run for signs that it goes wrong, and says each cause once.

A false alarm costs trust, so each rule asks for a clear and, where noise is normal, a lasting sign.
"""

from __future__ import annotations

import math
import numbers
import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

# Policy collapse: entropy below this share of its maximum, this many rows in a row, before this part of the run.
ENTROPY_SHARE = 0.05
ENTROPY_ROWS = 3
ENTROPY_UNTIL = 0.5

# Jumps: a value above its running median by a factor that grows with the spread of the recent rows, between these
# two. Below the floor nothing is said: small numbers jump without harm.
JUMP_FACTORS = (10.0, 100.0)
JUMP_SPREADS = 8.0  # robust standard deviations (of logarithms)
JUMP_WINDOW = 50  # rows
JUMP_HISTORY = 20  # rows needed before a level is known
JUMP_FLOORS = {"train/actor_grad_norm": 1.0, "train/critic_grad_norm": 1.0, "train/approx_kl": 0.05}

# A critic that explains nothing: this many rows in a row, over at least this part of the run.
UNEXPLAINED_ROWS = 10
UNEXPLAINED_SPAN = 0.05

# Reward and collisions rise together: over this many evaluations both climb (Kendall's tau against time), and the
# later half collides more than the earlier one by this factor and this many pair-steps an episode. The first part of
# a run does not count: agents that learn to meet at goals collide more than a random policy.
TREND_EVALUATIONS = 10
TREND_TAU = 0.65
TREND_FACTOR = 1.3
TREND_PAIR_STEPS = 0.5
TREND_FROM = 0.2


class HealthWarning(NamedTuple):
    """``cause``: a short fixed name, the same for every message of a rule; ``message``: one line for people."""

    cause: str
    message: str


class Health:
    """Watches the rows of one run.

    max_entropy: nats of the uniform policy (log of the number of actions); None where entropy has no natural zero
        (continuous actions), which switches the collapse rule off.
    """

    def __init__(self, max_entropy: float | None = None) -> None:
        self.max_entropy = max_entropy
        self._said: set[str] = set()
        self._low_entropy = 0  # rows in a row
        self._levels: dict[str, deque[float]] = {name: deque(maxlen=JUMP_WINDOW) for name in JUMP_FLOORS}
        self._unexplained: list[float] = []  # progress of each row of the present streak
        self._evaluations: deque[tuple[float, float]] = deque(maxlen=TREND_EVALUATIONS)  # reward, collisions

    def watch(self, row: Mapping[str, Any], step: int, progress: float) -> list[HealthWarning]:
        """Look at one row and return what is new.

        row: metrics as recorded: numbers, or "NaN", "Infinity", "-Infinity" as text; other values are passed over.
        step: environment steps. progress: part of the budget that is spent, 0 … 1.
        """
        numbers_of_row = {name: number for name, value in row.items() if (number := _number(value)) is not None}
        finite = {name: number for name, number in numbers_of_row.items() if math.isfinite(number)}
        found = [
            *self._not_finite(numbers_of_row),
            *self._entropy(finite.get("train/entropy"), progress),
            *(warning for name in JUMP_FLOORS for warning in self._jump(name, finite.get(name))),
            *self._explained_variance(finite.get("train/explained_variance"), progress),
            *self._trend(finite.get("eval/episode_reward"), finite.get("eval/collision_count"), progress),
        ]
        new = [warning for warning in found if warning.cause not in self._said]
        self._said.update(warning.cause for warning in new)
        return [warning._replace(message=f"step {step}: {warning.message}") for warning in new]

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on watching: plain Python values."""
        return {
            "said": sorted(self._said),
            "low_entropy": self._low_entropy,
            "levels": {name: list(values) for name, values in self._levels.items()},
            "unexplained": list(self._unexplained),
            "evaluations": [list(pair) for pair in self._evaluations],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._said = set(state["said"])
        self._low_entropy = int(state["low_entropy"])
        for name, values in self._levels.items():
            values.clear()
            values.extend(state["levels"].get(name, ()))
        self._unexplained = list(state["unexplained"])
        self._evaluations.clear()
        self._evaluations.extend((reward, collisions) for reward, collisions in state["evaluations"])

    def _not_finite(self, row: Mapping[str, float]) -> list[HealthWarning]:
        names = [name for name, value in row.items() if not math.isfinite(value)]
        if not names:
            return []
        shown = ", ".join(f"{name} = {row[name]}" for name in names[:5]) + (" …" if len(names) > 5 else "")
        return [HealthWarning("non_finite", f"not finite: {shown}; lower lr or max_grad_norm, and look at the rewards")]

    def _entropy(self, entropy: float | None, progress: float) -> list[HealthWarning]:
        if self.max_entropy is None or entropy is None:
            return []
        low = entropy < ENTROPY_SHARE * self.max_entropy and progress < ENTROPY_UNTIL
        self._low_entropy = self._low_entropy + 1 if low else 0
        if self._low_entropy < ENTROPY_ROWS:
            return []
        return [
            HealthWarning(
                "entropy_collapse",
                f"entropy {entropy:.3g} of at most {self.max_entropy:.3g} nats with {1 - progress:.0%} of the run to "
                "go: the policy has all but stopped exploring; raise entropy_coef or lower lr",
            )
        ]

    def _jump(self, name: str, value: float | None) -> list[HealthWarning]:
        if value is None:
            return []
        recent = self._levels[name]
        found = []
        level = statistics.median(recent) if len(recent) >= JUMP_HISTORY else None
        if level is not None and value > JUMP_FLOORS[name] and value > level * _jump_factor(recent):
            advice = "lower lr or ppo_epoch, or set target_kl" if name.endswith("kl") else "lower lr or max_grad_norm"
            short = name.split("/")[-1]
            found = [HealthWarning(short, f"{short} {value:.3g}, far above its running level {level:.3g}; {advice}")]
        recent.append(value)
        return found

    def _explained_variance(self, explained: float | None, progress: float) -> list[HealthWarning]:
        if explained is None:
            return []
        self._unexplained = [*self._unexplained, progress] if explained <= 0 else []
        rows = self._unexplained
        if len(rows) < UNEXPLAINED_ROWS or rows[-1] - rows[0] < UNEXPLAINED_SPAN:
            return []
        return [
            HealthWarning(
                "explained_variance",
                f"explained variance at or below 0 for {len(rows)} rows: the critic predicts returns no better than "
                "their mean; look at value_norm, lr and gamma",
            )
        ]

    def _trend(self, reward: float | None, collisions: float | None, progress: float) -> list[HealthWarning]:
        if reward is None or collisions is None or progress < TREND_FROM:
            return []
        self._evaluations.append((reward, collisions))
        if len(self._evaluations) < TREND_EVALUATIONS:
            return []
        rewards, counts = zip(*self._evaluations)
        half = TREND_EVALUATIONS // 2
        before, after = statistics.fmean(counts[:half]), statistics.fmean(counts[-half:])
        more = after >= TREND_FACTOR * before and after - before >= TREND_PAIR_STEPS
        if not (more and _kendall(rewards) >= TREND_TAU and _kendall(counts) >= TREND_TAU):
            return []
        return [
            HealthWarning(
                "reward_with_collisions",
                f"reward rises while collisions rise ({before:.3g} to {after:.3g} pair-steps an episode): the reward "
                "may pay for what you do not want; look at an evaluation episode, and at local_ratio",
            )
        ]


def _number(value: Any) -> float | None:
    """The value as a float, or None for what is no number (or an integer beyond the range of floats)."""
    if isinstance(value, str):
        return float(value) if value in ("NaN", "Infinity", "-Infinity") else None
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _jump_factor(recent: deque[float]) -> float:
    """How many times its median a value must be: e^(spreads of the recent logarithms), within ``JUMP_FACTORS``."""
    logs = [math.log(max(value, 1e-12)) for value in recent]
    middle = statistics.median(logs)
    # 1.4826 × the median absolute deviation estimates the standard deviation of a normal sample.
    spread = 1.4826 * statistics.median(abs(value - middle) for value in logs)
    low, high = JUMP_FACTORS
    return min(max(math.exp(min(JUMP_SPREADS * spread, 700.0)), low), high)


def _kendall(values: tuple[float, ...]) -> float:
    """Kendall's tau-a of a series against its order: share of rising pairs minus share of falling ones."""
    signs = [(b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1 :]]
    return statistics.fmean(signs)
