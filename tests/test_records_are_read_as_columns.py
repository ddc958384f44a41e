"""Records become columns: each row once, what is missing or no number is NaN, and what cannot be read is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from navrl.analysis import records
from navrl.analysis.records import Run, find, load
from synthetic_runs import add_record


def only(directory: Path, *metrics: str) -> Run:
    (run,), left_out = load([directory], metrics)
    assert left_out == []
    return run


def test_missing_values_are_nan_and_only_what_was_recorded_so_is_counted(tmp_path: Path) -> None:
    rows = [{"step": 0, "a": 1.5}, {"step": 10, "a": "NaN", "b": 2}, {"step": 20, "a": "-Infinity"},
            {"step": 30, "a": "words", "b": None}, {"step": 40, "a": True}, {"step": 50, "a": 3}]  # fmt: skip
    run = only(add_record(tmp_path / "g" / "r", rows), "a", "b", "never")
    np.testing.assert_array_equal(run.columns["a"], [1.5, np.nan, -np.inf, np.nan, np.nan, 3.0])
    np.testing.assert_array_equal(run.columns["b"], [np.nan, 2.0, np.nan, np.nan, np.nan, np.nan])
    assert np.isnan(run.columns["never"]).all() and len(run.columns["never"]) == 6
    assert run.non_finite == {"a": 4}
    assert [part.tolist() for part in run.series("a")] == [[0, 50], [1.5, 3.0]]
    assert (run.group, run.name, run.seed, run.status) == ("g", "r", 1, "finished")


def test_rows_stand_in_the_order_of_their_steps(tmp_path: Path) -> None:
    run = only(add_record(tmp_path / "r", [{"step": 20, "a": 2.0}, {"step": 0, "a": 0.0}, {"step": 10, "a": 1.0}]), "a")
    assert run.columns["step"].tolist() == [0, 10, 20] and run.columns["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('{"step": 10, "a": NaN}', np.nan),  # no strict JSON; Python's reader takes it
        ('{"step": 10, "a": 1e999}', np.inf),
        ('{"step": 10, "a": 1' + "0" * 400 + "}", np.inf),
        ('{"step": 10, "a": 18446744073709551616}', 2.0**64),
        ('{"step": 10, "\\ud800": 1, "a": 2}', 2.0),
        ('\t{"step":10,"a":2.5}\r', 2.5),
    ],
)
def test_numbers_at_the_edge_of_json(line: str, value: float, tmp_path: Path) -> None:
    directory = add_record(tmp_path / "r", [{"step": 0, "a": 1.0}])
    with open(directory / "metrics.jsonl", "a", encoding="utf-8", newline="") as file:
        file.write(line + "\n")
    np.testing.assert_array_equal(only(directory, "a").columns["a"], [1.0, value])


def test_many_rows_are_read_in_two_processes_as_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for seed in range(4):
        add_record(tmp_path / f"r{seed}", [{"step": step, "a": rng.normal()} for step in range(50)], seed=seed)
    (tmp_path / "r2" / "metrics.jsonl").write_text("{\n{}\n")
    directories, _ = find([tmp_path])
    one = load(directories, ["a"])
    monkeypatch.setattr(records, "WORTH_A_PROCESS", 0)
    two = load(directories, ["a"])
    assert [run.name for run in two[0]] == ["r0", "r1", "r3"] and one[1] == two[1] and len(one[1]) == 1
    for first, second in zip(one[0], two[0]):
        np.testing.assert_array_equal(first.columns["a"], second.columns["a"])
        assert (first.config, first.metadata, first.summary) == (second.config, second.metadata, second.summary)


def test_runs_are_found_at_any_depth_and_each_once(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    runs = [add_record(root / "P" / group / f"s{seed}", [{"step": 0}], seed=seed) for group in "ab" for seed in (1, 2)]
    for given in ([root], [root / "P"], [root / "P" / "a", root / "P" / "b"], [*runs, root], [root, root / "P" / "b"]):
        assert sorted(find(given)[0]) == sorted(runs), given
    found, left_out = find([runs[0], tmp_path / "nowhere", root / "P" / "a" / "s1" / "metrics.jsonl"])
    assert found == [runs[0]] and [place.reason for place in left_out] == ["no such directory", "it is no directory"]
    (tmp_path / "empty").mkdir()
    assert "no run here" in find([tmp_path / "empty"])[1][0].reason


def test_names_of_metrics_come_from_both_ends_of_a_record(tmp_path: Path) -> None:
    rows = [
        {"step": 0, "first": 1},
        *({"step": step, "x" * 40: 0} for step in range(1, 3000)),
        {"step": 3000, "last": 1},
    ]
    directory = add_record(tmp_path / "r", rows)
    assert (directory / "metrics.jsonl").stat().st_size > 2**17
    with open(directory / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": 3001, "torn": 1})[:-3])
    names = records.metric_names([directory, tmp_path / "nowhere"])
    assert {"first", "last", "train/episode_count", "x" * 40} == names
