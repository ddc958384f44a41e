"""Driver: mpe2's own simple_spread (parallel_env, one copy) under random actions drawn beforehand; one JSON line."""

from __future__ import annotations

import argparse

import numpy as np
from mpe2 import simple_spread_v3
from timing import rate, report

EPISODE = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num_agents", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    env = simple_spread_v3.parallel_env(N=args.num_agents, max_cycles=EPISODE)
    drawn = np.random.default_rng(0).integers(0, 5, (EPISODE, args.num_agents)).tolist()
    actions = [dict(zip(env.possible_agents, row)) for row in drawn]

    def play() -> None:
        env.reset()
        for action in actions:
            env.step(action)

    report(rate(play, EPISODE, args.seconds), ("numpy", "mpe2"))


if __name__ == "__main__":
    main()
