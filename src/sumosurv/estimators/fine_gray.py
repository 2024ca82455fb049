"""Fine and Gray's model: proportional hazards of the subdistribution of each cause."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.special import erfc
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from sumosurv.distributions import SurvivalDistribution, TabulatedRisks
from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.estimators.design import Basis, Design
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import Outcome
from sumosurv.preprocessing import Preprocessor
from sumosurv.stored import tensor_of

__all__ = ["FineGray"]

Array = npt.NDArray[np.float64]


@dataclass(kw_only=True, eq=False, repr=False)
class FineGray(SurvivalEstimator):
    r"""Proportional hazards of the subdistribution of each cause, fitted cause by cause.

    .. math:: F_k(t|x) = 1 - \exp(-Λ_{0k}(t) \, e^{β_k·x})

    A row with an event of another cause at z stays in the risk set of cause k with the weight G(t-) / G(z-), G being
    the Kaplan-Meier curve of the censoring times (events come first among ties); Breslow's treatment of ties, as in
    R's cmprsk. Censoring must depend neither on the covariates nor on the event.

    The models of several causes need not fit together: far from the centre of the data, or at late times, their
    incidences can sum to more than one. The joint distribution follows them up to the time at which they would; there
    the last rises are scaled down, all by the same factor, so that the sum is one, and no incidence rises afterwards.
    S is then zero, and a row that is censored later has a likelihood of zero.

    Parameters
    ----------
    alpha : float
        Ridge penalty on the coefficients of the standardised columns; 0 for none. Without it, columns that are constant
        or linear combinations of earlier ones are left out with a warning, as in `CoxPH`.
    max_iter : int
        Newton steps.
    tol : float
        Done when the Newton decrement gᵀH⁻¹g is below it.
    half_width : int
        k of the interpolated densities; see `TabulatedRisks`.

    Attributes
    ----------
    coef_ : ndarray of shape (K, p)
        In the units of the columns; 0 for a column that is left out.
    standard_errors_ : ndarray of shape (K, p)
        Robust ones (a sandwich with rows as clusters), the censoring weights taken as known, as R's survival has them;
        nan for a column that is left out.
    terms_ : list of str
        The columns: names, and ``name[level]`` of categories.
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
    >>> model.coef_.shape, list(model.summary().columns)
    ((2, 1), ['coef', 'hazard_ratio', 'standard_error', 'z', 'p'])
    """

    _learns_from: ClassVar[frozenset[str]] = frozenset({"causes", "weights"})

    alpha: float = 0.0
    max_iter: int = 100
    tol: float = 1e-16
    half_width: int = 2

    def _check_settings(self) -> None:
        """Raise a ValueError that names an invalid setting."""
        if not self.alpha >= 0:
            raise ValueError(f"alpha must not be negative; got {self.alpha!r}.")
        if not self.tol > 0:
            raise ValueError(f"tol must be positive; got {self.tol!r}.")
        for name in ("max_iter", "half_width"):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name} is a whole number of at least 1; got {value!r}.")

    def _fit(self, X: Any, y: Any) -> None:
        X, outcome = self._start(X, y)
        self.preprocessor_ = Preprocessor().fit(X)
        design = Design(self.preprocessor_)
        self.terms_ = design.names
        raw = design.matrix(X)
        self.centre_ = np.average(raw, axis=0, weights=outcome.weights)
        fits = [self._fit_cause(raw, outcome, k) for k in range(1, outcome.n_causes + 1)]
        self.coef_ = np.stack([fit.coef for fit in fits])
        self.standard_errors_ = np.stack([fit.errors for fit in fits])
        self.log_likelihood_ = np.array([fit.value for fit in fits])
        self.baselines_ = [(fit.times, fit.baseline) for fit in fits]

    def _fit_cause(self, raw: Array, outcome: Outcome, k: int) -> _Fit:
        """Coefficients, errors and the baseline of one cause."""
        p = raw.shape[1]
        coefficients, errors = np.zeros(p), np.full(p, np.nan)
        if self.alpha > 0:
            scale = np.sqrt(np.average((raw - self.centre_) ** 2, axis=0, weights=outcome.weights))
            scale = np.where(scale > 1e-12 * np.maximum(np.abs(self.centre_), 1.0), scale, 1.0)
            columns, kept, transform = (raw - self.centre_) / scale, np.arange(p), np.diag(1.0 / scale)
        else:
            basis = Basis(raw)
            columns, kept, transform = basis.columns, basis.kept, basis.transform
            if basis.dropped and k == 1 and outcome.event.any():
                names = ", ".join(repr(self.terms_[column]) for column in basis.dropped)
                warnings.warn(
                    f"Columns left out, since they are constant or linear combinations of earlier ones: {names}. "
                    "Their coefficients are 0, with standard errors of nan; alpha > 0 keeps all columns.",
                    UserWarning,
                    stacklevel=6,
                )
        likelihood = SubdistributionLikelihood(columns, outcome, k)
        beta, value, inverse = self._newton(likelihood)
        coefficients[kept] = transform @ beta
        influence = likelihood.scores(beta) @ inverse @ transform.T
        errors[kept] = np.sqrt((influence**2).sum(axis=0))
        times, rises = likelihood.baseline((raw - self.centre_) @ coefficients)
        return _Fit(coefficients, errors, value, times, np.cumsum(rises))

    def _newton(self, likelihood: SubdistributionLikelihood) -> tuple[Array, float, Array]:
        """The maximum, the likelihood there, and the inverse of the information."""
        beta = np.zeros(likelihood.x.shape[1])
        penalty = self.alpha * np.eye(len(beta))

        def at(beta: Array) -> tuple[float, Array, Array]:
            value, gradient, information = likelihood(beta)
            return value - 0.5 * float(beta @ penalty @ beta), gradient - penalty @ beta, information + penalty

        value, gradient, information = at(beta)
        start, converged, decrement = value, False, np.inf
        for _ in range(self.max_iter):
            step = np.linalg.pinv(information, rcond=1e-12, hermitian=True) @ gradient
            decrement = float(gradient @ step)
            converged = decrement <= self.tol * max(1.0, abs(value)) or len(beta) == 0
            if converged:
                break
            for size in 0.5 ** np.arange(28.0):
                new = at(beta + size * step)
                if all(np.isfinite(part).all() for part in new) and new[0] >= value - 1e-12 * abs(value):
                    beta, (value, gradient, information) = beta + size * step, new
                    break
            else:
                break
        if not converged or (start < 0 and value > 1e-8 * start):  # at zero every event is told for certain
            warnings.warn(
                f"Newton's method has not converged for cause {likelihood.cause} (decrement {decrement:.2g}). "
                "Some column may tell all events from the rest, so that its coefficient has no limit; "
                "alpha > 0 gives it one.",
                ConvergenceWarning,
                stacklevel=5,
            )
        inverse = np.linalg.pinv(information, rcond=1e-12, hermitian=True)
        return beta, likelihood(beta)[0], np.asarray(inverse, dtype=np.float64)

    def summary(self) -> pd.DataFrame:
        """Coefficients, subdistribution hazard ratios, robust standard errors, z and two-sided p-values.

        One row per cause and term; all nan for a column that is left out.
        """
        check_is_fitted(self)
        coef = np.where(np.isnan(self.standard_errors_), np.nan, self.coef_)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = coef / self.standard_errors_
        columns = {
            "coef": coef,
            "hazard_ratio": np.exp(coef),
            "standard_error": self.standard_errors_,
            "z": z,
            "p": erfc(np.abs(z) / np.sqrt(2.0)),
        }
        index = pd.MultiIndex.from_product([range(1, self.n_causes_ + 1), self.terms_], names=["cause", "term"])
        return pd.DataFrame({name: values.reshape(-1) for name, values in columns.items()}, index=index)

    def log_risk(self, X: Any) -> Array:
        """β_k·(x - centre), shape (rows, K): the log of the subdistribution hazards relative to the centre."""
        check_is_fitted(self)
        return self._log_risk(self._check_covariates(X, reset=False))

    def _log_risk(self, X: Any) -> Array:
        result: Array = (Design(self.preprocessor_).matrix(X) - self.centre_) @ self.coef_.T
        return result

    def _distribution(self, X: Any) -> SurvivalDistribution:
        risk = np.exp(np.clip(self._log_risk(X), -600.0, 600.0))  # far from the data past the range of numbers
        times = np.unique(np.concatenate([[0.0], *(own for own, _ in self.baselines_)]))
        raw = np.empty((len(risk), len(times), self.n_causes_))
        for k, (own, baseline) in enumerate(self.baselines_):
            curve = np.append(0.0, baseline)[np.searchsorted(own, times, side="right")]
            raw[:, :, k] = -np.expm1(-risk[:, k, None] * curve)
        return TabulatedRisks(times, *_within_one(raw), half_width=self.half_width)

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """What a model file keeps of the fit."""
        fitted, tensors = super()._state()
        fitted |= {"preprocessor_": self.preprocessor_.state()}
        tensors |= {name: torch.from_numpy(getattr(self, name)) for name in ("centre_", "log_likelihood_")}
        for k, (times, baseline) in enumerate(self.baselines_):
            own = {"coef": self.coef_[k], "errors": self.standard_errors_[k], "times": times, "baseline": baseline}
            tensors |= {f"{name}_{k}": torch.from_numpy(values) for name, values in own.items()}
        return fitted, tensors

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of `state`."""
        super()._restore(fitted, tensors)
        self.preprocessor_ = Preprocessor.from_state(fitted["preprocessor_"])
        self._check_columns(self.preprocessor_)
        self.terms_ = Design(self.preprocessor_).names
        p, causes = len(self.terms_), range(self.n_causes_)
        self.log_likelihood_ = tensor_of(tensors, "log_likelihood_", self.n_causes_).numpy()
        self.centre_ = tensor_of(tensors, "centre_", p).numpy()
        self.coef_ = np.stack([tensor_of(tensors, f"coef_{k}", p).numpy() for k in causes])
        errors = [tensor_of(tensors, f"errors_{k}", p, low=0.0, may_be_nan=True).numpy() for k in causes]
        self.standard_errors_ = np.stack(errors)
        self.baselines_ = []
        for k in causes:
            times = tensor_of(tensors, f"times_{k}", low=0.0, increasing=True).numpy()
            baseline = tensor_of(tensors, f"baseline_{k}", len(times), low=0.0, never_falling=True).numpy()
            self.baselines_.append((times, baseline))


class _Fit(NamedTuple):
    coef: Array
    errors: Array
    value: float
    times: Array
    baseline: Array


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
    observed no longer. ``x`` has one row per subject.
    """

    def __init__(self, x: Array, outcome: Outcome, cause: int) -> None:
        order = np.argsort(outcome.time, kind="stable")
        rows = outcome[order]
        self.order, self.x, self.cause = order, x[order], cause
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

    def scores(self, beta: Array) -> Array:
        """What each row contributes to the gradient, the weights taken as known: shape (n, p), in the order of x."""
        _, _, w = self._risks(beta)
        s0, s1 = self._sums(w), self._sums(w[:, None] * self.x)
        mean, rises = s1 / s0[:, None], self.events / s0
        expected = self.x * self._exposure(rises)[:, None] - self._exposure(rises[:, None] * mean)
        made = -w[:, None] * expected
        np.add.at(made, self.own, self.weight[self.own, None] * (self.x[self.own] - mean[self.place]))
        result = np.empty_like(made)
        result[self.order] = made
        return result

    def baseline(self, log_risk: Array) -> tuple[Array, Array]:
        """Event times, and the rises of Breslow's baseline there, for log risks in the order of x."""
        shift = float(log_risk.max())
        w = self.weight * np.exp(log_risk[self.order] - shift)
        return self.times, self.events / self._sums(w) * np.exp(-shift)

    def _risks(self, beta: Array) -> tuple[Array, float, Array]:
        log_risk = self.x @ beta
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
