"""AdamW for a population: all weights of member k are row k of one matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sumosurv.training.parallel import ALONE, Workers

__all__ = ["PopulationAdamW"]


class PopulationAdamW:
    r"""AdamW with a learning rate and a weight decay per member.

    The parameters of the network become views of one (K, P) matrix; a step is then a handful of
    operations on that matrix, and keeping or restoring a member's weights is copying a row. A member
    whose gradient is not finite is left as it is in that step. The gradient is the sum of those of all workers.

    .. math::
        m &\leftarrow β_1 m + (1 - β_1) g, \quad v \leftarrow β_2 v + (1 - β_2) g^2 \\
        w &\leftarrow (1 - η λ) w - η \frac{m / (1 - β_1^s)}{\sqrt{v / (1 - β_2^s)} + ε}
    """

    def __init__(
        self,
        network: nn.Module,
        learning_rate: Tensor,
        weight_decay: Tensor,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        max_norm: float = math.inf,
        workers: Workers = ALONE,
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
        self.betas, self.epsilon, self.max_norm, self.workers = betas, epsilon, max_norm, workers
        self.mean, self.square = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self.count = torch.zeros_like(self.learning_rate)  # steps that each member has really taken

    def step(self, loss: Tensor, factor: float | Tensor = 1.0) -> Tensor:
        """One step down the loss, all learning rates times ``factor``; tells which members took it."""
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            g = torch.cat([part.reshape(len(self.weights), -1) for part in gradients], dim=1)
            return self._update(self.workers.sum(g), factor)

    def _update(self, g: Tensor, factor: float | Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(g, dim=1, keepdim=True)
        taken = torch.isfinite(norm)
        g = torch.where(taken, g, 0.0)
        if math.isfinite(self.max_norm):
            g = g * (self.max_norm / norm.clamp_min(self.max_norm)).nan_to_num()
        beta1, beta2 = self.betas
        step = taken.to(g.dtype)
        self.count += step
        weight1, weight2 = (1 - beta1) * step, (1 - beta2) * step
        self.mean.lerp_(g, weight1.expand_as(g))
        self.square.lerp_(g * g, weight2.expand_as(g))
        rate = self.learning_rate * factor * step
        safe = self.count.clamp_min(1.0)
        denominator = (self.square.sqrt() / (1 - beta2**safe).sqrt()).add_(self.epsilon)
        self.weights.mul_(1 - rate * self.weight_decay)
        self.weights.sub_(self.mean / denominator * (rate / (1 - beta1**safe)))
        return taken[:, 0]
