"""Adam, and Muon for hidden weight matrices."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from torch import nn

# Newton-Schulz coefficients: the quintic a x + b x^3 + c x^5 that lifts small singular values fastest (Jordan 2024).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
MOMENTS = {"adam": {"step", "exp_avg", "exp_avg_sq"}, "muon": {"momentum"}}  # what each keeps of a parameter


def orthogonalise(matrices: torch.Tensor) -> torch.Tensor:
    """``[n, rows, columns]`` -> about the nearest matrices whose singular values are all 1 (they come out in 0.7-1.2).

    U S V' -> U V' by Newton-Schulz iterations, matrix products only (Jordan et al. 2024, "Muon: an optimizer for
    hidden layers in neural networks"). An all-zero matrix stays zero.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp_min(1e-7)  # no singular value beyond 1
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised: every direction of a weight matrix moves alike, also those of small gradient.

    The root mean square of a step is lr, as it is at Adam's start, so that one learning rate serves both (Liu et al.
    2025, "Muon is scalable for LLM training", eq. 4, have 0.2 lr). For 2-D weights of hidden layers; biases and last
    layers belong to Adam. In the parameters' own precision and all matrices of a shape at once, which torch.optim.Muon
    (bfloat16, one by one) is not: on a CPU that halves its cost.
    """

    def __init__(self, params, lr: float, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            momentum = group["momentum"]
            alike = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike[parameter.shape].append(parameter)
            for (rows, columns), parameters in alike.items():
                gradients = torch.stack([parameter.grad for parameter in parameters])
                for parameter in parameters:
                    if not self.state[parameter]:
                        self.state[parameter]["momentum"] = torch.zeros_like(parameter)
                held = [self.state[parameter]["momentum"] for parameter in parameters]
                torch._foreach_lerp_(held, list(gradients), 1 - momentum)
                ahead = gradients.lerp(torch.stack(held), momentum)
                size = group["lr"] * math.sqrt(max(rows, columns))
                torch._foreach_add_(parameters, list(orthogonalise(ahead)), alpha=-size)


def make_optimizers(
    actor: nn.Module, critic: nn.Module, config, device: torch.device
) -> dict[str, torch.optim.Optimizer]:
    """By name, each with two groups: parameters of the actor, parameters of the critic.

    With ``optimizer: muon`` the weights of hidden linear layers are Muon's; last layers, biases and what else there is
    (GRU, log_std) stay Adam's.
    """
    networks = (actor, critic)
    hidden = [hidden_weights(network) if config.optimizer == "muon" else [] for network in networks]
    ours = {id(parameter) for parameters in hidden for parameter in parameters}
    rest = [[p for p in network.parameters() if id(p) not in ours] for network in networks]
    adam = torch.optim.Adam(
        [{"params": parameters} for parameters in rest],
        lr=config.lr, eps=config.adam_eps, fused=device.type in ("cpu", "cuda"),
    )  # fmt: skip
    if not ours:
        return {"adam": adam}
    return {"adam": adam, "muon": Muon([{"params": parameters} for parameters in hidden], config.lr)}


def load_moments(name: str, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Take the moments from a checkpoint; settings stay as the configuration has them.

    Raises ValueError where a moment is not one of its parameter: fused Adam would write beyond its memory.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if [len(group["params"]) for group in state["param_groups"]] != [len(g["params"]) for g in optimizer.param_groups]:
        raise ValueError(f"the moments of {name} are of other parameters")
    for index, moments in state["state"].items():
        if not 0 <= index < len(parameters) or moments.keys() != MOMENTS[name]:
            raise ValueError(f"the moments of {name} are of other parameters")
        for moment, value in moments.items():
            shape = torch.Size() if moment == "step" else parameters[index].shape
            if not torch.is_tensor(value) or value.shape != shape or value.dtype != parameters[index].dtype:
                raise ValueError(f"{moment} of {name} does not fit its parameter")
    groups = optimizer.state_dict()["param_groups"]
    for group, saved in zip(groups, state["param_groups"]):
        group["lr"] = float(saved["lr"])  # where the schedule stands
    optimizer.load_state_dict({"state": state["state"], "param_groups": groups})


def hidden_weights(network: nn.Module) -> list[nn.Parameter]:
    """Weights of all linear layers but those called ``head``."""
    layers = {name: module for name, module in network.named_modules() if isinstance(module, nn.Linear)}
    return [layer.weight for name, layer in layers.items() if name.rpartition(".")[2] != "head"]
