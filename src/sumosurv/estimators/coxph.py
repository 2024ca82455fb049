"""Cox's proportional hazards model, by Newton's method on the partial likelihood."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.special import erfc
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from sumosurv.distributions import SurvivalDistribution, Tabulated
from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.estimators.design import Basis, Design
from sumosurv.nonparametric import risk_table
from sumosurv.outcome import Outcome
from sumosurv.preprocessing import Preprocessor
from sumosurv.stored import as_number, as_whole, tensor_of

__all__ = ["CoxPH"]

Ties = Literal["efron", "breslow"]
Array = npt.NDArray[np.float64]


@dataclass(kw_only=True, eq=False, repr=False)
class CoxPH(SurvivalEstimator):
    r"""Cox-Linear: λ(t|x) = λ₀(t) exp(β·x), the partial likelihood maximised by Newton's method.

    .. math::
        \ell(β) = \sum_{i: d_i = 1} \Big[ β·x_i - \log \sum_{j: z_j \ge z_i} e^{β·x_j} \Big] - \tfrac{1}{2} α |β|^2

    with Breslow's treatment of ties; Efron's takes a share l/d of the d tied events out of the risk set of
    the l-th of them. The baseline is Breslow's, S(t|x) = exp(-Λ₀(t) e^{β·x}): a step curve, with a density
    interpolated with half-width k.

    Without a penalty, a column that is constant or a linear combination of earlier ones is left out with a warning
    that names it and them, as R does: the fit is that without the column. Judged among the rows at risk at the
    first event, where the partial likelihood looks; a combination is one up to 1e-7 of the column's standard
    deviation. With ``alpha > 0`` every column has a coefficient.

    Parameters
    ----------
    ties : {"efron", "breslow"}
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
        From the observed information (with the penalty, if any); nan for a column that is left out.
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

    ties: Ties = "efron"
    alpha: float = 0.0
    max_iter: int = 100
    tol: float = 1e-16
    half_width: int = 2

    def check_settings(self) -> None:
        """Raise a ValueError that names a setting which cannot be."""
        if self.ties not in ("efron", "breslow"):
            raise ValueError(f"ties is 'efron' or 'breslow'; got {self.ties!r}.")
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
        self.preprocessor_ = Preprocessor().fit(X)
        design = Design(self.preprocessor_)
        self.terms_ = design.names
        raw = design.matrix(X)
        self.centre_ = raw.mean(axis=0)
        self.coef_, self.standard_errors_ = self._coefficients(raw, outcome)
        risk = (raw - self.centre_) @ self.coef_
        shift = float(risk.max())
        times, events, at_risk = risk_table(outcome, weights=np.exp(risk - shift))
        jumps = events > 0
        # relative to a subject at the centre
        self.baseline_times_ = times[jumps]
        self.baseline_ = np.cumsum(events[jumps] / at_risk[jumps]) * np.exp(-shift)

    def _coefficients(self, raw: Array, outcome: Outcome) -> tuple[Array, Array]:
        """Coefficients and standard errors, in the units of the columns."""
        if self.alpha > 0:
            scale = raw.std(axis=0)
            scale = np.where(scale > 1e-12 * np.maximum(np.abs(self.centre_), 1.0), scale, 1.0)
            beta, inverse = self._newton(PartialLikelihood((raw - self.centre_) / scale, outcome, self.ties))
            return beta / scale, np.sqrt(np.maximum(np.diag(inverse), 0.0)) / scale
        # rows censored before the first event are in no risk set: what differs among them alone is not told
        first = outcome.time[outcome.event].min(initial=np.inf)
        seen = outcome.time >= first
        basis = Basis(raw[seen])
        if basis.dropped and outcome.event.any():
            self._tell_dropped(basis)
        gamma, inverse = self._newton(PartialLikelihood(basis.columns, outcome[seen], self.ties))
        coefficients, errors = np.zeros(raw.shape[1]), np.full(raw.shape[1], np.nan)
        coefficients[basis.kept] = basis.transform @ gamma
        variances = np.einsum("ij,jk,ik->i", basis.transform, inverse, basis.transform)
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

    def summary(self) -> pd.DataFrame:
        """Coefficients, hazard ratios, standard errors, z and two-sided p-values, one row per term.

        All nan for a column that is left out.
        """
        check_is_fitted(self)
        coef = np.where(np.isnan(self.standard_errors_), np.nan, self.coef_)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = coef / self.standard_errors_
        return pd.DataFrame(
            {
                "coef": coef,
                "hazard_ratio": np.exp(coef),
                "standard_error": self.standard_errors_,
                "z": z,
                "p": erfc(np.abs(z) / np.sqrt(2.0)),
            },
            index=pd.Index(self.terms_, name="term"),
        )

    def log_risk(self, X: Any) -> Array:
        """β·(x - centre) of each row: the log of its hazard relative to a subject at the centre."""
        check_is_fitted(self)
        return self._log_risk(self._check_covariates(X, reset=False))

    def _log_risk(self, X: Any) -> Array:
        result: Array = (Design(self.preprocessor_).matrix(X) - self.centre_) @ self.coef_
        return result

    def _newton(self, likelihood: PartialLikelihood) -> tuple[Array, Array]:
        """The maximum and the inverse of the information there."""
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
        return beta, np.asarray(np.linalg.pinv(information, rcond=1e-12, hermitian=True), dtype=np.float64)

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
        log_risk = torch.from_numpy(self._log_risk(X))
        if len(self.baseline_times_) == 0:  # no event was ever seen
            return Tabulated([0.0], np.ones((len(log_risk), 1)), half_width=self.half_width)
        risk = torch.exp(log_risk.clamp(-600.0, 600.0))  # far from the data a risk may be past the range of numbers
        survival = torch.exp(-risk[:, None] * torch.from_numpy(self.baseline_))
        return Tabulated(self.baseline_times_, survival, half_width=self.half_width)

    def state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """What a model file keeps of the fit."""
        fitted, tensors = super().state()
        fitted |= {
            "preprocessor_": self.preprocessor_.state(),
            "log_likelihood_": self.log_likelihood_,
            "n_iter_": self.n_iter_,
        }
        arrays = ("coef_", "standard_errors_", "centre_", "baseline_times_", "baseline_")
        return fitted, tensors | {name: torch.from_numpy(getattr(self, name)) for name in arrays}

    def restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of `state`."""
        super().restore(fitted, tensors)
        self.preprocessor_ = Preprocessor.from_state(fitted["preprocessor_"])
        self._check_columns(self.preprocessor_)
        self.terms_ = Design(self.preprocessor_).names
        self.log_likelihood_ = as_number(fitted["log_likelihood_"], "log_likelihood_")
        self.n_iter_ = as_whole(fitted["n_iter_"], "n_iter_")
        p = len(self.terms_)
        self.coef_, self.centre_ = tensor_of(tensors, "coef_", p).numpy(), tensor_of(tensors, "centre_", p).numpy()
        self.standard_errors_ = tensor_of(tensors, "standard_errors_", p, low=0.0, may_be_nan=True).numpy()
        self.baseline_times_ = tensor_of(tensors, "baseline_times_", low=0.0, increasing=True).numpy()
        m = len(self.baseline_times_)
        self.baseline_ = tensor_of(tensors, "baseline_", m, low=0.0, never_falling=True).numpy()


class PartialLikelihood:
    """The partial log-likelihood of (x, y) with its gradient and information, rows sorted once."""

    def __init__(self, x: Array, y: Outcome, ties: Ties) -> None:
        order = np.argsort(-y.time, kind="stable")  # latest first: risk sets are leading parts
        self.x, time, event = x[order], y.time[order], y.event[order]
        distinct, group = np.unique(-time, return_inverse=True)
        self.event, self.group, n_groups = event, group, len(distinct)
        self.last = np.searchsorted(group, np.arange(n_groups), side="right") - 1  # end of each risk set
        self.rows = np.flatnonzero(event)
        self.at = group[self.rows]
        tied = np.bincount(self.at, minlength=n_groups)
        first = np.cumsum(tied) - tied
        place = np.arange(len(self.rows)) - first[self.at]
        # how much of its tied events the risk set of each event does without
        self.share = place / tied[self.at] if ties == "efron" else np.zeros(len(self.rows))

    def __call__(self, beta: Array) -> tuple[float, Array, Array]:
        """Value, gradient and information (minus the Hessian); not finite where risks are too far apart."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return self._terms(beta)

    def _terms(self, beta: Array) -> tuple[float, Array, Array]:
        log_risk = self.x @ beta
        shift = log_risk.max() if len(log_risk) else 0.0
        w = np.exp(log_risk - shift)
        wx = w[:, None] * self.x
        n_groups = len(self.last)
        s0 = np.cumsum(w)[self.last][self.at]
        s1 = np.cumsum(wx, axis=0)[self.last][self.at]
        t0 = np.bincount(self.at, weights=w[self.rows], minlength=n_groups)
        t1 = np.zeros((n_groups, self.x.shape[1]))
        np.add.at(t1, self.at, wx[self.rows])
        s0 = s0 - self.share * t0[self.at]
        mean = (s1 - self.share[:, None] * t1[self.at]) / s0[:, None]
        value = float((log_risk[self.rows] - shift - np.log(s0)).sum())
        gradient = (self.x[self.rows] - mean).sum(axis=0)
        # Σᵢ of the second moments in the risk set of i, gathered by row: row j is in the sets of events up to its time
        inverse = np.bincount(self.at, weights=1.0 / s0, minlength=n_groups)
        coefficient = np.cumsum(inverse[::-1])[::-1][self.group]
        taken = np.bincount(self.at, weights=self.share / s0, minlength=n_groups)[self.group]
        coefficient = coefficient - np.where(self.event, taken, 0.0)
        information = (wx * coefficient[:, None]).T @ self.x - mean.T @ mean
        return value, gradient, information
