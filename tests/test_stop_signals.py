"""However a run ends, it ends with the right code, status and last line, and its last good checkpoint can be used."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import stop_tools
from whole_runs import ROOT, program, resume, rows, run_dirs, same_run, summary, tiny_argv, train

from navrl.checkpoint import CheckpointStore
from navrl.tracking import hub
from navrl.tracking.record import is_alive, read_summary
from runners.on_policy import OnPolicyRunner
from runners.stopping import StopRequest

pytestmark = pytest.mark.usefixtures("no_code_copy")

FLAGS = ("--total_env_steps", "1600", "--checkpoint_interval", "2")
LONG = ("--total_env_steps", "100000000", "--checkpoint_interval", "1000000", "--eval_interval", "1000000")


def test_a_signal_ends_the_run_after_a_checkpoint(tmp_path: Path) -> None:
    process = program(tiny_argv(tmp_path, *LONG))
    stop_tools.wait_for_rows(process, tmp_path, 3)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    code = process.returncode
    assert code == 130 and err.splitlines()[-1] == "stopped by SIGINT" and "Traceback" not in out + err
    (run_dir,) = run_dirs(tmp_path)
    about = summary(run_dir)
    assert (about["status"], about["exit_code"]) == ("interrupted", code)
    state, path, problems = CheckpointStore(run_dir / "checkpoints").newest()
    step = state["runner"]["env_steps"]
    assert problems == [] and about["last"] == {"step": step, "checkpoint": f"checkpoints/{path.name}"}
    assert rows(run_dir)[-1]["step"] == step
    assert not is_alive(run_dir)


STOPPED = {
    "opening": 1, "trackers start": 1, "trackers import": 1, "iteration": 2, "collect": 60, "update": 5, "evaluation": 2,
    "checkpoint": 1, "amid a file": 12, "final workers start": 1, "final evaluation": 1,
}  # fmt: skip
MANY = ("--eval_interval", "2", "--log_eval_episodes", "1", *FLAGS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub.TrackerHub, "_keep_code", lambda *_: None)
        return train(tmp_path_factory.mktemp("whole"), *MANY).run_dir


def meet(root: Path, *moments: tuple[str, int, int], flags: tuple[str, ...] = (), whom: str = "group") -> int:
    """Exit code of a run that sends itself signals at these moments."""
    return stop_tools.wait(stop_tools.start(tiny_argv(root, *MANY, *flags), root / "said.txt", *moments, whom=whom))


@pytest.mark.parametrize("moment", STOPPED)
def test_a_signal_to_the_group_at_any_moment_stops_and_the_resume_is_exact(moment: str, tmp_path: Path, whole) -> None:
    number = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)[list(STOPPED).index(moment) % 3]
    workers = ("--num_workers", "1") if moment == "final workers start" else ()
    trackers = ("--logger", "console", "tensorboard") if moment.startswith("trackers") else ()
    # publishers have a session of their own, which Slurm's signals reach too
    whom = "tree" if moment == "trackers import" else "group"
    code = meet(tmp_path, (moment, STOPPED[moment], number), flags=(*workers, *trackers), whom=whom)
    said = (tmp_path / "said.txt").read_text()
    assert code == 128 + number, said
    assert said.splitlines()[-1] == f"stopped by {number.name}" and "Traceback" not in said
    (run_dir,) = run_dirs(tmp_path)
    about = summary(run_dir)
    assert (about["status"], about["exit_code"]) == ("interrupted", code) and about["last"]["checkpoint"]
    for name, has in about["trackers"].items():
        assert (has["state"], has["owed"]) == ("finished", 0), name
    assert resume(run_dir, "--num_workers", "0", "--logger", "console").code == 0
    same_run(whole, run_dir)


@pytest.mark.parametrize("moment", ["animation", "trackers close"])
def test_a_signal_once_the_result_is_there_changes_nothing(moment: str, tmp_path: Path, whole: Path) -> None:
    flags = ("--logger", "console", "tensorboard")
    code = meet(tmp_path, (moment, 1, signal.SIGTERM), flags=flags, whom="tree")
    (run_dir,) = run_dirs(tmp_path)
    assert code == 0 == summary(run_dir)["exit_code"]
    has = summary(run_dir)["trackers"]["tensorboard"]
    assert (has["state"], has["owed"]) == ("finished", 0)
    same_run(whole, run_dir)


def test_a_signal_before_anything_is_written_ends_at_once(tmp_path: Path) -> None:
    process = program(tiny_argv(tmp_path, *LONG))
    caught = 1 << (signal.SIGTERM - 1)
    while not caught & int(Path(f"/proc/{process.pid}/status").read_text().split("SigCgt:")[1].split()[0], 16):
        time.sleep(0.001)  # Python itself is starting
    process.terminate()
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (143, "", "stopped by SIGTERM before anything was written\n")
    code = meet(tmp_path, ("start-up", 1, signal.SIGINT))  # as late as can be
    assert code == 130 and run_dirs(tmp_path) == []


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    endless = ("--rollout_length", "1000000", "--num_envs", "1", "--total_env_steps", "1000000")
    code = meet(tmp_path, ("iteration", 1, signal.SIGTERM), ("collect", 50, signal.SIGINT), flags=endless)
    said = (tmp_path / "said.txt").read_text()
    assert code == 130 and said.count("stopping after this iteration; a second signal ends at once") == 1
    (run_dir,) = run_dirs(tmp_path)
    assert not is_alive(run_dir) and read_summary(run_dir)["status"] == "crashed"


@pytest.mark.parametrize("point", [1, 2, 4])  # of one signal test_checkpoints_are_whole.py has every point
def test_a_second_signal_amid_the_checkpoint_leaves_one_to_go_on_from(point: int, tmp_path: Path, whole: Path) -> None:
    assert meet(tmp_path, ("iteration", 3, signal.SIGTERM), ("amid a file", point, signal.SIGUSR1)) == 138
    (run_dir,) = run_dirs(tmp_path)
    _, _, problems = CheckpointStore(run_dir / "checkpoints").newest()
    assert problems == []
    assert resume(run_dir).code == 0
    same_run(whole, run_dir)


def test_a_signal_while_the_interpreter_ends_does_not_change_the_code() -> None:
    words = ("import atexit, os, runpy, signal, sys; sys.argv = ['main.py', '--lr', 'x']\n"
             "atexit.register(os.kill, os.getpid(), signal.SIGTERM)\n"  # called last: the first that is registered
             "runpy.run_path('main.py', run_name='__main__')")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "lr" in done.stderr


def test_a_signal_that_comes_twice_at_once_is_one(tmp_path: Path) -> None:
    """`timeout` signals its command and then the whole group, of which the command is one."""
    assert meet(tmp_path, ("iteration", 2, signal.SIGTERM), ("collect", 1, signal.SIGTERM)) == 143
    (run_dir,) = run_dirs(tmp_path)
    assert summary(run_dir)["status"] == "interrupted"


def test_handlers_are_put_back(tmp_path: Path) -> None:
    before = [signal.getsignal(getattr(signal, name)) for name in ("SIGINT", "SIGTERM", "SIGUSR1")]
    with StopRequest() as stop:
        stop.defer()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stop.requested and stop.exit_code == 138 and stop.name == "SIGUSR1"
    assert before == [signal.getsignal(getattr(signal, name)) for name in ("SIGINT", "SIGTERM", "SIGUSR1")]


def test_an_exception_fails_the_run_with_its_reason_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collect = OnPolicyRunner.collect

    def broken(self: OnPolicyRunner) -> None:
        if self.iteration == 3:
            raise ZeroDivisionError("a bug of ours")
        collect(self)

    with monkeypatch.context() as patch:
        patch.setattr(OnPolicyRunner, "collect", broken)
        failed = train(tmp_path, *FLAGS)
    assert failed.code == 1 and failed.err.splitlines()[-1] == "ZeroDivisionError: a bug of ours"
    assert "Traceback" in failed.err, "a bug of ours shows where it is"
    about = summary(failed.run_dir)
    assert (about["status"], about["exit_code"], about["reason"]) == ("failed", 1, "ZeroDivisionError: a bug of ours")
    assert "Traceback" in (failed.run_dir / "console.log").read_text()
    assert [row["step"] for row in rows(failed.run_dir)] == [0, 400, 800, 1200]
    assert CheckpointStore(failed.run_dir / "checkpoints").newest()[0]["runner"]["iteration"] in (2, 3)
    assert resume(failed.run_dir).code == 0


def test_a_reward_that_is_not_a_number_stops_by_name(tmp_path: Path) -> None:
    flags = ("--env_id", "pettingzoo:toy_tasks:nan_in_third_iteration", "--network", "mlp", *FLAGS)
    failed = train(tmp_path, *flags)
    assert failed.code == 1 and "Traceback" not in failed.err
    last = failed.err.splitlines()[-1]
    assert last.startswith("EnvironmentFault: ") and "reward" in last and "agent_1" in last and "step 3" in last
    about = summary(failed.run_dir)
    assert about["status"] == "failed" and about["reason"] == last
    assert CheckpointStore(failed.run_dir / "checkpoints").newest()[0]["runner"]["iteration"] >= 2


def test_a_loss_that_is_not_finite_stops_by_name_and_is_recorded(tmp_path: Path, monkeypatch) -> None:
    from navrl.algorithms.mappo import MAPPO

    step = MAPPO.step

    def poisoned(self: MAPPO, part, entropy_coef: float):
        if self.optimizers["adam"].state and self.poison > 20:
            part["returns"] = part["returns"] * float("nan")
        self.poison += 1
        return step(self, part, entropy_coef)

    monkeypatch.setattr(MAPPO, "poison", 0, raising=False)
    monkeypatch.setattr(MAPPO, "step", poisoned)
    failed = train(tmp_path, *FLAGS)
    assert failed.code == 1 and "Traceback" not in failed.err
    assert failed.err.splitlines()[-1].startswith("NonFiniteError: train/value_loss is not finite")
    last = json.loads((failed.run_dir / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["train/value_loss"] == "NaN" and last["step"] == 1200
    assert "non_finite" in (failed.run_dir / "console.log").read_text()
    state = CheckpointStore(failed.run_dir / "checkpoints").newest()[0]
    assert state["runner"]["env_steps"] <= 800
    assert all(value.isfinite().all() for value in state["runner"]["algorithm"]["critic"].values())


@pytest.mark.parametrize("name", ["observation", "reward", "log-probability"])
def test_a_rollout_that_is_not_finite_is_not_learned_from(name: str, tmp_path: Path, monkeypatch) -> None:
    collect = OnPolicyRunner.collect

    def poisoned(self: OnPolicyRunner) -> None:
        collect(self)
        if self.iteration == 2:
            tensor = {"observation": self.rollout.obs, "reward": self.rollout.rewards,
                      "log-probability": self.rollout.log_probs}[name]  # fmt: skip
            tensor[7, 3, 1] = float("inf")

    monkeypatch.setattr(OnPolicyRunner, "collect", poisoned)
    failed = train(tmp_path, *FLAGS)
    last = failed.err.splitlines()[-1]
    assert failed.code == 1 and last.startswith(f"NonFiniteError: {name} [step, env, agent")
    assert "first inf at [7, 3, 1" in last and "mean" in last
    assert CheckpointStore(failed.run_dir / "checkpoints").newest()[0]["runner"]["iteration"] == 2


def test_a_resumed_run_forgets_how_it_ended_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = train(tmp_path, *FLAGS).run_dir
    assert {"exit_code", "final", "best", "artifacts"} <= summary(run_dir).keys()
    seen = []
    iterate = OnPolicyRunner.iterate
    monkeypatch.setattr(OnPolicyRunner, "iterate", lambda *a, **k: seen.append(summary(run_dir)) or iterate(*a, **k))
    assert resume(run_dir, "--total_env_steps", "2000").code == 0
    assert not {"exit_code", "reason", "final", "best"} & seen[0].keys() and seen[0]["artifacts"]
