"""Environment steps a second of the batched simple_spread on one thread, by number of copies and agents.

python benchmarks/env_throughput.py [--num_agents 3] [--num_envs 1 64 256 1024 4096] [--seconds 2]

One environment step is one joint step of one copy: physics, rewards, observations and auto-reset at 25 steps.
Actions are random and drawn beforehand. Each size runs five times; the best is given, for other work on the
machine only ever slows it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

from envs.registry import make_env  # noqa: E402


def microseconds_per_step(num_agents: int, num_envs: int, continuous: bool, device: str, seconds: float) -> float:
    """Best of five means over whole episodes."""
    settings = {"num_agents": num_agents, "continuous_actions": continuous}
    env = make_env("simple_spread", "batched", settings, num_envs, device=device)
    env.reset(0)
    if continuous:
        actions = torch.rand(25, num_envs, num_agents, 5, device=device)
    else:
        actions = torch.randint(0, 5, (25, num_envs, num_agents), device=device)
    best = float("inf")
    for _ in range(5):
        steps, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds / 5:
            for t in range(25):
                step = env.step(actions[t])
            float(step.reward.sum())  # waits for the device
            steps += 25
        best = min(best, (time.perf_counter() - begin) / steps)
    return best * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num_agents", type=int, nargs="+", default=[3])
    parser.add_argument("--num_envs", type=int, nargs="+", default=[1, 64, 128, 256, 1024, 4096])
    parser.add_argument("--continuous", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=2.0, help="a size")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'agents':>6} {'copies':>7} {'us/step':>9} {'env steps/s':>12}")
    for n in args.num_agents:
        for e in args.num_envs:
            micro = microseconds_per_step(n, e, args.continuous, args.device, args.seconds)
            print(f"{n:6} {e:7} {micro:9.0f} {e / micro * 1e6:12,.0f}", flush=True)


if __name__ == "__main__":
    main()
