"""The loss terms equal slow per-sample loops, and approx_kl the exact divergence."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from navrl.algorithms.losses import approx_kl, clipped_surrogate, explained_variance, value_error, value_loss


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_clipped_surrogate_equals_a_loop_by_cases() -> None:
    log_ratio, advantages = 0.4 * draw(200), draw(200, seed=1)
    losses = clipped_surrogate(log_ratio, advantages, 0.2)
    cases = set()
    for k in range(200):
        ratio, advantage = math.exp(log_ratio[k]), float(advantages[k])
        if advantage > 0 and ratio > 1.2:
            expected, case = 1.2 * advantage, "gain capped"
        elif advantage < 0 and ratio < 0.8:
            expected, case = 0.8 * advantage, "loss capped"
        else:
            expected, case = ratio * advantage, "plain"
        cases.add(case)
        assert losses[k].item() == pytest.approx(-expected)
    assert len(cases) == 3


def test_a_capped_sample_has_no_gradient_and_others_that_of_the_policy_gradient() -> None:
    log_ratio = torch.tensor([0.5, -0.5, 0.5, -0.5, 0.0], dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0, 2.0], dtype=torch.float64)
    clipped_surrogate(log_ratio, advantages, 0.2).sum().backward()
    expected = [0.0, -math.exp(-0.5), math.exp(0.5), 0.0, -2.0]
    torch.testing.assert_close(log_ratio.grad, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("delta", [None, 0.5, 10.0])
@pytest.mark.parametrize("clip", [None, 0.2])
def test_the_value_loss_equals_a_loop(clip: float | None, delta: float | None) -> None:
    values, old, returns = draw(3, 300)
    losses = value_loss(values, old, returns, clip, delta)

    def error(e: float) -> float:
        if delta is None or abs(e) <= delta:
            return 0.5 * e * e
        return delta * (abs(e) - 0.5 * delta)

    for k in range(300):
        v, o, r = float(values[k]), float(old[k]), float(returns[k])
        expected = error(v - r)
        if clip is not None:
            near = o + min(max(v - o, -clip), clip)
            expected = max(expected, error(near - r))
        assert losses[k].item() == pytest.approx(expected)


def test_huber_equals_torch() -> None:
    error = 4 * draw(500)
    expected = torch.nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=1.5)
    torch.testing.assert_close(value_error(error, 1.5), expected)


def test_approx_kl_has_the_exact_divergence_as_its_mean_and_is_never_negative() -> None:
    old, new = draw(6).log_softmax(-1), draw(6, seed=1).log_softmax(-1)
    terms = approx_kl(new - old)
    assert (terms >= 0).all()
    exact = torch.distributions.kl_divergence(
        torch.distributions.Categorical(logits=old), torch.distributions.Categorical(logits=new)
    )
    assert (old.exp() * terms).sum().item() == pytest.approx(exact.item())
    assert approx_kl(torch.zeros(3)).tolist() == [0, 0, 0]
    assert approx_kl(torch.tensor([1e-3])).item() == pytest.approx(5e-7, rel=1e-2), "no cancellation in float32"


def test_explained_variance_equals_numpy_and_is_undefined_for_a_constant_return() -> None:
    values, returns = draw(2, 4, 5, 3)
    values = returns + 0.3 * values
    v, r = values.numpy(), returns.numpy()
    expected = 1 - np.var(r - v) / np.var(r)
    assert explained_variance(values, returns).item() == pytest.approx(expected)
    assert explained_variance(returns, returns).item() == 1.0
    assert math.isnan(explained_variance(values, torch.full_like(returns, 2.0)).item())
