"""Encoder, optional memory and a linear head: the one shape of which actors and critics are made.

Every network here takes ``x [T, B, K, F]``, ``hidden [B, K, H]`` (None without memory) and ``starts [T, B]`` and
returns ``(out [T, B, K, O], hidden)``. Feed-forward use is T = 1.
"""

from __future__ import annotations

import torch
from torch import nn

from navrl.networks.encoders import linear
from navrl.networks.recurrent import GRUCore


class Trunk(nn.Module):
    """One set of weights for all rows. ``identity`` > 0 appends a one-hot row index of that length to the input."""

    def __init__(self, encoder: nn.Module, hidden: int, outputs: int, head_gain: float, recurrent: bool,
                 identity: int = 0) -> None:  # fmt: skip
        super().__init__()
        self.encoder = encoder
        self.memory = GRUCore(hidden) if recurrent else None
        self.head = linear(hidden, outputs, head_gain)
        self.register_buffer("identity", torch.eye(identity) if identity else None, persistent=False)

    def forward(self, x, hidden=None, starts=None):
        if self.identity is not None:
            x = torch.cat([x, self.identity.to(x.dtype).expand(*x.shape[:-1], -1)], -1)
        features = self.encoder(x)
        if self.memory is not None:
            features, hidden = self.memory(features, hidden, starts)
        return self.head(features), hidden


class PerAgent(nn.Module):
    """Separate weights for each of the K rows: ``networks[k]`` sees row k alone."""

    def __init__(self, networks: list[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x, hidden=None, starts=None):
        results = [
            network(x[..., k : k + 1, :], None if hidden is None else hidden[:, k : k + 1], starts)
            for k, network in enumerate(self.networks)
        ]
        outputs, states = zip(*results)
        return torch.cat(outputs, -2), None if hidden is None else torch.cat(states, -2)
