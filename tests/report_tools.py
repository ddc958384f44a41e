"""Two small real groups of seeds with recorded episodes: what the tests of reports look at."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from pathlib import Path
from types import ModuleType

import pytest
from whole_runs import ROOT, train

from navrl.tracking.hub import TrackerHub

GROUPS = ("spread_mappo", "spread_ippo")


def train_groups(root: Path, seeds: tuple[int, ...] = (1, 2)) -> list[Path]:
    """Runs of 4 000 steps of each algorithm, two episodes recorded of each -> the group directories."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrackerHub, "_keep_code", lambda hub, root: None)
        for group in GROUPS:
            for seed in seeds:
                done = train(root, "--log_eval_episodes", "2", "--group", group, "--seed", str(seed),
                             "--algorithm_name", group.split("_")[1])  # fmt: skip
                assert done.code == 0, done.err
    return [root / "NAVRL" / group for group in GROUPS]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("report_script", ROOT / "scripts" / "report.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def report(*words: str | Path) -> tuple[int, str, str]:
    """``python scripts/report.py`` in this process -> exit code, output, errors."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = script().main([str(word) for word in words])
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()
