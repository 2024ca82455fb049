"""The value everything meets at: a survival distribution for each of n subjects."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions._numerics import first_look, invert_log_survival, mean_survival_time
from sumosurv.distributions._quadrature import squared_areas

__all__ = ["SurvivalDistribution"]

_FIRST_LOOKS = 12  # times at most at which all curves are seen before a search for quantiles


class SurvivalDistribution(ABC):
    r"""The distribution of the event time T of each of n subjects, in the user's time unit.

    A kind defines ``log_survival`` and ``log_density``; all else follows from these two. Every method of a
    time t can be asked in two ways, and the shape of the result never depends on how many times there are:

    - ``d.survival(times)``: the same times for all subjects. A number gives shape (n,), an array of m times
      a grid of shape (n, m), also where m = n.
    - ``d.survival(own_times=z)``: each subject's own times. An array of shape (n,) gives shape (n,), one of
      shape (n, m) gives (n, m).

    ``quantile`` has ``q`` and ``own_levels``, ``restricted_mean`` has ``horizon`` and ``own_horizons``, by the
    same rule. Torch tensors give torch tensors back, with gradients; anything else gives NumPy float64.

    Examples
    --------
    >>> from sumosurv.distributions import Weibull
    >>> d = Weibull(scale=[1.0, 2.0], shape=[1.0, 1.0])
    >>> d.survival([0.0, 1.0]).round(3)  # both subjects at both times
    array([[1.   , 0.368],
           [1.   , 0.607]])
    >>> d.survival(own_times=[0.0, 1.0]).round(3)  # each subject at its own time
    array([1.   , 0.607])
    >>> d.median().round(3)
    array([0.693, 1.386])

    Notes
    -----
    ``last_time`` is the last time in the training data, where the distribution was predicted by a fitted model: what it
    says of later times is extrapolated, and pictures shade it. None elsewhere.
    """

    last_time: float | None = None

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
        seen = self._at_breaks(level)

        def log_both(rows: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            log_survival, log_density = self._take(rows)._log_both(t[:, None])
            return log_survival[:, 0], log_density[:, 0]

        start = None if seen is None else first_look(*seen, level)
        return invert_log_survival(log_both, rows, level.reshape(-1), start).reshape(level.shape)

    def _at_breaks(self, like: Tensor) -> tuple[Tensor, Tensor] | None:
        """Zero and some times in order, (m,), with log S at them, (n, m): where a search may begin. None if unknown."""
        breaks = sorted(b for b in self._breaks if b > 0)
        if len(breaks) < 3:
            return None
        some = breaks[:: math.ceil(len(breaks) / _FIRST_LOOKS)]
        times = torch.tensor([0.0, *some]).to(like)
        return times, self._log_survival(times[None]).detach()

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

    def log_survival(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""log S(t) = log P(T > t)."""
        return self._at(times, own_times, self._log_survival)

    def log_density(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""log f(t), with f(t) = -dS(t)/dt."""
        return self._at(times, own_times, self._log_density)

    def survival(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""S(t) = P(T > t).

        Parameters
        ----------
        times : float or array of shape (m,)
            Times that all subjects share.
        own_times : array of shape (n,) or (n, m)
            Each subject's own times, instead of ``times``.

        Returns
        -------
        array of shape (n,) or (n, m)
            (n,) for a number and for own times of shape (n,). The same holds for all methods of a time.
        """
        return self._at(times, own_times, self._survival)

    def cdf(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""F(t) = P(T <= t) = 1 - S(t), accurate also where it is tiny."""
        return self._at(times, own_times, lambda t: -torch.expm1(self._log_survival(t)))

    def density(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""f(t) = -dS(t)/dt."""
        return self._at(times, own_times, self._density)

    def hazard(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""λ(t) = f(t) / S(t): the event rate among those still event-free at t; NaN where S(t) = 0."""
        return self._at(times, own_times, lambda t: torch.exp(self._log_hazard(t)))

    def cumulative_hazard(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""Λ(t) = -log S(t)."""
        return self._at(times, own_times, lambda t: (-self._log_survival(t)).clamp_min(0.0))

    def quantile(self, q: Any = None, *, own_levels: Any = None) -> Any:
        """The smallest t with F(t) >= q; inf where the curve never gets so low.

        Parameters
        ----------
        q : float or array of shape (m,)
            Levels in [0, 1] that all subjects share: a number gives shape (n,), m levels give (n, m).
        own_levels : array of shape (n,) or (n, m)
            Each subject's own levels, instead of ``q``.
        """
        asked = self._arguments(q, own_levels, "q", "own_levels")
        levels = asked.values
        if bool(torch.isnan(levels).any()) or bool(((levels < 0) | (levels > 1)).any()):
            raise ValueError(f"Quantile levels must lie in [0, 1]; got {_first_outside(levels, 0.0, 1.0)}.")
        return asked.answer(self._inverse_log_survival(torch.log1p(-levels).expand(len(self), -1)))

    def median(self) -> Any:
        """The time that half of such subjects outlive."""
        return self.quantile(0.5)

    def mean(self) -> Any:
        r"""Life expectancy, E[T] = ∫₀^∞ S(t) dt; inf where the integral diverges."""
        return _out(self._restricted_mean(self._like.new_full((len(self),), math.inf)), False)

    def restricted_mean(self, horizon: Any = None, *, own_horizons: Any = None) -> Any:
        r"""E[min(T, horizon)] = ∫₀^horizon S(t) dt.

        Parameters
        ----------
        horizon : float or array of shape (m,)
            Horizons that all subjects share: a number gives shape (n,), m horizons give (n, m).
        own_horizons : array of shape (n,) or (n, m)
            Each subject's own horizons, instead of ``horizon``.
        """
        asked = self._arguments(horizon, own_horizons, "horizon", "own_horizons")
        limits = self._check_times(asked.values, "horizon").expand(len(self), -1)
        columns = [self._restricted_mean(column) for column in limits.unbind(1)]
        return asked.answer(torch.stack(columns, dim=1) if columns else limits)

    def integral(self, function: Callable[[Tensor], Tensor], horizon: Tensor) -> Tensor:
        r"""∫₀^horizon g(S(t)) dt of each subject, for g given as a function of survival probabilities.

        By adaptive quadrature: relative error about 1e-10. ``horizon`` is a float64 tensor of shape
        (n,), inf allowed.
        """
        return mean_survival_time(
            lambda rows, t: function(self._survival_of_rows(rows, t)),
            horizon,
            torch.ones_like(horizon),
            self._precision,
            self._breaks,
        )

    def squared_areas(self, at: Tensor) -> tuple[Tensor, Tensor]:
        r"""(∫₀^at F(t)² dt, ∫_at^∞ S(t)² dt) of each subject, for a float64 tensor of shape (n,), by quadrature.

        To an error of about 1e-10 times ∫ S². Curves that are smooth up to a known time T (networks, and mixtures
        with them) are evaluated up to T on panels that all subjects share.
        """
        breaks = [b for b in self._breaks if b > 0]
        far = at > max(breaks, default=-math.inf)
        below, above = torch.empty_like(at), torch.empty_like(at)
        for rows, areas in ((far, self._squared_areas), (~far, lambda part, z: part._areas_by_panels(z, breaks))):
            which = rows.nonzero()[:, 0]
            if len(which):
                below[which], above[which] = areas(self if len(which) == len(at) else self._take(which), at[which])
        return below, above

    @staticmethod
    def _squared_areas(part: SurvivalDistribution, at: Tensor) -> tuple[Tensor, Tensor]:
        whole = part.integral(torch.square, torch.full_like(at, math.inf))
        below = part.integral(lambda survival: (1.0 - survival).square(), at)
        return below, (whole - part.integral(torch.square, at)).clamp_min(0.0)

    def _areas_by_panels(self, at: Tensor, breaks: list[float]) -> tuple[Tensor, Tensor]:
        """`squared_areas` for times up to the last break: panels up to it, and what is left of the curves past it."""
        below, above = squared_areas(self._survival_of_rows, at, breaks, self._precision)
        last = max(breaks)
        reached = self._log_survival(self._like.new_full((1, 1), last))[:, 0].double()
        alive = torch.isfinite(reached).nonzero()[:, 0]
        if len(alive):
            part, limit = self._take(alive), torch.full_like(at[alive], math.inf)

            def rest(rows: Tensor, t: Tensor) -> Tensor:
                some = part if t.shape[0] == 1 and len(rows) == len(part) else part._take(rows)
                later = (last + t).clamp(math.nextafter(last, math.inf), torch.finfo(self._like.dtype).max)
                later = later.to(self._like)
                return torch.exp(some._log_survival(later).to(t) - reached[alive[rows], None]).square()

            area = mean_survival_time(rest, limit, torch.ones_like(limit), self._precision)
            above = above.index_add(0, alive, torch.exp(2.0 * reached[alive]) * area)
        return below, above

    def conditional(self, after: Any) -> SurvivalDistribution:
        r"""The distribution of T given T > after, on the same clock: S(t) / S(after) for t >= after, 1 before.

        ``after`` is a number or one time per subject. The expected remaining life is
        ``conditional(s).mean() - s``.
        """
        from sumosurv.distributions.wrappers import Conditional

        return Conditional(self, after)

    def remaining(self, after: Any) -> SurvivalDistribution:
        r"""The distribution of T - after given T > after: what is left of the life of those event-free at ``after``.

        ``after`` is a number or one time per subject, and the clock starts there.
        """
        from sumosurv.distributions.wrappers import Remaining

        return Remaining(self, after)

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

        S then has an absolute error below 2e-6 in networks trained with the default settings (3e-7 to 7e-7 was
        measured). It grows with the weights, whose sums are rounded: up to 5e-5 with random weights of standard
        deviation one, far larger than training leaves them; no bound holds for all weights. Other kinds stay as
        they are.
        """
        return self

    def step_table(self) -> tuple[Tensor, Tensor] | None:
        """Knots of shape (m,) and S at them, (n, m), where the curves are step functions; None where they are not.

        The first knot is zero. S(t) is the column of the last knot <= t, exactly: no rounding of times puts one that
        is a knot on the wrong side of it.
        """
        return None

    def ranking(self) -> Tensor | None:
        """A number for each subject, (n,), where curves lie in the same order at all times; None where they may not.

        The higher the number, the lower the curve; subjects with the same number have the same curve. Times at which
        all curves are still one are excepted.
        """
        return None

    def __getitem__(self, rows: Any) -> SurvivalDistribution:
        """The distribution of some of the subjects: an index, a slice, row numbers or a boolean mask."""
        index = np.arange(len(self))[rows]
        taken = self._take(torch.as_tensor(np.atleast_1d(index), device=self._like.device))
        taken.last_time = self.last_time
        return taken

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={len(self)})"

    # ------------------------------------------------------------------ arguments and results

    def _tensor(self, values: Any) -> Tensor:
        if not isinstance(values, Tensor):
            values = torch.from_numpy(np.array(values, dtype=np.float64))
        tensor: Tensor = values.to(self._like)
        return tensor

    def _check_times(self, t: Tensor, name: str = "times") -> Tensor:
        if bool(torch.isnan(t).any()) or bool((t < 0).any()):
            raise ValueError(f"{name} must be zero or more and not missing; got {_first_outside(t, 0.0, math.inf)}.")
        return t

    def _arguments(self, shared: Any, own: Any, name: str, own_name: str) -> _Arguments:
        """Times or levels that all subjects share, as (1, m), or each subject's own, as (n, m)."""
        if (shared is None) == (own is None):
            raise TypeError(f"Give either {name} or {own_name}.")
        given, n = shared if own is None else own, len(self)
        values = self._tensor(given)
        if own is None and values.ndim > 1:
            raise ValueError(
                f"{name} is a number or a one-dimensional array, which all {n} subjects share; got shape "
                f"{tuple(values.shape)}. For each subject's own pass {own_name}= of shape ({n},) or ({n}, m)."
            )
        if own is not None and (values.ndim not in (1, 2) or len(values) != n):
            raise ValueError(
                f"{own_name} has one row for each of the {n} subjects, shape ({n},) or ({n}, m); got shape "
                f"{tuple(values.shape)}. What all subjects share goes into {name}."
            )
        single = values.ndim == (0 if own is None else 1)
        grid = values.reshape(1, -1) if own is None else values[:, None] if single else values
        return _Arguments(grid, single, isinstance(given, Tensor))

    def _at(self, times: Any, own_times: Any, function: Callable[[Tensor], Tensor]) -> Any:
        asked = self._arguments(times, own_times, "times", "own_times")
        return asked.answer(function(self._check_times(asked.values)))


class _Arguments(NamedTuple):
    """What a distribution was asked at: times or levels of shape (1, m) or (n, m)."""

    values: Tensor
    single: bool  # one for each subject
    as_tensor: bool

    def answer(self, result: Tensor) -> Any:
        """The result of shape (n, m), in the shape and the kind of array that the arguments ask for."""
        return _out(result[:, 0] if self.single else result, self.as_tensor)


def _first_outside(values: Tensor, low: float, high: float) -> float:
    flat = values.reshape(-1)
    return float(flat[~((flat >= low) & (flat <= high))][0])


def _out(result: Tensor, as_tensor: bool) -> Any:
    return result if as_tensor else result.detach().cpu().double().numpy()
