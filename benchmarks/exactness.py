"""How far two runs are from each other: the largest absolute difference of each part, which is 0 where they are equal.

Used by resume_exactness.py, kill_soak.py and stop_signals.py; not a program.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # two threads that wait for each other leave the cores to others
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # tests/ has the smallest run there is, and how to read one

import torch  # noqa: E402
import whole_runs  # noqa: E402

PARTS = ("parameters", "optimiser", "other state", "metrics", "final evaluation")


def difference(a: Any, b: Any) -> float:
    """Largest absolute difference of two nested values; infinite where anything else than a number differs."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.shape != b.shape or a.dtype != b.dtype:
            return math.inf
        return max((difference(x, y) for x, y in zip(a.flatten().tolist(), b.flatten().tolist()) if x != y), default=0.0)
    if isinstance(a, dict) and isinstance(b, dict):
        return max((difference(a[key], b[key]) for key in a), default=0.0) if a.keys() == b.keys() else math.inf
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return max(map(difference, a, b), default=0.0) if len(a) == len(b) else math.inf
    if a == b or (a != a and b != b):
        return 0.0
    numbers = isinstance(a, (int, float)) and isinstance(b, (int, float))
    return abs(a - b) if numbers and math.isfinite(a - b) else math.inf


def parts(run_dir: Path) -> dict[str, Any]:
    """What is compared of a run: its newest checkpoint, its rows without the clock's, the end of its summary."""
    state = whole_runs.last_state(run_dir)
    algorithm = state["runner"].pop("algorithm")
    summary = whole_runs.summary(run_dir)
    return {
        "parameters": {name: algorithm.pop(name) for name in ("actor", "critic")},
        "optimiser": algorithm.pop("optimizers"),
        "other state": [algorithm, state],
        "metrics": whole_runs.rows(run_dir),
        "final evaluation": {name: summary.get(name) for name in ("status", "final", "best")},
    }


def compare(whole: Path, other: Path) -> dict[str, float]:
    """Part -> largest absolute difference of the two runs."""
    first, second = parts(whole), parts(other)
    return {name: difference(first[name], second[name]) for name in PARTS}


def each_step_once(run_dir: Path, upto: int, by: int) -> bool:
    """Whether the record has a row for 0, ``by``, 2 ``by`` ... ``upto``, in this order and no other."""
    lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["step"] for line in lines] == list(range(0, upto + 1, by))
