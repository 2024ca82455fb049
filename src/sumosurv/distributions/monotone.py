"""The distribution of a network that is monotone in time."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from sumosurv.distributions._numerics import integrate_panels
from sumosurv.distributions.base import SurvivalDistribution

__all__ = ["Monotone", "monotone_log_likelihood_terms", "tail_log_terms", "tail_parameters"]

# (code of shape (n, w), times of shape (n or 1, m)) -> h and dh/dt of shape (n, m)
Curve = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
Value = Callable[[Tensor, Tensor], Tensor]  # h alone

_STEEPEST = 10.0  # shape of the tail
_CELLS = 1 << 13  # subjects × times evaluated at once: keeps the hidden layers in cache


def monotone_log_likelihood_terms(h: Tensor, slope: Tensor, log_start: Tensor | None) -> tuple[Tensor, Tensor]:
    r"""log S and log f of the survival head S(t) = 1 - sigmoid(h(t)) = exp(-softplus(h(t))).

    .. math::
        \log S = \log\sigma(-h), \qquad \log f = \log h' + \log\sigma(h) + \log\sigma(-h).

    With ``log_start`` = log σ(-h(0)) both are divided by S(0), the distribution given T > 0, so that S(0) = 1.
    """
    log_survival = logsigmoid(-h)
    log_density = torch.log(slope) + logsigmoid(h) + log_survival
    if log_start is None:
        return log_survival, log_density
    return log_survival - log_start, log_density - log_start


def tail_parameters(log_survival_half: Tensor, log_survival_end: Tensor) -> tuple[Tensor, Tensor]:
    """Λ at the horizon and the shape k of the Weibull curve past it, from log S at half the horizon and at it."""
    tiny = torch.finfo(log_survival_end.dtype).tiny
    half, end = (-log_survival_half).clamp_min(tiny), (-log_survival_end).clamp_min(tiny)
    return end, torch.log2(end / half).clamp(1.0, _STEEPEST)


def tail_log_terms(cumulative: Tensor, shape: Tensor, t: Tensor, horizon: float) -> tuple[Tensor, Tensor]:
    """log S and log f past the horizon T, where Λ(t) = Λ(T) (t / T)^k; at the horizon itself for t before it."""
    log_ratio = torch.log(t.clamp_min(horizon) / horizon)
    log_survival = -cumulative * torch.exp(shape * log_ratio)
    log_hazard = torch.log(shape * cumulative / horizon) + (shape - 1.0) * log_ratio
    return log_survival, torch.where(torch.isinf(t), -math.inf, log_hazard + log_survival)


class Monotone(SurvivalDistribution):
    r"""S(t|x) = (1 - σ(h(t, x))) / (1 - σ(h(0, x))) with h increasing in t.

    Parameters
    ----------
    curve : callable
        (code, times) to (h, dh/dt): the mixed network of one member.
    code : Tensor of shape (n, w)
        What the covariate network made of each subject; it runs once per subject.
    value : callable, optional
        (code, times) to h alone, where that is cheaper.
    breaks : sequence of float
        Times at which h is not smooth, a help to quadrature.
    anchored : bool
        Divide by S(0|x), so that S(0|x) = 1. Without it (the paper's network) mass is lost at zero.
    horizon : float or None
        The last time T the network was trained on. A bounded network says nothing beyond it, so the
        curve goes on as the Weibull curve through its values at T/2 and T, with a shape between 1 and 10:

        Λ(t|x) = Λ(T|x) (t / T)^k,  k = log₂(Λ(T|x) / Λ(T/2|x)) clipped to [1, 10],  for t > T.

        The hazard goes on rising where it rose, and is constant where it fell; mean and quantiles are
        finite. None leaves the network's own tail (the paper's: S(∞|x) > 0).
    """

    def __init__(
        self,
        curve: Curve,
        code: Tensor,
        *,
        value: Value | None = None,
        breaks: Sequence[float] = (),
        anchored: bool = True,
        horizon: float | None = 1.0,
    ) -> None:
        self.curve, self.code, self.anchored, self.horizon = curve, code, anchored, horizon
        self.value: Value = (lambda rows, t: curve(rows, t)[0]) if value is None else value
        self.breaks = tuple(breaks)
        self._start_cache: Tensor | None = None
        self._tail_cache: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.code)

    @property
    def _like(self) -> Tensor:
        return self.code

    def _take(self, rows: Tensor) -> Monotone:
        part = copy.copy(self)
        part.code = self.code[rows]
        part._start_cache = None if self._start_cache is None else self._start_cache[rows]
        part._tail_cache = None if self._tail_cache is None else (self._tail_cache[0][rows], self._tail_cache[1][rows])
        return part

    def _log_survival(self, t: Tensor) -> Tensor:
        if self.horizon is None or not bool((beyond := t > self.horizon).any()):
            return self._inside(t)
        return torch.where(beyond, self._beyond(t)[0], self._inside(t.clamp_max(self.horizon)))

    def _log_density(self, t: Tensor) -> Tensor:
        return self._log_both(t)[1]

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        if self.horizon is None or not bool((beyond := t > self.horizon).any()):
            return self._inside_both(t)
        pairs = zip(self._beyond(t), self._inside_both(t.clamp_max(self.horizon)))
        log_survival, log_density = (torch.where(beyond, far, near) for far, near in pairs)
        return log_survival, log_density

    # ------------------------------------------------------------------ up to the horizon: the network

    def _inside(self, t: Tensor) -> Tensor:
        """log S, without the derivative."""
        start = self._log_start()

        def tile(rows: slice, t: Tensor) -> tuple[Tensor, ...]:
            log_survival = logsigmoid(-self.value(self.code[rows], t))
            return (log_survival if start is None else (log_survival - start[rows]).clamp_max(0.0),)

        return self._tiles(tile, t)[0]

    def _inside_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        start = self._log_start()

        def tile(rows: slice, t: Tensor) -> tuple[Tensor, ...]:
            h, slope = self.curve(self.code[rows], t)
            return monotone_log_likelihood_terms(h, slope, None if start is None else start[rows])

        log_survival, log_density = self._tiles(tile, t)
        return (log_survival.clamp_max(0.0) if self.anchored else log_survival), log_density

    def _log_start(self) -> Tensor | None:
        """log of the survival head at time zero, (n, 1); None where it is not divided out."""
        if self.anchored and self._start_cache is None:
            zero = self.code.new_zeros(1, 1)
            self._start_cache = self._tiles(lambda rows, t: (logsigmoid(-self.value(self.code[rows], t)),), zero)[0]
        return self._start_cache

    def _tiles(self, tile: Callable[[slice, Tensor], tuple[Tensor, ...]], t: Tensor) -> tuple[Tensor, ...]:
        """Evaluate some subjects at a time, so that the hidden layers stay in cache."""
        n = len(self)
        step = max(1, _CELLS // max(t.shape[1], 1))
        if n <= step:
            return tile(slice(0, n), t)
        places = [slice(i, i + step) for i in range(0, n, step)]
        parts = [tile(rows, t if t.shape[0] == 1 else t[rows]) for rows in places]
        return tuple(torch.cat(columns) for columns in zip(*parts))

    # ------------------------------------------------------------------ past the horizon: a Weibull curve

    def _beyond(self, t: Tensor) -> tuple[Tensor, Tensor]:
        assert self.horizon is not None
        return tail_log_terms(*self._tail(), t, self.horizon)

    def _tail(self) -> tuple[Tensor, Tensor]:
        """Λ at the horizon and the shape k of the curve past it, (n, 1) each."""
        if self._tail_cache is None:
            assert self.horizon is not None
            ends = self.code.new_tensor([[0.5 * self.horizon, self.horizon]])
            log_survival = self._inside(ends)
            self._tail_cache = tail_parameters(log_survival[:, :1], log_survival[:, 1:])
        return self._tail_cache

    # ------------------------------------------------------------------ means

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        if self.horizon is None or not self.anchored:
            return super()._restricted_mean(horizon)
        return self._remaining_mean(torch.zeros_like(horizon), horizon)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        """Quadrature up to the horizon, the incomplete gamma function past it."""
        if self.horizon is None or bool((start >= self.horizon).any()):
            return super()._remaining_mean(start, end)
        last = self.horizon
        log_first = self._log_survival(start[:, None])

        def remaining(rows: Tensor, t: Tensor) -> Tensor:
            return torch.exp((self._take(rows)._log_survival(t.to(self.code)) - log_first[rows]).to(t))

        halves = [last * 0.5**j for j in range(11)]
        edges = sorted({0.0, *halves, *(b for b in self.breaks if 0.0 < b < last)})
        inside = integrate_panels(
            remaining,
            start.double(),
            end.clamp_max(last).double(),
            torch.tensor(edges, dtype=torch.float64, device=start.device),
            self._precision,
        )
        cumulative, shape = (part[:, 0].double() for part in self._tail())
        power = 1.0 / shape
        far = cumulative * torch.exp(shape * torch.log(end.double().clamp_min(last) / last))
        share = torch.special.gammaincc(power, cumulative) - torch.special.gammaincc(power, far)
        log_scale = torch.lgamma(power) + math.log(last) + torch.log(power) - power * torch.log(cumulative)
        beyond = torch.where(share > 0, torch.exp(log_scale + torch.log(share) - log_first[:, 0].double()), 0.0)
        return (inside + beyond).to(start)
