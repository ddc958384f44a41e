"""Runs that start at one moment in one directory, or go on with one run at one moment, do not meet."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import time
from pathlib import Path

import pytest
import stop_tools
from whole_runs import resume, run_dirs, same_run, summary, tiny_argv, train

from navrl.naming import runs_root
from navrl.tracking import hub
from navrl.tracking.mlflow import run_root
from navrl.tracking.publish import read_run_info
from navrl.tracking.record import LocalRecord, RecordError, RunLock, is_alive, read_events
from navrl.tracking.tracker import RunInfo

pytestmark = pytest.mark.usefixtures("no_code_copy")

SHORT = ("--total_env_steps", "1200")
LONG = ("--total_env_steps", "100000000", "--checkpoint_interval", "1000000", "--eval_interval", "1000000")


def test_four_runs_started_together_are_four_equal_runs(tmp_path: Path) -> None:
    children = [stop_tools.start(tiny_argv(tmp_path, *SHORT), tmp_path / f"said-{number}.txt") for number in range(4)]
    assert [stop_tools.wait(child) for child in children] == [0] * 4
    found = run_dirs(tmp_path)
    assert len(found) == 4 == len({read_events(run_dir)[0]["uid"] for run_dir in found})
    assert sorted(int("0" + read_events(run_dir)[0]["suffix"].lstrip("-")) for run_dir in found) == [0, 2, 3, 4]
    for run_dir in found[1:]:
        same_run(found[0], run_dir)


def test_of_processes_that_resume_one_run_one_goes_on(tmp_path: Path) -> None:
    run_dir = train(tmp_path, *SHORT).run_dir
    argv = ["--resume", str(run_dir), *LONG[:2]]
    children = {stop_tools.start(argv, tmp_path / f"said-{number}.txt"): number for number in range(3)}
    ended = []
    while len(ended) < 2:  # the third goes on as long as it is let
        child, status = os.waitpid(-1, 0)
        ended.append((children.pop(child), os.waitstatus_to_exitcode(status)))
    ((alive, _),) = children.items()
    for number, code in ended:
        said = (tmp_path / f"said-{number}.txt").read_text()
        assert code == 2 and f"is in use by another process (pid {alive} on {socket.gethostname()})" in said
    assert is_alive(run_dir)
    os.kill(alive, signal.SIGKILL)
    assert stop_tools.wait(alive) == -signal.SIGKILL and not is_alive(run_dir)
    # a dead process holds nothing, whoever has its number now
    (run_dir / ".lock").write_text(f"{os.getpid()} on {socket.gethostname()}\n")
    child = stop_tools.start(argv, tmp_path / "said.txt", ("iteration", 1, signal.SIGTERM))
    assert stop_tools.wait(child) == 143 and summary(run_dir)["status"] == "interrupted"


def test_a_file_system_without_locks_is_refused_and_nothing_stays_there(tmp_path: Path, monkeypatch) -> None:
    def without(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", without)
    refused = train(tmp_path, *SHORT)
    assert refused.code == 2 and "its file system gives no locks" in refused.err and "--run_dir" in refused.err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_wandb_run_id_is_given_to_one_of_the_runs_that_ask_for_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_RUN_ID", "mine")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    write = hub.write_run_info
    monkeypatch.setattr(hub, "write_run_info", lambda *arguments: [time.sleep(0.5), write(*arguments)])
    argv = tiny_argv(tmp_path, *SHORT, "--logger", "console", "wandb", "--wandb_mode", "offline")
    argv.remove("--no_log_wandb")
    children = [stop_tools.start(argv, tmp_path / f"said-{number}.txt") for number in range(4)]
    codes = sorted(stop_tools.wait(child) for child in children)
    assert codes[0] == 0 and all(code in (1, 2) for code in codes[1:]), codes
    said = "".join((tmp_path / f"said-{number}.txt").read_text() for number in range(4))
    assert said.count("WANDB_RUN_ID: 'mine' is already used by") == 3


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Settings of a run that asks for a W&B run of its own choice; what would publish it is no part of these tests."""
    monkeypatch.setenv("WANDB_RUN_ID", "mine")
    monkeypatch.setattr(hub.TrackerHub, "_start", lambda *_: None)
    return {"logger": ["wandb"]}


def test_who_waits_too_long_for_a_wandb_run_id_is_told_what_to_do(tmp_path: Path, chosen, monkeypatch) -> None:
    monkeypatch.setattr(hub, "CLAIM_SECONDS", 0.1)
    record = LocalRecord.create(tmp_path, "NAVRL", "group", "run")
    other = RunLock(tmp_path / ".wandb_run_id.lock")
    with pytest.raises(RecordError, match="another run that starts.*unset WANDB_RUN_ID") as error:
        hub.TrackerHub(record, chosen, science={}, terminal=False)
    assert "--if_exists" not in str(error.value)
    other.release()
    record.close()


def test_a_run_directory_that_was_moved_writes_nothing_beside_itself(tmp_path: Path, chosen) -> None:
    record = LocalRecord.create(tmp_path / "runs", "NAVRL", "group", "run")
    hub.TrackerHub(record, {"logger": []}, science={}, terminal=False).finish("interrupted")
    moved = tmp_path / "a" / "b" / "run"
    moved.parent.mkdir(parents=True)
    record.run_dir.rename(moved)
    before = set(tmp_path.rglob("*")) - set(moved.rglob("*"))
    hub.TrackerHub(LocalRecord.open(moved), chosen, science={}, terminal=False).finish("finished")
    assert set(tmp_path.rglob("*")) - set(moved.rglob("*")) == before
    assert read_run_info(moved).settings["wandb_run_id"] == "mine"
    shallow = Path("/run")
    assert runs_root(shallow, "NAVRL", "group") is None
    assert run_root(RunInfo("uid", "NAVRL", "run", "group", run_dir=shallow)) == shallow / "tracking" / "mlflow"
