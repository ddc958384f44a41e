"""Give every program every kind of bad input that we know of, and write down what each answers.

    python benchmarks/bad_input.py --out docs/bad_input.md       minutes on two cores; exit code 1 if a row fails
    python benchmarks/bad_input.py --only resume                 the rows whose section or input has this word

Each input (``bad_input_rows.py``) gets a process and a directory of its own. It passes where the exit code is the one
that is documented for it (2: bad input), the answer names what is wrong, no traceback is in it, no secret is in it, and
nothing was written (rows that are no bad input, though other programs choke on them, must run and write instead).

Where an answer cannot depend on how the interpreter starts, the process is forked from one that has the libraries
loaded; the program itself runs from its file, to its exit code, all the same.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from bad_input_rows import KINDS, ROWS, build  # noqa: E402
from sandbox import Outcome, Row, answer, judge, play  # noqa: E402

from navrl.pipes import Parser, run_program, whole  # noqa: E402

WIDTH = 230  # characters of an answer in the table


def _warm() -> None:
    """Load what the programs load, so that a forked one has it; no thread may be left behind."""
    import torch

    torch.set_num_threads(1)
    import navrl.animation  # noqa: F401
    import navrl.checkpoint  # noqa: F401
    import runners.experiment  # noqa: F401


def _work(number: int, bench: Path) -> Outcome:
    return play(ROWS[number], bench)


def table(rows: list[Row], outcomes: list[Outcome], seconds: float) -> str:
    lines = [
        "# What bad input is answered with",
        "",
        f"{len(rows)} inputs, made by `python benchmarks/bad_input.py --out docs/bad_input.md` in {seconds:.0f} s.",
        "",
        "Exit code 2 is bad input, refused before anything is written; 1 a run that failed, 0 an input that is good, "
        "though other programs choke on it. Answers are the first line (of a list of faults the first fault; of a run "
        "that failed the last line; of one that ran, what it says of the input). "
        "Every input has a directory of its own; paths are relative to it.",
    ]
    section = ""
    for row, outcome in zip(rows, outcomes):
        if row.section != section:
            section = row.section
            lines += ["", f"## {section}", "", "| input | exit code | answer | wrote anything? |", "|---|---|---|---|"]
        lines.append(f"| {_cell(row.input)} | {outcome.code} | {_cell(answer(row, outcome))} | "
                     f"{'yes' if outcome.written else 'no'} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    text = text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."
    return "`" + text.replace("`", "'").replace("|", "\\|") + "`"


def main(argv: list[str]) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--out", type=Path, help="write the table here (default: to stdout)")
    parser.add_argument("--only", help="the rows whose section or input has this word")
    parser.add_argument("--processes", type=whole(1), default=len(os.sched_getaffinity(0)))
    options = parser.parse_args(argv)
    out = options.out and options.out.absolute()
    numbers = [i for i, row in enumerate(ROWS) if (options.only or "") in f"{row.section} {row.input}"]
    rows = [ROWS[i] for i in numbers]
    began, failed, outcomes = time.monotonic(), 0, []
    _warm()
    with tempfile.TemporaryDirectory(prefix="navrl-bad-input-") as scratch:
        bench = Path(scratch)
        (bench / "tmp").mkdir()
        # Each worker forks its rows itself, and has no other thread while it does
        with multiprocessing.get_context("fork").Pool(options.processes) as pool:
            pool.map(partial(build, bench=bench), KINDS, chunksize=1)
            for row, outcome in zip(rows, pool.imap(partial(_work, bench=bench), numbers)):
                outcomes.append(outcome)
                if wrong := judge(row, outcome):
                    failed += 1
                    print(f"{row.section}: {row.input}\n  {'; '.join(wrong)}\n  {answer(row, outcome)}",
                          file=sys.stderr, flush=True)  # fmt: skip
    text = table(rows, outcomes, time.monotonic() - began)
    out.write_text(text, encoding="utf-8") if out else print(text)
    print(f"{len(rows)} inputs, {failed} of them break the rule", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    run_program(main)
