"""Coefficients of models that are linear in x: complete cases, Newton's method, standard errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from sumosurv.estimators.design import Basis, RidgeBasis
from sumosurv.fitting.settings import Constraints, integer, number
from sumosurv.nonparametric import is_whole, sum_by_subject
from sumosurv.outcome import Outcome
from sumosurv.sources import take_rows
from sumosurv.warn import warn_user

__all__ = [
    "LINEAR_CONSTRAINTS",
    "Fit",
    "Missing",
    "check_complete",
    "complete_cases",
    "fit_coefficients",
    "listed",
    "newton_step",
    "row_counts",
    "sandwich",
    "warn_of_dropped",
]

Array = npt.NDArray[np.float64]
Missing = Literal["drop", "error", "indicator"]
Derivatives = tuple[float, Array, Array]  # value, gradient and information

_NAMED = 5  # columns that a message names
_FLAT = 1e-10  # information in a direction relative to that at β = 0, below which the likelihood has no maximum there

_FAR = 300.0  # difference of log hazards that no finite estimate has


class Likelihood(Protocol):
    """A log-likelihood of coefficients, for columns ``x``."""

    x: Array

    def __call__(self, beta: Array) -> Derivatives:
        """Value, gradient and information (minus the Hessian)."""

    def score_residuals(self, beta: Array) -> Array:
        """Contribution of each row to the gradient per unit of its weight, (n, p)."""


@dataclass(frozen=True)
class Fit:
    """Coefficients of p columns; 0 with a standard error of nan for a column that is left out.

    ``covariance`` (p, p) is None with a ridge penalty; ``numbers`` are those that `summarise` takes.
    """

    coef: Array
    standard_errors: Array
    covariance: Array | None
    n_iter: int
    numbers: dict[str, float]


class LinearSettings(Protocol):
    """The settings of a regression that `LINEAR_CONSTRAINTS` are of."""

    alpha: float
    max_iter: int
    tol: float
    half_width: int
    missing: Missing


LINEAR_CONSTRAINTS: Constraints = {
    "alpha": number(low=0),
    "max_iter": integer(1),
    "tol": number(above=0),
}


# ------------------------------------------------------------------ missing values


def complete_cases(X: Any, outcome: Outcome, missing: Missing) -> tuple[Any, Outcome]:
    """The rows to fit: those without missing values if ``missing="drop"``, with a warning that counts the others."""
    incomplete, columns = _incomplete(X, missing)
    if not incomplete.any():
        return X, outcome
    told = f"{int(incomplete.sum())} of {len(outcome)} rows have missing values (in {listed(columns)})"
    if missing == "error" or incomplete.all():
        raise ValueError(f"{told}. Impute them, or fit with missing='indicator'.")
    warn_user(
        f"{told}; the model is fitted to the {int((~incomplete).sum())} complete rows. Impute the values, or choose "
        "missing='error' or missing='indicator'.",
        UserWarning,
    )
    rows = np.flatnonzero(~incomplete)
    return take_rows(X, rows), outcome[rows]


def check_complete(X: Any, missing: Missing) -> None:
    """Rows to predict with missing values: a ValueError if ``missing="error"``, a warning if it is "drop"."""
    incomplete, columns = _incomplete(X, missing)
    if not incomplete.any():
        return
    told = f"{int(incomplete.sum())} of {len(incomplete)} rows have missing values (in {listed(columns)})"
    if missing == "error":
        raise ValueError(f"{told}. Impute them, or fit with missing='indicator'.")
    warn_user(
        f"{told}; they are predicted with the training mean of the column, or its first level. Impute the values, or "
        "fit with missing='indicator'.",
        UserWarning,
    )


def _incomplete(X: Any, missing: Missing) -> tuple[npt.NDArray[np.bool_], list[Any]]:
    """Which rows have missing values, and the columns that have them; none if indicators take care of them."""
    if missing == "indicator" or np.ndim(X) != 2 or sparse.issparse(X):
        return np.zeros(X.shape[0], dtype=np.bool_), []
    absent = np.asarray(pd.isna(X))
    names = list(X.columns) if hasattr(X, "columns") else list(range(absent.shape[1]))
    columns = [name for name, values in zip(names, absent.T) if values.any()]
    return np.asarray(absent.any(axis=1)), columns


def row_counts(outcome: Outcome, n_rows: int) -> dict[str, float]:
    """Rows and events that were fitted, each with its weight if weights are counts, and rows that were dropped."""
    count = outcome.weights if is_whole(outcome.weights) else np.ones(len(outcome))
    return {
        "rows": float(count.sum()),
        "rows_dropped": float(n_rows - len(outcome)),
        "events": float(count[outcome.had_event].sum()),
    }


# ------------------------------------------------------------------ coefficients


def fit_coefficients(
    build: Callable[[Array], Likelihood],
    basis: Basis | RidgeBasis,
    outcome: Outcome,
    names: Sequence[str],
    settings: LinearSettings,
    *,
    robust: bool,
    firth: bool = False,
    of: str = "",
) -> Fit:
    """Maximise a likelihood by Newton's method.

    Parameters
    ----------
    build : callable
        Returns the likelihood for the columns of the basis.
    basis : Basis or RidgeBasis
        The space of the coefficients.
    outcome : Outcome
        Of the rows of the basis.
    names : sequence of str
        One per column, for warnings.
    settings : CoxPH or FineGray
    robust : bool
        Whether the covariance is the sandwich.
    firth : bool
        Whether half of log det(information) is added to the likelihood.
    of : str
        What is fitted, for warnings: " for cause 1".
    """
    likelihood = build(basis.columns)
    beta, start, end, n_iter, decrement = _maximise(likelihood, settings, firth)
    values, vectors = np.linalg.eigh(end[2])
    reference = float(np.diag(start[2]).mean()) if len(beta) else 0.0
    flat = values <= max(_FLAT * reference, 1e-12 * float(values.max(initial=0.0)))
    inverse = (vectors[:, ~flat] / values[~flat]) @ vectors[:, ~flat].T
    covariance = sandwich(likelihood.score_residuals(beta) @ inverse, outcome) if robust else inverse
    coef, errors = np.zeros(len(names)), np.full(len(names), np.nan)
    coef[basis.kept] = basis.transform @ beta
    variances = ((basis.transform @ covariance) * basis.transform).sum(axis=1) + basis.outside
    size = np.sqrt((basis.transform**2).sum(axis=1))
    infinite = np.sqrt(((basis.transform @ vectors[:, flat]) ** 2).sum(axis=1)) > 1e-6 * size
    if decrement is not None and np.ptp(likelihood.x @ beta) > _FAR:  # diverging, and past the range of numbers
        infinite |= np.abs(coef[basis.kept]) > 0.05 * size * np.linalg.norm(beta)
    errors[basis.kept] = np.where(infinite, np.inf, np.sqrt(np.maximum(variances, 0.0)))
    if infinite.any():
        remedy = "alpha > 0 or penalty='firth'" if hasattr(settings, "penalty") else "alpha > 0"
        warn_user(
            f"The likelihood{of} has no maximum: it keeps rising as the coefficients of "
            f"{listed([names[j] for j in basis.kept[infinite]])} go to infinity, because these columns separate the "
            "events from the other rows at risk. Their standard errors are infinite; "
            f"{remedy} gives finite estimates.",
            ConvergenceWarning,
        )
    elif decrement is not None:
        warn_user(
            f"Newton's method has not converged{of} in {n_iter + 1} steps (decrement {decrement:.2g}). Raise max_iter, "
            "leave out columns, or set alpha > 0.",
            ConvergenceWarning,
        )
    penalised = firth or settings.alpha > 0
    numbers = {
        "parameters": float(len(beta)),
        "log_likelihood": likelihood(beta)[0] if penalised else end[0],
        "null_log_likelihood": likelihood(np.zeros_like(beta))[0] if penalised else start[0],
    }
    if settings.alpha > 0:
        return Fit(coef, errors, None, n_iter, numbers)
    moved = vectors[:, ~flat].T @ beta
    numbers["likelihood_ratio"] = 2.0 * (end[0] - start[0])
    numbers["wald"] = float(moved @ _inverse(vectors[:, ~flat].T @ covariance @ vectors[:, ~flat]) @ moved)
    if not firth:
        numbers["score"] = float(start[1] @ _inverse(start[2]) @ start[1])
    if robust and not firth:
        spread = sandwich(likelihood.score_residuals(np.zeros_like(beta)), outcome)
        numbers["robust_score"] = float(start[1] @ _inverse(spread) @ start[1])
    full = np.full((len(names), len(names)), np.nan)
    full[np.ix_(basis.kept, basis.kept)] = basis.transform @ covariance @ basis.transform.T
    full[np.isinf(errors)] = full[:, np.isinf(errors)] = np.inf
    return Fit(coef, errors, full, n_iter, numbers)


def _inverse(matrix: Array) -> Array:
    return np.asarray(np.linalg.pinv(matrix, rcond=1e-12, hermitian=True))


def _maximise(
    likelihood: Likelihood, settings: LinearSettings, firth: bool
) -> tuple[Array, Derivatives, Derivatives, int, float | None]:
    """The maximum, the penalised likelihood at zero and there, steps, and the decrement if it is large."""
    p = likelihood.x.shape[1]
    penalty = settings.alpha * np.eye(p)

    def at(beta: Array) -> Derivatives:
        value, gradient, information = likelihood(beta)
        if firth and np.isfinite(information).all():
            sign, log_determinant = np.linalg.slogdet(information)
            value = value + 0.5 * float(log_determinant) if sign > 0 else -np.inf
            more = likelihood.log_determinant_gradient(beta, _inverse(information))  # type: ignore[attr-defined]
            gradient = gradient + 0.5 * more
        return value - 0.5 * float(beta @ penalty @ beta), gradient - penalty @ beta, information + penalty

    beta = np.zeros(p)
    start = value, gradient, information = at(beta)
    converged, decrement = False, np.inf
    for steps in range(settings.max_iter):
        n_iter = steps
        step = _inverse(information) @ gradient
        decrement = float(gradient @ step)
        converged = decrement <= settings.tol * max(1.0, abs(value)) or p == 0
        found = None if converged else newton_step(at, beta, step, value)
        if found is None:
            break
        beta, (value, gradient, information) = found
    return beta, start, (value, gradient, information), n_iter, None if converged else decrement


def newton_step(
    at: Callable[[Array], Derivatives], beta: Array, step: Array, value: float
) -> tuple[Array, Derivatives] | None:
    """Coefficients after a step, halved until the likelihood does not fall; None if that fails."""
    for size in 0.5 ** np.arange(28.0):
        new = at(beta + size * step)
        if all(np.isfinite(part).all() for part in new) and new[0] >= value - 1e-12 * abs(value):
            return beta + size * step, new
    return None


def sandwich(moved: Array, outcome: Outcome) -> Array:
    """Σ of the squares of what each subject contributes to β; ``moved`` is per row and unit of weight.

    With whole weights and no groups, a row of weight w stands for w subjects.
    """
    weight = outcome.weights
    if outcome.group is None:
        moved = (np.sqrt(weight) if is_whole(weight) else weight)[:, None] * moved
    else:
        moved = sum_by_subject(weight[:, None] * moved, outcome)
    return np.asarray(moved.T @ moved)


def warn_of_dropped(basis: Basis, names: Sequence[str]) -> None:
    """Name the columns that are left out, and the columns that they depend on."""
    reasons = []
    for column, of in list(basis.dropped.items())[:_NAMED]:
        relation = "constant" if not of else "a linear combination of " if len(of) > 1 else "a linear function of "
        reasons.append(f"{names[column]!r} ({relation}{listed([names[i] for i in of])})")
    more = f"; and {len(basis.dropped) - _NAMED} more" if len(basis.dropped) > _NAMED else ""
    warn_user(
        f"Columns left out because they are redundant among the rows at risk: {'; '.join(reasons)}{more}. "
        "Their coefficients are 0, with standard errors of nan; alpha > 0 keeps all columns.",
        UserWarning,
    )


def listed(names: Sequence[Any]) -> str:
    """The first names, quoted, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(repr, names[:_NAMED])) + more
