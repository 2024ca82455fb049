"""Accumulated local effects: how predictions change with a column among rows that have about that value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.explain._quantity import Array, QuantityName, QuantityPredictor, explanation, quantity_predictor
from sumosurv.explain._rows import Rows, check_count, distinct_quantiles, drawn_rows
from sumosurv.explain.effects import Effect
from sumosurv.quantiles import check_level

_ROWS = 10_000  # predicted at once, twice


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

    The range of a number is cut into intervals with about equally many rows. In each, the rows that lie in it are set
    to its two ends; the mean differences of all intervals are added up and centred, so that their mean over the rows is
    zero:

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
    n_intervals : int
        Number of intervals of a number; fewer if values repeat.
    max_rows : int or None
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
    values, by_member = _accumulated(predictor, rows, place, steps, own)
    low, high = predictor.limits(by_member, level)
    return Effect(
        method="accumulated local effects",
        columns=(rows.names[place],),
        kinds=(rows.kind(place),),
        grid=(steps.grid.to_numpy(),),
        quantity=predictor.quantity,
        mean=values,
        low=low,
        high=high,
        level=level,
        individual=None,
        observed=(rows.column(place).to_numpy(),),
        n_rows=len(rows),
    )


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
    """Intervals between quantiles; a row is moved to the two ends of its own."""
    numbers = rows.column(place).to_numpy(dtype=np.float64)
    edges = distinct_quantiles(numbers, weight, np.linspace(0.0, 1.0, n_intervals + 1))
    if len(edges) == 1:
        raise ValueError(f"Column {rows.names[place]!r} has only the value {edges[0]:g}; an effect needs two values.")
    step = np.clip(np.searchsorted(edges, numbers, side="left") - 1, 0, len(edges) - 2)
    at = np.stack([step, step + 1], axis=1)
    return _Steps(rows.series(place, edges.tolist()), np.arange(len(rows)), step, at)


def _level_steps(rows: Rows, place: int, weight: Array) -> _Steps:
    """Levels side by side; a row is moved from its own to both neighbours."""
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
    """Levels along the first principal coordinate of how much the other columns differ between them.

    The difference of two levels in a number is the largest distance of their distribution functions, in a category
    half the sum of the absolute differences of shares.
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
    """Centred sums of mean differences, shape (g, m), and those of each member, (k, g, m)."""
    count = len(steps.grid) - 1
    total = np.bincount(steps.step, weights=weight[steps.row], minlength=count)
    sums, each = np.zeros(()), np.zeros(())
    for start in range(0, len(steps.row), _ROWS):
        part = slice(start, start + _ROWS)
        row, step = steps.row[part], steps.step[part]
        ends = []
        for end in (step, step + 1):
            new = steps.grid.take(end).reset_index(drop=True)
            ends.append(predictor.with_members(rows.take(row).replaced({place: new})))
        share = np.zeros((count, len(row)))
        share[step, np.arange(len(row))] = weight[row] / total[step]
        moved, by_member = ends[1][0] - ends[0][0], ends[1][1] - ends[0][1]
        sums, each = sums + share @ moved, each + share @ by_member
    return _centred(sums, steps, weight), _centred(each, steps, weight)


def _centred(differences: Array, steps: _Steps, weight: Array) -> Array:
    """Differences of shape (..., g - 1, m) added up to (..., g, m), with a mean of zero over the rows."""
    pad = [(0, 0)] * (differences.ndim - 2) + [(1, 0), (0, 0)]
    curve = np.cumsum(np.pad(differences, pad), axis=-2)
    share = np.zeros(curve.shape[-2])
    np.add.at(share, steps.at.ravel(), np.repeat(0.5 * weight / weight.sum(), 2))
    return np.asarray(curve - np.einsum("g,...gm->...m", share, curve)[..., None, :])
