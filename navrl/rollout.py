"""The rollout buffer and advantage estimation.

One preallocated buffer, time first: everything is ``[T, E, ...]`` with T = rollout_length steps and E copies.
"""

from __future__ import annotations

import torch


def gae(
    rewards: torch.Tensor,
    values: torch.Tensor,
    next_values: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    gamma: float,
    lam: float,
) -> torch.Tensor:
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16) over rows that may hold episode borders.

    rewards, values, next_values: ``[T, E, N]`` in real units; ``next_values[t]`` is V of the state that step t led
    to *before* any auto-reset. terminated, truncated: bool ``[T, E]``. A termination has no future; a truncation
    bootstraps from the true last observation (Pardo et al. 2018); neither lets an advantage cross the border.
    Returns advantages ``[T, E, N]``; returns are ``advantages + values``.
    """
    alive = (~terminated).to(rewards.dtype).unsqueeze(-1)
    running = (~(terminated | truncated)).to(rewards.dtype).unsqueeze(-1) * (gamma * lam)
    delta = rewards + gamma * alive * next_values - values
    advantages = torch.empty_like(delta)
    following = torch.zeros_like(delta[0])
    for t in range(delta.shape[0] - 1, -1, -1):
        following = torch.addcmul(delta[t], running[t], following, out=advantages[t])
    return advantages


class Rollout:
    """Preallocated storage of one iteration, filled by the runner and read by the update.

    obs ``[T, E, N, O]``, actions (raw) ``[T, E, N(, A)]``, log_probs ``[T, E, N]``, rewards ``[T, E, N]``,
    terminated, truncated bool ``[T, E]``, starts bool ``[T + 1, E]`` (step t is the first of an episode),
    last_obs ``[E, N, O]`` (what follows the last step), final_obs: {t: ``[E, N, O]``} for steps at which an
    episode may have ended, actor_hidden ``[T, E, N, H]`` (state before step t) where the actor has memory.
    """

    def __init__(self, spec, num_envs: int, length: int, hidden_size: int | None, device, dtype=torch.float32) -> None:
        shape = (length, num_envs, spec.num_agents)

        def zeros(*size, kind=dtype):
            return torch.zeros(*size, dtype=kind, device=device)

        discrete = spec.action.kind == "discrete"
        self.obs = zeros(*shape, spec.obs_size)
        self.actions = zeros(*shape, kind=torch.int64) if discrete else zeros(*shape, spec.action.size)
        self.log_probs = zeros(*shape)
        self.rewards = zeros(*shape)
        self.terminated = zeros(*shape[:2], kind=torch.bool)
        self.truncated = zeros(*shape[:2], kind=torch.bool)
        self.starts = zeros(length + 1, num_envs, kind=torch.bool)
        self.last_obs = zeros(*shape[1:], spec.obs_size)
        self.actor_hidden = None if hidden_size is None else zeros(*shape, hidden_size)
        self.critic_hidden: torch.Tensor | None = None  # carried from iteration to iteration, [E, K, H]
        self.final_obs: dict[int, torch.Tensor] = {}

    @property
    def length(self) -> int:
        return self.obs.shape[0]

    @property
    def num_envs(self) -> int:
        return self.obs.shape[1]
