"""The value everything meets at: a survival distribution for each of n subjects."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions._numerics import invert_log_survival, mean_survival_time

__all__ = ["SurvivalDistribution"]


class SurvivalDistribution(ABC):
    r"""The distribution of the event time T of each of n subjects, in the user's time unit.

    A kind defines ``log_survival`` and ``log_density``; all else follows from these two. Every
    method that takes ``times`` accepts

    - a number: the same time for every subject, result of shape (n,);
    - an array of shape (n,): each subject's own time, result of shape (n,);
    - a grid: an array of shape (m,) with m ≠ n, or (1, m), or (n, m), result of shape (n, m).

    An array of shape (n,) is always read as own times; write ``times[None, :]`` to be certain of a
    grid. Torch tensors give torch tensors back, with gradients; anything else gives NumPy float64.

    Examples
    --------
    >>> from sumosurv.distributions import Weibull
    >>> d = Weibull(scale=[1.0, 2.0], shape=[1.0, 1.0])
    >>> d.survival([[0.0, 1.0, 2.0]]).round(3)
    array([[1.   , 0.368, 0.135],
           [1.   , 0.607, 0.368]])
    >>> d.median().round(3)
    array([0.693, 1.386])
    """

    # ------------------------------------------------------------------ what a kind defines

    @abstractmethod
    def __len__(self) -> int:
        """The number of subjects."""

    @abstractmethod
    def _log_survival(self, t: Tensor) -> Tensor:
        """log S at times of shape (n, m), or (1, m) for a shared grid; result (n, m)."""

    @abstractmethod
    def _log_density(self, t: Tensor) -> Tensor:
        """log f at times of shape (n, m), or (1, m) for a shared grid; result (n, m)."""

    @abstractmethod
    def _take(self, rows: Tensor) -> SurvivalDistribution:
        """The distribution of the given subjects (repeats allowed)."""

    @property
    @abstractmethod
    def _like(self) -> Tensor:
        """Any tensor of the distribution: its dtype and device are those of the results."""

    # ------------------------------------------------------------------ what a kind may do faster

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        return self._log_survival(t), self._log_density(t)

    def _survival(self, t: Tensor) -> Tensor:
        return torch.exp(self._log_survival(t))

    def _density(self, t: Tensor) -> Tensor:
        return torch.exp(self._log_density(t))

    def _log_hazard(self, t: Tensor) -> Tensor:
        log_survival, log_density = self._log_both(t)
        return log_density - log_survival

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        """The smallest t with log S(t) <= level, for levels of shape (n, m); inf where there is none."""
        rows = torch.arange(len(self), device=level.device)[:, None].expand_as(level).reshape(-1)

        def log_both(rows: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            log_survival, log_density = self._take(rows)._log_both(t[:, None])
            return log_survival[:, 0], log_density[:, 0]

        return invert_log_survival(log_both, rows, level.reshape(-1)).reshape(level.shape)

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        """The integral of S from 0 to the horizon, shape (n,); the horizon may be inf."""
        limits = horizon.double()  # a single-precision network still integrates over the range of float64
        return mean_survival_time(
            self._survival_of_rows, limits, torch.ones_like(limits), self._precision, self._breaks
        ).to(horizon)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        """The integral of S(t) / S(start) from start to end, shape (n,): no cancellation where S is tiny."""
        first, length = start.double(), (end - start).double()
        log_first = self._log_survival(start[:, None])

        def remaining(rows: Tensor, t: Tensor) -> Tensor:
            later = (first[rows, None] + t).clamp_max(torch.finfo(self._like.dtype).max).to(self._like)
            return torch.exp((self._take(rows)._log_survival(later) - log_first[rows]).to(t))

        breaks = self._breaks if bool((first == 0).all()) else ()
        return mean_survival_time(remaining, length, torch.ones_like(length), self._precision, breaks).to(start)

    def _sample(self, size: int, rng: np.random.Generator) -> Tensor:
        uniform = torch.from_numpy(1.0 - rng.random((len(self), size))).to(self._like)
        return self._inverse_log_survival(torch.log(uniform))

    def _survival_of_rows(self, rows: Tensor, t: Tensor) -> Tensor:
        own = t.clamp_max(torch.finfo(self._like.dtype).max).to(self._like)
        if t.shape[0] == 1 and len(rows) == len(self):  # a grid for all, in their order
            return self._survival(own).to(t)
        return self._take(rows)._survival(own).to(t)

    @property
    def _breaks(self) -> tuple[float, ...]:
        """Times at which the curves are not smooth, where they are the same for all subjects: a help to quadrature."""
        return ()

    @property
    def _precision(self) -> float:
        """The rounding error of one survival probability."""
        return float(torch.finfo(self._like.dtype).eps)

    # ------------------------------------------------------------------ the public face

    def log_survival(self, times: Any) -> Any:
        r"""log S(t) = log P(T > t)."""
        return self._at(times, self._log_survival)

    def log_density(self, times: Any) -> Any:
        r"""log f(t), with f(t) = -dS(t)/dt."""
        return self._at(times, self._log_density)

    def survival(self, times: Any) -> Any:
        r"""S(t) = P(T > t)."""
        return self._at(times, self._survival)

    def cdf(self, times: Any) -> Any:
        r"""F(t) = P(T <= t) = 1 - S(t), accurate also where it is tiny."""
        return self._at(times, lambda t: -torch.expm1(self._log_survival(t)))

    def density(self, times: Any) -> Any:
        r"""f(t) = -dS(t)/dt."""
        return self._at(times, self._density)

    def hazard(self, times: Any) -> Any:
        r"""λ(t) = f(t) / S(t): the event rate among those who got as far as t; NaN where nobody does."""

        return self._at(times, lambda t: torch.exp(self._log_hazard(t)))

    def cumulative_hazard(self, times: Any) -> Any:
        r"""Λ(t) = -log S(t)."""
        return self._at(times, lambda t: (-self._log_survival(t)).clamp_min(0.0))

    def quantile(self, q: Any) -> Any:
        """The smallest t with F(t) >= q; inf where the curve never gets so low.

        A number gives shape (n,), an array of m levels (n, m), an array of shape (n, m) each subject's own.
        """
        as_tensor = isinstance(q, Tensor)
        levels = self._tensor(q)
        if bool(torch.isnan(levels).any()) or bool(((levels < 0) | (levels > 1)).any()):
            raise ValueError(f"Quantile levels must lie in [0, 1]; got {_first_outside(levels, 0.0, 1.0)}.")
        if levels.ndim > 2 or (levels.ndim == 2 and levels.shape[0] not in (1, len(self))):
            raise ValueError(f"Quantile levels of shape {tuple(levels.shape)} do not fit {len(self)} subjects.")
        grid = levels.reshape(1, -1) if levels.ndim < 2 else levels
        result = self._inverse_log_survival(torch.log1p(-grid).expand(len(self), -1))
        return _out(result[:, 0] if levels.ndim == 0 else result, as_tensor)

    def median(self) -> Any:
        """The time that half of such subjects outlive."""
        return self.quantile(0.5)

    def mean(self) -> Any:
        r"""Life expectancy, E[T] = ∫₀^∞ S(t) dt; inf where the integral diverges."""
        return _out(self._restricted_mean(self._like.new_full((len(self),), math.inf)), False)

    def restricted_mean(self, horizon: Any) -> Any:
        r"""E[min(T, horizon)] = ∫₀^horizon S(t) dt, for a number or one horizon per subject."""
        limits = self._check_times(self._tensor(horizon), "horizon")
        if limits.ndim == 0:
            limits = limits.expand(len(self))
        if limits.shape != (len(self),):
            raise ValueError(
                f"The horizon is a number or one per subject ({len(self)}); got shape {tuple(limits.shape)}."
            )
        return _out(self._restricted_mean(limits), isinstance(horizon, Tensor))

    def conditional(self, after: Any) -> SurvivalDistribution:
        r"""The distribution of T given T > after, on the same clock: S(t) / S(after) for t >= after, 1 before.

        ``after`` is a number or one time per subject. The expected remaining life is
        ``conditional(s).mean() - s``.
        """
        from sumosurv.distributions.wrappers import Conditional

        return Conditional(self, after)

    def sample(self, size: int | None = None, random_state: Any = None) -> Any:
        """Draw event times: shape (n,), or (n, size).

        ``random_state`` is a seed or a ``numpy.random.Generator``.
        """
        rng = np.random.default_rng(random_state)
        with torch.no_grad():
            draws = self._sample(1 if size is None else size, rng)
        return _out(draws[:, 0] if size is None else draws, False)

    def single(self) -> SurvivalDistribution:
        """The same distribution in single precision, where that is faster: networks that are monotone in time.

        S then has an absolute error of about 3e-7. Other kinds stay as they are.
        """
        return self

    def __getitem__(self, rows: Any) -> SurvivalDistribution:
        """The distribution of some of the subjects: an index, a slice, row numbers or a boolean mask."""
        index = np.arange(len(self))[rows]
        return self._take(torch.as_tensor(np.atleast_1d(index), device=self._like.device))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={len(self)})"

    # ------------------------------------------------------------------ doors

    def _tensor(self, values: Any) -> Tensor:
        if not isinstance(values, Tensor):
            values = torch.from_numpy(np.array(values, dtype=np.float64))
        tensor: Tensor = values.to(self._like)
        return tensor

    def _check_times(self, t: Tensor, name: str = "times") -> Tensor:
        if bool(torch.isnan(t).any()) or bool((t < 0).any()):
            raise ValueError(f"{name} must be zero or more and not missing; got {_first_outside(t, 0.0, math.inf)}.")
        return t

    def _at(self, times: Any, function: Any) -> Any:
        as_tensor = isinstance(times, Tensor)
        t = self._check_times(self._tensor(times))
        n = len(self)
        own = t.ndim == 0 or (t.ndim == 1 and t.shape[0] == n)
        if t.ndim == 0:
            grid = t.reshape(1, 1)
        elif own:
            grid = t.reshape(n, 1)
        elif t.ndim == 1:
            grid = t.reshape(1, -1)
        elif t.ndim == 2 and t.shape[0] in (1, n):
            grid = t
        else:
            raise ValueError(
                f"times of shape {tuple(t.shape)} do not fit {n} subjects: give a number, ({n},) own times, "
                f"or a grid of shape (m,), (1, m) or ({n}, m)."
            )
        result = function(grid)
        return _out(result[:, 0] if own else result, as_tensor)


def _first_outside(values: Tensor, low: float, high: float) -> float:
    flat = values.reshape(-1)
    return float(flat[~((flat >= low) & (flat <= high))][0])


def _out(result: Tensor, as_tensor: bool) -> Any:
    return result if as_tensor else result.detach().cpu().double().numpy()
