"""Runs one after the other in one Python process: no process, file, socket or thread stays, and memory is flat."""

from __future__ import annotations

import sys
import time

import pytest
import tracking_run

sys.path.insert(0, str(tracking_run.ROOT / "benchmarks"))

from leak_soak import Usage, soak_runs  # noqa: E402  (its 50 runs are a benchmark)

pytest.importorskip("wandb")
pytest.importorskip("tensorboard")


def test_five_runs_with_two_trackers_leave_nothing(tmp_path, monkeypatch, no_code_copy):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    found = soak_runs(5, ["wandb", "tensorboard"], tmp_path / "runs", lambda number, usage: None)
    assert found[-1].grown(found[1]) == [], found  # the first two make what is made once
    assert len(list((tmp_path / "runs").glob("*/*/*/tracking/wandb/wandb/offline-run-*/*.wandb"))) == 5
    deadline = time.monotonic() + 10
    while (left := tracking_run.processes_with(str(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    assert not (tmp_path / "home").exists()


def test_what_stays_is_seen(tmp_path):
    before = Usage.now()
    with open(tmp_path / "file", "w"):
        assert Usage.now().grown(before) == ["files"]
    assert Usage.now().grown(before) == []
