"""Driver: the official MAPPO code (runner, trainer, buffer) on an environment that costs nothing; one JSON line.

--source is a clone of the repository. Options are those of its simple_spread script. The environment hands out the
same observations, rewards and episode ends whatever the actions are.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from timing import report

AGENTS, OBSERVATION, ACTIONS = 3, 18, 5  # simple_spread
NEVER = str(10**9)  # an interval in iterations


class FreeEnvironment:
    """What the runner asks of vectorised environments. ``begins``: clock at the first step of every iteration."""

    def __init__(self, copies: int, length: int) -> None:
        rng = np.random.default_rng(0)
        self.observation_space = [Box(-np.inf, np.inf, (OBSERVATION,), np.float32)] * AGENTS
        self.share_observation_space = [Box(-np.inf, np.inf, (OBSERVATION * AGENTS,), np.float32)] * AGENTS
        self.action_space = [Discrete(ACTIONS)] * AGENTS
        self.observations = rng.normal(size=(length, copies, AGENTS, OBSERVATION)).astype(np.float32)
        self.rewards = rng.normal(size=(length, copies, AGENTS, 1)).astype(np.float32)
        self.dones = np.zeros((length, copies, AGENTS), bool)
        self.dones[-1] = True
        self.infos = [[{}] * AGENTS] * copies
        self.length, self.t, self.begins = length, 0, []

    def reset(self) -> np.ndarray:
        return self.observations[-1]

    def step(self, actions: np.ndarray) -> tuple:
        if self.t == 0:
            self.begins.append(time.perf_counter())
        t, self.t = self.t, (self.t + 1) % self.length
        return self.observations[t], self.rewards[t], self.dones[t], self.infos


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", required=True, help="a clone of on-policy")
    parser.add_argument("--algorithm", choices=("mappo", "rmappo"), required=True)
    parser.add_argument("--num_envs", type=int, required=True)
    parser.add_argument("--rollout_length", type=int, required=True)
    parser.add_argument("--ppo_epoch", type=int, required=True)
    parser.add_argument("--hidden_size", type=int, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    args = parser.parse_args()
    sys.path.insert(0, args.source)
    from onpolicy.config import get_config
    from onpolicy.runner.shared.mpe_runner import MPERunner

    rollout = args.num_envs * args.rollout_length
    words = {
        "env_name": "MPE", "algorithm_name": args.algorithm, "n_rollout_threads": str(args.num_envs),
        "episode_length": str(args.rollout_length), "ppo_epoch": str(args.ppo_epoch), "num_mini_batch": "1",
        "hidden_size": str(args.hidden_size), "gain": "0.01", "lr": "7e-4", "critic_lr": "7e-4",
        "num_env_steps": str((args.iterations + 2) * rollout), "log_interval": NEVER, "save_interval": NEVER,
    }  # fmt: skip
    settings = get_config().parse_args(
        [word for name, value in words.items() for word in (f"--{name}", value)] + ["--use_ReLU", "--use_wandb"]
    )  # both switch off: tanh, and no W&B
    settings.scenario_name = "simple_spread"
    settings.use_recurrent_policy = args.algorithm == "rmappo"  # as its train_mpe.py does
    torch.set_num_threads(1)
    torch.manual_seed(1)
    envs = FreeEnvironment(args.num_envs, args.rollout_length)
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(sys.stderr):
        MPERunner({
            "all_args": settings, "envs": envs, "eval_envs": None, "num_agents": AGENTS,
            "device": torch.device("cpu"), "run_dir": Path(directory),
        }).run()  # fmt: skip
    # From the first step of the second iteration on: the first one saves, as does the last, which no step follows
    report(args.iterations * rollout / (envs.begins[-1] - envs.begins[1]), ("torch", "numpy"))


if __name__ == "__main__":
    main()
