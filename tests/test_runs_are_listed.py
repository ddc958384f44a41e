"""``scripts/runs.py``: runs are found, told apart by how they are doing, and one of them is shown in full."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st
from whole_runs import ROOT, Result

from navrl.analysis import listing
from navrl.analysis.listing import condition, glance, moment, sparkline
from navrl.config import Config, dump
from navrl.tracking.record import LocalRecord

COMMITS = {"one": "a1" * 20, "two": "b2" * 20}
DAY = 86400.0


def _module():
    spec = importlib.util.spec_from_file_location("runs_script", ROOT / "scripts" / "runs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = _module()


def runs(*argv: object) -> Result:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = SCRIPT.main([str(word) for word in argv])
        except SystemExit as end:
            code = end.code
    return Result(code, out.getvalue(), err.getvalue(), Path())


def listed(*argv: object) -> dict[str, dict]:
    result = runs(*argv, "--json")
    assert result.code == 0, result.err
    return {run["name"]: run for run in json.loads(result.out)}


def record(root: Path, name: str, *, group: str = "group", rows: int = 5, commit: str = "one", **config) -> LocalRecord:
    made = LocalRecord.create(root, "NAVRL", group, name)
    made.write_config(dump(Config(log_wandb=False, total_env_steps=1000, **config)))
    began = {"started": "2026-01-01T10:00:00+00:00", "git_commit": COMMITS[commit], "git_branch": "main"}
    made.write_metadata({**began, "command": f"python main.py --experiment_name {name}", "segments": [began]})
    for number in range(1, rows + 1):
        made.log(100 * number, {"train/episode_reward_mean": -30.0 + number, "train/episode_count": 4 * number})
        if number % 2 == 0:
            made.log(100 * number, {"eval/episode_reward": -20.0 + number})
    made.flush()
    return made


def age(run_dir: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(run_dir / "metrics.jsonl", (then, then))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory):
    """One run in each state. Running ones are locked by this process, as by the one that trains."""
    root = tmp_path_factory.mktemp("runs")
    done = record(root, "mappo_seed1", lr=5e-4)
    done.update_summary(status="finished", final={"episodes": 500, "env": "mpe2 1.1.1", "step": 500, "mean": {
        "episode_reward": -7.25, "success_rate": 0.85}, "standard_error": {"episode_reward": 0.14}})  # fmt: skip
    done.close()
    age(done.run_dir, 3 * DAY)
    for name, state in (("mappo_seed2", "interrupted"), ("mappo_seed3", "failed")):
        other = record(root, name, lr=1e-3, seed=int(name[-1]), commit="two")
        other.update_summary(status=state)
        other.close()
    gone = record(root, "mappo_seed4", seed=4)
    gone.close()
    alive = record(root, "mappo_seed5", seed=5)
    silent = record(root, "mappo_seed6", seed=6)
    age(silent.run_dir, 3600)
    young = record(root, "gru_seed1", group="other group", rows=0, network="gru", value_norm="popart")
    yield SimpleNamespace(path=root, done=done.run_dir)
    for each in (alive, silent, young):
        each.close()


def test_each_state_is_told(root) -> None:
    found = listed(root.path)
    assert {name: run["state"] for name, run in found.items()} == {
        "mappo_seed1": "finished", "mappo_seed2": "interrupted", "mappo_seed3": "failed", "mappo_seed4": "crashed",
        "mappo_seed5": "running", "mappo_seed6": "stalled", "gru_seed1": "running",
    }  # fmt: skip
    run = found["mappo_seed5"]
    assert (run["step"], run["budget"], run["seed"], run["metric"], run["reward"]) == (
        500, 1000, 5, "eval/episode_reward", -16.0)  # fmt: skip
    assert run["curve"] == [-18.0, -16.0] and run["commit"] == COMMITS["one"]
    assert found["gru_seed1"]["step"] is found["gru_seed1"]["reward"] is None
    assert abs(time.time() - 3600 - found["mappo_seed6"]["last_row"]) < 60


def test_the_table_has_a_line_a_run_under_its_group(root) -> None:
    lines = runs(root.path).out.splitlines()
    groups = [line for line in lines if line.endswith(("runs)", "run)"))]
    assert groups == [f"{root.path}/NAVRL/group  (6 runs)", f"{root.path}/NAVRL/other group  (1 run)"]
    (line,) = [line for line in lines if "mappo_seed6" in line]
    assert line.split()[:6] == ["mappo_seed6", "stalled", "500", "1,000", "-16.00", "60m"] and line.endswith("▁█")
    assert lines[-1] == "7 runs: 2 running, 1 stalled, 1 finished, 1 interrupted, 1 failed, 1 crashed"
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(("argv", "names"), [
    (("--where", "lr=1e-3"), {"mappo_seed2", "mappo_seed3"}),
    (("--where", "lr=0.001", "seed=3"), {"mappo_seed3"}),
    (("--where", "lr=0.001", "--where", "seed=3"), {"mappo_seed3"}),
    (("--where", "lr=.0005", "network=entity"), {"mappo_seed1", "mappo_seed4", "mappo_seed5", "mappo_seed6"}),
    (("--where", "value_norm=popart"), {"gru_seed1"}),
    (("--where", "value_norm=true", "lr=1e-3"), {"mappo_seed2", "mappo_seed3"}),
    (("--where", "critic_lr=null", "share_policy=true", "seed=1"), {"mappo_seed1", "gru_seed1"}),
    (("--where", "critic_lr=1e-3"), {"mappo_seed2", "mappo_seed3"}),
    (("--where", "critic_lr=5e-4", "entropy_coef_end=0", "seed=1"), {"mappo_seed1", "gru_seed1"}),
    (("--where", "logger=console", "seed=1"), {"mappo_seed1", "gru_seed1"}),
    (("--where", "num_agents=1"), set()),
    (("--commit", "b2b2"), {"mappo_seed2", "mappo_seed3"}),
    (("--since", "2d", "--where", "seed=1"), {"gru_seed1"}),
    (("--since", "4d", "--where", "lr=5e-4", "network=entity", "seed=1"), {"mappo_seed1"}),
    (("--status", "crashed", "stalled"), {"mappo_seed4", "mappo_seed6"}),
])  # fmt: skip
def test_runs_are_found_by_what_they_are(argv: tuple[str, ...], names: set[str], root) -> None:
    assert set(listed(root.path, *argv)) == names


def test_a_name_is_enough(root) -> None:
    under = ("--run_dir", root.path)
    assert set(listed("mappo_seed2", *under)) == set(listed("group/mappo_seed2", *under)) == {"mappo_seed2"}
    assert set(listed("other group", *under)) == set(listed("gru", *under)) == {"gru_seed1"}
    assert len(listed("seed", *under)) == len(listed(*under)) == 7
    assert len(listed("seed", root.path, root.done, *under)) == 7  # each once
    lost = runs("no such", *under)
    assert lost.code == 2 and "no such: neither a directory nor the name of a run" in lost.err


def test_one_run_is_shown_in_full(root) -> None:
    shown = runs("mappo_seed1", "--run_dir", root.path).out
    assert shown == runs(root.done).out == runs("--show", root.done).out
    for words in (str(root.done), "finished", f"{COMMITS['one']} (main)",
                  "python main.py --experiment_name mappo_seed1", "500 of 1,000", "episode_reward -7.250 ± 0.140, success_rate 0.850 (500 episodes of mpe2 1.1.1",
                  "total_env_steps: 1000  (default 2400000)", "log_wandb: false  (default true)"):  # fmt: skip
        assert words in shown, words
    assert "num_agents" not in shown and "lr:" not in shown  # at their defaults
    both = runs(root.path, "--where", "lr=1e-3", "--show").out
    assert "mappo_seed2: interrupted" in both and "mappo_seed3: failed" in both and "lr: 0.001" in both


def test_a_real_runs_checkpoints_and_resumes_are_shown(tmp_path: Path) -> None:
    from whole_runs import resume, train

    first = train(tmp_path, "--total_env_steps", "800")
    assert resume(first.run_dir, "--total_env_steps", "1200").code == 0
    shown = runs(first.run_dir).out
    assert "resumed" in shown and "at step 800" in shown and "1,200 of 1,200" in shown
    assert shown.count("checkpoints/checkpoint_ep") >= 2 and shown.count("  best\n") == 1
    (run,) = json.loads(runs(first.run_dir, "--show", "--json").out)
    assert [each["step"] for each in run["checkpoints"]][-1] == 1200 and run["changed"]["num_envs"] == [16, 128]


def test_what_is_lost_or_damaged_ends_nothing(tmp_path: Path) -> None:
    made = record(tmp_path, "mappo_seed1")
    made.close()
    with open(made.run_dir / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 600, "ti')  # killed while it wrote
    (made.run_dir / "config.yaml").write_text("lr: [")
    (made.run_dir / "summary.json").write_text("{")
    (made.run_dir / "metadata.json").write_text('{"command": "rm \\u001b[31m", "segments": 3, "git_commit": null}')
    (run,) = listed(tmp_path).values()
    assert (run["state"], run["step"], run["budget"], run["commit"]) == ("crashed", 500, None, None)
    shown = runs(made.run_dir)
    assert shown.code == 0 and "\x1b" not in shown.out and "rm ?[31m" in shown.out
    empty = runs(tmp_path / "nowhere")
    assert empty.code == 2 and "neither a directory" in empty.err


@pytest.mark.parametrize("torn", [b"-7.2e-", b"-1", b"-", b"1-2}", b"-7.25\n"])
def test_a_number_that_is_cut_short_is_no_reward(torn: bytes, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for rows in (3, 20_000):  # read whole, and in pieces
        lines = [json.dumps({"step": n, "time": n / 2, "eval/episode_reward": -7.25e-05 - n}) for n in range(rows)]
        path.write_bytes("\n".join(lines).encode() + b'\n{"step": 900000, "time": 1.0, "eval/episode_reward": ' + torn)
        assert glance(tmp_path).reward == -7.25e-05 - (rows - 1)


def test_a_piece_may_end_amid_a_number(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    row = b'{"step": 1, "eval/episode_reward": -123456.75}\n'
    path.write_bytes(row * (listing.PIECES * listing.PIECE // len(row) + 200))
    with open(path, "rb") as file:
        for length in range(1, 2 * len(row)):
            assert set(listing._curve([listing._piece(file, 0, length)])[1]) <= {-123456.75}
    assert set(glance(tmp_path).curve) == {-123456.75}


@pytest.mark.parametrize("status", [["x"], "on fire", "stalled", None, 3])
def test_a_damaged_status_is_one_of_those_that_are_counted(status: object, tmp_path: Path) -> None:
    made = record(tmp_path, "mappo_seed1")
    made.close()
    (made.run_dir / "summary.json").write_text(json.dumps({"status": status}))
    assert listed(tmp_path, "--status", "crashed")["mappo_seed1"]["state"] == "crashed"
    assert runs("--run_dir", tmp_path).out.splitlines()[-1] == "1 runs: 1 crashed"


def test_values_that_no_configuration_holds_are_shown(tmp_path: Path) -> None:
    made = record(tmp_path, "mappo_seed1")
    made.close()
    with open(made.run_dir / "config.yaml", "a") as file:
        file.write("mappings: {a: 1}\nlists: [{b: 1}, x]\nnot_a_number: .nan\nendless: -.inf\ncolour: \"\\e[31m\"\n")
    text = (made.run_dir / "config.yaml").read_text()
    text = text.replace("\nnum_agent_neighbors: null", "\nnum_agent_neighbors: {a: 1}")
    (made.run_dir / "config.yaml").write_text(text.replace("\nlr: 0.0005", "\nlr: .nan"))
    shown = runs(made.run_dir)
    assert shown.code == 0 and "\x1b" not in shown.out
    for line in ("num_agent_neighbors: {a}  (default null)", "lr: nan  (default 0.0005)", "mappings: {a}",
                 "lists: [{b}, 'x']", "not_a_number: nan", "endless: -inf"):  # fmt: skip
        assert f"    {line}" in shown.out, shown.out
    assert runs(made.run_dir, "--json", "--show").code == 0
    assert listed(tmp_path, "--where", "critic_lr=1e-3") == listed(tmp_path, "--where", "lr=1e-3") == {}


def test_of_a_long_record_pieces_are_read_and_say_the_same(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with open(path, "w") as file:
        for number in range(20_000):
            row = {"step": 10 * number, "time": 0.5 * number, **{f"train/metric_{i}": math.pi for i in range(20)}}
            row |= {"eval/episode_reward": -1e4 + number} if number % 10 == 0 else {}
            file.write(json.dumps(row) + "\n")
    size = path.stat().st_size
    pieces, _ = listing._pieces(path)
    assert size > 10**7 and sum(map(len, pieces)) <= listing.PIECES * listing.PIECE
    run = glance(tmp_path)
    assert run.step == 199_990 and run.reward == -1e4 + 19_990 and run.spacing == 0.5
    assert len(run.curve) == listing.WIDTH and list(run.curve) == sorted(run.curve)
    assert run.curve[0] < -9900 and run.curve[-1] > -1e4 + 19_900


@given(st.lists(st.floats(-1e9, 1e9) | st.just(math.nan), max_size=40))
def test_a_sparkline_rises_where_its_values_do(values: list[float]) -> None:
    bars = sparkline(values)
    finite = [value for value in values if math.isfinite(value)]
    assert len(bars) == len(finite) and set(bars) <= set(listing.BARS)
    heights = [listing.BARS.index(bar) for bar in bars]
    assert all(a <= b for (x, a) in zip(finite, heights) for (y, b) in zip(finite, heights) if x <= y)


def test_spans_and_dates() -> None:
    assert [moment(text, 1e9) for text in ("90s", "1.5m", "2h", "2d", "1w")] == [
        1e9 - 90, 1e9 - 90, 1e9 - 7200, 1e9 - 2 * DAY, 1e9 - 7 * DAY]  # fmt: skip
    assert moment("2026-11-30T14:00:00+00:00") == 1796047200.0
    assert condition("curriculum_advance_at=100,200") == ("curriculum_advance_at", [100, 200])


@pytest.mark.parametrize(("argv", "words"), [
    (("--where", "learning_rate=1"), "learning_rate: there is no such key; nearest: lr"),
    (("--where", "lr=fast"), "lr: 'fast' is not a number > 0 and <= 1"),
    (("--where", "lr=7"), "lr: '7' is not a number > 0 and <= 1"),
    (("--where", "network=cnn"), "network: 'cnn' is not one of mlp, gru, entity"),
    (("--where", "lr"), "is no condition; write KEY=VALUE"),
    (("--since", "yesterday"), "is no span or date; write 30m, 12h, 2d"),
    (("--status", "dead"), "invalid choice"),
    (("--watch", "--json"), "exclude each other"),
    (("--interval", "3"), "--interval needs --watch"),
    (("--wher", "lr=1"), "--wher"),
])  # fmt: skip
def test_bad_words_are_refused_in_one_line(argv: tuple[str, ...], words: str, tmp_path: Path) -> None:
    result = runs(tmp_path, *argv)
    assert result.code == 2 and words in result.err and result.err.count("\n") == 1 and result.out == ""


def test_watching_shows_what_changes_until_it_is_ended(tmp_path: Path) -> None:
    made = record(tmp_path, "mappo_seed1", rows=3)
    argv = [sys.executable, str(ROOT / "scripts" / "runs.py"), str(tmp_path), "--watch", "--interval", "1"]
    program = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        def next_steps() -> str:
            return next(line for line in program.stdout if "mappo_seed1" in line).split()[2]

        assert next_steps() == "300"
        made.log(400, {"train/episode_reward_mean": -1.0})
        made.flush()
        assert "400" in (next_steps(), next_steps())
        program.send_signal(signal.SIGINT)
        assert program.wait(20) == 0 and "Traceback" not in program.stderr.read()
    finally:
        program.kill()
        made.close()


def test_no_torch_is_needed(root) -> None:
    code = "import runpy, sys; runpy.run_path('scripts/runs.py'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
