"""A run leaves everything that the contract names: every metric, what is absent and why, results, files."""

from __future__ import annotations

import json
import statistics
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from whole_runs import Result, call, metadata, rows, summary, train

from navrl.checkpoint import CheckpointStore, load
from navrl.config import Config
from navrl.config_sources import load as load_config
from navrl.metrics.trajectories import load_npz
from navrl.tracking.record import read_events

pytestmark = pytest.mark.usefixtures("no_code_copy")

# shared/metrics.md, name by name
STABILITY = {"policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "actor_grad_norm",
             "critic_grad_norm", "explained_variance", "lr"}  # fmt: skip
TRAIN_TASK = {"episode_reward_mean", "episode_reward_max", "episode_length", "episode_count"}
EVAL_TASK = {"episode_reward", "episode_reward_std", "team_reward", "agent_reward_mean", "success_rate",
             "success_rate_any", "success_rate_015", "success_rate_collision_free", "time_to_goal", "normalized_score"}  # fmt: skip
BEHAVIOUR = {"collision_count", "collision_events", "average_agent_distance", "min_agent_distance", "average_speed",
             "goal_distance", "final_goal_distance", "goals_covered", "path_efficiency",
             "goal_conflict_rate"}  # fmt: skip
COST = {"env_steps_per_second", "rollout_seconds", "update_seconds", "eval_seconds", "tracking_seconds"}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """One small run with everything kept; with the copy of the code, once."""
    flags = ("--log_eval_episodes", "2", "--eval_sampled", "--keep_artifacts", "all")
    result = train(tmp_path_factory.mktemp("whole"), *flags)
    assert result.code == 0, result.err
    return result


def raw_rows(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def test_every_metric_is_in_its_rows(done: Result) -> None:
    first, *others = raw_rows(done.run_dir)
    evaluation = {f"eval/{name}" for name in EVAL_TASK | BEHAVIOUR}
    assert first["step"] == 0 and evaluation <= set(first)
    assert [(name, first[name]) for name in first if name.startswith("train/")] == [("train/episode_count", 0)]
    assert [row["step"] for row in others] == list(range(400, 4001, 400))
    every_row = {f"train/{name}" for name in STABILITY | TRAIN_TASK}
    every_row |= {f"perf/{name}" for name in COST - {"eval_seconds"}}
    for row in others:
        assert every_row <= set(row), every_row - set(row)
        # every third iteration and the last one
        evaluated = row["step"] in (1200, 2400, 3600, 4000)
        assert (evaluation | {"perf/eval_seconds"} <= set(row)) == evaluated
        assert ({f"eval_sampled/{name}" for name in EVAL_TASK} <= set(row)) == evaluated
        assert list(row)[:2] == ["step", "time"]
        assert all(type(value) in (int, float) for value in row.values())
    times = [row["time"] for row in (first, *others)]
    assert times == sorted(times) and times[-1] < 600


def test_the_numbers_of_a_row_hang_together(done: Result) -> None:
    others = raw_rows(done.run_dir)[1:]
    assert [row["train/episode_count"] for row in others] == [16 * n for n in range(1, 11)]
    for row in others:
        assert row["train/episode_length"] == 25
        assert row["train/episode_reward_mean"] <= row["train/episode_reward_max"] < 0
        assert 0 <= row["train/clip_fraction"] <= 1 and 0 <= row["train/entropy"] <= np.log(5) + 1e-6
        assert row["train/explained_variance"] <= 1 and row["perf/env_steps_per_second"] > 0
    lr = Config().lr  # linear to zero: iteration k runs at lr (1 - k/10)
    assert [row["train/lr"] for row in others] == pytest.approx([lr * (1 - k / 10) for k in range(10)])
    evaluated = [row for row in raw_rows(done.run_dir) if "eval/episode_reward" in row]
    for row in evaluated:
        assert row["eval/team_reward"] == pytest.approx(3 * row["eval/episode_reward"])
        assert row["eval/agent_reward_mean"] == pytest.approx(row["eval/episode_reward"] / 25)


def test_absent_metrics_are_named_with_reasons(done: Result, tmp_path: Path) -> None:
    assert metadata(done.run_dir)["absent"] == {}
    alone = train(tmp_path, "--num_agents", "1", "--local_ratio", "0.3", "--total_env_steps", "400")
    reasons = metadata(alone.run_dir)["absent"]
    assert set(reasons) == {"average_agent_distance", "min_agent_distance", "normalized_score"}
    assert all(isinstance(reason, str) and reason for reason in reasons.values())
    for row in raw_rows(alone.run_dir):
        assert not {f"eval/{name}" for name in reasons} & set(row)
        if "eval/episode_reward" in row:
            assert {f"eval/{name}" for name in (EVAL_TASK | BEHAVIOUR) - set(reasons)} <= set(row)


def test_a_curriculum_is_scored_by_the_whole_task(tmp_path: Path) -> None:
    """Evaluation plays without it, so the reference scores of the whole task apply."""
    result = train(tmp_path, "--curriculum", "--eval_sampled", "--total_env_steps", "400")
    assert metadata(result.run_dir)["absent"] == {} and metadata(result.run_dir)["env"]["settings"]["curriculum"]
    for row in raw_rows(result.run_dir):
        assert {"eval/normalized_score", "eval_sampled/normalized_score"} <= set(row)


def test_a_row_without_a_finished_episode_has_no_episode_metrics(tmp_path: Path) -> None:
    result = train(tmp_path, "--rollout_length", "10", "--total_env_steps", "480")
    counts = [row["train/episode_count"] for row in raw_rows(result.run_dir)[1:]]
    has = ["train/episode_reward_mean" in row for row in raw_rows(result.run_dir)[1:]]
    assert counts == [0, 0, 16] and has == [False, False, True]


def test_every_row_can_be_plotted_over_episodes(tmp_path: Path) -> None:
    """Rows of an evaluation alone say train/episode_count too, and the count goes on undisturbed."""
    result = train(tmp_path, "--log_interval", "4", "--eval_interval", "1", "--total_env_steps", "3200")
    found = [(row["step"], row["train/episode_count"]) for row in raw_rows(result.run_dir)]
    assert found == [(400 * n, 16 * n) for n in range(9)]


def test_summary_has_final_and_best(done: Result) -> None:
    about = summary(done.run_dir)
    assert about["status"] == "finished" and about["exit_code"] == 0
    for name in ("final", "best"):
        result = about[name]
        assert result["episodes"] == 4 and result["env"].startswith("mpe2 ")
        assert EVAL_TASK | BEHAVIOUR <= set(result["mean"]) and set(result["mean"]) == set(result["standard_error"])
        assert (done.run_dir / result["checkpoint"]).is_file()
    assert about["final"]["step"] == about["last"]["step"] == 4000
    scores = {row["step"]: row["eval/episode_reward"] for row in rows(done.run_dir)[1:] if "eval/episode_reward" in row}
    assert about["best"]["step"] == max(scores, key=scores.get)
    kept = {artifact["file"]: artifact for artifact in about["artifacts"]}
    last = kept[Path(about["final"]["checkpoint"]).name]
    assert {"latest", "final"} <= set(last["aliases"]) and last["score"] == scores[4000]
    assert last["final_score"] == about["final"]["mean"]["episode_reward"]
    assert all(artifact["score"] == scores.get(artifact["step"]) for artifact in about["artifacts"])
    assert about["trackers"] == {}


def test_checkpoints_and_media_are_there(done: Result) -> None:
    store = CheckpointStore(done.run_dir / "checkpoints")
    evaluated = [row for row in rows(done.run_dir)[1:] if "eval/episode_reward" in row]
    scores = [(row["step"], row["eval/episode_reward"]) for row in evaluated]
    better = [step for i, (step, score) in enumerate(scores) if all(score > earlier for _, earlier in scores[:i])]
    made = sorted({1600, 3200, 4000, *better})  # every 4 iterations, at each new best, and at the end
    assert [entry.step for entry in store.entries[-2:]] == made[-2:] and store.entries[-1].episodes == 160
    # keep_artifacts: all publishes each of them, so each is still there, as it was published
    assert [entry.step for entry in store.entries] == made
    events = [event for event in read_events(done.run_dir) if event["event"] == "artifact"]
    assert sorted({event["step"] for event in events}) == made
    for event in events:
        assert event["metadata"]["sha256"] == sha256((done.run_dir / event["path"]).read_bytes()).hexdigest()
    assert [artifact["step"] for artifact in summary(done.run_dir)["artifacts"]] == made
    state = load(store.path("last"))
    assert state["runner"]["env_steps"] == 4000 and state["task"]["env_id"] == "simple_spread"
    assert sorted(path.name for path in (done.run_dir / "media").iterdir()) == [
        "eval_step4000.gif", "eval_step4000_episode0.npz", "eval_step4000_episode1.npz"]  # fmt: skip
    episode = load_npz(done.run_dir / "media" / "eval_step4000_episode0.npz")
    assert episode.agent_pos.shape == (26, 1, 3, 2) and episode.rewards.shape == (25, 1, 3)
    with Image.open(done.run_dir / "media" / "eval_step4000.gif") as picture:
        assert picture.n_frames > 10 and picture.size == (480, 240)


def test_metadata_names_what_the_run_was_made_of(done: Result) -> None:
    about = metadata(done.run_dir)
    contract = {"git_commit", "git_branch", "git_dirty", "command", "seed", "config_hash", "env", "versions", "machine",
                "started", "ended", "segments", "status", "return_scale", "torch", "absent"}  # fmt: skip
    assert contract <= set(about)
    assert about["status"] == "finished" and about["started"] < about["ended"] and about["seed"] == 1
    assert about["return_scale"] == "A (per agent, mpe2 v3)"
    assert {"python", "torch", "numpy", "pettingzoo", "mpe2"} <= set(about["versions"])
    assert about["torch"]["threads"] == 1
    (segment,) = about["segments"]
    assert (segment["step"], segment["last_step"], segment["ended"]) == (0, 4000, about["ended"])


def test_runs_that_differ_in_seed_share_the_hash(tmp_path: Path) -> None:
    hashes = [
        metadata(train(tmp_path / str(i), "--total_env_steps", "400", *flags).run_dir)["config_hash"]
        for i, flags in enumerate([(), ("--seed", "2"), ("--gamma", "0.123")])
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_its_config_repeats_the_run(done: Result, tmp_path: Path) -> None:
    again = call(["--config", str(done.run_dir / "config.yaml"), "--run_dir", str(tmp_path)], tmp_path)
    assert again.code == 0 and rows(again.run_dir) == rows(done.run_dir)
    assert again.run_dir.relative_to(tmp_path) == done.run_dir.relative_to(done.root)
    first, second = summary(done.run_dir), summary(again.run_dir)
    assert first["final"] == second["final"] and first["best"] == second["best"]
    assert load_config(["--config", str(again.run_dir / "config.yaml")], {}).config.seed == 1


def test_the_person_sees_the_result_and_where_it_is(done: Result) -> None:
    lines = done.out.splitlines()
    assert lines[0].startswith("run ") or any(line.startswith("run ") for line in lines[:3])
    assert any(line.startswith("episode_reward ") and "±" in line for line in lines)
    for title in ("run directory", "best checkpoint", "animation"):
        (line,) = [line for line in lines if line.startswith(title)]
        assert Path(line.removeprefix(title).strip()).exists()
    assert done.err == ""
    assert [line for line in lines if "±" in line] == [
        line for line in (done.run_dir / "console.log").read_text().splitlines() if "±" in line]  # fmt: skip


@pytest.mark.parametrize(("copies", "length"), [(1, 200), (8, 200), (128, 25)])
def test_the_return_scale_does_not_depend_on_copies_or_rollouts(copies: int, length: int, tmp_path: Path) -> None:
    """A policy that is all but uniform earns what the random one does: -26.8 an agent."""
    steps = max(copies * length, 12800) // (copies * length) * copies * length
    result = train(tmp_path, "--num_envs", str(copies), "--rollout_length", str(length),
                   "--total_env_steps", str(steps), "--lr", "1e-12", "--ppo_epoch", "1", "--mini_batch_size", "10000", "--eval_interval", "1000000",
                   "--checkpoint_interval", "1000000", "--network", "mlp")  # fmt: skip
    mean = statistics.fmean(row["train/episode_reward_mean"] for row in rows(result.run_dir)[1:])
    assert mean == pytest.approx(-26.8, abs=1.0)
    assert rows(result.run_dir)[-1]["train/episode_count"] == steps // 25


def test_a_full_disk_stops_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints that are not taken are said; the run goes on, reports its last parameters, and fails: they are lost."""
    whole = train(tmp_path / "whole", "--total_env_steps", "1600").run_dir
    saves = []

    def save(self, state, *, step, **rest):
        saves.append(step)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CheckpointStore, "save", save)
    result = train(tmp_path / "full", "--total_env_steps", "1600")
    assert result.code == 1 and saves and rows(result.run_dir) == rows(whole)
    last = "no checkpoint could be written (No space left on device): what was learned is lost"
    assert result.err.splitlines()[-1] == summary(result.run_dir)["reason"] == last
    assert summary(result.run_dir)["status"] == "failed"
    assert f"step {saves[0]}: not written (No space left on device)" in result.out
    final, expected = summary(result.run_dir)["final"], summary(whole)["final"]
    assert final["mean"] == expected["mean"] and final["step"] == 1600 and final["checkpoint"] is None


def scored(monkeypatch: pytest.MonkeyPatch, *scores: float) -> None:
    """The evaluations of a run, that of the untrained policy first, say these scores."""
    from runners.experiment import Experiment

    left, evaluate = list(scores), Experiment._evaluate
    monkeypatch.setattr(Experiment, "_evaluate", lambda self: evaluate(self) | {"eval/episode_reward": left.pop(0)})


def test_a_best_checkpoint_that_was_not_saved_is_not_to_be_beaten(tmp_path: Path, monkeypatch) -> None:
    """The disk is full at the best evaluation: the next best one is kept, and the failed one is no longer named."""
    scored(monkeypatch, -9.0, -8.0, -1.0, -5.0, -7.0)
    save = CheckpointStore.save

    def full_at_the_second(self, state, *, step, **rest):
        if step == 800:
            raise OSError(28, "No space left on device")
        return save(self, state, step=step, **rest)

    monkeypatch.setattr(CheckpointStore, "save", full_at_the_second)
    result = train(tmp_path, "--total_env_steps", "1600", "--eval_interval", "1")
    store = CheckpointStore(result.run_dir / "checkpoints")
    assert "step 800: not written" in result.out and load(store.path("best"))["best_score"] == -5.0
    (best,) = [entry for entry in store.entries if entry.file == store.best]
    assert (best.step, best.score) == (1200, -5.0) and load(store.path("last"))["best_score"] == -5.0
    assert summary(result.run_dir)["best"]["step"] == 1200


def test_a_best_checkpoint_that_cannot_be_read_is_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from runners import final

    def damaged(path):
        raise final.CheckpointError(f"{path}: damaged")

    monkeypatch.setattr(final, "load", damaged)
    scored(monkeypatch, -9.0, -1.0, -2.0)
    result = train(tmp_path, "--total_env_steps", "800", "--eval_interval", "1")
    about = summary(result.run_dir)
    assert result.code == 0 and about["final"]["step"] == 800
    assert "best" not in about and "the best checkpoint is not evaluated" in result.out


def test_best_is_evaluated_with_its_own_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the best one is an earlier one, evaluating it leaves the last as it was."""
    scored(monkeypatch, -9.0, *(-float(n) for n in range(1, 11)))
    result = train(tmp_path, "--lr", "0.1", "--network", "mlp", "--eval_interval", "1")
    about = summary(result.run_dir)
    store = CheckpointStore(result.run_dir / "checkpoints")
    assert about["best"]["step"] < about["final"]["step"] == 4000 and about["best"]["mean"] != about["final"]["mean"]
    best, last = (load(store.path(which))["runner"]["algorithm"]["actor"] for which in ("best", "last"))
    assert any(not torch.equal(best[name], last[name]) for name in best)
