"""From an observation to features: a plain MLP, or a network that knows entities.

An encoder maps ``[..., K, F]`` to ``[..., K, H]``: K rows (agents, or one row holding the joint observation).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        y = x.mul_(2).sigmoid_().mul_(2).sub_(1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.tanh_backward(gradient, *ctx.saved_tensors)


class Tanh(nn.Module):
    """tanh(x) = 2 sigmoid(2x) - 1, to an absolute 2e-7, written over x.

    On a CPU torch's own takes four times as long. x is a layer's output that nothing else needs, at best no view
    (writing over a view costs the gradient a copy).
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Tanh.apply(x)


ACTIVATIONS = {"tanh": Tanh, "relu": nn.ReLU}


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
        rows = x.flatten(0, -2)
        layers = list(self.net)
        if isinstance(layers[0], nn.LayerNorm):
            # Its scale and shift are taken into the first layer, so that no gradient as large as the input is needed
            norm, first, *layers = layers
            rows = functional.layer_norm(rows, norm.normalized_shape, eps=norm.eps)
            bias = torch.addmv(first.bias, first.weight, norm.bias)
            rows = functional.linear(rows, first.weight * norm.weight, bias)
        for layer in layers:
            rows = layer(rows)
        return rows.unflatten(0, x.shape[:-1])


class EntityEncoder(nn.Module):
    """Agent-symmetric encoder: its output does not change when landmarks or other agents are permuted.

    Offsets enter with their length, since "who is nearest" is what the task is about. Every landmark is embedded with
    shared weights together with the other agents' offsets *to that landmark*, pooled by a sum (deep sets, Zaheer et al.
    2017) and by a maximum (PointNet, Qi et al. 2017: a sum alone hides the nearest agent behind the others); then
    beside the mean of all landmarks' embeddings. Landmarks are pooled by multi-head attention with scores from their
    own embedding (Vaswani et al. 2017), the other agents by a sum. One set of weights runs for any number of either (Agarwal et al.
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
        # Entities first, rows (of the batch, R) second: pooling over a leading dimension is several times faster
        layout, rows = self.layout, obs.flatten(0, -2)
        own = rows[:, layout.own.start : layout.own.stop]
        landmarks, others = _entities(rows, layout.landmarks), _entities(rows, layout.agents)  # [L, R, 2], [M, R, 2]
        here = _exists(landmarks) if layout.padded else None  # [L, R, 1]
        there = _exists(others) if layout.padded else None  # [M, R, 1]
        nearby = self._around(landmarks, others, there)
        landmarks, others = _with_length(landmarks), _with_length(others)

        embedded = self.activation(self.landmark(torch.cat([landmarks, _beside(own, landmarks), nearby], -1)))
        for layer in self.refine:
            of_itself, of_all = layer.weight.chunk(2, -1)  # the mean is the same beside every landmark: multiply it once
            everything = functional.linear(_mean(embedded, here), of_all, layer.bias)
            embedded = self.activation(functional.linear(embedded, of_itself) + everything)
        scores = self.score(embedded)
        if here is not None:
            scores = scores.masked_fill(~here, -1e9)
        attention = torch.softmax(scores, 0).unsqueeze(-1)  # [L, R, heads, 1]
        pooled = (attention * embedded.unflatten(-1, (self.heads, -1))).sum(0).flatten(-2)

        company = self.activation(self.other(torch.cat([others, _beside(own, others)], -1)))
        company = (company if there is None else company * there).sum(0)
        out = self.activation(self.merge(torch.cat([pooled, company, own], -1)))
        return out.unflatten(0, obs.shape[:-1])

    def _around(self, landmarks: torch.Tensor, others: torch.Tensor, there: torch.Tensor | None) -> torch.Tensor:
        """Sum and maximum over the other agents of what their offset to a landmark gives, ``[L, R, 2P]``."""
        if not len(others):
            return landmarks.new_zeros(*landmarks.shape[:-1], 2 * self.pair.out_features)
        pairs = self.activation(self.pair(_with_length(others.unsqueeze(1) - landmarks)))  # [M, L, R, P]
        if there is None:
            return torch.cat([pairs.sum(0), pairs.amax(0)], -1)
        there = there.unsqueeze(1)  # [M, 1, R, 1]; -1 is at or below what the activations can give
        return torch.cat([(pairs * there).sum(0), pairs.masked_fill(~there, -1.0).amax(0)], -1)


def _entities(rows: torch.Tensor, group) -> torch.Tensor:
    """``[R, O]`` -> ``[count, R, size]``."""
    return rows[:, group.start : group.stop].unflatten(-1, (group.count, group.size)).transpose(0, 1)


def _with_length(offsets: torch.Tensor) -> torch.Tensor:
    """``[..., 2]`` -> ``[..., 3]``: the offset and its Euclidean length."""
    return torch.cat([offsets, torch.linalg.vector_norm(offsets, dim=-1, keepdim=True)], -1)


def _beside(own: torch.Tensor, entities: torch.Tensor) -> torch.Tensor:
    """The agent's own features repeated for each entity, ``[n, R, F]``."""
    return own.expand(len(entities), -1, -1)


def _mean(entities: torch.Tensor, exists: torch.Tensor | None) -> torch.Tensor:
    """``[n, R, H]`` -> ``[R, H]``: mean over the entities that exist."""
    if exists is None:
        return entities.mean(0)
    return (entities * exists).sum(0) / exists.sum(0).clamp_min(1)


def _exists(entities: torch.Tensor) -> torch.Tensor:
    """bool ``[n, R, 1]``: False for an all-zero slot."""
    return (entities != 0).any(-1, keepdim=True)
