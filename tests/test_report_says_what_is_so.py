"""What a report says in words, tables and pictures is what its runs hold; what is private or hidden is not in it."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from report_tools import report
from scipy.stats import trim_mean
from whole_runs import ROOT

from navrl.analysis.comparison import compare
from navrl.analysis.records import Run
from navrl.analysis.report import drawing, episodes, layers, words
from navrl.analysis.report.data import document
from navrl.metrics.summary import BEHAVIOUR_METRICS, TASK_METRICS
from navrl.metrics.trajectories import Trajectories

REWARD, COLLISIONS, SUCCESS = "eval/episode_reward", "eval/collision_count", "eval/success_rate"


def run_of(group: str, seed: int, finals: dict[str, float], **more: Any) -> Run:
    steps = np.arange(0.0, 500.0, 100.0)
    columns = {"step": steps, "time": steps / 50, "train/episode_count": steps / 25}
    columns |= {metric: np.linspace(value - 1, value, len(steps)) for metric, value in finals.items()}
    summary = {"final": {"mean": {metric.removeprefix("eval/"): value for metric, value in finals.items()}}}
    fields = {"status": "finished", "config": {}, "metadata": {}, "summary": summary, "columns": columns} | more
    return Run(source=f"tracker:{group}/{seed}", group=group, name=f"{group}_seed{seed}", seed=seed, **fields)


def written(runs: list[Run], metrics: list[str], **options: Any) -> dict[str, Any]:
    return document(compare(runs, metrics, axes=("step",), **options), Path("."), made="today")


def value(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))


finals = st.lists(st.floats(-50, 50).map(lambda x: round(x, 2)), min_size=1, max_size=8)


@given(first=finals, second=finals, metric=st.sampled_from([REWARD, COLLISIONS]))
@settings(max_examples=25, deadline=None)
def test_the_summary_names_the_better_group_and_only_beyond_chance(
    first: list[float], second: list[float], metric: str
) -> None:
    runs = [run_of(f"x_{name}", seed, {metric: final}) for name, found in (("one", first), ("two", second))
            for seed, final in enumerate(found)]  # fmt: skip
    made = written(runs, [metric])
    (row,) = made["outcomes"]
    middle = [trim_mean(found, 0.25) for found in (first, second)]
    for cell, wanted in zip(row["groups"], middle):
        assert value(cell["value"]) == pytest.approx(wanted, rel=6e-3, abs=6e-4)
    (sentence, *_) = made["summary"]
    (pair,) = row["pairs"]
    if min(len(first), len(second)) == 1:
        assert sentence["kind"] == "unclear" and "chance" in sentence["text"] and pair["winner"] is None
        return
    if min(len(first), len(second)) < 5:  # at two seeds a third of such intervals leave zero out by chance
        assert sentence["kind"] == "unclear" and "too few seeds to tell" in sentence["text"]
        return
    low, high = (value(end) for end in pair["difference"]["interval"].split(" to "))
    best = "one" if (middle[0] > middle[1]) == (metric == REWARD) else "two"
    if low > 0.01 or high < -0.01:
        assert sentence["kind"] == "better" and pair["winner"] == best
        assert sentence["text"].startswith(f"{best} has the {'higher' if metric == REWARD else 'lower'} ")
    elif low < 0 < high:
        assert sentence["kind"] == "unclear" and sentence["text"].startswith("No clear difference")
        assert pair["winner"] is None


def test_unfinished_runs_are_no_winners() -> None:
    runs = [run_of(name, seed, {REWARD: final + seed / 100}) for name, final in (("a", -5.0), ("b", -9.0))
            for seed in range(5)]  # fmt: skip
    assert written(runs, [REWARD])["summary"][0]["kind"] == "better"
    runs[2] = dataclasses.replace(runs[2], status="running")
    (sentence, *_) = written(runs, [REWARD])["summary"]
    assert sentence["kind"] == "unclear" and "not all of their runs have finished" in sentence["text"]


def test_of_a_crowd_the_first_two_are_named() -> None:
    runs = [run_of(f"g{group:02}", seed, {REWARD: float(group) + seed / 100}) for group in range(14) for seed in range(5)]
    (sentence, *_) = written(runs, [REWARD])["summary"]
    assert sentence["kind"] == "fact" and sentence["text"].startswith("g13 has the higher episode reward of 14 groups: 13")


def test_runs_of_one_seed_are_not_counted_as_seeds() -> None:
    runs = [dataclasses.replace(run_of("sweep", seed, {REWARD: -7.0}, config={"lr": seed * 1e-4}), seed=1) for seed in range(1, 7)]
    made = written(runs, [REWARD])
    assert made["groups"][0]["seeds"] == "6 runs of 1 seed"
    assert any("fewer than 5" in line for line in made["warnings"])


def test_behaviour_is_said_of_each_group() -> None:
    clean, paths = "eval/success_rate_collision_free", "eval/path_efficiency"
    runs = [run_of("a", seed, {SUCCESS: 0.8, clean: 0.6, paths: 0.4, COLLISIONS: 1.5}) for seed in range(5)]
    (sentence,) = written(runs, [SUCCESS, clean, paths, COLLISIONS])["summary"]
    assert sentence["text"] == (
        "Behaviour of a: 80 % of episodes succeed, 75 % of these without any contact; where they do, ways are 50 % "
        "efficient (straight over walked); 1.50 colliding pair-steps an episode."
    )
    bad = [run_of("b", seed, {REWARD: -5 + seed / 100, COLLISIONS: 9 + seed / 100}) for seed in range(5)]
    good = [run_of("c", seed, {REWARD: -7 + seed / 100, COLLISIONS: 1 + seed / 100}) for seed in range(5)]
    assert "b has more reward than c, and more collisions" in written(bad + good, [REWARD, COLLISIONS])["warnings"]


def test_how_fast_says_when_each_seed_reached_the_threshold() -> None:
    score = "eval/normalized_score"  # rises by a quarter every 100 steps, from 1 below its final value
    runs = [run_of("a", seed, {score: final}) for seed, final in enumerate((1.2, 0.95, 0.5))]
    (row,) = written(runs, [score])["speed"]
    (cell,) = row["groups"]
    assert (cell["threshold"], cell["steps"]) == ("0.900", ["300", "400", "never"])
    assert value(cell["area"]["value"]) == pytest.approx(np.mean([0.7, 0.45, 0.0]), abs=1e-3)  # of three seeds all count


@pytest.mark.parametrize(("number", "text"), [
    (-7.183, "−7.18"), (0.8634, "0.863"), (12345.6, "12,346"), (0.0, "0"), (-0.00004, "−4.0e-05"), (250.04, "250.0"),
    (float("nan"), "–"), (float("inf"), "–"), (1.0, "1.00"), (0.001, "0.001"),
    (-0.00065, "−0.00065"),
])  # fmt: skip
def test_numbers_read_as_people_write_them(number: float, text: str) -> None:
    assert words.number(number) == text


@pytest.mark.parametrize(("labels", "shorts"), [
    (["mpe_spread_3a_mappo", "mpe_spread_3a_ippo"], ["mappo", "ippo"]),
    (["a_mappo", "a_mappo_lr1e-3"], ["mappo", "mappo_lr1e-3"]),
    (["a_b"], ["a_b"]), (["same/x_y", "other/x_y"], ["same/x_y", "other/x_y"]), (["", "a"], ["", "a"]),
])  # fmt: skip
def test_short_labels_stay_apart(labels: list[str], shorts: list[str]) -> None:
    assert words.short_labels(labels) == shorts


def test_every_metric_of_the_project_has_its_layer_and_its_words() -> None:
    for layer, names in ((2, TASK_METRICS), (3, BEHAVIOUR_METRICS)):
        assert {layers.layer_of(f"eval/{name}") for name in names} == {layer}
        assert all(layers.about(f"eval/{name}") and layers.about(f"eval/adversary/{name}") for name in names)
    assert [layers.layer_of(name) for name in ("train/entropy", "train/lr", "perf/eval_seconds")] == [1, 1, 4]
    assert [layers.layer_of(name) for name in ("step", "time", "train/episode_count")] == [None] * 3
    assert layers.layer_of("eval/adversary/collision_count") == 3
    assert layers.ordered(["perf/x", "eval/success_rate", "train/entropy", "time", "train/entropy"]) == [
        "train/entropy", "eval/success_rate", "perf/x"]  # fmt: skip


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 4), st.integers(0, 3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_an_episode_is_drawn_as_slow_loops_have_it(seed: int, steps: int, agents: int, goals: int, own: bool) -> None:
    random = np.random.default_rng(seed)
    goals = min(goals, agents) if own else goals
    length = int(random.integers(1, steps + 1))
    place = random.uniform(-1, 1, (steps + 1, 1, agents, 2))
    marks = np.repeat(random.uniform(-1, 1, (1, 1, goals, 2)), steps + 1, axis=0)
    radii = random.uniform(0.1, 0.5, agents)
    rewards = random.normal(size=(steps, 1, agents))
    drawn = episodes.drawable(Trajectories(
        rewards=rewards, lengths=[length], roles=("agent",) * agents, score_role="agent", agent_pos=place,
        goal_pos=marks, agent_radii=radii, goal_radius=0.5, own_goals=own, has_success=goals > 0,
    ))  # fmt: skip
    assert drawn["steps"] == length and drawn["frames"] == list(range(length + 1))
    contacts, covered_all, total = [], [], 0.0
    for t in range(length + 1):
        touching = {a for a in range(agents) for b in range(agents)
                    if a != b and np.hypot(*(place[t, 0, a] - place[t, 0, b])) < radii[a] + radii[b]}  # fmt: skip
        covered = {g for g in range(goals) for a in ([g] if own else range(agents))
                   if np.hypot(*(place[t, 0, a] - marks[t, 0, g])) < 0.5}  # fmt: skip
        total += rewards[t - 1, 0].mean() if t else 0.0
        assert set(drawn["touching"][t]) == touching and set(drawn["covered"][t]) == covered
        assert drawn["reward"][t] == pytest.approx(total, abs=1e-3)
        np.testing.assert_allclose(drawn["agents"][t], place[t, 0], atol=1e-3)
        contacts += [t] if t and touching else []
        covered_all += [t] if t and goals and len(covered) == goals else []
    assert drawn["contacts"] == contacts
    assert drawn["success"] == (covered_all[0] if covered_all else None)
    assert drawn["success_at_end"] == bool(goals and length in covered_all)
    assert drawn["reach"] >= np.abs(place[: length + 1]).max()
    json.dumps(drawn, allow_nan=False)


def make_episode(path: Path, steps: int = 3, positions: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    place = {"agent_pos": np.zeros((steps + 1, 1, 2, 2)), "agent_radii": [0.1, 0.1]} if positions else {}
    fields = {"rewards": np.zeros((steps, 1, 2)), "lengths": [steps], "roles": ("a", "a"), "score_role": "a"}
    Trajectories(**fields, **place).save_npz(path)


def test_episodes_are_the_newest_and_within_their_budget(tmp_path: Path) -> None:
    for run in ("one", "two"):
        for name in ("eval_step100_episode0", "eval_step900_episode0", "eval_step900_episode1"):
            make_episode(tmp_path / run / "media" / f"{name}.npz", steps=2000 if "900" in name else 3)
    (tmp_path / "two" / "media" / "eval_step900_episode1.npz").write_bytes(b"damaged")
    make_episode(tmp_path / "blind" / "media" / "eval_step5_episode0.npz", positions=False)
    places = [tmp_path / "one", None, tmp_path / "two", tmp_path / "blind"]
    found, notes = episodes.collect(places)
    assert [(episode["run"], episode["index"], episode["steps"]) for episode in found] == [
        (0, 0, 2000), (2, 0, 2000), (0, 1, 2000)]  # fmt: skip
    assert all(len(episode["frames"]) <= episodes.MAX_FRAMES + 1 and episode["frames"][-1] == 2000 for episode in found)
    assert len(notes) == 2 and "eval_step900_episode1.npz" in notes[1] and "where its agents are" in notes[0]
    few, notes = episodes.collect(places, budget=int(2.5 * len(json.dumps(found[0]))))
    assert [episode["index"] for episode in few] == [0, 0]
    assert any("left out to keep the page small" in note for note in notes)


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 500), st.integers(10, 60))
@settings(max_examples=50, deadline=None)
def test_thinned_curves_keep_their_peaks_and_ends(seed: int, runs: int, points: int, limit: int) -> None:
    values = np.random.default_rng(seed).normal(size=(runs, points))
    values[0, : points // 3] = np.nan
    kept = drawing.outstanding(values, limit)
    assert len(kept) <= max(limit, 1) and kept[0] == 0 and kept[-1] == points - 1 and (np.diff(kept) > 0).all()
    if np.isfinite(values).any():
        assert np.nanmax(values[:, kept]) == np.nanmax(values) and np.nanmin(values[:, kept]) == np.nanmin(values)


def test_a_page_stays_small_however_many_runs_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "NUMBERS", 3000)
    monkeypatch.setattr(drawing, "POINTS", (5, 100))
    runs = []
    for seed in range(30):
        run = run_of("many", seed, {REWARD: -7.0})
        steps = np.arange(300.0)
        runs.append(Run(**{**run.__dict__, "columns": {"step": steps, "time": steps, REWARD: np.sin(steps + seed)}}))
    made = written(runs, [REWARD])
    drawn = json.loads(json.dumps(made["drawing"]))
    (curve,) = drawn["metrics"][REWARD]["curves"]["step"]
    assert len(curve["x"]) <= 3000 // 34 and len(curve["runs"]) == 30
    assert any("curves are drawn with at most 88 points" in note for note in made["notes"])
    pytest.importorskip("plotly")
    from navrl.analysis.report import page

    monkeypatch.setattr(page, "LIMIT", 10**6)
    with pytest.raises(ValueError, match="more than 1: compare fewer runs, or fewer metrics with --metric"):
        page.page(made)


def test_colours_can_be_read_as_text_and_told_apart() -> None:
    """WCAG 2.1: contrast of 4.5 on white for text."""

    def luminance(colour: str) -> float:
        parts = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    assert all(1.05 / (luminance(colour) + 0.05) >= 4.5 for colour in drawing.COLOURS)
    looks = [tuple(drawing.look(place).values()) for place in range(32)]  # of groups
    assert len(set(looks)) == 32 and all(one[1] != other[1] for one, other in zip(looks, looks[1:]))


def test_of_many_groups_each_is_held_to_the_first() -> None:
    runs = [run_of(f"x_{name}", seed, {REWARD: -7.0 + seed}) for name in "abcde" for seed in (1, 2)]
    assert [len(row["pairs"]) for row in written(runs[:8], [REWARD])["outcomes"]] == [6]
    made = written(runs, [REWARD])
    assert [pair["first"] for pair in made["outcomes"][0]["pairs"]] == ["a"] * 4
    assert "of 5 groups, differences are shown to the first one, a" in made["notes"]


def test_what_differs_is_marked_and_what_is_private_is_left_out() -> None:
    def run(group: str, seed: int, **config: Any) -> Run:
        metadata = {"git_commit": "0123456789" * 4, "git_remote": "git@secret.host:me", "versions": {"torch": "2.13.0"},
                    "machine": {"cpu": "a cpu", "hostname": "secret-host", "user": "secret-user"},
                    "command": "/home/secret-user/.venv/bin/python main.py --seed 1"}  # fmt: skip
        return run_of(group, seed, {REWARD: -7.0}, config={"seed": seed, **config}, metadata=metadata)

    runs = [run("a", seed, lr=5e-4, gamma=0.9) for seed in (1, 2)] + [run("b", 1, lr=1e-3, gamma=0.9)]
    runs += [run("b", 2, lr=1e-3, gamma=0.95)]
    made = written(runs, [REWARD])
    config = {row["key"]: row for row in made["config"]}
    assert config["lr"]["values"] == ["0.0005", "0.001"] and config["lr"]["differs"]
    assert config["gamma"]["values"] == ["0.9", "0.9, 0.95"] and config["gamma"]["differs"]
    assert not config["env_id"]["differs"] and "seed" not in config
    facts = {row["key"]: row for row in made["metadata"]}
    assert facts["git_commit"]["values"] == ["0123456789" * 4] * 2 and facts["machine.cpu"]["values"][0] == "a cpu"
    assert "secret" not in json.dumps(made) and made["runs"][0]["command"] == "python main.py --seed 1"


def copy_of_a_run(tmp_path: Path, **config: Any) -> Path:
    run = tmp_path / "runs" / "NAVRL" / "group" / "mappo_seed1"
    run.mkdir(parents=True)
    rows = [{"step": step, "time": step / 9, REWARD: -9.0 + step / 100, "train/episode_count": step}
            for step in (0, 100, 200)]  # fmt: skip
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / "config.yaml").write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in config.items()))
    (run / "summary.json").write_text(json.dumps({"status": "finished"}))
    return run


def test_what_log_filter_hides_from_trackers_a_report_does_not_show(tmp_path: Path) -> None:
    run = copy_of_a_run(tmp_path, log_filter=["hush[a-z]*"], env_id="pettingzoo:hushhush:env")
    hidden = run.rename(run.with_name("hushed_seed1"))
    get_plotlyjs = pytest.importorskip("plotly.offline").get_plotlyjs
    code, _, err = report(hidden.parent, "--out", tmp_path / "report.html")
    assert code == 0, err
    text = (tmp_path / "report.html").read_text()
    assert "hush" not in text.replace(get_plotlyjs(), "") and "***_seed1" in text and "pettingzoo:***:env" in text


def test_bad_input_is_one_line_and_writes_nothing(tmp_path: Path) -> None:
    run = copy_of_a_run(tmp_path, lr=5e-4)
    root, out = run.parents[2], tmp_path / "report.html"
    for words_, said in (
        (("groop", "--run_dir", root), "groop: neither a directory nor a group under"),
        ((run, "--metric", "eval/episode_rewrad"), "nearest: eval/episode_reward"),
        ((run, "--metric", "time"), "--metric: 'time' is no metric of the four layers"),
        ((), "name a GROUP, or a tracker with --from"),
        (("--from", "mlflow:nowhere"), "names no runs; write mlflow:URI:EXPERIMENT[:GROUP]"),
        ((run, "--to", "pdf"), "--to: invalid choice: 'pdf'"),
        ((run, "--band", "half"), "--band: invalid choice"),
        ((tmp_path, "--smooth", "-1"), "--smooth"),
        ((run, "--wandb_project", "x"), "--wandb_project says something about wandb, and this goes to html"),
    ):
        code, _, err = report(*words_, "--out", out)
        assert code == 2 and said in err and err.count("\n") == 1 and "Traceback" not in err, (words_, err)
    code, _, err = report(run, "--out", tmp_path / "nowhere" / "report.html")
    assert code == 2 and "--out: " in err and err.count("\n") == 1
    assert not out.exists() and sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


@pytest.mark.parametrize(("package", "form"), [("plotly", "html"), ("jinja2", "html"), ("matplotlib", "markdown")])
def test_a_missing_package_is_named_with_the_line_that_installs_it(tmp_path: Path, package: str, form: str) -> None:
    run = copy_of_a_run(tmp_path, lr=5e-4)
    out = tmp_path / "report"
    program = f"""import runpy, sys
sys.modules[{package!r}] = None
sys.argv[1:] = {[str(run), "--to", form, "--out", str(out)]}
runpy.run_path({str(ROOT / "scripts" / "report.py")!r}, run_name="__main__")"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stderr == f"{package} is not installed: pip install -r requirements-plots.txt\n"
    assert done.returncode == 2 and not out.exists()


def test_markdown_has_every_figure_and_its_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first = copy_of_a_run(tmp_path, lr=5e-4).parent
    second = first.with_name("other")
    shutil.copytree(first, second)
    out = tmp_path / "report.md"
    code, said, err = report(first, second, "--to", "markdown", "--out", out, "--title", "one | two")
    assert code == 0, err
    pictures = [tmp_path / f"report_{name}.png" for name in ("curves", "behaviour", "profiles")]
    assert said.splitlines() == [str(path) for path in (out, *pictures)]
    text = out.read_text()
    assert text.startswith("# one \\| two\n") and "| episode reward (higher is better) | −7.00 | −7.00 |" in text
    for path in pictures:
        assert f"]({path.name})" in text and path.read_bytes()[:4] == b"\x89PNG"
    width = 0  # of the table that a line is in: each row has the cells of its header
    for line in text.splitlines():
        cells = line.replace("\\|", "").count("|")
        width = (width or cells) if cells else 0
        assert cells == width, line
