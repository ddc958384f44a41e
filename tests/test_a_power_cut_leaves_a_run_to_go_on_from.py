"""Whenever the power goes: what the disk was made to keep (fsync) is a run that can be resumed, and exactly."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from whole_runs import resume, rows, same_run, train

from navrl.checkpoint import CheckpointStore

pytestmark = pytest.mark.usefixtures("no_code_copy")

FLAGS = ("--total_env_steps", "2400", "--checkpoint_interval", "2", "--eval_interval", "3")


class Disk:
    """What a disk holds that keeps nothing but what it is told to: names by fsync of a directory, content of a file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: dict[Path, dict[str, int]] = {}  # directory -> name -> inode
        self.content: dict[int, bytes] = {}
        self.images: list[dict[Path, bytes]] = []  # after every fsync
        self._open: list[int] = []  # else the inode of a removed file is given to another
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        path, about = Path(os.readlink(f"/proc/self/fd/{descriptor}")), os.fstat(descriptor)
        if stat.S_ISDIR(about.st_mode):
            self.names[path] = {}
            for entry in os.scandir(path):
                if entry.is_file():
                    self.names[path][entry.name] = entry.inode()
                    self._open.append(os.open(entry.path, os.O_RDONLY))
        else:
            self.content[about.st_ino] = path.read_bytes()
        self.images.append(
            {
                directory / name: self.content.get(inode, b"")
                for directory, names in self.names.items()
                for name, inode in names.items()
            }
        )

    def close(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)


def after_a_cut(image: dict[Path, bytes], run_dir: Path, to: Path) -> Path:
    """The run directory as the machine finds it when it is on again."""
    to = to / "project" / "group" / "run"
    for path, content in image.items():
        if path.is_relative_to(run_dir) and not path.name.endswith(".tmp"):
            target = to / path.relative_to(run_dir)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    return to


def test_at_every_moment_the_disk_holds_a_run_to_go_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(tmp_path / "whole", *FLAGS).run_dir
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        run_dir = train(tmp_path / "cut", *FLAGS).run_dir
        disk.close()
    with_checkpoint = []
    for number, image in enumerate(disk.images):
        if run_dir / "checkpoints" / "index.json" not in image:
            continue
        found = after_a_cut(image, run_dir, tmp_path / str(number))
        state, path, problems = CheckpointStore(found / "checkpoints").newest()
        assert problems == [], f"after fsync {number}"
        steps = [row["step"] for row in rows(found)]
        assert steps == list(range(0, steps[-1] + 1, 400)), f"after fsync {number}"
        assert steps[-1] >= state["runner"]["env_steps"], f"after fsync {number}: the record is behind {path.name}"
        with_checkpoint.append(found)
    assert len(with_checkpoint) >= 10
    for found in (with_checkpoint[0], with_checkpoint[len(with_checkpoint) // 2], with_checkpoint[-1]):
        assert resume(found).code == 0
        same_run(whole, found)
