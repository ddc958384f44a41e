"""Physics of the multi-agent particle environments, for many copies at once.

Every quantity is one row per scalar and one column per copy: positions are ``[2, N, E]`` (axis, agent, copy), so
each operation runs over long contiguous rows. Everything that an observation is made of lives in one buffer
``rows`` ``[R, E]``; an observation is then a selection of rows and one transpose.

The equations and their order are those of ``mpe2._mpe_utils.core.World`` (mpe2 1.1.1): the contact force is taken
at the old positions, then ``pos += vel * dt``, ``vel *= 1 - damping``, ``vel += force / mass * dt`` with mass 1.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

DT = 0.1
DAMPING = 0.25
CONTACT_FORCE = 1e2
CONTACT_MARGIN = 1e-3
# Above this exponent log(1 + exp(x)) is x in double precision too; exp() itself would overflow in float32 at 88.
_SOFTPLUS_LINEAR = 40.0
# Agents nearer than this (task units) have no direction to be pushed in; mpe2 divides 0 by 0 there.
_COINCIDENT = 1e-12


def contact_repulsion(distance: torch.Tensor, min_distance: float) -> torch.Tensor:
    """Size of the contact force between two bodies, divided by their distance.

    ``force * log(1 + exp((min_distance - distance) / margin)) * margin / distance``, mpe2's softplus penetration,
    for distances of any shape (task units). Multiplied by the vector from the other body it is the force. Two
    bodies at exactly one point (nearer than 1e-12) get a finite number, hence, their difference vector being
    zero, no force; mpe2 yields NaN there and the episode is lost.
    """
    penetration = F.softplus(min_distance - distance, 1.0 / CONTACT_MARGIN, _SOFTPLUS_LINEAR)
    return penetration.mul_(CONTACT_FORCE) / distance.clamp_min(_COINCIDENT)


class World:
    """``E`` copies of ``N`` colliding agents of one radius and ``L`` points that never move.

    Views into the state, all of dtype ``dtype`` (positions in task units, velocities in units per second):
    ``vel`` and ``pos`` ``[2, N, E]``, ``landmarks`` ``[2, L, E]``. What follows from them after ``place`` and
    ``step``: ``to_agents`` ``[2, N, N-1, E]`` and ``to_landmarks`` ``[2, N, L, E]``, positions relative to each
    agent (others in index order, itself left out), and their norms ``agent_distance`` ``[N, N-1, E]`` and
    ``landmark_distance`` ``[N, L, E]``.
    """

    def __init__(
        self,
        num_envs: int,
        num_agents: int,
        num_landmarks: int,
        radius: float,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        n, m, pairs = num_agents, num_landmarks, num_agents * (num_agents - 1)
        self.contact_distance = 2 * radius
        # rows: velocity | points (agents, then landmarks) | relative positions | one row of zeros
        self.num_state_rows = 2 * n + 2 * (n + m)
        self.num_rows = self.num_state_rows + 2 * (pairs + n * m) + 1
        self.rows = torch.zeros(self.num_rows, num_envs, dtype=dtype, device=device)
        self.state = self.rows[: self.num_state_rows]
        self.vel = self.rows[: 2 * n].view(2, n, num_envs)
        self._points = self.rows[2 * n : self.num_state_rows].view(2, n + m, num_envs)
        self.pos, self.landmarks = self._points[:, :n], self._points[:, n:]
        self._relative = self.rows[self.num_state_rows : -1].view(2, pairs + n * m, num_envs)
        self.to_agents = self._relative[:, :pairs].view(2, n, n - 1, num_envs)
        self.to_landmarks = self._relative[:, pairs:].view(2, n, m, num_envs)

        others = [(i, j) for i in range(n) for j in range(n) if j != i]
        goals = [(i, n + j) for i in range(n) for j in range(m)]
        self._from = torch.tensor([i for i, _ in others + goals], dtype=torch.int64, device=device)
        self._to = torch.tensor([j for _, j in others + goals], dtype=torch.int64, device=device)
        self._num_pairs, self._shape = pairs, (n, m, num_envs)
        self._measure()

    def observation_rows(self) -> torch.Tensor:
        """Row indices ``[N, O]`` of ``rows`` that make up each agent's full MPE observation, in mpe2's order.

        Per agent: own velocity, own position, landmarks, other agents, and two zeros for each other agent's
        silence.
        """
        n, m, _ = self._shape
        index = torch.arange(self.num_rows)
        velocity = index[: 2 * n].view(2, n, 1)
        position = index[2 * n : self.num_state_rows].view(2, n + m, 1)[:, :n]
        relative = index[self.num_state_rows : -1].view(2, -1)
        others = relative[:, : self._num_pairs].view(2, n, n - 1)
        landmarks = relative[:, self._num_pairs :].view(2, n, m)
        silence = index[-1:].expand(2, n, n - 1)
        per_agent = torch.cat([velocity, position, landmarks, others, silence], 2)
        return per_agent.permute(1, 2, 0).flatten(1)

    def place(self, state: torch.Tensor) -> None:
        """Put everything where ``state`` says: ``[num_state_rows, E]``, laid out as ``self.state``."""
        self.state.copy_(state)
        self._measure()

    def step(self, control: torch.Tensor) -> None:
        """Advance by ``DT`` seconds under the agents' own forces ``control`` ``[2, N, E]``."""
        repulsion = contact_repulsion(self.agent_distance, self.contact_distance)
        contact = (self.to_agents * repulsion).sum(2)
        self.pos.add_(self.vel, alpha=DT)
        self.vel.mul_(1 - DAMPING).add_(control, alpha=DT).sub_(contact, alpha=DT)
        self._measure()

    def _measure(self) -> None:
        torch.sub(
            self._points.index_select(1, self._to), self._points.index_select(1, self._from), out=self._relative
        )
        x, y = self._relative
        distance = torch.addcmul(x * x, y, y).sqrt_()
        n, m, e = self._shape
        self.agent_distance = distance[: self._num_pairs].view(n, n - 1, e)
        self.landmark_distance = distance[self._num_pairs :].view(n, m, e)
