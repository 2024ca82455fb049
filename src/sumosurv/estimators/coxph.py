"""Cox's proportional hazards model, by Newton's method on the partial likelihood."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.special import erfc, ndtri
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from sumosurv.distributions import SurvivalDistribution, Tabulated
from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.estimators.design import Basis, Design
from sumosurv.estimators.given import check_learns_from
from sumosurv.estimators.partial_likelihood import PartialLikelihood, Ties, ever_at_risk, is_whole
from sumosurv.estimators.proportionality import TimeTransform, check_transform, proportionality_table
from sumosurv.estimators.strata import Strata
from sumosurv.nonparametric import risk_table
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.preprocessing import Preprocessor
from sumosurv.stored import as_flag, as_list, as_number, as_whole, tensor_of

__all__ = ["CoxPH"]

Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


@dataclass(kw_only=True, eq=False, repr=False)
class CoxPH(SurvivalEstimator):
    r"""Cox-Linear: λ(t|x) = λ₀(t) exp(β·x), the partial likelihood maximised by Newton's method.

    .. math::
        \ell(β) = \sum_{i: d_i = 1} w_i \Big[ β·x_i - \log \sum_{j: v_j < z_i \le z_j} w_j e^{β·x_j} \Big]
        - \tfrac{1}{2} α |β|^2

    with weights w, entry times v and Breslow's treatment of ties; Efron's takes a share l/d of the d tied events out
    of the risk set of the l-th of them. The baseline is Breslow's, S(t|x) = exp(-Λ₀(t) e^{β·x}): a step curve, with a
    density interpolated with half-width k. Strata have baselines of their own, λ(t|x) = λ₀ₛ(t) exp(β·x), and risk sets
    of their own.

    Of causes that compete it learns one at a time, the others taken as censoring: pass ``event == k``.

    Without a penalty, a column that is constant or a linear combination of earlier ones is left out with a warning
    that names it and them, as R does: the fit is that without the column. Judged among the rows at risk at the
    first event, where the partial likelihood looks; a combination is one up to 1e-7 of the column's standard
    deviation. With ``alpha > 0`` every column has a coefficient.

    Parameters
    ----------
    ties : {"efron", "breslow"}
        Whole weights count rows: a row of weight 2 is two rows, which are tied. Where weights are not whole, Efron's
        is that of R's survival, where tied events count with their mean weight.
    strata : column name or sequence of them, optional
        Columns (of an array: their positions) whose values, taken together, tell the strata. They have no
        coefficients.
    robust : {"auto", True, False}
        Whether standard errors are those of the sandwich (Lin and Wei 1989), which do not assume that the model holds
        and take the rows of a group (``fit(..., groups=)``) for dependent. "auto": where groups have several rows, or
        weights are not whole numbers.
    alpha : float
        Ridge penalty on the coefficients of the standardised columns; 0 for none.
    max_iter : int
        Newton steps.
    tol : float
        Done when the Newton decrement gᵀH⁻¹g is below it.
    half_width : int
        k of the interpolated density; see `Tabulated`.

    Attributes
    ----------
    coef_ : ndarray of shape (p,)
        In the units of the columns; 0 for a column that is left out.
    standard_errors_ : ndarray of shape (p,)
        From the observed information (with the penalty, if any), or from the sandwich; nan for a column that is left
        out.
    robust_ : bool
        Whether they are those of the sandwich.
    strata_ : list of tuple of str, or None
        The strata of the training rows, values in words.
    terms_ : list of str
        The columns: names, and ``name[level]`` of categories.
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

    _learns_from: ClassVar[frozenset[str]] = frozenset({"entry", "weights"})

    ties: Ties = "efron"
    strata: Hashable | Sequence[Hashable] | None = None
    robust: bool | Literal["auto"] = "auto"
    alpha: float = 0.0
    max_iter: int = 100
    tol: float = 1e-16
    half_width: int = 2

    def _check_settings(self) -> None:
        """Raise a ValueError that names an invalid setting."""
        if self.ties not in ("efron", "breslow"):
            raise ValueError(f"ties is 'efron' or 'breslow'; got {self.ties!r}.")
        if self.robust not in ("auto", True, False):
            raise ValueError(f"robust is 'auto', True or False; got {self.robust!r}.")
        if not self.alpha >= 0:
            raise ValueError(f"alpha must not be negative; got {self.alpha!r}.")
        if not self.tol > 0:
            raise ValueError(f"tol must be positive; got {self.tol!r}.")
        if not isinstance(self.max_iter, (int, np.integer)) or self.max_iter < 1:
            raise ValueError(f"max_iter is a whole number of at least 1; got {self.max_iter!r}.")
        if not isinstance(self.half_width, (int, np.integer)) or self.half_width < 1:
            raise ValueError(f"half_width is a whole number of at least 1; got {self.half_width!r}.")

    def _fit(self, X: Any, y: Any) -> None:
        X, outcome = self._start(X, y)
        self._strata = Strata.of(X, self.strata)
        stratum = self._strata.learn(X)
        self.strata_ = self._strata.labels
        X = self._strata.without(X)
        self.preprocessor_ = Preprocessor().fit(X, outcome.weight)
        design = Design(self.preprocessor_)
        self.terms_ = design.names
        raw = design.matrix(X)
        self.centre_ = raw.mean(axis=0) if outcome.weight is None else np.average(raw, axis=0, weights=outcome.weight)
        self.robust_ = self._is_robust(outcome) if self.robust == "auto" else bool(self.robust)
        self.coef_, self.standard_errors_ = self._coefficients(raw, outcome, stratum)
        self._fit_baseline((raw - self.centre_) @ self.coef_, outcome, stratum)

    def _fit_baseline(self, risk: Array, outcome: Outcome, stratum: Whole | None) -> None:
        """Breslow's baseline, relative to a subject at the centre; those of strata one after the other."""
        times, values = [], []
        for rows in self._strata.rows(stratum):
            shift = float(risk[rows].max())
            at, events, at_risk = risk_table(outcome[rows], weights=np.exp(risk[rows] - shift))
            jumps = events > 0
            times.append(at[jumps])
            values.append(np.cumsum(events[jumps] / at_risk[jumps]) * np.exp(-shift))
        self.baseline_times_, self.baseline_ = np.concatenate(times), np.concatenate(values)
        self._sizes = [len(part) for part in times]

    @staticmethod
    def _is_robust(outcome: Outcome) -> bool:
        """Whether rows are dependent, or weights no counts."""
        several = outcome.group is not None and len(np.unique(outcome.group)) < len(outcome)
        return several or (outcome.weight is not None and not is_whole(outcome.weight))

    def _coefficients(self, raw: Array, outcome: Outcome, stratum: Whole | None) -> tuple[Array, Array]:
        """Coefficients and standard errors, in the units of the columns."""
        if self.alpha > 0:
            squares = (raw - self.centre_) ** 2
            scale = raw.std(axis=0)
            if outcome.weight is not None:
                scale = np.sqrt(np.average(squares, axis=0, weights=outcome.weight))
            scale = np.where(scale > 1e-12 * np.maximum(np.abs(self.centre_), 1.0), scale, 1.0)
            beta, covariance = self._newton(
                PartialLikelihood((raw - self.centre_) / scale, outcome, self.ties, stratum), outcome
            )
            return beta / scale, np.sqrt(np.maximum(np.diag(covariance), 0.0)) / scale
        # rows in no risk set: what differs among them alone is not told
        seen = ever_at_risk(outcome, stratum)
        own = None if stratum is None else stratum[seen]
        basis = Basis(raw[seen] if own is None else _within_strata(raw[seen], own))
        if basis.dropped and outcome.event.any():
            self._tell_dropped(basis)
        gamma, covariance = self._newton(PartialLikelihood(basis.columns, outcome[seen], self.ties, own), outcome[seen])
        coefficients, errors = np.zeros(raw.shape[1]), np.full(raw.shape[1], np.nan)
        coefficients[basis.kept] = basis.transform @ gamma
        variances = np.einsum("ij,jk,ik->i", basis.transform, covariance, basis.transform)
        errors[basis.kept] = np.sqrt(np.maximum(variances, 0.0))
        return coefficients, errors

    def _tell_dropped(self, basis: Basis) -> None:
        reasons = []
        for column, of in basis.dropped.items():
            names = ", ".join(repr(self.terms_[i]) for i in of[:4])
            more = f" and {len(of) - 4} more" if len(of) > 4 else ""
            kind = "constant" if not of else "a linear combination of" if len(of) > 1 else "a linear function of"
            reasons.append(f"{self.terms_[column]!r} ({kind}{' ' if of else ''}{names}{more})")
        warnings.warn(
            f"Columns left out, since among the rows at risk they say nothing of their own: {'; '.join(reasons)}. "
            "Their coefficients are 0, with standard errors of nan; alpha > 0 keeps all columns.",
            UserWarning,
            stacklevel=6,
        )

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """Coefficients, hazard ratios with confidence limits, standard errors, z and two-sided p-values, by term.

        All nan for a column that is left out.

        Parameters
        ----------
        level : float
            The probability with which ``hazard_ratio_lower`` and ``hazard_ratio_upper`` hold the true ratio.
        """
        check_is_fitted(self)
        if not 0.0 < level < 1.0:
            raise ValueError(f"level is a probability between 0 and 1, such as 0.95; got {level!r}.")
        coef = np.where(np.isnan(self.standard_errors_), np.nan, self.coef_)
        half = float(ndtri(0.5 + 0.5 * level)) * self.standard_errors_
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            z = coef / self.standard_errors_
            ratios = np.exp(np.stack([coef, coef - half, coef + half]))
        return pd.DataFrame(
            {
                "coef": coef,
                "hazard_ratio": ratios[0],
                "hazard_ratio_lower": ratios[1],
                "hazard_ratio_upper": ratios[2],
                "standard_error": self.standard_errors_,
                "z": z,
                "p": erfc(np.abs(z) / np.sqrt(2.0)),
            },
            index=pd.Index(self.terms_, name="term"),
        )

    def test_proportionality(
        self, X: Any, y: Any, *, transform: TimeTransform = "km", sample_weight: Any = None
    ) -> pd.DataFrame:
        r"""Test whether hazard ratios change with time (Grambsch and Therneau 1994).

        With the Schoenfeld residuals r of the d events, x minus its mean in the risk set, the inverse V of the
        information, and :math:`u = \sum_i (g(t_i) - \bar g) r_i`, the statistics are

        .. math:: \frac{d \, (V u)_k^2}{V_{kk} \sum_i (g(t_i) - \bar g)^2}, \qquad
            \frac{d \, u^\top V u}{\sum_i (g(t_i) - \bar g)^2}

        of each column and of all together, chi-squared with 1 and p degrees of freedom where ratios are constant.

        Parameters
        ----------
        X, y
            The training rows; the model itself keeps none.
        transform : {"km", "rank", "identity", "log"}
            g(t): one minus the Kaplan-Meier estimate, the rank among event times, t, or log t.
        sample_weight : array of shape (rows,), optional
            The weights of the fit.

        Returns
        -------
        DataFrame
            By term, and ``"global"`` for all: the statistic, its degrees of freedom and the p-value. All nan for a
            column that is left out of the fit.

        Examples
        --------
        >>> from sumosurv import CoxPH, datasets
        >>> data = datasets.simulate("weibull", 300, random_state=0)
        >>> model = CoxPH().fit(data.X, data.y)
        >>> model.test_proportionality(data.X, data.y).columns.tolist()
        ['statistic', 'df', 'p']
        """
        check_is_fitted(self)
        check_transform(transform)
        X = self._check_covariates(X, reset=False)
        outcome = check_outcome(y, n_rows=len(X), sample_weight=sample_weight)
        check_learns_from(type(self).__name__, self._learns_from, outcome)
        stratum = self._strata.find(X)
        raw = Design(self.preprocessor_).matrix(self._strata.without(X)) - self.centre_
        kept = ~np.isnan(self.standard_errors_)
        counted = outcome.weights > 0
        raw, outcome = raw[np.ix_(counted, kept)], outcome[counted]
        likelihood = PartialLikelihood(raw, outcome, self.ties, None if stratum is None else stratum[counted])
        return proportionality_table(likelihood, self.coef_[kept], outcome, transform, self.terms_, kept)

    def log_risk(self, X: Any) -> Array:
        """β·(x - centre) of each row: the log of its hazard relative to a subject at the centre."""
        check_is_fitted(self)
        return self._log_risk(self._check_covariates(X, reset=False))

    def _log_risk(self, X: Any) -> Array:
        result: Array = (Design(self.preprocessor_).matrix(self._strata.without(X)) - self.centre_) @ self.coef_
        return result

    def _newton(self, likelihood: PartialLikelihood, outcome: Outcome) -> tuple[Array, Array]:
        """The maximum and the covariance of the coefficients there: inverse information, or sandwich."""
        p = likelihood.x.shape[1]
        beta = np.zeros(p)
        value, gradient, information = self._penalised(likelihood, beta)
        start, converged, decrement = value, False, np.inf
        for iteration in range(self.max_iter):
            step = np.linalg.pinv(information, rcond=1e-12, hermitian=True) @ gradient
            decrement = float(gradient @ step)
            self.n_iter_ = iteration
            converged = decrement <= self.tol * max(1.0, abs(value)) or p == 0
            found = None if converged else self._uphill(likelihood, beta, step, value)
            if found is None:
                break
            beta, (value, gradient, information) = found
        if not converged or (start < 0 and value > 1e-8 * start):  # at zero every event is told for certain
            warnings.warn(
                f"Newton's method has not converged in {self.n_iter_ + 1} steps (decrement {decrement:.2g}). "
                "Some column may tell all events from the rest, so that its coefficient has no limit; "
                "alpha > 0 gives it one.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.log_likelihood_ = likelihood(beta)[0]
        inverse = np.asarray(np.linalg.pinv(information, rcond=1e-12, hermitian=True), dtype=np.float64)
        if not self.robust_:
            return beta, inverse
        weight = outcome.weights
        if outcome.group is None and is_whole(weight):  # as many rows, each of its own
            weight = np.sqrt(weight)
        moved = weight[:, None] * likelihood.score_residuals(beta) @ inverse  # what β owes to each row
        if outcome.group is not None:
            subjects, subject = np.unique(outcome.group, return_inverse=True)
            by_row, moved = moved, np.zeros((len(subjects), p))
            np.add.at(moved, subject, by_row)
        return beta, moved.T @ moved

    def _uphill(
        self, likelihood: PartialLikelihood, beta: Array, step: Array, value: float
    ) -> tuple[Array, tuple[float, Array, Array]] | None:
        """Coefficients a step further, the step halved until the likelihood does not fall; None where that fails."""
        for size in 0.5 ** np.arange(28.0):
            new = self._penalised(likelihood, beta + size * step)
            finite = np.isfinite(new[0]) and np.isfinite(new[1]).all() and np.isfinite(new[2]).all()
            if finite and new[0] >= value - 1e-12 * abs(value):
                return beta + size * step, new
        return None

    def _penalised(self, likelihood: PartialLikelihood, beta: Array) -> tuple[float, Array, Array]:
        value, gradient, information = likelihood(beta)
        penalty = self.alpha * np.eye(len(beta))
        return value - 0.5 * float(beta @ penalty @ beta), gradient - penalty @ beta, information + penalty

    def _distribution(self, X: Any) -> SurvivalDistribution:
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
        baselines = np.zeros((len(self._sizes), len(times)))
        parts = zip(np.split(self.baseline_times_, ends), np.split(self.baseline_, ends))
        for row, (at, values) in zip(baselines, parts):
            row[:] = np.append(0.0, values)[np.searchsorted(at, times, side="right")]
        return times, baselines

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """What a model file keeps of the fit."""
        fitted, tensors = super()._state()
        fitted |= {
            "preprocessor_": self.preprocessor_.state(),
            "log_likelihood_": self.log_likelihood_,
            "n_iter_": self.n_iter_,
            "robust_": self.robust_,
        }
        if self.strata_ is not None:
            fitted |= {"strata_": [list(label) for label in self.strata_], "baseline_sizes": self._sizes}
        arrays = ("coef_", "standard_errors_", "centre_", "baseline_times_", "baseline_")
        return fitted, tensors | {name: torch.from_numpy(getattr(self, name)) for name in arrays}

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of `state`."""
        super()._restore(fitted, tensors)
        self.preprocessor_ = Preprocessor.from_state(fitted["preprocessor_"])
        self._strata = Strata.restored(self.strata, fitted.get("strata_"), getattr(self, "feature_names_in_", None))
        self.strata_ = self._strata.labels
        if len(self.preprocessor_.columns) + len(self._strata.columns) != self.n_features_in_:
            raise ValueError(f"{len(self.preprocessor_.columns)} columns are described beside those of the strata")
        self.terms_ = Design(self.preprocessor_).names
        self.log_likelihood_ = as_number(fitted["log_likelihood_"], "log_likelihood_")
        self.n_iter_ = as_whole(fitted["n_iter_"], "n_iter_")
        p = len(self.terms_)
        self.coef_, self.centre_ = tensor_of(tensors, "coef_", p).numpy(), tensor_of(tensors, "centre_", p).numpy()
        self.standard_errors_ = tensor_of(tensors, "standard_errors_", p, low=0.0, may_be_nan=True).numpy()
        self.robust_ = as_flag(fitted["robust_"], "robust_")
        self.baseline_times_ = tensor_of(tensors, "baseline_times_", low=0.0).numpy()
        m = len(self.baseline_times_)
        self.baseline_ = tensor_of(tensors, "baseline_", m, low=0.0).numpy()
        sizes = as_list(fitted["baseline_sizes"], "baseline_sizes") if self.strata_ is not None else [m]
        self._sizes = [as_whole(size, "the size of a baseline") for size in sizes]
        if sum(self._sizes) != m or (self.strata_ is not None and len(self._sizes) != len(self.strata_)):
            raise ValueError("the strata and their baselines do not belong together")
        ends = np.cumsum(self._sizes)[:-1]
        for at, values in zip(np.split(self.baseline_times_, ends), np.split(self.baseline_, ends)):
            if (np.diff(at) <= 0).any() or (np.diff(values) < 0).any():
                raise ValueError("the times of a baseline do not increase, or it falls")


def _within_strata(matrix: Array, stratum: Whole) -> Array:
    """Columns less their means in each stratum; zero where a column is constant in all."""
    _, place = np.unique(stratum, return_inverse=True)
    sums = np.zeros((int(place.max(initial=-1)) + 1, matrix.shape[1]))
    np.add.at(sums, place, matrix)
    centred = matrix - (sums / np.bincount(place)[:, None])[place]
    constant = np.abs(centred).max(axis=0, initial=0.0) <= 1e-12 * np.abs(matrix).max(axis=0, initial=0.0)
    return np.where(constant, 0.0, centred)
