"""A bar on a terminal, plain lines when piped, all lines in console.log; output that goes nowhere stops nothing."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from whole_runs import TINY

from navrl.pipes import settle_output
from navrl.tracking.console import Console

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[1])
from navrl.tracking.console import Console
console = Console(1000, progress=True, keep=open(sys.argv[2], "a").write)
for step in range(100, 1001, 100):
    evaluated = {"eval/episode_reward": -9.5} if step % 500 == 0 else {}
    console.row(step, {"train/episode_reward_mean": -20.0, **evaluated})
    time.sleep(0.12)
    if step == 500:
        console.say("a warning")
console.close()
"""


def test_piped_output_is_plain_lines_with_evaluations(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT), str(tmp_path / "log")], capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    assert done.stderr == ""
    assert [line.split(" · ")[0] for line in lines] == [
        "step 100 of 1,000 (10 %)",
        "step 500 of 1,000 (50 %)",
        "a warning",
        "step 1,000 of 1,000 (100 %)",
    ]
    assert re.fullmatch(
        r"step 500 of 1,000 \(50 %\) · [\d,]+ steps/s · eval reward -9.50 · reward -20.00 · 0:00:00 left", lines[1]
    )
    assert (tmp_path / "log").read_text() == "".join(lines)


def test_a_terminal_gets_a_bar_with_speed_reward_and_time_left(tmp_path):
    main, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(ROOT), str(tmp_path / "log")], stdout=child, stderr=child
    )
    os.close(child)
    shown = b""
    try:
        while part := os.read(main, 4096):
            shown += part
    except OSError:  # the terminal's other end is closed
        pass
    process.wait()
    os.close(main)
    text = shown.decode()
    assert "a warning" in text and "1.00k/1.00k" in text and "env steps/s" in text and "reward=-20.00" in text
    assert re.search(r"\[00:\d\d<00:\d\d", text)
    assert "a warning" in (tmp_path / "log").read_text()


def test_a_closed_pipe_stops_nothing(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + "print('end', file=sys.stderr)", str(ROOT), str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.stderr.read().startswith(b"end")
    process.wait()


def test_time_left_and_unknown_totals():
    console = Console(None, progress=False, keep=lambda line: None, terminal=False)
    assert "left" not in console.line(100) and "of" not in console.line(100)
    console = Console(10**9, progress=False, keep=lambda line: None, terminal=False)
    assert re.search(r"\d+:\d\d:\d\d left$", console.line(10))


def test_a_run_whose_outputs_are_closed_ends_well(tmp_path):
    words = [*TINY, "--run_dir", str(tmp_path)]
    words[words.index("--num_workers") + 1] = "1"  # its process must have somewhere to write, too
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "main.py", *words]
    assert subprocess.run(closed, cwd=ROOT, timeout=120).returncode == 0
    (summary,) = tmp_path.rglob("summary.json")
    assert '"finished"' in summary.read_text()


def test_a_console_without_stderr(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(sys, "stdout", None)
    said = []
    console = Console(10, progress=True, keep=said.append)
    console.say("a warning")
    console.row(1, {"eval/episode_reward": -1.0})
    console.close()
    settle_output()
    assert said[0] == "a warning" and len(said) == 2
