"""docs/bad_input.md holds every row of benchmarks/bad_input.py, and a row that breaks the rule is seen."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from whole_runs import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
from bad_input import _cell  # noqa: E402
from bad_input_rows import ROWS  # noqa: E402
from sandbox import Outcome, Row, answer, judge, play  # noqa: E402

ROW = Row("", ("--lr", "x"), ("lr", "'x'"), hidden=("hunter2",))
FAULT = "bad configuration, nothing was started (1 fault):\n  - lr (command line): 'x' is not allowed\n"


def test_the_table_is_that_of_the_rows() -> None:
    lines = (ROOT / "docs" / "bad_input.md").read_text(encoding="utf-8").splitlines()
    for row in ROWS:
        assert any(line.startswith(f"| {_cell(row.input)} | {row.code} |") for line in lines), row.input
    rows = sum(line.startswith("| `") for line in lines)
    assert rows >= 100 and (rows == len(ROWS) or os.geteuid() != 0), "only root plays those that need a disk of their own"


@pytest.mark.parametrize(("change", "wrong"), [
    ({}, ""),
    ({"code": 1}, "exit code 1, expected 2"),
    ({"code": 0, "out": "trained"}, "exit code 0, expected 2"),
    ({"err": ""}, "says nothing"),
    ({"err": "Traceback (most recent call last):\n  lr 'x'\n"}, "a traceback"),
    ({"err": FAULT + "Traceback (most recent call last):\n"}, "a traceback"),
    ({"err": FAULT.replace("lr", "it")}, "does not say 'lr'"),
    ({"err": FAULT + "hunter2"}, "says 'hunter2'"),
    ({"written": ["runs"]}, "wrote runs"),
])  # fmt: skip
def test_an_outcome_that_breaks_the_rule_is_seen(change: dict, wrong: str) -> None:
    found = judge(ROW, Outcome(**({"code": 2, "out": "", "err": FAULT, "written": []} | change)))
    assert wrong in "; ".join(found) and bool(found) == bool(wrong), found


def test_the_answer_is_the_line_that_a_person_needs() -> None:
    assert answer(ROW, Outcome(2, "", FAULT, [])) == "lr (command line): 'x' is not allowed"
    assert answer(ROW, Outcome(2, "", FAULT + "  - b: c\n", [])).endswith("is not allowed (and 1 more)")
    assert answer(Row("", (), (), code=1), Outcome(1, "", "details\nthe reason\n", [])) == "the reason"
    assert answer(Row("", (), ("notice",), code=0), Outcome(0, "x\na notice\n", "", [])) == "a notice"


@pytest.mark.parametrize("fresh", [False, True])
def test_a_row_is_played_by_the_program_itself(fresh: bool, tmp_path: Path) -> None:
    """Forked or started anew: the same code and words, and what was written is seen."""
    before = os.getcwd()
    try:
        refused = play(Row("", ("--lrr", "3"), (), fresh=fresh), tmp_path)
        helped = play(Row("", ("--help",), (), fresh=fresh, prepare=lambda: Path("x").touch()), tmp_path)
        made = play(Row("", ("none", "--out", "a.png"), (), program="scripts/plot.py", fresh=fresh), tmp_path)
    finally:
        os.chdir(before)
    assert refused.code == 2 and "there is no such flag; nearest: --lr" in refused.err and refused.written == []
    assert helped.code == 0 and "--lr" in helped.out and helped.written == []
    assert made.code == 2 and made.err.startswith("none: neither a directory") and list(tmp_path.iterdir()) == []
