"""Networks that are the right-hand side of an ordinary differential equation for the cumulative hazard."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from sumosurv.distributions import SurvivalDistribution
from sumosurv.distributions.ode import Ode, scaled_time, solver_time, solver_time_log_slope
from sumosurv.networks.encoders import Batch, Encoder
from sumosurv.networks.layers import MemberLinear, select_members
from sumosurv.networks.population import Curves, TailedNetwork

_ROWS = {"cpu": 1 << 10, "cuda": 1 << 16}  # subjects solved at once: layers stay in cache, or fill the device

Generators = Sequence[torch.Generator]
REFINED = 4  # nodes of a refined path per step

Solver = Literal["rk4", "dopri5"]
Gradient = Literal["direct", "adjoint"]
Speed = Callable[[Any, Tensor], Tensor]  # (s, state) -> d state / ds


class Tableau(NamedTuple):
    """An explicit Runge-Kutta method: the places, coefficients and weights of its stages."""

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


def _log_softplus(raw: Tensor) -> Tensor:
    """log log(1 + eˣ), accurate also if eˣ is tiny."""
    near = torch.log(functional.softplus(raw.clamp_min(-12.0)))
    return torch.where(raw < -12.0, raw - 0.5 * torch.exp(raw.clamp_max(-12.0)), near)


class _Layers(nn.Module):
    """tanh layers and a linear output for K members; a summand per row can replace the first bias."""

    def __init__(self, generators: Generators, n_in: int, widths: Sequence[int], n_out: int) -> None:
        super().__init__()
        self.entry = MemberLinear(generators, n_in, widths[0], scale=2.0)
        self.hidden = nn.ModuleList(MemberLinear(generators, a, b) for a, b in pairwise(widths))
        self.out = MemberLinear(generators, widths[-1], n_out, scale=0.3)

    def forward(self, x: Tensor, summand: Tensor | None = None) -> Tensor:
        """Outputs (K, n, n_out) of x (K or 1, n, n_in)."""
        a = torch.tanh(self.entry(x) if summand is None else torch.baddbmm(summand, x, self.entry.weight))
        for layer in self.hidden:
            a = torch.tanh(layer(a))
        result: Tensor = self.out(a)
        return result


class OdeCurves(Curves):
    """The curves of rows under K networks whose cumulative hazard solves an equation, at one time per row."""

    def __init__(self, network: HazardOde, code: Tensor) -> None:
        self.network, self.code = network, code

    def log_terms(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return log S(t) and log f(t), minus the penalty in training."""
        network, code = self.network, self.code
        tau = solver_time(t, network.offset)
        state = network.solve(code, tau[:, :, 0])
        log_hazard = network.log_hazard(tau, state, code) + solver_time_log_slope(t, network.offset)
        log_survival = -state[:, :, :1]
        terms = log_survival, log_hazard + log_survival
        if not network.training:
            return terms
        penalty = network.penalty(code, tau[:, :, 0], state)
        return terms[0] - penalty, terms[1] - penalty

    def log_survival(self, t: Tensor) -> Tensor:
        """Return log S(t)."""
        return -self.network.solve(self.code, solver_time(t, self.network.offset)[:, :, 0])[:, :, :1]


class HazardOde(TailedNetwork):
    r"""K networks, each with a state y(τ) whose first entry is the cumulative hazard Λ.

    .. math:: \frac{dy}{dτ} = g(y, τ, x), \qquad Λ(0) = 0, \qquad \frac{dΛ}{dτ} = q > 0.

    τ maps scaled time t in [0, 1] to [0, 1], linearly or logarithmically (see `solver_time`), so the hazard is
    λ(t) = q τ'(t). The rows of a batch end at different times τ(z); with τ = s τ(z), all are solved over s in [0, 1]
    in one call.

    Parameters
    ----------
    encoder : TableEncoder or ModuleEncoder
    rate : float
        Initial value of dΛ/dτ.
    offset : float or None
        c of the time scale τ(t), see `solver_time`; None for τ = t.
    solver : {"rk4", "dopri5"}
        Solver in training; prediction always uses steps of order five, doubling their number until they are accurate.
    steps : int
        Number of steps of "rk4".
    gradient : {"direct", "adjoint"}
        Gradient of "dopri5", see `adaptive`.
    tolerance : float
        Relative error of a step of "dopri5".
    """

    start: Tensor
    layers: _Layers  # the right-hand side: inputs are the state, the time and ``code``

    def __init__(
        self,
        encoder: Encoder,
        *,
        rate: float = 1.0,
        offset: float | None = 1e-2,
        solver: Solver = "rk4",
        steps: int = 8,
        gradient: Gradient = "direct",
        tolerance: float = 1e-5,
    ) -> None:
        super().__init__()
        self.encoder, self.offset, self.steps, self.tolerance = encoder, offset, steps, tolerance
        self.solver: Solver = solver
        self.gradient: Gradient = gradient
        start = rate if rate > 30 else math.log(math.expm1(rate))  # softplus(start) = rate
        self.register_buffer("start", torch.full((1, 1, 1), start))

    @abstractmethod
    def code(self, embedding: Tensor) -> Tensor:
        """Return the covariate terms of the equation, (K, n, w)."""

    @abstractmethod
    def outputs(self, tau: Tensor, state: Tensor, code: Tensor) -> Tensor:
        """Return r with dΛ/dτ = softplus(r + start), then the rates of all other states, at τ (K or 1, n or 1, 1)."""

    def initial(self, code: Tensor) -> Tensor:
        """Return the state at τ = 0, (K, n, d), whose first entry is 0."""
        return torch.zeros_like(code[:, :, :1])

    def speed(self, tau: Tensor, state: Tensor, code: Tensor) -> Tensor:
        """Return dy/dτ (K, n, d) at τ of shape (K or 1, n or 1, 1)."""
        out = self.outputs(tau, state, code)
        return torch.cat([functional.softplus(out[:, :, :1] + self.start), out[:, :, 1:]], 2)

    def log_hazard(self, tau: Tensor, state: Tensor, code: Tensor) -> Tensor:
        """Return log dΛ/dτ (K, n, 1) at τ of shape (K or 1, n or 1, 1)."""
        return _log_softplus(self.outputs(tau, state, code)[:, :, :1] + self.start)

    def penalty(self, code: Tensor, tau: Tensor, state: Tensor) -> Tensor | float:
        """Return the penalty on each log-likelihood in training, (K, n, 1), given the states at τ (K or 1, n)."""
        return 0.0

    @property
    def capturable(self) -> bool:
        """Whether a training step has no value-dependent control flow, so that a CUDA graph can capture it."""
        return self.solver == "rk4"

    def solve(self, code: Tensor, tau: Tensor) -> Tensor:
        """Return the state (K, n, d) of each row at its own τ (K or 1, n)."""
        return self._move(code, self.initial(code), torch.zeros_like(tau), tau, self.steps)

    def _move(self, code: Tensor, state: Tensor, start: Tensor, end: Tensor, steps: int) -> Tensor:
        """Solve from the state of each row at its own ``start`` (K or 1, n) to its own ``end``."""
        first, length = start[:, :, None], (end - start)[:, :, None]

        def speed(s: float | Tensor, state: Tensor) -> Tensor:
            return length * self.speed(first + s * length, state, code)

        if self.solver == "rk4":
            return runge_kutta(speed, state, steps, RK4)[-1]
        # all that the rates depend on; listing the weights that produced ``code`` would count them twice
        return adaptive(speed, state, self.tolerance, self.gradient, (code, *self.layers.parameters()))

    def curves_to_horizon(self, embedding: Tensor, batch: Batch | None) -> OdeCurves:
        """Return the curves of rows with these embeddings."""
        return OdeCurves(self, self.code(embedding))

    def members_to_horizon(self, embedding: Tensor) -> Sequence[SurvivalDistribution]:
        """Return each member's distribution of the same rows, in scaled time."""
        codes = self.code(embedding)
        return [self._member(k, codes[k]) for k in range(len(codes))]

    def _member(self, k: int, code: Tensor) -> Ode:
        return Ode(select_members(self, slice(k, k + 1)).table, code, offset=self.offset)

    def table(self, code: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Return Λ and log dΛ/dτ of one network at τ = 0, 1/steps, ..., 1, each (n, steps + 1), for ``code`` (n, w)."""
        at_once = _ROWS.get(code.device.type, _ROWS["cpu"])
        parts = [self._table_of(rows[None], steps) for rows in torch.split(code, at_once)]
        cumulative, log_hazard = (torch.cat(columns) for columns in zip(*parts))
        return cumulative, log_hazard

    def _table_of(self, code: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Solve by long steps of order five, interpolate the states at the nodes in between, and compute q and Λ there.

        The solution needs far fewer steps than the polynomials that interpolate log q need nodes.
        """
        taus = [code.new_full((1, 1, 1), j / steps) for j in range(steps + 1)]
        one = code.new_ones(1, 1, 1)
        solved = runge_kutta(lambda s, y: self.speed(s * one, y, code), self.initial(code), steps // REFINED, DOPRI5)
        slopes = [self.speed(tau, state, code) for tau, state in zip(taus[::REFINED], solved)]
        path = refined_path(solved, slopes)
        log_q = torch.cat([self.log_hazard(tau, state, code) for tau, state in zip(taus, path)], 2)[0]
        return refined_integral(torch.stack([state[0, :, 0] for state in solved], 1), torch.exp(log_q)), log_q

    def _times(self, tau: Tensor) -> list[Tensor]:
        """The time features of the networks: τ and t, centred."""
        return [2.0 * tau - 1.0, 2.0 * scaled_time(tau, self.offset) - 1.0]


class GeneralHazardOde(HazardOde):
    r"""SODEN's general form: dΛ/dτ = softplus(network(log(1 + Λ), τ, t, u(x))), with embeddings u(x)."""

    def __init__(self, generators: Generators, encoder: Encoder, widths: Sequence[int], **options: Any) -> None:
        super().__init__(encoder, **options)
        self.read = MemberLinear(generators, encoder.width, widths[0])
        self.layers = _Layers(generators, 3, widths, 1)

    def code(self, embedding: Tensor) -> Tensor:
        """Return the covariate terms of the first layer."""
        part: Tensor = self.read(embedding)
        return part

    def outputs(self, tau: Tensor, state: Tensor, code: Tensor) -> Tensor:
        """Return r."""
        read = [torch.log1p(state), *(time.expand_as(state) for time in self._times(tau))]
        out: Tensor = self.layers(torch.cat(read, 2), code)
        return out


class CoxHazardOde(HazardOde):
    r"""SODEN's Cox forms: dΛ/dτ = softplus(network(τ, t)) exp(w · u(x)), where u(x) is x itself or a network.

    The baseline does not depend on Λ, so the Runge-Kutta method is Simpson's rule, evaluated at all nodes at once.
    """

    def __init__(self, generators: Generators, encoder: Encoder, widths: Sequence[int], **options: Any) -> None:
        super().__init__(encoder, **options)
        self.risk = MemberLinear(generators, encoder.width, 1, scale=0.1)
        self.layers = _Layers(generators, 2, widths, 1)

    def code(self, embedding: Tensor) -> Tensor:
        """Return the log of the relative risk."""
        risk: Tensor = self.risk(embedding)
        return risk

    def outputs(self, tau: Tensor, state: Tensor, code: Tensor) -> Tensor:
        """Return r of the baseline hazard, the same for all rows."""
        out: Tensor = self.layers(torch.cat(self._times(tau), 2))
        return out

    def speed(self, tau: Tensor, state: Tensor, code: Tensor) -> Tensor:
        """Return the baseline hazard times the relative risk."""
        return (super().speed(tau, state, code) * torch.exp(code)).expand_as(state)

    def log_hazard(self, tau: Tensor, state: Tensor, code: Tensor) -> Tensor:
        """Return the logarithm of `speed`."""
        return (super().log_hazard(tau, state, code) + code).expand_as(state)

    def solve(self, code: Tensor, tau: Tensor) -> Tensor:
        """Return the cumulative hazard of each row at its own τ."""
        if self.solver != "rk4":
            return super().solve(code, tau)
        places = torch.linspace(0.0, 1.0, 2 * self.steps + 1, dtype=tau.dtype, device=tau.device)
        raw = self.outputs((tau[:, :, None] * places).reshape(len(tau), -1, 1), tau, code) + self.start
        q = functional.softplus(raw).reshape(len(raw), tau.shape[1], -1)
        sums = q[:, :, 0] + 4.0 * q[:, :, 1::2].sum(2) + 2.0 * q[:, :, 2:-1:2].sum(2) + q[:, :, -1]
        return (tau * sums / (6 * self.steps))[:, :, None] * torch.exp(code)

    def _member(self, k: int, code: Tensor) -> Ode:
        alone, nobody = select_members(self, slice(k, k + 1)), torch.zeros_like(code[:1])
        return Ode(alone.table, nobody, log_risk=code[:, 0], offset=self.offset)


class LatentHazardOde(HazardOde):
    r"""SurvNODE with two states: a latent path m(τ) that starts at a function of x, and the hazard along it.

    .. math::
        m(0) = w · u(x), \qquad \frac{dm}{dτ}, r = network(\log(1 + Λ), m, m(0), τ, t), \qquad
        \frac{dΛ}{dτ} = softplus(r).

    u(x) is the embedding, and the state is (Λ, m). The penalty of a row is ``regularisation`` times the norm of the
    vector of all rates at τ = 1, whatever the row's own time: it pulls the process towards a steady state.
    """

    def __init__(
        self,
        generators: Generators,
        encoder: Encoder,
        widths: Sequence[int],
        *,
        latent: int,
        regularisation: float,
        **options: Any,
    ) -> None:
        super().__init__(encoder, **options)
        self.regularisation, self.latent = regularisation, latent
        self.read = MemberLinear(generators, encoder.width, latent)
        self.origin = MemberLinear(generators, latent, widths[0])
        self.layers = _Layers(generators, latent + 3, widths, latent + 1)

    def code(self, embedding: Tensor) -> Tensor:
        """Return the latent state at time zero, m(0), and its term in the first layer, constant in time."""
        first: Tensor = self.read(embedding)
        return torch.cat([first, self.origin(first)], 2)

    def initial(self, code: Tensor) -> Tensor:
        """Λ = 0 and m(0)."""
        return functional.pad(code[:, :, : self.latent], (1, 0))

    def outputs(self, tau: Tensor, state: Tensor, code: Tensor) -> Tensor:
        """Return r and the rates of m."""
        times = [time.expand_as(state[:, :, :1]) for time in self._times(tau)]
        read = [torch.log1p(state[:, :, :1]), state[:, :, 1:], *times]
        out: Tensor = self.layers(torch.cat(read, 2), code[:, :, self.latent :])
        return out

    def penalty(self, code: Tensor, tau: Tensor, state: Tensor) -> Tensor | float:
        """Return ``regularisation`` times the norm of the rates at τ = 1, up to which the path is solved."""
        if self.regularisation == 0:
            return 0.0
        end = torch.ones_like(tau)
        last = self._move(code, state, tau, end, max(1, self.steps // 2))
        rates = self.speed(end[:, :, None], last, code)
        lengths: Tensor = torch.linalg.vector_norm(rates, dim=2, keepdim=True)
        return self.regularisation * lengths


# ---------------------------------------------------------------------- solvers, over s in [0, 1], for all rows at once


def runge_kutta(speed: Speed, state: Tensor, steps: int, tableau: Tableau) -> list[Tensor]:
    """Return the states at s = 0, 1/steps, ..., 1, by steps of equal length.

    Gradients are propagated through the steps. A CUDA graph can capture them: no control flow depends on a value.

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
    """Return states at `REFINED` nodes per step over [0, 1], from the states and slopes at the ends of the steps.

    Each polynomial of degree five matches three states and slopes, across two steps; the number of steps is even.

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
    """Return an increasing function at all nodes of a refined path, (n, m), from its values at the ends of the steps.

    Within each step, the polynomial through the slopes at the nodes is integrated.

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
    """Weights of three values and three slopes, one step apart, in the values of the polynomial between them."""
    powers, nodes = np.arange(6), np.arange(3.0)[:, None]
    conditions = np.vstack([nodes**powers, powers * nodes ** np.maximum(powers - 1, 0)])
    places = np.arange(2 * REFINED)[:, None] / REFINED
    return np.asarray((places**powers) @ np.linalg.inv(conditions))


@lru_cache(maxsize=1)
def _inside() -> npt.NDArray[np.float64]:
    """Weights of the slopes at all nodes of a step in the integral up to each inner node."""
    powers, nodes = np.arange(REFINED + 1), np.arange(REFINED + 1.0)[:, None]
    return np.asarray((nodes[1:-1] ** (powers + 1) / (powers + 1)) @ np.linalg.inv(nodes**powers))


def adaptive(speed: Speed, state: Tensor, tolerance: float, gradient: Gradient, held: Sequence[Tensor]) -> Tensor:
    """Return the state at s = 1, by the adaptive steps of torchdiffeq's dopri5.

    Parameters
    ----------
    speed : callable
        (s, state) to d state / ds.
    state : Tensor
        The state at s = 0.
    tolerance : float
        Relative error of a step; the absolute error is a tenth of it.
    gradient : {"direct", "adjoint"}
        Backpropagate through the steps, or solve the adjoint equation backwards, which does not store the steps.
    held : sequence of Tensor
        Tensors that ``speed`` depends on besides its arguments, for the adjoint equation.
    """
    try:
        import torchdiffeq
    except ImportError:
        raise ImportError(
            "solver='dopri5' needs the package torchdiffeq: pip install 'sumosurv[ode]'. solver='rk4' does not need it."
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
