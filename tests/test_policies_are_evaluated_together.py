"""``scripts/evaluate.py`` with many: one table of paired episodes, cross-play of seeds, other numbers of agents."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_evaluate_script import evaluate, numbers
from whole_runs import train

from navrl.config import Config
from navrl.faults import ConfigError
from runners import cross_play
from runners.cross_play import MixedTeam
from runners.entrants import titles
from runners.paired import difference

SHORT = ("--total_env_steps", "1200", "--eval_interval", "3")
QUICK = ("--episodes", "7", "--backend", "batched")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Two seeds of an entity network and one of another network, hardly trained: they differ."""
    base = tmp_path_factory.mktemp("trained")
    one = train(base / "one", *SHORT, "--seed", "1").run_dir
    two = train(base / "two", *SHORT, "--seed", "2").run_dir
    gru = train(base / "gru", *SHORT, "--network", "gru", "--seed", "1").run_dir
    four = train(base / "four", *SHORT, "--num_agents", "4").run_dir
    twin = shutil.copytree(one, base / "twin")
    return SimpleNamespace(one=one, two=two, gru=gru, four=four, twin=twin)


def episodes(file: Path, **of: str) -> dict[str, np.ndarray]:
    """Columns of a CSV file, of the lines whose other columns say so."""
    with open(file, newline="") as text:
        lines = [line for line in csv.DictReader(text) if all(line[key] == value for key, value in of.items())]
    words = {"num_agents", "policy", "newcomer", "team", "episode"}
    return {name: np.array([float(line[name]) for line in lines]) for name in lines[0] if name not in words}


def test_everybody_plays_the_episodes_that_it_plays_alone(trained, tmp_path: Path) -> None:
    """Checkpoints of two networks and a controller; differences are recomputed from the episodes."""
    file = tmp_path / "all.csv"
    found = numbers(tmp_path, "--checkpoint", trained.one, trained.gru, "--policy", "greedy", *QUICK, "--csv", file)
    first, *others = found["results"]
    assert [each["policy"] for each in others[1:]] == ["greedy"] and first["difference"] is None
    base = episodes(file, policy=first["policy"])
    for each, source in zip(found["results"], (trained.one, trained.gru, None)):
        who = ("--checkpoint", source) if source else ("--policy", "greedy")
        alone, its = tmp_path / "alone.csv", episodes(file, policy=each["policy"])
        assert numbers(tmp_path, *who, *QUICK, "--csv", alone)["mean"] == each["mean"]
        for name, values in episodes(alone).items():
            assert np.array_equal(values, its[name])
        if each is not first:
            for name, values in its.items():
                change = values - base[name]
                assert each["difference"]["mean"][name] == pytest.approx(change.mean(), abs=1e-12)
                error = np.sqrt(((change - change.mean()) ** 2).sum() / 6 / 7)
                assert each["difference"]["standard_error"][name] == pytest.approx(error, abs=1e-12)


def test_a_policy_does_not_differ_from_itself(trained) -> None:
    lines = evaluate("--checkpoint", trained.one, trained.twin, *QUICK).out.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("difference to "))
    assert len(lines) - start > 10
    assert all(line.split()[1:] == ["0.000", "±", "0.000"] for line in lines[start + 2 :])


def test_pairing_makes_small_errors_of_small_differences() -> None:
    rng = np.random.default_rng(0)
    hard = rng.normal(0, 10, 400)  # how hard an episode is, for everybody
    here, there = hard + rng.normal(0, 0.1, 400), hard + 0.5 + rng.normal(0, 0.1, 400)
    found = difference({"reward": there, "own": there}, {"reward": here})
    assert list(found["mean"]) == ["reward"]
    assert found["mean"]["reward"] == pytest.approx(0.5, abs=0.03)
    assert found["standard_error"]["reward"] < 0.01
    assert difference({"reward": there[:1]}, {"reward": here[:1]})["standard_error"] == {}


# ---- other numbers of agents


def test_numbers_of_agents_stand_side_by_side(trained, tmp_path: Path) -> None:
    found = numbers(tmp_path, "--checkpoint", trained.one, "--num_agents", 2, 3, 5, *QUICK)
    assert [each["num_agents"] for each in found["results"]] == [2, 3, 5]
    for each in found["results"]:
        alone = numbers(tmp_path, "--checkpoint", trained.one, "--num_agents", each["num_agents"], *QUICK)
        assert alone == {key: each[key] for key in alone}
    shown = evaluate("--checkpoint", trained.one, "--num_agents", 2, 3, 5, *QUICK).out.splitlines()
    assert shown[0].split() == ["2", "agents", "3", "agents", "5", "agents"]
    both = evaluate("--checkpoint", trained.one, "--policy", "random", "--num_agents", 2, 3, *QUICK).out
    assert both.count("difference to ") == 2 and "2 agents\n" in both and "3 agents\n" in both


def test_a_setting_that_was_asked_for_is_everybodys(trained) -> None:
    apart = evaluate("--checkpoint", trained.one, trained.four, *QUICK)
    assert apart.code == 2 and "was trained with num_agents 4" in apart.err and "--num_agents 3" in apart.err
    assert evaluate("--checkpoint", trained.one, trained.four, "--num_agents", 4, *QUICK).code == 0


def test_a_network_of_fixed_size_is_refused_before_anything_is_played(trained, tmp_path: Path, monkeypatch) -> None:
    import runners.evaluation

    monkeypatch.setattr(runners.evaluation, "evaluate", lambda *a, **k: pytest.fail("it was played"))
    file = tmp_path / "result.json"
    result = evaluate("--checkpoint", trained.gru, "--num_agents", 3, 4, *QUICK, "--json", file)
    assert result.code == 2 and "does not fit this task" in result.err and not file.exists()


# ---- cross-play


class Always:
    """A policy that always takes one action, and counts what it was told."""

    def __init__(self, action: float, size: int | None = None) -> None:
        self.action, self.size, self.begun = action, size, []

    def begin(self, num_envs: int) -> None:
        self.begun.append(num_envs)

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        shape = obs.shape[:2] if self.size is None else (*obs.shape[:2], self.size)
        return torch.full(shape, self.action, dtype=torch.int64 if self.size is None else torch.float32)


@pytest.mark.parametrize("size", [None, 2])
def test_one_agent_of_each_team_is_the_newcomer(size: int | None) -> None:
    newcomer, others = Always(7, size), Always(1, size)
    team = MixedTeam(newcomer, others)
    team.begin(5)
    actions = team.act(torch.zeros(5, 3, 4))
    assert newcomer.begun == others.begun == [5] and actions.shape == (5, 3) + (() if size is None else (2,))
    for copy in range(5):
        for agent in range(3):
            assert (actions[copy, agent] == (7 if agent == copy % 3 else 1)).all()


@pytest.mark.parametrize("env_id", ["simple_tag", "simple_adversary", "simple_spread"])
def test_the_newcomer_is_of_the_role_whose_reward_is_shown(env_id: str) -> None:
    """As prey that plays worse it would make the adversaries' reward better."""
    import runners.evaluation
    from runners.setup import make_evaluation_env

    env = make_evaluation_env(Config.model_validate({"env_id": env_id}), torch.device("cpu"), 6, original=True)
    played = []
    try:
        wanted = [index for index, role in enumerate(env.spec.roles) if role == env.spec.score_role]
        with pytest.MonkeyPatch.context() as patch:
            def note(policy, env, episodes: int, seed: int):  # noqa: ANN001, ANN202
                played.append(policy.act(torch.zeros(episodes, env.spec.num_agents, env.spec.obs_size)))
                return runners.evaluation.evaluate(policy, env, episodes, seed)

            patch.setattr(cross_play, "evaluate", note)
            cross_play.play([Always(2), Always(0)], env, 6, 0)
    finally:
        env.close()
    _, mixed, other, _ = played
    assert len(wanted) == {"simple_tag": 3, "simple_adversary": 2, "simple_spread": 3}[env_id]
    for episode in range(6):
        taken = wanted[episode % len(wanted)]
        assert mixed[episode].tolist() == [2 if agent == taken else 0 for agent in range(env.spec.num_agents)]
        assert other[episode].tolist() == [0 if agent == taken else 2 for agent in range(env.spec.num_agents)]


@pytest.mark.parametrize("network", ["one", "gru"])
def test_a_mixed_team_of_one_policy_is_self_play(network: str, trained, tmp_path: Path) -> None:
    """With memory too: whoever takes over has seen the episode from its start."""
    run = getattr(trained, network)
    copy = shutil.copytree(run, tmp_path / "copy")
    file = tmp_path / "cross.csv"
    found = numbers(tmp_path, "--cross_play", run, copy, *QUICK, "--csv", file)
    first, second = found["runs"]
    own = episodes(file, newcomer=first, team=first)
    for pair in ((first, second), (second, first), (second, second)):
        its = episodes(file, newcomer=pair[0], team=pair[1])
        assert all(np.array_equal(its[name], own[name]) for name in own)
    (stage,) = found["results"]
    assert stage["metrics"]["episode_reward"]["difference"] == {"mean": 0.0, "standard_error": 0.0}


def test_cross_play_of_seeds_is_a_matrix_whose_diagonal_is_self_play(trained, tmp_path: Path) -> None:
    file = tmp_path / "cross.csv"
    found = numbers(tmp_path, "--cross_play", trained.one, trained.two, *QUICK, "--csv", file)
    (stage,) = found["results"]
    matrix = stage["metrics"]["episode_reward"]["mean"]
    for index, run in enumerate((trained.one, trained.two)):
        assert matrix[index][index] == numbers(tmp_path, "--checkpoint", run, *QUICK)["mean"]["episode_reward"]
    assert len({matrix[i][j] for i in range(2) for j in range(2)}) == 4
    first, second = found["runs"]
    mixed = episodes(file, newcomer=first, team=second)["episode_reward"]
    assert len(mixed) == 7 and mixed.mean() == pytest.approx(matrix[0][1])
    shown = evaluate("--cross_play", trained.one, trained.two, *QUICK).out
    for metric in ("episode_reward", "success_rate", "collision_count"):
        assert f"{metric}: one agent of the row's run in a team of the column's" in shown
    assert shown.count("self-play ") == 3
    assert evaluate("--cross_play", trained.one, trained.two, "--num_agents", 2, 4, *QUICK).out.count(" agents\n") == 2


def test_the_means_of_a_matrix_equal_slow_loops() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(3, 3, 6))
    (found,) = cross_play.summary({"m": values}).values()
    own, cross = [], []
    for e in range(6):
        own.append(sum(values[i, i, e] for i in range(3)) / 3)
        cross.append(sum(values[i, j, e] for i in range(3) for j in range(3) if i != j) / 6)
    change = [b - a for a, b in zip(own, cross)]
    for kind, each in (("self_play", own), ("cross_play", cross), ("difference", change)):
        assert found[kind]["mean"] == pytest.approx(sum(each) / 6)
        spread = sum((value - sum(each) / 6) ** 2 for value in each) / 5
        assert found[kind]["standard_error"] == pytest.approx((spread / 6) ** 0.5)
    for i in range(3):
        for j in range(3):
            assert found["mean"][i][j] == pytest.approx(sum(values[i, j]) / 6)
            assert found["standard_error"][i][j] == pytest.approx(np.std(values[i, j], ddof=1) / 6**0.5)


# ---- words


def test_titles_are_as_short_as_they_can_be() -> None:
    assert titles(["runs/a/seed1", "runs/a/seed2/"]) == ["seed1", "seed2"]
    assert titles(["runs/a/seed1", "runs/b/seed1"]) == ["a/seed1", "b/seed1"]
    assert titles(["runs/a/seed1/checkpoints/checkpoint_ep5.pt", "runs/b/seed1"]) == ["checkpoint_ep5", "seed1"]
    assert titles(["x/random", "a.pt", "a"]) == ["random (checkpoint)", "a.pt", "a"]  # no controller's, nobody else's
    assert titles(["wandb:e/p/m:best", "mlflow:models:/m@best"]) == ["m:best", "m@best"]
    with pytest.raises(ConfigError, match="is given twice"):
        titles(["runs/a", "runs/a/"])


def test_one_run_is_given_twice_however_it_is_spelled(tmp_path: Path) -> None:
    run, other = tmp_path / "a" / "run", tmp_path / "b" / "run"
    (run / "checkpoints").mkdir(parents=True)
    other.mkdir(parents=True)
    (tmp_path / "link").symlink_to(run)
    for spelled in (f"{run}/../run", f"{run}/checkpoints", f"{tmp_path}/link", os.path.relpath(run)):
        with pytest.raises(ConfigError, match="is given twice"):
            titles([str(run), str(other), spelled])
    assert titles([str(run), f"{run}/../../b/run"]) == ["a/run", "b/run"]
    assert titles(["wandb:e/p/a:b", "wandb:e/p/x/../a:b", "\0"]) == ["p/a:b", "../a:b", "\0"]


@pytest.mark.parametrize(("argv", "words"), [
    (("--cross_play", "tests"), "name two or more"),
    (("--cross_play", "tests", "envs", "--policy", "random"), "leave --checkpoint and --policy out"),
    (("--cross_play", "tests", "envs", "--episodes", "1"), "needs --episodes of at least 2"),
    (("--cross_play", "tests", "tests/"), "given twice"),
    (("--policy", "random", "random"), "one is given twice"),
    (("--policy", "random", "greedy", "--render", "x.gif"), "an animation is of one policy"),
    (("--policy", "random", "--num_agents", "3", "4", "--render", "x.gif"), "one number of agents"),
    (("--policy", "random", "--num_agents", "3", "0"), "num_agents"),
    (("--policy", "random", "--num_agents", "3", "3"), "one is given twice"),
    (("--policy", "random", "greedy", "--env_id", "simple_tag"), "plays simple_spread"),
    (("--checkpoint", "tests", "no/such"), "holds no checkpoint"),
])  # fmt: skip
def test_bad_words_are_refused(argv: tuple[str, ...], words: str) -> None:
    result = evaluate(*argv)
    assert result.code == 2 and words in result.err and "Traceback" not in result.err and result.out == "", result.err
