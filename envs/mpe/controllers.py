"""Hand-written policies for simple_spread: what nothing, little and much thought are worth.

Each reads observations alone (all agents' at once) and knows mpe2's published physics. ``make_controller`` gives
one by name: ``random``; ``greedy`` (each agent to its nearest landmark, braking); ``reference`` (landmarks assigned
anew each step, short lookahead with braking and avoidance), the 1 of ``eval/normalized_score``.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod

import torch
from scipy.optimize import linear_sum_assignment

from envs.base import TaskError, TaskSpec
from envs.mpe.simple_spread_spec import AGENT_RADIUS
from envs.mpe.world import DAMPING, DT

PUSH = 5.0 * DT  # change of velocity by one full action (mass 1, sensitivity 5)
COAST = DT / DAMPING  # distance still travelled for each unit of velocity when nobody pushes
STEP = COAST * PUSH  # how far one full action moves the point where an agent comes to rest: 0.2

CONTROLLERS = ("random", "greedy", "reference")


class Controller(ABC):
    """A policy without memory of past observations, for every copy of a task at once."""

    def __init__(self, spec: TaskSpec) -> None:
        self.spec = spec
        self.continuous = spec.action.kind == "continuous"

    @abstractmethod
    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """Joint observations ``[E, N, O]`` -> actions: int64 ``[E, N]``, or ``[E, N, 5]`` where continuous."""


def make_controller(name: str, spec: TaskSpec, seed: int = 0) -> Controller:
    """``random`` (any task), ``greedy`` or ``reference`` (simple_spread). ``seed`` matters to ``random`` alone.

    Raises ``TaskError`` for another name, and for a task or an observation that the controller cannot read.
    """
    if name == "random":
        return RandomController(spec, seed)
    if name == "greedy":
        return GreedyController(spec)
    if name == "reference":
        return ReferenceController(spec)
    raise TaskError(f"policy: {name!r} is not one of {', '.join(CONTROLLERS)}", key="policy")


class RandomController(Controller):
    """Uniform over the action space, drawn from ``seed`` on; an agent with fewer actions draws among its own."""

    def __init__(self, spec: TaskSpec, seed: int = 0) -> None:
        super().__init__(spec)
        self._generator = torch.Generator().manual_seed(seed)
        self._sizes = torch.tensor(spec.action.sizes)
        self._low, self._high = torch.tensor(spec.action.low), torch.tensor(spec.action.high)

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        if self.continuous:
            share = torch.rand(*obs.shape[:2], self.spec.action.size, generator=self._generator)
            return (self._low + share * (self._high - self._low)).to(obs)
        share = torch.rand(obs.shape[:2], generator=self._generator, dtype=torch.float64)
        return (share * self._sizes).long().to(obs.device)


class GreedyController(Controller):
    """Each agent brakes towards the landmark nearest to it, blind to the others."""

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__(spec)
        _require_spread(spec, "greedy")

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        group = self.spec.layout.landmarks
        relative = obs[..., group.start : group.stop].unflatten(-1, (group.count, 2))
        nearest = relative.square().sum(-1).argmin(-1)
        target = relative.gather(2, nearest[..., None, None].expand(-1, -1, 1, 2)).squeeze(2)
        rest = COAST * obs[..., :2] - target
        push = _push_towards_rest(rest.permute(2, 1, 0), self.continuous)
        return _as_actions(push.permute(2, 1, 0), self.continuous)


class ReferenceController(Controller):
    """Plans a few steps ahead, one agent after the other, on mpe2's own equations of motion.

    Each step: (1) the landmark-agent matching with the least predicted cost (all N! up to N = 6, Hungarian above);
    (2) for each agent every sequence of its first ``depth`` actions, continued to ``horizon`` steps by a braking
    rule with one of ``gains``; the cost is the summed distance to its landmark plus the predicted contacts with
    the other agents' plans, weighed as the reward weighs them; (3) all agents plan again, in turn, ``rounds``
    times. The first action of each plan is taken.
    """

    # Tuned on 1000 episodes (N = 3, local_ratio 0.5): a longer horizon is worse, for the others' plans change.
    horizon, rounds, gains = 6, 2, (0.25, 0.4)
    least_contact_weight = 0.3  # a bump costs time as well, even where the reward does not mind it
    chunk = 256  # copies planned together: a plan's tensors then fit the cache

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__(spec)
        _require_spread(spec, "reference")
        n = spec.num_agents
        if spec.layout.landmarks.count != n or spec.settings.get("num_landmark_neighbors") is not None:
            raise TaskError(
                "num_landmark_neighbors: the reference controller must see every landmark; set it to null",
                key="num_landmark_neighbors",
            )
        ratio = spec.settings["local_ratio"]
        # reward averaged over agents: (ratio - 1) * summed distance - 2 * ratio / N for each pair in contact
        self.distance_weight = max(1 - ratio, 0.01)
        self.contact_weight = max(2 * ratio / n, self.least_contact_weight * self.distance_weight)
        unit = [-1.0, 0.0, 1.0]
        pushes = [(x, y) for x in unit for y in unit if self.continuous or x == 0 or y == 0]
        self.depth = 2 if self.continuous else 3  # 9 ** 2 or 5 ** 3 sequences
        self.pushes = PUSH * torch.tensor(pushes).t()  # [2, A]
        self.permutations = torch.tensor(list(itertools.permutations(range(n)))) if n <= 6 else None

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        pushes = [self._plan(part) for part in obs.split(self.chunk)]
        return _as_actions(torch.cat(pushes, -1).permute(2, 1, 0), self.continuous)

    def _plan(self, obs: torch.Tensor) -> torch.Tensor:
        """Pushes ``[2, N, E]`` in -1..1 for a chunk of copies."""
        n = self.spec.num_agents
        vel, pos = obs[..., 0:2].permute(2, 1, 0), obs[..., 2:4].permute(2, 1, 0)  # [2, N, E]
        group = self.spec.layout.landmarks
        landmarks = obs[:, 0, group.start : group.stop].unflatten(-1, (n, 2)) + obs[:, 0, None, 2:4]
        landmarks = landmarks.permute(2, 1, 0)
        target = self._assign(pos, vel, landmarks)
        plans: list[torch.Tensor] = []  # of each agent, [T, 2, E]
        first = [None] * n
        for i in range(n):
            first[i], plan = self._best(pos[:, i], vel[:, i], target[:, i], plans)
            plans.append(plan)
        for _ in range(self.rounds - 1 if n > 1 else 0):
            for i in range(n):
                first[i], plans[i] = self._best(pos[:, i], vel[:, i], target[:, i], plans[:i] + plans[i + 1 :])
        return torch.stack(first, 1)

    def _assign(self, pos: torch.Tensor, vel: torch.Tensor, landmarks: torch.Tensor) -> torch.Tensor:
        """Each agent's landmark ``[2, N, E]`` under the matching of least total predicted cost."""
        n, e = pos.shape[1:]

        def every(t: torch.Tensor) -> torch.Tensor:  # agents along the first, landmarks along the second index
            return t.unsqueeze(2).expand(2, n, n, e).reshape(2, 1, -1)

        goal = landmarks.unsqueeze(1).expand(2, n, n, e).reshape(2, 1, -1)
        cost = torch.stack([self._coast(every(pos), every(vel), goal, gain, []) for gain in self.gains])
        cost = cost.amin(0).view(n, n, e)
        if self.permutations is not None:
            options = torch.stack([cost[i, self.permutations[:, i]] for i in range(n)]).sum(0)  # [N!, E]
            choice = self.permutations.to(cost.device)[options.argmin(0)].t()  # [N, E]
        else:
            matrices = cost.permute(2, 0, 1).cpu().numpy()
            choice = torch.tensor([linear_sum_assignment(m)[1].tolist() for m in matrices]).t()
        return landmarks.gather(1, choice.to(pos.device).unsqueeze(0).expand(2, -1, -1))

    def _best(
        self, pos: torch.Tensor, vel: torch.Tensor, target: torch.Tensor, others: list[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """First push ``[2, E]`` and predicted positions ``[T, 2, E]`` of one agent's cheapest plan."""
        e, num_pushes = pos.shape[1], self.pushes.shape[1]
        pushes, goal = self.pushes.to(pos), target.unsqueeze(1)
        p, v, cost = pos.unsqueeze(1), vel.unsqueeze(1), pos.new_zeros(1, e)
        for t in range(self.depth):
            p = p + DT * v
            cost = cost + self._cost(p, goal, others, t)
            v = (1 - DAMPING) * v.unsqueeze(2) + pushes[:, None, :, None]  # [2, S, A, E]
            v = v.flatten(1, 2)
            p, cost = p.repeat_interleave(num_pushes, 1), cost.repeat_interleave(num_pushes, 0)
        leaves = torch.stack([cost + self._coast(p, v, goal, g, others, self.depth) for g in self.gains])
        best = leaves.flatten(0, 1).argmin(0)  # [E]
        gain, sequence = best // cost.shape[0], best % cost.shape[0]
        digits = [sequence // num_pushes ** (self.depth - 1 - t) % num_pushes for t in range(self.depth)]
        gains = pos.new_tensor(self.gains)[gain]
        plan, p, v = [], pos, vel
        for t in range(self.horizon):
            p = p + DT * v
            push = pushes[:, digits[t]] if t < self.depth else PUSH * self._brake(p, v, target, gains)
            v = (1 - DAMPING) * v + push
            plan.append(p)
        return pushes[:, digits[0]] / PUSH, torch.stack(plan)

    def _coast(
        self, p: torch.Tensor, v: torch.Tensor, goal: torch.Tensor, gain: float, others: list[torch.Tensor], t0: int = 0
    ) -> torch.Tensor:
        """Cost from step ``t0`` to the horizon when the braking rule drives: ``[2, S, E]`` -> ``[S, E]``."""
        cost = torch.zeros_like(p[0])
        for t in range(t0, self.horizon):
            p = p + DT * v
            cost += self._cost(p, goal, others, t)
            v = (1 - DAMPING) * v + PUSH * self._brake(p, v, goal, gain)
        return cost

    def _brake(self, p: torch.Tensor, v: torch.Tensor, goal: torch.Tensor, gain: float | torch.Tensor) -> torch.Tensor:
        return _push_towards_rest(p + gain * v - goal, self.continuous)

    def _cost(self, p: torch.Tensor, goal: torch.Tensor, others: list[torch.Tensor], t: int) -> torch.Tensor:
        cost = self.distance_weight * (p - goal).square().sum(0).sqrt()
        reach = (2 * AGENT_RADIUS) ** 2
        for plan in others:
            cost += self.contact_weight * ((p - plan[t].unsqueeze(1)).square().sum(0) < reach)
        return cost


def _push_towards_rest(rest: torch.Tensor, continuous: bool) -> torch.Tensor:
    """Push in -1..1 against ``rest`` ``[2, ...]``, where the agent would come to a stop relative to its goal.

    Discrete: along the axis with the larger error, if a push (``STEP``) makes that error smaller.
    """
    if continuous:
        return (rest / -STEP).clamp(-1.0, 1.0)
    size = rest.abs()
    x_first = size[0] >= size[1]
    return -rest.sign() * (torch.stack([x_first, ~x_first]) & (size > STEP / 2))


def _as_actions(push: torch.Tensor, continuous: bool) -> torch.Tensor:
    """Pushes ``[E, N, 2]`` -> mpe2's actions: none, left, right, down, up."""
    x, y = push.unbind(-1)
    if continuous:
        return torch.stack([torch.zeros_like(x), -x, x, -y, y], -1).clamp_min(0.0)
    return torch.where(x != 0, 1 + (x > 0).long(), torch.where(y != 0, 3 + (y > 0).long(), 0))


def _require_spread(spec: TaskSpec, name: str) -> None:
    if spec.env_id != "simple_spread" or spec.layout is None:
        raise TaskError(f"policy: {name} plays simple_spread, not {spec.env_id}", key="policy")
