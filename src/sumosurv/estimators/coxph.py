"""Cox's proportional hazards model, by Newton's method on the partial likelihood."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from sumosurv.confidence import check_level
from sumosurv.distributions import SurvivalDistribution, Tabulated
from sumosurv.estimators.basis import centred_product, column_means, standardise
from sumosurv.estimators.cox_inference import (
    CoxLimits,
    TimeTransform,
    score_tests,
    training_concordance,
    transformed_times,
)
from sumosurv.estimators.elastic_net import elastic_net_in_words, fit_path_to
from sumosurv.estimators.linear import LinearEstimator, TrainingRows
from sumosurv.estimators.partial_likelihood import PartialLikelihood, Ties, ever_at_risk
from sumosurv.estimators.regression import NEWTON_CONSTRAINTS, Fit, fit_coefficients, make_basis
from sumosurv.estimators.summary import ModelSummary, restored_covariance, restored_numbers, summarise
from sumosurv.fitting.prepared import check_learns_from
from sumosurv.fitting.settings import BOOLEAN, Constraints, integer, number, one_of
from sumosurv.model_files import as_flag, as_list, as_whole, tensor_of
from sumosurv.nonparametric import is_robust
from sumosurv.outcome import check_outcome
from sumosurv.sources import take_rows

__all__ = ["CoxPH"]

Array = npt.NDArray[np.float64]


@dataclass(kw_only=True, eq=False, repr=False)
class CoxRegression(LinearEstimator):
    """Base of Cox regressions, which differ in how they estimate the coefficients."""

    _supported_outcomes: ClassVar[frozenset[str]] = frozenset({"entry", "weights"})

    _parameter_constraints: ClassVar[Constraints] = {
        "ties": one_of("efron", "breslow"),
        "half_width": integer(1),
    }

    ties: Ties = "efron"
    strata: Hashable | Sequence[Hashable] | None = None
    half_width: int = 2

    def _fit(self, X: Any, y: Any) -> None:
        rows = self._read_rows(X, y)
        raw, outcome = rows.matrix, rows.outcome
        self.centre_ = column_means(raw, outcome.weight)
        fit = self._fit_coefficients(rows)
        self.coef_, self.standard_errors_, self.covariance_ = fit.coef, fit.standard_errors, fit.covariance
        self.log_likelihood_, self.n_iter_ = fit.numbers["log_likelihood"], fit.n_iter
        risk = centred_product(raw, self.centre_, self.coef_) + rows.offset
        self._numbers = fit.numbers | rows.counts() | training_concordance(risk, outcome, rows.stratum)
        known = self.covariance_ is not None  # so that there are limits, which need the means of all columns
        if known:
            moments = self._likelihood(rows, raw - self.centre_).baseline_moments(self.coef_)
        else:
            moments = self._likelihood(replace(rows, offset=risk)).baseline_moments(np.empty(0))
        self.baseline_times_ = np.concatenate([part.times for part in moments])
        self.baseline_ = np.concatenate([part.hazard for part in moments])
        self._sizes = [len(part.times) for part in moments]
        if known:
            self._moments = moments

    def _likelihood(self, rows: TrainingRows, x: Array | None = None) -> PartialLikelihood:
        """The likelihood of the coefficients of x; without columns, that of the offset."""
        x = np.empty((len(rows.outcome), 0)) if x is None else x
        return PartialLikelihood(x, rows.outcome, self.ties, rows.stratum, rows.offset)

    @abstractmethod
    def _fit_coefficients(self, rows: TrainingRows) -> Fit:
        """Estimate the coefficients."""

    @abstractmethod
    def _penalty(self) -> str:
        """The penalty in words; empty if there is none."""

    @property
    @abstractmethod
    def _inference(self) -> bool:
        """Whether there are standard errors."""

    def _summary(self, level: float) -> ModelSummary:
        penalty = self._penalty()
        return summarise(
            f"Cox regression, ties by {self.ties.title()}'s method{self._in_strata}{penalty and ', '}{penalty}",
            self.terms_,
            self.coef_,
            self.standard_errors_,
            self.covariance_,
            self._design.sources,
            self._numbers,
            level=level,
            robust=self._inference and getattr(self, "robust_", False),
            penalised=bool(penalty),
            inference=self._inference,
        )

    def log_risk(self, X: Any) -> Array:
        """β·(x - centre) of each row: the log of its hazard relative to a subject at the centre."""
        check_is_fitted(self)
        return self._log_risk(self._check_covariates(X, reset=False))

    def _log_risk(self, X: Any) -> Array:
        raw, offset = self._linear_parts(X)
        return centred_product(raw, self.centre_, self.coef_) + offset

    def _distribution(self, X: Any) -> SurvivalDistribution:
        X = self._select(X)
        stratum = self._strata.find(X)
        log_risk = torch.from_numpy(self._log_risk(X))
        if len(self.baseline_times_) == 0:  # no event was ever seen
            return Tabulated([0.0], np.ones((len(log_risk), 1)), half_width=self.half_width)
        risk = torch.exp(log_risk.clamp(-600.0, 600.0))  # far from the data a risk may be past the range of numbers
        if stratum is None:
            return Tabulated.proportional(self.baseline_times_, self.baseline_, risk, half_width=self.half_width)
        times, baselines = self._on_common_times()
        survival = torch.exp(-risk[:, None] * torch.from_numpy(baselines[stratum]))
        return Tabulated(times, survival, half_width=self.half_width, widen=True)

    def _on_common_times(self) -> tuple[Array, Array]:
        """The baselines of all strata at the event times of any, (strata, times)."""
        times = np.unique(self.baseline_times_)
        ends = np.cumsum(self._sizes)[:-1]
        baselines = np.empty((len(self._sizes), len(times)))
        parts = zip(np.split(self.baseline_times_, ends), np.split(self.baseline_, ends))
        for row, (at, values) in zip(baselines, parts):
            row[:] = np.append(0.0, values)[np.searchsorted(at, times, side="right")]
        return times, baselines

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        fitted, tensors = super()._state()
        fitted |= {"n_iter_": self.n_iter_, "numbers": self._numbers}
        if self.strata_ is not None:
            fitted["baseline_sizes"] = self._sizes
        if self.covariance_ is not None:
            tensors["covariance_"] = torch.from_numpy(self.covariance_).flatten()
        arrays = ("coef_", "standard_errors_", "centre_", "baseline_times_", "baseline_")
        return fitted, tensors | {name: torch.from_numpy(getattr(self, name)) for name in arrays}

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        super()._restore(fitted, tensors)
        self.n_iter_ = as_whole(fitted["n_iter_"], "n_iter_")
        p = len(self.terms_)
        self._numbers = restored_numbers(fitted["numbers"])
        self.log_likelihood_ = self._numbers["log_likelihood"]
        known = self._inference and not vars(self).get("alpha")
        self.covariance_ = restored_covariance(tensors, "covariance_", p) if known else None
        self.coef_, self.centre_ = tensor_of(tensors, "coef_", p).numpy(), tensor_of(tensors, "centre_", p).numpy()
        self.standard_errors_ = tensor_of(tensors, "standard_errors_", p, low=0.0, may_be_nan=True).numpy()
        self.baseline_times_ = tensor_of(tensors, "baseline_times_", low=0.0).numpy()
        m = len(self.baseline_times_)
        self.baseline_ = tensor_of(tensors, "baseline_", m, low=0.0).numpy()
        sizes = as_list(fitted["baseline_sizes"], "baseline_sizes") if self.strata_ is not None else [m]
        self._sizes = [as_whole(size, "the size of a baseline") for size in sizes]
        if sum(self._sizes) != m or (self.strata_ is not None and len(self._sizes) != len(self.strata_)):
            raise ValueError("the strata do not match their baseline hazards")
        ends = np.cumsum(self._sizes)[:-1]
        for at, values in zip(np.split(self.baseline_times_, ends), np.split(self.baseline_, ends)):
            if (np.diff(at) <= 0).any() or (np.diff(values) < 0).any():
                raise ValueError("a baseline hazard decreases, or its times do not increase")


@dataclass(kw_only=True, eq=False, repr=False)
class CoxPH(CoxRegression):
    r"""Cox regression, λ(t|x) = λ₀(t) exp(β·x): coefficients with standard errors, tests and confidence limits.

    .. math::
        \ell(β) = \sum_{i: d_i = 1} w_i \Big[ β·x_i - \log \sum_{j: v_j < z_i \le z_j} w_j e^{β·x_j} \Big]
        - α \sum_j \Big( r |b_j| + \tfrac{1 - r}{2} b_j^2 \Big)

    with weights w, entry times v and Breslow's treatment of ties. Efron's treatment removes a share l/d of the d tied
    events from the risk set of the l-th (l = 0, ..., d - 1), in the likelihood and in the baseline, as in R. The
    predicted curve S(t|x) = exp(-Λ₀(t) e^{β·x}) is a step function, with a density interpolated with half-width k. Each
    stratum s has its own baseline and risk sets, λ(t|x) = λ₀ₛ(t) exp(β·x).

    The elastic-net penalty applies to the coefficients b of the standardised columns (weighted variance one, with the
    number of rows as the denominator), with r = ``l1_ratio``. R's glmnet divides the log-likelihood by the sum W of the
    weights: its ``lambda`` is α / W, and its ``alpha`` is r. W is the number of rows unless weights are whole numbers,
    because other weights are scaled to a mean of one. `CoxPHCV` chooses the penalty by cross-validation.

    With competing risks, pass ``event == k`` for the cause-specific hazard of cause k, or use `CauseSpecific`.

    Without a penalty, a column that is constant or a linear combination of earlier columns (up to 1e-7 of its standard
    deviation, among the rows that are in some risk set) is left out with a warning, as in R. If columns separate the
    events from the other rows at risk (for example, an indicator that equals 1 for all events), the likelihood has no
    maximum: a warning names these columns, and their standard errors are infinite.

    Parameters
    ----------
    formula : str, optional
        The right-hand side of a formula, such as ``"age + C(stage) + bs(bmi, df=4)"``, that defines the columns of the
        model; other columns of X are ignored. None: the columns of X. See `from_formula`.
    ties : {"efron", "breslow"}
        Treatment of tied event times. Integer weights are frequencies: a row of weight 2 counts as two tied rows. With
        other weights, tied events count with their mean weight, as in R's survival.
    strata : column name or sequence of column names, optional
        Columns (in an array: their positions) whose combinations of values define the strata. They have no
        coefficients.
    robust : {"auto", True, False}
        Whether standard errors come from the sandwich estimator (Lin and Wei 1989), which does not assume a correct
        model and allows dependence between the rows of a group (``fit(..., groups=)``). "auto": True if groups have
        several rows or weights are not whole numbers.
    missing : {"drop", "error", "indicator"}
        What to do with missing values. "drop" fits the model to complete rows and, for prediction, replaces a missing
        value by the training mean of its column (or its first level); a warning gives the number of rows. "error"
        raises a ValueError in both cases. "indicator" replaces a missing number by the mean, adds a 0/1 column
        ``name[missing]``, and treats a missing category as a level: useful for prediction, but coefficients are biased
        in general.
    penalty : {"ridge", "firth"}
        "ridge" applies the penalty ``alpha``, an elastic net if ``l1_ratio`` is not 0. "firth" adds half of
        log det(information), which reduces bias and gives finite coefficients under separation (Heinze and Schemper
        2001).
    alpha : float, default 0.0
        Strength of the penalty on the coefficients of the standardised columns; 0 for none.
    l1_ratio : float, default 0.0
        Mixture of the penalties: 0 is ridge, 1 the lasso, values between them the elastic net. Above 0, there are no
        standard errors, tests or limits, because they would ignore the selection of columns, and X may be a SciPy
        sparse matrix.
    max_iter : int, default 100
        Maximum number of Newton steps; with ``l1_ratio`` above 0, per penalty on the path that starts at zero
        coefficients.
    tol : float, default 1e-16
        Newton's method stops when the decrement gᵀH⁻¹g is below this value (not used if ``l1_ratio`` is above 0).
    half_width : int, default 2
        k of the interpolated density; see `Tabulated`.

    Attributes
    ----------
    coef_ : ndarray of shape (p,)
        In the units of the columns; 0 for a column that is left out.
    standard_errors_ : ndarray of shape (p,)
        From the observed information (with the ridge penalty, if any), or from the sandwich estimator. nan for a column
        that is left out, or if ``l1_ratio`` is above 0; infinite if the likelihood has no maximum in this coefficient.
    covariance_ : ndarray of shape (p, p) or None
        Covariance matrix of the coefficients; None if ``alpha`` is above 0.
    robust_ : bool
        Whether standard errors come from the sandwich.
    strata_ : list of tuple of str, or None
        The strata of the training rows, with values as text.
    terms_ : list of str
        Names of the columns; ``name[level]`` for categories.
    log_likelihood_ : float
        Partial log-likelihood, without the penalty.
    n_iter_ : int
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sumosurv import CoxPH, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = CoxPH().fit(data.X, data.y)
    >>> model.coef_.shape, model.predict_survival_function(data.X[:2], [0.0, 0.5]).shape
    ((1,), (2, 2))
    """

    _parameter_constraints: ClassVar[Constraints] = NEWTON_CONSTRAINTS | {
        "robust": one_of("auto") | BOOLEAN,
        "penalty": one_of("ridge", "firth"),
        "l1_ratio": number(low=0, high=1),
    }

    robust: bool | Literal["auto"] = "auto"
    penalty: Literal["ridge", "firth"] = "ridge"
    alpha: float = 0.0
    l1_ratio: float = 0.0
    max_iter: int = 100
    tol: float = 1e-16

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.penalty == "firth" and self.alpha > 0:
            raise ValueError(f"alpha is the strength of penalty='ridge'; got alpha={self.alpha!r} with 'firth'.")

    def _fit_coefficients(self, rows: TrainingRows) -> Fit:
        self.robust_ = is_robust(rows.outcome) if self.robust == "auto" else bool(self.robust)
        if not self._inference:
            z, scale = standardise(rows.matrix, self.centre_, rows.outcome.weight)
            path = fit_path_to(z, self._likelihood(rows), self.l1_ratio, self.alpha, self.max_iter)
            return path.fit_at(-1, scale)
        if self.alpha == 0:  # a difference among rows that are in no risk set does not enter the likelihood
            rows = rows[ever_at_risk(rows.outcome, rows.stratum)]
        basis = make_basis(rows.matrix, rows.outcome, self.centre_, self.terms_, self.alpha, rows.stratum)
        return fit_coefficients(
            self._likelihood(rows, basis.columns),
            basis,
            rows.outcome,
            self.terms_,
            self,
            robust=self.robust_,
            firth=self.penalty == "firth",
        )

    def _penalty(self) -> str:
        if not self._inference:
            return elastic_net_in_words(self.alpha, self.l1_ratio)
        return "Firth's penalty" if self.penalty == "firth" else f"ridge penalty {self.alpha:g}" if self.alpha else ""

    @property
    def _inference(self) -> bool:
        return self.alpha == 0 or self.l1_ratio == 0

    @property
    def _reads_sparse(self) -> bool:
        return not self._inference

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        fitted, tensors = super()._state()
        return fitted | {"robust_": self.robust_}, tensors

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        super()._restore(fitted, tensors)
        self.robust_ = as_flag(fitted["robust_"], "robust_")

    def predict_survival_band(self, X: Any, times: Any, level: float = 0.95) -> tuple[Array, Array]:
        """Pointwise confidence limits of S(t|x), each of shape (rows, times).

        Limits are symmetric in log(-log S) and allow for the uncertainty of coefficients and baseline, like R's
        ``survfit(fit, newdata, conf.type="log-log")``. With robust standard errors, the robust covariance is used for
        the coefficients only, as in R. Limits require a fit without a penalty. They are not available after a model is
        loaded from a file, because files do not contain the risk sets.
        """
        return self._limits(X, level).survival(self._check_grid(times))

    def predict_median_limits(self, X: Any, level: float = 0.95) -> tuple[Array, Array]:
        """Confidence limits of the median, each of shape (rows,): the times at which the limits of S fall to 0.5.

        A limit is infinite if the limit of S does not fall to 0.5; see `predict_survival_band`.
        """
        return self._limits(X, level).median()

    def predict_restricted_mean_limits(self, X: Any, horizon: float, level: float = 0.95) -> tuple[Array, Array]:
        """Confidence limits of the expected time lived up to the horizon, each of shape (rows,).

        Limits are symmetric, by the delta method, and truncated at 0 and the horizon; see `predict_survival_band`.
        """
        if not 0.0 < horizon < np.inf:
            raise ValueError(f"horizon must be a positive time; got {horizon!r}.")
        return self._limits(X, level).restricted_mean(horizon)

    def _limits(self, X: Any, level: float) -> CoxLimits:
        check_is_fitted(self)
        check_level(level)
        if self.covariance_ is None:
            raise ValueError(
                "A penalty biases the coefficients, so confidence limits are not available; fit with alpha=0."
            )
        if not hasattr(self, "_moments"):
            raise ValueError(
                "Confidence limits require the risk sets of the fit, which model files do not contain. Use "
                "the fitted model, or fit it again."
            )
        X = self._check_covariates(X, reset=False)
        raw, offset = self._linear_parts(X)
        stratum = self._strata.find(X)
        return CoxLimits(self._moments, self.coef_, self.covariance_, raw - self.centre_, offset, stratum, level)

    def test_proportionality(
        self, X: Any, y: Any, *, transform: TimeTransform = "km", sample_weight: Any = None
    ) -> pd.DataFrame:
        r"""Score test of whether hazard ratios change with time, like R's ``cox.zph``.

        The model is extended by the products of the columns with a function g of time. The statistic for a term is the
        score test of the hypothesis that the coefficients of its products are zero,

        .. math:: u^\top \big(I^{-1}\big)_{θθ} \, u, \qquad u = \sum_i g(t_i) (x_i - \bar x_i),

        with the mean of x in the risk set of event i and the information I of all coefficients of the columns and of
        the coefficients θ of the products. The statistic is asymptotically chi-squared if hazard ratios are constant.
        All levels of a category are tested as one term.

        Parameters
        ----------
        X, y
            The training rows, which the model does not store.
        transform : {"km", "rank", "identity", "log"}
            g(t): one minus the Kaplan-Meier estimate just before t, the rank of t among all times, t, or log t.
        sample_weight : array of shape (rows,), optional
            The weights of the fit. Kaplan-Meier and ranks use integer weights as frequencies and ignore other weights,
            as R does.

        Returns
        -------
        DataFrame
            One row per column of X, and ``"global"`` for all: the statistic, its degrees of freedom and the p-value.
            Nan for a column that was left out of the fit, or whose standard error is infinite.

        References
        ----------
        Grambsch, Therneau (1994), Biometrika 81; Therneau, Grambsch (2000), Modeling Survival Data, section 6.2.

        Examples
        --------
        >>> from sumosurv import CoxPH, datasets
        >>> data = datasets.simulate("weibull", 300, random_state=0)
        >>> model = CoxPH().fit(data.X, data.y)
        >>> model.test_proportionality(data.X, data.y).columns.tolist()
        ['statistic', 'df', 'p']
        """
        check_is_fitted(self)
        if not self._inference:
            raise ValueError("The test is not available for a lasso or elastic-net penalty; fit with l1_ratio=0.")
        if transform not in get_args(TimeTransform):
            raise ValueError(f"transform must be one of {', '.join(get_args(TimeTransform))}; got {transform!r}.")
        X = self._check_covariates(X, reset=False)
        outcome = check_outcome(y, n_rows=len(X), sample_weight=sample_weight)
        check_learns_from(type(self).__name__, self._supported_outcomes, outcome)
        counted = np.flatnonzero(outcome.weights > 0)
        counted = counted[self._complete_rows(take_rows(X, counted))]
        X, outcome = take_rows(X, counted), outcome[counted]
        g = transformed_times(outcome, transform)
        if not outcome.event.any() or np.ptp(g[outcome.event]) == 0:
            raise ValueError("All events have the same time, so proportional hazards cannot be tested.")
        kept = np.flatnonzero(~np.isnan(self.standard_errors_))
        raw, offset = self._linear_parts(X)
        x = (raw - self.centre_)[:, kept]
        likelihood = PartialLikelihood(x, outcome, self.ties, self._strata.find(X), offset)
        centred = g - np.average(g[outcome.event], weights=outcome.weights[outcome.event])
        score, information = likelihood.time_interaction(self.coef_[kept], centred)
        finite = np.flatnonzero(np.isfinite(self.standard_errors_[kept]))
        source = np.array(self._design.sources, dtype=object)[kept]
        tested = {name: finite[source[finite] == name] for name in dict.fromkeys(self._design.sources)}
        return score_tests(score, information, finite, tested | {"global": finite})
