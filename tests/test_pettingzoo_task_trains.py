"""Any PettingZoo task trains by its address; metrics that it cannot have are absent; roles are kept apart."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from whole_runs import metadata, resume, rows, stop_after, summary, train

pytestmark = pytest.mark.usefixtures("no_code_copy")

GUESS = ("--env_id", "pettingzoo:toy_tasks:guess", "--network", "mlp", "--gamma", "0.5", "--lr", "0.01",
         "--lr_schedule", "constant", "--total_env_steps", "8000")  # fmt: skip
HUNT = ("--env_id", "pettingzoo:toy_tasks:hunters_and_prey", "--total_env_steps", "200", "--num_envs", "4")
TASK = {"episode_reward", "episode_reward_std", "team_reward", "agent_reward_mean", "episode_length"}
MPE2 = ("--env_backend", "mpe2", "--total_env_steps", "800", "--network", "mlp")


def evaluated(run_dir: Path) -> set[str]:
    return {name for name in rows(run_dir)[-1] if name.startswith("eval/")}


def test_a_task_of_ones_own_is_learned(tmp_path: Path) -> None:
    result = train(tmp_path, *GUESS)
    assert result.code == 0, result.err
    chance = rows(result.run_dir)[1]["train/episode_reward_mean"]
    assert chance == pytest.approx(1.25, abs=0.3)
    assert summary(result.run_dir)["final"]["mean"]["episode_reward"] > 4
    assert "toy_tasks_guess_mappo" in result.run_dir.parent.name


def test_metrics_that_the_task_cannot_have_are_absent_and_named(tmp_path: Path) -> None:
    result = train(tmp_path, *GUESS, "--total_env_steps", "400", "--log_eval_episodes", "2")
    assert evaluated(result.run_dir) == {f"eval/{name}" for name in TASK}
    reasons = metadata(result.run_dir)["absent"]
    assert {"success_rate", "normalized_score", "collision_count", "goal_distance", "average_speed"} <= set(reasons)
    assert set(summary(result.run_dir)["final"]["mean"]) == TASK
    # episodes are kept, and nothing is drawn
    assert sorted(path.suffix for path in (result.run_dir / "media").iterdir()) == [".npz", ".npz"]
    assert metadata(result.run_dir)["env"]["backend"] == "pettingzoo"


@pytest.mark.parametrize(("network", "algorithm", "share"), [
    ("mlp", "mappo", "--share_policy"), ("gru", "mappo", "--no_share_policy"), ("gru", "ippo", "--share_policy"),
    ("mlp", "ippo", "--no_share_policy"),
])  # fmt: skip
def test_roles_are_kept_apart(network: str, algorithm: str, share: str, tmp_path: Path) -> None:
    result = train(tmp_path, *HUNT, "--network", network, "--algorithm_name", algorithm, share)
    assert result.code == 0, result.err
    last = rows(result.run_dir)[-1]
    # 5 steps: hunters get 1 each a step, the prey -10; the plain name is the first role's
    assert last["eval/hunter/episode_reward"] == last["eval/episode_reward"] == 5
    assert last["eval/prey/episode_reward"] == -50 == last["train/prey/episode_reward_mean"]
    assert last["train/episode_reward_mean"] == last["train/hunter/episode_reward_mean"] == 5
    assert last["eval/hunter/team_reward"] == 10 and last["eval/prey/team_reward"] == -50
    reasons = metadata(result.run_dir)["absent"]
    assert "prey/collision_count" in reasons and "hunter/success_rate" in reasons


@pytest.mark.parametrize(("task", "roles"), [
    ("simple_tag", {"adversary", "agent"}),
    ("simple_speaker_listener", {"speaker", "listener"}),
    ("simple_world_comm", {"leadadversary", "adversary", "agent"}),
])  # fmt: skip
def test_tasks_of_several_roles_train(task: str, roles: set[str], tmp_path: Path) -> None:
    result = train(tmp_path, "--env_id", task, *MPE2, "--num_envs", "8", "--log_eval_episodes", "1")
    assert result.code == 0, result.err
    last = rows(result.run_dir)[-1]
    about = metadata(result.run_dir)["env"]
    role = about["score_role"]
    assert role in roles and set(about["roles"]) == roles
    assert len(set(about["observation_sizes"])) > 1 or len(set(about["action"]["sizes"])) > 1, "padded and masked"
    for each in roles:
        assert f"eval/{each}/episode_reward" in last and f"train/{each}/episode_reward_mean" in last
    assert last["eval/episode_reward"] == last[f"eval/{role}/episode_reward"]
    if task == "simple_tag":  # what adversaries gain agents lose; one number of both would hide it
        assert last["eval/adversary/episode_reward"] >= 0 >= last["eval/agent/episode_reward"]
    assert "eval/average_speed" in last and "success_rate" in metadata(result.run_dir)["absent"]
    assert [path.suffix for path in sorted((result.run_dir / "media").iterdir())] == [".gif", ".npz"]


def test_simple_spread_of_mpe2_trains_with_all_its_metrics(tmp_path: Path) -> None:
    original = train(tmp_path / "mpe2", *MPE2, "--network", "entity")
    batched = train(tmp_path / "batched", "--total_env_steps", "800")
    assert original.code == 0, original.err
    assert evaluated(original.run_dir) == evaluated(batched.run_dir)
    assert metadata(original.run_dir)["env"]["backend"] == "mpe2" and metadata(original.run_dir)["absent"] == {}
    # the same seeds, the same parameters: before learning both play the same evaluation
    assert rows(original.run_dir)[0] == rows(batched.run_dir)[0]


def test_worker_processes_give_the_numbers_of_this_process(tmp_path: Path) -> None:
    here = train(tmp_path / "here", *GUESS, "--total_env_steps", "300", "--num_envs", "4")
    there = train(tmp_path / "there", *GUESS, "--total_env_steps", "300", "--num_envs", "4", "--num_workers", "2")
    assert there.code == 0, there.err
    assert rows(there.run_dir) == rows(here.run_dir)


def test_a_task_that_cannot_be_saved_resumes_at_fresh_episodes_and_says_so(tmp_path: Path, monkeypatch) -> None:
    flags = (*GUESS, "--rollout_length", "7", "--num_envs", "4", "--total_env_steps", "280", "--network", "gru")
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        stopped = train(tmp_path, *flags)
    assert stopped.code == 143
    result = resume(stopped.run_dir)
    assert result.code == 0 and "cannot be saved amid an episode: every copy begins a new one" in result.out
    after = [json.loads(line) for line in (stopped.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in after] == list(range(0, 281, 28))
    # 21 steps of each copy were 4 episodes and a piece; what is counted after are whole episodes of 5 steps
    assert all(row["train/episode_length"] == 5 for row in after[1:])
    assert after[3]["train/episode_count"] == 16 and after[4]["train/episode_count"] == 20


def test_a_task_that_raises_while_training_fails_by_name(tmp_path: Path) -> None:
    result = train(tmp_path, "--env_id", "pettingzoo:toy_tasks:raises_in_third_iteration", "--network", "mlp")
    assert result.code == 1
    last = result.err.splitlines()[-1]
    assert last.startswith("EnvironmentFault: ") and "KeyError" in last and "a bug in the task" in last
    assert re.search(r"copy \d+, step \d of episode 1\d: ", last), last
    assert "toy_tasks.py" in result.err, "its own traceback is shown"
    assert summary(result.run_dir)["reason"] == last
