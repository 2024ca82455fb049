"""Solving ordinary differential equations for all rows of a batch at once, over s in [0, 1]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = [
    "DOPRI5",
    "REFINED",
    "RK4",
    "Gradient",
    "Solver",
    "Tableau",
    "adaptive",
    "refined_integral",
    "refined_path",
    "runge_kutta",
]

REFINED = 4  # nodes of a refined path for each step

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


def refined_path(path: Sequence[Tensor], slopes: Sequence[Tensor]) -> list[Tensor]:
    """States at `REFINED` nodes for each step over [0, 1], from those at its ends and their slopes.

    Polynomials of degree five through three states and slopes: each spans two steps, whose number is even.

    Examples
    --------
    >>> s = torch.linspace(0, 1, 5, dtype=torch.float64)
    >>> fine = refined_path(list(s**5), list(5 * s**4))
    >>> len(fine), round(float(fine[6]), 9) == round((6 / 16) ** 5, 9)
    (17, True)
    """
    weights, length = _between(), 1.0 / (len(path) - 1)
    fine = []
    for i in range(0, len(path) - 1, 2):
        states, rates = torch.stack(list(path[i : i + 3])), torch.stack(list(slopes[i : i + 3]))
        parts = torch.from_numpy(weights).to(states)
        inner = torch.tensordot(parts[:, :3], states, 1) + length * torch.tensordot(parts[:, 3:], rates, 1)
        for j in range(2 * REFINED):
            fine.append(path[i + j // REFINED] if j % REFINED == 0 else inner[j])
    return [*fine, path[-1]]


def refined_integral(values: Tensor, slopes: Tensor) -> Tensor:
    """A rising function at all nodes of a refined path, (n, m), from its values at the ends of the steps.

    The slopes, known at all nodes, are integrated within each step as the polynomial through them.

    Examples
    --------
    >>> s = torch.linspace(0, 1, 9, dtype=torch.float64)[None]
    >>> fine = refined_integral(s[:, ::4] ** 5, 5 * s**4)
    >>> bool((fine - s**5).abs().max() < 1e-12)
    True
    """
    weights = torch.from_numpy(_inside()).to(slopes) * (1.0 / (slopes.shape[1] - 1))
    inner = values[:, :-1, None] + slopes.unfold(1, REFINED + 1, REFINED) @ weights.T
    fine = torch.cat([values[:, :-1, None], inner], 2).flatten(1)
    # a polynomial may overshoot by a rounding error
    return torch.cummax(torch.cat([fine, values[:, -1:]], 1), 1).values


@lru_cache(maxsize=1)
def _between() -> npt.NDArray[np.float64]:
    """Weights of three values and three slopes, one step apart, in the polynomial's values between them."""
    powers, nodes = np.arange(6), np.arange(3.0)[:, None]
    conditions = np.vstack([nodes**powers, powers * nodes ** np.maximum(powers - 1, 0)])
    places = np.arange(2 * REFINED)[:, None] / REFINED
    return np.asarray((places**powers) @ np.linalg.inv(conditions))


@lru_cache(maxsize=1)
def _inside() -> npt.NDArray[np.float64]:
    """Weights of the slopes at all nodes of a step in the integral up to each of the inner ones."""
    powers, nodes = np.arange(REFINED + 1), np.arange(REFINED + 1.0)[:, None]
    return np.asarray((nodes[1:-1] ** (powers + 1) / (powers + 1)) @ np.linalg.inv(nodes**powers))


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
