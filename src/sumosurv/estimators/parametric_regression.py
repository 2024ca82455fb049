"""Parametric survival regression by maximum likelihood."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.special import ndtri
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from sumosurv.confidence import check_level
from sumosurv.distributions import SurvivalDistribution
from sumosurv.estimators.design import Basis, RidgeBasis, within_strata
from sumosurv.estimators.linear import LinearEstimator
from sumosurv.estimators.parametric_likelihood import (
    FAMILIES,
    Family,
    Maximum,
    ParametricLikelihood,
    make_family,
    maximise,
)
from sumosurv.estimators.regression import (
    LINEAR_CONSTRAINTS,
    Missing,
    check_complete,
    listed,
    row_counts,
    sandwich,
    warn_of_dropped,
)
from sumosurv.estimators.strata import Strata
from sumosurv.estimators.summary import (
    ModelSummary,
    coefficient_table,
    restored_covariance,
    restored_numbers,
    summarise,
)
from sumosurv.fitting.settings import BOOLEAN, Constraints, integer, one_of
from sumosurv.model_files import as_flag, as_whole, tensor_of
from sumosurv.nonparametric import is_robust
from sumosurv.outcome import Outcome
from sumosurv.preprocessing.columns import quantiles
from sumosurv.warn import warn_user

__all__ = ["ParametricRegression"]

Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

_FLAT = 1e-10  # information in a direction relative to that at β = 0, below which the likelihood has no maximum there


@dataclass(kw_only=True, eq=False, repr=False)
class ParametricRegression(LinearEstimator):
    r"""Parametric survival regression by maximum likelihood, as R's ``survreg`` and flexsurv.

    The location of the distribution is an intercept plus β·x; its shape is the same for all subjects of a stratum.

    ===================== ============================================================== =================
    family                model                                                          exp(β) is a ratio
    ===================== ============================================================== =================
    ``weibull``           S(t) = exp(-(t / scale)^shape), log scale = location           of times
    ``exponential``       the same with shape 1                                          of times
    ``lognormal``         log T normal with mean = location, standard deviation sigma    of times
    ``loglogistic``       S(t) = 1 / (1 + (t / scale)^shape), log scale = location       of times
    ``generalised_gamma`` log T = location + sigma w, shape q of w (Prentice 1974):      of times
                          q = 1 is Weibull, q = 0 log-normal, q = sigma gamma
    ``gompertz``          λ(t) = exp(location + rate · t)                                of hazards
    ``spline``            log Λ(t) = location + a restricted cubic spline of log t       of hazards
                          (Royston and Parmar 2002)
    ===================== ============================================================== =================

    Newton's method maximises the exact likelihood of events, right-, left- and interval-censored rows, with delayed
    entry and weights. Redundant columns are left out and separation is reported as in `CoxPH`.

    Parameters
    ----------
    formula : str, optional
        The right-hand side of a formula that makes the columns of the model; see `CoxPH`.
    family : str
        One of the names above.
    df : int
        Degrees of freedom of the spline, for ``family="spline"``: the number of knots less one. The knots are at
        the smallest and largest log event time and at quantiles between them; ``df=1`` is the Weibull distribution.
    strata : column name or sequence of column names, optional
        Columns (in an array: their positions) whose combinations of values define the strata. Each stratum has its own
        intercept and shape; the columns have no coefficients.
    robust : {"auto", True, False}
        Whether standard errors come from the sandwich. "auto": if groups have several rows, or if weights are not whole
        numbers.
    missing : {"drop", "error", "indicator"}
        What to do with missing values; see `CoxPH`.
    alpha : float
        Strength of a ridge penalty on the coefficients of the standardised columns; 0 for none.
    max_iter : int
        Largest number of Newton steps.
    tol : float
        Newton's method stops when the decrement gᵀH⁻¹g, relative to the log-likelihood, is below this value.

    Attributes
    ----------
    coef_ : ndarray of shape (p,)
        In the units of the columns; 0 for a column that is left out.
    standard_errors_ : ndarray of shape (p,)
        Of the coefficients: nan for a column that is left out, infinity if the likelihood has no maximum in it.
    baseline_ : ndarray of shape (strata, k)
        The parameters of the family at x = 0: the intercept, then the shape.
    covariance_ : ndarray of shape (p + strata · k, p + strata · k)
        Of the coefficients and the parameters, in the order of ``parameters_``.
    parameters_ : list of str
        Names of the coefficients and of the parameters of each stratum.
    terms_ : list of str
        Names of the columns; ``name[level]`` for categories.
    strata_ : list of tuple of str, or None
        The strata of the training rows, values as text.
    robust_ : bool
        Whether standard errors come from the sandwich.
    knots_ : ndarray or None
        Knots of the spline, in log time.
    log_likelihood_, null_log_likelihood_ : float
        With and without covariates, without the penalty.
    n_iter_ : int
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sumosurv import ParametricRegression, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = ParametricRegression(family="lognormal").fit(data.X, data.y)
    >>> model.parameters_, model.predict_median(data.X[:2]).shape
    (['x', 'intercept', 'log_sigma'], (2,))
    >>> lower, upper = model.predict_survival_band(data.X[:2], times=[0.5, 1.0])
    """

    _learns_from: ClassVar[frozenset[str]] = frozenset({"entry", "intervals", "weights"})
    _parameter_constraints: ClassVar[Constraints] = LINEAR_CONSTRAINTS | {
        "family": one_of(*FAMILIES),
        "df": integer(1),
        "robust": one_of("auto") | BOOLEAN,
    }

    family: str = "weibull"
    df: int = 3
    strata: Hashable | Sequence[Hashable] | None = None
    robust: bool | Literal["auto"] = "auto"
    missing: Missing = "drop"
    alpha: float = 0.0
    max_iter: int = 100
    tol: float = 1e-16

    def _fit(self, X: Any, y: Any) -> None:
        X, outcome, n_rows = self._start_complete(X, y)
        self._strata = Strata.of(X, self.strata)
        stratum = self._strata.learn(X)
        self._strata.warn_without_events(stratum, outcome.had_event)
        self.strata_ = self._strata.labels
        raw, offset = self._learn_design(X, outcome.weight)
        self.robust_ = is_robust(outcome) if self.robust == "auto" else self.robust
        if self.family != "gompertz":
            outcome = _without_events_at_zero(outcome)
        self.knots_ = self._choose_knots(outcome)
        self._numbers = row_counts(outcome, n_rows)
        self._fit_rows(raw, offset, outcome, stratum)

    @property
    def _family(self) -> Family:
        return make_family(self.family, self.knots_)

    def _choose_knots(self, outcome: Outcome) -> Array | None:
        if self.family != "spline":
            return None
        known = outcome.at_midpoints()
        if not known.event.any():
            return np.arange(self.df + 1.0)
        events = known[known.event]
        knots = quantiles(np.log(events.time), np.linspace(0.0, 1.0, self.df + 1), events.weight)
        if (np.diff(knots) <= 0).any():
            distinct = len(np.unique(events.time))
            raise ValueError(
                f"The knots of a spline with df={self.df} are not distinct: there are {distinct} distinct event times. "
                "Lower df, or choose another family."
            )
        return knots

    def _fit_rows(self, raw: Array, offset: Array, outcome: Outcome, stratum: Whole | None) -> None:
        """Maximise the likelihood, and set what follows from the maximum."""
        k, p = len(self._family.parameters), raw.shape[1]
        place = np.zeros(len(raw), dtype=np.int64) if stratum is None else stratum
        null = ParametricLikelihood(self._family, raw[:, :0], outcome, place, offset)
        n_strata = null.n_strata
        self._name_parameters()
        size = p + n_strata * k
        if not outcome.had_event.any():  # of which _note_outcome has warned
            self.coef_, self.covariance_ = np.zeros(p), np.full((size, size), np.nan)
            self.baseline_ = np.tile(self._family.without_events(), (n_strata, 1))
            self._numbers |= {"parameters": float(size), "log_likelihood": 0.0, "null_log_likelihood": 0.0}
            self.n_iter_ = 0
            return
        start = maximise(null, null.start(), np.zeros(n_strata * k), self.max_iter, self.tol)
        centre = np.average(raw, axis=0, weights=outcome.weights)
        basis: Basis | RidgeBasis
        if self.alpha > 0:
            basis = RidgeBasis(raw, centre, outcome.weight, self.alpha)
        else:
            basis = Basis(raw if stratum is None else within_strata(raw, stratum))
            if basis.dropped:
                warn_of_dropped(basis, self.terms_)
        columns = (raw[:, basis.kept] - centre[basis.kept]) @ basis.transform
        b = columns.shape[1]
        likelihood = ParametricLikelihood(self._family, columns, outcome, place, offset)
        first = np.concatenate([np.zeros(b), start.parameters])
        penalty = np.concatenate([np.full(b, self.alpha), np.zeros(n_strata * k)])
        found = maximise(likelihood, first, penalty, self.max_iter, self.tol)
        # a direction in which there is hardly any information, compared with β = 0, has no maximum
        least = _FLAT * float(np.diag(found.start_information)[:b].mean()) if b and self.alpha == 0 else -np.inf
        flat, covariance = _covariance(found.information, b, least)
        if self.robust_:
            covariance = sandwich(likelihood.score_residuals(found.parameters) @ covariance, outcome)
        # coefficients and parameters at x = 0, stratum by stratum, from those of the basis
        back = np.zeros((size, b + n_strata * k))
        back[basis.kept, :b] = basis.transform
        for s in range(n_strata):
            for j in range(k):
                back[p + s * k + j, b + j * n_strata + s] = 1.0
            back[p + s * k, :b] = -centre[basis.kept] @ basis.transform
        values = back @ found.parameters
        self.coef_, self.baseline_ = values[:p], values[p:].reshape(n_strata, k)
        self.covariance_ = back @ covariance @ back.T
        diagonal = np.arange(size)
        self.covariance_[basis.kept, basis.kept] += basis.outside
        length = np.sqrt((back**2).sum(axis=1))
        infinite = np.sqrt(((back @ flat) ** 2).sum(axis=1)) > 1e-6 * np.where(length > 0, length, 1.0)
        self.covariance_[diagonal[infinite], diagonal[infinite]] = np.inf
        left_out = np.setdiff1d(np.arange(p), basis.kept)
        self.covariance_[left_out], self.covariance_[:, left_out] = np.nan, np.nan
        self.n_iter_ = found.n_iter
        value, null_value = found.value + 0.5 * float(penalty @ found.parameters**2), found.start_value
        self._numbers |= {"log_likelihood": value, "null_log_likelihood": null_value}
        self._numbers["parameters"] = float(b + n_strata * k)
        if self.alpha == 0 and not infinite.any() and found.decrement is None:
            own = found.parameters[:b]
            self._numbers["likelihood_ratio"] = 2.0 * (value - null_value)
            self._numbers["wald"] = float(own @ np.linalg.solve(covariance[:b, :b], own))
        self._warn(found, infinite)

    def _warn(self, found: Maximum, infinite: npt.NDArray[np.bool_]) -> None:
        separating = [name for name, which in zip(self.terms_, infinite) if which]
        if separating:
            warn_user(
                f"The likelihood has no maximum: it keeps rising as the coefficients of {listed(separating)} go to "
                "infinity, because these columns separate the events from other rows. Their standard errors are "
                "infinite; alpha > 0 gives finite estimates.",
                ConvergenceWarning,
            )
        elif found.decrement is not None:
            size = np.abs(self.baseline_).max(axis=0)
            worst = self._family.parameters[int(np.argmax(size[1:])) + 1 if len(size) > 1 else 0]
            fewer = "lower df" if self.family == "spline" else "choose a family with fewer parameters"
            warn_user(
                f"Newton's method has not converged in {found.n_iter + 1} steps (decrement {found.decrement:.2g}); the "
                f"largest parameter of the {self.family} family is {worst}, {size.max():.3g}. Raise max_iter, {fewer}, "
                "leave out columns, or set alpha > 0.",
                ConvergenceWarning,
            )

    def _name_parameters(self) -> None:
        labels = [""] if self.strata_ is None else [f"[{', '.join(label)}]" for label in self.strata_]
        self.parameters_ = [*self.terms_, *(name + label for label in labels for name in self._family.parameters)]

    @property
    def standard_errors_(self) -> Array:
        """Standard errors of the coefficients."""
        return np.asarray(np.sqrt(np.diag(self.covariance_)[: len(self.coef_)]))

    @property
    def log_likelihood_(self) -> float:
        """The log-likelihood, without the penalty."""
        return self._numbers["log_likelihood"]

    @property
    def null_log_likelihood_(self) -> float:
        """The log-likelihood of the model without covariates."""
        return self._numbers["null_log_likelihood"]

    def summary(self, level: float = 0.95) -> ModelSummary:
        """Coefficients, ratios of times or hazards, tests and measures of fit, as a printable summary.

        The coefficients are followed by the parameters of the family, which have no ratios. They are nan for a column
        that is left out; p = 1 if the standard error is infinite.

        Parameters
        ----------
        level : float
            Confidence level of the limits of the ratios.
        """
        check_is_fitted(self)
        values = np.concatenate([self.coef_, self.baseline_.reshape(-1)])
        ratio = "time_ratio" if self._family.accelerates else "hazard_ratio"
        errors, index = np.sqrt(np.diag(self.covariance_)), pd.Index(self.parameters_, name="term")
        table = coefficient_table(values, errors, level, index, ratio)
        table.iloc[len(self.coef_) :, 1:4] = np.nan
        strata = f", strata of {', '.join(map(str, self._strata.columns))}" if self._strata.columns else ""
        name = f"spline with df={self.df}" if self.family == "spline" else self.family.replace("_", " ")
        return summarise(
            f"Parametric regression, {name}{strata}{f', ridge penalty {self.alpha:g}' if self.alpha else ''}",
            table,
            None if self.alpha > 0 else self.covariance_,
            self._design.sources,
            self._numbers,
            level=level,
            robust=self.robust_,
            penalised=self.alpha > 0,
            n_baseline=self.baseline_.size,
        )

    def predict_survival_band(self, X: Any, times: Any, level: float = 0.95) -> tuple[Array, Array]:
        """Confidence limits of S(t|x) at single times, each of shape (rows, times).

        By the delta method on the scale of log(-log S), from ``covariance_``; nan if a standard error that matters is
        not finite.
        """
        check_is_fitted(self)
        check_level(level)
        grid = torch.from_numpy(self._check_grid(times))
        X = self._check_new_rows(X)
        values, raw, stratum = self._values(X), self._linear_parts(X)[0], self._strata.find(X)
        n, k, p = len(values), values.shape[1], raw.shape[1]
        own = torch.from_numpy(values.T[:, :, None].repeat(len(grid), axis=2)).requires_grad_()
        with torch.enable_grad():
            log_hazard = torch.log(-self._family.formula(list(own), grid).survival)
            slopes = torch.autograd.grad(log_hazard.sum(), own)[0].numpy()  # (k, n, times)
        place = np.zeros(n, dtype=np.int64) if stratum is None else stratum
        used = np.flatnonzero(~np.isnan(np.diag(self.covariance_)[:p]))
        columns = np.zeros((n, k, len(used) + len(self.baseline_) * k))
        columns[:, 0, : len(used)] = raw[:, used]
        for j in range(k):
            columns[np.arange(n), j, len(used) + place * k + j] = 1.0
        kept = np.concatenate([used, np.arange(p, len(self.parameters_))])
        gradient = np.einsum("knt,nkq->ntq", slopes, columns)
        variance = np.einsum("ntq,qr,ntr->nt", gradient, self.covariance_[np.ix_(kept, kept)], gradient)
        half, middle = float(ndtri(0.5 + 0.5 * level)) * np.sqrt(variance), log_hazard.detach().numpy()
        at_zero = grid.numpy() == 0.0
        lower, upper = (np.where(at_zero, 1.0, np.exp(-np.exp(middle + side * half))) for side in (1.0, -1.0))
        return lower, upper

    def _values(self, X: Any) -> Array:
        """The parameters of the family of each row, (n, k)."""
        check_complete(X, self.missing)
        stratum = self._strata.find(X)
        raw, offset = self._linear_parts(X)
        values = self.baseline_[np.zeros(len(raw), dtype=np.int64) if stratum is None else stratum]
        values[:, 0] = np.clip(values[:, 0] + raw @ self.coef_ + offset, -600.0, 600.0)
        return values

    def _distribution(self, X: Any) -> SurvivalDistribution:
        return self._family.distribution(torch.from_numpy(self._values(self._select(X))))

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """What a model file keeps of the fit."""
        fitted, tensors = super()._state()
        fitted |= self._design_state() | {"numbers": self._numbers}
        fitted |= {"n_iter_": self.n_iter_, "robust_": self.robust_}
        if self.strata_ is not None:
            fitted |= {"strata_": [list(label) for label in self.strata_]}
        arrays = {name: getattr(self, name).reshape(-1) for name in ("coef_", "baseline_", "covariance_")}
        if self.knots_ is not None:
            arrays["knots_"] = self.knots_
        return fitted, tensors | {name: torch.from_numpy(values) for name, values in arrays.items()}

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of `state`."""
        super()._restore(fitted, tensors)
        self._check_settings()
        self._strata = Strata.restored(self.strata, fitted.get("strata_"), getattr(self, "feature_names_in_", None))
        self.strata_ = self._strata.labels
        self._restore_design(fitted)
        self.knots_ = None
        if self.family == "spline":
            self.knots_ = tensor_of(tensors, "knots_", self.df + 1, increasing=True).numpy()
        self._name_parameters()
        self._numbers = restored_numbers(fitted["numbers"])
        self.n_iter_ = as_whole(fitted["n_iter_"], "n_iter_")
        self.robust_ = as_flag(fitted["robust_"], "robust_")
        p, size = len(self.terms_), len(self.parameters_)
        self.coef_ = tensor_of(tensors, "coef_", p).numpy()
        baseline = tensor_of(tensors, "baseline_", size - p).reshape(-1, len(self._family.parameters))
        if not self._family.valid(baseline):
            raise ValueError("the parameters are not those of a distribution")
        self.baseline_ = baseline.numpy()
        self.covariance_ = restored_covariance(tensors, "covariance_", size)
        if (np.diag(self.covariance_) < 0).any():
            raise ValueError("a variance is negative")


def _covariance(information: Array, b: int, least: float) -> tuple[Array, Array]:
    """Directions with an information of at most ``least``, (size, m), and the inverse information without them.

    Such a direction moves the b coefficients, and the other parameters as the likelihood has them follow.
    """
    size = len(information)
    others = np.linalg.pinv(information[b:, b:], rcond=1e-14, hermitian=True)
    follow = -others @ information[b:, :b]
    own = information[:b, :b] + information[:b, b:] @ follow
    eigenvalues, vectors = np.linalg.eigh(0.5 * (own + own.T))
    flat = eigenvalues <= least
    directions = np.vstack([vectors[:, flat], follow @ vectors[:, flat]])
    inverse = np.zeros((size, size))
    inverse[:b, :b] = (vectors[:, ~flat] / eigenvalues[~flat]) @ vectors[:, ~flat].T
    inverse[b:, :b] = follow @ inverse[:b, :b]
    inverse[:b, b:] = inverse[b:, :b].T
    inverse[b:, b:] = others + follow @ inverse[:b, b:]
    return directions, inverse


def _without_events_at_zero(outcome: Outcome) -> Outcome:
    """Events at time zero, whose density is zero or infinite, as events before half of the smallest time above zero."""
    at_zero = outcome.event & (outcome.time == 0)
    if not at_zero.any():
        return outcome
    above = outcome.time[outcome.time > 0]
    least = 0.5 * float(above.min()) if len(above) else 1.0
    warn_user(
        f"{int(at_zero.sum())} events are at time 0, where the density of this family is zero or infinite; they are "
        f"taken to lie between 0 and {least:.3g}. Use Surv.interval to give the interval, or family='gompertz'.",
        UserWarning,
    )
    upper = np.where(outcome.event, outcome.time, np.inf) if outcome.upper is None else outcome.upper
    return replace(outcome, event=outcome.event & ~at_zero, upper=np.where(at_zero, least, upper))
