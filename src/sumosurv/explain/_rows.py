"""Tables of covariates, DataFrames or arrays, with single columns replaced: what all explanations do to rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.outcome import as_pandas
from sumosurv.outcome.checks import check_weight
from sumosurv.preprocessing import is_categorical

Kind = Literal["number", "category"]
Places = npt.NDArray[np.int64]


class Rows:
    """A table of covariates, as it was given.

    Parameters
    ----------
    X : DataFrame or array of shape (rows, columns)
    """

    def __init__(self, X: Any) -> None:
        table = as_pandas(X)
        if isinstance(table, pd.Series):
            raise ValueError("X is a table; for one row pass X.iloc[[i]], with two pairs of brackets.")
        table = table if isinstance(table, (pd.DataFrame, np.ndarray)) else np.asarray(table)
        if table.ndim != 2:
            raise ValueError(
                f"Explanations require a table with columns; got an array of shape {table.shape}. Images and "
                "sequences are not supported."
            )
        if len(table) == 0 or table.shape[1] == 0:
            raise ValueError(f"X needs at least one row and one column; got shape {table.shape}.")
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    @property
    def n_columns(self) -> int:
        """The number of columns."""
        return int(self.table.shape[1])

    @property
    def names(self) -> list[str]:
        """The columns' names: those of a DataFrame; x0, x1 and so on of an array."""
        if isinstance(self.table, pd.DataFrame):
            return [str(name) for name in self.table.columns]
        return [f"x{place}" for place in range(self.n_columns)]

    def place(self, column: Any) -> int:
        """The position of a column that was given by its name or, in an array, by its position."""
        labels = list(self.table.columns) if isinstance(self.table, pd.DataFrame) else list(range(self.n_columns))
        if column in labels:
            return labels.index(column)
        if column in self.names:
            return self.names.index(column)
        shown = ", ".join(self.names[:12]) + (", ..." if self.n_columns > 12 else "")
        raise ValueError(f"X has no column {column!r}; its columns are {shown}.")

    def column(self, place: int) -> pd.Series:
        """One column, rows numbered from zero."""
        values = self.table.iloc[:, place] if isinstance(self.table, pd.DataFrame) else pd.Series(self.table[:, place])
        return values.reset_index(drop=True).rename(self.names[place])

    def kind(self, place: int) -> Kind:
        """How estimators read the column."""
        return "category" if is_categorical(self.column(place)) else "number"

    def take(self, rows: Any) -> Rows:
        """Some of the rows, repeats allowed."""
        return Rows(self.table.iloc[rows] if isinstance(self.table, pd.DataFrame) else self.table[rows])

    def below(self, others: Rows) -> Rows:
        """These rows, and those of another table with the same columns below them."""
        if others.names != self.names:
            raise ValueError(f"The two tables have different columns: {self.names} and {others.names}.")
        if isinstance(self.table, pd.DataFrame) and isinstance(others.table, pd.DataFrame):
            columns = {
                label: _joined(self.column(place), others.column(place))
                for place, label in enumerate(self.table.columns)
            }
            return Rows(pd.DataFrame(columns))
        if isinstance(self.table, pd.DataFrame) or isinstance(others.table, pd.DataFrame):
            raise TypeError("One table is a DataFrame and the other an array; pass both in the form used for training.")
        return Rows(np.concatenate([self.table, others.table]))

    def mixed(self, places: Places) -> Any:
        """A table each of whose cells comes from a row of its own.

        Parameters
        ----------
        places : int array of shape (r, columns)
            The row that each cell is taken from.
        """
        if isinstance(self.table, np.ndarray):
            return self.table[places, np.arange(self.n_columns)]
        columns = {label: self.table.iloc[:, j].array.take(places[:, j]) for j, label in enumerate(self.table.columns)}
        return pd.DataFrame(columns)

    def replaced(self, values: Mapping[int, Any]) -> Any:
        """The table with some columns replaced, by position: a value for all rows, or a Series with one for each."""
        if isinstance(self.table, np.ndarray):
            kept = [self.table.dtype, *(np.asarray(given).dtype for given in values.values())]
            made = self.table.astype(object if object in kept else np.result_type(*kept))
            for place, given in values.items():
                made[:, place] = given
            return made
        frame = self.table.reset_index(drop=True)
        for place, given in values.items():
            new = given if isinstance(given, pd.Series) else self.series(place, [given] * len(frame))
            frame.isetitem(place, new.array)
        return frame

    def players(self, columns: Any = None, *, all_columns: bool = False) -> dict[str, list[int]]:
        """Columns, or groups of columns that go together, by name: positions.

        Parameters
        ----------
        columns : sequence of columns, or mapping of names to columns, optional
            All columns, each on its own, by default.
        all_columns : bool
            Let the columns that are not named follow, each on its own.
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
        """Values for a column, of its own dtype where that can hold them; of numbers, else as real numbers."""
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
        """The values at which a column is looked: as given; else levels that occur, or quantiles from 2.5 to 97.5 %."""
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
    """Two columns one below the other; categories are joined too."""
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
    """The rows of positive weight, or ``max_rows`` of them drawn at random, and their weights."""
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
