"""Columns of a matrix as regressions use them: independent, standardised, or those of a sparse matrix as they are."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.linalg import solve_triangular
from scipy.sparse.linalg import LinearOperator
from sklearn.utils.sparsefuncs import mean_variance_axis

__all__ = ["Basis", "Matrix", "RidgeBasis", "StandardisedColumns", "centred_product", "column_means", "standardise"]

Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Matrix = Any  # an array or a sparse matrix

_CONSTANT = 1e-12  # spread of a column relative to its largest value
_SMALLEST = 1e-100  # squares of smaller numbers vanish; a column of such numbers is constant
_DEPENDENT = 1e-7  # what other columns leave of one, relative to its own length; that of R's lm
_CLEAR = 1e-3  # what is left of columns that are independent beyond doubt


class Basis:
    """The columns of a matrix that earlier ones do not explain, and an orthogonal basis of the space they span.

    Columns are centred (in each stratum) and brought to length one, then taken in their order. One that is constant up
    to 1e-12 of its largest value, or of which a length of at most 1e-7 is left, is dropped.

    Parameters
    ----------
    matrix : ndarray of shape (n, p)
    stratum : int array of shape (n,), optional

    Attributes
    ----------
    kept : ndarray of int
        The columns that stay, k of them.
    dropped : dict
        The others, each with the columns of which it is a linear combination (with an intercept): none if constant.
    columns : ndarray of shape (n, k)
        The basis: centred columns of variance one, uncorrelated.
    transform : ndarray of shape (k, k)
        Coefficients of the kept columns from those of the basis.
    outside : float
        Variance of the coefficients outside the space of the basis: zero.

    Examples
    --------
    >>> rows = np.array([[0.0, 1.0, 1.0, 5.0], [1.0, 0.0, 3.0, 5.0], [0.0, 0.0, 1.0, 5.0], [0.0, 1.0, 1.0, 5.0]])
    >>> Basis(rows).kept.tolist(), Basis(rows).dropped
    ([0, 1], {2: [0], 3: []})
    """

    outside = 0.0

    def __init__(self, matrix: Array, stratum: Whole | None = None) -> None:
        matrix = matrix if stratum is None else _within_strata(matrix, stratum)
        n = len(matrix)
        size = np.abs(matrix).max(axis=0, initial=0.0)
        size = np.where(size > _SMALLEST, size, 1.0)
        unit = np.asfortranarray(matrix / size)
        if n:
            unit -= unit.mean(axis=0)
        length = np.sqrt(np.einsum("ij,ij->j", unit, unit))
        constant = length <= _CONSTANT * np.sqrt(n)
        length[constant] = 1.0
        unit /= length
        factor = None if constant.any() else _factor_of_clear_columns(unit)
        self.dropped: dict[int, list[int]] = {}
        if factor is None:
            factor, self.dropped = _gram_schmidt(unit, constant)
        self.kept = np.setdiff1d(np.arange(matrix.shape[1]), list(self.dropped))
        self._unit, self._inverse = unit, np.linalg.inv(factor) * np.sqrt(n)
        self.transform = self._inverse / (size * length)[self.kept, None]

    @cached_property
    def columns(self) -> Array:
        """The basis."""
        return np.asarray(self._unit[:, self.kept] @ self._inverse)


def _factor_of_clear_columns(unit: Array) -> Array | None:
    """The triangular factor of columns of length one; None unless each is clearly independent of those before it."""
    if unit.shape[1] > unit.shape[0]:
        return None
    try:
        factor = np.asarray(np.linalg.cholesky(unit.T @ unit).T, dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    return factor if np.diag(factor).min(initial=1.0) > _CLEAR else None


def _gram_schmidt(unit: Array, constant: npt.NDArray[np.bool_]) -> tuple[Array, dict[int, list[int]]]:
    """The triangular factor of the columns that stay, and the others, as `Basis` has them; each is projected twice."""
    n, p = unit.shape
    q, r = np.zeros((n, min(n, p)), order="F"), np.zeros((min(n, p), min(n, p)))
    kept: list[int] = []
    dropped: dict[int, list[int]] = {}
    for j in range(p):
        k = len(kept)
        if constant[j]:
            dropped[j] = []
            continue
        rest, shares = unit[:, j], np.zeros(k)
        for _ in range(2):
            more = q[:, :k].T @ rest
            rest, shares = rest - q[:, :k] @ more, shares + more
        left = float(np.sqrt(rest @ rest))
        if left <= _DEPENDENT or k == len(r):
            used = solve_triangular(r[:k, :k], shares)
            dropped[j] = [kept[i] for i in np.flatnonzero(np.abs(used) > 10 * _DEPENDENT)]
            continue
        q[:, k], r[:k, k], r[k, k] = rest / left, shares, left
        kept.append(j)
    return r[: len(kept), : len(kept)], dropped


class RidgeBasis:
    """Standardised columns for a ridge penalty, all of them kept; in the space of the rows if these are fewer.

    With X = U D Vᵀ, the penalised maximum is β = V γ with |β| = |γ|, so that k = min(n, p) coefficients are enough.
    Orthogonal to V the likelihood is constant, and the coefficients have the variance 1/α of the penalty alone.

    Parameters
    ----------
    matrix : ndarray of shape (n, p)
    centre : ndarray of shape (p,)
        Means of the columns.
    weight : ndarray of shape (n,), optional
        Of the rows, for the standard deviations.
    alpha : float
        The penalty.

    Attributes
    ----------
    kept, columns, transform, outside
        As those of `Basis`; ``columns`` has shape (n, k), ``transform`` (p, k), ``outside`` (p,).
    """

    def __init__(self, matrix: Array, centre: Array, weight: Array | None, alpha: float) -> None:
        n, p = matrix.shape
        self.columns, scale = standardise(matrix, centre, weight)
        self.kept, self.outside = np.arange(p), np.zeros(p)
        if p <= n:
            self.transform = np.diag(1.0 / scale)
        else:
            u, d, v = np.linalg.svd(self.columns, full_matrices=False)
            self.columns, self.transform = u * d, v.T / scale[:, None]
            self.outside = np.maximum(1.0 - (v**2).sum(axis=0), 0.0) / (alpha * scale**2)


def standardise(matrix: Matrix, centre: Array, weight: Array | None) -> tuple[Any, Array]:
    """Columns less their means and divided by their standard deviations, and these; 1 for a constant column."""
    if sparse.issparse(matrix):
        scale = np.sqrt(mean_variance_axis(matrix, axis=0, weights=weight)[1])
        size = abs(matrix).max(axis=0).toarray().reshape(-1)
    else:
        scale = matrix.std(axis=0) if weight is None else np.sqrt(np.average((matrix - centre) ** 2, 0, weight))
        size = np.abs(matrix).max(axis=0, initial=0.0)
    scale = np.where((scale > _CONSTANT * size) & (size > _SMALLEST), scale, 1.0)
    return StandardisedColumns(matrix, centre, scale) if sparse.issparse(matrix) else (matrix - centre) / scale, scale


def _within_strata(matrix: Array, stratum: Whole) -> Array:
    """Columns less their means in each stratum; zero where a column is constant in all."""
    _, place = np.unique(stratum, return_inverse=True)
    sums = np.zeros((int(place.max(initial=-1)) + 1, matrix.shape[1]))
    np.add.at(sums, place, matrix)
    centred = matrix - (sums / np.bincount(place)[:, None])[place]
    constant = np.abs(centred).max(axis=0, initial=0.0) <= _CONSTANT * np.abs(matrix).max(axis=0, initial=0.0)
    return np.where(constant, 0.0, centred)


def column_means(matrix: Matrix, weight: Array | None) -> Array:
    """Means of the columns."""
    if not sparse.issparse(matrix):
        return matrix.mean(axis=0) if weight is None else np.average(matrix, axis=0, weights=weight)
    weight = np.ones(matrix.shape[0]) if weight is None else weight
    return np.asarray(matrix.T @ weight / weight.sum())


def centred_product(matrix: Matrix, centre: Array, coef: Array) -> Array:
    """The product of the centred columns with coefficients of shape (p,) or (p, m)."""
    if not sparse.issparse(matrix):
        return np.asarray((matrix - centre) @ coef)
    return np.asarray(matrix @ coef - centre @ coef)


class StandardisedColumns(LinearOperator):  # type: ignore[misc]
    """The columns of a sparse matrix less their means and divided by their standard deviations, never stored."""

    def __init__(self, matrix: Any, centre: Array, scale: Array) -> None:
        super().__init__(np.float64, matrix.shape)
        self._matrix, self._centre, self._scale = sparse.csc_array(matrix), centre, scale

    def _matvec(self, values: Array) -> Array:
        coef = values.reshape(-1) / self._scale
        return np.asarray(self._matrix @ coef - self._centre @ coef)

    def _rmatvec(self, values: Array) -> Array:
        rows = values.reshape(-1)
        return np.asarray((self._matrix.T @ rows - self._centre * rows.sum()) / self._scale)

    def __getitem__(self, place: tuple[slice, Any]) -> StandardisedColumns:
        """Some columns of all rows: ``z[:, columns]``."""
        columns = place[1]
        return StandardisedColumns(self._matrix[:, columns], self._centre[columns], self._scale[columns])

    def toarray(self) -> Array:
        """All columns as an array."""
        return np.asarray((self._matrix.toarray() - self._centre) / self._scale)
