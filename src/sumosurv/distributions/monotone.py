"""The distribution of a network that is monotone in time."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from sumosurv.distributions.base import SurvivalDistribution

__all__ = ["Monotone", "monotone_log_likelihood_terms"]

# (code of shape (n, w), times of shape (n or 1, m)) -> h and dh/dt of shape (n, m)
Curve = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

_STEEPEST = 10.0  # shape of the tail
_CELLS = 1 << 16  # subjects × times evaluated at once: keeps the hidden layers in cache


def monotone_log_likelihood_terms(h: Tensor, slope: Tensor, h_zero: Tensor | None) -> tuple[Tensor, Tensor]:
    r"""log S and log f of the survival head S(t) = 1 - sigmoid(h(t)) = exp(-softplus(h(t))).

    .. math::
        \log S = \log\sigma(-h), \qquad \log f = \log h' + \log\sigma(h) + \log\sigma(-h).

    With ``h_zero`` = h(0) both are divided by S(0), the distribution given T > 0, so that S(0) = 1.
    """
    log_survival = logsigmoid(-h)
    log_density = torch.log(slope) + logsigmoid(h) + log_survival
    if h_zero is None:
        return log_survival, log_density
    log_start = logsigmoid(-h_zero)
    return log_survival - log_start, log_density - log_start


class Monotone(SurvivalDistribution):
    r"""S(t|x) = (1 - σ(h(t, x))) / (1 - σ(h(0, x))) with h increasing in t.

    Parameters
    ----------
    curve : callable
        (code, times) to (h, dh/dt): the mixed network of one member.
    code : Tensor of shape (n, w)
        What the covariate network made of each subject; it runs once per subject.
    anchored : bool
        Divide by S(0|x), so that S(0|x) = 1. Without it (the paper's network) mass is lost at zero.
    horizon : float or None
        The last time T the network was trained on. A bounded network says nothing beyond it, so the
        curve goes on as the Weibull curve through its values at T/2 and T, with a shape between 1 and 10:

        Λ(t|x) = Λ(T|x) (t / T)^k,  k = log₂(Λ(T|x) / Λ(T/2|x)) clipped to [1, 10],  for t > T.

        The hazard goes on rising where it rose, and is constant where it fell; mean and quantiles are
        finite. None leaves the network's own tail (the paper's: S(∞|x) > 0).
    """

    def __init__(self, curve: Curve, code: Tensor, *, anchored: bool = True, horizon: float | None = 1.0) -> None:
        self.curve, self.code, self.anchored, self.horizon = curve, code, anchored, horizon
        self._tail_cache: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.code)

    @property
    def _like(self) -> Tensor:
        return self.code

    def _take(self, rows: Tensor) -> Monotone:
        part = Monotone(self.curve, self.code[rows], anchored=self.anchored, horizon=self.horizon)
        if self._tail_cache is not None:
            part._tail_cache = (self._tail_cache[0][rows], self._tail_cache[1][rows])
        return part

    def _log_survival(self, t: Tensor) -> Tensor:
        return self._log_both(t)[0]

    def _log_density(self, t: Tensor) -> Tensor:
        return self._log_both(t)[1]

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        if self.horizon is None:
            return self._network(t)
        beyond = t > self.horizon
        if not bool(beyond.any()):
            return self._network(t)
        log_survival, log_density = self._network(t.clamp_max(self.horizon))
        cumulative, shape = self._tail()
        log_ratio = torch.log(t.clamp_min(self.horizon) / self.horizon)
        log_tail = -cumulative * torch.exp(shape * log_ratio)
        log_hazard = torch.log(shape * cumulative / self.horizon) + (shape - 1.0) * log_ratio
        log_tail_density = torch.where(torch.isinf(t), -math.inf, log_hazard + log_tail)
        return torch.where(beyond, log_tail, log_survival), torch.where(beyond, log_tail_density, log_density)

    def _tail(self) -> tuple[Tensor, Tensor]:
        """Λ at the horizon and the shape k of the curve past it, (n, 1) each."""
        if self._tail_cache is None:
            assert self.horizon is not None
            ends = self.code.new_tensor([[0.5 * self.horizon, self.horizon]])
            cumulative = (-self._network(ends)[0]).clamp_min(torch.finfo(self.code.dtype).tiny)
            shape = torch.log2(cumulative[:, 1:] / cumulative[:, :1]).clamp(1.0, _STEEPEST)
            self._tail_cache = (cumulative[:, 1:], shape)
        return self._tail_cache

    def _network(self, t: Tensor) -> tuple[Tensor, Tensor]:
        n, m = len(self), t.shape[1]
        rows = max(1, _CELLS // max(m, 1))
        if n <= rows:
            return self._network_tile(self.code, t)
        parts = [
            self._network_tile(self.code[i : i + rows], t if t.shape[0] == 1 else t[i : i + rows])
            for i in range(0, n, rows)
        ]
        return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])

    def _network_tile(self, code: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        h, slope = self.curve(code, t)
        h_zero = self.curve(code, t.new_zeros(1, 1))[0] if self.anchored else None
        log_survival, log_density = monotone_log_likelihood_terms(h, slope, h_zero)
        if self.anchored:
            log_survival = log_survival.clamp_max(0.0)
        return log_survival, log_density
