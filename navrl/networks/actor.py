"""The actor: each agent's own observation (and memory) to a distribution over its actions."""

from __future__ import annotations

import torch
from torch import nn

from navrl.networks.distributions import Categorical, SquashedGaussian
from navrl.networks.encoders import EntityEncoder, MLPEncoder
from navrl.networks.trunk import PerAgent, Trunk

INITIAL_LOG_STD = -0.5


def make_encoder(spec, inputs: int, config) -> nn.Module:
    """The encoder that ``config.network`` names, for one agent's observation (plus identity) of ``inputs`` numbers."""
    if config.network == "entity":
        return EntityEncoder(spec.layout, config.hidden_size, config.num_layers, config.activation)
    return MLPEncoder(inputs, config.hidden_size, config.num_layers, config.activation, config.layer_norm)


def make_agent_trunk(spec, config, outputs: int, head_gain: float) -> nn.Module:
    """One trunk per agent, or one for all; shared weights get the agent's identity where agents differ in kind."""
    heterogeneous = len(set(spec.roles)) > 1 or len(set(spec.obs_sizes)) > 1
    identity = spec.num_agents if config.share_policy and heterogeneous else 0
    recurrent = config.network == "gru"

    def trunk() -> Trunk:
        encoder = make_encoder(spec, spec.obs_size + identity, config)
        return Trunk(encoder, config.hidden_size, outputs, head_gain, recurrent, identity)

    return trunk() if config.share_policy else PerAgent([trunk() for _ in spec.agents])


class Actor(nn.Module):
    """obs ``[T, B, N, O]``, hidden ``[B, N, H]`` or None, starts bool ``[T, B]`` -> (distribution, hidden)."""

    def __init__(self, spec, config) -> None:
        super().__init__()
        action = spec.action
        self.trunk = make_agent_trunk(spec, config, action.size, head_gain=0.01)
        self.discrete = action.kind == "discrete"
        allowed = torch.arange(action.size) < torch.tensor(action.sizes).unsqueeze(-1)  # [N, A]
        self.register_buffer("allowed", None if bool(allowed.all()) else allowed, persistent=False)
        if not self.discrete:
            rows = 1 if config.share_policy else spec.num_agents
            self.log_std = nn.Parameter(torch.full((rows, action.size), INITIAL_LOG_STD))
            self.register_buffer("low", torch.tensor(action.low, dtype=torch.float32), persistent=False)
            self.register_buffer("high", torch.tensor(action.high, dtype=torch.float32), persistent=False)

    def forward(self, obs, hidden=None, starts=None):
        out, hidden = self.trunk(obs, hidden, starts)
        if self.discrete:
            return Categorical(out, self.allowed), hidden
        return SquashedGaussian(out, self.log_std, self.low, self.high, self.allowed), hidden
