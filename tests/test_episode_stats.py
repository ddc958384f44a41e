"""train/episode_* equal a slow loop over ragged episodes, and do not scale with copies or length."""

from __future__ import annotations

import pytest
import torch

from envs.mpe.simple_spread import BatchedSimpleSpread
from learner_tools import CPU, RaggedTask, learner, learner_config, random_reward, runner_for, task_spec
from runners.episode_stats import EpisodeStats


def slow_rows(rewards: torch.Tensor, done: torch.Tensor, roles: tuple[str, ...], every: int) -> list[dict[str, float]]:
    """One row ``every`` steps by a loop over copies and steps: rewards ``[T, E, N]``, done ``[T, E]``."""
    copies = rewards.shape[1]
    running = [[0.0] * len(roles) for _ in range(copies)]
    lengths, finished, count, rows = [0] * copies, [], 0, []
    for t in range(len(rewards)):
        for e in range(copies):
            for i in range(len(roles)):
                running[e][i] += float(rewards[t, e, i])
            lengths[e] += 1
            if done[t, e]:
                finished.append((running[e], lengths[e]))
                running[e], lengths[e] = [0.0] * len(roles), 0
        if (t + 1) % every:
            continue
        count += len(finished)
        row: dict[str, float] = {"train/episode_count": count}
        if finished:
            row["train/episode_length"] = sum(length for _, length in finished) / len(finished)
            for role in dict.fromkeys(roles):
                members = [i for i, r in enumerate(roles) if r == role]
                scores = [sum(total[i] for i in members) / len(members) for total, _ in finished]
                names = [f"train/{role}/"] if len(set(roles)) > 1 else []
                names += ["train/"] if role == roles[0] else []
                for name in names:
                    row[f"{name}episode_reward_mean"] = sum(scores) / len(scores)
                    row[f"{name}episode_reward_max"] = max(scores)
        rows.append(row)
        finished = []
    return rows


@pytest.mark.parametrize("roles", [("agent",) * 3, ("prey", "hunter", "hunter"), ("a", "b", "c")])
@pytest.mark.parametrize("every", [1, 4, 9])
def test_rows_equal_a_slow_loop(roles: tuple[str, ...], every: int) -> None:
    generator = torch.Generator().manual_seed(2)
    rewards = torch.randn(36, 5, 3, generator=generator)
    done = torch.rand(36, 5, generator=generator) < 0.15
    expected = slow_rows(rewards, done, roles, every)
    stats = EpisodeStats(task_spec(3, 4, roles=roles), 5, CPU)
    rows = []
    for t in range(36):
        stats.add(rewards[t], done[t] if done[t].any() else None)
        if t == 17:  # saved and restored in the middle of episodes
            fresh = EpisodeStats(task_spec(3, 4, roles=roles), 5, CPU)
            fresh.load_state_dict(stats.state_dict())
            stats = fresh
        if (t + 1) % every == 0:
            rows.append(stats.row())
    assert any(len(row) == 1 for row in expected) == (every == 1)
    assert len(rows) == len(expected)
    for ours, theirs in zip(rows, expected):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            assert ours[name] == pytest.approx(value, abs=1e-5), name
    assert stats.total() == int(done[: 36 // every * every].sum())


@pytest.mark.parametrize("length", [1, 7, 10])
def test_the_runner_counts_what_the_rollout_holds(length: int) -> None:
    spec = task_spec(2, 4)
    algorithm = learner(spec, learner_config("--network", "mlp", hidden_size=4))
    runner = runner_for(algorithm, RaggedTask([3, 1, 7, 12], spec, random_reward, "mixed"), length)
    rewards, done, rows = [], [], []
    for _ in range(5):
        runner.collect()
        rewards.append(runner.rollout.rewards.clone())
        done.append(runner.rollout.terminated | runner.rollout.truncated)
        rows.append(runner.episodes.row())
    assert runner.env_steps == 5 * length * 4
    for ours, theirs in zip(rows, slow_rows(torch.cat(rewards), torch.cat(done), spec.roles, length)):
        assert ours == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("copies", [1, 8, 128])
def test_the_return_of_random_actions_is_that_of_scale_a_whatever_the_number_of_copies(copies: int) -> None:
    env = BatchedSimpleSpread(copies, {})
    env.reset(11)
    stats = EpisodeStats(env.spec, copies, CPU)
    generator = torch.Generator().manual_seed(0)
    episodes = 320 if copies == 1 else 640
    for _ in range(episodes // copies * 25):
        step = env.step(torch.randint(0, 5, (copies, 3), generator=generator))
        stats.add(step.reward, None if step.final_obs is None else step.truncated)
    row = stats.row()
    assert row["train/episode_count"] == episodes and row["train/episode_length"] == 25
    assert row["train/episode_reward_mean"] == pytest.approx(-26.8, abs=1)
    assert row["train/episode_reward_mean"] < row["train/episode_reward_max"] < -5


def test_the_mean_is_over_episodes_not_over_steps_or_rollouts() -> None:
    """Episodes of 1 and 9 steps, reward 1 a step: the mean counts episodes, each its own sum."""
    stats = EpisodeStats(task_spec(2, 4), 2, CPU)
    for t in range(9):
        stats.add(torch.ones(2, 2), torch.tensor([True, t == 8]))
    row = stats.row()
    assert row["train/episode_reward_mean"] == pytest.approx((9 * 1 + 9) / 10)
    assert row["train/episode_length"] == pytest.approx(18 / 10)
    assert stats.row() == {"train/episode_count": 10}
