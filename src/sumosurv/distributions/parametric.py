"""Distributions whose formulas are functions of `sumosurv.families`."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from sumosurv.distributions._arguments import as_tensor
from sumosurv.distributions._quadrature import integrate_panels, panel_edges
from sumosurv.distributions.base import SurvivalDistribution
from sumosurv.families import (
    LogTerms,
    generalised_gamma,
    gompertz,
    log_logistic,
    log_normal,
    normal,
    proportional_hazards,
    proportional_survival,
    spline,
    spline_slopes,
    weibull,
)

_STEEP = 0.5  # if S is lower at the end of the first panel, the nodes might miss its decrease
_ALONE = 40.0  # 1 + exp(40) is exp(40) in float64


class _Formula(SurvivalDistribution):
    """A distribution whose log S, log f and log λ come from one function."""

    @abstractmethod
    def _log_terms(self, t: Tensor) -> LogTerms:
        """Evaluate the formula at times (n or 1, m)."""

    def _log_survival(self, t: Tensor) -> Tensor:
        return self._log_terms(t).survival

    def _log_density(self, t: Tensor) -> Tensor:
        return self._log_terms(t).density

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        return self._log_terms(t)[:2]

    def _log_hazard(self, t: Tensor) -> Tensor:
        return self._log_terms(t).hazard


class Parametric(_Formula):
    """A family with a few parameters, each stored as a column (n, 1).

    A subclass sets ``formula``, a function of the parameters (the logarithms of positive parameters) and the times.
    """

    formula: Callable[..., LogTerms]
    positive: tuple[bool, ...]  # which parameters are positive

    _columns: tuple[Tensor, ...]
    _order = -1.0  # sign with which the first parameter ranks the curves, from the highest to the lowest

    @classmethod
    def from_formula(cls, *arguments: Tensor) -> Self:
        """Return the distribution with these arguments of the formula, (n,) each."""
        return cls(*(torch.exp(a) if positive else a for a, positive in zip(arguments, cls.positive, strict=True)))

    def _broadcast(self, **values: Any) -> tuple[Tensor, ...]:
        """Check named parameters, numbers or one per subject, and store them as columns."""
        tensors = []
        for positive, (name, value) in zip(self.positive, values.items(), strict=True):
            column = as_tensor(value)
            if column.ndim > 1:
                raise ValueError(f"{name} must be a number or one per subject; got shape {tuple(column.shape)}.")
            if not bool(torch.isfinite(column).all()) or (positive and not bool((column > 0).all())):
                raise ValueError(f"{name} must be finite{' and positive' if positive else ''} for every subject.")
            tensors.append(column.reshape(-1))
        sizes = [len(column) for column in tensors]
        n = max(sizes)
        if any(size not in (1, n) for size in sizes):
            raise ValueError(f"Parameters must be for the same subjects; they have {sizes}.")
        self._columns = tuple(column.expand(n)[:, None] for column in tensors)
        return self._columns

    def _log_terms(self, t: Tensor) -> LogTerms:
        logs = (torch.log(c) if positive else c for c, positive in zip(self._columns, self.positive))
        return type(self).formula(*logs, t)

    def __len__(self) -> int:
        return len(self._columns[0])

    @property
    def _like(self) -> Tensor:
        return self._columns[0]

    def _take(self, rows: Tensor) -> Self:
        return type(self)(*(column[rows, 0] for column in self._columns))

    def ranking(self) -> Tensor | None:
        """Return the first parameter as the order of the curves if all subjects share the others."""
        first, *others = self._columns
        same = all(bool((other == other[:1]).all()) for other in others)
        return self._order * first[:, 0] if same else None


class Weibull(Parametric):
    r"""Weibull distribution, S(t) = exp(-(t / scale)^shape): the hazard is a power of time.

    Parameters
    ----------
    scale, shape : float or array of shape (n,)
        Both positive; shape 1 is the exponential distribution.
    """

    formula, positive = staticmethod(weibull), (True, True)

    def __init__(self, scale: Any, shape: Any) -> None:
        self.scale, self.shape = self._broadcast(scale=scale, shape=shape)


class LogNormal(Parametric):
    r"""Log-normal distribution, S(t) = Φ((mu - log t) / sigma): the hazard rises and then falls.

    Parameters
    ----------
    mu, sigma : float or array of shape (n,)
        Mean and standard deviation of log T.
    """

    formula, positive = staticmethod(log_normal), (False, True)

    def __init__(self, mu: Any, sigma: Any) -> None:
        self.mu, self.sigma = self._broadcast(mu=mu, sigma=sigma)


class LogLogistic(Parametric):
    r"""Log-logistic distribution, S(t) = 1 / (1 + (t / scale)^shape): the hazard falls in the long run.

    Parameters
    ----------
    scale, shape : float or array of shape (n,)
        Both positive; the scale is the median. The mean is finite for a shape above 1.

    Examples
    --------
    >>> d = LogLogistic(scale=[2.0, 2.0], shape=[1.0, 2.0])
    >>> d.survival(6.0).round(6), d.quantile(0.75).round(6), d.mean().round(6)
    (array([0.25, 0.1 ]), array([6.      , 3.464102]), array([     inf, 3.141593]))
    """

    formula, positive = staticmethod(log_logistic), (True, True)

    def __init__(self, scale: Any, shape: Any) -> None:
        self.scale, self.shape = self._broadcast(scale=scale, shape=shape)

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        log_odds = torch.log(-torch.expm1(level)) - level
        half = torch.exp(0.5 * log_odds / self.shape)  # in two steps, so that only the result can overflow
        return self.scale * half * half

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        if not bool(torch.isinf(horizon).all()):
            return self._remaining_mean(torch.zeros_like(horizon), horizon)
        scale, shape = self.scale[:, 0], self.shape[:, 0]
        angle = math.pi * (shape - 1.0).clamp(0.0, 1.0) / shape  # sin(π / shape) is the sine of this
        return torch.where(shape > 1.0, scale * math.pi / (shape * torch.sin(angle)), math.inf)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        """Quadrature up to a time after which S is a power of t up to rounding, whose integral is closed-form."""
        scale, shape = self.scale[:, 0], self.shape[:, 0]
        cut = torch.maximum(start, scale * torch.exp(_ALONE / shape)).clamp_max(torch.finfo(start.dtype).max)
        near = super()._remaining_mean(start, torch.minimum(end, cut))
        excess, log_length = shape - 1.0, torch.log(torch.maximum(end, cut)) - torch.log(cut)
        safe = torch.where(excess == 0, 1.0, excess)
        power = torch.where(excess == 0, log_length, -torch.expm1(-safe * log_length) / safe)
        reached = self._log_survival(cut[:, None])[:, 0] - self._log_survival(start[:, None])[:, 0]
        return near + cut * torch.exp(reached) * power


class Gompertz(Parametric):
    r"""Gompertz distribution: the hazard grows or decays exponentially, λ(t) = level · exp(rate · t).

    S(t) = exp(-level (exp(rate · t) - 1) / rate).

    Parameters
    ----------
    level, rate : float or array of shape (n,)
        The hazard at time zero, which is positive, and its rate of growth. A rate of zero gives the exponential
        distribution; with a negative rate, the event never happens with probability exp(level / rate).

    Examples
    --------
    >>> d = Gompertz(level=[0.5, 0.5], rate=[1e-12, 1.0])
    >>> d.survival(2.0).round(6), d.hazard(2.0).round(6)
    (array([0.367879, 0.040986]), array([0.5     , 3.694528]))
    """

    formula, positive = staticmethod(gompertz), (True, False)
    _order = 1.0

    def __init__(self, level: Any, rate: Any) -> None:
        self.level, self.rate = self._broadcast(level=level, rate=rate)

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        unit = -level / self.level  # time at which a constant hazard would reach the level
        growth = self.rate * unit
        huge, none = growth == math.inf, growth.abs() < 1e-30
        safe = torch.where(huge | none | (growth <= -1.0), 1.0, growth)
        near = unit * torch.where(none, 1.0, torch.log1p(safe) / safe)
        far = torch.log(torch.where(huge, -level, 1.0)) + torch.log(self.rate.abs()) - torch.log(self.level)
        return torch.where(growth <= -1.0, math.inf, torch.where(huge, far / self.rate, near))


class GeneralisedGamma(Parametric):
    r"""Generalised gamma distribution, which includes the Weibull, log-normal and gamma distributions.

    log T = mu + sigma w, and exp(q w) / q² has a gamma distribution with shape 1 / q².

    Parameters
    ----------
    mu, sigma, q : float or array of shape (n,)
        Location and scale of log T, and the shape: 1 for a Weibull, 0 for a log-normal and sigma for a gamma
        distribution. sigma is positive, and q lies between -10 and 10.

    Examples
    --------
    >>> d = GeneralisedGamma(mu=0.0, sigma=0.5, q=[0.0, 1.0])
    >>> d.survival(2.0).round(6), LogNormal(0.0, 0.5).survival(2.0).round(6), Weibull(1.0, 2.0).survival(2.0).round(6)
    (array([0.082829, 0.018316]), array([0.082829]), array([0.018316]))
    """

    formula, positive = staticmethod(generalised_gamma), (False, True, False)

    def __init__(self, mu: Any, sigma: Any, q: Any) -> None:
        self.mu, self.sigma, self.q = self._broadcast(mu=mu, sigma=sigma, q=q)
        if bool((self.q.abs() > 10.0).any()):
            raise ValueError(f"q must be between -10 and 10; got {float(self.q[self.q.abs() > 10.0][0])}.")


class Normal(Parametric):
    r"""Normal distribution truncated to T > 0: S(t) = Φ((mean - t) / sd) / Φ(mean / sd).

    Parameters
    ----------
    mean, sd : float or array of shape (n,)
        Mean and standard deviation before truncation at zero.
    """

    formula, positive = staticmethod(normal), (False, True)

    def __init__(self, mean: Any, sd: Any) -> None:
        self.location, self.sd = self._broadcast(mean=mean, sd=sd)


class ProportionalHazards(_Formula):
    r"""Proportional hazards with a smooth baseline c: Λ(t|x) = e^{r(x)} (e^{p c(t)} - e^{p c(0)}).

    Parameters
    ----------
    log_baseline : callable
        Maps times (n or 1, m) to c(t) and log c'(t); c is smooth and increasing, and finite at zero.
    log_risk : Tensor of shape (n,)
        r.
    log_power : Tensor of shape ()
        log p.
    breaks : tuple of float
        Times at which c is not smooth.
    """

    def __init__(
        self,
        log_baseline: Callable[[Tensor], tuple[Tensor, Tensor]],
        log_risk: Tensor,
        log_power: Tensor,
        breaks: tuple[float, ...] = (),
    ) -> None:
        if not bool(torch.isfinite(log_risk).all()):
            raise ValueError("The log risk must be finite for every subject.")
        self.log_baseline, self.log_risk, self.log_power, self._own_breaks = log_baseline, log_risk, log_power, breaks
        self._log_start = log_baseline(log_risk.new_zeros(1, 1))[0]

    def __len__(self) -> int:
        return len(self.log_risk)

    @property
    def _like(self) -> Tensor:
        return self.log_risk

    @property
    def _breaks(self) -> tuple[float, ...]:
        return self._own_breaks

    def _take(self, rows: Tensor) -> Self:
        return type(self)(self.log_baseline, self.log_risk[rows], self.log_power, self._own_breaks)

    def _log_terms(self, t: Tensor) -> LogTerms:
        return proportional_hazards(self.log_risk[:, None], self.log_power, *self.log_baseline(t), self._log_start)

    def _log_survival(self, t: Tensor) -> Tensor:
        baseline = self.log_baseline(t)[0]
        return proportional_survival(self.log_risk[:, None], self.log_power, baseline, self._log_start)[0]

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        """Integrate over panels on which all curves are smooth, except curves that decrease within the first panel."""
        last = float(horizon.max()) if len(horizon) else math.inf
        if not 0.0 < last < math.inf:
            return super()._restricted_mean(horizon)
        limits = horizon.double()
        start, breaks = torch.zeros_like(limits), [b for b in self._own_breaks if 0.0 < b < last]
        edges = torch.tensor(panel_edges(breaks, last), dtype=limits.dtype, device=limits.device)
        mean = integrate_panels(self._survival_of_rows, start, limits, edges, self._precision, smooth=False).to(horizon)
        early = self._survival(edges[1].to(self._like).reshape(1, 1))[:, 0]
        steep = (early < _STEEP).nonzero()[:, 0]
        if not len(steep):
            return mean
        return mean.index_copy(0, steep, super(ProportionalHazards, self._take(steep))._restricted_mean(horizon[steep]))


class RoystonParmar(_Formula):
    r"""Royston-Parmar model: the log cumulative hazard is a restricted cubic spline of log t.

    Parameters
    ----------
    coefficients : Tensor of shape (n, m)
        γ of each subject, one per knot: the constant, the slope before the first knot, and one per inner knot.
    knots : Tensor of shape (m,)
        Log times, increasing.
    """

    def __init__(self, coefficients: Tensor, knots: Tensor) -> None:
        if not bool(torch.isfinite(coefficients).all()) or not bool((spline_slopes(coefficients, knots) > 0).all()):
            raise ValueError("The coefficients of a spline must be finite, and its slope positive everywhere.")
        self.coefficients, self.knots = coefficients, knots

    def __len__(self) -> int:
        return len(self.coefficients)

    @property
    def _like(self) -> Tensor:
        return self.coefficients

    @property
    def _breaks(self) -> tuple[float, ...]:
        return tuple(torch.exp(self.knots).tolist())

    def _take(self, rows: Tensor) -> Self:
        return type(self)(self.coefficients[rows], self.knots)

    def _log_terms(self, t: Tensor) -> LogTerms:
        return spline([column[:, None] for column in self.coefficients.T], self.knots, t)

    def ranking(self) -> Tensor | None:
        """Return the constant as the order of the curves if all subjects share the other coefficients."""
        others = self.coefficients[:, 1:]
        return self.coefficients[:, 0] if len(self) and bool((others == others[0]).all()) else None
