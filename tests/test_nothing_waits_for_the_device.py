"""Collecting and learning never look at a tensor's value on the host: on an accelerator that would stop the queue."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from envs.mpe.simple_spread import BatchedSimpleSpread
from learner_tools import CPU, learner_config
from navrl.algorithms.mappo import MAPPO
from navrl.config_sources import load
from runners.on_policy import OnPolicyRunner

# what reads values on the host, or has a result whose shape depends on them
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "unique", "_unique2")


class Looked(AssertionError):
    pass


class NoLooking(TorchDispatchMode):
    """Raises where an operation would wait for the device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::").partition(".")[0]
        if name in WAITING:
            raise Looked(f"{name} waits for the device")
        indices = args[1] if name in ("index", "index_put_") else ()
        if any(isinstance(i, torch.Tensor) and i.dtype == torch.bool for i in indices):
            raise Looked(f"{name} with a mask waits for the device")
        return func(*args, **(kwargs or {}))


READING = ("item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "__array__")


@contextmanager
def no_looking() -> Iterator[None]:
    """Fail on whatever reads a tensor's values on the host."""

    def refuse(name: str):
        def method(self, *args, **kwargs):
            raise Looked(f"Tensor.{name}() waits for the device")

        return method

    with pytest.MonkeyPatch.context() as patch, NoLooking():
        for name in READING:
            patch.setattr(torch.Tensor, name, refuse(name))
        yield


@pytest.mark.parametrize("look", [
    lambda x: x.sum().item(), lambda x: bool(x.any()), lambda x: float(x[0]), lambda x: x[x > 0],
    lambda x: x.nonzero(), lambda x: x.cpu(), lambda x: x.numpy(), lambda x: x.tolist(), lambda x: int(x[0]),
])  # fmt: skip
def test_looking_is_noticed(look) -> None:
    x = torch.ones(3)
    with pytest.raises(Looked), no_looking():
        look(x)


@pytest.mark.parametrize("flags", [
    (),
    ("--network", "mlp", "--value_norm", "popart", "--continuous_actions"),
    ("--network", "mlp", "--algorithm_name", "ippo", "--no_share_policy"),
    ("--network", "gru", "--rollout_length", "20", "--chunk_length", "5", "--mini_batch_size", "40"),
    ("--terminate_on_success", "--max_cycles", "6"),
    ("--num_agent_neighbors", "1", "--num_landmark_neighbors", "5"),
], ids=lambda flags: " ".join(flags) or "default")  # fmt: skip
def test_collecting_and_learning_look_at_nothing(flags: tuple[str, ...]) -> None:
    config = learner_config(*flags, num_envs=32)
    env = BatchedSimpleSpread(32, load(list(flags), {}).config.task_settings())
    runner = OnPolicyRunner(config, env, MAPPO(env.spec, config, CPU, 1), 1)
    with no_looking():
        for _ in range(2):
            metrics, _ = runner.iterate()
    assert metrics["policy_loss"].shape == () and runner.episodes.total() > 0
