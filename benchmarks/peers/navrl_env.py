"""Driver: NAVRL's batched simple_spread under random actions that are drawn beforehand; prints one JSON line."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from timing import rate, report, sizes

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envs.registry import make_env  # noqa: E402

EPISODE = 25


def main() -> None:
    parser = sizes(__doc__)
    parser.add_argument("--continuous", action="store_true")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    settings = {"num_agents": args.num_agents, "continuous_actions": args.continuous}
    env = make_env("simple_spread", "batched", settings, args.num_envs, device=args.device)
    env.reset(0)
    shape = (EPISODE, args.num_envs, args.num_agents)
    if args.continuous:
        actions = torch.rand(*shape, 5, device=args.device)
    else:
        actions = torch.randint(0, 5, shape, device=args.device)

    def play() -> float:
        for t in range(EPISODE):
            step = env.step(actions[t])
        return float(step.reward.sum())  # waits for the device

    report(rate(play, EPISODE * args.num_envs, args.seconds), ("torch", "numpy"))


if __name__ == "__main__":
    main()
