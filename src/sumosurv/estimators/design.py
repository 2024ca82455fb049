"""A table of covariates as a matrix of named numbers, and the strata of its rows."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse

from sumosurv.formulas import Formula
from sumosurv.model_files import as_list, as_text
from sumosurv.preprocessing import CategoricalColumn, NumericColumn, Preprocessor
from sumosurv.warn import warn_user

__all__ = ["Design", "FormulaDesign", "Strata", "column_list"]

Whole = npt.NDArray[np.int64]


class Design:
    """Columns of numbers as they are, one 0/1 column for each level of a category but the first.

    A missing number becomes the mean of the training rows. If the training rows had missing values in a column, a 0/1
    column shows them for numbers, and missing is a separate level for categories. A level that was not seen in
    training is read as the first one.

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
        n_numbers = 0
        for column in preprocessor.columns:
            if isinstance(column, NumericColumn):
                own = [column.name, f"{column.name}[missing]"] if column.indicator else [column.name]
                n_numbers += len(own)
            else:
                self._coded.append((n_numbers, column))
                own = [f"{column.name}[missing]"] if column.missing_seen else []
                own += [f"{column.name}[{level}]" for level in column.levels[1:]]
            self.names += own
            self.sources += [column.name] * len(own)

    def matrix(self, X: Any) -> Any:
        """Rows of X as rows of numbers, one column per name; a sparse matrix stays as it is."""
        if sparse.issparse(X):
            if self._coded or len(self.names) > len(self.preprocessor.columns):
                raise ValueError("Training rows had categories or missing values; pass a DataFrame, as in training.")
            return X
        numbers, codes = self.preprocessor.table(X, scaled=False)
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


@dataclass
class Strata:
    """The columns of the strata, and the combinations of values that the training rows have.

    Parameters
    ----------
    columns : list
        Names, or positions in an array; empty if there are no strata.
    labels : list of tuple of str, optional
        The combinations as text: numbers as ``repr(float)``, ``"missing"`` for a missing value.
    """

    columns: list[Hashable] = field(default_factory=list)
    labels: list[tuple[str, ...]] | None = None

    @classmethod
    def of(cls, X: Any, columns: list[Hashable]) -> Strata:
        """The strata of some columns, checked against those of a table."""
        there = list(X.columns) if isinstance(X, pd.DataFrame) else list(range(np.shape(X)[1]))
        unknown = [column for column in columns if column not in there]
        if unknown:
            kind = "columns" if isinstance(X, pd.DataFrame) else "positions"
            shown = ", ".join(map(repr, there[:10])) + (", ..." if len(there) > 10 else "")
            raise ValueError(f"strata names {unknown[0]!r}, but X has the {kind} {shown}.")
        if columns and len(columns) == len(there):
            raise ValueError("strata names all columns of X; at least one must be left to have a coefficient.")
        return cls(columns)

    @classmethod
    def restored(cls, columns: list[Hashable], labels: Any, names: Any) -> Strata:
        """From the columns and the labels of a model file, checked."""
        if bool(columns) != (labels is not None):
            raise ValueError("the description of the strata is incomplete")
        if labels is None:
            return cls()
        if names is not None and not {str(column) for column in columns} <= set(names):
            raise ValueError("the strata refer to unknown columns")
        read = [tuple(as_text(part, "a stratum") for part in as_list(label, "a stratum")) for label in labels]
        if not read or len(set(read)) < len(read) or any(len(label) != len(columns) for label in read):
            raise ValueError("the strata do not fit their columns")
        return cls(columns, read)

    def without(self, X: Any) -> Any:
        """The columns of X that do not define strata."""
        return _frame(X).drop(columns=self.columns) if self.columns else X

    def learn(self, X: Any, had_event: npt.NDArray[np.bool_]) -> Whole | None:
        """The stratum of each training row, numbered in the order of their labels; None if there are no strata.

        A warning is issued if some strata, but not all, have no events.
        """
        if not self.columns:
            return None
        self.labels = sorted(set(self._words(X)))
        stratum = self.find(X)
        assert stratum is not None
        events = np.bincount(stratum, weights=had_event, minlength=len(self.labels))
        empty = [", ".join(self.labels[k]) for k in np.flatnonzero(events == 0)]
        if empty and had_event.any():
            more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
            warn_user(
                f"There are no events in stratum {empty[0]!r}{more} of {', '.join(map(repr, self.columns))}: predicted "
                "survival stays at 1 there. Merge strata, or use the column as a covariate."
            )
        return stratum

    def find(self, X: Any) -> Whole | None:
        """The stratum of each row, None if there are no strata; ValueError for a stratum without training rows."""
        if not self.columns:
            return None
        words, places = self._words(X), {label: i for i, label in enumerate(self.labels or [])}
        found = np.array([places.get(label, -1) for label in words], dtype=np.int64)
        new = np.flatnonzero(found < 0)
        if len(new):
            told = ", ".join(f"{column}={value}" for column, value in zip(self.columns, words[new[0]]))
            raise ValueError(
                f"{len(new)} rows are in strata without training rows, first row {new[0]} ({told}); these "
                "strata have no baseline hazard. Drop the rows, or use the column as a covariate."
            )
        return found

    def _words(self, X: Any) -> list[tuple[str, ...]]:
        frame = _frame(X)
        return list(zip(*([_in_words(value) for value in frame[column]] for column in self.columns)))


def column_list(strata: Any) -> list[Hashable]:
    """The columns of a setting: none, one or several, each once."""
    if strata is None:
        return []
    return list(dict.fromkeys(strata if isinstance(strata, (list, tuple, np.ndarray, pd.Index)) else [strata]))


def _frame(X: Any) -> pd.DataFrame:
    return X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))


def _in_words(value: Any) -> str:
    if value is None or value is pd.NA or value is pd.NaT or value != value:
        return "missing"
    return repr(float(value)) if isinstance(value, (bool, int, float, np.number, np.bool_)) else str(value)
