"""Functions that ONNX has no operator for, made of those that it has; accurate to float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.polynomial.chebyshev import chebinterpolate
from scipy.special import erfcx as exact_erfcx
from scipy.special import ndtri as exact_ndtri
from torch import Tensor

__all__ = ["log_ndtr", "ndtri", "searchsorted"]

Floats = npt.NDArray[np.float64]

_CENTRE = 0.3  # |p - 1/2| up to which ndtri is a polynomial in (p - 1/2)²
_SMALLEST = 1e-4  # probability: a table of normal scores has some 257 ranks
_TURN = 3.0  # of the map from [0, ∞] to [-1, 1]


def ndtri(p: Tensor) -> Tensor:
    """The normal quantile of probabilities between 0.0001 and 0.9999."""
    away = p - 0.5
    near = away * _CENTRAL(away * away)
    far = torch.sign(away) * _OUTER(torch.sqrt(-torch.log((0.5 - away.abs()).clamp_min(_SMALLEST))))
    return torch.where(away.abs() <= _CENTRE, near, far)


def log_ndtr(z: Tensor) -> Tensor:
    r"""log Φ(z), by :math:`Φ(-z) = \tfrac12 e^{-z²/2} \operatorname{erfcx}(z / \sqrt 2)`."""
    x = z.abs() * math.sqrt(0.5)
    half = 0.5 * _MILLS(1.0 - 2.0 * _TURN / (x + _TURN)) / (1.0 + x)
    return torch.where(z < 0, torch.log(half) - x * x, torch.log(1.0 - half * torch.exp(-x * x)))


def searchsorted(
    knots: Tensor,
    values: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """How many knots are below each value; of equal ones too, from the right."""
    values, knots = values[..., None], knots[..., None, :]
    below = values >= knots if right or side == "right" else values > knots
    return below.to(torch.int64).sum(-1)


class _Polynomial:
    """The Chebyshev interpolant of a function on an interval."""

    def __init__(self, function: Callable[[Floats], Floats], low: float, high: float, degree: int) -> None:
        self.middle, self.half = 0.5 * (low + high), 0.5 * (high - low)
        found: Floats = chebinterpolate(self._of(function), degree)
        self.coefficients = [float(c) for c in found]

    def _of(self, function: Callable[[Floats], Floats]) -> Any:
        return lambda x: function(self.middle + self.half * x)

    def __call__(self, x: Tensor) -> Tensor:
        """By Clenshaw's recurrence."""
        x = (x - self.middle) / self.half
        first, second = torch.zeros_like(x), torch.zeros_like(x)
        for c in self.coefficients[:0:-1]:
            first, second = 2.0 * x * first - second + c, first
        return x * first - second + self.coefficients[0]


def _scaled_erfcx(y: Floats) -> Floats:
    """(1 + x) erfcx(x) at y = 1 - 2c / (x + c)."""
    x = 2.0 * _TURN / np.maximum(1.0 - y, 1e-300) - _TURN
    with np.errstate(over="ignore", invalid="ignore"):
        found = (1.0 + x) * exact_erfcx(x)
    result: Floats = np.where(np.isfinite(found) & (x < 1e15), found, 1.0 / math.sqrt(math.pi))
    return result


def _quotient(square: Floats) -> Floats:
    """The normal quantile of 1/2 + q, divided by q, as a function of q²."""
    q = np.sqrt(np.maximum(square, 1e-8))
    result: Floats = np.where(square < 1e-8, math.sqrt(2 * math.pi), exact_ndtri(0.5 + q) / q)
    return result


_CENTRAL = _Polynomial(_quotient, 0.0, _CENTRE**2, 20)
_OUTER = _Polynomial(
    lambda r: -exact_ndtri(np.exp(-r * r)), math.sqrt(-math.log(0.5 - _CENTRE)), math.sqrt(-math.log(_SMALLEST)), 24
)
_MILLS = _Polynomial(_scaled_erfcx, -1.0, 1.0, 40)
