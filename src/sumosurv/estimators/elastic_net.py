"""Cox regression with an elastic-net penalty, for a decreasing sequence of penalties."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from sklearn.exceptions import ConvergenceWarning

from sumosurv.estimators.basis import StandardisedColumns
from sumosurv.estimators.partial_likelihood import PartialLikelihood
from sumosurv.estimators.regression import Fit
from sumosurv.warn import warn_user

__all__ = ["Columns", "PenaltyPath", "elastic_net_in_words", "fit_path", "fit_path_to", "largest_penalty"]

Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Columns = Array | StandardisedColumns

_TOLERANCE = 1e-11  # of the optimality conditions, relative to the largest gradient at β = 0
_ACCEPTED = 1e-5  # violation of these conditions up to which there is no warning
_STEP = 0.2  # of log α, on the way to one penalty
_SLOW = 0.1  # factor by which a step should reduce the violation of the conditions; else the information is renewed
_MOST_ADDED = 100  # columns that enter the working set in one step, if there are no more in it already


@dataclass(frozen=True)
class PenaltyPath:
    """Coefficients (m, p) of the standardised columns for m penalties, and what belongs to them.

    ``unconverged`` are the penalties for which the number of steps did not suffice.
    """

    alphas: Array
    coef: Array
    log_likelihood: Array
    null_log_likelihood: float
    n_iter: Whole
    unconverged: Array

    def fit_at(self, k: int, scale: Array) -> Fit:
        """The k-th fit, without standard errors, for columns that were divided by ``scale``."""
        if len(self.unconverged):
            warn_user(
                f"The coefficients have not converged for {len(self.unconverged)} penalties, from "
                f"alpha={self.unconverged[0]:.4g} on. Raise max_iter, or choose larger penalties.",
                ConvergenceWarning,
            )
        coef = self.coef[k] / scale
        numbers = {
            "parameters": float((coef != 0).sum()),
            "log_likelihood": float(self.log_likelihood[k]),
            "null_log_likelihood": self.null_log_likelihood,
        }
        return Fit(coef, np.full(len(coef), np.nan), None, int(self.n_iter[k]), numbers)


def largest_penalty(z: Columns, likelihood: PartialLikelihood, l1_ratio: float) -> float:
    """The smallest penalty at which all coefficients are zero; with ``l1_ratio`` below 0.001, that of 0.001."""
    _, residual = likelihood.residuals(np.zeros(z.shape[0]))
    return float(np.abs(z.T @ residual).max(initial=0.0)) / max(l1_ratio, 1e-3)


def fit_path(
    z: Columns, likelihood: PartialLikelihood, l1_ratio: float, alphas: Array, max_iter: int, *, stop: bool = False
) -> PenaltyPath:
    r"""Maximise ℓ(b) - α Σ (l1_ratio |b_j| + ½ (1 - l1_ratio) b_j²) for each α, starting from the solution before.

    Every step minimises the penalised second-order expansion of the likelihood over a working set: the coefficients
    that are not zero, and those that the conditions of optimality do not allow to be zero. The information is kept
    from step to step, and renewed when steps no longer reduce the violation quickly. Columns that the sequential strong
    rule (Tibshirani et al. 2012) discards are looked at only when the others are optimal.

    Parameters
    ----------
    z : array or StandardisedColumns of shape (n, p)
        Standardised columns. Those of a sparse matrix are stored for the working set only; this requires l1_ratio > 0.
    likelihood : PartialLikelihood
        Of the rows of z.
    l1_ratio : float
    alphas : array of shape (m,)
        Decreasing.
    max_iter : int
        Largest number of steps per penalty.
    stop : bool
        Whether to end where the explained deviance hardly increases (by less than 1e-5 of itself in five penalties), or
        exceeds 99.9 %, as glmnet does.
    """
    rotation = None
    if l1_ratio == 0 and z.shape[1] > z.shape[0]:  # coefficients in the space of the rows, see RidgeBasis
        u, d, rotation = np.linalg.svd(z, full_matrices=False)
        z = u * d
    solver = _Solver(np.asfortranarray(z) if isinstance(z, np.ndarray) else z, likelihood, l1_ratio, max_iter)
    null, saturated = solver.value, likelihood.saturated()
    coefs, values, steps, unconverged, explained = [], [], [], [], []
    for alpha in alphas:
        n_iter, converged = solver.move_to(float(alpha))
        coefs.append(solver.b.copy())
        values.append(solver.value)
        steps.append(n_iter)
        unconverged += [] if converged else [alpha]
        explained.append((solver.value - null) / (saturated - null) if saturated > null else 0.0)
        if stop and len(explained) >= 5 and explained[-1] > min(0.999, (explained[-1] - explained[-5]) / 1e-5):
            break
    made = np.array(coefs) if rotation is None else np.array(coefs) @ rotation
    return PenaltyPath(alphas[: len(coefs)], made, np.array(values), null, np.array(steps), np.array(unconverged))


def fit_path_to(z: Columns, likelihood: PartialLikelihood, l1_ratio: float, alpha: float, max_iter: int) -> PenaltyPath:
    """A path that ends in one penalty, in steps that are small enough for few columns to enter in each."""
    largest = max(largest_penalty(z, likelihood, l1_ratio), alpha)
    n_steps = int(np.ceil(np.log(largest / alpha) / _STEP))
    alphas = np.append(largest * np.exp(-_STEP * np.arange(n_steps)), alpha)
    return fit_path(z, likelihood, l1_ratio, alphas, max_iter)


def elastic_net_in_words(alpha: float, l1_ratio: float) -> str:
    """The penalty, for the title of a summary."""
    return f"elastic net (alpha {alpha:.4g}, l1_ratio {l1_ratio:g}) without standard errors"


@dataclass
class _Solver:
    """The coefficients at one penalty, and what is carried over to the next."""

    z: Columns
    likelihood: PartialLikelihood
    l1_ratio: float
    max_iter: int
    alpha: float = np.inf

    def __post_init__(self) -> None:
        n, p = self.z.shape
        self.b, self.log_risk = np.zeros(p), np.zeros(n)
        self.value, self.residual = self.likelihood.residuals(self.log_risk)
        self.gradient = self.z.T @ self.residual  # of the likelihood
        self.unit = float(np.abs(self.gradient).max(initial=0.0))
        self.information: _Information | None = None

    def move_to(self, alpha: float) -> tuple[int, bool]:
        """Take steps until the coefficients are optimal; returns how many, and whether they are."""
        threshold = self.l1_ratio * (2.0 * alpha - min(self.alpha, self.unit / max(self.l1_ratio, 1e-3)))
        screened = (self.b != 0) | (np.abs(self.gradient) >= threshold)
        self.alpha, n_iter = alpha, 0
        while True:
            columns = np.flatnonzero(screened)
            more, converged = self._solve(columns, self.max_iter - n_iter)
            n_iter += more
            self.gradient = self.z.T @ self.residual
            missed = ~screened & (np.abs(self.gradient) > self.l1_ratio * alpha + _TOLERANCE * self.unit)
            if not missed.any() or n_iter >= self.max_iter:
                return n_iter, converged and not missed.any()
            screened |= missed

    def _solve(self, columns: Whole, max_iter: int) -> tuple[int, bool]:
        """Optimise the coefficients of some columns; the others are zero and stay so."""
        z, l1, l2 = self.z[:, columns], self.alpha * self.l1_ratio, self.alpha * (1.0 - self.l1_ratio)
        b, before = self.b[columns], np.inf
        for n_iter in range(max_iter + 1):
            gradient = z.T @ self.residual - l2 * b
            excess = np.abs(gradient) - l1
            violation = np.where(b != 0, np.abs(gradient - l1 * np.sign(b)), np.maximum(excess, 0.0))
            worst = float(violation.max(initial=0.0))
            if worst <= _TOLERANCE * self.unit or n_iter == max_iter:
                break
            if worst > _SLOW * before:
                self.information = None
            before = worst
            work = self._working_set(b, excess, l1)
            if self.information is None:
                self.information = _Information(self.likelihood, self.log_risk)
            matrix = self.information.matrix(columns[work], z[:, work])
            # a little more curvature keeps the matrix positive; it shortens steps and does not move their end
            matrix[np.diag_indices(len(work))] += l2 + 1e-10 * float(np.diag(matrix).max(initial=0.0))
            target = _minimise_quadratic(matrix, matrix @ b[work] + gradient[work], l1, b[work])
            size = self._step(z[:, work], b, work, target - b[work], l1, l2)
            if size == 0 and self.information.fresh:  # rounding
                break
            if size < 1:  # the information is renewed
                before = 0.0
            self.information.fresh = False
        self.b[columns] = b
        return n_iter, worst <= _ACCEPTED * self.unit

    def _working_set(self, b: Array, excess: Array, l1: float) -> Whole:
        if l1 == 0:
            return np.arange(len(b))
        used = b != 0
        outside = np.flatnonzero(~used & (excess > 0))
        most = max(_MOST_ADDED, int(used.sum()))
        if len(outside) > most:
            outside = outside[np.argpartition(-excess[outside], most)[:most]]
        used[outside] = True
        return np.flatnonzero(used)

    def _step(self, z: Columns, b: Array, work: Whole, change: Array, l1: float, l2: float) -> float:
        """Move the coefficients by a step, halved until the penalised likelihood does not fall.

        Returns the share of the step that was taken; 0 if the coefficients have not moved.
        """

        def penalty(values: Array) -> float:
            return l1 * float(np.abs(values).sum()) + 0.5 * l2 * float(values @ values)

        start, moved = b[work].copy(), z @ change
        least = self.value - penalty(start)
        least -= 1e-13 * abs(least)
        for size in 0.5 ** np.arange(20.0):
            value, residual = self.likelihood.residuals(self.log_risk + size * moved)
            new = start + change if size == 1.0 else start + size * change
            if np.isfinite(value) and np.isfinite(residual).all() and value - penalty(new) >= least:
                b[work], self.log_risk = new, self.log_risk + size * moved
                self.value, self.residual = value, residual
                return float(size)
        return 0.0


@dataclass
class _Information:
    """The information of the likelihood at some risks, for a growing set of columns."""

    likelihood: PartialLikelihood
    log_risk: Array
    fresh: bool = True  # whether the coefficients have not moved since
    _place: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._factors = np.zeros((0, 0))
        self._matrix = np.zeros((0, 0))

    def matrix(self, columns: Whole, z: Columns) -> Array:
        """The information (k, k) of some columns, whose values are z (n, k)."""
        new = [i for i, column in enumerate(columns.tolist()) if column not in self._place]
        if new:
            n, k = z.shape[0], len(self._place)
            added = z[:, new]
            added = added if isinstance(added, np.ndarray) else added.toarray()
            factors = self.likelihood.information_factors(self.log_risk, added).T
            signed = factors.copy()
            signed[:, n:] *= -1.0
            everything = factors if k == 0 else np.vstack([self._factors, factors])
            grown = np.empty((k + len(new), k + len(new)))
            grown[:k, :k] = self._matrix
            grown[k:] = signed @ everything.T
            grown[:k, k:] = grown[k:, :k].T
            self._factors, self._matrix = everything, grown
            self._place |= {int(columns[i]): k + j for j, i in enumerate(new)}
        places = [self._place[column] for column in columns.tolist()]
        return self._matrix[np.ix_(places, places)]


def _minimise_quadratic(matrix: Array, linear: Array, l1: float, start: Array) -> Array:
    """The minimum of ½ bᵀMb - cᵀb + l1 Σ|b_j|, by changing the set of coefficients that are not zero and their signs.

    The exact minimum is found for given signs. A coefficient that would change its sign becomes zero; coefficients that
    must not be zero are added, one at a time if adding several at once did not lower the value.
    """
    if l1 == 0:
        return _solve(matrix, linear)

    def value(b: Array) -> float:
        return 0.5 * float(b @ matrix @ b) - float(linear @ b) + l1 * float(np.abs(b).sum())

    b, best, one_by_one, sign = start, value(start), False, np.sign(start)
    for _ in range(10 * len(start) + 10):
        b = _minimise_with_signs(matrix, linear, l1, b, sign)
        gradient = linear - matrix @ b
        excess = np.where(b == 0, np.abs(gradient) - l1, -np.inf)
        reached = value(b)
        if one_by_one and reached >= best:
            break
        one_by_one, best = reached >= best, min(best, reached)
        added = excess > 1e-12 * l1
        if not added.any():
            break
        if one_by_one:
            added = np.arange(len(b)) == excess.argmax()
        sign = np.where(added, np.sign(gradient), np.sign(b))
    return b


def _minimise_with_signs(matrix: Array, linear: Array, l1: float, b: Array, sign: Array) -> Array:
    """The minimum for coefficients with these signs or zero, as far as a descent from b finds it."""
    b, sign = b.copy(), sign.copy()
    while True:
        free = np.flatnonzero(sign)
        target = _solve(matrix[np.ix_(free, free)], linear[free] - l1 * sign[free])
        wrong = target * sign[free] <= 0
        if not wrong.any():
            made = np.zeros_like(b)
            made[free] = target
            return made
        now = b[free]
        ratio = np.divide(now, now - target, out=np.zeros_like(now), where=wrong & (now != 0))
        share = float(ratio[wrong].min())
        b[free] = now + share * (target - now)
        dropped = free[wrong & (ratio <= share)]
        b[dropped] = sign[dropped] = 0.0


def _solve(matrix: Array, right: Array) -> Array:
    """Solve a system; rounding may leave the information of nearly separated events with negative eigenvalues."""
    try:
        return np.asarray(cho_solve(cho_factor(matrix), right))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        return np.asarray(vectors @ ((vectors.T @ right) / np.maximum(values, 1e-8 * np.abs(values).max())))
