"""A hidden layer of the covariate network as one operation, and its gradient by hand.

The forward pass keeps the slope of the activation times the dropout mask, so that the backward pass begins with one
product. The plain path in `TableEncoder` is the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

__all__ = ["WITH_SLOPE", "hidden_layer"]


def _silu(z: Tensor) -> tuple[Tensor, Tensor]:
    share = torch.sigmoid(z)
    value = z.mul_(share)
    return value, torch.lerp(value, torch.ones_like(share), share)  # σ + z σ (1 - σ)


def _tanh(z: Tensor) -> tuple[Tensor, Tensor]:
    value = z.tanh_()
    return value, (value * value).neg_().add_(1.0)


def _relu(z: Tensor) -> tuple[Tensor, Tensor]:
    value = z.clamp_min_(0.0)
    return value, (value > 0).to(value.dtype)


# activations and their slopes, the argument being overwritten
WITH_SLOPE: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {"silu": _silu, "tanh": _tanh, "relu": _relu}


def hidden_layer(
    rows: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None, activation: str, *, residual: bool
) -> Tensor:
    """The activation of rows W + b times a mask, and the rows themselves if ``residual``.

    Parameters
    ----------
    rows : Tensor of shape (K, n, in)
    weight : Tensor of shape (K, in, out)
    bias : Tensor of shape (K, 1, out)
    mask : Tensor of shape (K, n, out), optional
        Of dropout, scaled.
    activation : str
        One of `WITH_SLOPE`.
    residual : bool

    Returns
    -------
    Tensor of shape (K, n, out)
    """
    result: Tensor = _HiddenLayer.apply(rows, weight, bias, mask, activation, residual)  # type: ignore[no-untyped-call]
    return result


class _HiddenLayer(Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None, activation: str, residual: bool
    ) -> Tensor:
        value, slope = WITH_SLOPE[activation](torch.baddbmm(bias, rows, weight))
        if mask is not None:
            value.mul_(mask)
            slope.mul_(mask)
        if residual:
            value.add_(rows)
        ctx.save_for_backward(rows, weight, slope)
        ctx.residual = residual
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None, None]:
        rows, weight, slope = ctx.saved_tensors
        inner = gradient * slope
        of_rows = None
        if ctx.needs_input_grad[0]:
            of_rows = torch.bmm(inner, weight.transpose(1, 2))
            if ctx.residual:
                of_rows.add_(gradient)
        return of_rows, torch.bmm(rows.transpose(1, 2), inner), inner.sum(1, keepdim=True), None, None, None
