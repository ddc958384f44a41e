"""A NaN or an infinity stops a run with the tensor's name, its place and the range of the rest."""

from __future__ import annotations

import pytest
import torch

from learner_tools import RaggedTask, learner, learner_config, no_reward, runner_for, task_spec
from runners.guards import NonFiniteError, require_finite, rollout_tensors


def bad_at(step: int, value: float):
    """A task whose reward is ``value`` for copy 1, agent 0 in the given step, else 0."""
    count = 0

    def reward(before, *rest):
        nonlocal count
        rewards = no_reward(before, *rest)
        if count == step:
            rewards[1, 0] = value
        count += 1
        return rewards

    return RaggedTask([3, 4], task_spec(2, 4), reward)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_bad_reward_is_named_before_anything_is_learned_from_it(value: float) -> None:
    env = bad_at(2, value)
    algorithm = learner(env.spec, learner_config("--network", "mlp", hidden_size=4))
    before = [p.clone() for p in algorithm.actor.parameters()]
    runner = runner_for(algorithm, env, 5)
    with pytest.raises(NonFiniteError, match=rf"^reward .*1 of 20 values, first {value} at \[2, 1, 0\]; others 0 to 0"):
        runner.iterate(check=lambda: require_finite(rollout_tensors(runner.rollout)))
    assert all(torch.equal(a, b) for a, b in zip(before, algorithm.actor.parameters()))


def test_finite_numbers_pass_even_where_their_sum_overflows() -> None:
    require_finite({"large": torch.full((4,), 3e38), "none": torch.zeros(0), "scalar": torch.tensor(1.0)})


def test_infinities_of_both_signs_do_not_cancel() -> None:
    with pytest.raises(NonFiniteError, match="^b is not finite: 2 of 3 values"):
        require_finite({"a": torch.zeros(2), "b": torch.tensor([float("inf"), float("-inf"), 1.0])})


def test_a_tensor_without_one_good_number_is_described_too() -> None:
    with pytest.raises(NonFiniteError, match="first nan at .*; no others"):
        require_finite({"loss": torch.tensor(float("nan"))})
