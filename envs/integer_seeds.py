"""Integer seeds that depend on (seed, environment, episode) and on nothing else. No torch: workers import it.

The mixer is SplitMix64's finaliser (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators",
fig. 14) applied once per word. ``envs.seeding`` has the same in tensors, and these names too.
"""

from __future__ import annotations

GAMMA = 0x9E3779B97F4A7C15
MIX1 = 0xBF58476D1CE4E5B9
MIX2 = 0x94D049BB133111EB
MASK = (1 << 64) - 1

# Streams that must never share an episode: what trains, what selects the best checkpoint, what is reported, and what
# judges the checkpoints of a finished run (benchmarks). 3 is left out: its first 500 episodes of simple_spread happen to
# be so easy that each policy scores 0.3 more than in the long run, which would flatter what is judged by them.
TRAIN, SELECTION, FINAL, AFTERWARDS = 0, 1, 2, 4


def mix64(value: int) -> int:
    """SplitMix64's output function on one 64-bit word, as an unsigned Python integer."""
    value = (value + GAMMA) & MASK
    value = ((value ^ (value >> 30)) * MIX1) & MASK
    value = ((value ^ (value >> 27)) * MIX2) & MASK
    return value ^ (value >> 31)


def stream_seed(seed: int, stream: int) -> int:
    """One 63-bit seed per (seed, stream); streams are the constants of this module."""
    return mix64(mix64(seed & MASK) ^ stream) >> 1


def episode_seed(seed: int, env: int, episode: int, bits: int = 63) -> int:
    """What ``reset(seed=...)`` of a PettingZoo task is given: an integer below ``2 ** bits``.

    With 63 bits two episodes of one run all but never share a seed (8e5 of training and 500 of evaluation: about
    4e-11). With 32 they may (about 9 %), which is the price where a task's generator takes no more.
    """
    return mix64(mix64(mix64(seed & MASK) ^ env) ^ episode) >> (64 - bits)
