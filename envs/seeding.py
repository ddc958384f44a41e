"""Start states that depend on (seed, environment, episode) and on nothing else.

A counter-based generator has no state: environment ``i``'s episode ``k`` starts alike whatever the number of
copies, the order of resets or the point of a resume, on every device. The mixer is SplitMix64's finaliser
(Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators", fig. 14) applied once per word.
"""

from __future__ import annotations

import torch

_GAMMA = 0x9E3779B97F4A7C15
_MIX1 = 0xBF58476D1CE4E5B9
_MIX2 = 0x94D049BB133111EB
_MASK = (1 << 64) - 1

# Streams that must never share an episode: what trains, what selects the best checkpoint, what is reported.
TRAIN, SELECTION, FINAL = 0, 1, 2


def mix64(value: int) -> int:
    """SplitMix64's output function on one 64-bit word, as an unsigned Python integer."""
    value = (value + _GAMMA) & _MASK
    value = ((value ^ (value >> 30)) * _MIX1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX2) & _MASK
    return value ^ (value >> 31)


def stream_seed(seed: int, stream: int) -> int:
    """One 63-bit seed per (seed, stream); streams are the constants of this module."""
    return mix64(mix64(seed & _MASK) ^ stream) >> 1


def episode_seed(seed: int, env: int, episode: int) -> int:
    """A seed below 2**32 for environments that take an integer (mpe2, any PettingZoo task)."""
    return mix64(mix64(mix64(seed & _MASK) ^ env) ^ episode) >> 32


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _mix64(x: torch.Tensor) -> torch.Tensor:
    # int64 arithmetic wraps like uint64; only the right shifts need their sign bits masked away
    x = x + _signed(_GAMMA)
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _signed(_MIX1)
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _signed(_MIX2)
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def uniform(seed: int, env: torch.Tensor, episode: torch.Tensor, count: int) -> torch.Tensor:
    """``count`` float64 numbers in [0, 1) for each (env, episode): int64 ``[E]``, ``[E]`` -> ``[E, count]``."""
    key = _mix64(_mix64(env ^ _signed(mix64(seed & _MASK))) ^ episode)
    words = _mix64(key.unsqueeze(1) ^ torch.arange(count, device=env.device))
    return ((words >> 11) & ((1 << 53) - 1)).double() * 2.0**-53
