"""Multi-agent PPO (Yu et al. 2022, "The surprising effectiveness of PPO in cooperative multi-agent games").

Decentralised actors, a critic on the joint observation; with ``algorithm_name: ippo`` (de Witt et al. 2020) the same
code with a critic on each agent's own observation. Shared or separate parameters, memory or none, discrete or
continuous actions are properties of the networks: there is one update.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Iterator

import torch
from torch import nn

from navrl.algorithms.losses import approx_kl, clipped_surrogate, explained_variance, value_loss
from navrl.algorithms.optimizers import load_moments, make_optimizers
from navrl.networks.actor import Actor
from navrl.networks.critic import make_critic
from navrl.networks.frames import make_frame
from navrl.networks.value_norm import ValueNorm
from navrl.ranks import ALONE, Ranks
from navrl.rollout import Rollout, gae


class MAPPO:
    """Everything that learns: networks, optimiser, value normaliser and the generators they draw from."""

    def __init__(self, spec, config, device: torch.device, seed: int, ranks: Ranks = ALONE) -> None:
        self.spec, self.config, self.device, self.ranks = spec, config, device, ranks
        with torch.random.fork_rng(devices=[]):  # initial weights depend on the seed alone
            torch.manual_seed(seed)
            self.actor = Actor(spec, config).to(device)
            self.critic = make_critic(spec, config).to(device)
        self.frame = make_frame(spec, config).to(device)
        self.value_norm = ValueNorm(config.value_norm).to(device)
        self.recurrent = config.network == "gru"
        self.optimizers = make_optimizers(self.actor, self.critic, config, device)
        self.action_generator = torch.Generator(device).manual_seed(seed)
        self.shuffle_generator = torch.Generator().manual_seed(seed)

    # ---- acting -----------------------------------------------------------------------------------------------

    def initial_hidden(self, num_envs: int) -> torch.Tensor | None:
        """Actor memory ``[E, N, H]`` before an episode, or None."""
        if not self.recurrent:
            return None
        return torch.zeros(num_envs, self.spec.num_agents, self.config.hidden_size, device=self.device)

    @torch.no_grad()
    def act(self, obs, hidden, starts, generator: torch.Generator | None, ranks: Ranks = ALONE):
        """obs ``[E, N, O]``, hidden ``[E, N, H]`` | None, starts bool ``[E]`` -> (env actions, raw, log_probs, hidden).

        Raw actions are what the distribution gave, in the policy's own frame. generator None = the mode. ranks: given
        where each rank acts for its share of the copies.
        """
        obs, codes = self.frame.into(obs)
        dist, hidden = self.actor(obs.unsqueeze(0), hidden, starts.unsqueeze(0))
        raw = dist.mode() if generator is None else dist.sample(generator, ranks)
        actions = self.frame.back(dist.to_env(raw).squeeze(0), codes)
        return actions, raw.squeeze(0), dist.log_prob(raw).squeeze(0), hidden

    # ---- learning ---------------------------------------------------------------------------------------------

    @torch.no_grad()
    def evaluate_values(self, rollout: Rollout) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """values, next_values ``[T, E, N]`` in normalised units, and the critic's memory before each step.

        ``next_values[t]`` is the value of what step t truly led to: the observation before auto-reset where an
        episode may have ended, else the next row.
        """
        steps = rollout.length
        obs, _ = self.frame.into(rollout.obs)
        last_obs, _ = self.frame.into(rollout.last_obs)
        final_obs = {t: self.frame.into(at)[0] for t, at in rollout.final_obs.items()}
        if not self.recurrent:
            values, _ = self.critic(obs)
            at = list(final_obs)
            if steps - 1 in final_obs:
                next_values = torch.cat([values[1:], values[:1]])  # the last row is overwritten below
            else:
                next_values = torch.cat([values[1:], self.critic(last_obs.unsqueeze(0))[0]])
            if at:  # where nothing ended, final_obs is what obs[t + 1] is
                next_values[at] = self.critic(torch.stack(list(final_obs.values())))[0]
            return values, next_values, None
        if rollout.critic_hidden is None:
            shape = (rollout.num_envs, self.critic.rows, self.config.critic_width)
            rollout.critic_hidden = torch.zeros(shape, device=self.device)
        state, values, next_values, memory = rollout.critic_hidden, [], [], []
        never = torch.zeros_like(rollout.starts[:1])
        for t in range(steps):
            memory.append(state)
            value, state = self.critic(obs[t : t + 1], state, rollout.starts[t : t + 1])
            values.append(value[0])
            if t > 0 and t - 1 not in final_obs:
                next_values.append(value[0])
            if t in final_obs:
                true_next = final_obs[t]
            elif t == steps - 1:
                true_next = last_obs
            else:
                continue
            next_values.append(self.critic(true_next.unsqueeze(0), state, never)[0][0])
        rollout.critic_hidden = state
        return torch.stack(values), torch.stack(next_values), torch.stack(memory)

    def update(
        self, rollout: Rollout, lr_scale: float, entropy_coef: float, epochs: int | None = None
    ) -> dict[str, torch.Tensor]:
        """One iteration of learning; returns layer-1 metrics as 0-d tensors on the device (nothing is synchronised).

        lr_scale: factor on the learning rates. epochs: passes over the rollout; None takes ``ppo_epoch``.
        """
        config = self.config
        for optimizer in self.optimizers.values():
            for group, lr in zip(optimizer.param_groups, (config.lr, config.critic_learning_rate)):
                group["lr"] = lr * lr_scale

        old_values, next_values, critic_memory = self.evaluate_values(rollout)
        values = self.value_norm.denormalise(old_values)
        advantages = gae(
            rollout.rewards,
            values,
            self.value_norm.denormalise(next_values),
            rollout.terminated,
            rollout.truncated,
            config.gamma,
            config.gae_lambda,
        )
        returns = advantages + values
        self.value_norm.update(returns, self.critic.heads(), self.ranks)
        old_values = self.value_norm.normalise(values) if self.value_norm.kind == "popart" else old_values
        metrics = {"explained_variance": explained_variance(values, returns, self.ranks)}

        batch = {
            "obs": self.frame.into(rollout.obs)[0],
            "actions": rollout.actions,
            "log_probs": rollout.log_probs,
            "advantages": self.standardise(advantages),
            "returns": self.value_norm.normalise(returns),
            "old_values": old_values,
        }
        if self.recurrent:
            batch |= {"starts": rollout.starts[:-1], "actor_memory": rollout.actor_hidden, "critic_memory": critic_memory}
        totals: dict[str, torch.Tensor] = {}
        count = 0
        for _ in range(epochs or config.ppo_epoch):
            changes = []
            for part in self.minibatches(batch, rollout.length, rollout.num_envs):
                stats = self.step(part, entropy_coef)
                count += 1
                changes.append(stats["approx_kl"])
                for name, value in stats.items():
                    totals[name] = totals[name] + value if name in totals else value
            if config.target_kl is not None and float(self.ranks.mean(torch.stack(changes).mean())) > config.target_kl:
                break  # read from the device only where it is asked for
        if self.ranks.size > 1:  # one message for all
            totals = dict(zip(totals, self.ranks.mean(torch.stack(list(totals.values())))))
        return metrics | {name: value / count for name, value in totals.items()}

    def standardise(self, advantages: torch.Tensor) -> torch.Tensor:
        """Mean 0, deviation 1 over the iteration; agents of different roles, whose scales differ, each on their own."""
        dims = (0, 1, 2) if len(set(self.spec.roles)) == 1 else (0, 1)
        std, mean = self.ranks.std_mean(advantages, dims)
        return (advantages - mean) / (std + 1e-8)

    def minibatches(self, batch: dict[str, torch.Tensor], steps: int, num_envs: int) -> Iterator[dict[str, torch.Tensor]]:
        """Each sample once, in a fresh order, in near-equal minibatches of about ``mini_batch_size`` joint steps.

        Of several ranks each gives an equal part of every minibatch.

        Yields tensors ``[L, M, ...]``: L = 1 without memory, else whole chunks of L = ``chunk_length`` steps whose
        gradient stops at the chunk's border (truncated BPTT) and whose memory starts where acting left it.
        """
        length = (self.config.chunk_length or steps) if self.recurrent else 1
        chunks = steps // length
        total = chunks * num_envs

        def chunked(x: torch.Tensor) -> torch.Tensor:  # [T, E, ...] -> [C * E, L, ...]
            if length == 1:
                return x.flatten(0, 1).unsqueeze(1)
            return x.unflatten(0, (chunks, length)).transpose(1, 2).flatten(0, 1)

        views = {name: chunked(x) for name, x in batch.items()}
        joint_steps = (self.config.mini_batch_size or steps * num_envs * self.ranks.size) // self.ranks.size
        size = max(1, min(total, joint_steps // length))
        if size == total:  # one minibatch: its order is of no account, and views need no copy
            parts = [slice(None)]
        else:
            order = torch.randperm(total, generator=self.shuffle_generator).to(self.device, non_blocking=True)
            parts = order.tensor_split(-(-total // size))
        for index in parts:
            part = {name: x[index].transpose(0, 1) for name, x in views.items()}
            for name in ("actor_memory", "critic_memory"):
                part[name] = part[name][0] if name in part else None
            yield part

    def step(self, part: dict[str, torch.Tensor], entropy_coef: float) -> dict[str, torch.Tensor]:
        """One gradient step on one minibatch ``[L, M, N, ...]``; returns layer-1 metrics as 0-d tensors."""
        loss, stats = self.loss(part, entropy_coef)
        for optimizer in self.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.ranks.average_gradients(itertools.chain(self.actor.parameters(), self.critic.parameters()))
        limit = math.inf if self.config.max_grad_norm is None else self.config.max_grad_norm
        stats["actor_grad_norm"] = nn.utils.clip_grad_norm_(self.actor.parameters(), limit)
        stats["critic_grad_norm"] = nn.utils.clip_grad_norm_(self.critic.parameters(), limit)
        for optimizer in self.optimizers.values():
            optimizer.step()
        return stats

    def loss(self, part: dict[str, torch.Tensor], entropy_coef: float) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """(what ``step`` descends, its parts and the policy's change as detached 0-d tensors) of one minibatch."""
        config = self.config
        starts = part.get("starts")
        dist, _ = self.actor(part["obs"], part["actor_memory"], starts)
        log_ratio = dist.log_prob(part["actions"]) - part["log_probs"]
        policy_loss = clipped_surrogate(log_ratio, part["advantages"], config.clip_param).mean()
        entropy = dist.entropy(part["actions"]).mean()

        values, _ = self.critic(part["obs"], part["critic_memory"], starts)
        clip = config.clip_param if config.value_clip else None
        critic_loss = value_loss(values, part["old_values"], part["returns"], clip, config.huber_delta).mean()

        loss = policy_loss - entropy_coef * entropy + config.value_loss_coef * critic_loss
        change = log_ratio.detach()
        return loss, {
            "policy_loss": policy_loss.detach(),
            "value_loss": critic_loss.detach(),
            "entropy": entropy.detach(),
            "approx_kl": approx_kl(change).mean(),
            "clip_fraction": (torch.expm1(change).abs() > config.clip_param).to(change.dtype).mean(),
        }

    # ---- saving -----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Parameters, optimiser moments, value moments and generators: tensors and plain Python values only."""
        return {
            "actor": self.actor.state_dict(),
            "critic": self.critic.state_dict(),
            "value_norm": self.value_norm.state_dict(),
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "action_generator": self.action_generator.get_state(),
            "shuffle_generator": self.shuffle_generator.get_state(),
        }

    def load_policy(self, state: dict[str, Any]) -> None:
        """The actor alone, to act and not to learn; the critic may be of another size (entity: another N)."""
        self.actor.load_state_dict(state["actor"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.actor.load_state_dict(state["actor"])
        self.critic.load_state_dict(state["critic"])
        self.value_norm.load_state_dict(state["value_norm"])
        for name, optimizer in self.optimizers.items():
            load_moments(name, optimizer, state["optimizers"][name])
        self.action_generator.set_state(state["action_generator"].cpu())
        self.shuffle_generator.set_state(state["shuffle_generator"].cpu())
