"""Log-probabilities, entropies and samples equal those of torch.distributions, masks included."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import distributions as reference

from navrl.networks.distributions import Categorical, SquashedGaussian


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_categorical_equals_torch() -> None:
    logits = 3 * torch.randn(7, 2, 5, generator=generator(), dtype=torch.float64)
    ours, theirs = Categorical(logits), reference.Categorical(logits=logits)
    for action in range(5):
        raw = torch.full((7, 2), action)
        torch.testing.assert_close(ours.log_prob(raw), theirs.log_prob(raw))
    torch.testing.assert_close(ours.entropy(raw), theirs.entropy())
    assert torch.equal(ours.mode(), logits.argmax(-1)) and torch.equal(ours.to_env(raw), raw)


def test_masked_categorical_equals_one_without_the_hidden_actions() -> None:
    logits = torch.randn(4, 3, 5, generator=generator()).requires_grad_()
    mask = torch.tensor([[True] * 5, [True, True, False, True, False], [False, False, True, False, False]])
    ours = Categorical(logits, mask)
    for agent in range(3):
        allowed = mask[agent].nonzero().flatten()
        theirs = reference.Categorical(logits=logits[:, agent, allowed])
        torch.testing.assert_close(ours.entropy(torch.zeros(4, 3, dtype=torch.int64))[:, agent], theirs.entropy())
        for k, action in enumerate(allowed):
            raw = torch.full((4, 3), int(action))
            torch.testing.assert_close(ours.log_prob(raw)[:, agent], theirs.log_prob(torch.full((4,), k)))
    ours.entropy(torch.zeros(4, 3, dtype=torch.int64)).sum().backward()
    assert torch.isfinite(logits.grad).all() and (logits.grad[:, ~mask] == 0).all()
    samples = torch.stack([ours.sample(generator(seed)) for seed in range(2000)])
    assert mask.expand(2000, 4, 3, 5).gather(-1, samples.unsqueeze(-1)).all()
    assert mask[torch.arange(3), ours.mode()].all()


@pytest.mark.parametrize("probabilities", [[0.2] * 5, [0.7, 0.2, 0.09, 0.0099, 0.0001], [1e-6, 0.5, 0.3, 0.1, 0.1]])
def test_categorical_samples_follow_their_probabilities(probabilities: list[float]) -> None:
    p = torch.tensor(probabilities)
    p = p / p.sum()
    count = 400_000
    samples = Categorical(p.log().expand(count, 5)).sample(generator(5))
    observed = torch.bincount(samples, minlength=5).numpy()
    expected = (p * count).double().numpy()
    usual = expected > 5
    rest = [observed[~usual].sum()] if not usual.all() else []
    if rest:
        assert rest[0] < 12
    scale = observed[usual].sum() / expected[usual].sum()
    assert stats.chisquare(observed[usual], expected[usual] * scale).pvalue > 1e-3


def squashed(mean, std, low, high):
    """The same distribution out of torch's own parts."""
    middle, half = (high + low) / 2, (high - low) / 2
    transforms = [reference.TanhTransform(), reference.AffineTransform(middle, half)]
    return reference.TransformedDistribution(reference.Normal(mean, std), transforms)


LOW, HIGH = torch.tensor([-1.0, 0.0, -2.0]).double(), torch.tensor([1.0, 1.0, 3.0]).double()


def test_squashed_gaussian_equals_torch() -> None:
    g = generator(1)
    mean, log_std = torch.randn(2, 50, 3, generator=g, dtype=torch.float64)
    ours, theirs = SquashedGaussian(mean, log_std, LOW, HIGH), squashed(mean, log_std.exp(), LOW, HIGH)
    raw = ours.sample(g)
    action = ours.to_env(raw)
    assert ((action > LOW) & (action < HIGH)).all()
    known = (raw.abs() < 7).all(-1)  # beyond, torch's inverse of tanh is cut off
    assert known.sum() > 40
    expected = theirs.log_prob(action).sum(-1)
    torch.testing.assert_close(ours.log_prob(raw)[known], expected[known], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ours.entropy(raw), -ours.log_prob(raw))
    assert torch.equal(ours.mode(), mean)


def test_squashed_gaussian_without_the_dimensions_an_agent_lacks() -> None:
    mean = torch.randn(6, 2, 3, generator=generator(2), dtype=torch.float64)
    log_std = torch.tensor([[-0.3, 0.1, 0.4]]).double()
    mask = torch.tensor([[True, True, True], [True, False, True]])
    ours = SquashedGaussian(mean, log_std, LOW, HIGH, mask)
    raw = ours.sample(generator(3))
    keep = torch.tensor([0, 2])
    theirs = squashed(mean[:, 1, keep], log_std[0, keep].exp(), LOW[keep], HIGH[keep])
    expected = theirs.log_prob(ours.to_env(raw)[:, 1, keep]).sum(-1)
    torch.testing.assert_close(ours.log_prob(raw)[:, 1], expected, rtol=1e-6, atol=1e-6)


def test_squashed_gaussian_samples_follow_their_density() -> None:
    mean, log_std = torch.tensor([0.3]).double(), torch.tensor([-0.2]).double()
    low, high = torch.tensor([-2.0]).double(), torch.tensor([1.0]).double()
    actions = SquashedGaussian(mean.expand(100_000, 1), log_std, low, high)
    drawn = actions.to_env(actions.sample(generator(7))).squeeze(-1).numpy()

    def cdf(x):
        return stats.norm.cdf((torch.atanh((torch.as_tensor(x) + 0.5) / 1.5).numpy() - 0.3) / log_std.exp().item())

    assert stats.kstest(drawn, cdf).pvalue > 1e-3


def test_extreme_values_stay_finite_and_inside_the_box() -> None:
    low, high = torch.tensor([-0.3, 0.1, -1e-3, -7.7]), torch.tensor([0.7, 0.3, 3.3, 1.1])
    raw = torch.tensor([-1e4, -30.0, -9.0, 0.0, 9.0, 30.0, 1e4]).unsqueeze(-1).expand(-1, 4)
    dist = SquashedGaussian(raw.clone(), torch.zeros(4), low, high)
    action = dist.to_env(raw)
    assert ((action >= low) & (action <= high)).all(), "an environment refuses what is an ulp outside"
    assert torch.isfinite(dist.log_prob(raw)).all()


@pytest.mark.parametrize("mean, log_std", [(0.0, -0.5), (0.8, 0.3), (-1.5, -1.0)])
def test_the_entropy_estimate_and_its_gradient_equal_numerical_integration(mean: float, log_std: float) -> None:
    """Mean over samples of the estimate, and of its gradient, against H = -integral of p log p by quadrature."""
    low, high = torch.tensor([-2.0]).double(), torch.tensor([1.0]).double()

    def integral(parameters: torch.Tensor) -> torch.Tensor:
        m, s = parameters[0], parameters[1].exp()
        raw = torch.linspace(-14, 14, 40_001, dtype=torch.float64)  # before tanh: log p of the action is smooth here
        gauss = reference.Normal(m, s).log_prob(raw)
        log_p = gauss - torch.log1p(-torch.tanh(raw).square().clamp_max(1 - 1e-13)) - torch.log((high - low) / 2)
        # the clamp matters only where the density is below 1e-20
        return -torch.trapezoid(gauss.exp() * log_p, raw)

    parameters = torch.tensor([mean, log_std], dtype=torch.float64, requires_grad=True)
    exact = integral(parameters)
    (exact_gradient,) = torch.autograd.grad(exact, parameters)

    count = 400_000
    dist = SquashedGaussian(parameters[0].expand(count, 1), parameters[1].expand(1, 1), low, high)
    raw = dist.sample(generator(9)).detach()
    estimate = dist.entropy(raw)
    (gradient,) = torch.autograd.grad(estimate.mean(), parameters)
    assert estimate.mean().item() == pytest.approx(exact.item(), abs=0.01)
    torch.testing.assert_close(gradient, exact_gradient, rtol=0.01, atol=0.01)
