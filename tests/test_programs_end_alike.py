"""Every program refuses in one line, ends with the code that it says, and makes no noise where its reader has gone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from whole_runs import ROOT

BODY = "from navrl.pipes import Parser, run_program, whole\ndef main(argv):\n    {}\nrun_program(main)\n"


def ends(body: str, *words: str, shell: str = '"$@"', **environ: str) -> subprocess.CompletedProcess:
    """A program with this ``main``; ``shell`` is the command line around it."""
    code = BODY.format(body.replace("\n", "\n    "))
    return subprocess.run(
        ["bash", "-c", shell, "_", sys.executable, "-c", code, *words],
        cwd=ROOT, env=os.environ | environ, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("code", [0, 1, 2, 138])
def test_the_code_is_the_one_that_main_returns(code: int) -> None:
    done = ends("print(*argv)\nreturn int(argv[0])", str(code), "a b")
    assert (done.returncode, done.stdout, done.stderr) == (code, f"{code} a b\n", "")


def test_ctrl_c_is_one_line() -> None:
    done = ends("raise KeyboardInterrupt")
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_reader_that_has_gone_is_no_fault(buffered: str) -> None:
    gone = '"$@" | true; exit ${PIPESTATUS[0]}'
    done = ends("import time; time.sleep(0.3)\nprint('x' * 100_000)\nreturn 0", shell=gone, PYTHONUNBUFFERED=buffered)
    assert (done.returncode, done.stderr) == (0, "")


def test_closed_streams_are_no_fault() -> None:
    done = ends("import sys\nprint(1)\nprint(2, file=sys.stderr)\nreturn 3", shell='"$@" <&- >&- 2>&-')
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_a_character_that_the_stream_lacks_is_escaped() -> None:
    done = ends("print('run größe')\nreturn 0", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout, done.stderr) == (0, "run gr\\xf6\\xdfe\n", "")


@pytest.mark.parametrize(("words", "said"), [
    ((), "the following arguments are required: path"),
    (("a", "--count", "0"), "--count: '0' is not a whole number of at least 1 and at most 2**63 - 1"),
    (("a", "--count", str(2**63)), f"--count: '{2**63}' is not a whole number of at least 1"),
    (("a", "--count", "x"), "--count: 'x' is not a whole number"),
    (("a", "--cou", "1"), "unrecognized arguments: --cou 1"),
])  # fmt: skip
def test_wrong_words_are_refused_in_one_line(words: tuple[str, ...], said: str) -> None:
    done = ends(
        "parser = Parser('does something')\nparser.add_argument('path')\n"
        "parser.add_argument('--count', type=whole(1))\nparser.parse_args(argv)\nreturn 0", *words,
    )  # fmt: skip
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""
    assert done.stderr.endswith("--help)\n")
