"""Predictions as tables: the index of X, and what was asked for as columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["framed", "incidence_frame"]


def framed(values: npt.NDArray[np.float64], X: Any, label: str, asked: Any = None, name: str | None = None) -> Any:
    """A Series of one number for each row, or a DataFrame whose columns are the numbers that were asked for.

    Parameters
    ----------
    values : array of shape (rows,) or (rows, m)
    X : covariates
        Whose index is kept, where it has one.
    label : str
        What the columns are: times, levels, horizons.
    asked : array of shape (m,), optional
    name : str, optional
        Of a Series; the label by default.
    """
    if values.ndim == 1:
        return pd.Series(values, index=_index(X), name=name or label)
    return pd.DataFrame(values, index=_index(X), columns=pd.Index(np.asarray(asked, dtype=np.float64), name=label))


def incidence_frame(values: npt.NDArray[np.float64], X: Any, times: npt.NDArray[np.float64]) -> Any:
    """Incidences (rows, times, causes) with two levels of columns: cause, time."""
    causes = np.arange(1, values.shape[2] + 1)
    columns = pd.MultiIndex.from_product([causes, times], names=["cause", "time"])
    return pd.DataFrame(values.transpose(0, 2, 1).reshape(len(values), -1), index=_index(X), columns=columns)


def _index(X: Any) -> Any:
    index = getattr(X, "index", None)
    return index if isinstance(index, pd.Index) else None
