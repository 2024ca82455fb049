"""Contrasts: how predictions differ between two subjects, or between two values of one column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

from sumosurv.confidence import check_level, check_resamples
from sumosurv.distributions import SurvivalDistribution
from sumosurv.explain._quantity import (
    Array,
    Quantity,
    QuantityName,
    QuantityPredictor,
    as_text,
    beyond,
    explanation,
    predict_members,
    quantity_predictor,
    spread_out,
)
from sumosurv.explain._rows import Rows, drawn_rows
from sumosurv.fitting.spread import limits
from sumosurv.models import predict_distribution
from sumosurv.nonparametric import draw_subjects
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.sources import take_rows

_STEPS = 32  # into which the search for a median divides an interval of time
_ROWS = 1000  # averaged at once

_ASSOCIATION = "A difference between predictions: an association, not the effect of changing anything."
_STANDARDISED = (
    "Predictions averaged over the same rows, the column set to either value (g-formula,\n"
    "S-learner). A causal effect only if X contains all common causes of the column and the outcome,\n"
    "either value was possible in every row and the model is right; otherwise an association."
)


@dataclass(frozen=True, eq=False, repr=False)
class Contrast:
    """The result of `contrast` and `standardised_contrast`: two curves and their difference.

    Attributes
    ----------
    labels : tuple of two str
        Differences are the first minus the second.
    quantity : Quantity
        The curve: survival, or the cumulative incidence of a cause.
    curves, low, high : ndarrays of shape (2, m)
        The limits are None if the model has one member and is not fitted again.
    difference, difference_low, difference_high : ndarrays of shape (m,)
    numbers : DataFrame
        One row for the median and for each restricted mean (with a cause, the time lost); columns first, second,
        difference, low, high. A median that is not reached is NaN.
    limits_from : {"members", "bootstrap", "none"}
        The source of the limits: the spread of the model's members, or fits to resampled rows.
    level : float
    n_rows : int
        Rows over which curves are averaged; 1 for two subjects.
    meaning : str
        How the difference may be interpreted, and whether some of it is extrapolated.
    """

    labels: tuple[str, str]
    quantity: Quantity
    curves: Array
    low: Array | None
    high: Array | None
    difference: Array
    difference_low: Array | None
    difference_high: Array | None
    numbers: pd.DataFrame
    limits_from: str
    level: float
    n_rows: int
    meaning: str

    def to_frame(self) -> pd.DataFrame:
        """Return the curves as a table with one row per time."""
        made = pd.DataFrame({"time": self.quantity.times, "first": self.curves[0], "second": self.curves[1]})
        made["difference"] = self.difference
        if self.difference_low is not None and self.difference_high is not None:
            made["low"], made["high"] = self.difference_low, self.difference_high
        return made

    def __repr__(self) -> str:
        named = [
            name if name == place else f"{name} ({place})" for name, place in zip(self.labels, ("first", "second"))
        ]
        head = f"{self.quantity.label}: {named[0]} less {named[1]}"
        head += f", mean of {self.n_rows} rows" if self.n_rows > 1 else ""
        frame = self.to_frame()
        lines = frame.iloc[spread_out(len(frame), 5)].set_index("time").rename(index=lambda t: f"t = {t:.4g}")
        lines.index.name = None
        text = pd.concat([lines, self.numbers]).to_string(float_format=lambda value: f"{value:.4g}", na_rep="–")
        spread = {"members": "spread of the model's members", "bootstrap": "fits to resampled rows"}
        source = f"\nlow, high: {self.level:.0%}, {spread[self.limits_from]}" if self.limits_from in spread else ""
        return f"{head}\n{text}{source}\n{self.meaning}"


@explanation
def contrast(
    model: Any,
    first: Any,
    second: Any,
    *,
    times: Any = None,
    horizons: Any = None,
    cause: int | None = None,
    labels: Sequence[str] = ("first", "second"),
    level: float = 0.95,
) -> Contrast:
    """Compare the predictions for two subjects: curves, medians, restricted means.

    The limits contain a share ``level`` of the differences predicted by the model's members. They do not account for
    the sampling of training rows, and methods with a single model have no limits. The
    difference is an association, not a causal effect.

    Parameters
    ----------
    model : fitted estimator, or pipeline or search around one
    first, second : one row each
        ``X.iloc[[i]]``, a mapping of columns to values, or an array of one row.
    times : array of shape (m,), optional
        Times of the curves; 50 equal steps up to the last training time by default.
    horizons : float or array, optional
        Horizons of the restricted means; the last training time by default.
    cause : int, optional
        Competing cause, counted from one: its cumulative incidence and the time lost to it are compared.
    labels : pair of str
    level : float, default 0.95

    Returns
    -------
    Contrast

    Examples
    --------
    >>> from sumosurv import WeibullNet, datasets
    >>> from sumosurv.explain import contrast
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = WeibullNet(n_members=3, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> found = contrast(model, data.X[:1], data.X[1:2], times=[0.5, 1.0], horizons=1.0)
    >>> found.difference.shape, list(found.numbers.index)
    ((2,), ['median', 'restricted mean to 1'])
    """
    level = check_level(level)
    rows = [_one_row(given) for given in (first, second)]
    predictor = _ContrastPredictor.of(model, rows[0], times, horizons, cause)
    if isinstance(labels, str) or len(labels) != 2:
        raise ValueError(f"labels must be two names; got {labels!r}.")
    sides = [predictor.of_rows(own, np.ones(1)) for own in rows]
    return _contrast(predictor, sides, labels, level, n_rows=1)


@explanation
def standardised_contrast(
    model: Any,
    X: Any,
    column: Any,
    values: Sequence[Any] | None = None,
    *,
    times: Any = None,
    horizons: Any = None,
    cause: int | None = None,
    y: Any = None,
    n_bootstrap: int = 0,
    max_rows: int | None = 2000,
    level: float = 0.95,
    sample_weight: Any = None,
    groups: Any = None,
    random_state: Any = 0,
) -> Contrast:
    r"""Standardised curves of a binary column: mean predictions with the column set to either value in all rows.

    .. math:: \bar S_a(t) = \frac{1}{n} \sum_i S(t \mid x_j = a, \; \text{all other columns of row } i).

    This is the g-formula with one model for both values (an S-learner). The difference of the two curves is the average
    causal effect of the column if X contains all confounders, each value was possible for every row, and the model is
    correctly specified. The data cannot confirm these assumptions; otherwise the difference is an adjusted association.
    Columns that are affected by this column should not be in X.

    Parameters
    ----------
    model : fitted estimator, or pipeline or search around one
    X : DataFrame or array
        The population to standardise to; one row for the contrast of two values in one subject.
    column : column
        By name; in arrays by position.
    values : pair, optional
        Differences are the first minus the second. The default is the two values of a binary column, the larger one
        first.
    times, horizons, cause, level
        As in `contrast`.
    y : outcome, optional
        The outcome of the rows of X, required by ``n_bootstrap``.
    n_bootstrap : int, default 0
        Number of fits to resampled subjects, for limits that account for sampling; use a few hundred. With 0, the
        limits are the spread of the model's members, which is narrower.
    max_rows : int or None, default 2000
        Largest number of rows to average over; a larger table is sampled at random. None for all rows.
    sample_weight : array of shape (rows,), optional
        Number of rows that each row represents, in means and fits.
    groups : array of shape (rows,), optional
        The subject that each row belongs to: subjects are resampled with all of their rows.
    random_state : seed or numpy.random.Generator, default 0

    Returns
    -------
    Contrast

    Examples
    --------
    >>> from sumosurv import CoxPH, datasets
    >>> from sumosurv.explain import standardised_contrast
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> found = standardised_contrast(CoxPH().fit(data.X, data.y), data.X, "x", [0.8, 0.2], times=1.0)
    >>> found.labels, found.limits_from
    (('x = 0.8', 'x = 0.2'), 'none')
    """
    check_resamples(n_bootstrap)
    level, whole, rng = check_level(level), Rows(X), np.random.default_rng(random_state)
    rows, weight = drawn_rows(whole, sample_weight, max_rows, rng)
    predictor = _ContrastPredictor.of(model, rows, times, horizons, cause)
    place = whole.place(column)
    pair = _two_values(whole, place, values)
    labels = [f"{whole.names[place]} = {as_text(value)}" for value in pair]
    sides = [predictor.averaged(rows, place, value, weight) for value in pair]
    fits: list[Array] = []
    if n_bootstrap:
        if y is None:
            raise ValueError("n_bootstrap refits the model to resampled rows and requires their outcome y=.")
        outcome = check_outcome(y, n_rows=len(whole), sample_weight=sample_weight, groups=groups)
        fits = [_refitted(predictor, whole, outcome, place, pair, max_rows, rng) for _ in range(n_bootstrap)]
    return _contrast(predictor, sides, labels, level, len(rows), fits)


def _refitted(
    predictor: _ContrastPredictor,
    rows: Rows,
    outcome: Outcome,
    place: int,
    pair: Sequence[Any],
    max_rows: int | None,
    rng: np.random.Generator,
) -> Array:
    """Return both sides by the same method, fitted to resampled subjects and averaged over them, (2, q)."""
    drawn, subject = draw_subjects(outcome, rng)
    own, observed = rows.take(drawn), outcome[drawn]
    if observed.group is not None:
        observed = replace(observed, group=subject)
    model = clone(predictor.curve.model).fit(own.table, observed)
    curve, horizons = predictor.curve.quantity, predictor.mean.quantity.times
    again = _ContrastPredictor.of(model, own, curve.times, horizons, curve.cause)
    again = replace(again, last_time=predictor.last_time)
    averaged, weight = drawn_rows(own, observed.weight, max_rows, rng)
    return np.stack([again.averaged(averaged, place, value, weight)[0] for value in pair])


# ------------------------------------------------------------------ one side, and the contrast of two


@dataclass(frozen=True, eq=False)
class _ContrastPredictor:
    """Predicts one side: the curve at m times, means up to h horizons and the median, as one vector of m + h + 1."""

    curve: QuantityPredictor
    mean: QuantityPredictor
    last_time: float  # up to which the median of a mean curve is sought

    @classmethod
    def of(cls, model: Any, rows: Rows, times: Any, horizons: Any, cause: int | None) -> _ContrastPredictor:
        curve = quantity_predictor(model, rows, None, times, cause)
        name: QuantityName = "restricted_mean" if cause is None else "restricted_time_lost"
        mean = quantity_predictor(model, rows, name, horizons, cause)
        return cls(curve, mean, curve.quantity.last_time or float(curve.quantity.times[-1]))

    def averaged(self, rows: Rows, place: int, value: Any, weight: Array | None) -> tuple[Array, Array]:
        """Return the means over rows with one column set, (q,), and those of each member, (k, q)."""
        share = np.full(len(rows), 1.0 / len(rows)) if weight is None else weight / weight.sum()
        return self.of_rows(Rows(rows.replaced({place: rows.series(place, [value] * len(rows))})), share)

    def of_rows(self, rows: Rows, share: Array) -> tuple[Array, Array]:
        """Return the means over rows, (q,), and those of each member, (k, q)."""
        everyone, one_group = np.arange(len(rows)), np.zeros(len(rows), dtype=np.int64)
        found = [own.averages(rows, everyone, {}, one_group, share)[:2] for own in (self.curve, self.mean)]
        means, by_member = (np.concatenate([own[k][..., 0, :] for own in found], axis=-1) for k in (0, 1))
        medians = np.full(len(by_member), np.nan)
        if self.curve.quantity.cause is None:
            medians = self._medians(rows.table, share)
        return np.append(means, medians[0]), np.column_stack([by_member, medians[-len(by_member) :]])

    def _medians(self, table: Any, share: Array) -> Array:
        """Return the medians of the mean curves: of the model and, if there are several, of each member."""
        parts = [take_rows(table, slice(start, start + _ROWS)) for start in range(0, len(share), _ROWS)]
        with torch.no_grad():
            curves = list(zip(*(predict_members(self.curve.model, rows).distributions for rows in parts)))
            if len(curves) > 1:
                curves.insert(0, tuple(predict_distribution(self.curve.model, rows) for rows in parts))
            return np.array([_median(own, share, self.last_time) for own in curves])


def _median(parts: Sequence[SurvivalDistribution], share: Array, last: float) -> float:
    """Return the time at which the mean curve of rows that come in parts reaches one half; nan if after the last."""
    if len(share) == 1:
        median = float(parts[0].median()[0])
        return median if np.isfinite(median) else float("nan")
    ends = np.cumsum([len(part) for part in parts])[:-1]
    shares = np.split(share, ends)

    def mean(times: Array) -> Array:
        return np.asarray(sum(own @ np.asarray(part.survival(times)) for own, part in zip(shares, parts)))

    low, high = 0.0, last
    if mean(np.array([high]))[0] > 0.5:
        return float("nan")
    while high - low > 1e-10 * high:
        times = np.linspace(low, high, _STEPS + 1)
        place = int(np.argmax(np.append(mean(times[1:-1]), 0.0) <= 0.5))
        low, high = float(times[place]), float(times[place + 1])
    steps = parts[0].step_table()
    if steps is None:
        return high
    knots = np.asarray(steps[0], dtype=np.float64)
    return float(knots[max(int(np.searchsorted(knots, high, side="right")) - 1, 0)])


def _contrast(
    predictor: _ContrastPredictor,
    sides: Sequence[tuple[Array, Array]],
    labels: Sequence[str],
    level: float,
    n_rows: int,
    fits: Sequence[Array] = (),
) -> Contrast:
    """Make the contrast of two sides; limits are from the members, or from other fits, (2, q) each."""
    values, each = (np.stack([side[k] for side in sides], axis=-2) for k in (0, 1))
    weights, source = predictor.curve.weights, "members"
    if fits:
        each, weights, source = np.stack(fits), np.full(len(fits), 1.0 / len(fits)), "bootstrap"
    quantity, horizons = predictor.curve.quantity, predictor.mean.quantity.times
    m, several = len(quantity.times), len(weights) > 1
    difference = values[0] - values[1]
    low = high = difference_low = difference_high = None
    if several:
        low, high = (limit[:, :m] for limit in limits(each, weights, level))
        difference_low, difference_high = limits(each[:, 0] - each[:, 1], weights, level)
    word = "restricted mean to" if quantity.cause is None else "time lost to"
    columns = {"first": values[0], "second": values[1], "difference": difference}
    columns |= {} if difference_low is None else {"low": difference_low, "high": difference_high}
    numbers = pd.DataFrame(columns).iloc[m:].set_axis([*(f"{word} {h:.6g}" for h in horizons), "median"])
    numbers = numbers.iloc[:-1] if quantity.cause is not None else numbers.iloc[[-1, *range(len(horizons))]]
    reach = np.concatenate([quantity.times, horizons, values[:, -1]])
    return Contrast(
        (str(labels[0]), str(labels[1])),
        quantity,
        values[:, :m],
        low,
        high,
        difference[:m],
        None if difference_low is None else difference_low[:m],
        None if difference_high is None else difference_high[:m],
        numbers,
        source if several else "none",
        level,
        n_rows,
        (_STANDARDISED if n_rows > 1 else _ASSOCIATION) + beyond(reach, quantity),
    )


def _one_row(given: Any) -> Rows:
    if isinstance(given, Mapping):
        given = pd.DataFrame([dict(given)])
    elif isinstance(given, pd.Series):
        given = given.to_frame().T.infer_objects()
    elif np.ndim(given) == 1:
        given = np.asarray(given)[None]
    rows = Rows(given)
    if len(rows) != 1:
        raise ValueError(f"A contrast is between two subjects, one row each; got {len(rows)} rows. Pass X.iloc[[i]].")
    return rows


def _two_values(rows: Rows, place: int, values: Sequence[Any] | None) -> list[Any]:
    if values is not None:
        if isinstance(values, str) or len(values) != 2:
            raise ValueError(f"values must be the two values of the column to compare; got {values!r}.")
        return list(values)
    known = rows.grid(place, None, 3)
    if len(known) != 2:
        count = rows.column(place).nunique()
        raise ValueError(f"Column {rows.names[place]!r} has {count} values; say which two to compare, values=(a, b).")
    return [known.iloc[1], known.iloc[0]]
