"""Linear algebra of covariates in an array or a sparse matrix, which is never centred: zeros stay zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

__all__ = ["Matrix", "StandardisedColumns", "as_dense", "centred_product", "column_means", "column_widths"]

Array = npt.NDArray[np.float64]
Matrix = Any  # an array or a sparse matrix


def column_means(matrix: Matrix, weight: Array | None) -> Array:
    """Means of the columns."""
    if not sparse.issparse(matrix):
        return matrix.mean(axis=0) if weight is None else np.average(matrix, axis=0, weights=weight)
    weight = np.ones(matrix.shape[0]) if weight is None else weight
    return np.asarray(matrix.T @ weight / weight.sum())


def column_widths(matrix: sparse.csr_array, centre: Array, weight: Array | None) -> Array:
    """Standard deviations of the columns of a sparse matrix, with the number of rows as the denominator."""
    weight = np.ones(matrix.shape[0]) if weight is None else weight
    centred, stored = matrix.copy(), matrix.copy()
    centred.data = (matrix.data - centre[matrix.indices]) ** 2
    stored.data = np.ones_like(matrix.data)
    squares = centred.T @ weight + (weight.sum() - stored.T @ weight) * centre**2
    return np.asarray(np.sqrt(squares / weight.sum()))


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


def as_dense(matrix: Array | StandardisedColumns) -> Array:
    """An array, of a few columns."""
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
