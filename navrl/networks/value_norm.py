"""Value normalisation: the critic learns standardised returns.

``running`` keeps debiased moving moments of the returns (Yu et al. 2022, appendix C.3); ``popart`` also rescales the
critic's head so that a change of the moments changes no prediction (van Hasselt et al. 2016, eq. 8-9).
One pair of moments serves all agents: all values come from one head scale.
"""

from __future__ import annotations

import torch
from torch import nn

from navrl.ranks import ALONE, Ranks

MIN_VARIANCE = 1e-4


class ValueNorm(nn.Module):
    """kind: ``none``, ``running`` or ``popart``. Buffers are part of the state dict and move with the module."""

    def __init__(self, kind: str, decay: float = 0.99) -> None:
        super().__init__()
        self.kind, self.decay = kind, decay
        for name in ("mean_sum", "square_sum", "weight"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    def moments(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(mean, standard deviation), float64 scalars; (0, 1) before the first update or with kind ``none``."""
        seen = self.weight > 0
        weight = torch.where(seen, self.weight, torch.ones_like(self.weight))
        mean = self.mean_sum / weight
        std = (self.square_sum / weight - mean.square()).clamp_min(MIN_VARIANCE).sqrt()
        return mean, torch.where(seen, std, torch.ones_like(std))

    @torch.no_grad()
    def update(self, returns: torch.Tensor, heads: list[nn.Linear], ranks: Ranks = ALONE) -> None:
        """Take in a batch of returns (any shape, real units) of every rank; with ``popart`` rescale ``heads`` in place."""
        if self.kind == "none":
            return
        old_mean, old_std = self.moments()
        returns = returns.double()
        mean, square = ranks.mean(torch.stack([returns.mean(), returns.square().mean()]))
        self.mean_sum.mul_(self.decay).add_(mean, alpha=1 - self.decay)
        self.square_sum.mul_(self.decay).add_(square, alpha=1 - self.decay)
        self.weight.mul_(self.decay).add_(1 - self.decay)
        if self.kind == "popart":
            mean, std = self.moments()
            for head in heads:
                head.weight.mul_((old_std / std).to(head.weight.dtype))
                head.bias.copy_((old_std * head.bias + old_mean - mean) / std)

    def normalise(self, values: torch.Tensor) -> torch.Tensor:
        mean, std = self.moments()
        return ((values - mean) / std).to(values.dtype)

    def denormalise(self, values: torch.Tensor) -> torch.Tensor:
        mean, std = self.moments()
        return (values * std + mean).to(values.dtype)
