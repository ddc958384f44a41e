"""Trajectories say what does not fit, keep what they are given, and come back from disk as they were."""

from __future__ import annotations

import numpy as np
import pytest

from navrl.metrics.behaviour import behaviour_metrics
from navrl.metrics.trajectories import Trajectories, load_npz


def fields(**changes):
    rng = np.random.default_rng(0)
    return {
        "rewards": rng.normal(size=(4, 3, 2)),
        "lengths": np.array([4, 2, 3]),
        "roles": ("a", "b"),
        "score_role": "b",
        "agent_pos": rng.normal(size=(5, 3, 2, 2)),
        "agent_vel": rng.normal(size=(5, 3, 2, 2)),
        "goal_pos": rng.normal(size=(5, 3, 2, 2)),
        "agent_radii": (0.1, 0.2),
        "goal_radius": 0.5,
        "own_goals": True,
        "has_success": True,
        "actions": rng.integers(0, 5, size=(4, 3, 2)),
        **changes,
    }


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"rewards": np.zeros((4, 3))}, "rewards"),
        ({"lengths": np.array([4, 2])}, "lengths"),
        ({"lengths": np.array([4, 2, 5])}, "lengths"),
        ({"lengths": np.array([4, 0, 3])}, "lengths"),
        ({"roles": ("a",)}, "roles"),
        ({"score_role": "c"}, "score_role"),
        ({"agent_pos": np.zeros((4, 3, 2, 2))}, "agent_pos"),
        ({"agent_vel": np.zeros((5, 3, 2, 3))}, "agent_vel"),
        ({"goal_pos": np.zeros((5, 2, 2, 2))}, "goal_pos"),
        ({"goal_pos": np.zeros((5, 3, 3, 2))}, "own_goals"),
        ({"goal_radius": None}, "goal_radius"),
        ({"agent_radii": None}, "agent_radii"),
        ({"agent_radii": (0.1,)}, "agent_radii"),
        ({"goal_pos": None}, "has_success"),
        ({"agent_pos": None}, "agent_pos"),
        ({"actions": np.zeros((4, 3))}, "actions"),
        ({"actions": np.zeros((3, 3, 2))}, "actions"),
    ],
)
def test_what_does_not_fit_is_named_in_one_line(changes, named):
    with pytest.raises(ValueError, match=f"^{named}") as fault:
        Trajectories(**fields(**changes))
    assert "\n" not in str(fault.value)


def test_inputs_are_not_changed():
    given = fields()
    before = {name: np.copy(value) for name, value in given.items() if isinstance(value, np.ndarray)}
    made = Trajectories(**given)
    for name, value in before.items():
        np.testing.assert_array_equal(given[name], value)
        assert not np.shares_memory(given[name], getattr(made, name))


def test_npz_brings_everything_back(tmp_path):
    made = Trajectories(**fields())
    made.save_npz(tmp_path / "episodes.npz")
    back = load_npz(tmp_path / "episodes.npz")
    for name, value in vars(made).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(back, name), value)
            assert getattr(back, name).dtype == value.dtype
        else:
            assert getattr(back, name) == value and type(getattr(back, name)) is type(value)
    assert [path.name for path in tmp_path.iterdir()] == ["episodes.npz"]


def test_npz_of_some_episodes_is_cut_to_the_longest_of_them(tmp_path):
    made = Trajectories(**fields())
    made.save_npz(tmp_path / "two.npz", [2, 1])
    back = load_npz(tmp_path / "two.npz")
    assert back.lengths.tolist() == [3, 2] and back.num_steps == 3 and back.agent_pos.shape == (4, 2, 2, 2)
    whole, some = behaviour_metrics(made), behaviour_metrics(back)
    assert set(some) == set(whole)
    for name in whole:
        np.testing.assert_array_equal(some[name], whole[name][[2, 1]])


def test_npz_without_positions(tmp_path):
    plain = Trajectories(rewards=np.ones((2, 1, 1)), lengths=[2], roles=("solo",), score_role="solo")
    plain.save_npz(tmp_path / "plain.npz")
    back = load_npz(tmp_path / "plain.npz")
    assert back.agent_pos is back.goal_pos is back.actions is back.goal_radius is None
    assert back.roles == ("solo",)


def test_the_same_episodes_are_the_same_file(tmp_path):
    for name in ("one", "two"):
        Trajectories(**fields()).save_npz(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_file_that_is_something_else_is_named(tmp_path):
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    np.savez(tmp_path / "pickle.npz", rewards=np.array([{}], dtype=object))
    for name in ("text.npz", "other.npz", "pickle.npz"):
        with pytest.raises(ValueError, match=name):
            load_npz(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        load_npz(tmp_path / "missing.npz")


def test_an_unknown_role_is_named():
    with pytest.raises(ValueError, match="role"):
        Trajectories(**fields()).team("c")
