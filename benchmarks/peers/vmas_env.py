"""Driver: VMAS' simple_spread on the CPU under random discrete actions that are drawn beforehand; one JSON line.

VMAS does not reset itself; all copies are reset together after each episode. Its discrete action is one of 9 forces.
"""

from __future__ import annotations

import torch
from timing import rate, report, sizes
from vmas import make_env

EPISODE = 25


def main() -> None:
    args = sizes(__doc__).parse_args()
    torch.set_num_threads(1)
    env = make_env("simple_spread", args.num_envs, device="cpu", continuous_actions=False, seed=0,
                   n_agents=args.num_agents)  # fmt: skip
    actions = torch.randint(0, env.action_space[0].n, (EPISODE, args.num_agents, args.num_envs, 1))

    @torch.no_grad()
    def play() -> None:
        env.reset()
        for t in range(EPISODE):
            env.step(list(actions[t]))

    report(rate(play, EPISODE * args.num_envs, args.seconds), ("torch", "vmas"))


if __name__ == "__main__":
    main()
