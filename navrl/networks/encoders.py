"""From an observation to features: a plain MLP, or a network that knows entities.

An encoder maps ``[..., K, F]`` to ``[..., K, H]``: K rows (agents, or one row holding the joint observation).
"""

from __future__ import annotations

import torch
from torch import nn

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}


def linear(inputs: int, outputs: int, gain: float = 1.0, bias: bool = True) -> nn.Linear:
    """Linear layer with orthogonal weights (Saxe et al. 2014) and zero bias."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.orthogonal_(layer.weight, gain)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class MLPEncoder(nn.Module):
    """``layers`` x (linear, activation[, LayerNorm]); with ``layer_norm`` the input is normalised too (official MAPPO)."""

    def __init__(self, inputs: int, hidden: int, layers: int, activation: str, layer_norm: bool) -> None:
        super().__init__()
        gain = nn.init.calculate_gain(activation)
        modules: list[nn.Module] = [nn.LayerNorm(inputs)] if layer_norm else []
        for i in range(layers):
            modules += [linear(inputs if i == 0 else hidden, hidden, gain), ACTIVATIONS[activation]()]
            if layer_norm:
                modules.append(nn.LayerNorm(hidden))
        self.net = nn.Sequential(*modules)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class EntityEncoder(nn.Module):
    """Agent-symmetric encoder: its output does not change when landmarks or other agents are permuted.

    Offsets enter with their length, since "who is nearest" is what the task is about. Every landmark is embedded with
    shared weights together with the other agents' offsets *to that landmark*, pooled by a sum (deep sets, Zaheer et al.
    2017) and by a maximum (PointNet, Qi et al. 2017: a sum alone hides the nearest agent behind the others); then
    beside the mean of all landmarks' embeddings. Landmarks are pooled by multi-head attention with scores from their own embedding
    (Vaswani et al. 2017), the other agents by a sum. One set of weights runs for any number of either (Agarwal et al.
    2020, "Learning transferable cooperative behavior in multi-agent teams").

    layout: slices of the observation, as ``envs.base.ObservationLayout``. Where it says ``padded``, an all-zero slot
    is "no entity" and takes no part. hidden: width, a multiple of ``heads``. layers: of a landmark's embedding, the
    first on its own and each further one beside the mean of all.
    """

    def __init__(self, layout, hidden: int, layers: int, activation: str, heads: int = 4) -> None:
        super().__init__()
        self.layout, self.heads = layout, heads
        own, entity = layout.own.size * layout.own.count, layout.landmarks.size + 1
        gain = nn.init.calculate_gain(activation)
        self.activation = ACTIVATIONS[activation]()
        # (other agent, landmark) pairs are the most numerous rows, so theirs is a narrow embedding
        half = max(hidden // 2, 4)
        self.pair = linear(entity, half, gain)
        self.landmark = linear(entity + own + 2 * half, hidden, gain)
        self.refine = nn.ModuleList(linear(2 * hidden, hidden, gain) for _ in range(layers - 1))
        self.score = linear(hidden, heads, bias=False)  # softmax would cancel a bias
        self.other = linear(entity + own, half, gain)
        self.merge = linear(hidden + half + own, hidden, gain)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        layout = self.layout
        own = obs[..., layout.own.start : layout.own.stop]
        landmarks, others = _entities(obs, layout.landmarks), _entities(obs, layout.agents)
        here = _exists(landmarks) if layout.padded else None  # [..., L, 1]
        there = _exists(others) if layout.padded else None  # [..., M, 1]
        nearby = self._around(landmarks, others, there)
        landmarks, others = _with_length(landmarks), _with_length(others)

        embedded = self.activation(self.landmark(torch.cat([landmarks, _beside(own, landmarks), nearby], -1)))
        for layer in self.refine:
            everything = _mean(embedded, here).expand_as(embedded)
            embedded = self.activation(layer(torch.cat([embedded, everything], -1)))
        scores = self.score(embedded)
        if here is not None:
            scores = scores.masked_fill(~here, -1e9)
        attention = torch.softmax(scores, -2).unsqueeze(-1)  # [..., L, heads, 1]
        pooled = (attention * embedded.unflatten(-1, (self.heads, -1))).sum(-3).flatten(-2)

        company = self.activation(self.other(torch.cat([others, _beside(own, others)], -1)))
        company = (company if there is None else company * there).sum(-2)
        return self.activation(self.merge(torch.cat([pooled, company, own], -1)))

    def _around(self, landmarks: torch.Tensor, others: torch.Tensor, there: torch.Tensor | None) -> torch.Tensor:
        """Sum and maximum over the other agents of what their offset to a landmark gives, ``[..., L, 2P]``."""
        if others.shape[-2] == 0:
            return landmarks.new_zeros(*landmarks.shape[:-1], 2 * self.pair.out_features)
        pairs = self.activation(self.pair(_with_length(others.unsqueeze(-3) - landmarks.unsqueeze(-2))))
        if there is None:
            return torch.cat([pairs.sum(-2), pairs.amax(-2)], -1)
        there = there.unsqueeze(-3)  # [..., 1, M, 1]; -1 is at or below what the activations can give
        return torch.cat([(pairs * there).sum(-2), pairs.masked_fill(~there, -1.0).amax(-2)], -1)


def _entities(obs: torch.Tensor, group) -> torch.Tensor:
    """``[..., O]`` -> ``[..., count, size]``."""
    return obs[..., group.start : group.stop].unflatten(-1, (group.count, group.size))


def _with_length(offsets: torch.Tensor) -> torch.Tensor:
    """``[..., 2]`` -> ``[..., 3]``: the offset and its Euclidean length."""
    return torch.cat([offsets, torch.linalg.vector_norm(offsets, dim=-1, keepdim=True)], -1)


def _beside(own: torch.Tensor, entities: torch.Tensor) -> torch.Tensor:
    """The agent's own features repeated for each entity."""
    return own.unsqueeze(-2).expand(*entities.shape[:-1], -1)


def _mean(entities: torch.Tensor, exists: torch.Tensor | None) -> torch.Tensor:
    """Mean over the entities that exist, ``[..., 1, H]``."""
    if exists is None:
        return entities.mean(-2, keepdim=True)
    return (entities * exists).sum(-2, keepdim=True) / exists.sum(-2, keepdim=True).clamp_min(1)


def _exists(entities: torch.Tensor) -> torch.Tensor:
    """bool ``[..., n, 1]``: False for an all-zero slot."""
    return (entities != 0).any(-1, keepdim=True)
