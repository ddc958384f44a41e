"""Evaluation: separate environments, separate fixed seeds, every episode counted once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from envs.base import BatchEnv
from navrl.metrics.trajectories import Trajectories
from runners.policies import Policy

# A task without a time limit of its own is cut here, so that a policy that never ends cannot hang a run.
STEP_LIMIT = 10_000


def evaluate(
    policy: Policy, env: BatchEnv, episodes: int, seed: int, check: Callable[[], None] = lambda: None
) -> Trajectories:
    """Play ``episodes`` episodes; episode j starts from (seed, j) whatever the number of copies of ``env``.

    ``env`` must not reset itself (``auto_reset=False``). ``check`` is called before every step and may raise.
    Returns everything the metrics need, in float64 numpy.
    """
    if env.auto_reset:
        raise ValueError("evaluation needs an environment made with auto_reset=False")
    batches = [_play(policy, env, seed, first, check) for first in range(0, episodes, env.num_envs)]
    return _join(batches, env, episodes)


def _play(
    policy: Policy, env: BatchEnv, seed: int, first: int, check: Callable[[], None]
) -> dict[str, np.ndarray]:
    """One episode in each copy, until the last of them has ended."""
    obs = env.reset(seed, first)
    policy.begin(env.num_envs)
    scenes, rewards, actions = [env.scene()], [], []
    lengths = torch.zeros(env.num_envs, dtype=torch.int64, device=obs.device)
    running = torch.ones(env.num_envs, dtype=torch.bool, device=obs.device)
    for _ in range(STEP_LIMIT):
        check()
        action = policy.act(obs).to(obs.device)
        obs, reward, terminated, truncated, _ = env.step(action)
        scenes.append(env.scene())
        rewards.append(reward)
        actions.append(action)
        lengths += running
        running = running & ~(terminated | truncated)
        if not bool(running.any()):
            break
    batch = {
        "rewards": _stack(rewards),
        "actions": torch.stack(actions).cpu().numpy(),
        "lengths": lengths.cpu().numpy(),
    }
    if scenes[0] is not None:
        for name in ("agent_pos", "agent_vel", "goal_pos"):
            batch[name] = _stack([getattr(scene, name) for scene in scenes])
    return batch


def _stack(tensors: list[torch.Tensor]) -> np.ndarray:
    return torch.stack(tensors).double().cpu().numpy()


def _join(batches: list[dict[str, np.ndarray]], env: BatchEnv, episodes: int) -> Trajectories:
    """Batches along the episode axis, the shorter ones padded in time, cut to ``episodes``."""

    def along(name: str) -> np.ndarray | None:
        if name not in batches[0]:
            return None
        parts = [batch[name] for batch in batches]
        longest = max(part.shape[0] for part in parts)
        parts = [np.pad(p, [(0, longest - p.shape[0])] + [(0, 0)] * (p.ndim - 1)) for p in parts]
        return np.concatenate(parts, axis=1)[:, :episodes]

    spec, geometry = env.spec, env.spec.geometry
    return Trajectories(
        rewards=along("rewards"),
        lengths=np.concatenate([batch["lengths"] for batch in batches])[:episodes],
        agent_pos=along("agent_pos"),
        agent_vel=along("agent_vel"),
        goal_pos=along("goal_pos") if geometry and geometry.num_goals else None,
        actions=along("actions"),
        roles=spec.roles,
        score_role=spec.score_role,
        agent_radii=np.asarray(geometry.agent_radii) if geometry else None,
        goal_radius=geometry.goal_radius if geometry else None,
        own_goals=bool(geometry and geometry.own_goals),
        has_success=bool(geometry and geometry.has_success),
    )
