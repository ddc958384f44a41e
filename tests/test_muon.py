"""Muon moves hidden weights along the orthogonal factor of their momentum, and Adam moves the rest."""

from __future__ import annotations

import math

import pytest
import torch
from learner_tools import RaggedTask, entity_spec, filled_rollout, learner, learner_config, random_reward, task_spec

from navrl.algorithms.optimizers import COEFFICIENTS, ITERATIONS, Muon, hidden_weights, load_moments, orthogonalise


def spectral(matrix: torch.Tensor, function) -> torch.Tensor:
    """``function`` applied to the singular values: an independent road to what matrix products give."""
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    return u @ torch.diag(function(s)) @ vh


def quintic(values: torch.Tensor) -> torch.Tensor:
    a, b, c = COEFFICIENTS
    values = values / values.norm()
    for _ in range(ITERATIONS):
        values = a * values + b * values**3 + c * values**5
    return values


@pytest.mark.parametrize("shape", [(5, 5), (3, 8), (8, 3), (1, 4), (32, 3), (64, 128)])
def test_the_iteration_acts_on_singular_values_alone(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    matrices = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    result = orthogonalise(matrices)
    for before, after in zip(matrices, result):
        torch.testing.assert_close(after, spectral(before, quintic))


@pytest.mark.parametrize("shape", [(16, 16), (64, 128), (100, 64)])
def test_all_directions_come_out_alike(shape: tuple[int, int]) -> None:
    matrix = torch.randn(*shape, generator=torch.Generator().manual_seed(2))
    ratio = torch.linalg.svdvals(matrix)
    values = torch.linalg.svdvals(orthogonalise(matrix[None])[0])
    kept = values[ratio > 0.05 * ratio[0]]  # the smallest are on their way
    assert 0.6 < kept.min() and kept.max() < 1.25
    assert not orthogonalise(torch.zeros(1, *shape)).any()


def test_steps_are_nesterov_momentum_orthogonalised_at_the_size_of_lr() -> None:
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    gradients = torch.randn(3, 6, 4, generator=generator, dtype=torch.float64)
    weight = torch.nn.Parameter(start.clone())
    optimizer = Muon([weight], lr=0.1, momentum=0.9)
    expected, momentum = start.clone(), torch.zeros(6, 4, dtype=torch.float64)
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
        momentum = 0.9 * momentum + 0.1 * gradient
        ahead = 0.1 * gradient + 0.9 * momentum
        expected -= 0.1 * math.sqrt(6) * spectral(ahead, quintic)
    torch.testing.assert_close(weight.detach(), expected)
    # orthonormal columns times sqrt(6): entries of root mean square about 1
    step = math.sqrt(6) * orthogonalise(gradients[:1])[0]
    assert 0.7 < step.square().mean().sqrt() < 1.2


def test_it_goes_where_torch_s_own_muon_goes() -> None:
    shape, generator = (24, 48), torch.Generator().manual_seed(4)
    ours, theirs = (torch.nn.Parameter(torch.zeros(shape)) for _ in range(2))
    mine = Muon([ours], lr=0.2 * 1e-2)
    torchs = torch.optim.Muon([theirs], lr=1e-2, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    for _ in range(5):
        gradient = torch.randn(shape, generator=generator)
        ours.grad, theirs.grad = gradient, gradient.clone()
        mine.step()
        torchs.step()
    apart = (ours - theirs).norm() / theirs.norm()
    assert apart < 0.03  # theirs is in bfloat16


def test_matrices_of_one_shape_do_not_touch_each_other() -> None:
    generator = torch.Generator().manual_seed(5)
    gradients = torch.randn(3, 8, 4, generator=generator)
    together = [torch.nn.Parameter(torch.zeros(8, 4)) for _ in gradients]
    alone = [torch.nn.Parameter(torch.zeros(8, 4)) for _ in gradients]
    for weights, optimizers in ((together, [Muon(together, lr=0.1)]), (alone, [Muon([w], lr=0.1) for w in alone])):
        for weight, gradient in zip(weights, gradients):
            weight.grad = gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    for one, other in zip(together, alone):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("network", ["mlp", "gru", "entity"])
def test_each_parameter_has_one_optimizer(network: str) -> None:
    spec = entity_spec() if network == "entity" else task_spec(2, 4)
    algorithm = learner(spec, learner_config("--network", network, hidden_size=8))
    owned = [id(p) for optimizer in algorithm.optimizers.values() for g in optimizer.param_groups for p in g["params"]]
    wanted = [id(p) for module in (algorithm.actor, algorithm.critic) for p in module.parameters()]
    assert sorted(owned) == sorted(wanted)
    heads = [algorithm.actor.trunk.head, *algorithm.critic.heads()]
    muons = {id(p) for group in algorithm.optimizers["muon"].param_groups for p in group["params"]}
    assert muons and not muons & {id(head.weight) for head in heads}
    assert muons == {id(p) for module in (algorithm.actor, algorithm.critic) for p in hidden_weights(module)}


def test_rates_of_actor_and_critic_follow_the_schedule() -> None:
    config = learner_config("--network", "mlp", hidden_size=8, lr=1e-3, critic_lr=4e-3)
    algorithm = learner(task_spec(2, 4), config)
    rollout = filled_rollout(algorithm, RaggedTask([3, 4], task_spec(2, 4), random_reward, "mixed"), 6)
    algorithm.update(rollout, 0.5, 0.0)
    for optimizer in algorithm.optimizers.values():
        assert [group["lr"] for group in optimizer.param_groups] == [0.5e-3, 2e-3]


DAMAGE = {
    "shape": lambda moments: moments.update({name: torch.zeros(1) for name in moments if name != "step"}),
    "kind": lambda moments: moments.update({name: value.to(torch.complex64) for name, value in moments.items()}),
    "lacking": lambda moments: moments.clear(),
    "more": lambda moments: moments.update(other=torch.zeros(1)),
    "number": lambda moments: moments.update({name: 5.0 for name in moments}),
}


@pytest.mark.parametrize("name", ["adam", "muon"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_moments_that_are_not_those_of_the_parameters_are_refused(name: str, damage: str) -> None:
    """Fused Adam takes any tensor for a moment and writes beyond a small one's memory."""
    algorithm = learner(entity_spec(), learner_config("--network", "entity", hidden_size=8))
    for optimizer in algorithm.optimizers.values():  # a step, so that there are moments
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    state = algorithm.optimizers[name].state_dict()
    load_moments(name, algorithm.optimizers[name], state)
    DAMAGE[damage](state["state"][0])
    with pytest.raises(ValueError, match=name):
        load_moments(name, algorithm.optimizers[name], state)
