"""A checkpoint is written whole or not at all, and the last two and the best are kept."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from whole_runs import ROOT

import navrl.checkpoint as checkpoint
from navrl.checkpoint import CheckpointError, CheckpointStore, load


def state(number: float, size: int = 1000) -> dict:
    return {"config": "seed: 1\n", "runner": {"weights": torch.full((size,), float(number)), "plain": [1, "a", None]}}


def save(store: CheckpointStore, number: int, best: bool = False, episodes: int | None = None) -> Path:
    return store.save(state(number), step=100 * number, episodes=episodes if episodes is not None else number,
                      score=-1.0 if best else None, best=best)  # fmt: skip


def value(path: Path) -> float:
    return float(load(path)["runner"]["weights"][0])


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    path = save(CheckpointStore(tmp_path), 3)
    back = load(path)
    assert path.name == "checkpoint_ep3.pt" and back["format"] == checkpoint.FORMAT
    assert torch.equal(back["runner"]["weights"], torch.full((1000,), 3.0))
    assert back["runner"]["plain"] == [1, "a", None]


def test_the_last_two_and_the_best_are_kept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    for number in range(1, 8):
        save(store, number, best=number in (2, 3))
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == [f"checkpoint_ep{n}.pt" for n in (3, 6, 7)]
    again = CheckpointStore(tmp_path)
    assert again.entries == store.entries and again.path("best").name == "checkpoint_ep3.pt"
    assert again.path("last").name == "checkpoint_ep7.pt" and value(again.newest()[1]) == 7
    save(again, 8, best=True)
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == [f"checkpoint_ep{n}.pt" for n in (7, 8)]


def test_all_are_kept_where_that_is_asked_for(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep_all=True)
    for number in range(1, 6):
        save(store, number, best=number == 2)
    assert [value(tmp_path / entry.file) for entry in CheckpointStore(tmp_path).entries] == [1, 2, 3, 4, 5]
    assert value(store.path("best")) == 2


def test_an_index_that_cannot_be_written_leaves_the_store_as_it_was(tmp_path: Path, monkeypatch) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 1, best=True)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_text", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(OSError):
            save(store, 2, best=True)
    assert value(store.path("best")) == value(store.path("last")) == 1


def test_two_checkpoints_within_one_episode_do_not_replace_each_other(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 1, best=True, episodes=0)
    for number in (2, 3):
        save(store, number, episodes=0)
    assert value(store.path("best")) == 1 and value(store.path("last")) == 3
    assert [value(tmp_path / entry.file) for entry in store.entries] == [1, 2, 3]


def test_forgetting_what_lies_beyond_a_step(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    for number in (1, 2, 3):
        save(store, number, best=number == 3)
    store.forget_after(250)
    again = CheckpointStore(tmp_path)
    assert [entry.step for entry in again.entries] == [200] and again.best is None
    with pytest.raises(CheckpointError, match="no best checkpoint"):
        again.path("best")


CHILD = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1]); sys.path.insert(0, sys.argv[1] + "/tests")
import navrl.checkpoint as c, navrl.files as f
from test_checkpoints_are_whole import save
store = c.CheckpointStore(Path(sys.argv[2]))
count = [0]
def die_at(number, call):
    def wrapped(*a, **k):
        count[0] += 1
        if count[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*a, **k)
    return wrapped
at = int(sys.argv[3])
c.torch.save = die_at(at, c.torch.save)
f._fsync = die_at(at, f._fsync)
f.os.replace = die_at(at, f.os.replace)
save(store, int(sys.argv[4]), best=True)
print("saved")
"""


def die_in_a_save(directory: Path, at: int, number: int) -> bool:
    """Save checkpoint ``number`` in a process that dies at the ``at``-th point where it can; whether it came so far."""
    child = os.fork()  # no second import of torch
    if child == 0:
        try:
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, 1), os.dup2(devnull, 2)
            sys.argv = ["-", str(ROOT), str(directory), str(at), str(number)]
            exec(CHILD, {})
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("at", range(1, 9))
def test_killed_at_each_point_of_a_save_the_store_is_the_old_or_the_new_one(at: int, tmp_path: Path) -> None:
    save(CheckpointStore(tmp_path), 0)
    save(CheckpointStore(tmp_path), 1, best=True)
    assert die_in_a_save(tmp_path, at, 2) == (at <= 7), "a save has seven points to die at"
    store = CheckpointStore(tmp_path)
    store.forget_after(200)  # a resume removes what the index no longer names
    left = {path.name for path in tmp_path.glob("*.pt")}
    assert left == {entry.file for entry in store.entries} | ({"checkpoint_ep2.pt"} if 4 <= at <= 6 else set())
    found, path, problems = store.newest()
    assert problems == []
    assert value(path) == (1 if at <= 6 else 2) == float(found["runner"]["weights"][0])
    assert store.path("best") == path
    save(store, 3)  # and the next save works
    assert value(CheckpointStore(tmp_path).newest()[1]) == 3


@pytest.mark.parametrize("at", range(1, 15))
def test_killed_at_each_point_of_a_second_save_of_one_step_a_checkpoint_stays_usable(at: int, tmp_path: Path) -> None:
    """A run that was stopped amid an evaluation saves its step once more, with the score, when it is resumed."""
    save(CheckpointStore(tmp_path), 1)  # the only one: there is none to fall back to
    assert die_in_a_save(tmp_path, at, 1) == (at <= 13), "a second save has thirteen points to die at"
    store = CheckpointStore(tmp_path)
    assert store.newest()[2] == [] and [entry.step for entry in store.entries] == [100]
    store.forget_after(100)  # a resume
    save(store, 1, best=True)
    assert [path.name for path in tmp_path.glob("*.pt")] == ["checkpoint_ep1.pt"]
    (entry,) = CheckpointStore(tmp_path).entries
    assert entry.file == "checkpoint_ep1.pt" and entry.score == -1.0 and value(store.path("best")) == 1


def limited(limit: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_a_disk_that_takes_no_more_raises_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 1, best=True)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    soft = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.getsignal(signal.SIGXFSZ)
    try:
        limited(1000)
        with pytest.raises(OSError) as error:
            save(store, 2)
        assert error.value.strerror
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, soft)
        signal.signal(signal.SIGXFSZ, handler)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    save(store, 3)
    assert value(CheckpointStore(tmp_path).newest()[1]) == 3


def test_a_directory_that_cannot_be_written_raises_and_changes_nothing(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "gone")
    with pytest.raises(OSError) as error:
        save(store, 1)
    assert error.value.errno == errno.ENOENT and not (tmp_path / "gone").exists()
    store = CheckpointStore(tmp_path)
    save(store, 1)
    if os.geteuid() != 0:  # root may write anywhere
        tmp_path.chmod(0o555)
        try:
            with pytest.raises(PermissionError):
                save(store, 2)
        finally:
            tmp_path.chmod(0o755)
    assert value(CheckpointStore(tmp_path).newest()[1]) == 1


def test_the_index_names_each_file_with_its_digest(tmp_path: Path) -> None:
    path = save(CheckpointStore(tmp_path), 1)
    (entry,) = json.loads((tmp_path / "index.json").read_text())["checkpoints"]
    digest = subprocess.run(["sha256sum", str(path)], capture_output=True, text=True, check=True).stdout.split()[0]
    assert entry["sha256"] == digest and entry["file"] == path.name and entry["step"] == 100
