"""The README's tracker of one's own works as printed: one file, one line, and a real run publishes to it."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from whole_runs import ROOT, run_dirs, tiny_argv

from navrl.tracking.record import read_rows


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the example in it."""
    project = tmp_path_factory.mktemp("project")
    for name in ("envs", "navrl", "runners", "scripts"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "main.py", project)
    section = (ROOT / "README.md").read_text().partition("**A tracker of your own**")[2].partition("\n**")[0]
    file, line = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(file.splitlines()) <= 30
    path, registry = re.findall(r"`(navrl/tracking/[a-z]+\.py)`", section)[:2]
    assert not (project / path).exists()
    (project / path).write_text(file)
    text = (project / registry).read_text()
    (project / registry).write_text(text.replace("TRACKERS = {\n", "TRACKERS = {\n" + line, 1))
    return project


def test_a_run_publishes_every_row_to_it_and_a_sync_adds_none(project: Path, tmp_path: Path) -> None:
    done = _call(project, "main.py", *tiny_argv(tmp_path / "runs", "--logger", "console", "csv"))
    assert done.returncode == 0, done.stderr
    (run_dir,) = run_dirs(tmp_path / "runs")
    path = run_dir / "tracking" / "csv" / "rows.csv"
    rows = read_rows(run_dir)
    assert f"csv: all {len(rows)} rows, {path}" in done.stdout

    with open(path, newline="") as file:
        found = {(int(line["step"]), line["metric"]): float(line["value"]) for line in csv.DictReader(file)}
    wanted = {(row["step"], name): float(value) for row in rows for name, value in row.items() if name != "step"}
    assert len(wanted) > 100 and found.keys() == wanted.keys()
    assert all(found[key] == value or math.isnan(found[key]) and math.isnan(value) for key, value in wanted.items())

    before = path.read_bytes()
    again = _call(project, "scripts/sync.py", str(run_dir), "--to", "csv")
    assert again.returncode == 0, again.stderr
    assert path.read_bytes() == before


def test_the_doctor_looks_at_it(project: Path, tmp_path: Path) -> None:
    asked = ("scripts/doctor.py", "--json", "--run_dir", str(tmp_path), "--logger", "console", "csv")
    done = _call(project, *asked)
    (row,) = [row for row in json.loads(done.stdout)["trackers"] if row["tracker"] == "csv"]
    assert done.returncode == 0 and row["asked"] and row["version"] == "importable", done.stdout
    path = project / "navrl" / "tracking" / "csv.py"
    text = path.read_text()
    path.write_text("import no_such_package\n" + text)
    done = _call(project, *asked)
    path.write_text(text)
    assert done.returncode == 1 and "No module named 'no_such_package'" in json.loads(done.stdout)["faults"][0]


def test_the_command_line_knows_it(project: Path) -> None:
    done = _call(project, "main.py", "--logger", "cvs")
    assert done.returncode == 2 and "csv" in done.stderr


def _call(project: Path, *argv: str) -> subprocess.CompletedProcess:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *argv], cwd=project, env=env, text=True, stdin=subprocess.DEVNULL, capture_output=True,
        timeout=240,
    )  # fmt: skip
