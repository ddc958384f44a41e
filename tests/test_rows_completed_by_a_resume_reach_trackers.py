"""What a resume adds to a row that was published without it reaches the trackers too, once."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from whole_runs import resume, rows, train

from navrl.tracking.publish import Source

pytestmark = pytest.mark.usefixtures("no_code_copy")


def scalars(run_dir: Path) -> Counter[tuple[str, int]]:
    """How often TensorBoard's files hold each (name, step)."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    found: Counter[tuple[str, int]] = Counter()
    for path in run_dir.rglob("events.out.tfevents.*"):
        for event in EventFileLoader(str(path)).Load():
            found.update((value.tag, event.step) for value in event.summary.value)
    return found


def test_a_stop_amid_an_evaluation_costs_a_tracker_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from runners import evaluation as module

    played, play = [], module._play

    def play_and_stop(*arguments):
        played.append(1)
        if len(played) == 2:  # the first one after training has begun
            os.kill(os.getpid(), signal.SIGTERM)
        return play(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_play", play_and_stop)
        stopped = train(tmp_path, "--logger", "tensorboard", "--eval_interval", "2", "--total_env_steps", "1600")
    assert stopped.code == 143
    before = scalars(stopped.run_dir)
    assert before["train/policy_loss", 800] == 1 and before["eval/episode_reward", 800] == 0, "it was sent as it stood"
    result = resume(stopped.run_dir)
    assert result.code == 0 and "tensorboard: all 5 rows" in result.err, result.err
    sent, record = scalars(stopped.run_dir), rows(stopped.run_dir)
    assert [row["step"] for row in record if "eval/episode_reward" in row] == [0, 800, 1600]
    for row in record:
        for name in row.keys() - {"step"}:
            assert sent[name, row["step"]] == 1, (name, row["step"])


def write(path: Path, *lines: dict) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def items(run_dir: Path) -> dict[str, dict]:
    source = Source(run_dir)
    source.poll()
    return {item.key: item.data for item in source.in_order()}


def test_a_row_that_was_cut_goes_in_the_same_two_parts_to_every_tracker(tmp_path: Path) -> None:
    """So a tracker that had the first part gets the rest, and one that had neither gets both, in any later replay."""
    first, second = {"step": 1, "time": 0.5, "a": 1, "b": 2}, {"step": 2, "time": 1.0, "a": 3, "b": 4}
    write(tmp_path / "metrics.jsonl", first, second)
    assert items(tmp_path) == {"row 1": {"time": 0.5, "a": 1, "b": 2}, "row 2": {"time": 1.0, "a": 3, "b": 4}}
    write(tmp_path / "metrics.cut-1.jsonl", {"step": 2, "time": 0.9, "a": 7}, {"step": 3, "time": 1.0, "a": 9})
    split = {"row 1": {"time": 0.5, "a": 1, "b": 2}, "row 2": {"time": 1.0, "a": 3}, "rest 2": {"b": 4}}
    assert items(tmp_path) == split and list(items(tmp_path)) == list(split)
    write(tmp_path / "metrics.cut-2.jsonl", {"step": 2, "time": 0.9, "a": 7, "b": 8})  # cut again, whole by then
    (tmp_path / "metrics.cut-10.jsonl").write_text("no JSON\n")
    assert items(tmp_path) == split


def test_a_row_that_was_cut_whole_is_one_item(tmp_path: Path) -> None:
    write(tmp_path / "metrics.jsonl", {"step": 2, "time": 1.0, "a": 3})
    write(tmp_path / "metrics.cut-1.jsonl", {"step": 2, "time": 0.9, "a": 7, "b": 8})
    assert items(tmp_path) == {"row 2": {"time": 1.0, "a": 3}}
