"""scripts/compare.py: from directories, whatever lies in them, to tables, files and figures; bad words are one line."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from navrl.analysis.comparison import compare
from navrl.analysis.records import find, load
from navrl.tracking.record import LOCK, RunLock
from synthetic_runs import add_record

ROOT = Path(__file__).resolve().parents[1]
REWARD = "eval/episode_reward"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare_script", ROOT / "scripts" / "compare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(level: float, last: int = 400) -> list[dict]:
    return [{"step": step, REWARD: level - 100 / (step + 10), "eval/normalized_score": 0.5 + step / 1000,
             "eval/collision_count": 1.0, "train/entropy": 1.0} for step in range(0, last + 1, 100)]  # fmt: skip


def add_group(root: Path, name: str, level: float, seeds: int = 5, **config) -> Path:  # noqa: ANN003
    for seed in range(1, seeds + 1):
        value = level + seed / 10
        final = {"episode_reward": value, "normalized_score": 0.9 + seed / 100, "collision_count": 1.0}
        add_record(root / "NAVRL" / name / f"mappo_seed{seed}", rows_of(value), seed=seed, final=final, **config)
    return root / "NAVRL" / name


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    add_group(tmp_path / "runs", "first", -7.0)
    add_group(tmp_path / "runs", "second", -9.0, lr=1e-3)
    return tmp_path / "runs"


def said_by(script: ModuleType, capsys: pytest.CaptureFixture, *words: object) -> tuple[int, str, str]:
    code = script.main([str(word) for word in words])
    streams = capsys.readouterr()
    return code, streams.out, streams.err


def test_two_groups_in_text(script: ModuleType, runs: Path, capsys: pytest.CaptureFixture) -> None:
    code, out, err = said_by(script, capsys, "first", runs / "NAVRL" / "second", "--run_dir", runs, "--at", 250)
    assert (code, err) == (0, "")
    first, second = re.findall(r"^  (first|second) +5 +(-?[\d.]+) \[(\S+), (\S+)\]", out, re.M)[:2]
    assert first[:2] == ("first", "-6.7") and second[:2] == ("second", "-8.7")
    assert float(first[2]) < -6.7 < float(first[3])
    assert re.search(r"eval/episode_reward +first +second +1 \[1, 1\] +2 \[", out)
    assert re.search(r"steps to 0.9 .*\n  first .* 400 \(5 of 5\)", out)
    assert re.search(r"lr +5e-4 +1e-3", out)
    assert "at 250" in out and "95% stratified bootstrap over seeds (percentile, 10000 resamples, seed 0)" in out
    assert "warnings" not in out and "left out" not in out
    again = said_by(script, capsys, "first", "second", "--run_dir", runs, "--at", 250)
    assert again[1] == out, "the same records, the same words"


def test_files_hold_what_was_compared(
    script: ModuleType, runs: Path, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    words = (
        "first",
        "second",
        "--run_dir",
        runs,
        "--out",
        out,
        "--at",
        100,
        "--metric",
        REWARD,
        "eval/collision_count",
    )
    code, text, err = said_by(script, capsys, *words)
    assert (code, err) == (0, "")
    assert {path.name for path in out.iterdir()} == {
        "comparison.txt", "results.csv", "seeds.csv", "pairs.csv", "configuration.csv", "results.tex", "curves.png",
        "behaviour.png", "profiles.png", "distribution.png"}  # fmt: skip
    assert text == (out / "comparison.txt").read_text() + f"\nwritten to {out}\n"
    for image in out.glob("*.png"):
        assert image.read_bytes().startswith(b"\x89PNG") and image.stat().st_size > 5000

    comparison = compare(load(find([runs])[0], [REWARD])[0], [REWARD])
    outcome = comparison.outcomes["first", REWARD]
    row = next(csv.DictReader(open(out / "results.csv")))
    assert (row["metric"], row["group"], row["runs"], row["better"]) == (REWARD, "first", "5", "higher")
    numbers = [float(row[name]) for name in ("iqm", "iqm low", "iqm high", "area", "area from", "area to")]
    assert numbers == [outcome.iqm.value, outcome.iqm.low, outcome.iqm.high, outcome.area_iqm.value, 0.0, 400.0]
    assert row["threshold"] == "" and row["optimality gap"] == ""
    seeds = [row for row in csv.DictReader(open(out / "seeds.csv")) if row["metric"] == REWARD]
    assert [float(row["final"]) for row in seeds[:5]] == outcome.final.tolist() and len(seeds) == 10
    assert {row["from"] for row in seeds} == {"summary"} and seeds[0]["at"] == repr(rows_of(-6.9)[1][REWARD])
    pair = next(csv.DictReader(open(out / "pairs.csv")))
    assert float(pair["P(first better)"]) == 1.0 and float(pair["iqm of first - second low"]) > 0
    assert {row["key"]: row["second"] for row in csv.DictReader(open(out / "configuration.csv"))}["lr"] == "1e-3"


def test_latex_is_a_table_whatever_groups_are_called(script: ModuleType, runs: Path, capsys: pytest.CaptureFixture,
                                                     tmp_path: Path) -> None:  # fmt: skip
    pytest.importorskip("matplotlib")
    (runs / "NAVRL" / "first").rename(runs / "NAVRL" / r"_b&50%#{$\x$}~^c")
    code, _, err = said_by(script, capsys, runs, "--out", tmp_path / "out", "--metric", REWARD)
    assert (code, err) == (0, "")
    text = (tmp_path / "out" / "results.tex").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    assert lines[0] == r"\begin{tabular}{lcc}" and lines[-1] == r"\end{tabular}"
    escaped = r"\_b\&50\%\#\{\$\textbackslash{}x\$\}\textasciitilde{}\textasciicircum{}c"
    assert rf"metric & {escaped} & second \\" in lines, text
    assert re.search(
        r"eval/episode\\_reward \$\\uparrow\$ & \$-6.7\$ \{\\small \$\[-\S+ -\S+\]\$\} & \$-8.7\$ ", text
    ), text
    bare = re.sub(r"\\[&%$#_{}]|\\text\w+\{\}", "", "\n".join(lines))
    assert bare.count("{") == bare.count("}") and bare.count("$") % 2 == 0 and "%" not in bare
    assert all(line.count("&") == 2 for line in bare.splitlines() if line.endswith(r"\\"))


def test_records_of_every_kind_give_a_comparison_and_a_list(
    script: ModuleType, runs: Path, capsys: pytest.CaptureFixture
) -> None:
    group = runs / "NAVRL" / "first"
    for name in ("empty", "foreign", "young", "torn", "damaged", "number", "no_step"):
        (group / name).mkdir()
    (group / "young" / "metrics.jsonl").write_text("")
    (group / "foreign" / "notes.txt").write_text("nothing of ours")
    (group / "torn" / "metrics.jsonl").write_text('{"step": 0, "m": 1}\n{"step": 10, "m": 2}\n{"step": 20, "m"')
    (group / "damaged" / "metrics.jsonl").write_text('{"step": 0}\n{"st\n{"step": 20}\n')
    (group / "number" / "metrics.jsonl").write_text("3\n")
    (group / "no_step" / "metrics.jsonl").write_text('{"loss": 3}\n')
    (group / "mappo_seed3" / "metadata.json").unlink()
    (group / "mappo_seed4" / "config.yaml").write_bytes(b"\xff\x00")
    (group / "mappo_seed5" / "summary.json").write_text("{")
    cut_short = group / "mappo_seed2" / "metrics.jsonl"
    os.truncate(cut_short, cut_short.stat().st_size * 3 // 5)
    running = add_record(group / "mappo_seed9", rows_of(-7.0, 200), seed=9, status="running")
    crashed = add_record(group / "mappo_seed10", rows_of(-7.0, 200), seed=10, status="running")
    (crashed / LOCK).touch()
    lock = RunLock(running / LOCK)
    try:
        code, out, err = said_by(script, capsys, "first", "--run_dir", runs, "--metric", REWARD)
    finally:
        lock.release()
    assert (code, err) == (0, ""), err
    left_out = out.partition("\nleft out\n")[2]
    for name, reason in {
        "young": "holds no row yet", "number": "holds no readable row", "no_step": "no whole-number step",
        "damaged": "line 2 is damaged and rows follow it", "mappo_seed5": "summary.json is damaged",
    }.items():  # fmt: skip
        assert re.search(rf"{group}/{name}: .*{reason}", left_out), (name, left_out)
    assert "empty" not in left_out and "foreign" not in left_out, "directories of other things are no runs"
    assert "seed 9 (running at step 200)" in out and "seed 10 (crashed at step 200)" in out
    assert "the configuration of seed 4, torn is lost" in out and "1: -6.9  2: -6.8  3: -6.7  4: -6.6" in out
    assert "area 0-200" in out, "seed 2 has finished and has no more rows"
    assert "9: -7.476*  10: -7.476*" in out and "no eval/episode_reward of torn" in out


def test_a_run_that_goes_on_is_read_whole_up_to_its_last_row(
    script: ModuleType, runs: Path, capsys: pytest.CaptureFixture
) -> None:
    metrics = runs / "NAVRL" / "first" / "mappo_seed1" / "metrics.jsonl"
    with open(metrics, "a") as file:
        file.write(json.dumps({"step": 500, REWARD: 9.0})[:-5])
    code, out, _ = said_by(script, capsys, "first", "--run_dir", runs, "--metric", REWARD)
    assert code == 0 and "area 0-400" in out and "left out" not in out


BAD = {
    ("nowhere",): r"nowhere: neither a directory nor a group under {runs}",
    ("secnd",): r"secnd: neither a directory nor a group under {runs}; nearest: second",
    (
        "first",
        "--metric",
        "eval/episode_rewrd",
    ): r"no run has a metric eval/episode_rewrd; nearest: eval/episode_reward",
    ("first", "--threshold", "eval/nothing=1"): r"no run has a metric eval/nothing",
    ("first", "--threshold", "eval/episode_reward"): r"is not METRIC=VALUE",
    ("first", "--threshold", "eval/episode_reward=nan"): r"is not METRIC=VALUE",
    ("first", "--at", "-3"): r"--at: '-3' is not a whole number",
    ("first", "--smooth", "1.5"): r"--smooth: '1.5' is not a whole number",
    ("first", "--axis", "hours"): r"invalid choice: 'hours'",
    ("first", "--band", "sem"): r"invalid choice: 'sem'",
    ("first", "--out", "{runs}/no/where"): r"--out: .*cannot be written",
    ("first", "--out", "{runs}/file"): r"--out: {runs}/file is a file; name a directory",
    ("{runs}/empty",): r"no run to read: {runs}/empty: no run here",
    (): r"name a GROUP",
    ("first", "--metrics", "m"): r"unrecognized arguments: --metrics m",
}


@pytest.mark.parametrize("words", BAD, ids=" ".join)
def test_bad_words_are_one_line(
    words: tuple[str, ...], script: ModuleType, runs: Path, capsys: pytest.CaptureFixture
) -> None:
    (runs / "empty").mkdir()
    (runs / "file").write_text("mine")
    before = sorted(runs.rglob("*"))
    argv = [word.replace("{runs}", str(runs)) for word in words]
    try:
        code = script.main([*argv, "--run_dir", str(runs)])
    except SystemExit as refused:
        code = refused.code
    streams = capsys.readouterr()
    assert code == 2 and streams.out == "" and streams.err.count("\n") == 1, streams.err
    assert re.search(BAD[words].replace("{runs}", re.escape(str(runs))), streams.err), streams.err
    assert sorted(runs.rglob("*")) == before and (runs / "file").read_text() == "mine"


def test_runs_without_any_of_the_usual_metrics(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    add_record(tmp_path / "g" / "run", [{"step": 0, "train/entropy": 1.0}])
    code, out, err = said_by(script, capsys, tmp_path / "g")
    assert code == 2 and out == "" and re.fullmatch(r"no run has any of eval/episode_reward, .*--metric\n", err)


def test_the_program_itself(runs: Path) -> None:
    environ = os.environ | {"NAVRL_RUNS": str(runs)}
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "compare.py", "first", "--metric", "eval/collision_count"],
        capture_output=True, text=True, timeout=60, env=environ,
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == "" and "eval/collision_count (lower is better)" in done.stdout
    light = subprocess.run(
        [sys.executable, "-c", "import sys; import navrl.analysis.comparison, navrl.analysis.tables; "
         "print(*{'torch', 'matplotlib', 'pandas'} & set(sys.modules))"],
        capture_output=True, text=True, timeout=60, cwd=ROOT)  # fmt: skip
    assert light.stdout.strip() == "", "tables need none of them"


def test_every_axis_and_band_is_drawn(
    script: ModuleType, runs: Path, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    for axis, band in (("episodes", "std"), ("time", "range")):
        code, _, err = said_by(script, capsys, runs, "--out", out, "--axis", axis, "--band", band, "--smooth", 150,
                               "--metric", "train/entropy")  # fmt: skip
        assert code == 0 and (out / "curves.png").stat().st_size > 5000
        assert err.splitlines() == [
            "behaviour.png: nothing to draw: no metric of layer 2 or 3",
            "profiles.png: nothing to draw: no metric with final values has a better direction",
        ]
