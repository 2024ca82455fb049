"""`SurvivalDistribution`: the time and cause of the first event of each of n subjects."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions._arguments import as_tensor, check_levels, check_times, read_arguments, to_output
from sumosurv.distributions._numerics import invert_log_survival, mean_survival_time, starting_points


class SurvivalDistribution(ABC):
    r"""The distribution of the time T of the first event, and of its cause, for each of n subjects.

    Times are in the user's time unit. With ``n_causes`` = K competing causes, the cumulative incidence of cause k is

    .. math:: F_k(t) = P(T \le t, \text{cause } k), \qquad S(t) + \sum_k F_k(t) = 1,

    with density :math:`f_k` and cause-specific hazard :math:`\lambda_k = f_k / S`; for a single cause, F_1 = 1 - S.
    `survival`, `density`, `quantile`, `mean` etc. describe T, whatever the cause.

    Every method of a time t has two forms, and the shape of the result never depends on the number of times:

    - ``d.survival(times)``: the same times for all subjects. A number gives shape (n,), an array of m times
      a grid of shape (n, m), also if m = n.
    - ``d.survival(own_times=z)``: each subject's own times. An array of shape (n,) gives shape (n,), one of
      shape (n, m) gives (n, m).

    ``quantile`` has ``q`` and ``own_levels``, ``restricted_mean`` has ``horizon`` and ``own_horizons``, by the same
    rule. Methods per cause (`cumulative_incidence`, `cause_density`, `log_cause_density`, `cause_specific_hazard`,
    `restricted_time_lost`) add a last axis of length K; causes are numbered from one, so that column k - 1 is cause k.
    Torch tensors give torch tensors back, with gradients; anything else gives NumPy float64.

    Attributes
    ----------
    n_causes : int
        The number of causes K; 1 if causes are not distinguished.
    last_time : float or None
        The last time in the training data, if a fitted model predicted the distribution. Later times are extrapolated,
        and plots shade them.

    Examples
    --------
    >>> from sumosurv.distributions import CauseMixture, Weibull
    >>> d = Weibull(scale=[1.0, 2.0], shape=[1.0, 1.0])
    >>> d.survival([0.0, 1.0]).round(3)  # both subjects at both times
    array([[1.   , 0.368],
           [1.   , 0.607]])
    >>> d.survival(own_times=[0.0, 1.0]).round(3)  # each subject at its own time
    array([1.   , 0.607])
    >>> d.median().round(3)
    array([0.693, 1.386])
    >>> risks = CauseMixture(np.log([[0.75, 0.25]]), [Weibull([1.0], [1.0]), Weibull([2.0], [1.0])])
    >>> risks.cumulative_incidence(1.0).round(3), risks.survival(1.0).round(3)
    (array([[0.474, 0.098]]), array([0.428]))
    >>> risks.cause(2).survival([1.0, np.inf]).round(3)
    array([[0.902, 0.75 ]])
    """

    last_time: float | None = None

    @property
    def n_causes(self) -> int:
        """The number of causes K; 1 if causes are not distinguished."""
        return 1

    # ------------------------------------------------------------------ defined by subclasses

    @abstractmethod
    def __len__(self) -> int:
        """The number of subjects."""

    @abstractmethod
    def _log_survival(self, t: Tensor) -> Tensor:
        """log S at times of shape (n, m), or (1, m) for a shared grid; result (n, m)."""

    @abstractmethod
    def _take(self, rows: Tensor) -> SurvivalDistribution:
        """The distribution of the given subjects (repeats allowed)."""

    @property
    @abstractmethod
    def _like(self) -> Tensor:
        """Any tensor of the distribution: results have its dtype and device."""

    # A subclass defines one of the next two, and `_incidence` if it has several causes.

    def _log_density(self, t: Tensor) -> Tensor:
        """log f at times of shape (n, m), or (1, m) for a shared grid; result (n, m)."""
        log_density = self._log_cause_density(t)
        return log_density[..., 0] if self.n_causes == 1 else torch.logsumexp(log_density, dim=-1)

    def _log_cause_density(self, t: Tensor) -> Tensor:
        """log f_k at times of shape (n, m), or (1, m) for a shared grid; result (n, m, K)."""
        return self._log_density(t)[..., None]

    def _incidence(self, t: Tensor) -> Tensor:
        """F_k at times of shape (n, m), or (1, m) for a shared grid; result (n, m, K)."""
        return -torch.expm1(self._log_survival(t))[..., None]

    # ------------------------------------------------------------------ subclasses may have faster versions

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        return self._log_survival(t), self._log_density(t)

    def _survival(self, t: Tensor) -> Tensor:
        return torch.exp(self._log_survival(t))

    def _density(self, t: Tensor) -> Tensor:
        return torch.exp(self._log_density(t))

    def _log_hazard(self, t: Tensor) -> Tensor:
        log_survival, log_density = self._log_both(t)
        return log_density - log_survival

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        """(F_k(t) - F_k(start)) / S(start), for start of shape (n, 1) and t >= start; result (n, m, K).

        The differences lose digits if S(start) is small; they are scaled to sum to 1 - S(t) / S(start).
        """
        log_start = self._log_survival(start)
        whole = -torch.expm1((self._log_survival(t) - log_start).clamp_max(0.0))
        whole = torch.where(torch.isinf(log_start), 0.0, whole)
        if self.n_causes == 1:
            return whole[..., None]
        rise = (self._incidence(t) - self._incidence(start)).clamp_min(0.0)
        total = rise.sum(-1)
        share = torch.where(total > 0, whole / torch.where(total > 0, total, 1.0), 0.0)
        return rise * share[..., None]

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        """The smallest t with log S(t) <= level, for levels of shape (n, m); inf if there is none."""
        if (steps := self._steps()) is not None:
            return steps._inverse_log_survival(level)
        rows = torch.arange(len(self), device=level.device)[:, None].expand_as(level).reshape(-1)

        def log_both(rows: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            log_survival, log_density = self._take(rows)._log_both(t[:, None])
            return log_survival[:, 0], log_density[:, 0]

        start = starting_points(self._log_survival, self._breaks, level)
        return invert_log_survival(log_both, rows, level.reshape(-1), start).reshape(level.shape)

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        """The integral of S from 0 to the horizon, shape (n,); the horizon may be inf."""
        if (steps := self._steps()) is not None:
            return steps._restricted_mean(horizon)
        limits = horizon.double()  # single-precision networks too are integrated over the range of float64
        return mean_survival_time(self._survival_of_rows, limits, self._precision, self._breaks).to(horizon)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        """The integral of S(t) / S(start) from start to end, shape (n,): no cancellation if S is tiny."""
        if (steps := self._steps()) is not None:
            return steps._remaining_mean(start, end)
        first, length = start.double(), (end - start).double()
        log_first = self._log_survival(start[:, None])

        def remaining(rows: Tensor, t: Tensor) -> Tensor:
            later = (first[rows, None] + t).clamp_max(torch.finfo(self._like.dtype).max).to(self._like)
            return torch.exp((self._take(rows)._log_survival(later) - log_first[rows]).to(t))

        breaks = self._breaks if bool((first == 0).all()) else ()
        return mean_survival_time(remaining, length, self._precision, breaks).to(start)

    def _restricted_time_lost(self, horizon: Tensor) -> Tensor:
        """The integral of each F_k from 0 to the finite horizon, shape (n, K)."""
        free = [self.cause(k)._restricted_mean(horizon) for k in range(1, self.n_causes + 1)]
        return horizon[:, None] - torch.stack(free, dim=-1)

    def _cause_shares(self, t: Tensor) -> Tensor:
        """P(cause k | T = t) at event times, (n, m) to (n, m, K); for step functions, the shares of the jump at t."""
        known = self.step_table()
        if known is None:
            return torch.softmax(self._log_cause_density(t), dim=-1)
        knots = known[0]
        incidence = self._incidence(knots[None])
        jumps = torch.diff(incidence, dim=1, prepend=torch.zeros_like(incidence[:, :1]))
        place = (torch.searchsorted(knots, t.contiguous(), right=True) - 1).expand(len(self), -1)
        jumps = jumps.gather(1, place[..., None].expand(-1, -1, self.n_causes))
        return jumps / jumps.sum(-1, keepdim=True)

    def _sample(self, size: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Times and causes, both (n, size); the cause is 0 if the time is infinite."""
        uniform = torch.from_numpy(1.0 - rng.random((len(self), size))).to(self._like)
        times = self._inverse_log_survival(torch.log(uniform))
        happens = torch.isfinite(times)
        if self.n_causes == 1:
            return times, happens.long()
        shares = self._cause_shares(torch.where(happens, times, 0.0)).nan_to_num(0.0)
        uniform = torch.from_numpy(rng.random((len(self), size))).to(shares)
        cause = 1 + (uniform[..., None] >= shares.cumsum(-1)[..., :-1]).sum(-1)
        return times, torch.where(happens, cause, 0)

    def _survival_of_rows(self, rows: Tensor, t: Tensor) -> Tensor:
        own = t.clamp_max(torch.finfo(self._like.dtype).max).to(self._like)
        if t.shape[0] == 1 and len(rows) == len(self):  # one grid for all subjects, in order
            return self._survival(own).to(t)
        return self._take(rows)._survival(own).to(t)

    @property
    def _breaks(self) -> tuple[float, ...]:
        """Times at which the curves are not smooth, if all subjects share them; used by quadrature."""
        return ()

    @property
    def _precision(self) -> float:
        """The rounding error of one survival probability."""
        return float(torch.finfo(self._like.dtype).eps)

    def _steps(self) -> SurvivalDistribution | None:
        """The `step_table` as a distribution, which has closed-form quantiles and means."""
        from sumosurv.distributions.tabulated import Tabulated

        known = self.step_table()
        return None if known is None else Tabulated(*known)

    # ------------------------------------------------------------------ the time of the first event

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
        r"""F(t) = P(T <= t) = 1 - S(t), accurate also if it is tiny."""
        return self._at(times, own_times, lambda t: -torch.expm1(self._log_survival(t)))

    def density(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""f(t) = -dS(t)/dt."""
        return self._at(times, own_times, self._density)

    def hazard(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""λ(t) = f(t) / S(t): the event rate among those still event-free at t; NaN if S(t) = 0."""
        return self._at(times, own_times, lambda t: torch.exp(self._log_hazard(t)))

    def cumulative_hazard(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""Λ(t) = -log S(t)."""
        return self._at(times, own_times, lambda t: (-self._log_survival(t)).clamp_min(0.0))

    def quantile(self, q: Any = None, *, own_levels: Any = None) -> Any:
        """The smallest t with F(t) >= q; inf if F never reaches q.

        Parameters
        ----------
        q : float or array of shape (m,)
            Levels in [0, 1] that all subjects share: a number gives shape (n,), m levels give (n, m).
        own_levels : array of shape (n,) or (n, m)
            Each subject's own levels, instead of ``q``.
        """
        arguments = read_arguments(q, own_levels, "q", "own_levels", len(self), self._like)
        levels = check_levels(arguments.values)
        return arguments.output(self._inverse_log_survival(torch.log1p(-levels).expand(len(self), -1)))

    def median(self) -> Any:
        """The median event time of each subject."""
        return self.quantile(0.5)

    def mean(self) -> Any:
        r"""Life expectancy, E[T] = ∫₀^∞ S(t) dt; inf if the integral diverges."""
        return to_output(self._restricted_mean(self._like.new_full((len(self),), math.inf)))

    def restricted_mean(self, horizon: Any = None, *, own_horizons: Any = None) -> Any:
        r"""E[min(T, horizon)] = ∫₀^horizon S(t) dt.

        ``horizon`` is a number, which gives shape (n,), or m horizons that all subjects share, which give (n, m);
        ``own_horizons`` are each subject's own, of shape (n,) or (n, m), instead.
        """
        return self._by_horizon(horizon, own_horizons, self._restricted_mean)

    # ------------------------------------------------------------------ by cause

    def cumulative_incidence(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""F_k(t) = P(T <= t, cause k): arguments and shape as in `survival`, with a last axis for the K causes."""
        return self._at(times, own_times, self._incidence)

    def cause_density(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""f_k(t) = dF_k(t)/dt for all causes; they sum to the density of T."""
        return self._at(times, own_times, lambda t: torch.exp(self._log_cause_density(t)))

    def log_cause_density(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""log f_k(t) for all causes: the log-likelihood of an event of cause k at t."""
        return self._at(times, own_times, self._log_cause_density)

    def cause_specific_hazard(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""λ_k(t) = f_k(t) / S(t): the rate of events of cause k among those event-free at t; NaN if S(t) = 0."""
        return self._at(
            times, own_times, lambda t: torch.exp(self._log_cause_density(t) - self._log_survival(t)[..., None])
        )

    def log_incidence_between(self, lower: Any, upper: Any) -> Any:
        r"""log P(lower < T <= upper, cause k) for all causes: the log-likelihood of an interval.

        Parameters
        ----------
        lower, upper : float or array of shape (n,)
            The ends of each subject's interval, lower <= upper; upper may be inf.

        Returns
        -------
        array of shape (n, K)
            Accurate even if S(lower) is tiny, unless the distribution provides only differences of incidences.
        """
        first, last = (
            check_times(as_tensor(end, self._like), name).expand(len(self))[:, None]
            for end, name in ((lower, "lower"), (upper, "upper"))
        )
        if bool((first > last).any()):
            row = int((first > last)[:, 0].nonzero()[0])
            raise ValueError(f"lower must not exceed upper; row {row} has {float(first[row])} and {float(last[row])}.")
        log_between = torch.log(self._incidence_since(first, last)[:, 0]) + self._log_survival(first)
        return to_output(log_between, isinstance(lower, Tensor) or isinstance(upper, Tensor))

    def restricted_time_lost(self, horizon: Any = None, *, own_horizons: Any = None) -> Any:
        r"""Expected time lost to each cause before the horizon, ∫₀^horizon F_k(t) dt.

        The times lost to all causes and the `restricted_mean`, which has the same arguments, sum to the horizon.
        """

        def time_lost(horizon: Tensor) -> Tensor:
            endless = torch.isinf(horizon)[:, None]
            if not bool(endless.any()):
                return self._restricted_time_lost(horizon)
            lost = self._restricted_time_lost(torch.where(endless[:, 0], torch.zeros_like(horizon), horizon))
            ever = self._incidence(torch.full_like(horizon, math.inf)[:, None])[:, 0] > 0
            return torch.where(endless, torch.where(ever, math.inf, 0.0), lost)

        return self._by_horizon(horizon, own_horizons, time_lost)

    def cause(self, k: int) -> SurvivalDistribution:
        r"""The distribution of the time of an event of cause k (from one), infinite if another cause comes first.

        S(t) = 1 - F_k(t), which need not go to zero: quantiles that F_k never reaches, and the mean, are then inf.
        """
        from sumosurv.distributions.causes import CauseTime

        if not isinstance(k, (int, np.integer)) or not 1 <= k <= self.n_causes:
            raise ValueError(f"Causes are numbered from 1 to {self.n_causes}; got {k!r}.")
        return self if self.n_causes == 1 else CauseTime(self, int(k))

    # ------------------------------------------------------------------ other distributions, samples

    def conditional(self, after: Any) -> SurvivalDistribution:
        r"""The distribution of time and cause given T > after, with the same time origin.

        S(t) / S(after) and (F_k(t) - F_k(after)) / S(after) for t >= after; 1 and 0 before. ``after`` is a number or
        one time per subject. The expected remaining life is ``conditional(s).mean() - s``.
        """
        from sumosurv.distributions.time_scale import Conditional

        return Conditional(self, after).checked()

    def remaining(self, after: Any) -> SurvivalDistribution:
        r"""The distribution of T - after, and of the cause, given T > after: the remaining life at ``after``.

        ``after`` is a number or one time per subject, and becomes the time origin.
        """
        from sumosurv.distributions.time_scale import Remaining

        return Remaining(self, after).checked()

    def sample(self, size: int | None = None, random_state: Any = None, *, return_causes: bool = False) -> Any:
        """Draw event times: shape (n,), or (n, size).

        Parameters
        ----------
        size : int, optional
            Draws per subject.
        random_state : int or numpy.random.Generator, optional
        return_causes : bool, default False
            Also return the causes: integers from one, of the shape of the times, and 0 if the event never happens (the
            time is then inf).
        """
        rng = np.random.default_rng(random_state)
        with torch.no_grad():
            drawn = self._sample(1 if size is None else size, rng)
        times, causes = (part[:, 0] if size is None else part for part in drawn)
        return (to_output(times), causes.cpu().numpy()) if return_causes else to_output(times)

    def single(self) -> SurvivalDistribution:
        """The same distribution in single precision if that is faster (monotone networks).

        The absolute error in S is below 2e-6 for networks trained with the default settings (measured: 3e-7 to 7e-7).
        It grows with the size of the weights: up to 5e-5 for random weights with standard deviation one, which are far
        larger than trained weights. There is no bound for arbitrary weights. Other distributions are returned
        unchanged.
        """
        return self

    def step_table(self) -> tuple[Tensor, Tensor] | None:
        """Return the knots, (m,), and S at the knots, (n, m), if the curves are step functions; None otherwise.

        The first knot is zero. S(t) is exactly the column of the last knot <= t: rounding does not move a time that
        equals a knot to the previous column.
        """
        return None

    def ranking(self) -> Tensor | None:
        """Return a number per subject, (n,), if the curves have the same order at all times; None otherwise.

        The higher the number, the lower the curve, except at times at which all curves are one. Subjects with the same
        number have the same curve.
        """
        return None

    def __getitem__(self, rows: Any) -> SurvivalDistribution:
        """The distribution of some of the subjects: an index, a slice, row numbers or a boolean mask."""
        index = np.arange(len(self))[rows]
        taken = self._take(torch.as_tensor(np.atleast_1d(index), device=self._like.device))
        taken.last_time = self.last_time
        return taken

    def __repr__(self) -> str:
        causes = f" and {self.n_causes} causes" if self.n_causes > 1 else ""
        beyond = "" if self.last_time is None else f", extrapolated beyond {self.last_time:.4g}"
        return f"SurvivalDistribution of {len(self)} subjects{causes} ({self._description}){beyond}"

    @property
    def _description(self) -> str:
        """A description of the distribution, for its repr."""
        return type(self).__name__

    # ------------------------------------------------------------------ arguments

    def _by_horizon(self, horizon: Any, own_horizons: Any, function: Callable[[Tensor], Tensor]) -> Any:
        """Apply a function of horizons (n,) to each of several horizons."""
        arguments = read_arguments(horizon, own_horizons, "horizon", "own_horizons", len(self), self._like)
        limits = check_times(arguments.values, "horizon").expand(len(self), -1)
        columns = limits.unbind(1) or [limits.new_zeros(len(self))]
        return arguments.output(torch.stack([function(part) for part in columns], dim=1)[:, : limits.shape[1]])

    def _at(self, times: Any, own_times: Any, function: Callable[[Tensor], Tensor]) -> Any:
        arguments = read_arguments(times, own_times, "times", "own_times", len(self), self._like)
        return arguments.output(function(check_times(arguments.values)))
