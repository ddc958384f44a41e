"""Planned runs are each run once: whoever crashes, is stopped, is repeated or comes second."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import stop_tools
from launch_tools import Starter, attempts, plan
from whole_runs import ROOT, run_dirs, same_run, summary, tiny_argv, train

from navrl.launch import local
from navrl.launch.local import Halt, run_all, run_one
from navrl.launch.state import conflicts, state_of
from navrl.tracking.record import RunLock, read_events

pytestmark = pytest.mark.usefixtures("no_code_copy")
SHORT = ("--total_env_steps", "1200", "--checkpoint_interval", "1")


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seed 1 by hand; and all that a run imports is there when one is forked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("navrl.tracking.hub.TrackerHub._keep_code", lambda hub, root: None)
        return train(tmp_path_factory.mktemp("by_hand"), *SHORT).run_dir


@pytest.fixture
def starter(never_stopped: Path, monkeypatch: pytest.MonkeyPatch):
    starter = Starter(monkeypatch)

    def hangs(*_: object) -> None:
        raise AssertionError("the launch does not end")

    previous = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(120)
    yield starter
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)
    starter.end()


def statuses(outcomes) -> list[str]:
    return [outcome.status for outcome in outcomes]


def test_a_grid_is_run_in_order_some_at_once_and_not_again(tmp_path: Path, starter: Starter) -> None:
    runs = plan(tmp_path, [1, 2], *SHORT, lr=["1e-3", "2e-3"])
    assert statuses(run_all(runs, jobs=2, retries=0, halt=Halt())) == ["finished"] * 4
    assert starter.started == [run.name for run in runs] and starter.most_at_once == 2
    assert run_dirs(tmp_path / "runs") == sorted(run.run_dir for run in runs)
    again = run_all(runs, jobs=2, retries=0, halt=Halt())
    assert statuses(again) == ["finished"] * 4 and len(starter.started) == 4
    assert [outcome.attempts for outcome in again] == [0] * 4


def test_a_run_that_is_killed_goes_on_as_if_it_never_was(tmp_path: Path, starter: Starter, never_stopped: Path) -> None:
    run, untouched = plan(tmp_path, [1, 2], *SHORT)
    starter.moments[run.name] = [(("opening", 1, signal.SIGKILL),), (("collect", 60, signal.SIGKILL),), ()]
    starter.moments[untouched.name] = [()]
    assert statuses(run_all([run, untouched], jobs=1, retries=2, halt=Halt())) == ["finished"] * 2
    assert starter.started == [run.name] * 3 + [untouched.name]
    same_run(run.run_dir, never_stopped)


def test_a_run_is_gone_on_with_as_often_as_was_said(tmp_path: Path, starter: Starter) -> None:
    runs = plan(tmp_path, [1, 2], *SHORT)
    starter.moments[runs[0].name] = [(("iteration", 1, signal.SIGKILL),)] * 2
    outcomes = run_all(runs, jobs=2, retries=1, halt=Halt())
    assert statuses(outcomes) == ["failed", "finished"] and outcomes[0].code == -signal.SIGKILL
    assert outcomes[0].attempts == 2 and state_of(runs[0]).status == "crashed"
    assert statuses(run_all(runs, jobs=2, retries=0, halt=Halt())) == ["finished"] * 2


def test_bad_input_is_said_once_and_not_tried_again(tmp_path: Path, starter: Starter) -> None:
    (run,) = plan(tmp_path, [1], *SHORT, "--device", "cuda:99")
    outcome = run_one(run, retries=5)
    assert (outcome.status, outcome.code, outcome.attempts) == ("failed", 2, 1)
    assert "device: 'cuda:99' is not on this machine" in outcome.reason and run_dirs(tmp_path / "runs") == []


def test_a_signal_is_every_runs_and_the_same_command_goes_on(tmp_path: Path, starter: Starter) -> None:
    runs = plan(tmp_path, [1, 2, 3], "--total_env_steps", "16000")
    halt = Halt()

    def look(jobs) -> None:
        if sum(job.running and (state_of(job.run).step or 0) > 0 for job in jobs) == 2 and not halt.signals:
            halt.send(signal.SIGUSR1)

    outcomes = run_all(runs, jobs=2, retries=3, halt=halt, look=look)
    assert statuses(outcomes) == ["interrupted", "interrupted", "waiting"]
    assert [outcome.code for outcome in outcomes] == [138, 138, None] and len(starter.started) == 2
    for run in runs[:2]:
        assert summary(run.run_dir)["status"] == "interrupted" and summary(run.run_dir)["last"]["step"] > 0
    assert run_one(runs[0]).status == "finished" and attempts(runs[0]) == 2


def test_two_launchers_at_once_run_each_once(tmp_path: Path, starter: Starter) -> None:
    runs = plan(tmp_path, [1, 2], *SHORT)
    ended: list[list] = []

    def launch() -> None:
        ended.append(run_all(runs, jobs=2, retries=0, halt=Halt()))

    threads = [threading.Thread(target=launch) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [statuses(outcomes) for outcomes in ended] == [["finished"] * 2] * 2
    assert sorted(starter.started) == sorted(run.name for run in runs)
    assert [attempts(run) for run in runs] == [1, 1]


def test_a_run_that_somebody_works_on_is_waited_for(tmp_path: Path, starter: Starter) -> None:
    """By hand (its own lock), or another launcher in whose hands it crashes (the plan's lock); both take a place."""
    run, other, third = plan(tmp_path, [1, 2, 3], *SHORT)
    by_hand = stop_tools.start(list(run.argv), tmp_path / "said", ("checkpoint", 1, signal.SIGSTOP))
    os.waitpid(by_hand, os.WUNTRACED)  # it stands still, and holds its lock
    local.log_of(other).parent.mkdir(parents=True, exist_ok=True)
    held = RunLock(local.log_of(other).with_suffix(".lock"))
    seen: list[list[bool]] = []

    def look(jobs) -> None:
        seen.append([job.elsewhere for job in jobs] + [bool(starter.started)])
        if len(seen) == 10:
            os.kill(by_hand, signal.SIGCONT)
            held.release()

    outcomes = run_all([run, third, other], jobs=2, retries=0, halt=Halt(), look=look)
    assert statuses(outcomes) == ["finished"] * 3 and seen[8] == [True, False, True, False]
    assert sorted(starter.started) == [other.name, third.name]
    assert stop_tools.wait(by_hand) == 0 and attempts(run) == 1


def test_a_longer_budget_goes_on_and_another_configuration_is_refused(tmp_path: Path, starter: Starter) -> None:
    (run,) = plan(tmp_path, [1], *SHORT, "--group", "g", "--experiment_name", "n")
    assert run_one(run).status == "finished" and conflicts(run) == []
    (longer,) = plan(tmp_path, [1], *SHORT, "--total_env_steps", "2000", "--group", "g", "--experiment_name", "n")
    assert longer.run_dir == run.run_dir and conflicts(longer) == []
    assert state_of(longer).status == "interrupted" and run_one(longer).status == "finished"
    assert state_of(longer).step == 2000
    (shorter,) = plan(tmp_path, [1], *SHORT, "--total_env_steps", "400", "--group", "g", "--experiment_name", "n")
    (changed,) = plan(tmp_path, [1], *SHORT, "--total_env_steps", "2000", "--lr", "1e-4", "--group", "g",
                      "--experiment_name", "n")  # fmt: skip
    assert "less than the 2000 steps already trained" in str(conflicts(shorter)[0])
    assert [fault.key for fault in conflicts(changed)] == ["lr"] and str(run.run_dir) in str(conflicts(changed)[0])


def test_a_launcher_that_is_killed_leaves_its_runs_to_the_next(tmp_path: Path) -> None:
    """The program itself: kill -9 of the launcher, then the same command at once; no run is begun twice."""
    config = tmp_path / "tiny.yaml"
    config.write_text("env_id: simple_spread\n")
    words = [sys.executable, str(ROOT / "scripts" / "launch.py"), "--config", str(config), "--seeds", "1", "--",
             *tiny_argv(tmp_path / "runs", *SHORT)]  # fmt: skip
    options = dict(
        env=os.environ | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    first = subprocess.Popen(words, **options)
    while not stop_tools.descendants(first.pid):
        assert first.poll() is None
        time.sleep(0.05)
    first.kill()  # its run imports torch: it has no record yet, and the launcher's lock
    first.wait()
    second = subprocess.run(words, **options, timeout=120)
    assert second.returncode == 0, second.stdout
    assert second.stdout.count(": elsewhere") == 1 and second.stdout.count(": running") == 0
    (run_dir,) = run_dirs(tmp_path / "runs")
    assert summary(run_dir)["status"] == "finished"
    assert sum(event["event"] == "attempt" for event in read_events(run_dir)) == 1
