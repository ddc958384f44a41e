"""Reward and length of training episodes, kept on the device: nothing is synchronised until a row is logged."""

from __future__ import annotations

from typing import Any

import torch

from navrl.ranks import Ranks


class EpisodeStats:
    """Accumulates what ``train/episode_*`` needs: episodes that ended since the last row, and the unfinished ones.

    An episode's reward is the sum over its steps, averaged over the agents of a role; the plain metric is that of
    ``score_role``, other roles are reported under their own name.
    """

    def __init__(self, spec, num_envs: int, device: torch.device) -> None:
        self.roles = list(dict.fromkeys(spec.roles))
        self.score_role = spec.score_role
        members = torch.tensor([[float(role == r) for r in self.roles] for role in spec.roles], device=device)
        self.weights = members / members.sum(0)  # [N, R]: mean over the agents of a role
        roles = len(self.roles)
        self.reward = torch.zeros(num_envs, roles, device=device)  # of the unfinished episodes
        self.length = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.sum = torch.zeros(roles, dtype=torch.float64, device=device)
        self.max = torch.full((roles,), -torch.inf, device=device)
        self.steps = torch.zeros((), dtype=torch.int64, device=device)
        self.ended = torch.zeros((), dtype=torch.int64, device=device)  # since the last row
        self.count = 0  # episodes finished up to the last row

    def add(self, reward: torch.Tensor, done: torch.Tensor | None) -> None:
        """reward ``[E, N]``; done bool ``[E]``, or None where it is known that no episode ended."""
        self.reward += reward.to(self.weights.dtype) @ self.weights
        self.length += 1
        if done is None:
            return
        mask = done.unsqueeze(1)
        self.sum += (self.reward * mask).sum(0)
        self.max = torch.maximum(self.max, self.reward.masked_fill(~mask, -torch.inf).amax(0))
        self.steps += (self.length * done).sum()
        self.ended += done.sum()
        self.reward *= ~mask
        self.length *= ~done

    def bring_together(self, ranks: Ranks) -> None:
        """What ended since the last row on any rank is rank 0's from here on, which alone writes rows."""
        for counter in (self.sum, self.steps, self.ended):
            ranks.sum_at_first(counter)
        ranks.max_at_first(self.max)

    def total(self) -> int:
        """Episodes finished so far (looks at the device)."""
        return self.count + int(self.ended)

    def row(self) -> dict[str, float]:
        """``train/episode_*`` of the episodes that ended since the last call; only the count where none did."""
        ended = int(self.ended)
        self.count += ended
        metrics: dict[str, float] = {"train/episode_count": self.count}
        if ended:
            means, maxima = (self.sum / ended).tolist(), self.max.tolist()
            metrics["train/episode_length"] = int(self.steps) / ended
            for role, mean, maximum in zip(self.roles, means, maxima):
                if role == self.score_role:
                    metrics |= {"train/episode_reward_mean": mean, "train/episode_reward_max": maximum}
                if len(self.roles) > 1:
                    metrics |= {f"train/{role}/episode_reward_mean": mean, f"train/{role}/episode_reward_max": maximum}
        for counter in (self.sum, self.steps, self.ended):
            counter.zero_()
        self.max.fill_(-torch.inf)
        return metrics

    def forget_unfinished(self) -> None:
        """All copies begin a new episode; those amid one are not counted."""
        self.reward.zero_()
        self.length.zero_()

    _TENSORS = ("reward", "length", "sum", "max", "steps", "ended")

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name).clone() for name in self._TENSORS} | {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self._TENSORS:
            getattr(self, name).copy_(state[name])
        self.count = state["count"]
