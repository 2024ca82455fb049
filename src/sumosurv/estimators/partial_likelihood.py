"""Cox's partial likelihood: its value and derivatives, and what each row adds to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sumosurv.nonparametric import is_whole
from sumosurv.outcome import Outcome

__all__ = ["BaselineMoments", "PartialLikelihood", "Ties", "ever_at_risk"]

Ties = Literal["efron", "breslow"]
Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

_LARGEST = 690.0  # log of a cumulative hazard that is a number


@dataclass(frozen=True)
class BaselineMoments:
    """The baseline of one stratum at its m event times, for subjects with x = 0.

    Attributes
    ----------
    times : ndarray of shape (m,)
    hazard : ndarray of shape (m,)
        Cumulative hazard Λ₀.
    variance : ndarray of shape (m,)
        Variance of Λ₀ if the coefficients were known.
    means : ndarray of shape (m, p)
        ∫ x̄ dΛ₀, with the weighted mean x̄ of the rows at risk.
    """

    times: Array
    hazard: Array
    variance: Array
    means: Array


class PartialLikelihood:
    r"""The partial log-likelihood of (x, y) with its gradient and information, rows sorted once.

    .. math:: \sum_{i: d_i = 1} w_i \Big[ β·x_i - \log \sum_{j: v_j < z_i \le z_j} w_j e^{β·x_j} \Big]

    with weights w and entry times v, summed over strata, whose rows are in each other's risk sets alone. Efron's
    treatment of d tied events takes a share l/d of them out of the risk set of the l-th. With whole weights d is the
    sum of theirs, as if rows were repeated; with others all tied events count with their mean weight, as in R's
    survival.

    Parameters
    ----------
    x : array of shape (n, p)
    y : Outcome
    ties : {"efron", "breslow"}
    stratum : int array of shape (n,), optional
        From 0.
    offset : array of shape (n,), optional
        Added to β·x.
    """

    def __init__(
        self, x: Array, y: Outcome, ties: Ties, stratum: Whole | None = None, offset: Array | None = None
    ) -> None:
        self.x = x
        offset = np.zeros(len(x)) if offset is None else offset
        self._rows: list[Any] = [slice(None)]
        if stratum is not None:
            order = np.argsort(stratum, kind="stable")
            parts = np.split(order, np.cumsum(np.bincount(stratum))[:-1])
            self._rows = [part for part in parts if len(part)] or [order]  # without events, no rows are left
        self._parts = [_Stratum(x[rows], y[rows], ties, offset[rows]) for rows in self._rows]

    def __call__(self, beta: Array) -> tuple[float, Array, Array]:
        """Value, gradient and information (minus the Hessian); not finite where risks are too far apart."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            value, gradient, information = self._parts[0](beta)
            for part in self._parts[1:]:
                more = part(beta)
                value, gradient, information = value + more[0], gradient + more[1], information + more[2]
        return value, gradient, information

    def score_residuals(self, beta: Array) -> Array:
        """Contribution of each row to the gradient per unit of its weight, also through its risk sets: (n, p).

        This is the derivative of the gradient with respect to the weight of the row; multiplied by the weights, the
        residuals sum to the gradient.
        """
        made = np.zeros(self.x.shape)
        for rows, part in zip(self._rows, self._parts):
            made[rows] = part.score_residuals(beta)
        return made

    def residuals(self, log_risk: Array) -> tuple[float, Array]:
        """Value for log risks β·x, of shape (n,), and its gradient with respect to them, which sums to 0 by stratum."""
        made, value = np.empty(len(log_risk)), 0.0
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            for rows, part in zip(self._rows, self._parts):
                more, made[rows] = part.residuals(log_risk[rows])
                value += more
        return value, made

    def information_factors(self, log_risk: Array, columns: Array) -> Array:
        """A and B, one below the other, such that AᵀA - BᵀB is the information of some columns (n, k).

        A has n rows, B one per event.
        """
        found = [part.information_factors(log_risk[rows], columns[rows]) for rows, part in zip(self._rows, self._parts)]
        return np.vstack([own for own, _ in found] + [means for _, means in found])

    def saturated(self) -> float:
        """The largest value that any risks could have: those of tied events are equal, and all others zero."""
        return sum(part.saturated() for part in self._parts)

    def baseline_moments(self, beta: Array) -> list[BaselineMoments]:
        """The baseline of each stratum, with the same treatment of ties, and what limits of predicted curves need."""
        return [part.baseline_moments(beta) for part in self._parts]

    def cumulative_hazard(self, beta: Array, time: float) -> float:
        """The baseline of the first stratum at one time, zero before its first event."""
        moments = self.baseline_moments(beta)[0]
        return float(np.append(0.0, moments.hazard)[np.searchsorted(moments.times, time, side="right")])

    def time_interaction(self, beta: Array, g: Array) -> tuple[Array, Array]:
        """Score and information (2p, 2p) for the columns x and x g(t), whose coefficients are beta and zero.

        The score is that of x g(t); ``g`` has the value at the time of each row.
        """
        found = [part.time_interaction(beta, g[rows]) for rows, part in zip(self._rows, self._parts)]
        return np.sum([score for score, _ in found], axis=0), np.sum([matrix for _, matrix in found], axis=0)

    def log_determinant_gradient(self, beta: Array, inverse: Array) -> Array:
        """Gradient of log det(information), given the inverse of the information."""
        return np.asarray(np.sum([part.contracted_third_cumulants(beta, inverse) for part in self._parts], axis=0))


@dataclass(frozen=True)
class _Sums:
    """At one β, by row w e^g and w e^g x; by event the sum over its risk set and the mean of x in it."""

    shift: float
    log_risk: Array
    risk: Array
    risk_x: Array
    total: Array
    mean: Array


class _Stratum:
    """Rows of one stratum, latest first: those still at risk at a time are a leading part."""

    def __init__(self, x: Array, y: Outcome, ties: Ties, offset: Array) -> None:
        self.order = order = np.argsort(-y.time, kind="stable")
        self.offset = offset[order]
        self.x, time, self.event = x[order], y.time[order], y.event[order]
        distinct, self.group = np.unique(-time, return_inverse=True)
        self.times = -distinct
        self.n_groups = n_groups = len(distinct)
        self.weight = None if y.weight is None else y.weight[order]
        self.cases = np.flatnonzero(self.event)
        self.rows = self.cases  # of the terms of the sum
        repeated = ties == "efron" and self.weight is not None and is_whole(self.weight)
        if repeated:
            self.rows = np.repeat(self.cases, np.asarray(self.weight)[self.cases].astype(np.int64))
        self.at = self.group[self.rows]
        self.end = np.searchsorted(self.group, self.at, side="right") - 1  # last row still at risk, by event
        tied = np.bincount(self.at, minlength=n_groups)
        first = np.cumsum(tied) - tied
        place = np.arange(len(self.rows)) - first[self.at]
        # how much of its tied events the risk set of each event does without
        self.share = place / tied[self.at] if ties == "efron" else np.zeros(len(self.rows))
        self.own = self.mean_weight = np.ones(len(self.rows))
        if self.weight is not None and not repeated:
            self.own = self.weight[self.rows]
            sums = np.bincount(self.at, weights=self.weight[self.rows], minlength=n_groups)
            self.mean_weight = sums[self.at] / tied[self.at]
        self.later: Any = None  # rows by entry, latest first, and how many enter at or after each distinct time
        if y.entry is not None:
            entry = y.entry[order]
            self.later = np.argsort(-entry, kind="stable")
            since = np.where(-distinct > 0, -distinct, 5e-324)  # an entry at zero is from the beginning
            self.n_later = np.searchsorted(-entry[self.later], -since, side="right")
            # of the distinct times, latest first, the first that is at or before each row's entry
            self.before = np.where(entry > 0, np.searchsorted(distinct, -entry), n_groups)

    def _sums(self, beta: Array) -> _Sums:
        log_risk = self.x @ beta + self.offset
        shift, risk, total = self._totals(log_risk)
        risk_x = risk[:, None] * self.x
        return _Sums(shift, log_risk, risk, risk_x, total, self._means(risk_x, total))

    def _totals(self, log_risk: Array) -> tuple[float, Array, Array]:
        """The largest log risk; w e^g less it, by row; and its sum over the risk set of each event."""
        shift = log_risk.max() if len(log_risk) else 0.0
        risk = np.exp(log_risk - shift)
        if self.weight is not None:
            risk = risk * self.weight
        total = np.cumsum(risk)[self.end]
        tied = np.bincount(self.group[self.cases], weights=risk[self.cases], minlength=self.n_groups)
        if self.later is not None:
            # the case itself is always at risk, whatever rounding leaves of the rest
            gone = np.append(0.0, np.cumsum(risk[self.later]))[self.n_later[self.at]]
            total = np.maximum(total - gone, tied[self.at])
        return float(shift), risk, total - self.share * tied[self.at]

    def _means(self, risk_x: Array, total: Array) -> Array:
        """The mean of x in the risk set of each event."""
        first = np.cumsum(risk_x, axis=0)[self.end]
        if self.later is not None:
            gone = np.vstack([np.zeros((1, risk_x.shape[1])), np.cumsum(risk_x[self.later], axis=0)])
            first = first - gone[self.n_later[self.at]]
        if self.share.any():
            tied_x = np.zeros((self.n_groups, risk_x.shape[1]))
            np.add.at(tied_x, self.group[self.cases], risk_x[self.cases])
            first = first - self.share[:, None] * tied_x[self.at]
        return np.asarray(first / total[:, None])

    def _value(self, log_risk: Array, shift: float, total: Array) -> float:
        return float((self.own * (log_risk[self.rows] - shift) - self.mean_weight * np.log(total)).sum())

    def residuals(self, log_risk: Array) -> tuple[float, Array]:
        ordered = log_risk[self.order] + self.offset
        shift, risk, total = self._totals(ordered)
        observed = self.event if self.weight is None else self.event * self.weight
        made = observed - risk * self._over_events(self.mean_weight, total)
        return self._value(ordered, shift, total), self._back(made)

    def information_factors(self, log_risk: Array, columns: Array) -> tuple[Array, Array]:
        x = columns[self.order]
        _, risk, total = self._totals(log_risk[self.order] + self.offset)
        by_row = np.maximum(risk * self._over_events(self.mean_weight, total), 0.0)
        means = self._means(risk[:, None] * x, total)
        return np.sqrt(by_row)[:, None] * x, np.sqrt(self.mean_weight)[:, None] * means

    def saturated(self) -> float:
        weight = np.ones(len(self.cases)) if self.weight is None else self.weight[self.cases]
        tied = np.bincount(self.group[self.cases], weights=weight, minlength=self.n_groups)[self.at]
        return -float((self.mean_weight * np.log(tied * (1.0 - self.share))).sum())

    def __call__(self, beta: Array) -> tuple[float, Array, Array]:
        sums = self._sums(beta)
        mean_weight = self.mean_weight
        value = self._value(sums.log_risk, sums.shift, sums.total)
        gradient = (self.own[:, None] * self.x[self.rows] - mean_weight[:, None] * sums.mean).sum(axis=0)
        return value, gradient, self._information(sums, None if self.weight is None else mean_weight)

    def _information(self, sums: _Sums, weight: Array | None) -> Array:
        """Σ over the events of the covariance of x in the risk set, the event times weighted."""
        by_row = self._over_events(np.ones(len(self.at)) if weight is None else weight, sums.total)
        second = (sums.risk_x * by_row[:, None]).T @ self.x
        mean = sums.mean if weight is None else weight[:, None] * sums.mean
        return np.asarray(second - mean.T @ sums.mean)

    def baseline_moments(self, beta: Array) -> BaselineMoments:
        # risks of separated events may be too far apart for sums
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            sums = self._sums(beta)
            rise = self.mean_weight / sums.total
            each = np.column_stack([rise, rise / sums.total, rise[:, None] * sums.mean])[::-1]  # earliest first
            last = np.flatnonzero(np.diff(self.at[::-1], append=-1))  # of the events at each time
            total, times = np.cumsum(each, axis=0)[last], self.times[self.at[::-1][last]]
            hazard = np.exp(np.minimum(np.log(total[:, 0]) - sums.shift, _LARGEST))
            variance, means = total[:, 1] * np.exp(-2.0 * sums.shift), total[:, 2:] * np.exp(-sums.shift)
        return BaselineMoments(times, hazard, variance, means)

    def time_interaction(self, beta: Array, g: Array) -> tuple[Array, Array]:
        sums, at_event = self._sums(beta), g[self.order][self.rows]
        weights = [self.mean_weight * at_event**power for power in range(3)]
        score = (self.own * at_event) @ self.x[self.rows] - weights[1] @ sums.mean
        plain, mixed, squared = (self._information(sums, weight) for weight in weights)
        return score, np.block([[plain, mixed], [mixed, squared]])

    def contracted_third_cumulants(self, beta: Array, inverse: Array) -> Array:
        """Σ over the events of E[(x - m)ᵀ A (x - m) (x - m)] in the risk set with mean m, A being the inverse."""
        sums = self._sums(beta)
        weight, size = self.mean_weight, ((self.x @ inverse) * self.x).sum(axis=1)
        hazard = self._over_events(weight, sums.total)
        means = np.stack([self._over_events(weight * mean, sums.total) for mean in sums.mean.T], axis=1)
        by_row = (size * hazard - 2.0 * ((self.x @ inverse) * means).sum(axis=1))[:, None] * self.x
        by_row -= size[:, None] * means
        of_means = ((sums.mean @ inverse) * sums.mean).sum(axis=1)
        return np.asarray(sums.risk @ by_row + 2.0 * (weight * of_means) @ sums.mean)

    def _over_events(self, values: Array, total: Array) -> Array:
        """By row, Σ of values / total over the events at which it is at risk, less what ties take out of it."""
        by_time = np.bincount(self.at, weights=values / total, minlength=self.n_groups)
        upto = np.cumsum(by_time[::-1])[::-1]
        made = upto[self.group]
        if self.later is not None:
            made = made - np.append(upto, 0.0)[self.before]
        taken = np.bincount(self.at, weights=self.share * values / total, minlength=self.n_groups)[self.group]
        return np.asarray(made - np.where(self.event, taken, 0.0))

    def score_residuals(self, beta: Array) -> Array:
        sums = self._sums(beta)
        weight, made = self.mean_weight, np.empty(self.x.shape)
        risk, hazard = np.exp(sums.log_risk - sums.shift), self._over_events(weight, sums.total)
        for j, (column, mean) in enumerate(zip(self.x.T, sums.mean.T)):
            made[:, j] = -risk * (column * hazard - self._over_events(weight * mean, sums.total))
        made[self.cases] += self.x[self.cases] - self._mean_of_ties(sums)
        return self._back(made)

    def _mean_of_ties(self, sums: _Sums) -> Array:
        """The mean of x in the risk set, by case; averaged over tied ones."""
        added = np.zeros((self.n_groups, self.x.shape[1]))
        np.add.at(added, self.at, sums.mean)
        place = self.group[self.cases]
        return np.asarray(added[place] / np.bincount(self.at, minlength=self.n_groups)[place, None])

    def _back(self, values: Array) -> Array:
        """In the order in which the rows came."""
        made = np.empty_like(values)
        made[self.order] = values
        return made


def ever_at_risk(y: Outcome, stratum: Whole | None = None) -> npt.NDArray[np.bool_]:
    """Rows in the risk set of at least one event: what differs among others alone, the likelihood does not tell."""
    made = np.zeros(len(y), dtype=np.bool_)
    strata = np.zeros(len(y), dtype=np.int64) if stratum is None else stratum
    order = np.argsort(strata, kind="stable")
    for rows in np.split(order, np.cumsum(np.bincount(strata))[:-1]):
        events = np.sort(y.time[rows][y.event[rows]])
        until = np.searchsorted(events, y.time[rows], side="right")
        since = np.zeros(len(rows), dtype=np.intp)
        if y.entry is not None:
            since = np.where(y.entry[rows] > 0, np.searchsorted(events, y.entry[rows], side="right"), 0)
        made[rows] = until > since
    return made
