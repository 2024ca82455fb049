"""SurvSHAP(t): Shapley values of a predicted curve, time by time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.explain._quantity import (
    Array,
    Precision,
    Quantity,
    QuantityName,
    QuantityPredictor,
    explanation,
    mean_over_time,
    quantity_predictor,
    table_at_times,
)
from sumosurv.explain._rows import Rows
from sumosurv.outcome.checks import how_many

Method = Literal["auto", "exact", "permutations"]

_EXACT_UNASKED, _EXACT_AT_MOST = 6, 14  # columns
_RANKED = 2000  # rows among which those of the background are chosen
_ROWS = 20_000  # predicted at once


@dataclass(frozen=True, eq=False, repr=False)
class SurvShap:
    """The result of `survshap`: Shapley values of n subjects, p columns and m times.

    Attributes
    ----------
    columns : tuple of str
    quantity : Quantity
        What is explained, and at which times.
    values : ndarray of shape (n, p, m)
        They sum over columns to ``predicted - base``.
    base : ndarray of shape (m,)
        The mean over the background.
    predicted : ndarray of shape (n, m)
    std_error : ndarray of shape (n, p, m) or None
        Standard error due to the sampling of permutations; None if the values are exact.
    X : DataFrame
        The subjects.
    background : DataFrame
        The rows against which they are compared.
    """

    columns: tuple[str, ...]
    quantity: Quantity
    values: Array
    base: Array
    predicted: Array
    std_error: Array | None
    X: pd.DataFrame = field(hash=False)
    background: pd.DataFrame = field(hash=False)

    def __len__(self) -> int:
        return len(self.values)

    def importance(self) -> pd.Series:
        """Return the mean of absolute values over subjects and over time, largest first."""
        each = mean_over_time(np.abs(self.values).mean(axis=0), self.quantity)
        return pd.Series(each, index=list(self.columns), name="mean |value|").sort_values(ascending=False)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per subject, column and time: the value and its standard error."""
        n, p, m = self.values.shape
        made = pd.DataFrame(
            {
                "subject": np.repeat(self.X.index.to_numpy(), p * m),
                "column": np.tile(np.repeat(np.array(self.columns, dtype=object), m), n),
                "time": np.tile(self.quantity.columns, n * p),
                "value": self.values.ravel(),
            }
        )
        made["std_error"] = 0.0 if self.std_error is None else self.std_error.ravel()
        return made.drop(columns="time") if self.quantity.name == "median" else made

    def __repr__(self) -> str:
        n, p, _ = self.values.shape
        how = "exact" if self.std_error is None else "sampled permutations"
        head = f"SurvSHAP values of the {self.quantity.label}: {how_many(n, 'subject')}, "
        head += f"{how_many(p, 'column')}, {how}, against {how_many(len(self.background), 'background row')}"
        head += "\nmean absolute value over subjects"
        mean = pd.DataFrame(np.abs(self.values).mean(axis=0), index=list(self.columns))
        order = self.importance().index[:10]
        return head + "\n" + table_at_times(mean.loc[order].to_numpy(), list(order), self.quantity)


@explanation
def survshap(
    model: Any,
    X: Any,
    background: Any,
    *,
    quantity: QuantityName | None = None,
    times: Any = None,
    cause: int | None = None,
    columns: Any = None,
    method: Method = "auto",
    n_permutations: int | None = None,
    n_background: int = 32,
    precision: Precision = "single",
    random_state: Any = 0,
) -> SurvShap:
    r"""Time-dependent Shapley values of a model's predictions (SurvSHAP(t)).

    For a subject x, a time t and a set A of columns let

    .. math:: v_t(A) = \frac{1}{B} \sum_{b} S(t \mid x_A, z^{(b)}_{\text{not } A}),

    the mean prediction with the columns of A taken from x and all others from the background rows z. The value of
    column j is its mean contribution :math:`v_t(A \cup j) - v_t(A)` over all orders in which columns can be added.
    At every time, the values of all columns sum to the prediction for x minus the mean over the background.

    Columns are those of the input table: a category is one column, however the model encodes it.

    Parameters
    ----------
    model : fitted estimator, or pipeline or search around one
    X : DataFrame or array
        The subjects to explain.
    background : DataFrame or array
        Rows that represent the population, such as the training rows. From a larger table, ``n_background`` rows are
        selected at evenly spaced quantiles of the predicted quantity.
    quantity, times, cause
        As in `partial_dependence`.
    columns : mapping of names to columns, optional
        Groups of columns that share one value; all other columns have separate values.
    method : {"auto", "exact", "permutations"}
        "exact" evaluates all sets of columns, 2 to the power of their number. "permutations" draws random orders of the
        columns, each with its reverse (antithetic pairs). "auto" is exact for up to six columns.
    n_permutations : int, optional
        Number of orders drawn for each subject, rounded up to a multiple of the number of background rows, so that each
        is used equally often. The default is one order per background row.
    n_background : int, default 32
    precision : {"single", "double"}
        Precision of the predictions. The error of single precision, about 1e-6, is far below the sampling error.
    random_state : seed or numpy.random.Generator, default 0

    Returns
    -------
    SurvShap

    Notes
    -----
    The mixed rows :math:`(x_A, z_{\text{not } A})` treat columns as independent. If columns are correlated, some mixed
    rows are unlike any training row, and the values show how the model uses a column, not what would happen if it
    changed.

    References
    ----------
    M. Krzyziński, M. Spytek, H. Baniecki, P. Biecek: SurvSHAP(t), Knowledge-Based Systems 262 (2023).

    Examples
    --------
    >>> from sumosurv import CoxPH, datasets
    >>> from sumosurv.explain import survshap
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = CoxPH().fit(data.X, data.y)
    >>> shap = survshap(model, data.X[:2], data.X, times=[0.5, 1.0])
    >>> shap.values.shape
    (2, 1, 2)
    >>> np.allclose(shap.values.sum(axis=1), shap.predicted - shap.base)
    True
    """
    rows, rng = Rows(X), np.random.default_rng(random_state)
    predictor = quantity_predictor(model, rows, quantity, times, cause, precision)
    players = rows.players(columns, all_columns=True)
    others = _background(predictor, Rows(background), n_background, rng)
    pool = rows.below(others)
    exact = _is_exact(method, len(players), n_permutations)
    n, b = len(rows), len(others)
    rounds = 1 if n_permutations is None else math.ceil(n_permutations / b)
    ends = predictor.values(pool.table)
    games = _Games(pool, list(players.values()), ends)
    total = np.zeros((n, len(players), ends.shape[1]))
    squares = np.zeros_like(total)
    step = max(1, _ROWS // (b * (2 ** len(players) if exact else 2 * rounds * len(players))))
    for start in range(0, n, step):
        subjects = range(start, min(n, start + step))
        pairs = [(i, n + j) for i in subjects for _ in range(1 if exact else rounds) for j in range(b)]
        pairs = [pair for pair in pairs if len(games.differing(*pair))]  # equal rows contribute nothing
        plans = [games.every_set(*pair) if exact else games.two_orders(*pair, rng) for pair in pairs]
        found = games.play(predictor, pairs, plans)
        for (i, _), contributions in zip(pairs, found):
            total[i] += contributions
            squares[i] += contributions**2
    count = b * (1 if exact else rounds)
    values = total / count
    error = None
    if not exact:
        spread = np.maximum(squares / count - values**2, 0.0)
        error = np.sqrt(spread / max(count - 1, 1))
    frames = [own.frame.set_axis(own.names, axis=1) for own in (rows, others)]
    return SurvShap(tuple(players), predictor.quantity, values, ends[n:].mean(axis=0), ends[:n], error, *frames)


Coalition = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Plan:
    """Sets of columns to predict for, and how the contributions follow from the values of all sets.

    ``sets`` has shape (s, players); the values are those of the empty set, of each of these, and of the full set.
    ``share`` has shape (players, s + 2): contributions are ``share @ values``.
    """

    sets: Coalition
    share: Array


class _Games:
    """Games between a subject and a background row: a set of columns is worth the prediction for the mixed row."""

    def __init__(self, pool: Rows, players: Sequence[Sequence[int]], ends: Array) -> None:
        self.pool, self.players, self.ends = pool, players, ends
        self.codes = np.stack([pd.factorize(pool.column(j))[0] for j in range(pool.n_columns)], axis=1)
        self.owner = np.empty(pool.n_columns, dtype=np.int64)  # the player of each column
        for player, places in enumerate(players):
            self.owner[list(places)] = player

    def differing(self, subject: int, other: int) -> npt.NDArray[np.int64]:
        """Return the players in whose columns the two rows differ: all others contribute nothing."""
        columns = np.flatnonzero(self.codes[subject] != self.codes[other])
        return np.unique(self.owner[columns])

    def two_orders(self, subject: int, other: int, rng: np.random.Generator) -> _Plan:
        """Plan the sets of a random order of the columns and of its reverse."""
        differing = rng.permutation(self.differing(subject, other))
        d, p = len(differing), len(self.players)
        rank = np.full(p, p)
        rank[differing] = np.arange(d)
        steps = np.arange(1, d)[:, None]
        forward = rank < steps
        backward = (rank >= d - steps) & (rank < d)
        share = np.zeros((p, 2 * d))  # empty, d - 1 forward, d - 1 backward, full
        for path, first in ((differing, 1), (differing[::-1], d)):
            places = np.concatenate([[0], np.arange(first, first + d - 1), [2 * d - 1]])
            share[path, places[1:]] += 0.5
            share[path, places[:-1]] -= 0.5
        return _Plan(np.concatenate([forward, backward]), share)

    def every_set(self, subject: int, other: int) -> _Plan:
        """Plan all sets of columns, with Shapley's weights."""
        differing = self.differing(subject, other)
        d, p = len(differing), len(self.players)
        own, weights = _all_sets(d)
        sets, share = np.zeros((len(own), p), dtype=np.bool_), np.zeros((p, len(own)))
        sets[:, differing], share[differing] = own, weights
        return _Plan(sets[1:-1], share)

    def play(
        self, predictor: QuantityPredictor, pairs: Sequence[tuple[int, int]], plans: Sequence[_Plan]
    ) -> Iterator[Array]:
        """Yield the contributions of all columns in each game, shape (players, m)."""
        sizes = [len(plan.sets) for plan in plans]
        worth = np.empty((0, self.ends.shape[1]))
        if sum(sizes):
            from_subject = np.concatenate([plan.sets for plan in plans])[:, self.owner]
            subject, other = (np.repeat([pair[k] for pair in pairs], sizes)[:, None] for k in (0, 1))
            worth = predictor.values(self.pool.mixed(np.where(from_subject, subject, other)))
        stops = np.cumsum(sizes)
        for (i, j), plan, stop, size in zip(pairs, plans, stops, sizes):
            yield plan.share @ np.concatenate([self.ends[[j]], worth[stop - size : stop], self.ends[[i]]])


@cache
def _all_sets(d: int) -> tuple[Coalition, Array]:
    """Return all sets of d players, from the empty to the full one, and Shapley's weights (d, 2^d)."""
    numbers = np.arange(2**d)
    sets = (numbers[:, None] >> np.arange(d)) & 1 == 1
    size = sets.sum(axis=1)
    joined = np.array([1.0 / (d * math.comb(d - 1, k - 1)) if k else 0.0 for k in range(d + 1)])
    left = np.array([1.0 / (d * math.comb(d - 1, k)) if k < d else 0.0 for k in range(d + 1)])
    return sets, np.where(sets, joined[size][:, None], -left[size][:, None]).T


def _is_exact(method: Method, n_players: int, n_permutations: int | None) -> bool:
    if method not in ("auto", "exact", "permutations"):
        raise ValueError(f"method must be 'auto', 'exact' or 'permutations'; got {method!r}.")
    if n_permutations is not None and n_permutations < 1:
        raise ValueError(f"n_permutations must be at least 1; got {n_permutations}.")
    if method == "exact" and n_players > _EXACT_AT_MOST:
        raise ValueError(
            f"Exact values of {n_players} columns need 2^{n_players} predictions for each pair of rows; use "
            "method='permutations', or group columns with columns={...}."
        )
    return method == "exact" or (method == "auto" and n_permutations is None and n_players <= _EXACT_UNASKED)


def _background(predictor: QuantityPredictor, background: Rows, count: int, rng: np.random.Generator) -> Rows:
    """Return the rows themselves, or ``count`` of them at evenly spaced quantiles of their predictions."""
    if count < 1:
        raise ValueError(f"n_background must be at least 1; got {count}.")
    if len(background) <= count:
        return background
    drawn = np.sort(rng.permutation(len(background))[: max(_RANKED, count)])
    among = background.take(drawn)
    level = mean_over_time(predictor.values(among.table), predictor.quantity)
    place = (np.arange(count) + 0.5) / count * len(among)
    return among.take(np.argsort(level, kind="stable")[place.astype(np.int64)])
