"""Columns that tell strata: read apart from the covariates, their values kept in words."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.model_files import as_list, as_text
from sumosurv.warn import warn_user

__all__ = ["Strata", "column_list"]

Whole = npt.NDArray[np.int64]


@dataclass
class Strata:
    """The columns of the strata, and the combinations of values that the training rows have.

    Parameters
    ----------
    columns : list
        Names, or positions in an array; none where there are no strata.
    labels : list of tuple of str, optional
        The combinations, in words: numbers as ``repr(float)``, ``"missing"`` where there is no value.
    """

    columns: list[Hashable] = field(default_factory=list)
    labels: list[tuple[str, ...]] | None = None

    @classmethod
    def of(cls, X: Any, strata: Hashable | Sequence[Hashable] | None) -> Strata:
        """Of a setting, checked against the columns of a table."""
        wanted = column_list(strata)
        there = list(X.columns) if isinstance(X, pd.DataFrame) else list(range(np.shape(X)[1]))
        unknown = [column for column in wanted if column not in there]
        if unknown:
            kind = "columns" if isinstance(X, pd.DataFrame) else "positions"
            shown = ", ".join(map(repr, there[:10])) + (", ..." if len(there) > 10 else "")
            raise ValueError(f"strata names {unknown[0]!r}, and X has the {kind} {shown}.")
        if wanted and len(set(wanted)) == len(there):
            raise ValueError("strata names all columns of X; at least one must be left to have a coefficient.")
        return cls(list(dict.fromkeys(wanted)))

    @classmethod
    def restored(cls, strata: Any, labels: Any, names: Any) -> Strata:
        """From the setting and the labels of a model file, checked."""
        columns = list(dict.fromkeys(column_list(strata)))
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
        """The covariates."""
        if not self.columns:
            return X
        return _frame(X).drop(columns=self.columns)

    def learn(self, X: Any) -> Whole | None:
        """The stratum of each training row, numbered in the order of their labels; None where there are none."""
        if not self.columns:
            return None
        words = self._words(X)
        self.labels = sorted(set(words))
        return self._numbers(words)

    def warn_without_events(self, stratum: Whole | None, had_event: npt.NDArray[np.bool_]) -> None:
        """Issue a warning if some strata of the training rows, but not all, have no events."""
        if stratum is None or self.labels is None or not had_event.any():
            return
        events = np.bincount(stratum, weights=had_event, minlength=len(self.labels))
        empty = [", ".join(self.labels[k]) for k in np.flatnonzero(events == 0)]
        if empty:
            more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
            warn_user(
                f"There are no events in stratum {empty[0]!r}{more} of {', '.join(map(repr, self.columns))}: predicted "
                "survival stays at 1 there. Merge strata, or use the column as a covariate."
            )

    def find(self, X: Any) -> Whole | None:
        """The stratum of each row; a ValueError where one was not seen in training, and so has no baseline."""
        if not self.columns:
            return None
        assert self.labels is not None
        words = self._words(X)
        known = set(self.labels)
        new = [i for i, label in enumerate(words) if label not in known]
        if new:
            told = ", ".join(f"{column}={value}" for column, value in zip(self.columns, words[new[0]]))
            raise ValueError(
                f"{len(new)} rows are in strata without training rows, first row {new[0]} ({told}); these "
                "strata have no baseline hazard. Drop the rows, or use the column as a covariate."
            )
        return self._numbers(words)

    def _words(self, X: Any) -> list[tuple[str, ...]]:
        frame = _frame(X)
        return list(zip(*([_in_words(value) for value in frame[column]] for column in self.columns)))

    def _numbers(self, words: list[tuple[str, ...]]) -> Whole:
        assert self.labels is not None
        places = {label: i for i, label in enumerate(self.labels)}
        return np.array([places[label] for label in words], dtype=np.int64)


def column_list(strata: Any) -> list[Hashable]:
    """The columns of a setting: none, one or several."""
    if strata is None:
        return []
    return list(strata) if isinstance(strata, (list, tuple, np.ndarray, pd.Index)) else [strata]


def _frame(X: Any) -> pd.DataFrame:
    return X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))


def _in_words(value: Any) -> str:
    if value is None or value is pd.NA or value is pd.NaT or value != value:
        return "missing"
    return repr(float(value)) if isinstance(value, (bool, int, float, np.number, np.bool_)) else str(value)
