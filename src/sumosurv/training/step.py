"""One step of training a population, and its capture as a single CUDA graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sumosurv.networks import Batch, PopulationNetwork, Rows
from sumosurv.networks.layers import MemberStream
from sumosurv.training.batches import Batches
from sumosurv.training.data import Member, Schedule
from sumosurv.training.optimiser import PopulationAdamW

__all__ = ["TrainingStep", "captured", "weighted"]


def weighted(values: Tensor, batch: Batch) -> Tensor:
    """Values of the rows of a batch times their weights, where they have any."""
    return values if batch.outcome.weight is None else values * batch.outcome.weight


class TrainingStep:
    """Forward, backward and update on the batch that was loaded last.

    Everything the step reads or writes lives in tensors that stay in place, counters included, so that
    calling it again and replaying it as a CUDA graph are the same thing. Of several workers each has its share of the
    batch, and the gradients are summed.
    """

    def __init__(
        self, network: PopulationNetwork, batches: Batches, members: Sequence[Member], schedule: Schedule
    ) -> None:
        self.network, self.table, self.decay = network, batches.table, schedule.decay
        device = self.table.device
        self.total = batches.per_epoch * schedule.max_epochs
        self.optimiser = PopulationAdamW(
            network,
            torch.tensor([member.learning_rate for member in members], dtype=torch.float64, device=device),
            torch.tensor([member.weight_decay for member in members], dtype=torch.float64, device=device),
            max_norm=schedule.max_norm,
            workers=schedule.workers,
        )
        self.streams = [module for module in network.modules() if isinstance(module, MemberStream)]
        self.workers, self.share = schedule.workers, schedule.workers.share(batches.size)
        for stream in self.streams:
            stream.step.zero_()
            stream.first_row = self.share.start
        own = max(1, self.share.stop - self.share.start)  # padding, where there are more workers than rows
        self.index = torch.zeros(len(members), own, dtype=torch.long, device=device)
        self.present = torch.zeros(len(members), own, dtype=torch.bool, device=device)
        self.count = torch.ones(len(members), dtype=torch.long, device=device)  # rows of the batch, of all workers
        self.number = torch.zeros((), device=device)
        self.likelihood = torch.zeros(len(members), dtype=torch.float64, device=device)
        self.moved = torch.zeros(len(members), dtype=torch.bool, device=device)

    def load(self, rows: Rows) -> None:
        """Make some rows of the table the current batch, of which each worker takes its share."""
        own = rows.columns(self.share)
        self.present.zero_()
        self.index[:, : own.index.shape[1]] = own.index
        self.present[:, : own.index.shape[1]] = own.present
        self.count.copy_(rows.present.sum(1).clamp_min(1))

    def __call__(self) -> None:
        """Take one step."""
        for stream in self.streams:
            stream.step += 1
        batch = self.table.batch(self.index, self.present)
        likelihood = weighted(torch.where(self.present, self.network.terms(batch), 0.0), batch)
        sums = likelihood.sum(1)
        loss = -(sums / self.count).sum()
        factor = (
            0.5 * (1 + torch.cos(self.number * (math.pi / self.total))) if self.decay else torch.ones_like(self.number)
        )
        self.moved |= self.optimiser.step(loss, factor)
        self.likelihood += sums.detach()
        self.number += 1

    def end_epoch(self) -> tuple[Tensor, Tensor]:
        """Sums of log-likelihood since the last call, and which members moved at all."""
        likelihood, moved = self.workers.sum(self.likelihood.clone()), self.moved.clone()
        self.likelihood.zero_()
        self.moved.zero_()
        return likelihood, moved

    def state(self) -> list[Tensor]:
        """All tensors that a step changes."""
        own = [self.number, self.likelihood, self.moved, *self.network.buffers()]
        adam = self.optimiser
        return [*own, adam.weights, adam.mean, adam.square, adam.count]


def captured(step: TrainingStep) -> Callable[[], None]:
    """The step as one CUDA graph: a replay launches all of its kernels at once, with no work on the host.

    A network whose step cannot be captured (an encoder of the user's own that waits for the device) gets
    the step as it is, and so do one that says so itself (``capturable``) and several workers. That it does not fit
    into memory is another matter, and raised.
    """
    if not step.network.capturable or step.workers.size > 1:
        return step
    before = [tensor.clone() for tensor in step.state()]
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    step.network.train()
    run: Callable[[], None] = graph.replay
    try:
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            step()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # torch has no kind of its own for what a graph cannot hold
        torch.cuda.synchronize()
        run = step
    for tensor, value in zip(step.state(), before):
        tensor.copy_(value)
    return run
