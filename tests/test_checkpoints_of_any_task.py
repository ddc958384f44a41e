"""A task whose constructor defaults are no plain values can be saved, and resumed by another process."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from whole_runs import last_state, metadata, program, same_run, stop_after, train

from navrl.checkpoint import CheckpointStore

pytestmark = pytest.mark.usefixtures("no_code_copy")

FLAGS = ("--env_id", "pettingzoo:toy_tasks:odd_defaults", "--network", "mlp", "--total_env_steps", "800",
         "--num_envs", "4", "--rollout_length", "50", "--mini_batch_size", "100")  # fmt: skip


def test_a_task_with_odd_defaults_is_saved_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(tmp_path / "whole", *FLAGS)
    assert whole.code == 0, whole.err
    settings = last_state(whole.run_dir)["task"]["settings"]
    assert settings == {"colour": "Colour.RED", "start": [1.0, "Infinity"], "make": "toy_envs.Counter",
                        "pay": "toy_tasks.<lambda>", "thing": "<object object>", "named": {"a": [1, None]}}  # fmt: skip
    assert metadata(whole.run_dir)["env"]["settings"] == settings
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        stopped = train(tmp_path / "stopped", *FLAGS)
    assert stopped.code == 143 and CheckpointStore(stopped.run_dir / "checkpoints").newest()
    other: subprocess.Popen = program(["--resume", str(stopped.run_dir)])  # where every object lies elsewhere
    _, err = other.communicate(timeout=60)
    assert other.returncode == 0, err
    same_run(whole.run_dir, stopped.run_dir)
