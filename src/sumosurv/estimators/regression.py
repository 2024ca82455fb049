"""Coefficients of models that are linear in x: Newton's method, standard errors, tests and warnings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from sumosurv.estimators.basis import Basis, RidgeBasis
from sumosurv.fitting.settings import Constraints, integer, number
from sumosurv.nonparametric import is_whole, sum_by_subject
from sumosurv.outcome import Outcome
from sumosurv.warn import warn_user

__all__ = [
    "NEWTON_CONSTRAINTS",
    "Fit",
    "Maximum",
    "fit_coefficients",
    "is_separated",
    "listed",
    "make_basis",
    "maximise",
    "sandwich",
]

Array = npt.NDArray[np.float64]
Derivatives = tuple[float, Array, Array]  # value, gradient and information (minus the Hessian)

_NAMED = 5  # columns that a message names
_FLAT = 1e-10  # information in a direction relative to that at β = 0, below which the likelihood has no maximum there
_FAR = 300.0  # difference of log hazards that no finite estimate has

NEWTON_CONSTRAINTS: Constraints = {"alpha": number(low=0), "max_iter": integer(1), "tol": number(above=0)}


class Likelihood(Protocol):
    """A log-likelihood of the coefficients of the columns of a basis, which other parameters may follow."""

    def __call__(self, parameters: Array, /) -> Derivatives:
        """Value, gradient and information."""

    def score_residuals(self, parameters: Array, /) -> Array:
        """Contribution of each row to the gradient per unit of its weight, (n, parameters)."""


class NewtonSettings(Protocol):
    """The settings of a regression that `NEWTON_CONSTRAINTS` describe."""

    alpha: float
    max_iter: int
    tol: float


@dataclass(frozen=True)
class Fit:
    """Coefficients of p columns; 0 with a standard error of nan for a column that is left out.

    ``covariance`` is that of the coefficients and of the ``others``, the parameters that are not coefficients; None if
    all parameters are coefficients and there is a penalty. ``numbers`` are those that `summarise` takes.
    """

    coef: Array
    standard_errors: Array
    covariance: Array | None
    n_iter: int
    numbers: dict[str, float]
    others: Array = field(default_factory=lambda: np.zeros(0))


# ------------------------------------------------------------------ columns


def make_basis(
    matrix: Array,
    outcome: Outcome,
    centre: Array,
    names: Sequence[str],
    alpha: float,
    stratum: npt.NDArray[np.int64] | None = None,
) -> Basis | RidgeBasis:
    """The space of the coefficients: without a penalty, columns that are redundant are left out with a warning."""
    if alpha > 0:
        return RidgeBasis(matrix, centre, outcome.weight, alpha)
    basis, reasons = Basis(matrix, stratum), []
    if not basis.dropped or not outcome.had_event.any():
        return basis
    for column, of in list(basis.dropped.items())[:_NAMED]:
        relation = "constant" if not of else "a linear combination of " if len(of) > 1 else "a linear function of "
        reasons.append(f"{names[column]!r} ({relation}{listed([names[i] for i in of])})")
    more = f"; and {len(basis.dropped) - _NAMED} more" if len(basis.dropped) > _NAMED else ""
    warn_user(
        f"Columns left out because they are redundant among the rows at risk: {'; '.join(reasons)}{more}. "
        "Their coefficients are 0, with standard errors of nan; alpha > 0 keeps all columns.",
        UserWarning,
    )
    return basis


def listed(names: Sequence[Any]) -> str:
    """The first names, quoted, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(repr, names[:_NAMED])) + more


# ------------------------------------------------------------------ coefficients


def fit_coefficients(
    likelihood: Likelihood,
    basis: Basis | RidgeBasis,
    outcome: Outcome,
    names: Sequence[str],
    settings: NewtonSettings,
    *,
    robust: bool,
    firth: bool = False,
    others: tuple[Array, Array] | None = None,
    of: str = "",
    simpler: str = "",
) -> Fit:
    """Maximise a likelihood by Newton's method, beginning with coefficients of zero.

    Parameters
    ----------
    likelihood : Likelihood
        Of the coefficients of the columns of the basis, followed by m other parameters.
    basis : Basis or RidgeBasis
        The space of the coefficients.
    outcome : Outcome
        Of the rows of the basis.
    names : sequence of str
        One per column and other parameter, for warnings.
    settings : CoxPH, FineGray or ParametricRegression
    robust : bool
        Whether the covariance is the sandwich.
    firth : bool
        Whether half of log det(information) is added to the likelihood.
    others : tuple of arrays of shape (m,) and (m, k + m), optional
        The m other parameters at their maximum without covariates; and the matrix that gives their values at x = 0 from
        the k coefficients of the basis and themselves.
    of : str
        What is fitted, for warnings: " for cause 1".
    simpler : str
        A remedy of models that do not converge: "lower df, ".
    """
    k = basis.transform.shape[1]
    start, at_zero = others or (np.zeros(0), np.zeros((0, k)))
    m, p = len(start), len(names) - len(start)
    penalty = np.repeat([settings.alpha, 0.0], [k, m])
    objective = _with_firth_penalty(likelihood) if firth else likelihood
    found = maximise(objective, np.append(np.zeros(k), start), penalty, settings.max_iter, settings.tol)
    covariance, flat, vectors = _free_directions(found, k, flat=settings.alpha == 0)
    if robust:
        covariance = sandwich(likelihood.score_residuals(found.parameters) @ covariance, outcome)

    back = np.zeros((p + m, k + m))  # coefficients and parameters at x = 0 from those of the basis
    back[basis.kept, :k], back[p:] = basis.transform, at_zero
    values, size = back @ found.parameters, np.sqrt((back**2).sum(axis=1))
    variances = ((back @ covariance) * back).sum(axis=1)
    variances[basis.kept] += basis.outside
    infinite = np.sqrt(((back @ flat) ** 2).sum(axis=1)) > 1e-6 * np.where(size > 0, size, 1.0)
    coef = found.parameters[:k]
    if found.decrement is not None and np.ptp(basis.columns @ coef) > _FAR:  # diverging, past the range of numbers
        infinite[:p] |= np.abs(values[:p]) > 0.05 * size[:p] * np.linalg.norm(coef)
    errors = np.where(infinite, np.inf, np.sqrt(np.maximum(variances, 0.0)))
    left_out = np.setdiff1d(np.arange(p), basis.kept)
    errors[left_out] = np.nan
    _warn(found, infinite[:p], names, back, settings, of, simpler)

    penalised, at_start = firth or settings.alpha > 0, np.append(np.zeros(k), start)
    numbers = {
        "parameters": float(k + m),
        "log_likelihood": likelihood(found.parameters)[0] if penalised else found.value,
        "null_log_likelihood": likelihood(at_start)[0] if penalised else found.start[0],
    }
    full = None
    if m or settings.alpha == 0:
        full = back @ covariance @ back.T
        full[np.diag_indices(p + m)] = errors**2
        full[left_out], full[:, left_out] = np.nan, np.nan
    fit = Fit(values[:p], errors[:p], full, found.n_iter, numbers, values[p:])
    if settings.alpha > 0:
        return fit
    _, gradient, information = found.start
    moved = vectors.T @ coef
    numbers["likelihood_ratio"] = 2.0 * (found.value - found.start[0])
    numbers["wald"] = float(moved @ _inverse(vectors.T @ covariance[:k, :k] @ vectors) @ moved)
    if firth or m:  # the observed information of other parameters makes a poor score test: see ParametricRegression
        return fit
    numbers["score"] = float(gradient @ _inverse(information) @ gradient)
    if robust:
        spread = sandwich(likelihood.score_residuals(at_start), outcome)
        numbers["robust_score"] = float(gradient @ _inverse(spread) @ gradient)
    return fit


def _warn(
    found: Maximum,
    infinite: npt.NDArray[np.bool_],
    names: Sequence[str],
    back: Array,
    settings: NewtonSettings,
    of: str,
    simpler: str,
) -> None:
    """Issue a warning, with the names of columns, if the likelihood has no maximum or if it was not found."""
    if infinite.any():
        columns = listed([name for name, which in zip(names, infinite) if which])
        remedy = "alpha > 0 or penalty='firth'" if hasattr(settings, "penalty") else "alpha > 0"
        warn_user(
            f"The likelihood{of} has no maximum: it keeps rising as the coefficients of {columns} go to infinity, "
            "because these columns separate the events from the other rows at risk. Their standard errors are "
            f"infinite; {remedy} gives finite estimates.",
            ConvergenceWarning,
        )
    elif found.decrement is not None:
        size = np.sqrt((back**2).sum(axis=1))
        worst = int(np.argmax(np.abs(back @ found.step) / np.where(size > 0, size, 1.0)))
        warn_user(
            f"Newton's method has not converged{of} in {found.n_iter + 1} steps (decrement {found.decrement:.2g}); the "
            f"last step changed {names[worst]!r} most. Raise max_iter, {simpler}leave out columns, or set alpha > 0.",
            ConvergenceWarning,
        )


def _with_firth_penalty(likelihood: Any) -> Callable[[Array], Derivatives]:
    """The likelihood plus half of log det(information)."""

    def at(beta: Array) -> Derivatives:
        value, gradient, information = likelihood(beta)
        if np.isfinite(information).all():
            sign, log_determinant = np.linalg.slogdet(information)
            value = value + 0.5 * float(log_determinant) if sign > 0 else -np.inf
            gradient = gradient + 0.5 * likelihood.log_determinant_gradient(beta, _inverse(information))
        return value, gradient, information

    return at


def _free_directions(found: Maximum, k: int, *, flat: bool) -> tuple[Array, Array, Array]:
    """The inverse information without flat directions, the flat ones (size, j), and the coefficients of the others.

    The likelihood has no maximum in a flat direction. A direction moves the k coefficients, and the other parameters
    follow as the likelihood has them.
    """
    information = found.information
    others = np.linalg.pinv(information[k:, k:], rcond=1e-14, hermitian=True)
    follow = -others @ information[k:, :k]
    own = information[:k, :k] + information[:k, k:] @ follow
    eigenvalues, vectors = np.linalg.eigh(0.5 * (own + own.T))
    least = -np.inf
    if flat and k:
        least = max(_FLAT * float(np.diag(found.start[2])[:k].mean()), 1e-12 * float(eigenvalues[-1]))
    free = eigenvalues > least
    nowhere = vectors[:, ~free]
    top = (vectors[:, free] / eigenvalues[free]) @ vectors[:, free].T
    inverse = np.block([[top, top @ follow.T], [follow @ top, others + follow @ top @ follow.T]])
    return inverse, np.vstack([nowhere, follow @ nowhere]), vectors[:, free]


def is_separated(found: Maximum, columns: Array) -> bool:
    """Whether an unpenalised likelihood of columns (n, k) has no maximum, because they separate the events."""
    far = found.decrement is not None and np.ptp(columns @ found.parameters) > _FAR
    return bool(far) or _free_directions(found, columns.shape[1], flat=True)[1].size > 0


def _inverse(matrix: Array) -> Array:
    return np.asarray(np.linalg.pinv(matrix, rcond=1e-12, hermitian=True))


# ------------------------------------------------------------------ Newton's method


@dataclass(frozen=True)
class Maximum:
    """Where a penalised likelihood is largest, with its value and information there, and its derivatives at the start.

    ``decrement`` is None if the method has converged.
    """

    parameters: Array
    value: float
    information: Array
    start: Derivatives
    step: Array
    n_iter: int
    decrement: float | None


def maximise(
    likelihood: Callable[[Array], Derivatives], start: Array, penalty: Array, max_iter: int, tol: float
) -> Maximum:
    """Newton's method for a likelihood that need not be concave, less half of penalty · parameters².

    The information is scaled to a diagonal of one, so that units of time and columns do not matter, and directions of
    negative curvature are taken with the opposite sign: every step goes uphill.
    """

    def at(parameters: Array) -> Derivatives:
        value, gradient, information = likelihood(parameters)
        penalised = value - 0.5 * float(penalty @ parameters**2)
        return penalised, gradient - penalty * parameters, information + np.diag(penalty)

    parameters, decrement, converged, step, n_iter = start, np.inf, len(start) == 0, np.zeros_like(start), 0
    first = value, gradient, information = at(parameters)
    for steps in range(max_iter if len(start) else 0):
        n_iter = steps
        unit = np.sqrt(np.abs(np.diag(information)))
        unit = np.where(unit > 0, unit, 1.0)
        eigenvalues, vectors = np.linalg.eigh(information / np.outer(unit, unit))
        along = vectors.T @ (gradient / unit)
        step = vectors @ (along / np.maximum(np.abs(eigenvalues), 1e-10)) / unit
        decrement = float(gradient @ step)
        converged = decrement <= tol * max(1.0, abs(value)) and eigenvalues[0] > -1e-8
        found = None if converged else _newton_step(at, parameters, step, value)
        if found is None:
            break
        gain = found[1][0] - value
        parameters, (value, gradient, information) = found
        if gain <= 1e-10 * abs(value) and decrement > 1e-4:  # at the boundary of the valid parameters
            break
    # a decrement that rounding keeps from falling further is small
    converged = converged or decrement <= 1e-12 * max(1.0, abs(value))
    return Maximum(parameters, value, information, first, step, n_iter, None if converged else decrement)


def _newton_step(
    at: Callable[[Array], Derivatives], parameters: Array, step: Array, value: float
) -> tuple[Array, Derivatives] | None:
    """Parameters after a step, halved until the likelihood does not fall; None if that fails."""
    for size in 0.5 ** np.arange(28.0):
        new = at(parameters + size * step)
        if all(np.isfinite(part).all() for part in new) and new[0] >= value - 1e-12 * abs(value):
            return parameters + size * step, new
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
