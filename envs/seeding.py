"""Start states that depend on (seed, environment, episode) and on nothing else.

A counter-based generator has no state: environment ``i``'s episode ``k`` starts alike whatever the number of
copies, the order of resets or the point of a resume, on every device. The mixer is SplitMix64's finaliser
(Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators", fig. 14) applied once per word.
"""

from __future__ import annotations

import torch

from envs.integer_seeds import (
    AFTERWARDS, FINAL, GAMMA, MASK, MIX1, MIX2, SELECTION, TRAIN, episode_seed, mix64, stream_seed,
)  # fmt: skip

__all__ = ["AFTERWARDS", "FINAL", "SELECTION", "TRAIN", "episode_seed", "mix64", "stream_seed", "uniform"]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _mix64(x: torch.Tensor) -> torch.Tensor:
    # int64 arithmetic wraps like uint64; only the right shifts need their sign bits masked away
    x = x + _signed(GAMMA)
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _signed(MIX1)
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _signed(MIX2)
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def uniform(seed: int, env: torch.Tensor, episode: torch.Tensor, count: int) -> torch.Tensor:
    """``count`` float64 numbers in [0, 1) for each (env, episode): int64 ``[E]``, ``[E]`` -> ``[E, count]``."""
    key = _mix64(_mix64(env ^ _signed(mix64(seed & MASK))) ^ episode)
    words = _mix64(key.unsqueeze(1) ^ torch.arange(count, device=env.device))
    return ((words >> 11) & ((1 << 53) - 1)).double() * 2.0**-53
