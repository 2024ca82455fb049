"""A layer of the mixed network as one operation: values and time derivatives together, and its gradient by hand.

Autograd would keep some ten arrays of each layer and run through them one by one; here a layer keeps its input, its
tanh and the derivative before it. The plain path in `MixedNetwork` is the reference.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

__all__ = ["tangent_layer", "weighted_sum"]


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
