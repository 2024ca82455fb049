"""Fine and Gray's model: proportional hazards of the subdistribution of each cause."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted

from sumosurv.distributions import SurvivalDistribution, Tabulated
from sumosurv.estimators.cox_inference import concordance_numbers
from sumosurv.estimators.linear import LinearEstimator, Missing
from sumosurv.estimators.regression import NEWTON_CONSTRAINTS, fit_coefficients, make_basis
from sumosurv.estimators.summary import ModelSummary, restored_covariance, restored_numbers, summarise
from sumosurv.fitting.settings import Constraints, integer
from sumosurv.model_files import as_list, tensor_of
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import Outcome
from sumosurv.scores.concordance import harrell_c_terms
from sumosurv.scores.pairs import count_below

__all__ = ["FineGray"]

Array = npt.NDArray[np.float64]


@dataclass(kw_only=True, eq=False, repr=False)
class FineGray(LinearEstimator):
    r"""Fine-Gray regression: proportional subdistribution hazards, fitted for each cause in turn.

    .. math:: F_k(t|x) = 1 - \exp(-Λ_{0k}(t) \, e^{β_k·x})

    A row with an event of another cause at z stays in the risk set of cause k with weight G(t-) / G(z-), where G is the
    Kaplan-Meier curve of the censoring times (events precede censorings at the same time). Ties are treated by
    Breslow's method. The estimates equal those of ``finegray`` in R's survival, and those of R's cmprsk if no event and
    censoring share a time. G is weighted by ``sample_weight`` (``finegray`` does not weight G). Censoring must depend
    neither on the covariates nor on the event.

    The models of different causes are fitted separately: far from the centre of the data, or at late times, their
    incidences can sum to more than one. At the time at which the sum would exceed one, the increments of all incidences
    are scaled down by a common factor so that the sum is one, and the incidences stay constant afterwards. From that
    time on S is zero, and a row censored later has likelihood zero.

    Parameters
    ----------
    formula : str, optional
        The right-hand side of a formula that makes the columns of the model; see `CoxPH`.
    missing : {"drop", "error", "indicator"}
        What to do with missing values; see `CoxPH`.
    alpha : float, default 0.0
        Strength of the ridge penalty on the coefficients of the standardised columns; 0 for none. Without a penalty,
        redundant columns are left out and separation is reported as in `CoxPH`.
    max_iter : int, default 100
        Largest number of Newton steps.
    tol : float, default 1e-16
        Newton's method stops when the decrement gᵀH⁻¹g is below this value.
    half_width : int, default 2
        k of the interpolated densities; see `Tabulated`.

    Attributes
    ----------
    coef_ : ndarray of shape (K, p)
        In the units of the columns; 0 for a column that is left out.
    standard_errors_ : ndarray of shape (K, p)
        From the sandwich, with the censoring weights taken as known, as in R's survival; the rows of a group
        (``fit(..., groups=)``) may be dependent. Nan for a column that is left out, infinity if the likelihood has no
        maximum in this coefficient.
    covariances_ : list of ndarray of shape (p, p), or of None
        Covariance matrix of the coefficients of each cause; None with a ridge penalty.
    terms_ : list of str
        Names of the columns; ``name[level]`` for categories.
    log_likelihood_ : ndarray of shape (K,)
        Weighted partial log-likelihood of each cause, without the penalty.
    n_causes_ : int
        K.

    References
    ----------
    Fine, J. P. and Gray, R. J. (1999). A proportional hazards model for the subdistribution of a competing risk.
    Journal of the American Statistical Association 94, 496-509.

    Examples
    --------
    >>> from sumosurv import FineGray, Surv
    >>> y = Surv.from_arrays(event=[1, 2, 0, 1, 2, 1], time=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    >>> model = FineGray(alpha=0.1).fit([[0.0], [1.0], [1.5], [0.5], [0.2], [0.9]], y)
    >>> model.coef_.shape, model.summary().coefficients.shape
    ((2, 1), (2, 7))
    """

    _supported_outcomes: ClassVar[frozenset[str]] = frozenset({"causes", "weights"})
    _parameter_constraints: ClassVar[Constraints] = NEWTON_CONSTRAINTS | {"half_width": integer(1)}

    missing: Missing = "drop"
    alpha: float = 0.0
    max_iter: int = 100
    tol: float = 1e-16
    half_width: int = 2

    def _fit(self, X: Any, y: Any) -> None:
        rows = self._read_rows(X, y)
        raw, outcome = rows.matrix, rows.outcome
        self.centre_ = np.average(raw, axis=0, weights=outcome.weights)
        basis = make_basis(raw, outcome, self.centre_, self.terms_, self.alpha)
        fits, self.baselines_ = [], []
        for k in range(1, outcome.n_causes + 1):
            likelihood = SubdistributionLikelihood(basis.columns, outcome, k, rows.offset)
            fit = fit_coefficients(likelihood, basis, outcome, self.terms_, self, robust=True, of=f" for cause {k}")
            risk, own = (raw - self.centre_) @ fit.coef + rows.offset, outcome.of_cause(k)
            times, rises = likelihood.baseline(risk)
            pairs = harrell_c_terms(risk, own).values + likelihood.pairs_after_competing_events(risk)
            fit.numbers.update(concordance_numbers(pairs, own) | replace(rows, outcome=own).counts())
            fits.append(fit)
            self.baselines_.append((times, np.cumsum(rises)))
        self.coef_ = np.stack([fit.coef for fit in fits])
        self.standard_errors_ = np.stack([fit.standard_errors for fit in fits])
        self.covariances_ = [fit.covariance for fit in fits]
        self._numbers = [fit.numbers for fit in fits]
        self.log_likelihood_ = np.array([numbers["log_likelihood"] for numbers in self._numbers])

    def _summary(self, level: float) -> ModelSummary:
        parts = [
            summarise(
                "Fine-Gray regression",
                self.terms_,
                self.coef_[k],
                self.standard_errors_[k],
                self.covariances_[k],
                self._design.sources,
                self._numbers[k],
                level=level,
                robust=True,
                penalised=True,
            )
            for k in range(self.n_causes_)
        ]
        return ModelSummary.by_cause(parts[0].title, parts)

    def log_risk(self, X: Any) -> Array:
        """β_k·(x - centre), shape (rows, K): the log of the subdistribution hazards relative to the centre."""
        check_is_fitted(self)
        return self._log_risk(self._check_covariates(X, reset=False))

    def _log_risk(self, X: Any) -> Array:
        raw, offset = self._linear_parts(X)
        result: Array = (raw - self.centre_) @ self.coef_.T + offset[:, None]
        return result

    def _distribution(self, X: Any) -> SurvivalDistribution:
        risk = np.exp(np.clip(self._log_risk(self._select(X)), -600.0, 600.0))  # far from the data it may overflow
        times = np.unique(np.concatenate([[0.0], *(own for own, _ in self.baselines_)]))
        raw = np.empty((len(risk), len(times), self.n_causes_))
        for k, (own, baseline) in enumerate(self.baselines_):
            curve = np.append(0.0, baseline)[np.searchsorted(own, times, side="right")]
            raw[:, :, k] = -np.expm1(-risk[:, k, None] * curve)
        incidence, survival = _within_one(raw)
        return Tabulated(times, survival, incidence, half_width=self.half_width)

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        fitted, tensors = super()._state()
        fitted["numbers"] = self._numbers
        tensors["centre_"] = torch.from_numpy(self.centre_)
        for k, (times, baseline) in enumerate(self.baselines_):
            own = {"coef": self.coef_[k], "errors": self.standard_errors_[k], "times": times, "baseline": baseline}
            if (covariance := self.covariances_[k]) is not None:
                own["covariance"] = covariance.flatten()
            tensors |= {f"{name}_{k}": torch.from_numpy(values) for name, values in own.items()}
        return fitted, tensors

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        super()._restore(fitted, tensors)
        p, causes = len(self.terms_), range(self.n_causes_)
        self._numbers = [restored_numbers(numbers) for numbers in as_list(fitted["numbers"], "numbers")]
        if len(self._numbers) != self.n_causes_:
            raise ValueError(f"numbers of {len(self._numbers)} fits for {self.n_causes_} causes")
        known = self.alpha == 0
        self.covariances_ = [restored_covariance(tensors, f"covariance_{k}", p) if known else None for k in causes]
        self.log_likelihood_ = np.array([numbers["log_likelihood"] for numbers in self._numbers])
        self.centre_ = tensor_of(tensors, "centre_", p).numpy()
        self.coef_ = np.stack([tensor_of(tensors, f"coef_{k}", p).numpy() for k in causes])
        errors = [tensor_of(tensors, f"errors_{k}", p, low=0.0, may_be_nan=True).numpy() for k in causes]
        self.standard_errors_ = np.stack(errors)
        self.baselines_ = []
        for k in causes:
            times = tensor_of(tensors, f"times_{k}", low=0.0, increasing=True).numpy()
            baseline = tensor_of(tensors, f"baseline_{k}", len(times), low=0.0, never_falling=True).numpy()
            self.baselines_.append((times, baseline))


def _within_one(raw: Array) -> tuple[Array, Array]:
    """Incidences (n, m, K) whose sum stops at one, and S: rises past that are scaled down, all causes alike."""
    total = raw.sum(axis=-1)
    if not (total > 1.0).any():
        return raw, 1.0 - total
    capped = np.minimum(total, 1.0)
    rise, kept = (np.diff(values, axis=1, prepend=0.0) for values in (total, capped))
    share = np.divide(kept, rise, out=np.ones_like(rise), where=rise > kept)
    rises = np.diff(raw, axis=1, prepend=0.0) * share[..., None]
    past = total > 1.0
    incidence = np.where(past[..., None], np.cumsum(rises, axis=1), raw)
    incidence /= np.where(past, incidence.sum(axis=-1), 1.0)[..., None]
    return np.maximum.accumulate(incidence, axis=1), 1.0 - capped


class SubdistributionLikelihood:
    """The weighted partial log-likelihood of one cause, with its gradient and information.

    Rows with a competing event at z weigh G(t-) / G(z-) in risk sets at later times t; all others leave when they are
    observed no longer. ``x`` has one row per subject, and ``offset`` is added to β·x.
    """

    def __init__(self, x: Array, outcome: Outcome, cause: int, offset: Array | None = None) -> None:
        order = np.argsort(outcome.time, kind="stable")
        rows = outcome[order]
        self.order, self.x, self.cause = order, x[order], cause
        self.offset = np.zeros(len(x)) if offset is None else offset[order]
        self.weight = rows.weights
        own = rows.event if rows.cause is None else rows.event & (rows.cause == cause)
        time = rows.time
        self.times, place = np.unique(time[own], return_inverse=True)
        self.own, self.place = np.flatnonzero(own), place
        self.events = np.bincount(place, weights=self.weight[own], minlength=len(self.times)).astype(np.float64)
        self.first = np.searchsorted(time, self.times)  # rows from here on are at risk
        self.until = np.searchsorted(self.times, time, side="right")  # event times up to that of the row
        censoring = kaplan_meier(rows.any_cause(), censoring=True)
        before = np.nextafter(np.concatenate([time, self.times]), -np.inf).clip(min=0.0)
        known = np.where(np.concatenate([time, self.times]) > 0, censoring.survival(before)[0], 1.0)
        reach, self.kept = known[: len(time)], known[len(time) :]  # G(z-), and G at the event times
        self.stays = np.where(rows.event & ~own, 1.0 / np.where(rows.event, reach, 1.0), 0.0)

    def __call__(self, beta: Array) -> tuple[float, Array, Array]:
        """Value, gradient and information (minus the Hessian); not finite where risks are too far apart."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            log_risk, shift, w = self._risks(beta)
            s0, s1 = self._sums(w), self._sums(w[:, None] * self.x)
            mean = s1 / s0[:, None]
            weight = self.weight[self.own]
            value = float((weight * (log_risk[self.own] - shift - np.log(s0)[self.place])).sum())
            gradient = weight @ (self.x[self.own] - mean[self.place])
            exposure = self._exposure(self.events / s0)
            information = (self.x * (w * exposure)[:, None]).T @ self.x - (mean * self.events[:, None]).T @ mean
        return value, gradient, information

    def score_residuals(self, beta: Array) -> Array:
        """Contribution of each row to the gradient per unit of its weight, censoring weights taken as known: (n, p)."""
        _, _, w = self._risks(beta)
        s0, s1 = self._sums(w), self._sums(w[:, None] * self.x)
        mean, rises = s1 / s0[:, None], self.events / s0
        expected = self.x * self._exposure(rises)[:, None] - self._exposure(rises[:, None] * mean)
        made = -(w / self.weight)[:, None] * expected
        made[self.own] += self.x[self.own] - mean[self.place]
        result = np.empty_like(made)
        result[self.order] = made
        return result

    def baseline(self, log_risk: Array) -> tuple[Array, Array]:
        """Event times, and the rises of Breslow's baseline there, for log risks in the order of x."""
        shift = float(log_risk.max())
        w = self.weight * np.exp(log_risk[self.order] - shift)
        return self.times, self.events / self._sums(w) * np.exp(-shift)

    def pairs_after_competing_events(self, risk: Array) -> Array:
        """Each row's share of the pairs of an event and a row that had a competing event before: (n, 2).

        A pair weighs as much as the second row in the risk set of the event. The first column has the concordant pairs,
        the second all; a pair is shared equally, as in `harrell_c_terms`.
        """
        rank = np.unique(risk[self.order], return_inverse=True)[1]
        left, at_event = np.flatnonzero(self.stays), self.kept[self.place]
        before = np.searchsorted(left, self.first[self.place])  # competing events before each event
        after = np.searchsorted(self.place, self.until[left])  # the first event after each competing event
        end = np.full_like(after, len(self.own))
        made = np.zeros((len(risk), 2))
        for rows, own, others, weight, first, last, ranks in (
            (self.own, at_event, left, self.stays[left], np.zeros_like(before), before, rank),
            (left, self.stays[left], self.own, at_event, after, end, rank.max() - rank),
        ):
            weight = weight * self.weight[others]
            below, equal = count_below(ranks[others], first, last, ranks[rows], weight)
            total = np.append(0.0, np.cumsum(weight))
            counted = np.column_stack([below + 0.5 * equal, total[last] - total[first]])
            made[self.order[rows]] = 0.5 * own[:, None] * counted
        return made

    def cumulative_hazard(self, beta: Array, time: float) -> float:
        """Breslow's baseline at one time, for x = 0 and no offset."""
        times, rises = self.baseline((self.x @ beta + self.offset)[np.argsort(self.order)])
        return float(rises[times <= time].sum())

    def _risks(self, beta: Array) -> tuple[Array, float, Array]:
        log_risk = self.x @ beta + self.offset
        shift = float(log_risk.max()) if len(log_risk) else 0.0
        return log_risk, shift, self.weight * np.exp(log_risk - shift)

    def _sums(self, values: Array) -> Array:
        """Sums over the weighted risk sets at the event times."""
        shape = (-1,) + (1,) * (values.ndim - 1)
        zero = np.zeros((1, *values.shape[1:]))
        at_risk = np.concatenate([np.cumsum(values[::-1], axis=0)[::-1], zero])[self.first]
        left = np.concatenate([zero, np.cumsum(values * self.stays.reshape(shape), axis=0)])[self.first]
        result: Array = at_risk + self.kept.reshape(shape) * left
        return result

    def _exposure(self, values: Array) -> Array:
        """Of each row, the sum of values of event times, weighted as the row is in their risk sets."""
        shape = (-1,) + (1,) * (values.ndim - 1)
        zero = np.zeros((1, *values.shape[1:]))
        up_to = np.concatenate([zero, np.cumsum(values, axis=0)])[self.until]
        later = np.concatenate([np.cumsum((values * self.kept.reshape(shape))[::-1], axis=0)[::-1], zero])[self.until]
        result: Array = up_to + self.stays.reshape(shape) * later
        return result
