"""Partial dependence and individual curves: predictions when one column, or two, are set to given values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.explain._quantity import (
    Array,
    Quantity,
    QuantityName,
    QuantityPredictor,
    as_text,
    counted,
    explanation,
    quantity_predictor,
    table_at_times,
)
from sumosurv.explain._rows import Kind, Rows, check_count, drawn_rows
from sumosurv.quantiles import check_level

_ROWS = 20_000  # predicted at once


@dataclass(frozen=True, eq=False, repr=False)
class Effect:
    """Predictions along one column, or two: the result of `partial_dependence` and `accumulated_local_effects`.

    Attributes
    ----------
    method : {"partial dependence", "accumulated local effects"}
    columns : tuple of one or two str
    kinds : tuple of {"number", "category"}
    grid : tuple of arrays
        The values of each column.
    quantity : Quantity
        What is predicted, and at which times.
    mean : ndarray of shape (g, m), or (g, h, m) for two columns
        Partial dependence: the mean prediction. Accumulated local effects: their sum, centred at zero.
    low, high : ndarrays of the same shape, or None
        Limits between which a share ``level`` of the members lies, by weight; None if the model has one member.
    level : float
    individual : ndarray of shape (n, g, m) or None
        The curve of each row (ICE); of partial dependence on one column.
    observed : tuple of arrays
        The values of the columns in the rows in which none of them is missing.
    n_rows : int
        Number of rows used.
    """

    method: Literal["partial dependence", "accumulated local effects"]
    columns: tuple[str, ...]
    kinds: tuple[Kind, ...]
    grid: tuple[Any, ...]
    quantity: Quantity
    mean: Array
    low: Array | None
    high: Array | None
    level: float
    individual: Array | None
    observed: tuple[Any, ...]
    n_rows: int

    def to_frame(self) -> pd.DataFrame:
        """One line for each value (or pair of values) and time."""
        points = list(product(*self.grid))
        times = self.quantity.columns
        made = pd.DataFrame([point for point in points for _ in times], columns=list(self.columns))
        if self.quantity.name != "median":
            made["time"] = np.tile(times, len(points))
        made["value"] = self.mean.ravel()
        if self.low is not None and self.high is not None:
            made["low"], made["high"] = self.low.ravel(), self.high.ravel()
        return made

    def __repr__(self) -> str:
        head = f"{self.method.capitalize()} of the {self.quantity.label} on {' and '.join(self.columns)}"
        head += f", {counted(self.n_rows, 'row')}"
        names = [", ".join(map(as_text, point)) for point in product(*self.grid)]
        values = self.mean.reshape(len(names), -1)
        shown = np.unique(np.linspace(0, len(names) - 1, min(12, len(names))).round().astype(int))
        return head + "\n" + table_at_times(values[shown], [names[i] for i in shown], self.quantity)


@explanation
def partial_dependence(
    model: Any,
    X: Any,
    columns: Any,
    *,
    quantity: QuantityName | None = None,
    times: Any = None,
    cause: int | None = None,
    values: Any = None,
    n_values: int | None = None,
    max_rows: int | None = 500,
    level: float = 0.95,
    sample_weight: Any = None,
    random_state: Any = 0,
) -> Effect:
    r"""Mean prediction with a column set to given values in all rows, and the curve of each row (ICE).

    .. math:: \frac{1}{n} \sum_i S(t \mid x_j = v, \; \text{all other columns of row } i).

    It shows how predictions change with the column, with all others unchanged. If the column is correlated with others,
    some of these rows are unlike any in the data, and the model extrapolates; `accumulated_local_effects` avoids that.
    The effect is not causal.

    Parameters
    ----------
    model : fitted estimator, or pipeline or search around one
    X : DataFrame or array
        The rows to average over.
    columns : column, or pair of columns
        By name; in arrays by position.
    quantity : str, optional
        One of "survival", "cumulative_incidence", "cumulative_hazard", "median", "restricted_mean",
        "restricted_time_lost". Survival by default; with a cause, its cumulative incidence.
    times : float or array of shape (m,), optional
        Times of the curve, or horizons of restricted means. By default 50 equal steps up to the last training time, or
        that time.
    cause : int, optional
        Competing cause, counted from one.
    values : array, or pair of arrays, optional
        Values of the columns. By default all levels of a category, and all values of a number if they are few, else
        quantiles from 2.5 to 97.5 %.
    n_values : int, optional
        Number of quantiles; 20 for one column and 10 for each of two by default.
    max_rows : int or None
        Largest number of rows; a larger table is sampled at random. None for all rows.
    level : float
        Share of the ensemble members between ``low`` and ``high``.
    sample_weight : array of shape (rows,), optional
        Number of rows that each row represents.
    random_state : seed or numpy.random.Generator

    Returns
    -------
    Effect

    Examples
    --------
    >>> from sumosurv import CoxPH, datasets
    >>> from sumosurv.explain import partial_dependence
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = CoxPH().fit(data.X, data.y)
    >>> effect = partial_dependence(model, data.X, "x", times=[0.5, 1.0], values=[0.2, 0.8])
    >>> effect.mean.shape, effect.individual.shape
    ((2, 2), (300, 2, 2))
    """
    level = check_level(level)
    rows, weight = drawn_rows(Rows(X), sample_weight, max_rows, random_state)
    predictor = quantity_predictor(model, rows, quantity, times, cause)
    pair = isinstance(columns, (tuple, list))
    places = [rows.place(column) for column in (columns if pair else [columns])]
    if not 1 <= len(places) <= 2 or len(set(places)) < len(places):
        raise ValueError(f"columns must be one column or a pair of different columns; got {columns!r}.")
    n_values = check_count("n_values", n_values, 20 if len(places) == 1 else 10)
    given = [None] * len(places) if values is None else list(values) if len(places) == 2 else [values]
    if len(given) != len(places):
        raise ValueError(f"values must have an array for each column, ([...], [...]); got {len(given)}.")
    grids = [rows.grid(place, own, n_values, weight) for place, own in zip(places, given)]
    shape = tuple(len(grid) for grid in grids)
    settings = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, len(places))
    mean, by_member, individual = _at_settings(predictor, rows, weight, places, grids, settings, keep=len(places) == 1)
    low, high = predictor.limits(by_member.reshape(len(by_member), *shape, -1), level)
    observed = pd.concat([rows.column(place) for place in places], axis=1).dropna()
    return Effect(
        method="partial dependence",
        columns=tuple(rows.names[place] for place in places),
        kinds=tuple(rows.kind(place) for place in places),
        grid=tuple(grid.to_numpy() for grid in grids),
        quantity=predictor.quantity,
        mean=mean.reshape(*shape, -1),
        low=low,
        high=high,
        level=level,
        individual=individual,
        observed=tuple(observed.iloc[:, i].to_numpy() for i in range(len(places))),
        n_rows=len(rows),
    )


def _at_settings(
    predictor: QuantityPredictor,
    rows: Rows,
    weight: Array | None,
    places: Sequence[int],
    grids: Sequence[pd.Series],
    settings: npt.NDArray[np.int64],
    *,
    keep: bool,
) -> tuple[Array, Array, Array | None]:
    """Predictions for each setting of the columns: their mean (s, m), by member (k, s, m), of each row (n, s, m)."""
    n = len(rows)
    share = np.full(n, 1.0 / n) if weight is None else weight / weight.sum()
    step = max(1, _ROWS // n)
    means, by_member, kept = [], [], []
    for start in range(0, len(settings), step):
        block = settings[start : start + step]
        new = {
            place: grid.take(np.repeat(block[:, i], n)).reset_index(drop=True)
            for i, (place, grid) in enumerate(zip(places, grids))
        }
        table = rows.take(np.tile(np.arange(n), len(block))).replaced(new)
        values, each = predictor.with_members(table)
        values = values.reshape(len(block), n, -1)
        means.append(np.einsum("n,snm->sm", share, values))
        by_member.append(np.einsum("n,ksnm->ksm", share, each.reshape(len(each), *values.shape)))
        if keep:
            kept.append(values.swapaxes(0, 1))
    individual = np.concatenate(kept, axis=1) if keep else None
    return np.concatenate(means), np.concatenate(by_member, axis=1), individual
