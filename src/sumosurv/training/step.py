"""One training step of a population, its optimiser, and its capture as a CUDA graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sumosurv.networks import PopulationNetwork, Rows
from sumosurv.networks.layers import MemberStream
from sumosurv.networks.recorded import RecordedNetwork, can_record
from sumosurv.training.batches import Batches, Member
from sumosurv.training.processes import ALONE, Workers

_BETAS = 0.9, 0.999
_EPSILON = 1e-8
# on a CPU, rows and parameters begin at multiples of so many numbers: products round differently if alignments differ
_ALIGNMENT = 16


class PopulationAdamW:
    r"""AdamW with a learning rate and a weight decay per member.

    The parameters of the network become views of one (K, P) matrix. A step is a handful of operations on that matrix
    (on the CPU, torch's fused AdamW), and storing or restoring a member's weights copies one row. A member skips a step
    if its gradient is not finite. Gradients are matrices of the same layout.

    .. math::
        m &\leftarrow β_1 m + (1 - β_1) g, \quad v \leftarrow β_2 v + (1 - β_2) g^2 \\
        w &\leftarrow (1 - η λ) w - η \frac{m / (1 - β_1^s)}{\sqrt{v / (1 - β_2^s)} + ε}
    """

    def __init__(self, network: nn.Module, learning_rate: Tensor, weight_decay: Tensor) -> None:
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        sizes = [p[0].numel() for p in self.parameters]
        self._gaps = [0 if p.is_cuda else -size % _ALIGNMENT for p, size in zip(self.parameters, sizes)]
        total = sum(sizes) + sum(self._gaps)
        self.weights = self.parameters[0].detach().new_zeros(len(self.parameters[0]), total)
        for p, view in zip(self.parameters, self.views(self.weights)):
            view.copy_(p.detach())
            p.data = view
        self.learning_rate = learning_rate[:, None].to(self.weights)
        self.weight_decay = weight_decay[:, None].to(self.weights)
        self.mean, self.square = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self.count = torch.zeros_like(self.learning_rate)  # steps that each member has taken
        same: dict[tuple[float, float], list[int]] = {}  # members with the same rate and decay
        for k, settings in enumerate(zip(learning_rate.tolist(), weight_decay.tolist())):
            same.setdefault(settings, []).append(k)
        states = self.weights, self.mean, self.square, self.count[:, 0]
        self._groups: list[tuple[Any, ...]] = [
            (*settings, members, *([state[k] for k in members] for state in states))
            for settings, members in same.items()
        ]

    def views(self, matrix: Tensor) -> list[Tensor]:
        """Return the parts of a matrix that belong to the parameters, in their shapes."""
        sizes = [p[0].numel() for p in self.parameters]
        parts = torch.split(matrix, [size + gap for size, gap in zip(sizes, self._gaps)], dim=1)
        return [part[:, :size].view(p.shape) for part, size, p in zip(parts, sizes, self.parameters)]

    def gradient(self, loss: Tensor) -> Tensor:
        """Return the gradient of a loss, one row per member."""
        parts = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            flat = [functional.pad(part.reshape(len(part), -1), (0, gap)) for part, gap in zip(parts, self._gaps)]
            return torch.cat(flat, dim=1)

    @torch.no_grad()
    def step(self, g: Tensor, factor: float | Tensor = 1.0) -> Tensor:
        """Take a step down a gradient (K, P), with learning rates times ``factor``; return which members took it."""
        update = self._update if g.device.type == "cuda" else self._update_on_cpu
        return update(g, factor)

    def _update_on_cpu(self, g: Tensor, factor: float | Tensor) -> Tensor:
        """Update by torch's fused AdamW, which reads and writes each number once."""
        taken = torch.isfinite(torch.linalg.vector_norm(g, dim=1))
        moves, factor = taken.tolist(), float(factor)
        self.count += taken[:, None]
        rows = g.unbind()
        for rate, decay, members, *states in self._groups:
            own = [rows[k] for k in members]
            if not all(moves[k] for k in members):
                kept = [place for place, k in enumerate(members) if moves[k]]
                own, *states = ([part[place] for place in kept] for part in (own, *states))
            if own:
                weights, means, squares, counts = states
                torch._fused_adamw_(
                    weights,
                    own,
                    means,
                    squares,
                    [],
                    counts,
                    lr=rate * factor,
                    beta1=_BETAS[0],
                    beta2=_BETAS[1],
                    weight_decay=decay,
                    eps=_EPSILON,
                    amsgrad=False,
                    maximize=False,
                )
        return taken

    def _update(self, g: Tensor, factor: float | Tensor) -> Tensor:
        """Update by operations on whole matrices, without value-dependent control flow, as a CUDA graph requires."""
        taken = torch.isfinite(torch.linalg.vector_norm(g, dim=1, keepdim=True))
        g = torch.where(taken, g, 0.0)
        beta1, beta2 = _BETAS
        step = taken.to(g.dtype)
        self.count += step
        weight1, weight2 = (1 - beta1) * step, (1 - beta2) * step
        self.mean.lerp_(g, weight1.expand_as(g))
        self.square.lerp_(g * g, weight2.expand_as(g))
        rate = self.learning_rate * factor * step
        safe = self.count.clamp_min(1.0)
        denominator = (self.square.sqrt() / (1 - beta2**safe).sqrt()).add_(_EPSILON)
        self.weights.mul_(1 - rate * self.weight_decay)
        self.weights.sub_(self.mean / denominator * (rate / (1 - beta1**safe)))
        return taken[:, 0]


class TrainingStep:
    """Forward pass, backward pass and update on the batch loaded last, with cosine decay of the learning rates.

    All tensors that the step reads or writes, counters included, stay in place, so that calling the step and replaying
    it as a CUDA graph are equivalent. Each of several workers has its share of the batch, and gradients are summed.
    """

    def __init__(
        self,
        network: PopulationNetwork,
        batches: Batches,
        members: Sequence[Member],
        max_epochs: int,
        workers: Workers = ALONE,
        row_multiple: int = 1,
    ) -> None:
        self.network, self.table = network, batches.table
        device = self.table.device
        self.total = batches.per_epoch * max_epochs
        self.optimiser = PopulationAdamW(
            network,
            torch.tensor([member.learning_rate for member in members], dtype=torch.float64, device=device),
            torch.tensor([member.weight_decay for member in members], dtype=torch.float64, device=device),
        )
        self.streams = [module for module in network.modules() if isinstance(module, MemberStream)]
        self.workers, self.share = workers, workers.share(batches.size)
        self.draws = torch.zeros((), dtype=torch.int32, device=device)  # counts the random numbers of all streams
        for stream in self.streams:
            stream.step, stream.first_row = self.draws, self.share.start
        own = max(1, self.share.stop - self.share.start)  # padding if there are more workers than rows
        own += -own % row_multiple
        self.index = torch.zeros(len(members), own, dtype=torch.long, device=device)
        self.present = torch.zeros(len(members), own, dtype=torch.bool, device=device)
        self.count = torch.ones(len(members), dtype=torch.long, device=device)  # rows of the batch, over all workers
        self.number = torch.zeros((), device=device)
        self.likelihood = torch.zeros(len(members), dtype=torch.float64, device=device)
        self.moved = torch.zeros(len(members), dtype=torch.bool, device=device)
        self.recorded: RecordedNetwork | None = None
        if can_record(network, self.table, training=True):
            self.gradient = torch.zeros_like(self.optimiser.weights)
            views = dict(zip(self.optimiser.parameters, self.optimiser.views(self.gradient)))
            self.recorded = RecordedNetwork(network, self.table, self.index, views)

    def load(self, rows: Rows) -> None:
        """Make these rows of the table the current batch; each worker takes its share."""
        own = rows.columns(self.share)
        self.present.zero_()
        self.index[:, : own.index.shape[1]] = own.index
        self.present[:, : own.index.shape[1]] = own.present
        self.count.copy_(rows.present.sum(1).clamp_min(1))

    def __call__(self) -> None:
        """Take one step."""
        total = self.workers.start_sum(self.optimiser.weights)
        self.draws += 1
        weight = self.table.row_weights(self.index)
        if self.recorded is None:
            terms = self.network.terms(self.table.batch(self.index, self.present))
        else:
            terms = self.recorded.terms_and_gradient(self.present * (weight / self.count[:, None]))
        sums = (torch.where(self.present, terms, 0.0) * weight).sum(1)
        g = self.gradient if self.recorded else self.optimiser.gradient(-(sums / self.count).sum())
        self.moved |= self.optimiser.step(total(g), self._decay())
        self.likelihood += sums.detach()
        self.number += 1

    def _decay(self) -> float | Tensor:
        if self.number.is_cuda:  # without waiting for the device
            return 0.5 * (1 + torch.cos(self.number * (math.pi / self.total)))
        return 0.5 * (1 + math.cos(float(self.number) * math.pi / self.total))

    def end_epoch(self) -> tuple[Tensor, Tensor]:
        """Return the sums of log-likelihoods since the last call, and which members took a step."""
        likelihood, moved = self.workers.sum(self.likelihood.clone()), self.moved.clone()
        self.likelihood.zero_()
        self.moved.zero_()
        return likelihood, moved

    def state(self) -> list[Tensor]:
        """Return all tensors that a step changes."""
        adam = self.optimiser
        own = [self.number, self.likelihood, self.moved, *self.network.buffers()]
        return [*own, adam.weights, adam.mean, adam.square, adam.count]


def as_cuda_graph(step: TrainingStep) -> Callable[[], None]:
    """Return the step as one CUDA graph: a replay launches all of its kernels at once, without work on the host.

    The step itself is returned if the network is not ``capturable``, if there are several workers, or if the capture
    fails (for example because a custom encoder synchronises). Exhausted memory is an error.
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
    except RuntimeError:  # torch has no specific error class for a failed capture
        torch.cuda.synchronize()
        run = step
    for tensor, value in zip(step.state(), before):
        tensor.copy_(value)
    return run
