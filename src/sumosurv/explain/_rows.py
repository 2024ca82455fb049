"""Tables of covariates, DataFrames or arrays, in which explanations replace and mix columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.outcome import as_pandas
from sumosurv.outcome.checks import check_weight
from sumosurv.preprocessing import is_categorical
from sumosurv.sources import take_rows

Kind = Literal["number", "category"]
Places = npt.NDArray[np.int64]


class Rows:
    """A table of covariates: ``table`` as it was given, and ``frame``, the same as a DataFrame.

    Parameters
    ----------
    X : DataFrame or array of shape (rows, columns)
    """

    def __init__(self, X: Any) -> None:
        table = as_pandas(X)
        if isinstance(table, pd.Series):
            raise ValueError("X must be a table; for one row, pass X.iloc[[i]], with two pairs of brackets.")
        self.table = table if isinstance(table, (pd.DataFrame, np.ndarray)) else np.asarray(table)
        if self.table.ndim != 2:
            raise ValueError(
                f"Explanations require a table with columns; got an array of shape {self.table.shape}. Images and "
                "sequences are not supported."
            )
        if 0 in self.table.shape:
            raise ValueError(f"X needs at least one row and one column; got shape {self.table.shape}.")
        self.is_array = isinstance(self.table, np.ndarray)
        self.frame = pd.DataFrame(self.table)
        self.names = [f"x{label}" if self.is_array else str(label) for label in self.frame.columns]

    def __len__(self) -> int:
        return len(self.table)

    @property
    def n_columns(self) -> int:
        """The number of columns."""
        return len(self.names)

    def place(self, column: Any) -> int:
        """Return the position of a column that was given by its name or, in an array, by its position."""
        for labels in (list(self.frame.columns), self.names):
            if column in labels:
                return labels.index(column)
        shown = ", ".join(self.names[:12]) + (", ..." if self.n_columns > 12 else "")
        raise ValueError(f"X has no column {column!r}; its columns are {shown}.")

    def column(self, place: int) -> pd.Series:
        """Return one column, with rows numbered from zero."""
        return self.frame.iloc[:, place].reset_index(drop=True).rename(self.names[place])

    def kind(self, place: int) -> Kind:
        """Return how estimators read the column."""
        return "category" if is_categorical(self.column(place)) else "number"

    def take(self, rows: Any) -> Rows:
        """Return some of the rows, repeats allowed."""
        return Rows(take_rows(self.table, rows))

    def below(self, others: Rows) -> Rows:
        """Return these rows, with those of another table with the same columns below them."""
        if others.names != self.names:
            raise ValueError(f"The two tables have different columns: {self.names} and {others.names}.")
        if self.is_array != others.is_array:
            raise TypeError("One table is a DataFrame and the other an array; pass both in the form used for training.")
        if self.is_array:
            return Rows(np.concatenate([self.table, others.table]))
        columns = enumerate(self.frame.columns)
        return Rows(pd.DataFrame({label: _joined(self.column(i), others.column(i)) for i, label in columns}))

    def mixed(self, places: Places) -> Any:
        """Return a table in which each cell comes from its own row; ``places``, (r, columns), are the row numbers."""
        if self.is_array:
            return self.table[places, np.arange(self.n_columns)]
        columns = enumerate(self.frame.columns)
        return pd.DataFrame({label: self.frame.iloc[:, j].array.take(places[:, j]) for j, label in columns})

    def replaced(self, values: Mapping[int, pd.Series]) -> Any:
        """Return the table with some columns replaced, by position."""
        frame = self.frame.reset_index(drop=True)
        for place, new in values.items():
            frame.isetitem(place, new.array)
        return frame.to_numpy() if self.is_array else frame

    def players(self, columns: Any = None, *, all_columns: bool = False) -> dict[str, list[int]]:
        """Return the positions of columns, or of groups of columns that go together, by name.

        Parameters
        ----------
        columns : sequence of columns, or mapping of names to columns, optional
            All columns, each on its own, by default.
        all_columns : bool
            Add the columns that are not named, each on its own.
        """
        if columns is None:
            return {name: [place] for place, name in enumerate(self.names)}
        if isinstance(columns, Mapping):
            made = {str(name): [self.place(one) for one in _listed(own)] for name, own in columns.items()}
        else:
            made = {self.names[place]: [place] for place in map(self.place, _listed(columns))}
        taken = [place for places in made.values() for place in places]
        if not taken or len(set(taken)) < len(taken) or not all(made.values()):
            raise ValueError(f"Name each column once, and at least one; got {columns!r}.")
        if all_columns:
            made |= {name: [place] for place, name in enumerate(self.names) if place not in taken}
        return made

    def series(self, place: int, values: Sequence[Any]) -> pd.Series:
        """Return values for a column, with the dtype of the column if it can hold them; other numbers are float64."""
        own = self.column(place)
        if isinstance(own.dtype, pd.CategoricalDtype):
            unknown = [value for value in values if not pd.isna(value) and value not in own.cat.categories]
            if unknown:
                known = ", ".join(map(repr, own.cat.categories[:8]))
                raise ValueError(f"Column {own.name!r} has the categories {known}; got {unknown[0]!r}.")
            return pd.Series(pd.Categorical(values, dtype=own.dtype), name=own.name)
        plain = pd.Series(list(values), name=own.name)
        if self.kind(place) == "category":
            return plain.astype(own.dtype)
        if not pd.api.types.is_numeric_dtype(plain.dtype) or pd.api.types.is_bool_dtype(plain.dtype):
            raise ValueError(f"Column {own.name!r} holds numbers; got {values[0]!r}.")
        cast = plain.astype(own.dtype) if own.dtype != object else plain
        return cast if (cast.eq(plain) | plain.isna()).all() else plain.astype(np.float64)

    def grid(self, place: int, values: Any, n_values: int, weight: Any = None) -> pd.Series:
        """Return the given values of a column; by default, its levels or its quantiles from 2.5 to 97.5 %."""
        own = self.column(place)
        if values is not None:
            given = list(np.asarray(values, dtype=object).ravel()) if not isinstance(values, str) else [values]
            if not given:
                raise ValueError(f"Give at least one value of column {own.name!r}, or leave values out.")
            return self.series(place, given)
        known = own.notna().to_numpy()
        present = own[known]
        if len(present) == 0:
            raise ValueError(f"Column {own.name!r} has no value that is not missing.")
        if self.kind(place) == "category":
            if isinstance(own.dtype, pd.CategoricalDtype):
                return self.series(place, [level for level in own.cat.categories if (present == level).any()])
            return self.series(place, sorted(present.unique(), key=lambda level: (str(type(level)), level)))
        numbers = present.to_numpy(dtype=np.float64)
        chosen = np.unique(numbers)
        if len(chosen) > n_values:
            share = np.ones(len(numbers)) if weight is None else weight[known]
            chosen = distinct_quantiles(numbers, share, np.linspace(0.025, 0.975, n_values))
        return self.series(place, chosen.tolist())


def _listed(columns: Any) -> list[Any]:
    return [columns] if isinstance(columns, (str, int, np.integer)) else list(columns)


def _joined(first: pd.Series, second: pd.Series) -> pd.Series:
    """Return two columns one below the other, with the categories of both."""
    if isinstance(first.dtype, pd.CategoricalDtype) and first.dtype != second.dtype:
        levels = list(first.cat.categories)
        if isinstance(second.dtype, pd.CategoricalDtype):
            levels += [level for level in second.cat.categories if level not in levels]
        else:
            levels += [level for level in second.dropna().unique() if level not in levels]
        joint = pd.CategoricalDtype(levels, ordered=bool(first.cat.ordered))
        first, second = first.astype(joint), second.astype(joint)
    return pd.concat([first, second], ignore_index=True)


def distinct_quantiles(
    numbers: npt.NDArray[np.float64], weight: npt.NDArray[np.float64], levels: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the smallest numbers up to which at least the given shares of the weight lie, each once."""
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(weight[order])
    return np.unique(numbers[order][np.searchsorted(ends, levels * ends[-1] * (1.0 - 1e-12))])  # rounding skips no row


def drawn_rows(
    rows: Rows, sample_weight: Any, max_rows: int | None, random_state: Any
) -> tuple[Rows, npt.NDArray[np.float64] | None]:
    """Return the rows of positive weight, or ``max_rows`` of them drawn at random, and their weights."""
    most = check_count("max_rows", max_rows, len(rows))
    weight = None if sample_weight is None else check_weight(sample_weight, len(rows))
    kept = np.arange(len(rows)) if weight is None else np.flatnonzero(weight)
    if len(kept) > most:
        kept = np.sort(np.random.default_rng(random_state).permutation(kept)[:most])
    return rows.take(kept), None if weight is None else weight[kept]


def check_count(name: str, value: Any, default: int) -> int:
    """Check a positive integer; None stands for the default."""
    if value is None:
        return default
    if not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a positive integer or None; got {value!r}.")
    return int(value)
