"""Solving ordinary differential equations for all rows of a batch at once, over s in [0, 1]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

__all__ = ["DOPRI5", "RK4", "Gradient", "Solver", "Tableau", "adaptive", "runge_kutta"]

Solver = Literal["rk4", "dopri5"]
Gradient = Literal["direct", "adjoint"]
Speed = Callable[[Any, Tensor], Tensor]  # (s, state) -> d state / ds


class Tableau(NamedTuple):
    """An explicit method of Runge and Kutta: where it looks, how it gets there, and how it sums up."""

    places: tuple[float, ...]
    stages: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]


RK4 = Tableau((0.0, 0.5, 0.5, 1.0), ((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6))
DOPRI5 = Tableau(
    (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0),
    (
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    ),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)


def runge_kutta(speed: Speed, state: Tensor, steps: int, tableau: Tableau) -> list[Tensor]:
    """The states at s = 0, 1/steps, ..., 1 by steps of equal length: no decision depends on a value.

    Gradients go through the steps themselves, and a CUDA graph can hold them.

    Examples
    --------
    >>> path = runge_kutta(lambda s, y: y, torch.ones(1, dtype=torch.float64), 16, DOPRI5)
    >>> round(float(path[-1]), 6)
    2.718282
    """
    path, length = [state], 1.0 / steps
    for i in range(steps):
        slopes: list[Tensor] = []
        for place, stage in zip(tableau.places, tableau.stages):
            slopes.append(speed((i + place) * length, _advance(state, length, stage, slopes)))
        state = _advance(state, length, tableau.weights, slopes)
        path.append(state)
    return path


def _advance(state: Tensor, length: float, weights: Sequence[float], slopes: Sequence[Tensor]) -> Tensor:
    for weight, slope in zip(weights, slopes):
        if weight:
            state = torch.add(state, slope, alpha=length * weight)
    return state


def adaptive(speed: Speed, state: Tensor, tolerance: float, gradient: Gradient, held: Sequence[Tensor]) -> Tensor:
    """The state at s = 1 by torchdiffeq's dopri5, whose steps are as long as the tolerance lets them be.

    Parameters
    ----------
    speed : callable
        (s, state) to d state / ds.
    state : Tensor
        At s = 0.
    tolerance : float
        Relative error of a step; the absolute one is a tenth of it.
    gradient : {"direct", "adjoint"}
        Through the steps taken, or by solving the adjoint equation backwards, which needs no memory for them.
    held : sequence of Tensor
        What ``speed`` depends on beside its arguments; the adjoint equation needs to know.
    """
    try:
        import torchdiffeq
    except ImportError:
        raise ImportError(
            "solver='dopri5' needs the package torchdiffeq: pip install 'sumosurv[ode]'. solver='rk4' does without."
        ) from None
    span = torch.tensor([0.0, 1.0], dtype=state.dtype, device=state.device)
    options: dict[str, Any] = {"rtol": tolerance, "atol": 0.1 * tolerance, "method": "dopri5"}
    if gradient == "adjoint" and torch.is_grad_enabled():
        tensors = tuple(tensor for tensor in held if tensor.requires_grad)
        path = torchdiffeq.odeint_adjoint(speed, state, span, adjoint_params=tensors, **options)
    else:
        path = torchdiffeq.odeint(speed, state, span, **options)
    last: Tensor = path[-1]
    return last
