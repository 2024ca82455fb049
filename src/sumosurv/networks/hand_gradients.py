"""Layers for training on the CPU as single operations, with gradients written by hand.

Autograd would keep some ten arrays per layer and run through them one by one. The plain paths of `MixedNetwork` and
`TableEncoder` are the references.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

__all__ = ["WITH_SLOPE", "hidden_layer", "tangent_layer", "weighted_sum"]


def tangent_layer(rows: Tensor, weight: Tensor, bias: Tensor, blocks: int, *, residual: bool) -> Tensor:
    r"""tanh(x W + b) of blocks of values, and (1 - a²) x' W of the derivatives that follow them.

    Parameters
    ----------
    rows : Tensor of shape (K, (blocks + 1) n, in)
        ``blocks`` times n rows of values, and the time derivatives of the first n of them.
    weight : Tensor of shape (K, in, out)
    bias : Tensor of shape (K, 1 or n, out)
        The same for each block of values; derivatives have none.
    blocks : int
    residual : bool
        Add the rows themselves.

    Returns
    -------
    Tensor of shape (K, (blocks + 1) n, out)
    """
    result: Tensor = _TangentLayer.apply(rows, weight, bias, blocks, residual)  # type: ignore[no-untyped-call]
    return result


def weighted_sum(rows: Tensor, weight: Tensor) -> Tensor:
    """Rows (K, r, in) times one column of weights (K, in, 1), (K, r): a product of matrices is slow at that."""
    result: Tensor = _WeightedSum.apply(rows, weight)  # type: ignore[no-untyped-call]
    return result


class _WeightedSum(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return torch.bmm(weight.transpose(1, 2), rows.transpose(1, 2))[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        rows, weight = ctx.saved_tensors
        of_weight = torch.bmm(gradient[:, None].contiguous(), rows)
        return gradient[:, :, None] * weight.transpose(1, 2), of_weight.transpose(1, 2)


class _TangentLayer(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, blocks: int, residual: bool) -> Tensor:
        members, total, out = rows.shape[0], rows.shape[1], weight.shape[2]
        n = total // (blocks + 1)
        z = torch.bmm(rows, weight)
        value, rate = z[:, : blocks * n], z[:, blocks * n :]
        value.view(members, blocks, n, out).add_(bias[:, None])
        value.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)  # tanh, at a third of its price
        result = torch.empty_like(z)
        torch.mul(value[:, :n], value[:, :n], out=result[:, blocks * n :])
        result[:, blocks * n :].neg_().add_(1.0).mul_(rate)
        if residual:
            result[:, blocks * n :].add_(rows[:, blocks * n :])
            torch.add(value, rows[:, : blocks * n], out=result[:, : blocks * n])
        else:
            result[:, : blocks * n] = value
        ctx.save_for_backward(rows, weight, z)
        ctx.blocks, ctx.residual, ctx.shared = blocks, residual, bias.shape[1] == 1
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        rows, weight, z = ctx.saved_tensors
        members, total, out = z.shape
        n = total // (ctx.blocks + 1)
        end = ctx.blocks * n
        value, rate = z[:, :end], z[:, end:]
        steep = torch.mul(value, value).neg_().add_(1.0)  # 1 - tanh², the derivative of tanh
        inner = torch.empty_like(z)
        of_value, of_rate = inner[:, :end], inner[:, end:]
        # the derivative (1 - a²) z' depends on a too: -2 a z' of it comes back to the first block
        torch.mul(gradient[:, end:], rate, out=of_rate)
        of_rate.mul_(value[:, :n]).mul_(-2.0).add_(gradient[:, :n])
        torch.mul(of_rate, steep[:, :n], out=of_value[:, :n])
        if ctx.blocks > 1:
            torch.mul(gradient[:, n:end], steep[:, n:], out=of_value[:, n:])
        torch.mul(gradient[:, end:], steep[:, :n], out=of_rate)
        of_rows = torch.bmm(inner, weight.transpose(1, 2))
        if ctx.residual:
            of_rows.add_(gradient)
        of_weight = torch.bmm(rows.transpose(1, 2), inner)
        of_bias = of_value.view(members, ctx.blocks, n, out).sum((1, 2) if ctx.shared else 1)
        return of_rows, of_weight, of_bias[:, None] if ctx.shared else of_bias, None, None


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
