"""Stopped anywhere and resumed, a run is the run that was never stopped: to the bit, in every kind of run."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from whole_runs import metadata, program, resume, rows, run_dirs, same_run, stop_after, summary, tiny_argv, train

import navrl.tracking.record as record

pytestmark = pytest.mark.usefixtures("no_code_copy")

SHORT = ("--total_env_steps", "600", "--num_envs", "4", "--mini_batch_size", "30", "--checkpoint_interval", "2")
# rollouts of 10 steps cut the episodes of 25 in the middle
CUT = ("--rollout_length", "10", "--total_env_steps", "480", "--num_envs", "6", "--mini_batch_size", "25")
TERMINATING = ("--terminate_on_success", "--num_agents", "1")
MPE2 = ("--env_backend", "mpe2", "--total_env_steps", "240", "--num_envs", "4", "--rollout_length", "10",
        "--mini_batch_size", "20")  # fmt: skip
KINDS = {
    "mappo entity discrete batched": SHORT,
    "mappo mlp discrete mpe2 popart": ("--network", "mlp", "--value_norm", "popart", *MPE2),
    "mappo gru discrete batched cut": ("--network", "gru", "--chunk_length", "5", *CUT),
    "mappo gru continuous mpe2": ("--network", "gru", "--continuous_actions", *MPE2),
    "ippo mlp continuous batched cut": ("--algorithm_name", "ippo", "--network", "mlp", "--continuous_actions", *CUT),
    "ippo entity discrete batched popart": ("--algorithm_name", "ippo", "--value_norm", "popart", *CUT),
    "ippo gru discrete batched separate": ("--algorithm_name", "ippo", "--network", "gru", "--no_share_policy", *CUT),
    "mappo entity batched terminating cut": (*TERMINATING, "--max_cycles", "40", *CUT),
    "mappo entity batched curriculum": ("--curriculum", "--curriculum_advance_at", "250,300", *CUT),
    "ippo entity mpe2 curriculum": ("--algorithm_name", "ippo", "--curriculum", "--curriculum_advance_at", "130",
                                    *MPE2),
    "mappo mlp on two threads": ("--network", "mlp", "--torch_threads", "2", *SHORT, "--ppo_epoch", "1"),
    "mappo mlp constant lr, entropy falls": ("--network", "mlp", "--lr_schedule", "constant", "--entropy_coef", "0.05",
                                             "--entropy_coef_end", "0", "--eval_sampled", *SHORT),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_train_2k_is_train_k_stop_resume_k(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(tmp_path / "whole", *KINDS[kind])
    assert whole.code == 0, whole.err
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        stopped = train(tmp_path / "stopped", *KINDS[kind])
    assert stopped.code == 143 and summary(stopped.run_dir)["status"] == "interrupted"
    assert len(rows(stopped.run_dir)) == 4
    assert resume(stopped.run_dir).code == 0
    same_run(whole.run_dir, stopped.run_dir)
    assert [segment["step"] for segment in metadata(stopped.run_dir)["segments"]] == [0, rows(whole.run_dir)[3]["step"]]


def test_a_stop_before_the_first_iteration_and_in_the_final_evaluation(tmp_path: Path, monkeypatch) -> None:
    whole = train(tmp_path / "whole", *SHORT).run_dir
    from runners import experiment, final

    def signal_in(module):
        evaluate = module.evaluate

        def evaluate_and_stop(*arguments):
            if os.environ.pop("STOP_NOW", None):
                os.kill(os.getpid(), signal.SIGTERM)
            return evaluate(*arguments)

        monkeypatch.setattr(module, "evaluate", evaluate_and_stop)

    signal_in(experiment), signal_in(final)
    monkeypatch.setenv("STOP_NOW", "1")
    stopped = train(tmp_path / "stopped", *SHORT)
    assert stopped.code == 143 and rows(stopped.run_dir) == []
    # now in the last evaluation: the run's steps are done, its result is not
    monkeypatch.setattr(experiment, "evaluate", final.evaluate)
    with monkeypatch.context() as patch:
        finish = experiment.Experiment._finish_training
        patch.setattr(experiment.Experiment, "_finish_training",
                      lambda self: [os.environ.update(STOP_NOW="1"), finish(self)])
        again = resume(stopped.run_dir)
    assert again.code == 143 and "final" not in summary(stopped.run_dir)
    assert resume(stopped.run_dir).code == 0
    same_run(whole, stopped.run_dir)


@pytest.mark.parametrize("log_interval", [1, 2])
@pytest.mark.parametrize("evaluation", [1, 2, 3, 4])
def test_a_stop_amid_an_evaluation(evaluation: int, log_interval: int, tmp_path: Path, monkeypatch) -> None:
    """It ends at once; the resume does the evaluation that is owed, and the record is that of the whole run."""
    from runners import evaluation as module

    flags = ("--eval_sampled", "--log_interval", str(log_interval), "--eval_interval", "2", "--total_env_steps", "2400")
    whole = train(tmp_path / "whole", *flags).run_dir
    played, evaluate = [], module._play

    def play_and_stop(*arguments):
        played.append(1)
        if len(played) == 2 * evaluation:  # the sampled half of that evaluation
            os.kill(os.getpid(), signal.SIGUSR1)
        return evaluate(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_play", play_and_stop)
        stopped = train(tmp_path / "stopped", *flags)
    assert stopped.code == 138 and len(played) == 2 * evaluation
    step = 800 * (evaluation - 1)
    before = rows(stopped.run_dir)
    assert summary(stopped.run_dir)["last"]["step"] == step
    assert [row["step"] for row in before if "eval/episode_reward" in row] == list(range(0, step, 800))
    if step:  # what training had to say is there already
        assert before[-1]["step"] == step and "train/policy_loss" in before[-1]
    assert resume(stopped.run_dir).code == 0
    same_run(whole, stopped.run_dir)


def test_killed_at_a_random_moment_and_resumed(tmp_path: Path) -> None:
    flags = ("--total_env_steps", "3000", "--num_envs", "4", "--checkpoint_interval", "3", "--mini_batch_size", "25")
    whole = train(tmp_path / "whole", *flags)
    process = program(tiny_argv(tmp_path / "killed", *flags))
    rows_file = next(wait_for(tmp_path / "killed", "metrics.jsonl"))
    at = random.randrange(2, 20)
    while process.poll() is None and len(rows_file.read_text().splitlines()) < at:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    (run_dir,) = run_dirs(tmp_path / "killed")
    assert record.read_summary(run_dir)["status"] == "crashed"
    moved = tmp_path / "elsewhere" / "a" / "b" / "run"
    moved.parent.mkdir(parents=True)
    shutil.move(run_dir, moved)
    assert resume(moved).code == 0
    same_run(whole.run_dir, moved)
    steps = [row["step"] for row in rows(moved)]
    assert steps == sorted(set(steps)) and steps == list(range(0, 3001, 100))


def wait_for(root: Path, name: str):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = list(root.rglob(name))
        if found:
            yield found[0]
        time.sleep(0.02)
    raise AssertionError(f"no {name} under {root}")


def test_a_run_that_died_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", *SHORT).run_dir
    died = train(tmp_path / "died", *SHORT).run_dir
    before = metadata(died)
    shutil.rmtree(died / "checkpoints")
    result = resume(died)
    assert result.code == 0 and "begins again at step 0" in result.out
    same_run(whole, died)
    (segment,) = metadata(died)["segments"]  # of the process that made what is there
    assert segment["step"] == 0 and metadata(died)["started"] == segment["started"] > before["ended"]
    assert len(list(died.glob("metrics.cut-1.jsonl"))) == 1


def test_a_larger_budget_with_a_constant_rate_is_the_longer_run(tmp_path: Path) -> None:
    constant = (*SHORT, "--lr_schedule", "constant", "--ppo_epoch_end", "null")
    whole = train(tmp_path / "whole", *constant, "--total_env_steps", "1000")
    shorter = train(tmp_path / "shorter", *constant)
    assert whole.code == shorter.code == 0
    assert resume(shorter.run_dir, "--total_env_steps", "1000").code == 0
    cut, grown = rows(whole.run_dir), rows(shorter.run_dir)
    evaluated_once_more = grown[6].keys() - cut[6].keys()  # the last iteration of the shorter run was evaluated
    assert all(name.startswith("eval/") for name in evaluated_once_more)
    grown[6] = {name: value for name, value in grown[6].items() if name in cut[6]}
    assert grown == cut
    segment = metadata(shorter.run_dir)["segments"][1]
    assert segment["changed"] == {"total_env_steps": [600, 1000]} and segment["step"] == 600
    # what continues it is named too, and the hash is that of the configuration as it is now
    assert {"versions", "machine", "torch", "config_hash"} <= set(segment)
    assert metadata(shorter.run_dir)["config_hash"] == metadata(whole.run_dir)["config_hash"] == segment["config_hash"]


def test_a_finished_run_that_is_resumed_names_each_checkpoint_and_alias_once(tmp_path: Path) -> None:
    run_dir = train(tmp_path, *SHORT).run_dir
    before = summary(run_dir)["artifacts"]
    assert resume(run_dir).code == 0 and summary(run_dir)["artifacts"] == before
    assert resume(run_dir, "--total_env_steps", "1000").code == 0
    artifacts = summary(run_dir)["artifacts"]
    files = [artifact["file"] for artifact in artifacts]
    aliases = [alias for artifact in artifacts for alias in artifact["aliases"]]
    assert len(set(files)) == len(files) and sorted(aliases) == ["best", "final", "latest"]
    (final,) = [artifact for artifact in artifacts if "final" in artifact["aliases"]]
    assert final["step"] == 1000 and {a["file"] for a in before} <= set(files)


def test_changed_science_is_refused_key_by_key_and_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    named = (*SHORT, "--group", "g", "--experiment_name", "mine")
    changed = ("--lr", "1e-3", "--gamma", "0.5", "--seed", "9")
    run_dir = train(tmp_path, *named).run_dir
    before = contents(run_dir)
    for refused in (resume(run_dir, *changed), train(tmp_path, *named, *changed, "--if_exists", "resume")):
        assert refused.code == 2 and "3 faults" in refused.err
        for key, value in (("lr", "0.001"), ("gamma", "0.5"), ("seed", "9")):
            assert any(line.startswith(f"  - {key}") and value in line for line in refused.err.splitlines())
    assert contents(run_dir) == before and run_dirs(tmp_path) == [run_dir]


def test_a_budget_below_what_is_trained_is_refused_and_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    run_dir = train(tmp_path, *SHORT).run_dir
    before, trained = contents(run_dir), summary(run_dir)["last"]["step"]
    refused = resume(run_dir, "--total_env_steps", "1")
    words = f"total_env_steps 1 is less than the {trained} steps already trained"
    assert refused.code == 2 and words in refused.err and "Traceback" not in refused.err
    assert contents(run_dir) == before


def contents(run_dir: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file() and path.name != ".lock"}


def test_if_exists_resume_goes_on_with_the_run_of_that_name(tmp_path: Path, monkeypatch) -> None:
    whole = train(tmp_path / "whole", *SHORT).run_dir
    with monkeypatch.context() as patch:
        stop_after(patch, 2, signal.SIGUSR1)
        assert train(tmp_path / "runs", *SHORT).code == 138
    again = train(tmp_path / "runs", *SHORT, "--if_exists", "resume")
    assert again.code == 0
    same_run(whole, again.run_dir)


def test_a_second_process_on_one_run_is_refused(tmp_path: Path) -> None:
    run_dir = train(tmp_path, *SHORT).run_dir
    lock = record.RunLock(run_dir / ".lock")
    before = (run_dir / "summary.json").read_bytes()
    try:
        refused = resume(run_dir)
    finally:
        lock.release()
    assert refused.code == 2 and "in use" in refused.err and str(os.getpid()) in refused.err
    assert (run_dir / "summary.json").read_bytes() == before


def test_a_damaged_newest_checkpoint_is_left_out_and_said(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", *SHORT).run_dir
    hurt = train(tmp_path / "hurt", *SHORT).run_dir
    index = json.loads((hurt / "checkpoints" / "index.json").read_text())
    newest = hurt / "checkpoints" / index["checkpoints"][-1]["file"]
    newest.write_bytes(newest.read_bytes()[:-100])
    again = resume(hurt)
    assert again.code == 0 and f"checkpoint left out: {newest}" in again.out and "going on from" in again.out
    same_run(whole, hurt)
    assert (hurt / "metrics.cut-1.jsonl").exists()
    assert "left out" in (hurt / "console.log").read_text()
