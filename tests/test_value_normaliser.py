"""The value normaliser keeps debiased moving moments; PopArt changes no prediction; both survive saving."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from learner_tools import entity_spec, learner, learner_config, task_spec
from navrl.networks.value_norm import MIN_VARIANCE, ValueNorm


def batches(count: int = 7) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(5, 4, 3, generator=generator) * (k + 1) - 20 * k for k in range(count)]


@pytest.mark.parametrize("kind", ["running", "popart"])
def test_moments_are_the_exponentially_weighted_ones_of_numpy(kind: str) -> None:
    norm = ValueNorm(kind, decay=0.9)
    seen: list[np.ndarray] = []
    for batch in batches():
        norm.update(batch, [])
        seen.append(batch.double().numpy())
        weights = 0.9 ** np.arange(len(seen))[::-1]
        weights /= weights.sum()  # debiased: the weights of what was seen sum to 1
        mean = sum(w * x.mean() for w, x in zip(weights, seen))
        square = sum(w * (x**2).mean() for w, x in zip(weights, seen))
        assert norm.moments()[0].item() == pytest.approx(mean)
        assert norm.moments()[1].item() == pytest.approx(np.sqrt(square - mean**2))


def test_before_the_first_update_and_with_none_nothing_changes() -> None:
    values = torch.randn(10)
    for kind in ("none", "running", "popart"):
        norm = ValueNorm(kind)
        assert torch.equal(norm.normalise(values), values) and torch.equal(norm.denormalise(values), values)
    norm = ValueNorm("none")
    norm.update(100 + values, [])
    assert torch.equal(norm.normalise(values), values) and torch.equal(norm.denormalise(values), values)


def test_normalise_and_denormalise_are_inverse_and_give_standard_moments() -> None:
    norm = ValueNorm("running")
    returns = 1000 + 30 * torch.randn(4000, generator=torch.Generator().manual_seed(1))
    norm.update(returns, [])
    normal = norm.normalise(returns)
    assert normal.dtype == torch.float32
    assert abs(normal.mean().item()) < 1e-4 and abs(normal.std(correction=0).item() - 1) < 1e-4
    torch.testing.assert_close(norm.denormalise(normal), returns)


def test_a_constant_return_does_not_divide_by_zero() -> None:
    norm = ValueNorm("running")
    norm.update(torch.full((10,), 3.0), [])
    assert norm.normalise(torch.tensor([3.0])).item() == pytest.approx(0, abs=1e-6)
    assert norm.moments()[1].item() == pytest.approx(MIN_VARIANCE**0.5)


CRITICS = {
    "joint": (task_spec(), ("--network", "mlp")),
    "joint, one output": (task_spec(shared_reward=True), ("--network", "mlp")),
    "joint gru": (task_spec(), ("--network", "gru")),
    "entity": (entity_spec(), ("--network", "entity")),
    "local": (task_spec(), ("--network", "mlp", "--algorithm_name", "ippo")),
    "local, separate": (task_spec(), ("--network", "gru", "--algorithm_name", "ippo", "--no_share_policy")),
}


@pytest.mark.parametrize("name", CRITICS)
def test_popart_changes_no_prediction(name: str) -> None:
    spec, flags = CRITICS[name]
    algorithm = learner(spec, learner_config(*flags, "--value_norm", "popart", hidden_size=16), dtype=torch.float64)
    obs = torch.randn(1, 9, 3, spec.obs_size, dtype=torch.float64)
    hidden = torch.randn(9, algorithm.critic.rows, 16, dtype=torch.float64) if algorithm.recurrent else None
    starts = torch.zeros(1, 9, dtype=torch.bool)

    def predict() -> torch.Tensor:
        return algorithm.value_norm.denormalise(algorithm.critic(obs, hidden, starts)[0]).detach()

    before = predict()
    raw = algorithm.critic(obs, hidden, starts)[0].detach()
    for batch in batches(3):
        algorithm.value_norm.update(batch, algorithm.critic.heads())
        torch.testing.assert_close(predict(), before, rtol=1e-9, atol=1e-9)
    assert (algorithm.critic(obs, hidden, starts)[0] - raw).abs().max() > 0.1, "the heads were rescaled"


@pytest.mark.parametrize("kind", ["running", "popart"])
def test_the_moments_are_saved_with_the_learner(kind: str) -> None:
    config = learner_config("--network", "mlp", "--value_norm", kind, hidden_size=8)
    one, other = learner(task_spec(), config), learner(task_spec(), config, seed=5)
    for batch in batches(3):
        one.value_norm.update(batch, one.critic.heads())
    other.load_state_dict(one.state_dict())
    values = torch.randn(6)
    assert torch.equal(one.value_norm.denormalise(values), other.value_norm.denormalise(values))
    for norm, critic in ((one.value_norm, one.critic), (other.value_norm, other.critic)):
        norm.update(batches(4)[-1], critic.heads())
    assert one.value_norm.moments() == other.value_norm.moments()
    for a, b in zip(one.critic.parameters(), other.critic.parameters()):
        assert torch.equal(a, b)


def test_moments_move_with_the_module_and_stay_double() -> None:
    norm = ValueNorm("running")
    norm.update(torch.randn(8), [])
    assert {name: t.dtype for name, t in norm.to(torch.device("meta")).state_dict().items()} == {
        name: torch.float64 for name in ("mean_sum", "square_sum", "weight")
    }
    assert all(t.is_meta for t in norm.state_dict().values())
