"""Parametric survival regression by maximum likelihood."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from sumosurv.confidence import check_level
from sumosurv.distributions import SurvivalDistribution
from sumosurv.estimators.cox_inference import training_concordance
from sumosurv.estimators.linear import LinearEstimator, Missing, TrainingRows
from sumosurv.estimators.parametric_likelihood import FAMILIES, Family, ParametricLikelihood, make_family
from sumosurv.estimators.regression import NEWTON_CONSTRAINTS, Fit, fit_coefficients, make_basis, maximise
from sumosurv.estimators.summary import ModelSummary, restored_covariance, restored_numbers, summarise
from sumosurv.fitting.settings import BOOLEAN, Constraints, integer, one_of
from sumosurv.model_files import as_flag, as_whole, tensor_of
from sumosurv.nonparametric import is_robust
from sumosurv.outcome import Outcome
from sumosurv.preprocessing.columns import quantiles
from sumosurv.warn import warn_user

__all__ = ["ParametricRegression"]

Array = npt.NDArray[np.float64]


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
    entry and weights. Redundant columns are left out and separation is reported as in `CoxPH`. Summaries have no score
    test: with the observed information without covariates, it rejects true hypotheses too often in small samples, and
    can be negative if effects are strong (Freedman 2007; ``benchmarks/score_test.py``).

    Parameters
    ----------
    formula : str, optional
        The right-hand side of a formula that makes the columns of the model; see `CoxPH`.
    family : str
        One of the names above.
    df : int, default 3
        Degrees of freedom of the spline, for ``family="spline"``: the number of knots less one. The knots are at
        the smallest and largest log event time and at quantiles between them; ``df=1`` is the Weibull distribution.
    strata : column name or sequence of column names, optional
        Columns (in an array: their positions) whose combinations of values define the strata. Each stratum has its own
        intercept and shape; the columns have no coefficients.
    robust : {"auto", True, False}
        Whether standard errors come from the sandwich. "auto": if groups have several rows, or if weights are not whole
        numbers. Rows count with their weights in the sandwich; R's ``survreg`` leaves the weights out there.
    missing : {"drop", "error", "indicator"}
        What to do with missing values; see `CoxPH`.
    alpha : float, default 0.0
        Strength of a ridge penalty on the coefficients of the standardised columns; 0 for none.
    max_iter : int, default 100
        Largest number of Newton steps.
    tol : float, default 1e-16
        Newton's method stops when the decrement gᵀH⁻¹g, relative to the log-likelihood, is below this value.

    Attributes
    ----------
    coef_ : ndarray of shape (p,)
        In the units of the columns; 0 for a column that is left out.
    standard_errors_ : ndarray of shape (p,)
        Of the coefficients: nan for a column that is left out, infinity if the likelihood has no maximum in it.
    baseline_ : ndarray of shape (strata, k)
        The parameters of the family at x = 0: the intercept, then the shape. In a stratum without events the intercept
        is as far away as numbers allow, so that S stays at 1.
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

    References
    ----------
    Freedman (2007), How can the score test be inconsistent?, The American Statistician 61, 291-295.

    Examples
    --------
    >>> from sumosurv import ParametricRegression, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = ParametricRegression(family="lognormal").fit(data.X, data.y)
    >>> model.parameters_, model.predict_median(data.X[:2]).shape
    (['x', 'intercept', 'log_sigma'], (2,))
    >>> lower, upper = model.predict_survival_band(data.X[:2], times=[0.5, 1.0])
    """

    _supported_outcomes: ClassVar[frozenset[str]] = frozenset({"entry", "intervals", "weights"})
    _parameter_constraints: ClassVar[Constraints] = NEWTON_CONSTRAINTS | {
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
        rows = self._read_rows(X, y)
        self.robust_ = is_robust(rows.outcome) if self.robust == "auto" else self.robust
        if self.family != "gompertz":
            rows = replace(rows, outcome=_without_events_at_zero(rows.outcome))
        self.knots_ = self._choose_knots(rows.outcome)
        self._name_parameters()
        self._fit_rows(rows)

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

    def _fit_rows(self, rows: TrainingRows) -> None:
        """Maximise the likelihood, and set what follows from the maximum."""
        family = self._family
        k, p, size = len(family.parameters), rows.matrix.shape[1], len(self.parameters_)
        stratum = np.zeros(len(rows.outcome), dtype=np.int64) if rows.stratum is None else rows.stratum
        self._ranked: tuple[Any, ...] | None = None  # what the concordance is computed from when it is first needed
        self.coef_, self.covariance_ = np.zeros(p), np.full((size, size), np.nan)
        self.baseline_ = np.tile(family.without_events(), ((size - p) // k, 1))
        self.n_iter_, nothing = 0, {"parameters": float(size), "log_likelihood": 0.0, "null_log_likelihood": 0.0}
        self._numbers = rows.counts() | nothing
        if not rows.outcome.had_event.any():  # of which _learn_outcome has warned
            return
        # a stratum without events, of which Strata.learn has warned, says nothing about the coefficients
        seen = np.bincount(stratum, rows.outcome.had_event, minlength=len(self.baseline_)) > 0
        known = np.append(np.ones(p, dtype=np.bool_), np.repeat(seen, k))
        fit = self._fit_strata(
            rows if seen.all() else rows[seen[stratum]],
            (np.cumsum(seen) - 1)[stratum[seen[stratum]]],
            [name for name, own in zip(self.parameters_, known) if own],
        )
        assert fit.covariance is not None
        self.coef_, self.baseline_[seen], self.n_iter_ = fit.coef, fit.others.reshape(-1, k), fit.n_iter
        self.covariance_[np.ix_(known, known)] = fit.covariance
        self._numbers |= fit.numbers
        if rows.outcome.upper is None:
            predictor = rows.matrix @ self.coef_ + rows.offset
            self._ranked = -predictor if family.accelerates else predictor, rows.outcome, rows.stratum

    def _fit_strata(self, rows: TrainingRows, stratum: npt.NDArray[np.int64], names: list[str]) -> Fit:
        """Maximise the likelihood of the named parameters; every stratum has events."""
        raw, outcome, family = rows.matrix, rows.outcome, self._family
        k, p, m = len(family.parameters), raw.shape[1], len(names) - raw.shape[1]
        centre = np.average(raw, axis=0, weights=outcome.weight)
        basis = make_basis(raw, outcome, centre, self.terms_, self.alpha, rows.stratum)
        x = raw.T if len(basis.kept) == p else raw.T[basis.kept]
        likelihood = ParametricLikelihood(family, x, outcome, stratum, rows.offset, centre[basis.kept], basis.transform)
        null = likelihood.without_columns()
        start = maximise(null, null.start(), np.zeros(m), self.max_iter, self.tol).parameters
        # the parameters at x = 0, stratum by stratum, from those at the centre, which are in the order of the family
        b = basis.transform.shape[1]
        at_zero = np.zeros((m, b + m))
        at_zero[np.arange(m), b + np.arange(m).reshape(k, -1).T.reshape(-1)] = 1.0
        at_zero[::k, :b] = -centre[basis.kept] @ basis.transform
        return fit_coefficients(
            likelihood,
            basis,
            outcome,
            names,
            self,
            robust=self.robust_,
            others=(start, at_zero),
            simpler="lower df, " if self.family == "spline" else "choose a family with fewer parameters, ",
        )

    def _all_numbers(self) -> dict[str, float]:
        """The numbers of the summary; the concordance, which takes half as long as the fit, is added now."""
        if self._ranked is not None:
            self._numbers, self._ranked = self._numbers | training_concordance(*self._ranked), None
        return self._numbers

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

    def _summary(self, level: float) -> ModelSummary:
        name = f"spline with df={self.df}" if self.family == "spline" else self.family.replace("_", " ")
        return summarise(
            f"Parametric regression, {name}{self._in_strata}{f', ridge penalty {self.alpha:g}' if self.alpha else ''}",
            self.parameters_,
            np.concatenate([self.coef_, self.baseline_.reshape(-1)]),
            np.sqrt(np.diag(self.covariance_)),
            None if self.alpha > 0 else self.covariance_,
            self._design.sources,
            self._all_numbers(),
            level=level,
            ratio="time_ratio" if self._family.accelerates else "hazard_ratio",
            robust=self.robust_,
            penalised=self.alpha > 0,
        )

    def predict_survival_band(self, X: Any, times: Any, level: float = 0.95) -> tuple[Array, Array]:
        """Confidence limits of S(t|x) at single times, each of shape (rows, times).

        The limits come from the delta method on the scale of log(-log S), with ``covariance_``. They are nan if they
        depend on a standard error that is not finite.
        """
        check_is_fitted(self)
        check_level(level)
        grid = torch.from_numpy(self._check_grid(times))
        values, raw, place = self._values(self._check_new_rows(X))
        n, k, p = len(values), values.shape[1], raw.shape[1]
        own = torch.from_numpy(values.T[:, :, None].repeat(len(grid), axis=2)).requires_grad_()
        with torch.enable_grad():
            log_hazard = torch.log(-self._family.formula(list(own), grid).survival)
            slopes = torch.autograd.grad(log_hazard.sum(), own)[0].numpy()  # (k, n, times)
        columns = np.zeros((n, k, len(self.parameters_)))
        columns[:, 0, :p] = raw
        for j in range(k):
            columns[np.arange(n), j, p + place * k + j] = 1.0
        known = ~np.isnan(np.diag(self.covariance_))
        gradient = np.einsum("knt,nkq->ntq", slopes, columns[:, :, known])
        variance = np.einsum("ntq,qr,ntr->nt", gradient, self.covariance_[np.ix_(known, known)], gradient)
        variance[~known[p + place * k]] = np.nan  # in strata without events
        half, middle = float(ndtri(0.5 + 0.5 * level)) * np.sqrt(variance), log_hazard.detach().numpy()
        at_zero = grid.numpy() == 0.0
        lower, upper = (np.where(at_zero, 1.0, np.exp(-np.exp(middle + side * half))) for side in (1.0, -1.0))
        return lower, upper

    def _values(self, X: Any) -> tuple[Array, Array, npt.NDArray[np.int64]]:
        """The parameters of the family of each row, (n, k); the matrix of its columns; and its stratum."""
        stratum = self._strata.find(X)
        raw, offset = self._linear_parts(X)
        place = np.zeros(len(raw), dtype=np.int64) if stratum is None else stratum
        values = self.baseline_[place]
        values[:, 0] = np.clip(values[:, 0] + raw @ self.coef_ + offset, -600.0, 600.0)
        return values, raw, place

    def _distribution(self, X: Any) -> SurvivalDistribution:
        return self._family.distribution(torch.from_numpy(self._values(self._select(X))[0]))

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        fitted, tensors = super()._state()
        fitted |= {"numbers": self._all_numbers(), "n_iter_": self.n_iter_, "robust_": self.robust_}
        arrays = {name: getattr(self, name).reshape(-1) for name in ("coef_", "baseline_", "covariance_")}
        if self.knots_ is not None:
            arrays["knots_"] = self.knots_
        return fitted, tensors | {name: torch.from_numpy(values) for name, values in arrays.items()}

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        super()._restore(fitted, tensors)
        self.knots_ = None
        if self.family == "spline":
            self.knots_ = tensor_of(tensors, "knots_", self.df + 1, increasing=True).numpy()
        self._name_parameters()
        self._numbers, self._ranked = restored_numbers(fitted["numbers"]), None
        self.n_iter_ = as_whole(fitted["n_iter_"], "n_iter_")
        self.robust_ = as_flag(fitted["robust_"], "robust_")
        p, size = len(self.terms_), len(self.parameters_)
        self.coef_ = tensor_of(tensors, "coef_", p).numpy()
        self.baseline_ = tensor_of(tensors, "baseline_", size - p).numpy().reshape(-1, len(self._family.parameters))
        if not self._family.valid(self.baseline_):
            raise ValueError("the parameters are not those of a distribution")
        self.covariance_ = restored_covariance(tensors, "covariance_", size)
        if (np.diag(self.covariance_) < 0).any():
            raise ValueError("a variance is negative")


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
