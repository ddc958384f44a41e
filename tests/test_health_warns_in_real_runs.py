"""Each health warning is provoked by a run that goes wrong in that way, and is said once, on the console and onwards.

The rules themselves, and rows that must not provoke them, are in test_health_says_each_cause_once.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from whole_runs import Result, train

from navrl.tracking.record import read_events

pytestmark = pytest.mark.usefixtures("no_code_copy")

PLAIN = ("--lr_schedule", "constant", "--ppo_epoch_end", "null", "--critic_hidden_size", "null", "--no_canonical_frame")
SPREAD = ("--eval_interval", "1000", *PLAIN)
# 4 copies x 25 steps an iteration: toy tasks change with the 26th
TOY = (*SPREAD, "--network", "mlp", "--gamma", "0.5", "--num_envs", "4", "--mini_batch_size", "1000",
       "--total_env_steps", "3000")  # fmt: skip
CHANGE = 2500  # environment steps before it


def toy(name: str, *flags: str) -> tuple[str, ...]:
    return ("--env_id", f"pettingzoo:toy_tasks:{name}", *TOY, *flags)


RUNS = {
    "entropy_collapse": (*SPREAD, "--network", "mlp", "--lr", "1"),
    "critic_grad_norm": toy("pays_1000_times_more_later", "--value_norm", "none", "--huber_delta", "null"),
    "actor_grad_norm": toy("shows_1000_times_more_later", "--lr", "1e-6"),
    "approx_kl": toy("shows_a_tenth_later", "--lr", "0.03", "--clip_param", "0.5", "--ppo_epoch", "5"),
    "explained_variance": toy("pays_by_lot", "--optimizer", "adam", "--lr", "2e-3", "--critic_lr", "0.01",
                              "--ppo_epoch", "10"),
    "reward_with_collisions": (
        "--num_agents", "4", "--local_ratio", "0", "--lr", "7e-4", *PLAIN, "--num_envs", "32",
        "--hidden_size", "32", "--ppo_epoch", "3", "--eval_interval", "1", "--eval_episodes", "20",
        "--final_eval_episodes", "1", "--total_env_steps", "17600"),
}  # fmt: skip


def said(result: Result) -> dict[str, tuple[int, str]]:
    """cause -> (step, line), each said once on the console and once in the journal that trackers read."""
    alerts = [event for event in read_events(result.run_dir) if event["event"] == "alert"]
    found = {}
    for alert in alerts:
        assert alert["title"] not in found, "said twice"
        found[alert["title"]] = (alert["step"], alert["text"])
    lines = [line for line in (result.run_dir / "console.log").read_text().splitlines() if line.startswith("warn: ")]
    assert lines == [f"warn: {alert['title']}: {alert['text']}" for alert in alerts]
    return found


@pytest.mark.parametrize("cause", RUNS)
def test_a_run_that_goes_wrong_is_warned_of(cause: str, tmp_path: Path) -> None:
    result = train(tmp_path, *RUNS[cause])
    assert result.code == 0, result.err
    step, text = said(result)[cause]
    assert text.startswith(f"step {step}: ")
    if cause in ("critic_grad_norm", "actor_grad_norm", "approx_kl"):
        assert CHANGE <= step <= CHANGE + 300, "not before the task changed, and soon after"


def test_a_loss_beyond_all_floats_is_warned_of_and_stops_the_run(tmp_path: Path) -> None:
    result = train(tmp_path, *toy("pays_beyond_squares", "--value_norm", "none", "--huber_delta", "null"))
    assert result.code == 1 and result.err.splitlines()[-1].startswith("NonFiniteError: train/value_loss is not finite")
    assert "train/value_loss = inf" in said(result)["non_finite"][1]


def test_a_run_that_learns_is_left_alone(tmp_path: Path) -> None:
    result = train(tmp_path, *toy("guess", "--lr", "1e-3", "--value_norm", "running"))
    assert result.code == 0 and set(said(result)) <= {"explained_variance"}, said(result)
