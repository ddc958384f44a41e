"""The training loop's two halves: collect a rollout, learn from it."""

from __future__ import annotations

import time
from typing import Any, Callable

import torch

from envs.base import BatchEnv
from navrl.algorithms.mappo import MAPPO
from navrl.allocator import keep_freed_memory
from navrl.rollout import Rollout
from runners.episode_stats import EpisodeStats


class OnPolicyRunner:
    """Owns the environment, the buffer and the counters; ``iterate`` is one collect and one update.

    env: this rank's share of the copies; the ranks are the algorithm's. Counters and episodes are the whole run's.
    """

    def __init__(self, config, env: BatchEnv, algorithm: MAPPO, seed: int) -> None:
        self.config, self.env, self.algorithm, self.ranks = config, env, algorithm, algorithm.ranks
        keep_freed_memory()
        device = algorithm.device
        memory = config.hidden_size if algorithm.recurrent else None
        self.rollout = Rollout(env.spec, env.num_envs, config.rollout_length, memory, device)
        self.episodes = EpisodeStats(env.spec, env.num_envs, device)
        self.obs = env.reset(seed, first_env=self.ranks.rank * env.num_envs)
        self.starts = torch.ones(env.num_envs, dtype=torch.bool, device=device)
        self.hidden = algorithm.initial_hidden(env.num_envs)
        self.iteration = 0
        self.env_steps = 0

    @property
    def exact_resume(self) -> bool:
        """Whether the task can be saved amid an episode; else a resume begins new ones."""
        return getattr(self.env, "exact_resume", True)

    @property
    def steps_per_iteration(self) -> int:
        return self.config.rollout_length * self.env.num_envs * self.ranks.size

    def stage(self) -> int:
        """Curriculum stage at this many environment steps."""
        return sum(self.env_steps >= threshold for threshold in self.config.curriculum_advance_at or ())

    def progress(self) -> float:
        """Share of the schedule that is done, 0 to 1."""
        return min(1.0, self.env_steps / self.config.decay_steps)

    def schedules(self) -> tuple[float, float, int]:
        """(factor on the learning rates, entropy coefficient, epochs) of this iteration."""
        config, progress = self.config, self.progress()
        scale = 1.0 - progress if config.lr_schedule == "linear" else 1.0
        entropy_coef = config.entropy_coef + (config.final_entropy_coef - config.entropy_coef) * progress
        return scale, entropy_coef, round(config.ppo_epoch + (config.final_ppo_epoch - config.ppo_epoch) * progress)

    @torch.no_grad()
    def collect(self) -> None:
        """Fill the rollout with ``rollout_length`` steps of every copy; only actors run here."""
        rollout, algorithm, env = self.rollout, self.algorithm, self.env
        env.set_stage(self.stage())
        rollout.final_obs.clear()
        for t in range(rollout.length):
            rollout.obs[t] = self.obs
            rollout.starts[t] = self.starts
            if self.hidden is not None:
                rollout.actor_hidden[t] = self.hidden
            actions, raw, log_probs, self.hidden = algorithm.act(
                self.obs, self.hidden, self.starts, algorithm.action_generator, self.ranks
            )
            rollout.actions[t] = raw
            rollout.log_probs[t] = log_probs
            step = env.step(actions)
            self.obs = step.obs
            rollout.rewards[t] = step.reward
            rollout.terminated[t] = step.terminated
            rollout.truncated[t] = step.truncated
            self.starts = step.terminated | step.truncated
            if step.final_obs is not None:
                rollout.final_obs[t] = step.final_obs
            self.episodes.add(step.reward, None if step.final_obs is None else self.starts)
        rollout.starts[-1] = self.starts
        rollout.last_obs.copy_(self.obs)
        self.env_steps += self.steps_per_iteration

    def iterate(self, check: Callable[[], None] = lambda: None) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        """One iteration. Returns (layer-1 metrics as 0-d tensors, plain values: lr and seconds).

        check: called between collecting and learning; raises where the rollout must not be learned from.
        """
        scale, entropy_coef, epochs = self.schedules()
        begin = time.perf_counter()
        with self.ranks.together():
            self.collect()
            check()
        self.episodes.bring_together(self.ranks)
        middle = time.perf_counter()
        metrics = self.algorithm.update(self.rollout, scale, entropy_coef, epochs)
        end = time.perf_counter()
        self.iteration += 1
        plain = {
            "train/lr": self.config.lr * scale,
            "perf/rollout_seconds": middle - begin,
            "perf/update_seconds": end - middle,
        }
        return metrics, plain

    def state_dict(self) -> dict[str, Any]:
        """The whole state between two iterations, environments included; all ranks call it together.

        ``others``: what belongs to the copies of rank 1, 2, …; absent where there is one rank.
        """
        copies = {
            "env": self.env.state_dict(),
            "episodes": self.episodes.state_dict(),
            "starts": self.starts.clone(),
            "hidden": self.hidden,
            "critic_hidden": self.rollout.critic_hidden,
        }
        first, *others = self.ranks.gather(copies)
        return {
            "algorithm": self.algorithm.state_dict(),
            **first,
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            **({"others": others} if others else {}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises ValueError where the state is of another number of ranks, another task or another batch size."""
        shares = [state, *state.get("others", ())]
        if len(shares) != self.ranks.size:
            raise ValueError(f"it was trained by {len(shares)} processes and there are {self.ranks.size}: go on with as "
                             f"many (--processes {len(shares)}, or torchrun)")
        state = state | shares[self.ranks.rank]
        self.algorithm.load_state_dict(state["algorithm"])
        self.obs = self.env.load_state_dict(state["env"])
        self.episodes.load_state_dict(state["episodes"])
        device = self.algorithm.device
        self.starts = state["starts"].to(device)
        self.hidden, self.rollout.critic_hidden = (
            None if state[name] is None else state[name].to(device) for name in ("hidden", "critic_hidden")
        )
        self.iteration, self.env_steps = state["iteration"], state["env_steps"]
        if not self.exact_resume:  # memory and half-finished counts belong to episodes that are gone
            self.starts = torch.ones_like(self.starts)
            self.episodes.forget_unfinished()
