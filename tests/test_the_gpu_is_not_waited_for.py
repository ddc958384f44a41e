"""On a real GPU collecting and learning never wait for it, and everything they hold lies on it.

test_nothing_waits_for_the_device.py promises the first on any machine, by what operators are called; here CUDA itself
is asked. Where there is no GPU these tests are skipped; benchmarks/gpu.sh runs them where there is one.
"""

from __future__ import annotations

import pytest
import torch

from envs.mpe.simple_spread import BatchedSimpleSpread
from learner_tools import learner_config
from navrl.algorithms.mappo import MAPPO
from navrl.config_sources import load
from runners.on_policy import OnPolicyRunner

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU that PyTorch can use")

FLAGS = [(), ("--network", "mlp"), ("--network", "gru"), ("--continuous_actions", "true"), ("--optimizer", "adam")]


def make_runner(flags: tuple[str, ...], device: str) -> OnPolicyRunner:
    config = learner_config(*flags, num_envs=32)
    env = BatchedSimpleSpread(32, load(list(flags), {}).config.task_settings(), device=device)
    return OnPolicyRunner(config, env, MAPPO(env.spec, config, torch.device(device), 1), 1)


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: " ".join(flags) or "default")
def test_an_iteration_synchronises_nothing(flags: tuple[str, ...]) -> None:
    runner = make_runner(flags, "cuda")
    runner.iterate()  # libraries and optimisers' moments are set up by the first one
    torch.cuda.set_sync_debug_mode("error")
    try:
        metrics, _ = runner.iterate()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(value.is_cuda and bool(torch.isfinite(value)) for value in metrics.values())


def test_what_is_held_lies_on_the_gpu() -> None:
    runner = make_runner((), "cuda")
    runner.iterate()
    held = [*vars(runner.rollout).values(), *vars(runner.env.world).values(), runner.obs, runner.starts,
            *runner.algorithm.actor.state_dict().values(), *runner.algorithm.critic.state_dict().values()]  # fmt: skip
    elsewhere = [tensor.shape for tensor in held if isinstance(tensor, torch.Tensor) and not tensor.is_cuda]
    assert not elsewhere


def test_both_devices_play_the_same_episodes() -> None:
    envs = [BatchedSimpleSpread(64, dtype=torch.float64, device=device) for device in ("cpu", "cuda")]
    observations = [env.reset(7).cpu() for env in envs]
    torch.testing.assert_close(*observations, rtol=0, atol=1e-12)
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):  # across two resets
        actions = torch.randint(0, 5, (64, 3), generator=generator)
        here, there = (env.step(actions.to(env.device)) for env in envs)
        torch.testing.assert_close(here.obs, there.obs.cpu(), rtol=0, atol=1e-6)
        torch.testing.assert_close(here.reward, there.reward.cpu(), rtol=0, atol=1e-6)
