"""Each rule of the health watch speaks on rows that provoke it, once, and keeps quiet on rows that must not."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import scipy.stats

from navrl.metrics import health
from navrl.metrics.health import Health

MAX_ENTROPY = math.log(5)


def watch(rows, monitor=None):
    """Causes in the order in which they are said, with the row at which each is."""
    monitor = Health(MAX_ENTROPY) if monitor is None else monitor
    said = []
    for number, row in enumerate(rows):
        said += [(warning.cause, number) for warning in monitor.watch(row, 1000 * number, number / len(rows))]
    return said


def causes(rows, monitor=None):
    return [cause for cause, _ in watch(rows, monitor)]


def healthy(seed=0, rows=200):
    """Shaped like a run that learns: noisy levels that drift, collisions that rise and fall, reward that rises."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(rows):
        part = number / rows
        row = {
            "train/policy_loss": rng.normal(0, 0.01),
            "train/value_loss": 0.5 * math.exp(-3 * part) * rng.lognormal(0, 0.3),
            "train/entropy": MAX_ENTROPY * (0.15 + 0.85 * math.exp(-4 * part)),
            "train/approx_kl": 0.008 * rng.lognormal(0, 0.5),
            "train/actor_grad_norm": 0.3 * rng.lognormal(0, 0.4),
            "train/critic_grad_norm": 5 * math.exp(-2 * part) * rng.lognormal(0, 0.7),
            "train/explained_variance": -0.5 + 1.4 * (1 - math.exp(-20 * part)) + rng.normal(0, 0.03),
        }
        if number % 5 == 0:
            row["eval/episode_reward"] = -26 + 18 * (1 - math.exp(-5 * part)) + rng.normal(0, 0.4)
            row["eval/collision_count"] = 1.4 + 5 * math.exp(-((part - 0.15) ** 2) / 0.01) + abs(rng.normal(0, 0.2))
        made.append(row)
    return made


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_run_is_left_alone(seed):
    assert causes(healthy(seed)) == []


def test_entropy_collapse_long_before_the_end():
    rows = [{"train/entropy": 1.6}] * 20 + [{"train/entropy": 0.01}] * 80
    assert watch(rows) == [("entropy_collapse", 20 + health.ENTROPY_ROWS - 1)]


@pytest.mark.parametrize(
    "entropy",
    [
        [1.6] * 60 + [0.01] * 40,  # near the end a policy may be sure
        [1.6, 0.01, 0.01] * 30,  # not lasting
        [0.15] * 100,  # low, not near zero
    ],
)
def test_entropy_that_is_no_collapse(entropy):
    assert causes([{"train/entropy": value} for value in entropy]) == []


def test_entropy_of_continuous_actions_may_be_negative():
    assert causes([{"train/entropy": -3.0}] * 100, Health(None)) == []


@pytest.mark.parametrize("name", ["actor_grad_norm", "critic_grad_norm", "approx_kl"])
def test_a_jump_far_above_the_running_level(name):
    rng = np.random.default_rng(0)
    level = 0.01 if name == "approx_kl" else 2.0
    rows = [{f"train/{name}": level * rng.lognormal(0, 0.3)} for _ in range(100)]
    assert causes(rows) == []
    rows[60] = rows[70] = {f"train/{name}": 40 * level}
    assert watch(rows) == [(name, 60)]


def test_a_norm_that_grows_without_end():
    assert causes([{"train/critic_grad_norm": 1.3**number} for number in range(100)]) == ["critic_grad_norm"]


def test_jumps_that_mean_nothing():
    quiet = [{"train/approx_kl": 0.0001, "train/actor_grad_norm": 0.01}] * 50
    assert causes([*quiet, {"train/approx_kl": 0.01, "train/actor_grad_norm": 0.5}, *quiet]) == []  # below the floors
    assert causes([{"train/critic_grad_norm": value} for value in [900, 80, 2, 1, 300]]) == []  # no level known yet
    assert causes([{"train/critic_grad_norm": 10.0 * math.exp(-number / 10)} for number in range(99)]) == []  # falling


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan"), "NaN", "Infinity", "-Infinity"])
def test_a_value_that_is_not_finite(value):
    rows = [{"train/policy_loss": 0.1}, {"train/policy_loss": value}, {"train/value_loss": value}]
    assert watch(rows) == [("non_finite", 1)]


def test_a_value_that_is_not_finite_is_named_and_kept_out_of_the_levels():
    monitor = Health(MAX_ENTROPY)
    (warning,) = monitor.watch({"train/critic_grad_norm": math.nan, "train/lr": 0.1}, 4000, 0.5)
    assert "train/critic_grad_norm" in warning.message and "train/lr" not in warning.message
    assert "step 4000" in warning.message and "\n" not in warning.message
    assert monitor.state_dict()["levels"]["train/critic_grad_norm"] == []


def test_what_is_no_number_is_passed_over():
    odd = {"train/entropy": None, "note": "fine", "train/approx_kl": [1, 2], "flag": True, "count": 10**400}
    assert causes([odd]) == []


def test_a_critic_that_explains_nothing():
    rows = [{"train/explained_variance": 0.4}] * 10 + [{"train/explained_variance": -0.1}] * 90
    assert watch(rows) == [("explained_variance", 10 + health.UNEXPLAINED_ROWS - 1)]


@pytest.mark.parametrize(
    "explained",
    [
        [-1.0] * 8 + [0.3] * 92,  # a critic needs some rows to begin
        [-0.1] * 9 + [0.1] + [-0.1] * 9 + [0.1] * 81,  # not lasting
        [-0.1] * 15 + [0.3] * 985,  # lasting in rows, yet a moment of the run
    ],
)
def test_explained_variance_that_recovers(explained):
    assert causes([{"train/explained_variance": value} for value in explained]) == []


def evaluations(rewards, collisions):
    return [{"eval/episode_reward": r, "eval/collision_count": c} for r, c in zip(rewards, collisions, strict=True)]


def test_reward_that_rises_while_collisions_rise():
    noise = np.random.default_rng(0).normal(0, 0.05, 30)
    assert causes(evaluations(np.linspace(-20, -10, 30) + noise, np.linspace(1, 12, 30) + noise)) == [
        "reward_with_collisions"
    ]


@pytest.mark.parametrize(
    "rewards, collisions",
    [
        (np.linspace(-20, -10, 30), np.linspace(6, 1, 30)),  # better in both
        (np.linspace(-10, -20, 30), np.linspace(1, 12, 30)),  # worse in both
        (np.full(30, -10.0), np.linspace(1, 12, 30)),  # reward does not rise
        (np.linspace(-20, -10, 30), np.linspace(1.0, 1.3, 30)),  # too little to matter
        (np.linspace(-20, -10, 30), np.linspace(50, 58, 30)),  # little beside the level
        (np.linspace(-20, -10, 30), [1, 2, 3, 4, 5, 6, 7, 7.5] + [7.5] * 22),  # while it learns to meet at goals
        (np.linspace(-20, -10, 30), np.random.default_rng(1).uniform(1, 9, 30)),  # noise
    ],
)
def test_reward_and_collisions_that_are_no_alarm(rewards, collisions):
    assert causes(evaluations(rewards, collisions)) == []


def test_several_causes_of_one_row_are_each_said():
    rows = healthy()
    rows[150].update({"train/approx_kl": 3.0, "train/actor_grad_norm": 300.0, "train/value_loss": math.inf})
    assert set(causes(rows)) == {"approx_kl", "actor_grad_norm", "non_finite"}


def test_the_trend_measure_is_kendalls_tau():
    for seed in range(5):
        values = tuple(np.random.default_rng(seed).permutation(8).tolist())
        assert health._kendall(values) == pytest.approx(scipy.stats.kendalltau(range(8), values).statistic)


def test_a_resumed_watch_says_what_the_unbroken_one_says():
    rows = healthy(3, rows=120)
    for number in range(25, 55):
        rows[number]["train/entropy"] = 0.001
    for number in range(50, 120):
        rows[number]["train/explained_variance"] = -0.2
    rows[90]["train/approx_kl"] = 5.0
    for number in range(60, 120, 5):
        rows[number].update({"eval/episode_reward": -20 + number / 10, "eval/collision_count": number / 10 - 5})
    unbroken = watch(rows)
    assert {cause for cause, _ in unbroken} == {
        "entropy_collapse", "explained_variance", "approx_kl", "reward_with_collisions"
    }  # fmt: skip
    for cut in range(0, 120, 7):
        monitor, said = Health(MAX_ENTROPY), []
        for number, row in enumerate(rows):
            if number == cut:
                state = json.loads(json.dumps(monitor.state_dict()))
                monitor = Health(MAX_ENTROPY)
                monitor.load_state_dict(state)
            said += [(warning.cause, number) for warning in monitor.watch(row, 1000 * number, number / 120)]
        assert said == unbroken
