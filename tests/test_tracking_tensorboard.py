"""TensorBoard's files hold each row once, whatever cut their writing short; read by TensorBoard's own reader."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
import tracking_run

from navrl.tracking.record import read_rows
from navrl.tracking.tracker import RunInfo

pytest.importorskip("tensorboard")
OPTIONS = {"logger": ["console", "tensorboard"]}


def scalars(run_dir):
    """{metric: [(step, value)]}"""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_dir / "tracking" / "tensorboard" / "events"), {"scalars": 0})
    events.Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_what_a_killed_session_wrote_is_not_written_again(tmp_path):
    env = tracking_run.environment(tmp_path / "home")
    process = tracking_run.start(env, root=tmp_path / "runs", rows=400, pause=0.01, **OPTIONS)
    run_dir = Path(json.loads(process.stdout.readline())["run_dir"])
    ledger = run_dir / "tracking" / "tensorboard"
    tracking_run.kill_publisher(ledger, rows=20)
    process.communicate(timeout=60)
    (sent,) = ledger.glob("sent-*.log")
    lines = sent.read_text().splitlines(keepends=True)
    sent.write_text("".join(lines[: len(lines) // 2]))  # written and not listed: what a kill at the worst moment leaves
    for _ in range(2):
        done = tracking_run.sync(env, run_dir, to="tensorboard")
        assert done.returncode == 0, done.stdout + done.stderr
        steps = [row["step"] for row in read_rows(run_dir)]
        assert [sorted(step for step, _ in scalars(run_dir)[name]) for name in ("time", "train/loss")] == [steps] * 2


def test_a_disk_that_is_full_for_a_while_leaves_whole_records_and_loses_none(tmp_path):
    from navrl.tracking.tensorboard import TensorboardTracker

    tracker = TensorboardTracker()
    tracker.start(RunInfo("u", "p", "n", "g", run_dir=tmp_path))
    (file,) = (tmp_path / "tracking" / "tensorboard" / "events").iterdir()
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    for step in range(20):
        if step == 10:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 20, hard))  # in the middle of a record
            try:
                with pytest.raises(OSError):
                    tracker.log_row(step, 1e9 + step, {"x": step, "y": -step})
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        tracker.log_row(step, 1e9 + step, {"x": step, "y": -step})
    tracker.finish("finished", 0, {})
    assert scalars(tmp_path) == {"x": [(i, i) for i in range(20)], "y": [(i, -i) for i in range(20)]}
