"""The local record: one strict-JSON row a step, append-only, cut atomically on resume."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from navrl.tracking.record import (
    LocalRecord,
    RecordClash,
    RecordError,
    RunExists,
    RunLocked,
    read_events,
    read_rows,
    read_summary,
)


def strict(path):
    def refuse(name):
        raise AssertionError(f"{name} is not strict JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


@pytest.fixture
def record(tmp_path):
    record = LocalRecord.create(tmp_path, "p", "g", "run")
    record.start_clock()
    yield record
    record.close()


def test_what_belongs_to_one_step_is_one_row(record):
    record.log(100, {"train/a": 1.5})
    record.log(100, {"eval/b": 2})
    record.log(200, {"train/a": 3})
    record.flush()
    rows = strict(record.run_dir / "metrics.jsonl")
    assert [(row["step"], row.get("train/a"), row.get("eval/b")) for row in rows] == [(100, 1.5, 2), (200, 3, None)]
    assert list(rows[0])[:2] == ["step", "time"]
    assert 0 <= rows[0]["time"] <= rows[1]["time"]


def test_a_clash_is_named_and_an_equal_value_is_none(record):
    record.log(100, {"x": float("nan"), "y": 1})
    record.log(100, {"x": float("nan"), "y": 1})
    with pytest.raises(RecordClash, match=r"y is logged twice for step 100: 1 and 2"):
        record.log(100, {"y": 2})
    record.log(200, {"x": 1})
    with pytest.raises(RecordClash, match="step 100 is already written"):
        record.log(100, {"z": 2})
    with pytest.raises(RecordClash, match="'time'"):
        record.log(300, {"time": 1})
    with pytest.raises(RecordClash, match="whole number"):
        record.log(1.5, {"x": 1})


def test_a_lower_step_that_is_new_is_not_dropped(record):
    record.log(100, {"train/a": 1})
    record.log(50, {"eval/b": 2})
    record.flush()
    assert [row["step"] for row in read_rows(record.run_dir)] == [100, 50]
    assert record.last_step == 100


def test_non_finite_values_are_strings_and_come_back_as_numbers(record):
    record.log(
        np.int64(1), {"a": np.nan, "b": np.inf, "c": -math.inf, "d": np.float16(0.5), "e": np.bool_(True), "f": 2**80}
    )
    record.flush()
    (row,) = strict(record.run_dir / "metrics.jsonl")
    assert (row["a"], row["b"], row["c"], row["d"], row["e"], row["f"]) == (
        "NaN",
        "Infinity",
        "-Infinity",
        0.5,
        1,
        2.0**80,
    )
    (back,) = read_rows(record.run_dir)
    assert math.isnan(back["a"]) and back["b"] == math.inf and back["c"] == -math.inf


def test_what_is_no_curve_is_left_out_and_said_once(record):
    for step in (1, 2):
        record.log(step, {"name": "text", "v": np.arange(3), "long": list(range(100)), "none": None, "x": 1})
    record.flush()
    assert {"v_0", "v_1", "v_2", "x"} == set(read_rows(record.run_dir)[0]) - {"step", "time"}
    warnings = record.warnings()
    assert len(warnings) == 2 and any("name is not recorded" in line for line in warnings)
    assert record.warnings() == []


def test_a_resume_cuts_and_keeps_what_follows_its_checkpoint(tmp_path):
    record = LocalRecord.create(tmp_path, "p", "g", "run")
    record.start_clock()
    for step in range(1, 11):
        record.log(step, {"x": step})
    record.close()
    again = LocalRecord.open(record.run_dir)
    assert (again.resumed, again.attempt, again.last_step, again.uid) == (True, 2, 10, record.uid)
    assert again.truncate_after(6) == 4
    again.start_clock(1000.0)
    for step in range(7, 9):
        again.log(step, {"x": -step})
    again.close()
    rows = read_rows(record.run_dir)
    assert [row["x"] for row in rows] == [1, 2, 3, 4, 5, 6, -7, -8]
    assert rows[-1]["time"] >= 1000 > rows[5]["time"]
    assert [row["step"] for row in strict(record.run_dir / "metrics.cut-1.jsonl")] == [7, 8, 9, 10]
    third = LocalRecord.open(record.run_dir)
    assert third.truncate_after(7) == 1
    third.close()
    assert [row["x"] for row in strict(record.run_dir / "metrics.cut-2.jsonl")] == [-8]
    assert [event["event"] for event in read_events(record.run_dir)].count("cut") == 2


def test_a_cut_that_was_interrupted_is_not_kept_twice(tmp_path):
    record = LocalRecord.create(tmp_path, "p", "g", "run")
    for step in range(1, 6):
        record.log(step, {"x": step})
    record.close()
    whole = (record.run_dir / "metrics.jsonl").read_text()
    again = LocalRecord.open(record.run_dir)
    again.truncate_after(3)
    again.close()
    (record.run_dir / "metrics.jsonl").write_text(whole)  # as if the second rename had not happened
    third = LocalRecord.open(record.run_dir)
    assert third.truncate_after(3) == 2
    third.close()
    assert [path.name for path in record.run_dir.glob("metrics.cut-*")] == ["metrics.cut-1.jsonl"]


@pytest.mark.parametrize("tail", [b'{"step": 3, "ti', b"\0\0\0\0", b'{"step": 3}garbage\n', b"7\n"])
def test_a_torn_last_line_is_dropped_and_never_merged_with_the_next(tmp_path, tail):
    record = LocalRecord.create(tmp_path, "p", "g", "run")
    for step in (1, 2):
        record.log(step, {"x": step})
    record.close()
    with open(record.run_dir / "metrics.jsonl", "ab") as file:
        file.write(tail)
    assert [row["step"] for row in read_rows(record.run_dir)] == [1, 2]
    again = LocalRecord.open(record.run_dir)
    again.log(3, {"x": 3})
    again.close()
    assert [row["step"] for row in strict(record.run_dir / "metrics.jsonl")] == [1, 2, 3]


def test_a_whole_last_row_without_its_newline_is_kept(tmp_path):
    record = LocalRecord.create(tmp_path, "p", "g", "run")
    record.log(1, {"x": 1})
    record.close()
    with open(record.run_dir / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 2, "time": 1.0}')
    again = LocalRecord.open(record.run_dir)
    again.log(3, {"x": 3})
    again.close()
    assert [row["step"] for row in strict(record.run_dir / "metrics.jsonl")] == [1, 2, 3]


def test_damage_in_the_middle_is_named_not_skipped(tmp_path):
    record = LocalRecord.create(tmp_path, "p", "g", "run")
    record.close()
    (record.run_dir / "metrics.jsonl").write_text('{"step": 1}\nrubbish\n{"step": 2}\n')
    with pytest.raises(RecordError, match="line 2 is damaged"):
        LocalRecord.open(record.run_dir)
    with pytest.raises(RecordError, match="line 2 is damaged"):
        read_rows(record.run_dir)


def test_a_taken_name_is_numbered_refused_or_resumed(tmp_path):
    first = LocalRecord.create(tmp_path, "p", "g", "run")
    second = LocalRecord.create(tmp_path, "p", "g", "run")
    assert (second.run_dir.name, second.suffix, second.uid != first.uid) == ("run-2", "-2", True)
    with pytest.raises(RunExists, match="if_exists"):
        LocalRecord.create(tmp_path, "p", "g", "run", if_exists="error")
    with pytest.raises(RunLocked, match="in use by another process"):
        LocalRecord.create(tmp_path, "p", "g", "run", if_exists="resume")
    first.log(1, {"x": 1})
    first.close()
    again = LocalRecord.create(tmp_path, "p", "g", "run", if_exists="resume")
    assert again.resumed and again.last_step == 1 and again.run_dir == first.run_dir
    again.close()
    second.close()
    numbered = LocalRecord.open(second.run_dir)
    assert numbered.suffix == "-2"
    numbered.close()


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\0b"])
def test_a_name_that_is_no_directory_name_is_refused(tmp_path, name):
    with pytest.raises(RecordError, match="no directory name"):
        LocalRecord.create(tmp_path, "p", "g", name)
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_cannot_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="^cannot write .*--run_dir"):
        LocalRecord.create(tmp_path / "file", "p", "g", "run")


def test_status_of_a_run_whose_process_is_gone_reads_as_crashed(record):
    assert read_summary(record.run_dir)["status"] == "running"
    record.close()
    assert read_summary(record.run_dir)["status"] == "crashed"
    assert read_summary(record.run_dir / "nowhere") == {}


def test_summary_is_merged_and_survives_a_resume(record):
    record.update_summary(final={"eval/episode_reward": {"mean": -7.5, "se": float("nan")}})
    record.update_summary(status="finished")
    record.close()
    summary = json.loads((record.run_dir / "summary.json").read_text())
    assert summary == {"status": "finished", "final": {"eval/episode_reward": {"mean": -7.5, "se": "NaN"}}}
    again = LocalRecord.open(record.run_dir)
    assert read_summary(record.run_dir)["final"] == summary["final"]
    again.close()


def test_a_root_that_cannot_be_written_is_left_as_it_was(tmp_path):
    """The directories that were made on the way to the one that could not be are removed; others stay."""
    (tmp_path / "p").mkdir()
    with pytest.raises(RecordError, match="cannot write"):
        LocalRecord.create(tmp_path, "p", "g", "x" * 300)
    assert [path.name for path in tmp_path.rglob("*")] == ["p"]
