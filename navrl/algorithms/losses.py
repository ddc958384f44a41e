"""The loss terms of PPO, each a pure function of tensors that returns one number per sample."""

from __future__ import annotations

import torch
from torch.nn import functional

from navrl.ranks import ALONE, Ranks


def clipped_surrogate(log_ratio: torch.Tensor, advantages: torch.Tensor, clip: float) -> torch.Tensor:
    """−min(r A, clip(r, 1−ε, 1+ε) A), r = exp(log_ratio) (Schulman et al. 2017, eq. 7). Any shape, elementwise."""
    ratio = log_ratio.exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


def value_error(error: torch.Tensor, huber_delta: float | None) -> torch.Tensor:
    """½ e², or Huber's loss, which is linear beyond ``huber_delta`` (Huber 1964; official MAPPO uses 10)."""
    if huber_delta is None:
        return 0.5 * error.square()
    return functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=huber_delta)


def value_loss(
    values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, clip: float | None, huber_delta: float | None
) -> torch.Tensor:
    """max of the plain and the clipped error (Yu et al. 2022, appendix A); ``clip`` None = plain. Normalised units."""
    plain = value_error(values - returns, huber_delta)
    if clip is None:
        return plain
    clipped = old_values + (values - old_values).clamp(-clip, clip)
    return torch.maximum(plain, value_error(clipped - returns, huber_delta))


def approx_kl(log_ratio: torch.Tensor) -> torch.Tensor:
    """(r − 1) − log r: an unbiased, always positive estimate of KL(old ‖ new) (Schulman 2020, "k3")."""
    return torch.expm1(log_ratio) - log_ratio


def explained_variance(values: torch.Tensor, returns: torch.Tensor, ranks: Ranks = ALONE) -> torch.Tensor:
    """1 − Var(return − value) / Var(return); NaN where the return is constant (then it is undefined)."""
    every = tuple(range(returns.dim()))
    std, error = (ranks.std_mean(x, every)[0].squeeze() for x in (returns, returns - values))
    variance = std.square()
    share = error.square() / variance
    return torch.where(variance > 1e-12, 1 - share, torch.full_like(variance, torch.nan))
