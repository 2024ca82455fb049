"""A table of covariates as a matrix of named numbers, for models that are linear or made of trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse
from scipy.linalg import solve_triangular

from sumosurv.estimators.sparse_columns import Matrix, StandardisedColumns, column_widths
from sumosurv.formulas import Formula
from sumosurv.preprocessing import CategoricalColumn, NumericColumn, Preprocessor

__all__ = ["Basis", "Design", "FormulaDesign", "RidgeBasis", "standardise", "within_strata"]

_CONSTANT = 1e-12  # spread of a column relative to its largest value
_SMALLEST = 1e-100  # squares of smaller numbers vanish; a column of such numbers is constant
_DEPENDENT = 1e-7  # what other columns leave of one, relative to its own length; that of R's lm


class Design:
    """Columns of numbers as they are, one 0/1 column for each level of a category but the first.

    A missing number becomes the mean of the training rows, with a 0/1 column that says so where the
    training rows had any; a missing category is a level of its own there. Levels not seen in training read
    as the first.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [50.0, 60.0], "sex": ["f", "m"]})
    >>> design = Design(Preprocessor().fit(frame))
    >>> design.names, design.matrix(frame).tolist()
    (['age', 'sex[m]'], [[50.0, 0.0], [60.0, 1.0]])
    """

    def __init__(self, preprocessor: Preprocessor) -> None:
        if preprocessor.row_shape is not None:
            raise ValueError(
                f"This model reads a table of two dimensions; got rows of shape {preprocessor.row_shape}. "
                "A network with encoder= can read such arrays."
            )
        if preprocessor.one_hot:
            raise ValueError("a design has its own 0/1 columns for categories, and one_hot is true")
        self.preprocessor = preprocessor
        self.names: list[str] = []
        self.sources: list[str] = []  # the column of X behind each name
        self._coded: list[tuple[int, CategoricalColumn]] = []  # each with how many numbers come before it
        scale, shift = [], []
        for column in preprocessor.columns:
            if isinstance(column, NumericColumn):
                own = [column.name, f"{column.name}[missing]"] if column.indicator else [column.name]
                scale += [column.width, 1.0][: len(own)]
                shift += [column.centre, 0.0][: len(own)]
            else:
                self._coded.append((len(scale), column))
                own = [f"{column.name}[missing]"] if column.missing_seen else []
                own += [f"{column.name}[{level}]" for level in column.levels[1:]]
            self.names += own
            self.sources += [column.name] * len(own)
        self._scale, self._shift = np.array(scale), np.array(shift)

    def matrix(self, X: Any) -> Any:
        """Rows of X as rows of numbers, one column per name; a sparse matrix stays as it is."""
        if sparse.issparse(X):
            if self._coded or len(self.names) > len(self.preprocessor.columns):
                raise ValueError("Training rows had categories or missing values; pass a DataFrame, as in training.")
            return X
        numbers, codes = self.preprocessor.table(X)
        numbers *= self._scale
        numbers += self._shift
        if not self._coded:
            return numbers
        parts, upto = [], 0  # numbers and the 0/1 columns of categories, in the order of the table
        coded = iter(codes.T)
        for place, column in self._coded:
            first = 1 if column.missing_seen else 3  # code 1 is missing, 2 the first level
            wanted = [c for c in range(first, column.n_codes) if c != 2]
            parts += [numbers[:, upto:place], next(coded)[:, None] == np.array(wanted)]
            upto = place
        return np.hstack([*parts, numbers[:, upto:]])

    def offset(self, X: Any) -> npt.NDArray[np.float64]:
        """What is added to the linear predictor of each row with a coefficient of one."""
        return np.zeros(X.shape[0])


class FormulaDesign(Design):
    """The columns of a formula, followed by 0/1 columns of missing values if the training rows had any.

    A missing number becomes the mean of the training rows, a missing category the first level.
    """

    def __init__(self, preprocessor: Preprocessor, formula: Formula) -> None:
        self.preprocessor, self.formula = preprocessor, formula
        self._missing = [
            column.name
            for column in preprocessor.columns
            if (column.indicator if isinstance(column, NumericColumn) else column.missing_seen)
        ]
        self.names = [*formula.names, *(f"{name}[missing]" for name in self._missing)]
        self.sources = [*formula.sources, *self._missing]

    def matrix(self, X: Any) -> npt.NDArray[np.float64]:
        """Rows of X as rows of numbers, one column per name."""
        indicators = X[self._missing].isna().to_numpy(dtype=np.float64)
        return np.hstack([self.formula.matrix(self._filled(X)), indicators])

    def offset(self, X: Any) -> npt.NDArray[np.float64]:
        """The sum of the offsets of the formula."""
        return self.formula.offset(self._filled(X))

    def _filled(self, X: pd.DataFrame) -> pd.DataFrame:
        for column in self.preprocessor.columns:
            values = X[column.name]
            if values.isna().any():
                fill = column.centre if isinstance(column, NumericColumn) else column.levels[0]
                X = X.assign(**{column.name: values.astype(object).where(values.notna(), fill)})
        return X


class Basis:
    """The columns of a matrix that earlier ones do not explain, and an orthogonal basis of the space they span.

    Columns are centred and brought to length one, then taken in their order (Gram-Schmidt, each column twice). One
    that is constant up to 1e-12 of its largest value, or of which a length of at most 1e-7 is left, is dropped.

    Parameters
    ----------
    matrix : ndarray of shape (n, p)

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

    def __init__(self, matrix: npt.NDArray[np.float64]) -> None:
        n, p = matrix.shape
        size = np.abs(matrix).max(axis=0, initial=0.0)
        size = np.where(size > _SMALLEST, size, 1.0)
        unit = np.asfortranarray(matrix / size)
        unit = unit - unit.mean(axis=0) if n else unit
        length = np.sqrt((unit**2).sum(axis=0))
        q, r = np.zeros((n, min(n, p)), order="F"), np.zeros((min(n, p), min(n, p)))
        kept: list[int] = []
        self.dropped: dict[int, list[int]] = {}
        for j in range(p):
            k = len(kept)
            if length[j] <= _CONSTANT * np.sqrt(n):
                self.dropped[j] = []
                continue
            rest, shares = unit[:, j] / length[j], np.zeros(k)
            for _ in range(2):
                more = q[:, :k].T @ rest
                rest, shares = rest - q[:, :k] @ more, shares + more
            left = float(np.sqrt(rest @ rest))
            if left <= _DEPENDENT or k == r.shape[0]:
                used = solve_triangular(r[:k, :k], shares)
                self.dropped[j] = [kept[i] for i in np.flatnonzero(np.abs(used) > 10 * _DEPENDENT)]
                continue
            q[:, k], r[:k, k], r[k, k] = rest / left, shares, left
            kept.append(j)
        k = len(kept)
        self.kept = np.array(kept, dtype=np.int64)
        self.columns = q[:, :k] * np.sqrt(n)
        self.transform = np.linalg.inv(r[:k, :k]) * np.sqrt(n) / (size * length)[self.kept, None]


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

    def __init__(
        self,
        matrix: npt.NDArray[np.float64],
        centre: npt.NDArray[np.float64],
        weight: npt.NDArray[np.float64] | None,
        alpha: float,
    ) -> None:
        n, p = matrix.shape
        self.columns, scale = standardise(matrix, centre, weight)
        self.kept, self.outside = np.arange(p), np.zeros(p)
        if p <= n:
            self.transform = np.diag(1.0 / scale)
        else:
            u, d, v = np.linalg.svd(self.columns, full_matrices=False)
            self.columns, self.transform = u * d, v.T / scale[:, None]
            self.outside = np.maximum(1.0 - (v**2).sum(axis=0), 0.0) / (alpha * scale**2)


def standardise(
    matrix: Matrix, centre: npt.NDArray[np.float64], weight: npt.NDArray[np.float64] | None
) -> tuple[Any, npt.NDArray[np.float64]]:
    """Columns less their means and divided by their standard deviations, and these; 1 for a constant column."""
    if sparse.issparse(matrix):
        scale, size = column_widths(matrix, centre, weight), abs(matrix).max(axis=0).toarray().reshape(-1)
    else:
        scale = matrix.std(axis=0) if weight is None else np.sqrt(np.average((matrix - centre) ** 2, 0, weight))
        size = np.abs(matrix).max(axis=0, initial=0.0)
    scale = np.where((scale > _CONSTANT * size) & (size > _SMALLEST), scale, 1.0)
    return StandardisedColumns(matrix, centre, scale) if sparse.issparse(matrix) else (matrix - centre) / scale, scale


def within_strata(matrix: npt.NDArray[np.float64], stratum: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Columns less their means in each stratum; zero where a column is constant in all."""
    _, place = np.unique(stratum, return_inverse=True)
    sums = np.zeros((int(place.max(initial=-1)) + 1, matrix.shape[1]))
    np.add.at(sums, place, matrix)
    centred = matrix - (sums / np.bincount(place)[:, None])[place]
    constant = np.abs(centred).max(axis=0, initial=0.0) <= 1e-12 * np.abs(matrix).max(axis=0, initial=0.0)
    return np.where(constant, 0.0, centred)
