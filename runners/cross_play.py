"""Cross-play: do policies that were trained apart work together?

Seeds of one configuration may reach the same return by conventions of their own, and fail in a mixed team (Hu et al.
2020, "Other-Play" for Zero-Shot Coordination). Here one agent acts as one run has learned to, its teammates as another.

In a task of several roles (simple_tag: adversaries and prey) that agent is one of the role whose reward is reported:
an opponent that plays worse would be taken for a team that plays better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from envs.base import BatchEnv
from runners import report
from runners.evaluation import evaluate
from runners.paired import standard_error
from runners.policies import Policy


class MixedTeam:
    """In each episode one agent acts by ``newcomer``, the others by ``team``; whose turn it is goes round.

    seats: the agents whose turn it can be; None: any.
    Each policy sees all observations from the start of an episode, so that one with memory has it in any seat.
    """

    def __init__(self, newcomer: Policy, team: Policy, seats: Sequence[int] | None = None) -> None:
        self.newcomer, self.team, self.seats = newcomer, team, seats

    def begin(self, num_envs: int) -> None:
        self.newcomer.begin(num_envs)
        self.team.begin(num_envs)

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        copies, agents = obs.shape[:2]
        seats = torch.tensor(range(agents) if self.seats is None else self.seats, device=obs.device)
        seat = seats[torch.arange(copies, device=obs.device) % len(seats)]  # [E]
        is_newcomer = torch.arange(agents, device=obs.device) == seat.unsqueeze(-1)  # [E, N]
        theirs, others = self.newcomer.act(obs), self.team.act(obs)
        return torch.where(is_newcomer if theirs.dim() == 2 else is_newcomer.unsqueeze(-1), theirs, others)


def play(policies: Sequence[Policy], env: BatchEnv, episodes: int, seed: int) -> dict[str, np.ndarray]:
    """metric -> float64 ``[R, R, E]``: one agent of run i in a team of run j, the same episodes for every pair.

    The one is of ``score_role``; the team and every other role are of run j. On the diagonal is self-play.
    """
    seats = [agent for agent, role in enumerate(env.spec.roles) if role == env.spec.score_role]
    rows = []
    for i, newcomer in enumerate(policies):
        for j, team in enumerate(policies):
            policy = newcomer if i == j else MixedTeam(newcomer, team, seats)
            rows.append(report.per_episode(evaluate(policy, env, episodes, seed), env.spec))
    count = len(policies)
    return {name: np.stack([row[name] for row in rows]).reshape(count, count, episodes) for name in rows[0]}


def summary(values: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Of ``[R, R, E]`` values (R > 1, E > 1): means and standard errors of each pair, of self-play and of cross-play.

    Standard errors are over episodes, for these very runs. ``difference`` is cross-play minus self-play, paired.
    """
    result: dict[str, Any] = {}
    for name, played in values.items():
        own = np.eye(len(played), dtype=bool)
        kinds = {"self_play": played[own].mean(0), "cross_play": played[~own].mean(0)}  # [E] each
        kinds["difference"] = kinds["cross_play"] - kinds["self_play"]
        result[name] = {
            "mean": played.mean(-1).tolist(),
            "standard_error": (played.std(-1, ddof=1) / np.sqrt(played.shape[-1])).tolist(),
        } | {kind: {"mean": float(each.mean()), "standard_error": standard_error(each)} for kind, each in kinds.items()}
    return result


def table(names: Sequence[str], found: Mapping[str, Any], metrics: Sequence[str]) -> list[str]:
    """Lines of one matrix a metric that there is: rows are the newcomers' runs, columns their teams'."""
    width = max(12, *(len(name) + 2 for name in names))
    lines = []
    for metric in metrics:
        if metric not in found:
            continue
        of = found[metric]
        lines += [f"{metric}: one agent of the row's run in a team of the column's",
                  " " * width + "".join(f"{name:>{width}}" for name in names)]  # fmt: skip
        for name, row in zip(names, of["mean"]):
            lines.append(f"{name:<{width}}" + "".join(f"{value:>{width}.3f}" for value in row))
        said = {kind: f"{of[kind]['mean']:.3f} ± {of[kind]['standard_error']:.3f}"
                for kind in ("self_play", "cross_play", "difference")}  # fmt: skip
        lines += [f"self-play {said['self_play']}, cross-play {said['cross_play']}, difference {said['difference']} "
                  "(± over episodes, paired)", ""]  # fmt: skip
    return lines[:-1]
