"""``scripts/evaluate.py``: any policy, in a clean process, with the numbers that its run reported."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from whole_runs import ROOT, Result, rows, summary, train

from envs.seeding import FINAL, SELECTION, TRAIN, stream_seed
from navrl.checkpoint import CheckpointStore


def _module():
    spec = importlib.util.spec_from_file_location("evaluate_script", ROOT / "scripts" / "evaluate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = _module()


def evaluate(*argv: object) -> Result:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = SCRIPT.main([str(word) for word in argv])
        except SystemExit as end:
            code = end.code
    return Result(code, out.getvalue(), err.getvalue(), Path())


def numbers(tmp_path: Path, *argv: object) -> dict:
    file = tmp_path / "result.json"
    result = evaluate(*argv, "--json", file)
    assert result.code == 0, result.err
    return json.loads(file.read_text())


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose best checkpoint is not its last."""
    result = train(tmp_path_factory.mktemp("run"), "--lr", "0.05", "--seed", "3", "--eval_interval", "1",
                   "--no_canonical_frame", "--final_eval_episodes", "6")  # fmt: skip
    about = summary(result.run_dir)
    assert result.code == 0 and about["best"]["step"] != about["final"]["step"]
    return result.run_dir


@pytest.mark.parametrize(("which", "name"), [("best", "best"), ("last", "final")])
def test_a_run_directory_gives_what_its_summary_says(which: str, name: str, run_dir: Path, tmp_path: Path) -> None:
    found = numbers(tmp_path, "--checkpoint", run_dir, "--which", which, "--episodes", 6)
    expected = summary(run_dir)[name]
    assert found == {key: value for key, value in expected.items() if key not in ("step", "checkpoint")}


def test_a_file_away_from_its_run_gives_the_same(run_dir: Path, tmp_path: Path) -> None:
    file = shutil.copy(CheckpointStore(run_dir / "checkpoints").path("last"), tmp_path / "policy.pt")
    assert numbers(tmp_path, "--checkpoint", file, "--episodes", 6)["mean"] == summary(run_dir)["final"]["mean"]


def test_equal_seeds_are_equal_and_others_are_not(run_dir: Path, tmp_path: Path) -> None:
    given = ("--checkpoint", run_dir, "--episodes", 4, "--backend", "batched")
    first, again = numbers(tmp_path, *given, "--seed", 5), numbers(tmp_path, *given, "--seed", 5)
    other, sampled = numbers(tmp_path, *given, "--seed", 6), numbers(tmp_path, *given, "--seed", 5, "--sampled")
    assert first == again and first["mean"] != other["mean"] and first["mean"] != sampled["mean"]


def test_the_batched_task_scores_as_mpe2_does(tmp_path: Path) -> None:
    """Start states are each backend's own, so means agree within what 100 episodes tell."""
    given = ("--policy", "greedy", "--episodes", 100)
    batched, original = numbers(tmp_path, *given, "--backend", "batched"), numbers(tmp_path, *given)
    for name in ("episode_reward", "collision_count", "final_goal_distance", "average_speed"):
        spread = np.hypot(batched["standard_error"][name], original["standard_error"][name])
        assert abs(batched["mean"][name] - original["mean"][name]) < 4 * spread, name


def test_the_seeds_of_final_evaluations_are_used_for_nothing_else() -> None:
    assert len({stream_seed(0, stream) for stream in (TRAIN, SELECTION, FINAL)}) == 3


def test_policies_that_ship_with_the_task_are_ordered(tmp_path: Path) -> None:
    """Random -26.8, nearest landmark -16.2, reference -6.7 on scale A."""
    scores = {
        policy: numbers(tmp_path, "--policy", policy, "--episodes", 60, "--backend", "batched")["mean"]
        for policy in ("random", "greedy", "reference")
    }
    scores = {policy: mean["episode_reward"] for policy, mean in scores.items()}
    assert scores["random"] == pytest.approx(-26.8, abs=3)
    assert scores["greedy"] == pytest.approx(-16.2, abs=3)
    assert scores["reference"] == pytest.approx(-6.7, abs=1.2)


def test_a_csv_has_every_episode(run_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "episodes.csv"
    found = numbers(tmp_path, "--checkpoint", run_dir, "--episodes", 5, "--csv", file)
    with open(file, newline="") as text:
        lines = list(csv.DictReader(text))
    assert [int(line["episode"]) for line in lines] == list(range(5))
    for name in ("episode_reward", "collision_count", "goal_distance"):
        values = [float(line[name]) for line in lines]
        assert found["mean"][name] == pytest.approx(np.mean(values))
        assert found["standard_error"][name] == pytest.approx(np.std(values, ddof=1) / np.sqrt(5))


def test_the_table_shows_layers_two_and_three(run_dir: Path) -> None:
    lines = evaluate("--checkpoint", run_dir, "--episodes", 3).out.splitlines()
    shown = {line.split()[0] for line in lines if "±" in line}
    assert {"episode_reward", "success_rate", "collision_count", "path_efficiency"} <= shown


def test_an_entity_policy_plays_with_more_agents(run_dir: Path, tmp_path: Path) -> None:
    found = numbers(tmp_path, "--checkpoint", run_dir, "--num_agents", 5, "--episodes", 4)
    assert found["mean"]["team_reward"] == pytest.approx(5 * found["mean"]["episode_reward"])


def test_a_policy_that_does_not_fit_the_task_is_refused(tmp_path: Path) -> None:
    fixed = train(tmp_path, "--network", "mlp", "--total_env_steps", "400").run_dir
    result = evaluate("--checkpoint", fixed, "--num_agents", 5, "--episodes", 2)
    assert result.code == 2 and "does not fit this task" in result.err and "Traceback" not in result.err
    assert evaluate("--checkpoint", fixed, "--local_ratio", 0, "--episodes", 2).code == 0


# ---- rendering

def frames_of(path: Path) -> np.ndarray:
    """``[frames, height, width, 3]``; frames that look alike are one in the file."""
    with Image.open(path) as picture:
        frames = []
        for index in range(picture.n_frames):
            picture.seek(index)
            frames.append(np.asarray(picture.convert("RGB")))
    return np.stack(frames)


def test_an_animation_moves_and_its_goals_do_not(tmp_path: Path) -> None:
    path = tmp_path / "out.gif"
    result = evaluate("--policy", "greedy", "--episodes", 1, "--render", path)
    assert result.code == 0 and f"animation {path}" in result.out
    frames = frames_of(path)
    assert len(frames) > 10 and all((a != b).any() for a, b in zip(frames, frames[1:]))
    dark = (frames.max(-1) < 70).all(0)  # the middle of a goal is all but black, in every frame
    assert dark.sum() >= 3 * 3


def test_a_policy_that_spreads_out_leaves_the_goals_where_they_are(tmp_path: Path) -> None:
    """All agents run off to the right for 25 steps; the camera has room for them from the first frame on."""
    from navrl.animation import write_animation
    from navrl.metrics.trajectories import Trajectories

    steps, path = 25, tmp_path / "spread.gif"
    agents = np.zeros((steps + 1, 1, 2, 2))
    agents[:, 0, 0, 0] = np.linspace(0, 6, steps + 1)
    agents[:, 0, 1, 1] = np.linspace(0, -6, steps + 1)
    goals = np.broadcast_to(np.array([[[-0.5, 0.5], [-0.9, -0.9]]]), (steps + 1, 1, 2, 2))
    write_animation(Trajectories(
        rewards=np.zeros((steps, 1, 2)), lengths=np.array([steps]), agent_pos=agents, agent_vel=np.zeros_like(agents),
        goal_pos=goals.copy(), actions=None, roles=("agent",) * 2, score_role="agent",
        agent_radii=np.array([0.15, 0.15]), goal_radius=0.1, own_goals=False, has_success=True), path)  # fmt: skip
    frames = frames_of(path)
    reach = 6 + 0.15
    for x, y in goals[0, 0]:  # where one square camera over all that is ever reached puts them
        column, row = (x + reach) / (2 * reach) * 240, (reach - y) / (2 * reach) * 240
        around = frames[:, round(row) - 2 : round(row) + 3, round(column) - 2 : round(column) + 3]
        assert (around.min(axis=(1, 2, 3)) < 110).all(), "a goal left its pixels"
    assert (frames[0] != frames[-1]).any()


def test_a_task_without_positions_is_not_drawn_and_not_played(tmp_path: Path, monkeypatch) -> None:
    import runners.evaluation

    monkeypatch.setattr(runners.evaluation, "evaluate", lambda *a, **k: pytest.fail("it was played"))
    path = tmp_path / "out.gif"
    result = evaluate("--policy", "random", "--env_id", "pettingzoo:toy_tasks:guess", "--backend", "pettingzoo",
                      "--episodes", 2, "--render", path)  # fmt: skip
    assert result.code == 2 and "render" in result.err and "Traceback" not in result.err and not path.exists()


@pytest.mark.parametrize(("argv", "words"), [
    (("--checkpoint", "no/such/file.pt"), "no such file"),
    (("--checkpoint", "README.md"), "no checkpoint at all"),
    (("--checkpoint", "tests"), "holds no checkpoint; name a run directory"),
    (("--policy", "greedy", "--env_id", "simple_tag"), "plays simple_spread"),
    (("--policy", "random", "--env_id", "simple_sprad"), "did you mean simple_spread"),
    (("--policy", "random", "--num_agents", "0"), "num_agents"),
    (("--policy", "random", "--lr", "1"), "settings of the task only"),
    (("--policy", "random", "--curriculum"), "plays the whole task"),
    (("--checkpoint", "tests", "--curriculum", "true"), "plays the whole task"),
    (("--checkpoint", "tests", "--no_curriculum"), "plays the whole task"),
    (("--policy", "random", "--episods", "1"), "--episods"),
    (("--policy", "random", "--env_id", "simple_tag", "--backend", "batched"), "batched"),
    (("--policy", "random", "--json", "no/such/dir/x.json"), "its directory is not there"),
    (("--policy", "clever"), "invalid choice"),
    (("--policy", "random", "--episodes", "0"), "at least 1"),
    (("--policy", "random", "--episodes", "many"), "at least 1"),
    (("--policy", "random", "--seed", "-1"), "2**63 - 1"),
    (("--policy", "random", "--seed", str(2**63)), "2**63 - 1"),
    (("--policy", "random", "--json", "tests"), "not the name of a file"),
    (("--policy", "random", "--csv", ""), "not the name of a file"),
    (("--policy", "random", "--render", ""), "not the name of a file"),
    (("--policy", "random", "--render", "out.png"), ".gif"),
    ((), "required"),
])  # fmt: skip
def test_bad_input_is_refused_in_words(argv: tuple[str, ...], words: str) -> None:
    result = evaluate(*argv)
    assert result.code == 2 and words in result.err and "Traceback" not in result.err, result.err
    assert result.out == ""


def test_a_damaged_checkpoint_is_refused(run_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(run_dir, tmp_path / "copy")
    file = CheckpointStore(tmp_path / "copy" / "checkpoints").path("best")
    file.write_bytes(file.read_bytes()[:-10])
    result = evaluate("--checkpoint", tmp_path / "copy")
    assert result.code == 2 and str(file) in result.err and "Traceback" not in result.err


def test_other_tasks_of_mpe2_by_a_random_policy(tmp_path: Path) -> None:
    found = numbers(tmp_path, "--policy", "random", "--env_id", "simple_tag", "--episodes", 3)
    assert {"adversary/episode_reward", "agent/episode_reward"} <= set(found["mean"])


@pytest.mark.parametrize("buffered", [True, False])
def test_a_reader_that_leaves_ends_in_silence(buffered: bool, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "" if buffered else "1")
    file = tmp_path / "result.json"
    argv = f"--policy random --episodes 2 --backend batched --json {file}"
    # nobody reads from the start on: every write fails
    command = f"{sys.executable} scripts/evaluate.py {argv} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "") and json.loads(file.read_text())["episodes"] == 2


def test_rows_of_training_and_evaluation_are_of_the_same_policy(run_dir: Path) -> None:
    """The last evaluation of training was made with the parameters that were saved."""
    from navrl.checkpoint import load

    state = load(CheckpointStore(run_dir / "checkpoints").path("best"))
    best = max(row["eval/episode_reward"] for row in rows(run_dir)[1:] if "eval/episode_reward" in row)
    assert state["best_score"] == best
