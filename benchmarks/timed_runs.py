"""Runs of main.py whose start is known to the moment, one a seed, each once; not a program.

Used by time_to_threshold.py. ``OUT/seedN.json`` beside the runs says what a seed's run was and when its process began;
it is there only once that run has finished.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from navrl.tracking.record import read_summary, write_json

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Trained:
    """A run that finished. words: what main.py was told beside seed and places. started, ended: of its process, in
    seconds since 1970. final: ``final`` of its summary.json."""

    seed: int
    words: list[str]
    started: float
    ended: float
    run_dir: Path
    final: dict[str, Any]

    @property
    def seconds(self) -> float:
        """From Enter to the end."""
        return self.ended - self.started


def train(out: Path, seed: int, words: Sequence[str]) -> None:
    """One run from its beginning, all checkpoints kept. Raises RuntimeError where it does not finish.

    What an earlier call that was stopped has left is not gone on with: its clock is lost.
    """
    argv = ["main.py", *words, "--seed", str(seed), "--run_dir", str(out / "runs"), "--keep_artifacts", "all"]
    before, log = _runs(out), out / f"seed{seed}.log"
    with open(log, "wb") as said:
        started = time.time()  # the clock of files' times
        process = subprocess.Popen([sys.executable, *argv], cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)
        try:
            code = process.wait()
        finally:
            process.terminate()  # where this program is stopped; nothing to a process that has ended
            process.wait()
        ended = time.time()
    if code:
        raise RuntimeError(f"seed {seed}: exit code {code}; see {log}")
    (run_dir,) = _runs(out) - before
    note = {"command": shlex.join(["python", *argv]), "words": list(words), "started": started, "ended": ended,
            "run": str(run_dir.relative_to(out))}  # fmt: skip
    write_json(_note(out, seed), note)


def trained(out: Path, seed: int) -> Trained | None:
    """The finished run of a seed, or None. Raises ValueError where its note or its record is damaged."""
    try:
        note = json.loads(_note(out, seed).read_text(encoding="utf-8"))
        run_dir = out / note["run"]
        final = read_summary(run_dir)["final"]
        return Trained(seed, note["words"], note["started"], note["ended"], run_dir, final)
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{_note(out, seed)}, or the run that it names, is damaged ({error!r})") from None


def _runs(out: Path) -> set[Path]:
    return {config.parent for config in out.glob("runs/*/*/*/config.yaml")}


def _note(out: Path, seed: int) -> Path:
    return out / f"seed{seed}.json"
