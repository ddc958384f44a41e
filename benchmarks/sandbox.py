"""One program, one input, a process and a directory of its own: what it answers and what it leaves."""

from __future__ import annotations

import hashlib
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HEADING = "bad configuration, nothing was started ("
LIMIT = 180  # seconds for one input
FOREIGN = ("WANDB_", "SWANLAB_", "MLFLOW_", "NAVRL_", "NETRC", "LC_", "LANG", "PYTHON")  # variables that rows set


@dataclass
class Row:
    """One input. ``words`` follow the program's name; paths in them are relative to the row's own directory.

    names: what the answer must contain; hidden: what it must not. code: the documented exit code. writes: whether
    something is to be written. prepare: makes what the words name, in the present directory, and may return what must
    stay alive meanwhile. fresh: the interpreter itself has to start (locales, shells). base: words that come
    first and are not shown.
    """

    section: str
    words: tuple[str, ...]
    names: tuple[str, ...]
    program: str = "main.py"
    label: str = ""
    hidden: tuple[str, ...] = ()
    code: int = 2
    writes: bool = False
    prepare: Callable[[], Any] | None = None
    env: dict[str, str] = field(default_factory=dict)
    fresh: bool = False
    base: tuple[str, ...] = ()

    @property
    def input(self) -> str:
        """As a person would type it, with a word on what the files hold."""
        variables = [f"{name}={value}" for name, value in self.env.items() if name not in ("PYTHONPATH", "LOGS")]
        shown = " ".join([*variables, self.program, *map(_quoted, self.words)])
        return f"{self.label}: {shown}" if self.label else shown


@dataclass
class Outcome:
    code: int
    out: str
    err: str
    written: list[str]  # paths that appeared, changed or went


def _quoted(word: str) -> str:
    word = word.replace(f"{ROOT}/", "")
    word = word if word.isprintable() and word else ascii(word)
    return word if len(word) <= 60 else word[:57] + "..."


def judge(row: Row, outcome: Outcome) -> list[str]:
    """What is wrong with an outcome; nothing where the rule holds."""
    said = outcome.err + outcome.out
    wrong = []
    if outcome.code != row.code:
        wrong.append(f"exit code {outcome.code}, expected {row.code}")
    if not said.strip():
        wrong.append("says nothing")
    if row.code == 1:  # of a task that breaks, its own traceback may come before
        said = answer(row, outcome)
    if "Traceback" in said:
        wrong.append("a traceback")
    wrong += [f"does not say {name!r}" for name in row.names if name not in said]
    wrong += [f"says {word!r}" for word in row.hidden if word in outcome.err + outcome.out]
    if bool(outcome.written) != row.writes:
        wrong.append(f"wrote {', '.join(outcome.written[:4])}" if outcome.written else "wrote nothing")
    return wrong


def answer(row: Row, outcome: Outcome) -> str:
    """The line that a person needs: the last one of a run that failed, the notice of one that ran, else the first."""
    err = [line for line in outcome.err.splitlines() if line.strip()]
    if row.code == 1 and err:
        return err[-1]
    lines = err + [line for line in outcome.out.splitlines() if line.strip()]
    if row.code == 0:
        return next((line for line in lines if row.names and row.names[0] in line), lines[0] if lines else "")
    faults = [line.removeprefix("  - ") for line in lines if not line.startswith(HEADING)]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 and lines[0].startswith(HEADING) else ""
    return faults[0] + more if faults else ""


# ---- running one


def play(row: Row, bench: Path) -> Outcome:
    """Run a row in a directory of its own under ``bench``, which is removed."""
    box = Path(tempfile.mkdtemp(dir=bench))
    held = None
    try:
        os.chdir(box)
        if row.prepare is not None:
            held = row.prepare()
        before = contents(box)
        outcome = run(row, box)
        outcome.written = sorted({name for name, _ in before.items() ^ contents(box).items()})
        for name in ("out", "err"):
            text = getattr(outcome, name).replace(f"{box}/", "").replace(str(box), ".")
            setattr(outcome, name, text.replace(f"{ROOT}/", "").replace(str(ROOT), "."))
        return outcome
    finally:
        os.chdir(bench)
        if hasattr(held, "release"):
            held.release()
        if (box / "disk").is_mount():
            subprocess.run(["umount", "-l", str(box / "disk")], check=True)
        shutil.rmtree(box, ignore_errors=True)


def contents(box: Path) -> dict[str, str]:
    """path -> digest of everything in a directory; what a lock's file says is not content."""
    found = {}
    for path in box.rglob("*"):
        if path.is_symlink() or path.is_dir() or path.name == ".lock":
            found[str(path.relative_to(box))] = "there"
        elif path.is_file():
            found[str(path.relative_to(box))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def environment(row: Row, box: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
    kept = {key: value for key, value in kept.items() if not key.lower().endswith("_proxy")}
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return {**kept, "OMP_NUM_THREADS": "1", "TMPDIR": str(box.parent / "tmp"), "HOME": str(box.parent),
            "PYTHONPATH": path, "WANDB_MODE": "offline", "PYTHONDONTWRITEBYTECODE": "1",
            **{key: value.replace("{box}", str(box)) for key, value in row.env.items()}}  # fmt: skip


def run(row: Row, box: Path) -> Outcome:
    """Run a row's program in ``box``; ``written`` is not filled in."""
    return _start(row, box) if row.fresh else _fork(row, box)


def _start(row: Row, box: Path) -> Outcome:
    shell = row.program.endswith(".sh")
    words = [os.fsencode(word) for word in (*row.base, *row.words)]
    command = ["bash" if shell else sys.executable, str(ROOT / row.program), *words]
    try:
        done = subprocess.run(command, cwd=box, env=environment(row, box), stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=LIMIT)  # fmt: skip
    except subprocess.TimeoutExpired:
        return Outcome(-signal.SIGKILL, "", f"no end within {LIMIT} s", [])
    out, err = (part.decode("utf-8", "backslashreplace") for part in (done.stdout, done.stderr))
    return Outcome(done.returncode, out, err, [])


def _fork(row: Row, box: Path) -> Outcome:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _be_the_program(row, box, out.fileno(), err.fileno())
        deadline = time.monotonic() + LIMIT
        while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return Outcome(-signal.SIGKILL, "", f"no end within {LIMIT} s", [])
            time.sleep(0.005)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "backslashreplace"))
        return Outcome(os.waitstatus_to_exitcode(done[1]), *texts, [])


def _be_the_program(row: Row, box: Path, out: int, err: int) -> None:
    """In a forked child: run the program's file as ``python FILE words...`` does. Does not return."""
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.environ.clear()
    os.environ.update(environment(row, box))
    tempfile.tempdir = None
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    for number, name in ((1, "stdout"), (2, "stderr")):
        setattr(sys, name, os.fdopen(os.dup(number), "w", encoding="utf-8", errors="backslashreplace", buffering=1))
    path = ROOT / row.program
    sys.argv = [str(path), *row.base, *row.words]
    sys.path.insert(0, str(path.parent))
    code = 1
    try:
        runpy.run_path(str(path), run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
