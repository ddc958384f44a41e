"""What a launch shows: a table on a terminal, a line a change when piped; step, reward and time left of the record."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from launch_tools import plan
from rich.console import Console

from navrl.launch.state import State, conflicts, state_of
from navrl.launch.table import Line, Table
from navrl.tracking.record import LocalRecord


@pytest.fixture
def runs(tmp_path: Path):
    """Three runs; the first has a record: 1000 of 4000 steps, in 5 s of training."""
    runs = plan(tmp_path, [1, 2, 3], "--group", "g")
    run_dir = runs[0].run_dir
    record = LocalRecord.create(tmp_path / "runs", *run_dir.parts[-3:])
    record.close()
    rows = [{"step": 0, "time": 0.5, "train/episode_reward_mean": -30.0},
            {"step": 600, "time": 3.5, "eval/episode_reward": -20.25},
            {"step": 1000, "time": 5.5, "train/episode_reward_mean": -25.0}]  # fmt: skip
    (run_dir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 1400, "ti')
    return runs


def test_the_state_is_that_of_the_record(runs) -> None:
    assert state_of(runs[1]) == State("waiting")
    # 3000 steps are left, at 1000 in 5 seconds
    assert state_of(runs[0]) == State("crashed", step=1000, reward=-20.25, seconds_left=15.0)
    path = runs[0].run_dir / "metrics.jsonl"
    with open(path, "a") as file:  # a row that tells no time
        file.write('\n{"step": 2000, "time": null}\n{"step": 2100, "time": NaN}\n{"step": 2200, "time": "1"}\n')
    assert state_of(runs[0]) == State("crashed", step=2200, reward=-20.25, seconds_left=15.0)
    with open(path, "a") as file:  # many rows later: what is read is the end of the file
        file.write(
            "\n" + "".join(json.dumps({"step": 1400 + n, "time": 7.0 + n, "train/x": 0.1}) + "\n" for n in range(3000))
        )
    assert (state_of(runs[0]).step, state_of(runs[0]).reward) == (4399, None)
    path.write_bytes(b"\xff{[" * 1000)
    (runs[0].run_dir / "summary.json").write_text("[")
    assert state_of(runs[0]) == State("crashed")


def test_a_record_that_is_none_is_said_in_a_line(runs) -> None:
    config = runs[0].run_dir / "config.yaml"
    for text, said in {"lr: 7\n": f"lr ({config}): cannot be used: Input should be less", "lr: [\n": str(config),
                       "num_envs: 3\nprocesses: 2\n": f"({config}): cannot be used: "}.items():  # fmt: skip
        config.write_text(text)
        (fault,) = conflicts(runs[0])
        assert said in str(fault) and "\n" not in str(fault) and "https://" not in str(fault)
        assert state_of(runs[0]).status == "crashed"


def test_a_line_a_change_when_piped(runs, capsys: pytest.CaptureFixture) -> None:
    one, two, three = runs
    with Table(Console(file=io.StringIO())) as table:
        table.show([Line(one, "waiting"), Line(two, "waiting"), Line(three, "finished")], last=True)
        table.show([Line(one, "running"), Line(two, "elsewhere"), Line(three, "finished")], last=True)
        table.show([Line(one, "running"), Line(two, "elsewhere"), Line(three, "finished")], last=True)
        table.show(
            [Line(one, "failed", "the reason"), Line(two, "elsewhere"), Line(three, "finished")]
        )  # too soon to look
        table.show([Line(one, "failed", "the reason"), Line(two, "elsewhere"), Line(three, "finished")], last=True)
    place = "step 1,000 of 4,000 (25 %) · reward -20.25"
    assert capsys.readouterr().out.splitlines() == [
        f"{three.label}: finished",
        f"{one.label}: running · {place} · 0:00:15 left",
        f"{two.label}: elsewhere",
        f"{one.label}: failed: the reason · {place}",
    ]


def test_a_table_on_a_terminal(runs) -> None:
    lines = [
        Line(runs[0], "running", "attempt 2"),
        Line(runs[1], "failed", "a [bold] reason"),
        Line(runs[2], "waiting"),
    ]

    def shown(height: int, *, last: bool) -> list[str]:
        console = Console(file=io.StringIO(), force_terminal=True, width=200, height=height, color_system=None)
        with Table(console) as table:
            table.show(lines, last=last)
        return [line.strip() for line in console.file.getvalue().split("finished", 1)[1].splitlines() if line.strip()]

    text = shown(30, last=False)
    assert text[0] == "· 1 running · 1 failed · 1 waiting" and text[1].split() == [
        "run",
        "step",
        "reward",
        "left",
        "state",
    ]
    first = next(line for line in text if runs[0].name in line)
    assert first.split()[1:] == "1,000 of 4,000 (25 %) -20.25 0:00:15 running: attempt 2".split()
    assert any("failed: a [bold] reason" in line for line in text)
    few = "\n".join(shown(8, last=False))  # two rows: what runs and what failed go first
    assert runs[0].name in few and runs[1].name in few and runs[2].name not in few
    assert runs[2].name in "\n".join(shown(8, last=True))
