"""The recurrent core: a GRU whose hidden state is cleared at episode borders."""

from __future__ import annotations

import torch
from torch import nn


class GRUCore(nn.Module):
    """``[T, B, K, H]`` features -> ``[T, B, K, H]``; every row has a hidden state ``[B, K, H]`` of its own.

    starts: bool ``[T, B]``, True where step t is the first of an episode: the state is zeroed before that step.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(hidden, hidden)
        for name, parameter in self.cell.named_parameters():
            nn.init.zeros_(parameter) if "bias" in name else nn.init.orthogonal_(parameter)

    def forward(
        self, x: torch.Tensor, hidden: torch.Tensor, starts: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        shape, size = hidden.shape, hidden.shape[-1]
        keep = (~starts).to(x.dtype)[..., None, None]
        outputs = []
        # unbind, for the gradient of x[t] would be as large as x for every t
        for now, kept in zip(x.flatten(1, 2).unbind(), keep.unbind()):
            hidden = self.cell(now, (hidden.view(shape) * kept).view(-1, size))
            outputs.append(hidden.view(shape))
        return torch.stack(outputs), hidden.view(shape)
