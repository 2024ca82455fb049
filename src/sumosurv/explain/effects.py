"""Effects of one column, or two: partial dependence with individual curves, and accumulated local effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.confidence import check_level
from sumosurv.explain._quantity import (
    Array,
    Quantity,
    QuantityName,
    QuantityPredictor,
    as_text,
    explanation,
    quantity_predictor,
    table_at_times,
)
from sumosurv.explain._rows import Kind, Rows, check_count, distinct_quantiles, drawn_rows
from sumosurv.outcome.checks import how_many

Method = Literal["partial dependence", "accumulated local effects"]


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
        The curve of each row (ICE), for partial dependence on one column.
    observed : tuple of arrays
        The values of the columns in the rows in which none of them is missing.
    n_rows : int
        Number of rows used.
    """

    method: Method
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
        """Return a table with one row per value (or pair of values) and time."""
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
        head += f", {how_many(self.n_rows, 'row')}"
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
    cause: int | Sequence[int] | None = None,
    values: Any = None,
    n_values: int | None = None,
    max_rows: int | None = 500,
    level: float = 0.95,
    sample_weight: Any = None,
    random_state: Any = 0,
) -> Any:
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
        Times of the curve, or horizons of restricted means. The default is 50 equal steps up to the last training time
        for a curve, and the last training time for a restricted mean.
    cause : int or sequence of int, optional
        Competing cause, counted from one; several causes for their cumulative incidences from the same predictions.
    values : array, or pair of arrays, optional
        Values of the columns. The default is all levels of a category, and for a number all values if there are at most
        ``n_values`` of them, otherwise quantiles from 2.5 to 97.5 %.
    n_values : int, optional
        Number of quantiles; 20 for one column and 10 for each of two by default.
    max_rows : int or None, default 500
        Largest number of rows; a larger table is sampled at random. None for all rows.
    level : float, default 0.95
        Share of the ensemble members between ``low`` and ``high``.
    sample_weight : array of shape (rows,), optional
        Number of rows that each row represents.
    random_state : seed or numpy.random.Generator, default 0

    Returns
    -------
    Effect
        A list of them, one per cause, for several causes.

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
    several = isinstance(cause, Sequence)
    causes: Sequence[int | None] = cause if isinstance(cause, Sequence) else [cause]
    predictor = quantity_predictor(model, rows, quantity, times, causes[0])
    predictor = replace(predictor, causes=tuple(causes) if several else ())
    if several and predictor.quantity.name != "cumulative_incidence":
        raise ValueError(f"Several causes are possible for cumulative_incidence alone; got {quantity!r}.")
    pair = isinstance(columns, (tuple, list))
    places = [rows.place(column) for column in (columns if pair else [columns])]
    if not 1 <= len(places) <= 2 or len(set(places)) < len(places):
        raise ValueError(f"columns must be one column or a pair of different columns; got {columns!r}.")
    n_values = check_count("n_values", n_values, 20 if len(places) == 1 else 10)
    given = [None] * len(places) if values is None else list(values) if len(places) == 2 else [values]
    if len(given) != len(places):
        raise ValueError(f"values must have an array for each column, ([...], [...]); got {len(given)}.")
    grids = [rows.grid(place, own, n_values, weight) for place, own in zip(places, given)]
    n, shape = len(rows), tuple(len(grid) for grid in grids)
    settings = np.indices(shape).reshape(len(places), -1)  # the value of each column in each setting
    new = {place: grid.take(np.repeat(own, n)) for place, grid, own in zip(places, grids, settings)}
    count = settings.shape[1]
    chosen, group = np.tile(np.arange(n), count), np.repeat(np.arange(count), n)
    share = np.tile(np.ones(n) / n if weight is None else weight / weight.sum(), count)
    mean, by_member, single = predictor.averages(rows, chosen, new, group, share, keep=len(places) == 1)
    mean, by_member = mean.reshape(*shape, -1), by_member.reshape(len(by_member), *shape, -1)
    individual = np.empty(0) if single is None else single.reshape(count, n, -1).swapaxes(0, 1)
    found, m = [], mean.shape[-1] // len(causes)
    for k, one in enumerate(causes):
        part, own = slice(k * m, k * m + m), replace(predictor, quantity=replace(predictor.quantity, cause=one))
        parts, curves = (mean[..., part], by_member[..., part]), None if single is None else individual[..., part]
        found.append(_effect("partial dependence", own, rows, places, grids, parts, level, curves))
    return found if several else found[0]


def _effect(
    method: Method,
    predictor: QuantityPredictor,
    rows: Rows,
    places: Sequence[int],
    grids: Sequence[pd.Series],
    values: tuple[Array, Array],
    level: float,
    individual: Array | None = None,
) -> Effect:
    """Make the result for some columns from values of shape (g, m) or (g, h, m), and those of each member."""
    mean, by_member = values
    observed = pd.concat([rows.column(place) for place in places], axis=1).dropna()
    return Effect(
        method,
        tuple(rows.names[place] for place in places),
        tuple(rows.kind(place) for place in places),
        tuple(grid.to_numpy() for grid in grids),
        predictor.quantity,
        mean,
        *predictor.limits(by_member, level),
        level,
        individual,
        tuple(observed.iloc[:, i].to_numpy() for i in range(len(places))),
        len(rows),
    )


# ------------------------------------------------------------------ accumulated local effects


@explanation
def accumulated_local_effects(
    model: Any,
    X: Any,
    column: Any,
    *,
    quantity: QuantityName | None = None,
    times: Any = None,
    cause: int | None = None,
    n_intervals: int = 20,
    max_rows: int | None = 2000,
    level: float = 0.95,
    sample_weight: Any = None,
    random_state: Any = 0,
) -> Effect:
    r"""Mean change of the prediction along a column, each step averaged over the rows near it.

    The range of a numeric column is cut into intervals with about equally many rows. The rows of an interval are set to
    its lower and to its upper end, and the mean difference of the two predictions is its local effect. Local effects
    are added up and centred, so that their mean over the rows is zero:

    .. math:: A(v_k) = \sum_{j \le k} \operatorname{mean}_{i \text{ in interval } j}
              \{ S(t \mid v_j, x_i) - S(t \mid v_{j-1}, x_i) \} - \text{constant}.

    Rows are moved no further than to the ends of their interval, so that with correlated columns the model is evaluated
    near the data, unlike in `partial_dependence`. The effect is not causal.

    Levels of an unordered category are sorted by similarity in the other columns, and rows are set to the neighbouring
    levels.

    Parameters
    ----------
    model, X, quantity, times, cause, level, sample_weight, random_state
        As in `partial_dependence`.
    column : column
        By name; in arrays by position. Rows in which it is missing are left out.
    n_intervals : int, default 20
        Number of intervals of a numeric column; fewer if values repeat.
    max_rows : int or None, default 2000
        Largest number of rows; a larger table is sampled at random. None for all rows.

    Returns
    -------
    Effect
        Its ``mean`` has the unit of the quantity and is zero on average.

    References
    ----------
    D. W. Apley, J. Zhu: Visualizing the effects of predictor variables in black box supervised learning models, JRSS B
    82 (2020).

    Examples
    --------
    >>> from sumosurv import CoxPH, datasets
    >>> from sumosurv.explain import accumulated_local_effects
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> effect = accumulated_local_effects(CoxPH().fit(data.X, data.y), data.X, "x", times=1.0, n_intervals=5)
    >>> effect.mean.shape
    (6, 1)
    """
    level = check_level(level)
    n_intervals = check_count("n_intervals", n_intervals, 20)
    rows, weight = drawn_rows(Rows(X), sample_weight, max_rows, random_state)
    predictor = quantity_predictor(model, rows, quantity, times, cause)
    place = rows.place(column)
    known = np.flatnonzero(rows.column(place).notna())
    if len(known) == 0:
        raise ValueError(f"Column {rows.names[place]!r} is missing in all rows.")
    rows, weight = rows.take(known), None if weight is None else weight[known]
    own = np.ones(len(rows)) if weight is None else weight
    category = rows.kind(place) == "category"
    steps = _level_steps(rows, place, own) if category else _number_steps(rows, place, own, n_intervals)
    values = _accumulated(predictor, rows, place, steps, own)
    return _effect("accumulated local effects", predictor, rows, [place], [steps.grid], values, level)


@dataclass(frozen=True)
class _Steps:
    """Which rows are moved from which value to which.

    ``row[i]`` is moved from ``grid[step[i]]`` to ``grid[step[i] + 1]``. ``at[i]`` holds, for each row of the table, the
    two values between which it lies, or its own twice: the effects are centred over them.
    """

    grid: pd.Series
    row: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    at: npt.NDArray[np.int64]


def _number_steps(rows: Rows, place: int, weight: Array, n_intervals: int) -> _Steps:
    """Return intervals between quantiles; a row is moved to the two ends of its own interval."""
    numbers = rows.column(place).to_numpy(dtype=np.float64)
    edges = distinct_quantiles(numbers, weight, np.linspace(0.0, 1.0, n_intervals + 1))
    if len(edges) == 1:
        raise ValueError(f"Column {rows.names[place]!r} has only the value {edges[0]:g}; an effect needs two values.")
    step = np.clip(np.searchsorted(edges, numbers, side="left") - 1, 0, len(edges) - 2)
    at = np.stack([step, step + 1], axis=1)
    return _Steps(rows.series(place, edges.tolist()), np.arange(len(rows)), step, at)


def _level_steps(rows: Rows, place: int, weight: Array) -> _Steps:
    """Return the levels in order; a row is moved from its own level to the levels before and after it."""
    levels = rows.grid(place, None, 0)
    if len(levels) == 1:
        raise ValueError(
            f"Column {rows.names[place]!r} has only the level {levels.iloc[0]!r}; an effect needs two levels."
        )
    column = rows.column(place)
    code = np.array([list(levels).index(value) for value in column])
    ordered = isinstance(column.dtype, pd.CategoricalDtype) and column.cat.ordered
    if not ordered and len(levels) > 2:
        order = _order_by_likeness(rows, place, code, len(levels), weight)
        levels = levels.take(order).reset_index(drop=True)
        code = np.argsort(order)[code]
    up, down = np.flatnonzero(code < len(levels) - 1), np.flatnonzero(code > 0)
    row = np.concatenate([up, down])
    return _Steps(levels, row, np.concatenate([code[up], code[down] - 1]), np.stack([code, code], axis=1))


def _order_by_likeness(
    rows: Rows, place: int, code: npt.NDArray[np.int64], count: int, weight: Array
) -> npt.NDArray[np.int64]:
    """Return levels ordered along the first principal coordinate of their distances in the other columns.

    The distance of two levels in a numeric column is the largest distance of their distribution functions, in a
    category half the sum of the absolute differences of shares.
    """
    apart = np.zeros((count, count))
    for other in range(rows.n_columns):
        if other == place:
            continue
        column, category = rows.column(other), rows.kind(other) == "category"
        found = pd.factorize(column, sort=not category, use_na_sentinel=not category)[0]
        present = found >= 0  # of numbers, those that are not missing
        shares = np.zeros((count, int(found.max(initial=0)) + 1))
        np.add.at(shares, (code[present], found[present]), weight[present])
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        if category:
            apart += 0.5 * np.abs(shares[:, None] - shares[None]).sum(axis=2)
        else:
            curves = np.cumsum(shares, axis=1)
            apart += np.abs(curves[:, None] - curves[None]).max(axis=2)
    centre = np.eye(count) - 1.0 / count
    _, vectors = np.linalg.eigh(-0.5 * centre @ apart**2 @ centre)
    first = vectors[:, -1] * (1.0 if vectors[0, -1] <= 0 else -1.0)
    return np.argsort(first.round(12), kind="stable")


def _accumulated(
    predictor: QuantityPredictor, rows: Rows, place: int, steps: _Steps, weight: Array
) -> tuple[Array, Array]:
    """Return centred sums of mean differences, shape (g, m), and those of each member, (k, g, m)."""
    share = weight[steps.row] / np.bincount(steps.step, weights=weight[steps.row])[steps.step]
    low, high = (
        predictor.averages(rows, steps.row, {place: steps.grid.take(end)}, steps.step, share)
        for end in (steps.step, steps.step + 1)
    )
    return _centred(high[0] - low[0], steps, weight), _centred(high[1] - low[1], steps, weight)


def _centred(differences: Array, steps: _Steps, weight: Array) -> Array:
    """Add up differences of shape (..., g - 1, m) to (..., g, m), with a mean of zero over the rows."""
    pad = [(0, 0)] * (differences.ndim - 2) + [(1, 0), (0, 0)]
    curve = np.cumsum(np.pad(differences, pad), axis=-2)
    share = np.zeros(curve.shape[-2])
    np.add.at(share, steps.at.ravel(), np.repeat(0.5 * weight / weight.sum(), 2))
    return np.asarray(curve - np.einsum("g,...gm->...m", share, curve)[..., None, :])
