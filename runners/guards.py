"""Stop before bad numbers spread: which tensor is not finite, and what was in it."""

from __future__ import annotations

import torch

from navrl.rollout import Rollout


class NonFiniteError(RuntimeError):
    """Training met a NaN or an infinity; the message names the tensor and describes the batch."""


def require_finite(tensors: dict[str, torch.Tensor]) -> None:
    """Raise NonFiniteError naming the first of ``tensors`` that holds a NaN or an infinity (one look at the device)."""
    sums = torch.stack([tensor.sum().float() for tensor in tensors.values()])
    if bool(torch.isfinite(sums).all()):
        return
    for name, tensor in tensors.items():
        bad = ~torch.isfinite(tensor)
        if bool(bad.any()):
            raise NonFiniteError(f"{name} is not finite: {describe(tensor)}")


def describe(tensor: torch.Tensor) -> str:
    """One line: how many values are bad, the first one's place, the range of the rest."""
    bad = ~torch.isfinite(tensor)
    first = tuple(bad.nonzero()[0].tolist())
    good = tensor[~bad]
    rest = "no others"
    if good.numel():
        rest = f"others {good.min():.4g} to {good.max():.4g}, mean {good.float().mean():.4g}"
    return f"{int(bad.sum())} of {tensor.numel()} values, first {tensor[first].item()} at {list(first)}; {rest}"


def rollout_tensors(rollout: Rollout) -> dict[str, torch.Tensor]:
    """What the environment and the actor put into the buffer, under the names that people know."""
    return {
        "observation [step, env, agent, feature]": rollout.obs,
        "reward [step, env, agent]": rollout.rewards,
        "log-probability [step, env, agent]": rollout.log_probs,
    }
