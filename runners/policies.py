"""What evaluation runs: a learned policy or a controller, behind one small interface."""

from __future__ import annotations

from typing import Protocol

import torch


class Policy(Protocol):
    """Batched policy; one instance plays one batch of episodes from their start at a time."""

    def begin(self, num_envs: int) -> None:
        """Forget everything: ``num_envs`` new episodes begin."""

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Observations ``[E, N, O]`` to environment actions (see ``envs.base.ActionSpec``)."""


class LearnedPolicy:
    """The parameters of an algorithm at this very moment; deterministic unless a generator is given."""

    def __init__(self, algorithm, generator: torch.Generator | None = None) -> None:
        self.algorithm, self.generator = algorithm, generator

    def begin(self, num_envs: int) -> None:
        self.hidden = self.algorithm.initial_hidden(num_envs)
        self.starts = torch.ones(num_envs, dtype=torch.bool, device=self.algorithm.device)

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        actions, _, _, self.hidden = self.algorithm.act(
            obs.to(self.algorithm.device, torch.float32), self.hidden, self.starts, self.generator
        )
        self.starts = torch.zeros_like(self.starts)
        return actions


class ControllerPolicy:
    """A hand-written controller, which acts on observations alone and remembers nothing."""

    def __init__(self, controller) -> None:
        self.controller = controller

    def begin(self, num_envs: int) -> None:
        pass

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        return self.controller.act(obs)
