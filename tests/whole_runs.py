"""What tests of whole runs share: the smallest run there is, in this process or as a program, and how to read one."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from navrl.checkpoint import CheckpointStore, load

ROOT = Path(__file__).resolve().parents[1]
# 10 iterations of 16 copies x 25 steps; no worker process, no tracker
TINY = (
    "--num_envs", "16", "--rollout_length", "25", "--total_env_steps", "4000", "--hidden_size", "16",
    "--mini_batch_size", "100", "--ppo_epoch", "2", "--eval_interval", "3", "--eval_episodes", "4",
    "--final_eval_episodes", "4", "--log_eval_episodes", "0", "--checkpoint_interval", "4", "--num_workers", "0",
    "--no_log_wandb", "--logger", "console",
)  # fmt: skip


class Result:
    """How a run ended, what it said and where it is."""

    def __init__(self, code: int, out: str, err: str, root: Path) -> None:
        self.code, self.out, self.err, self.root = code, out, err, root

    @property
    def run_dir(self) -> Path:
        (found,) = run_dirs(self.root)
        return found


def run_dirs(root: Path) -> list[Path]:
    return sorted(path.parent for path in Path(root).glob("*/*/*/summary.json"))


def train(root: Path, *flags: str) -> Result:
    """``python main.py`` in this process; of flags given twice the last one counts."""
    return call(tiny_argv(root, *flags), root)


def resume(run_dir: Path, *flags: str) -> Result:
    return call(["--resume", str(run_dir), *flags], run_dir.parents[2])


def call(argv: list[str], root: Path) -> Result:
    import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.main(argv)
    return Result(code, out.getvalue(), err.getvalue(), root)


def program(argv: list[str], **options: Any) -> subprocess.Popen:
    """``python main.py`` as a process of its own."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    return subprocess.Popen(
        [sys.executable, str(ROOT / "main.py"), *argv],
        env=env, cwd=ROOT, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        **options,
    )  # fmt: skip


def tiny_argv(root: Path, *flags: str) -> list[str]:
    groups: dict[str, list[str]] = {}
    for word in (*TINY, "--run_dir", str(root), *flags):
        if word.startswith("--"):
            current = groups[word] = [word]
        else:
            current.append(word)
    return [word for group in groups.values() for word in group]


def rows(run_dir: Path) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl without what depends on the clock."""
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [
        {k: v for k, v in json.loads(line).items() if k != "time" and not k.startswith("perf/")} for line in lines
    ]


def summary(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "summary.json").read_text())


def metadata(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "metadata.json").read_text())


def last_state(run_dir: Path) -> dict[str, Any]:
    """The newest checkpoint without the clock and the (resumable) text of the configuration."""
    state = load(CheckpointStore(run_dir / "checkpoints").path("last"))
    return {name: value for name, value in state.items() if name not in ("elapsed", "config")}


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Paths at which two nested states differ, bit for bit."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a.numpy(), b.numpy(), equal_nan=True)
        return [] if same else [path]
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return [f"{path}: keys {sorted(map(str, a.keys() ^ b.keys()))}"]
        return [found for key in a for found in differences(a[key], b[key], f"{path}/{key}")]
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return [f"{path}: length {len(a)} and {len(b)}"]
        return [found for i, (x, y) in enumerate(zip(a, b)) for found in differences(x, y, f"{path}/{i}")]
    return [] if a == b or (a != a and b != b) else [f"{path}: {a!r} and {b!r}"]


def same_run(a: Path, b: Path) -> None:
    """Parameters, optimiser, generators, environment, rows and results are equal to the bit."""
    assert differences(last_state(a), last_state(b)) == []
    assert rows(a) == rows(b)
    first, second = summary(a), summary(b)
    for name in ("status", "final", "best", "last"):
        assert first.get(name) == second.get(name), name


def stop_after(monkeypatch: Any, iterations: int, number: int = signal.SIGTERM) -> None:
    """This process sends itself a signal while it collects iteration ``iterations``."""
    from runners.on_policy import OnPolicyRunner

    collect = OnPolicyRunner.collect

    def collect_and_stop(self: OnPolicyRunner) -> None:
        collect(self)
        if self.iteration + 1 == iterations:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(OnPolicyRunner, "collect", collect_and_stop)
