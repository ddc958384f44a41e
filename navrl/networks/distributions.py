"""Action distributions, written on plain tensors: torch.distributions spends more time checking than computing.

``raw`` actions are what the buffer stores and log-probabilities are asked for; ``to_env`` turns them into what the
environment takes. For a categorical the two are the same.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from navrl.ranks import ALONE, Ranks


class Categorical:
    """Categorical over the last dimension of ``logits`` ``[..., A]``; ``mask`` (bool, True = allowed) hides actions."""

    def __init__(self, logits: torch.Tensor, mask: torch.Tensor | None = None) -> None:
        if mask is not None:
            logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
        # Over the first dimension it is vectorised, over a short last one it is not: several times sooner
        self.log_probs = F.log_softmax(logits.movedim(-1, 0), 0).movedim(0, -1).contiguous()

    def sample(self, generator: torch.Generator, ranks: Ranks = ALONE) -> torch.Tensor:
        """int64 ``[...]``. Exponential race: argmax p_i / E_i with E_i ~ Exp(1) is a draw from p."""
        race = ranks.own(lambda noise: noise.exponential_(generator=generator), self.log_probs)
        return (self.log_probs - race.log_()).argmax(-1)

    def mode(self) -> torch.Tensor:
        return self.log_probs.argmax(-1)

    def log_prob(self, raw: torch.Tensor) -> torch.Tensor:
        return self.log_probs.gather(-1, raw.unsqueeze(-1)).squeeze(-1)

    def entropy(self, raw: torch.Tensor) -> torch.Tensor:
        """Exact, in nats, ``[...]``; ``raw`` is not needed here."""
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def to_env(self, raw: torch.Tensor) -> torch.Tensor:
        return raw


class SquashedGaussian:
    """tanh-squashed diagonal Gaussian on a box (Haarnoja et al. 2018, "Soft Actor-Critic", appendix C).

    ``raw`` is the value before tanh, ``[..., A]``, so that no inverse of tanh is ever taken; the environment gets
    ``low + (high - low) * (tanh(raw) + 1) / 2``. ``mask`` (bool ``[..., A]``) leaves out dimensions an agent lacks.
    """

    def __init__(
        self,
        mean: torch.Tensor,
        log_std: torch.Tensor,
        low: torch.Tensor,
        high: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> None:
        self.mean, self.log_std, self.low, self.high, self.mask = mean, log_std, low, high, mask

    def sample(self, generator: torch.Generator, ranks: Ranks = ALONE) -> torch.Tensor:
        noise = ranks.own(lambda noise: noise.normal_(generator=generator), self.mean)
        return self.mean + self.log_std.exp() * noise

    def mode(self) -> torch.Tensor:
        return self.mean

    def log_prob(self, raw: torch.Tensor) -> torch.Tensor:
        """log density of the squashed action, ``[...]``."""
        z = (raw - self.mean) * torch.exp(-self.log_std)
        gauss = -0.5 * z.square() - self.log_std - 0.5 * math.log(2 * math.pi)
        # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), which does not overflow
        squash = 2 * (math.log(2.0) - raw - F.softplus(-2 * raw)) + torch.log((self.high - self.low) / 2)
        terms = gauss - squash
        if self.mask is not None:
            terms = terms * self.mask
        return terms.sum(-1)

    def entropy(self, raw: torch.Tensor) -> torch.Tensor:
        """A one-sample estimate, −log π(a): a squashed Gaussian has no closed form. In nats, ``[...]``.

        Its gradient goes through a fresh reparameterised value with the same noise as ``raw``, not through the
        fixed action (whose expected score is zero).
        """
        z = ((raw - self.mean) * torch.exp(-self.log_std)).detach()
        return -self.log_prob(self.mean + self.log_std.exp() * z)

    def to_env(self, raw: torch.Tensor) -> torch.Tensor:
        action = self.low + (self.high - self.low) * (torch.tanh(raw) + 1) / 2
        return action.clamp(self.low, self.high)  # rounding can leave the box by an ulp, which environments refuse
