"""In which frame a policy sees and acts: the world's, or one that follows the landmarks.

A task in the plane that looks the same after quarter turns and mirrorings need not be learned in eight directions.
Every observation is brought into the one of the square's eight frames in which the landmarks' centre lies between
right and the diagonal; the action taken there is brought back. So any network becomes equivariant at no cost
of its own (canonicalisation: Kaba et al. 2023, "Equivariance with learned canonicalization functions", eq. 3).

A code is ``4 * swap + 2 * mirror_x + mirror_y``: mirror x, mirror y, then exchange x and y.
"""

from __future__ import annotations

import torch
from torch import nn

# nothing, left, right, down, up: MPE's order
DIRECTIONS = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))


class WorldFrame(nn.Module):
    """The frame that the task itself uses."""

    def into(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        return obs, None

    def back(self, actions: torch.Tensor, codes: torch.Tensor | None) -> torch.Tensor:
        return actions


class LandmarkFrame(nn.Module):
    """The frame in which the sum of an agent's offsets to the landmarks is ``(x, y)`` with ``x >= y >= 0``.

    layout: slices of the observation, as ``envs.base.ObservationLayout``.
    """

    def __init__(self, layout) -> None:
        super().__init__()
        self.landmarks = slice(layout.landmarks.start, layout.landmarks.stop)
        seen = torch.tensor([[_see(direction, code) for direction in range(5)] for code in range(8)])
        self.register_buffer("seen", seen, persistent=False)  # [8, 5]: what action of the world is which one here
        self.register_buffer("meant", seen.argsort(-1), persistent=False)  # [8, 5]: the other way round

    def into(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """obs ``[..., O]`` in the world -> (obs ``[..., O]`` in the frame, codes int64 ``[...]``)."""
        pairs = obs.unflatten(-1, (-1, 2))
        centre = obs[..., self.landmarks].unflatten(-1, (-1, 2)).sum(-2)
        mirrored = centre < 0
        swapped = centre[..., 1].abs() > centre[..., 0].abs()
        pairs = torch.where(mirrored.unsqueeze(-2), -pairs, pairs)
        pairs = torch.where(swapped[..., None, None], pairs.flip(-1), pairs)
        return pairs.flatten(-2), 4 * swapped + 2 * mirrored[..., 0] + mirrored[..., 1]

    def back(self, actions: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        """Actions in the frame -> in the world: int64 ``[...]`` as codes, or a number a direction, ``[..., 5]``."""
        if actions.ndim == codes.ndim:
            return self.meant[codes, actions]
        return actions.gather(-1, self.seen[codes])


def make_frame(spec, config) -> WorldFrame | LandmarkFrame:
    """LandmarkFrame where ``canonical_frame`` asks for it and the task has the symmetry.

    Not with memory: the frame may change between two steps, and what is remembered would not turn with it.
    """
    fits = spec.layout is not None and spec.layout.square and config.network != "gru"
    return LandmarkFrame(spec.layout) if config.canonical_frame and fits else WorldFrame()


def _see(direction: int, code: int) -> int:
    """Which of DIRECTIONS one of the world's is in the frame."""
    x, y = DIRECTIONS[direction]
    x, y = (-x if code & 2 else x), (-y if code & 1 else y)
    return DIRECTIONS.index((y, x) if code & 4 else (x, y))
