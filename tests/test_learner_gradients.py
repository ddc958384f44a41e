"""Gradients of the whole update equal finite differences in float64, for every kind of network."""

from __future__ import annotations

import math

import pytest
import torch

from learner_tools import (
    RaggedTask,
    box,
    entity_spec,
    filled_rollout,
    learner,
    learner_config,
    random_reward,
    task_spec,
)


CASES = {
    "mlp": (task_spec(2, 4), ("--network", "mlp")),
    "mlp, layer norm, relu": (task_spec(2, 4), ("--network", "mlp", "--activation", "relu")),
    "mlp, continuous": (task_spec(2, 4, box(2)), ("--network", "mlp")),
    "mlp, separate, huber, no value clip": (
        task_spec(2, 4), ("--network", "mlp", "--no_share_policy", "--no_value_clip", "--huber_delta", "0.3")),
    "gru": (task_spec(2, 4), ("--network", "gru")),
    "gru, ippo, roles": (task_spec(2, 4, roles=("a", "b")), ("--network", "gru", "--algorithm_name", "ippo")),
    "entity": (entity_spec(2), ("--network", "entity")),
    "entity, ippo": (entity_spec(2), ("--network", "entity", "--algorithm_name", "ippo")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_of_the_loss_equals_finite_differences(name: str) -> None:
    spec, flags = CASES[name]
    changes = {"hidden_size": 4, "num_layers": 1, "chunk_length": 6, "ppo_epoch": 1, "mini_batch_size": None}
    config = learner_config(*flags, **changes, layer_norm="layer norm" in name)
    # an entropy that is estimated is no function whose derivative is its gradient: tested by integration elsewhere
    entropy_coef = 0.0 if spec.action.kind == "continuous" else 0.05
    algorithm = learner(spec, config, dtype=torch.float64)
    env = RaggedTask([3, 4, 2], spec, random_reward, "mixed", torch.float64)
    rollout = filled_rollout(algorithm, env, 6)
    parts: list[dict[str, torch.Tensor]] = []
    algorithm.step = lambda part, _: (parts.append(part), {"approx_kl": torch.zeros(())})[1]
    algorithm.update(rollout, 1.0, entropy_coef)
    (part,) = parts
    # away from the parameters that acted, so that ratios and values are clipped for some samples
    parameters = [*algorithm.actor.parameters(), *algorithm.critic.parameters()]
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for p in parameters:
            p.add_(0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    loss, stats = algorithm.loss(part, entropy_coef)
    assert 0.02 < stats["clip_fraction"] < 0.98
    gradients = torch.autograd.grad(loss, parameters)
    unreached = sum(not (g != 0).any() for g in gradients)
    assert unreached <= (spec.layout is not None), "only the bias of attention scores, which softmax cancels"
    step = 1e-6
    for p, g in zip(parameters, gradients):
        numeric = torch.empty_like(g)
        with torch.no_grad():
            flat, out = p.view(-1), numeric.view(-1)
            for k in range(flat.numel()):
                here = flat[k].item()
                flat[k] = here + step
                above = algorithm.loss(part, entropy_coef)[0].item()
                flat[k] = here - step
                below = algorithm.loss(part, entropy_coef)[0].item()
                flat[k] = here
                out[k] = (above - below) / (2 * step)
        torch.testing.assert_close(g, numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("flags", [
    (), ("--no_value_clip",), ("--huber_delta", "0.1"), ("--clip_param", "0.05", "--value_loss_coef", "0.3"),
    ("--huber_delta", "null"),
], ids=" ".join)  # fmt: skip
def test_the_loss_equals_a_loop_over_samples(flags: tuple[str, ...]) -> None:
    """With torch.distributions, one sample at a time, every coefficient from the configuration."""
    spec = task_spec(2, 4)
    config = learner_config("--network", "mlp", "--hidden_size", "8", "--mini_batch_size", "null", *flags)
    algorithm = learner(spec, config, dtype=torch.float64)
    rollout = filled_rollout(algorithm, RaggedTask([3, 4, 2], spec, random_reward, "mixed", torch.float64), 6)
    parts: list[dict[str, torch.Tensor]] = []
    algorithm.step = lambda part, _: (parts.append(part), {"approx_kl": torch.zeros(())})[1]
    algorithm.update(rollout, 1.0, 0.2)
    part = parts[0]
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for p in (*algorithm.actor.parameters(), *algorithm.critic.parameters()):
            p.add_(0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype))

        def error(e: float) -> float:
            delta = config.huber_delta
            return 0.5 * e * e if delta is None or abs(e) <= delta else delta * (abs(e) - 0.5 * delta)

        total, clip, clipped, kl = 0.0, config.clip_param, 0, 0.0
        values = algorithm.critic(part["obs"])[0]
        for e in range(18):
            for i in range(2):
                logits = algorithm.actor(part["obs"][:, e : e + 1])[0].log_probs[0, 0, i]
                policy = torch.distributions.Categorical(logits=logits)
                log_ratio = float(policy.log_prob(part["actions"][0, e, i]) - part["log_probs"][0, e, i])
                ratio, advantage = math.exp(log_ratio), float(part["advantages"][0, e, i])
                gain = min(ratio * advantage, min(max(ratio, 1 - clip), 1 + clip) * advantage)
                value, old, target = (float(x[0, e, i]) for x in (values, part["old_values"], part["returns"]))
                value_error = error(value - target)
                if config.value_clip:
                    value_error = max(value_error, error(old + min(max(value - old, -clip), clip) - target))
                total += -gain - 0.2 * float(policy.entropy()) + config.value_loss_coef * value_error
                clipped += abs(ratio - 1) > clip
                kl += ratio - 1 - log_ratio
        loss, stats = algorithm.loss(part, 0.2)
    assert loss.item() == pytest.approx(total / 36)
    assert stats["clip_fraction"].item() == pytest.approx(clipped / 36)
    assert stats["approx_kl"].item() == pytest.approx(kl / 36)


def part_and_learner(**changes):
    spec = task_spec(2, 4)
    config = learner_config("--network", "mlp", hidden_size=8, lr_schedule="constant", **changes)
    algorithm = learner(spec, config, dtype=torch.float64)
    rollout = filled_rollout(algorithm, RaggedTask([3, 4], spec, random_reward, "mixed", torch.float64), 6)
    return algorithm, rollout


@pytest.mark.parametrize("max_grad_norm", [1e-3, 1e9, None])
def test_gradients_are_cut_to_the_norm_for_actor_and_critic_apart(max_grad_norm: float | None) -> None:
    algorithm, rollout = part_and_learner(max_grad_norm=max_grad_norm, ppo_epoch=1, mini_batch_size=None)
    metrics = algorithm.update(rollout, 1.0, 0.0)
    for module, name in ((algorithm.actor, "actor_grad_norm"), (algorithm.critic, "critic_grad_norm")):
        after = torch.cat([p.grad.flatten() for p in module.parameters()]).norm().item()
        before = metrics[name].item()
        assert before > 1e-3
        assert after == pytest.approx(1e-3 if max_grad_norm == 1e-3 else before, rel=1e-2)


def test_a_step_is_one_of_adam_on_actor_and_critic_with_their_own_rates() -> None:
    changes = {"max_grad_norm": None, "ppo_epoch": 1, "mini_batch_size": None, "lr": 1e-3, "critic_lr": 2e-2}
    algorithm, rollout = part_and_learner(optimizer="adam", **changes)
    before = [[p.detach().clone() for p in m.parameters()] for m in (algorithm.actor, algorithm.critic)]
    algorithm.update(rollout, 0.5, 0.0)
    for old, module, lr in zip(before, (algorithm.actor, algorithm.critic), (5e-4, 1e-2)):
        for was, p in zip(old, module.parameters()):
            # the first step of Adam: m / (sqrt(v) + eps) = g / (|g| + eps)
            torch.testing.assert_close(p.detach(), was - lr * p.grad / (p.grad.abs() + algorithm.config.adam_eps))


def test_one_sample_is_enough_to_stay_finite() -> None:
    spec = task_spec(1, 4, roles=("agent",))
    for roles in (("agent",), ("one", "other")):
        spec = task_spec(len(roles), 4, roles=roles)
        algorithm = learner(spec, learner_config("--network", "mlp", hidden_size=8))
        rollout = filled_rollout(algorithm, RaggedTask([3], spec, random_reward), 1)
        algorithm.update(rollout, 1.0, 0.01)
        assert all(torch.isfinite(p).all() for p in algorithm.actor.parameters())
