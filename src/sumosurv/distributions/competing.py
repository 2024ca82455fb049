"""Competing risks: the time and the cause of the first event of each of n subjects."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions.base import SurvivalDistribution, _out
from sumosurv.distributions.tabulated import WithSteps

__all__ = ["CauseTime", "CompetingRisksDistribution"]


class CompetingRisksDistribution(WithSteps):
    r"""The distribution of the time T of the first event and of its cause, one of K, for each of n subjects.

    As a `SurvivalDistribution` it is that of T, whatever the cause. The cumulative incidence of cause k is

    .. math:: F_k(t) = P(T \le t, \text{cause } k), \qquad S(t) + \sum_k F_k(t) = 1,

    with density :math:`f_k` and cause-specific hazard :math:`\lambda_k = f_k / S`. Methods with causes put them on the
    last axis: ``d.cumulative_incidence(times)`` has shape (n, K) for a number and (n, m, K) for m times, and
    likewise for ``own_times``. Causes are counted from one, as in outcomes: column k - 1 is cause k.

    Examples
    --------
    >>> from sumosurv.distributions import CauseMixture, Weibull
    >>> d = CauseMixture(np.log([[0.75, 0.25]]), [Weibull([1.0], [1.0]), Weibull([2.0], [1.0])])
    >>> d.cumulative_incidence(1.0).round(3), d.survival(1.0).round(3)
    (array([[0.474, 0.098]]), array([0.428]))
    >>> d.cause(2).survival([1.0, np.inf]).round(3)
    array([[0.902, 0.75 ]])
    """

    # ------------------------------------------------------------------ what a kind defines

    @property
    @abstractmethod
    def n_causes(self) -> int:
        """K, the number of causes."""

    @abstractmethod
    def _incidence(self, t: Tensor) -> Tensor:
        """F_k at times of shape (n, m), or (1, m) for a shared grid; result (n, m, K)."""

    @abstractmethod
    def _log_cause_density(self, t: Tensor) -> Tensor:
        """log f_k at times of shape (n, m), or (1, m) for a shared grid; result (n, m, K)."""

    @abstractmethod
    def _take(self, rows: Tensor) -> CompetingRisksDistribution:
        """The distribution of the given subjects (repeats allowed)."""

    # ------------------------------------------------------------------ what a kind may do faster

    def _log_density(self, t: Tensor) -> Tensor:
        return torch.logsumexp(self._log_cause_density(t), dim=-1)

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        """(F_k(t) - F_k(start)) / S(start), for start of shape (n, 1) and t >= start; result (n, m, K).

        The differences lose digits where S(start) is small; their sum is put right by 1 - S(t) / S(start).
        """
        rise = (self._incidence(t) - self._incidence(start)).clamp_min(0.0)
        log_start = self._log_survival(start)
        whole = -torch.expm1((self._log_survival(t) - log_start).clamp_max(0.0))
        whole = torch.where(torch.isinf(log_start), 0.0, whole)
        total = rise.sum(-1)
        share = torch.where(total > 0, whole / torch.where(total > 0, total, 1.0), 0.0)
        return rise * share[..., None]

    def _restricted_time_lost(self, horizon: Tensor) -> Tensor:
        """The integral of each F_k from 0 to the finite horizon, shape (n, K)."""
        kept = [self.cause(k)._restricted_mean(horizon) for k in range(1, self.n_causes + 1)]
        return horizon[:, None] - torch.stack(kept, dim=-1)

    def _cause_shares(self, t: Tensor) -> Tensor:
        """P(cause k | T = t) at times of events, (n, m) to (n, m, K): of the jump at t where the curves have jumps."""
        known = self.step_table()
        if known is None:
            return torch.softmax(self._log_cause_density(t), dim=-1)
        knots = known[0]
        incidence = self._incidence(knots[None])
        jumps = torch.diff(incidence, dim=1, prepend=torch.zeros_like(incidence[:, :1]))
        place = (torch.searchsorted(knots, t.contiguous(), right=True) - 1).expand(len(self), -1)
        jumps = jumps.gather(1, place[..., None].expand(-1, -1, self.n_causes))
        return jumps / jumps.sum(-1, keepdim=True)

    def _sample_with_causes(self, size: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Times and causes, both (n, size); the cause is 0 where the time is infinite."""
        times = self._sample(size, rng)
        happens = torch.isfinite(times)
        shares = self._cause_shares(torch.where(happens, times, 0.0)).nan_to_num(0.0)
        uniform = torch.from_numpy(rng.random((len(self), size))).to(shares)
        cause = 1 + (uniform[..., None] >= shares.cumsum(-1)[..., :-1]).sum(-1)
        return times, torch.where(happens, cause, 0)

    # ------------------------------------------------------------------ the public face

    def cumulative_incidence(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""F_k(t) = P(T <= t, cause k) for all causes.

        Parameters
        ----------
        times : float or array of shape (m,)
            Times that all subjects share.
        own_times : array of shape (n,) or (n, m)
            Each subject's own times, instead of ``times``.

        Returns
        -------
        array of shape (n, K) or (n, m, K)
            (n, K) for a number and for own times of shape (n,). The same holds for all methods with causes.
        """
        return self._at(times, own_times, self._incidence)

    def cause_density(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""f_k(t) = dF_k(t)/dt for all causes; they sum to the density of T."""
        return self._at(times, own_times, lambda t: torch.exp(self._log_cause_density(t)))

    def log_cause_density(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""log f_k(t) for all causes: the log-likelihood of an event of cause k at t."""
        return self._at(times, own_times, self._log_cause_density)

    def cause_specific_hazard(self, times: Any = None, *, own_times: Any = None) -> Any:
        r"""λ_k(t) = f_k(t) / S(t): the rate of events of cause k among those event-free at t; NaN where S(t) = 0."""
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
            Accurate also where S(lower) is tiny, if the kind can be.
        """
        first, last = (
            self._check_times(self._tensor(end), name).expand(len(self))[:, None]
            for end, name in ((lower, "lower"), (upper, "upper"))
        )
        if bool((first > last).any()):
            row = int((first > last)[:, 0].nonzero()[0])
            raise ValueError(f"lower is at most upper; row {row} has {float(first[row])} and {float(last[row])}.")
        since = self._incidence_since(first, last)[:, 0]
        return _out(
            torch.log(since) + self._log_survival(first), isinstance(lower, Tensor) or isinstance(upper, Tensor)
        )

    def restricted_time_lost(self, horizon: Any = None, *, own_horizons: Any = None) -> Any:
        r"""Expected time lost to each cause before the horizon, ∫₀^horizon F_k(t) dt.

        The times lost to all causes and the `restricted_mean` sum to the horizon.

        Parameters
        ----------
        horizon : float or array of shape (m,)
            Horizons that all subjects share: a number gives shape (n, K), m horizons give (n, m, K).
        own_horizons : array of shape (n,) or (n, m)
            Each subject's own horizons, instead of ``horizon``.
        """
        asked = self._arguments(horizon, own_horizons, "horizon", "own_horizons")
        limits = self._check_times(asked.values, "horizon").expand(len(self), -1)
        columns = [self._time_lost(column) for column in limits.unbind(1)]
        return asked.answer(torch.stack(columns, dim=1) if columns else limits.new_empty(*limits.shape, self.n_causes))

    def _time_lost(self, horizon: Tensor) -> Tensor:
        endless = torch.isinf(horizon)[:, None]
        if not bool(endless.any()):
            return self._restricted_time_lost(horizon)
        lost = self._restricted_time_lost(torch.where(endless[:, 0], torch.zeros_like(horizon), horizon))
        ever = self._incidence(torch.full_like(horizon, math.inf)[:, None])[:, 0] > 0
        return torch.where(endless, torch.where(ever, math.inf, 0.0), lost)

    def cause(self, k: int) -> SurvivalDistribution:
        r"""The distribution of the time of an event of cause k (from one), infinite where another cause comes first.

        S(t) = 1 - F_k(t), which need not go to zero: quantiles that F_k never reaches, and the mean, are then inf.
        """
        return CauseTime(self, self._check_cause(k))

    def remaining(self, after: Any) -> CompetingRisksDistribution:
        """Time and cause of the event on a clock that starts at ``after``, given T > after."""
        from sumosurv.distributions.risks import RemainingRisks

        return RemainingRisks(self, after)

    def conditional(self, after: Any) -> CompetingRisksDistribution:
        r"""The distribution of time and cause given T > after, on the same clock.

        F_k(t | T > s) = (F_k(t) - F_k(s)) / S(s) for t >= s, and 0 before. ``after`` is a number or one time per
        subject.
        """
        from sumosurv.distributions.risks import ConditionalRisks

        return ConditionalRisks(self, after)

    def sample(self, size: int | None = None, random_state: Any = None) -> Any:
        """Draw times and causes: two arrays of shape (n,), or (n, size).

        Causes are integers from one; where no event ever comes, the time is inf and the cause 0. ``random_state`` is a
        seed or a ``numpy.random.Generator``.
        """
        rng = np.random.default_rng(random_state)
        with torch.no_grad():
            times, causes = self._sample_with_causes(1 if size is None else size, rng)
        drawn = _out(times, False), causes.cpu().numpy()
        return tuple(part[:, 0] for part in drawn) if size is None else drawn

    def single(self) -> CompetingRisksDistribution:
        """The same distribution in single precision, where that is faster; see `SurvivalDistribution.single`."""
        return self

    def __getitem__(self, rows: Any) -> CompetingRisksDistribution:
        """The distribution of some of the subjects: an index, a slice, row numbers or a boolean mask."""
        index = np.arange(len(self))[rows]
        taken = self._take(torch.as_tensor(np.atleast_1d(index), device=self._like.device))
        taken.last_time = self.last_time
        return taken

    def _check_cause(self, k: int) -> int:
        if not isinstance(k, (int, np.integer)) or not 1 <= k <= self.n_causes:
            raise ValueError(f"Causes are numbered from 1 to {self.n_causes}; got {k!r}.")
        return int(k)


class CauseTime(WithSteps):
    """The time of an event of one cause, infinite where another comes first; `CompetingRisksDistribution.cause`.

    Parameters
    ----------
    base : CompetingRisksDistribution
    cause : int
        From one.
    """

    def __init__(self, base: CompetingRisksDistribution, cause: int) -> None:
        self.base, self.number, self.last_time = base, cause, base.last_time

    def __len__(self) -> int:
        return len(self.base)

    @property
    def _like(self) -> Tensor:
        return self.base._like

    @property
    def _breaks(self) -> tuple[float, ...]:
        return self.base._breaks

    def _take(self, rows: Tensor) -> CauseTime:
        return CauseTime(self.base._take(rows), self.number)

    def single(self) -> SurvivalDistribution:
        """That of the base in single precision."""
        return self.base.single().cause(self.number)

    def _log_survival(self, t: Tensor) -> Tensor:
        incidence, place = self.base._incidence(t), self.number - 1
        own = incidence[..., place]
        # 1 - F_k where F_k is small; elsewhere S plus all other incidences, which is the same without cancellation
        rest = self.base._survival(t) + incidence[..., :place].sum(-1) + incidence[..., place + 1 :].sum(-1)
        return torch.where(own < 0.5, torch.log1p(-own.clamp_max(0.75)), torch.log(rest.clamp_max(1.0)))

    def _log_density(self, t: Tensor) -> Tensor:
        return self.base._log_cause_density(t)[..., self.number - 1]

    def step_table(self) -> tuple[Tensor, Tensor] | None:
        """The table of 1 - F_k, where the curves are step functions."""
        known = self.base.step_table()
        if known is None:
            return None
        return known[0], torch.cummin(self._survival(known[0][None]), dim=1).values  # rounding may not let it rise

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        if self.step_table() is not None:
            return super()._inverse_log_survival(level)
        lowest = self._log_survival(level.new_full((len(self), 1), math.inf))
        never = level < lowest * (1 + 8 * torch.finfo(level.dtype).eps)  # found at once, not by a long search
        return torch.where(never, math.inf, super()._inverse_log_survival(torch.where(never, 0.0, level)))

    def _sample(self, size: int, rng: np.random.Generator) -> Tensor:
        times, causes = self.base._sample_with_causes(size, rng)
        return torch.where(causes == self.number, times, math.inf)
