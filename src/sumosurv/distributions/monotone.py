"""The distribution of a network that is monotone in time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from sumosurv.distributions._quadrature import integrate_panels, panel_edges
from sumosurv.distributions.base import SurvivalDistribution

# (code of shape (n, w), times of shape (n or 1, m)) -> h and dh/dt of shape (n, m)
Curve = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
Value = Callable[[Tensor, Tensor], Tensor]  # h alone
Quantity = Literal["log_survival", "survival", "density", "log_both"]

_CELLS = 1 << 13  # subjects × times evaluated at once: keeps the hidden layers in cache


def monotone_log_likelihood_terms(h: Tensor, slope: Tensor, log_start: Tensor | None) -> tuple[Tensor, Tensor]:
    r"""Return log S and log f of the survival head S(t) = 1 - sigmoid(h(t)) = exp(-softplus(h(t))).

    .. math::
        \log S = \log\sigma(-h), \qquad \log f = \log h' + \log\sigma(h) + \log\sigma(-h).

    With ``log_start`` = log σ(-h(0)), both are divided by S(0): the result is the distribution given T > 0.
    """
    log_survival = logsigmoid(-h)
    log_density = torch.log(slope) + logsigmoid(h) + log_survival
    if log_start is None:
        return log_survival, log_density
    return log_survival - log_start, log_density - log_start


def survival_head(quantity: Quantity, h: Tensor, slope: Tensor | None, log_start: Tensor | None) -> tuple[Tensor, ...]:
    """Return a quantity of the survival head from h, its slope if the quantity needs it, and log S(0)."""
    if quantity == "log_survival":
        log_survival = logsigmoid(-h)
        return (log_survival if log_start is None else (log_survival - log_start).clamp_max(0.0),)
    if quantity == "survival":
        survival = torch.sigmoid(-h)
        return (survival if log_start is None else (survival * torch.exp(-log_start)).clamp_max(1.0),)
    assert slope is not None
    if quantity == "density":
        density = slope * torch.sigmoid(h) * torch.sigmoid(-h)
        return (density if log_start is None else density * torch.exp(-log_start),)
    log_survival, log_density = monotone_log_likelihood_terms(h, slope, log_start)
    return (log_survival if log_start is None else log_survival.clamp_max(0.0)), log_density


NEEDS_SLOPE: tuple[Quantity, ...] = ("density", "log_both")


class Monotone(SurvivalDistribution):
    r"""Distribution of a SuMo-net: S(t|x) = (1 - σ(h(t, x))) / (1 - σ(h(0, x))), with h increasing in t.

    Parameters
    ----------
    curve : callable
        (code, times) to (h, dh/dt): the mixed network of one member.
    code : Tensor of shape (n, w)
        Embedding of the covariates: the output of the covariate network, which runs once per subject.
    value : callable, optional
        (code, times) to h alone, if that is cheaper.
    breaks : sequence of float
        Times at which h is not smooth. Means up to the last of them are computed panel by panel.
    anchored : bool, default True
        Divide by S(0|x), so that S(0|x) = 1. False, as in the paper's network, leaves probability mass at zero.
    fast : FusedCurve, optional
        A faster version of ``curve`` without gradients, from `sumosurv.networks.fused`.
    """

    def __init__(
        self,
        curve: Curve,
        code: Tensor,
        *,
        value: Value | None = None,
        breaks: Sequence[float] = (),
        anchored: bool = True,
        fast: Any = None,
    ) -> None:
        self.curve, self.code, self.anchored, self.fast = curve, code, anchored, fast
        self.value: Value = (lambda rows, t: curve(rows, t)[0]) if value is None else value
        self.breaks = tuple(breaks)
        self._start_cache: Tensor | None = None

    def __len__(self) -> int:
        return len(self.code)

    @property
    def _like(self) -> Tensor:
        return self.code

    @property
    def _breaks(self) -> tuple[float, ...]:
        return self.breaks

    def _take(self, rows: Tensor) -> Monotone:
        if self.fast is not None and self.fast.supports("log_survival", self.code, self.code[:1, :1]):
            self._log_start()  # compute it once, because iterations take rows repeatedly
        part = copy.copy(self)
        part.code = self.code[rows]
        part._start_cache = None if self._start_cache is None else self._start_cache[rows]
        return part

    def single(self) -> Monotone:
        """The same distribution in single precision, if a fast implementation is available."""
        if self.fast is None or self.code.dtype == torch.float32:
            return self
        made, exact = copy.copy(self), self.curve
        made.code, made.fast = self.code.float(), self.fast.to(torch.float32)
        made._start_cache = None if self._start_cache is None else self._start_cache.float()

        def curve(code: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            h, slope = exact(code.double(), t.double())
            return h.float(), slope.float()

        made.curve, made.value = curve, lambda code, t: curve(code, t)[0]
        return made

    def _log_survival(self, t: Tensor) -> Tensor:
        return self._evaluate("log_survival", t)[0]

    def _survival(self, t: Tensor) -> Tensor:
        return self._evaluate("survival", t)[0]

    def _log_density(self, t: Tensor) -> Tensor:
        return self._evaluate("log_both", t)[1]

    def _density(self, t: Tensor) -> Tensor:
        return self._evaluate("density", t)[0]

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        log_survival, log_density = self._evaluate("log_both", t)
        return log_survival, log_density

    def _evaluate(self, quantity: Quantity, t: Tensor) -> tuple[Tensor, ...]:
        start = self._log_start()
        parts: tuple[Tensor, ...]
        if self.fast is not None and self.fast.supports(quantity, self.code, t):
            parts = self.fast.evaluate(quantity, self.code, t, start)
        else:
            parts = self._tiles(quantity, t, start)
        if not self.anchored or quantity == "density" or not bool((zero := t == 0).any()):
            return parts
        # S(0) = 1 exactly, however the two evaluations of h(0) were rounded
        return parts[0].masked_fill(zero, 1.0 if quantity == "survival" else 0.0), *parts[1:]

    def _log_start(self) -> Tensor | None:
        """Return log S(0) before anchoring, (n, 1); None if the curve is not anchored."""
        if self.anchored and self._start_cache is None:
            zero = self.code.new_zeros(1, 1)
            if self.fast is not None and self.fast.supports("log_survival", self.code, zero):
                self._start_cache = self.fast.evaluate("log_survival", self.code, zero, None)[0]
            else:
                self._start_cache = self._tiles("log_survival", zero, None)[0]
        return self._start_cache

    def _tiles(self, quantity: Quantity, t: Tensor, start: Tensor | None) -> tuple[Tensor, ...]:
        """Evaluate without `fast`, some subjects at a time, so that the hidden layers stay in cache."""

        def tile(rows: slice, t: Tensor) -> tuple[Tensor, ...]:
            code = self.code[rows]
            h, slope = self.curve(code, t) if quantity in NEEDS_SLOPE else (self.value(code, t), None)
            return survival_head(quantity, h, slope, None if start is None else start[rows])

        n = len(self)
        step = max(1, _CELLS // max(t.shape[1], 1))
        if n <= step:
            return tile(slice(0, n), t)
        places = [slice(i, i + step) for i in range(0, n, step)]
        parts = [tile(rows, t if t.shape[0] == 1 else t[rows]) for rows in places]
        return tuple(torch.cat(columns) for columns in zip(*parts))

    # ------------------------------------------------------------------ means

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        if not self.anchored:
            return super()._restricted_mean(horizon)
        return self._remaining_mean(torch.zeros_like(horizon), horizon)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        """Integrate over panels on which the curves are smooth, up to the last break."""
        last = max(self.breaks, default=0.0)
        if bool((end > last).any()):
            return super()._remaining_mean(start, end)
        log_first = self._log_survival(start[:, None])
        lived = bool((log_first != 0).any())

        def remaining(rows: Tensor, t: Tensor) -> Tensor:
            part = self if len(rows) == len(self) and t.shape[0] == 1 else self._take(rows)
            if not lived:
                return part._survival(t.to(self.code)).to(t)
            return torch.exp((part._log_survival(t.to(self.code)) - log_first[rows]).to(t))

        edges = panel_edges([b for b in self.breaks if 0.0 < b < last], last)
        places = torch.tensor(edges, dtype=torch.float64, device=start.device)
        return integrate_panels(remaining, start.double(), end.double(), places, self._precision).to(start)
