"""Critics: what the joint observation (MAPPO) or an agent's own (IPPO) is worth to each agent.

obs ``[T, B, N, O]``, hidden ``[B, K, H]`` or None, starts bool ``[T, B]`` -> (normalised values ``[T, B, N]``, hidden).
``rows`` is K, the number of hidden states a joint observation needs; ``heads()`` are the last linear layers (PopArt
rescales them).
"""

from __future__ import annotations

import torch
from torch import nn

from navrl.networks.actor import make_agent_trunk
from navrl.networks.encoders import ACTIVATIONS, EntityEncoder, MLPEncoder, linear
from navrl.networks.trunk import Trunk


class LocalCritic(nn.Module):
    """IPPO: each agent's value from its own observation."""

    def __init__(self, spec, config) -> None:
        super().__init__()
        self.rows = spec.num_agents
        self.trunk = make_agent_trunk(spec, config, outputs=1, head_gain=1.0)

    def forward(self, obs, hidden=None, starts=None):
        values, hidden = self.trunk(obs, hidden, starts)
        return values.squeeze(-1), hidden

    def heads(self) -> list[nn.Linear]:
        return [t.head for t in getattr(self.trunk, "networks", [self.trunk])]


class JointCritic(nn.Module):
    """MAPPO: the joint observation once per step; one output per agent, since rewards or roles may differ.

    A head per agent is agent identity without repeating the joint observation N times; where every agent always
    gets the same reward one output serves all.
    """

    def __init__(self, spec, config) -> None:
        super().__init__()
        self.rows, self.num_agents = 1, spec.num_agents
        outputs = 1 if spec.shared_reward else spec.num_agents
        encoder = MLPEncoder(
            spec.num_agents * spec.obs_size, config.hidden_size, config.num_layers, config.activation, config.layer_norm
        )
        self.trunk = Trunk(encoder, config.hidden_size, outputs, 1.0, config.network == "gru")

    def forward(self, obs, hidden=None, starts=None):
        values, hidden = self.trunk(obs.flatten(-2).unsqueeze(-2), hidden, starts)
        return values.squeeze(-2).expand(*values.shape[:2], self.num_agents), hidden

    def heads(self) -> list[nn.Linear]:
        return [self.trunk.head]


class EntityCritic(nn.Module):
    """MAPPO with an agent-symmetric critic: value_i = head(h_i, mean over j != i of h_j), h = entity embedding.

    The other agents' embeddings carry what agent i does not observe (their velocities), so the critic sees the
    joint observation, and permuting the other agents changes nothing (deep sets, Zaheer et al. 2017). Each h is in its
    own agent's frame (``networks.frames``), where velocities have no direction that others could know.
    """

    def __init__(self, spec, config) -> None:
        super().__init__()
        self.rows = spec.num_agents
        self.encoder = EntityEncoder(spec.layout, config.hidden_size, config.num_layers, config.activation)
        self.join = linear(2 * config.hidden_size, config.hidden_size, nn.init.calculate_gain(config.activation))
        self.activation = ACTIVATIONS[config.activation]()
        self.head = linear(config.hidden_size, 1)

    def forward(self, obs, hidden=None, starts=None):
        features = self.encoder(obs)  # [T, B, N, H]
        others = (features.sum(-2, keepdim=True) - features) / max(features.shape[-2] - 1, 1)
        joined = self.activation(self.join(torch.cat([features, others], -1)))
        return self.head(joined).squeeze(-1), hidden

    def heads(self) -> list[nn.Linear]:
        return [self.head]


def make_critic(spec, config) -> nn.Module:
    """The critic of ``config.algorithm_name`` and ``config.network``, of its own width."""
    config = config.model_copy(update={"hidden_size": config.critic_width})
    if config.algorithm_name == "ippo":
        return LocalCritic(spec, config)
    return EntityCritic(spec, config) if config.network == "entity" else JointCritic(spec, config)
