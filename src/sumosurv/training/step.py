"""One training step of a population, its optimiser, and its capture as a CUDA graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from sumosurv.networks import Batch, PopulationNetwork, Rows
from sumosurv.networks.layers import MemberStream
from sumosurv.training.batches import Batches, Member
from sumosurv.training.processes import ALONE, Workers

_BETAS = 0.9, 0.999
_EPSILON = 1e-8


def weighted(values: Tensor, batch: Batch) -> Tensor:
    """Return the values times the weights of the rows, if there are weights."""
    return values if batch.outcome.weight is None else values * batch.outcome.weight


def gradients(loss: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Return the gradient of a loss, (K, P): one row per member, in the order of the parameters."""
    parts = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    with torch.no_grad():
        return torch.cat([part.reshape(len(part), -1) for part in parts], dim=1)


class PopulationAdamW:
    r"""AdamW with a learning rate and a weight decay per member.

    The parameters of the network become views of one (K, P) matrix. A step is a handful of operations on that matrix
    (on the CPU, torch's fused AdamW), and storing or restoring a member's weights copies one row. A member skips a step
    if its gradient is not finite. Gradients are summed over workers.

    .. math::
        m &\leftarrow β_1 m + (1 - β_1) g, \quad v \leftarrow β_2 v + (1 - β_2) g^2 \\
        w &\leftarrow (1 - η λ) w - η \frac{m / (1 - β_1^s)}{\sqrt{v / (1 - β_2^s)} + ε}
    """

    def __init__(
        self, network: nn.Module, learning_rate: Tensor, weight_decay: Tensor, workers: Workers = ALONE
    ) -> None:
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        members = self.parameters[0].shape[0]
        self.weights = torch.cat([p.detach().reshape(members, -1) for p in self.parameters], dim=1)
        place = 0
        for p in self.parameters:
            size = p[0].numel()
            p.data = self.weights[:, place : place + size].view(p.shape)
            place += size
        self.learning_rate = learning_rate[:, None].to(self.weights)
        self.weight_decay = weight_decay[:, None].to(self.weights)
        self.workers = workers
        self.mean, self.square = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self.count = torch.zeros_like(self.learning_rate)  # steps that each member has taken
        self._groups: dict[tuple[float, float], list[int]] = {}  # members with the same rate and decay
        for k, settings in enumerate(zip(learning_rate.tolist(), weight_decay.tolist())):
            self._groups.setdefault(settings, []).append(k)

    @torch.no_grad()
    def step(self, g: Tensor, factor: float | Tensor = 1.0) -> Tensor:
        """Take a step down a gradient (K, P), with learning rates times ``factor``; return which members took it."""
        update = self._update if g.device.type == "cuda" else self._update_on_cpu
        return update(self.workers.sum(g), factor)

    def _update_on_cpu(self, g: Tensor, factor: float | Tensor) -> Tensor:
        """Update by torch's fused AdamW, which reads and writes each number once."""
        taken = torch.isfinite(torch.linalg.vector_norm(g, dim=1))
        moves, factor = taken.tolist(), float(factor)
        self.count += taken[:, None]
        states = list(zip(*(part.unbind() for part in (self.weights, g, self.mean, self.square, self.count[:, 0]))))
        for (rate, decay), members in self._groups.items():
            own = [states[k] for k in members if moves[k]]
            if own:
                weights, gradients, means, squares, counts = map(list, zip(*own))
                torch._fused_adamw_(
                    weights,
                    gradients,
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
            workers,
        )
        self.streams = [module for module in network.modules() if isinstance(module, MemberStream)]
        self.workers, self.share = workers, workers.share(batches.size)
        for stream in self.streams:
            stream.step.zero_()
            stream.first_row = self.share.start
        own = max(1, self.share.stop - self.share.start)  # padding if there are more workers than rows
        own += -own % row_multiple
        self.index = torch.zeros(len(members), own, dtype=torch.long, device=device)
        self.present = torch.zeros(len(members), own, dtype=torch.bool, device=device)
        self.count = torch.ones(len(members), dtype=torch.long, device=device)  # rows of the batch, over all workers
        self.number = torch.zeros((), device=device)
        self.likelihood = torch.zeros(len(members), dtype=torch.float64, device=device)
        self.moved = torch.zeros(len(members), dtype=torch.bool, device=device)

    def load(self, rows: Rows) -> None:
        """Make these rows of the table the current batch; each worker takes its share."""
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
        g = gradients(-(sums / self.count).sum(), self.optimiser.parameters)
        self.moved |= self.optimiser.step(g, 0.5 * (1 + torch.cos(self.number * (math.pi / self.total))))
        self.likelihood += sums.detach()
        self.number += 1

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
