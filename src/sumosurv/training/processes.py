"""The device, the number of threads, and the processes that train one population together."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor

from sumosurv.networks import ModuleEncoder, PopulationNetwork, TrainingError

_ONE_THREAD_WORK = 2e8  # multiply-adds per step below which a second thread does not pay
_TIMEOUT = timedelta(minutes=10)  # for which a process waits for the others


def find_device(name: str) -> torch.device:
    """Return the device for "auto" (CUDA if available), "cpu" or "cuda"."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device must be 'auto', 'cpu' or 'cuda'; got {name!r}.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda' requires a CUDA device, and torch finds none; use device='auto' or 'cpu'.")
    return device


@contextmanager
def threads(work: float = 0.0) -> Iterator[None]:
    """Use one thread if a step is small, because several would mostly wait for each other; else torch's number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if work < _ONE_THREAD_WORK else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def explain_memory(remedy: str) -> Iterator[None]:
    """Add a remedy to errors of exhausted GPU memory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise torch.OutOfMemoryError(f"The GPU's memory is exhausted. {remedy} ({error})") from error


@dataclass(frozen=True)
class Workers:
    """The processes that train one population together; `ALONE` is a single process.

    Every worker has all rows and the same seeds. In each step, a worker computes the terms of its share of every
    member's batch, and gradients are summed over workers. All workers therefore have the same weights, equal to those
    of a single process up to the order of summation.
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the worker that writes files and shows progress."""
        return self.rank == 0

    def share(self, n: int) -> slice:
        """Return this worker's share of n positions; the shares of all workers differ by at most one in size."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum over all workers."""
        return self.start_sum(value)(value)

    def start_sum(self, like: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a function that sums tensors of this shape over all workers; it must be called once.

        Receives start now. If they started when the tensor is ready, a thread of Gloo would first have to tell the
        sender so, and it gets no core while the other workers compute.
        """
        if self.size == 1:
            return lambda value: value
        if like.is_cuda or self.size & (self.size - 1):
            return self._all_reduce
        partners = [self.rank ^ 1 << k for k in range(self.size.bit_length() - 1)]  # pairs, then pairs of pairs
        buffers = [torch.empty_like(like, memory_format=torch.contiguous_format) for _ in partners]
        receives = [torch.distributed.irecv(buffer, partner) for buffer, partner in zip(buffers, partners)]

        def total(value: Tensor) -> Tensor:
            for partner, buffer, receive in zip(partners, buffers, receives):
                for work in (torch.distributed.isend(value.contiguous(), partner), receive):
                    assert work is not None
                    work.wait()
                value = value + buffer
            return value

        return total

    def _all_reduce(self, value: Tensor) -> Tensor:
        value = value.contiguous()
        torch.distributed.all_reduce(value)
        return value

    def check_agreement(self, text: str) -> None:
        """Raise a TrainingError if this text is not the same in all workers."""
        if self.size == 1:
            return
        own = torch.frombuffer(bytearray(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8).to(torch.int32)
        own = own.cuda() if torch.distributed.get_backend() == "nccl" else own
        least, most = own.clone(), own.clone()
        torch.distributed.all_reduce(least, torch.distributed.ReduceOp.MIN)
        torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
        if not bool((least == most).all()):
            raise TrainingError(
                "The processes that train together have different rows, settings, seeds or checkpoints; give all of "
                "them the same data, a random_state, and a checkpoint folder that all machines can access."
            )


ALONE = Workers()


def launched_by_torchrun() -> bool:
    """Whether this process is one of several that ``torchrun`` started."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def torchrun_workers(device: str = "auto") -> Iterator[Workers]:
    """Join the processes that ``torchrun`` started: by NCCL if each has its own GPU, by Gloo otherwise.

    Pass the workers to ``fit(X, y, workers=workers)``. A process that torchrun did not start trains alone.

    Parameters
    ----------
    device : str
        The estimator's ``device``: "auto", "cpu" or "cuda".
    """
    if not launched_by_torchrun():
        yield ALONE
        return
    rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    here = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    on_gpu = device != "cpu" and torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(local % torch.cuda.device_count())
    # processes cannot share a GPU with NCCL; with Gloo they can, through host memory
    backend = "nccl" if on_gpu and here <= torch.cuda.device_count() else "gloo"
    store = None
    if here == size:
        # restarted processes share a store with those that were killed: without a prefix, they may read old addresses
        store, _, _ = next(torch.distributed.rendezvous("env://", timeout=_TIMEOUT))  # type: ignore[attr-defined]
        store = torch.distributed.PrefixStore(os.environ["TORCHELASTIC_RESTART_COUNT"], store)  # type: ignore[attr-defined]
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_TIMEOUT)
    try:
        yield Workers(rank, size)
    finally:
        torch.distributed.destroy_process_group()


def check_shareable(network: PopulationNetwork, workers: Workers) -> None:
    """Raise a ValueError if the rows of a batch cannot be shared by several processes."""
    if workers.size == 1:
        return
    if not network.rows_are_separate:
        raise ValueError(
            f"The loss of a {type(network).__name__} depends on all rows of a batch, so it cannot be "
            "trained in several processes; fit it in one process."
        )
    if any(isinstance(part, ModuleEncoder) and part.has_buffers for part in network.modules()):
        raise ValueError(
            "The encoder uses batch normalisation, which is not supported in several processes; use "
            "layer normalisation, or fit in one process."
        )
