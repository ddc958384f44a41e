"""Any PettingZoo ``ParallelEnv`` as a batched task: many copies, stepped in worker processes."""

from __future__ import annotations

from typing import Any

import torch

from envs.base import BatchEnv


class PettingZooEnv(BatchEnv):
    """``num_envs`` copies of ``module.function(**kwargs)``; see ``__init__`` (constructor fixed, body in the works)."""

    def __init__(
        self,
        module: str,
        function: str,
        kwargs: dict[str, Any],
        *,
        num_envs: int,
        num_workers: int | None = None,
        timeout: float = 60.0,
        auto_reset: bool = True,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        env_id: str,
        backend: str,
        settings: dict[str, Any],
    ) -> None:
        raise NotImplementedError
