"""One run on several processes, as torchrun starts them; without it, one process is alone.

Every process has the whole model and draws the batch of a step, which is a function of the seed and
the step. It computes the gradients of its rows. The gradients are averaged by hand, in one buffer:
`DistributedDataParallel` would put hooks on the model, and the C code declines a model with hooks.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
)
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lengthwise.base import UsageError

A = TypeVar("A")
B = TypeVar("B")


class Alone:
    """One process: the whole batch is its own, and it waits for nobody."""

    rank, size = 0, 1

    @property
    def leads(self) -> bool:
        """Whether this process writes the run's directory."""
        return self.rank == 0

    def rows(self, batch_size: int) -> slice | None:
        """Which rows of a batch this process computes; None: all."""
        return None

    def average(self, model: nn.Module, loss: Tensor, share: float) -> Tensor:
        """Make gradients those of the whole batch, of which this process has had a share.

        Returns the loss of the whole batch.
        """
        return loss

    def add_up(self, counts: Tensor) -> None:
        """Add the counts of all processes to those of the first, and clear the others."""

    def keep_first(self, counts: Tensor) -> None:
        """Clear the counts of all processes but the first, which all read from one file."""

    def any(self, flag: bool) -> bool:
        """Whether the flag is true in any process."""
        return flag

    def map(self, function: Callable[[A], B], items: Sequence[A]) -> list[B]:
        """The results for all items, of which each process computes some."""
        return [function(item) for item in items]

    def first_goes_first(self) -> AbstractContextManager[None]:
        """The first process enters the block, then the others do."""
        return nullcontext()

    def wait(self) -> None:
        """Wait until all processes are here."""

    def only_first_prints(self) -> AbstractContextManager[None]:
        return nullcontext()


ALONE = Alone()


class Group(Alone):
    """Several processes that train one run."""

    def __init__(self, backend: str):
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if backend == "nccl":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group(backend)
        # Flags and results go another way than gradients, so that they don't wait for a GPU.
        self.control: Any = dist.new_group(backend="gloo")

    def rows(self, batch_size: int) -> slice | None:
        if batch_size < self.size:
            raise UsageError(
                f"training.batch_size is {batch_size}, fewer than the {self.size} processes"
            )
        return slice(batch_size * self.rank // self.size, batch_size * (self.rank + 1) // self.size)

    def average(self, model: nn.Module, loss: Tensor, share: float) -> Tensor:
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        buffer = torch.cat([*(g.flatten() for g in gradients), loss.detach().reshape(1)])
        buffer *= share
        with connection():
            dist.all_reduce(buffer)
        *parts, total = buffer.split([*(g.numel() for g in gradients), 1])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))
        return total[0]

    def add_up(self, counts: Tensor) -> None:
        with connection():
            dist.all_reduce(counts)
        self.keep_first(counts)

    def keep_first(self, counts: Tensor) -> None:
        if not self.leads:
            counts.zero_()

    def any(self, flag: bool) -> bool:
        flags = torch.tensor([int(flag)])
        with connection():
            dist.all_reduce(flags, group=self.control)
        return bool(flags.item())

    def map(self, function: Callable[[A], B], items: Sequence[A]) -> list[B]:
        own = [function(item) for item in items[self.rank :: self.size]]
        parts: list[list[B]] = [[] for _ in range(self.size)]
        with connection():
            dist.all_gather_object(parts, own, group=self.control)
        return [parts[i % self.size][i // self.size] for i in range(len(items))]

    @contextmanager
    def first_goes_first(self) -> Iterator[None]:
        if not self.leads:
            self.wait()
        yield
        if self.leads:
            self.wait()

    def wait(self) -> None:
        with connection():
            dist.barrier(group=self.control)

    @contextmanager
    def only_first_prints(self) -> Iterator[None]:
        with ExitStack() as stack:
            if not self.leads:
                nowhere = stack.enter_context(open(os.devnull, "w"))
                stack.enter_context(redirect_stdout(nowhere))
                stack.enter_context(redirect_stderr(nowhere))
            yield


@contextmanager
def connection() -> Iterator[None]:
    """Say in one sentence that another process is gone."""
    try:
        yield
    except RuntimeError:
        raise UsageError(
            "another process of this run ended; the same command goes on from the last checkpoint"
        ) from None


def is_started_by_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


@cache
def join(device_type: str) -> Alone:
    """The processes that torchrun started to train one run; else this one alone."""
    if not is_started_by_torchrun():
        return ALONE
    return Group("nccl" if device_type == "cuda" else "gloo")
