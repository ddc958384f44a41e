"""One run in several processes: how what each rank has becomes what one process would have.

Every rank holds an equal share of the environment copies and the same parameters. What is a mean over all samples is the
mean of the ranks' means; so K ranks with E/K copies learn what one process with E copies learns, up to rounding.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

# A rank that died closes its connections and is noticed at once; this bounds the wait for a machine that vanished, and
# must outlast rank 0's evaluations, during which the others wait.
PATIENCE = datetime.timedelta(hours=6)


class RankLost(RuntimeError):
    """Another process of this run ended, or cannot be reached any more."""


class RankFailed(RuntimeError):
    """Another process of this run met an error; the message says which one and what."""


class Ranks:
    """This process's place in the run. A run in one process is rank 0 of 1, for which nothing here costs anything."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @property
    def first(self) -> bool:
        """Whether this process reports, evaluates and saves."""
        return self.rank == 0

    def own(self, draw: Callable[[torch.Tensor], torch.Tensor], like: torch.Tensor) -> torch.Tensor:
        """This rank's part of random numbers drawn for all copies: ``like`` ``[..., E, N, A]`` is this rank's shape.

        ``draw`` fills a tensor in place. All ranks draw the same numbers from equal generators, so that what copy i
        gets does not depend on how copies are split.
        """
        if self.size == 1:
            return draw(torch.empty_like(like))
        copies = like.shape[-3]
        whole = draw(like.new_empty(*like.shape[:-3], copies * self.size, *like.shape[-2:]))
        return whole.narrow(-3, self.rank * copies, copies).contiguous()

    def mean(self, x: torch.Tensor) -> torch.Tensor:
        """Mean over ranks of a tensor of any shape. Raises RankLost."""
        if self.size == 1:
            return x
        total = x.clone()
        with _noticing_loss():
            dist.all_reduce(total)
        return total / self.size

    def std_mean(self, x: torch.Tensor, dims: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Population standard deviation and mean over ``dims`` (kept, of length 1) and over ranks. Raises RankLost."""
        if self.size == 1:
            return torch.std_mean(x, tuple(dims), correction=0, keepdim=True)
        mean = self.mean(x.mean(dims, keepdim=True))
        return self.mean((x - mean).square().mean(dims, keepdim=True)).sqrt(), mean

    def average_gradients(self, parameters: Iterator[torch.nn.Parameter]) -> None:
        """Replace each gradient by its mean over ranks, in one message. Raises RankLost."""
        if self.size == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        with _noticing_loss():
            dist.all_reduce(flat)
        flat /= self.size
        for gradient, mean in zip(gradients, flat.split([gradient.numel() for gradient in gradients])):
            gradient.copy_(mean.view_as(gradient))

    def sum_at_first(self, x: torch.Tensor) -> None:
        """In place: rank 0's tensor becomes the sum over ranks, the others' zero. Raises RankLost."""
        self._reduce(x, dist.ReduceOp.SUM, 0.0)

    def max_at_first(self, x: torch.Tensor) -> None:
        """In place: rank 0's tensor becomes the largest of all ranks', the others' −∞. Raises RankLost."""
        self._reduce(x, dist.ReduceOp.MAX, -torch.inf)

    def _reduce(self, x: torch.Tensor, operation: dist.ReduceOp.RedOpType, nothing: float) -> None:
        if self.size == 1:
            return
        with _noticing_loss():
            dist.reduce(x, 0, operation)
        if not self.first:
            x.fill_(nothing)

    def largest(self, *numbers: int) -> list[int]:
        """The largest over ranks of each whole number. Raises RankLost."""
        if self.size == 1:
            return list(numbers)
        together = torch.tensor(numbers)
        with _noticing_loss():
            dist.all_reduce(together, dist.ReduceOp.MAX)
        return together.tolist()

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value (anything that pickles), on every rank. Raises RankLost."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with _noticing_loss():
            dist.all_gather_object(values, value)
        return values

    def from_first(self, value: Any = None) -> Any:
        """Rank 0's value (anything that pickles), on every rank. Raises RankLost."""
        if self.size == 1:
            return value
        values = [value]
        with _noticing_loss():
            dist.broadcast_object_list(values, 0)
        return values[0]

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """An error in here on one rank is an error on all: RankFailed there, so that none waits for one that gave up.

        Raises RankLost where a rank has gone altogether.
        """
        if self.size == 1:
            yield
            return
        error: Exception | None = None
        try:
            yield
        except RankLost:
            raise
        except Exception as caught:
            error = caught
        if self.largest(int(error is not None))[0]:
            errors = self.gather(None if error is None else f"{type(error).__name__}: {error}")
            if error is not None:
                raise error
            where, what = next((rank, text) for rank, text in enumerate(errors) if text is not None)
            raise RankFailed(f"rank {where}: {what}")


ALONE = Ranks()


@contextlib.contextmanager
def connected(ranks: Ranks, device: torch.device, meet: str | None = None) -> Iterator[None]:
    """The ranks can talk in here: gloo between CPUs, NCCL for tensors on GPUs. Raises RankLost where they cannot.

    meet: the file over which they find each other; None: as torchrun's variables say.
    """
    if ranks.size == 1:
        yield
        return
    with _noticing_loss():
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        store = dist.FileStore(meet, ranks.size) if meet else None
        dist.init_process_group(backend, timeout=PATIENCE, rank=ranks.rank, world_size=ranks.size, store=store)
    try:
        yield
    finally:
        dist.destroy_process_group()


def local_device(name: str, ranks: Ranks) -> str:
    """``device: cuda`` of a rank is its own GPU of this machine."""
    return f"cuda:{os.environ.get('LOCAL_RANK', ranks.rank)}" if name == "cuda" and ranks.size > 1 else name


@contextlib.contextmanager
def _noticing_loss() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # gloo and NCCL have no class of their own for a peer that has gone
        what = re.sub(r"^(\[[^]]*\] ?)+", "", str(error).splitlines()[0]).partition(". ")[0]
        raise RankLost(f"another process of this run has ended or cannot be reached ({what})") from error
