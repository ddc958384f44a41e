"""Curves are read from local records, averaged where every seed has a value, and labelled so that none is lost."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from navrl.analysis.curves import curve, find_runs, labelled, mean_curve

ROOT = Path(__file__).resolve().parents[1]


def add_run(directory: Path, points: dict[int, float]) -> Path:
    directory.mkdir(parents=True)
    rows = [{"step": step, "time": 0.0, "m": value, "other": 1} for step, value in points.items()]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return directory


def test_the_mean_is_over_the_steps_that_every_run_has(tmp_path: Path) -> None:
    one = add_run(tmp_path / "one", {0: 1.0, 10: 2.0, 20: 3.0, 30: 9.0})
    two = add_run(tmp_path / "two", {0: 3.0, 20: 6.0, 30: 1.0, 40: 0.0})
    steps, values = mean_curve([curve(one, "m"), curve(two, "m")])
    assert steps.tolist() == [0, 20, 30] and values.tolist() == [2.0, 4.5, 5.0]
    apart = add_run(tmp_path / "apart", {5: 1.0})
    assert [part.size for part in mean_curve([curve(one, "m"), curve(apart, "m")])] == [0, 0]
    assert curve(one, "no such metric")[0].size == 0


def test_groups_of_one_name_keep_their_own_curves(tmp_path: Path) -> None:
    for project in ("first", "second"):
        for group in ("shared", project):
            add_run(tmp_path / project / group / "run", {0: 1.0})
    paths = [tmp_path / "first" / "shared", tmp_path / "second" / "shared", tmp_path / "first" / "first"]
    assert labelled(paths) == {
        str(Path("first/shared")): find_runs(paths[0]),
        str(Path("second/shared")): find_runs(paths[1]),
        "first": find_runs(paths[2]),
    }
    assert list(labelled([paths[0], paths[0]])) == ["shared"], "one group given twice is one group"
    with pytest.raises(ValueError, match="no run here"):
        labelled([tmp_path])


def test_the_script_draws_every_group(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("matplotlib")
    for project in ("first", "second"):
        add_run(tmp_path / project / "shared" / "run", {0: 1.0, 10: 2.0})
    spec = importlib.util.spec_from_file_location("plot_script", ROOT / "scripts" / "plot.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    out = tmp_path / "curves.svg"
    paths = [str(tmp_path / project / "shared") for project in ("first", "second")]
    assert script.main([*paths, "--metrics", "m", "--out", str(out)]) == 0
    assert out.read_text().count("shared (1 seeds)") == 2
    assert script.main([str(tmp_path / "nothing"), "--out", str(out)]) == 2
    assert "no run here" in capsys.readouterr().err


def test_a_metric_that_no_run_has_is_refused(tmp_path: Path) -> None:
    add_run(tmp_path / "group" / "seed1", {0: 1.0})
    out = tmp_path / "curves.png"
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "plot.py", tmp_path / "group", "--metrics", "nope", "--out", out],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2 and "no run has a metric nope; nearest: " in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and not out.exists()
