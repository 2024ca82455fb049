"""Contrasts: how predictions differ between two subjects, or between two values of one column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from sumosurv.explain._quantity import Array, Quantity, as_text, beyond, explanation, spread_out
from sumosurv.explain._rows import Rows, drawn_rows
from sumosurv.explain._sides import ContrastPredictor, Side, contrast_predictor
from sumosurv.fitting.members import check_level, limits
from sumosurv.outcome import Outcome, check_outcome

__all__ = ["Contrast", "contrast", "standardised_contrast"]

_ASSOCIATION = "A difference between predictions: an association, not the effect of changing anything."
_STANDARDISED = (
    "Predictions averaged over the same rows, the column set to either value (g-formula,\n"
    "S-learner). An effect only if nothing outside X bears on both the column and the outcome,\n"
    "either value was possible in every row and the model is right; else an association."
)


@dataclass(frozen=True, eq=False, repr=False)
class Contrast:
    """Two curves and their difference: what `contrast` and `standardised_contrast` return.

    Attributes
    ----------
    labels : tuple of two str
        Differences are the first less the second.
    quantity : Quantity
        The curve: survival, or the cumulative incidence of a cause.
    curves, low, high : ndarrays of shape (2, m)
        The limits are None where there are none.
    difference, difference_low, difference_high : ndarrays of shape (m,)
    numbers : DataFrame
        One line for the median and for each restricted mean (of a cause: time lost); columns first, second, difference,
        low, high. NaN for a median that is not reached.
    limits_from : {"members", "bootstrap", "none"}
        Where limits come from: the spread of the model's members, fits to resampled rows, or nowhere.
    level : float
    n_rows : int
        Rows over which curves are averaged; 1 for two subjects.
    meaning : str
        What the difference may be taken for, and whether some of it is extrapolated.
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
        """The curves, one line for each time."""
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
    """How predictions for two subjects differ: curves, medians, restricted means.

    Limits are between which a share ``level`` of the model's members lies, each compared with itself. They tell what
    training left open, not what other rows would have given; methods with one member have none. The difference
    is an association.

    Parameters
    ----------
    model : fitted estimator, or pipeline or search around one
    first, second : one row each
        ``X.iloc[[i]]``, a mapping of columns to values, or an array of one row.
    times : array of shape (m,), optional
        By default 50 equal steps of the follow-up.
    horizons : float or array, optional
        Of restricted means; the end of the follow-up by default.
    cause : int, optional
        Contrast the cumulative incidence of a cause, and the time lost to it.
    labels : pair of str
    level : float

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
    predictor = contrast_predictor(model, rows[0], times, horizons, cause)
    found = [predictor.of_subject(own) for own in rows]
    meaning = _ASSOCIATION
    return _contrast(predictor, found, _two_labels(labels), predictor.curve.weights, level, "members", 1, meaning)


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

    This is the g-formula with one model for both values (an S-learner). The difference of the two curves is the mean
    effect of the column if all that bears on both the column and the outcome is in X, each value was possible in every
    row, and the model is right. Nothing here can check the first of these; otherwise it is an association, adjusted for
    the other columns. Columns that the column itself has an effect on should not be in X.

    Parameters
    ----------
    model : fitted estimator, or pipeline or search around one
    X : DataFrame or array
        The population to standardise to; one row for the contrast of two values in one subject.
    column : column
        By name; in arrays by position.
    values : pair, optional
        Differences are the first less the second; by default the two values of a binary column, larger one first.
    times, horizons, cause, level
        As for `contrast`.
    y : outcome, optional
        Of the rows of X, for ``n_bootstrap``.
    n_bootstrap : int
        Fits of the model to resampled subjects, for limits that hold for other rows; each costs a fit, and some hundred
        are wanted. With 0 limits are the spread of the model's members, which is narrower.
    max_rows : int or None
        Of more rows so many are drawn to average over; None for all of them.
    sample_weight : array of shape (rows,), optional
        How many rows each row counts for, in means and fits.
    groups : array of shape (rows,), optional
        The subject that each row belongs to: subjects are resampled with all of their rows.
    random_state : seed or numpy.random.Generator

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
    level, whole, rng = check_level(level), Rows(X), np.random.default_rng(random_state)
    rows, weight = drawn_rows(whole, sample_weight, max_rows, rng)
    predictor = contrast_predictor(model, rows, times, horizons, cause)
    place = whole.place(column)
    pair = _two_values(whole, place, values)
    labels = _two_labels([f"{whole.names[place]} = {as_text(value)}" for value in pair])
    found = [predictor.of_rows(rows, {place: value}, weight) for value in pair]
    weights, source = predictor.curve.weights, "members"
    if n_bootstrap:
        if y is None:
            raise ValueError("n_bootstrap fits the model to resampled rows: give their outcome, y=.")
        outcome = check_outcome(y, n_rows=len(whole), sample_weight=sample_weight, groups=groups)
        again = [_refitted(predictor, whole, outcome, place, pair, max_rows, rng) for _ in range(n_bootstrap)]
        found = [own.with_replicates([both[i] for both in again]) for i, own in enumerate(found)]
        weights, source = np.full(n_bootstrap, 1.0 / n_bootstrap), "bootstrap"
    meaning = _STANDARDISED if len(rows) > 1 else _ASSOCIATION
    return _contrast(predictor, found, labels, weights, level, source, len(rows), meaning)


def _refitted(
    predictor: ContrastPredictor,
    rows: Rows,
    outcome: Outcome,
    place: int,
    pair: Sequence[Any],
    max_rows: int | None,
    rng: np.random.Generator,
) -> list[Side]:
    """Both sides by the same method, fitted to resampled subjects and averaged over them."""
    drawn, subject = _resampled(outcome, rng)
    own, observed = rows.take(drawn), outcome[drawn]
    if observed.group is not None:
        observed = replace(observed, group=subject)
    model = clone(predictor.curve.model).fit(own.table, observed)
    again = predictor.of(model, own)
    averaged, weight = drawn_rows(own, observed.weight, max_rows, rng)
    return [again.of_rows(averaged, {place: value}, weight) for value in pair]


def _resampled(outcome: Outcome, rng: np.random.Generator) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows of subjects drawn with replacement, and the number of the draw that each came with."""
    if outcome.group is None:
        drawn = rng.integers(len(outcome), size=len(outcome))
        return drawn, np.arange(len(outcome))
    names = np.unique(outcome.group)
    parts = [np.flatnonzero(outcome.group == name) for name in rng.choice(names, size=len(names))]
    return np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(part) for part in parts])


# ------------------------------------------------------------------ putting it together


def _contrast(
    predictor: ContrastPredictor,
    found: Sequence[Side],
    labels: tuple[str, str],
    weights: Array,
    level: float,
    source: str,
    n_rows: int,
    meaning: str,
) -> Contrast:
    a, b = found
    several = len(weights) > 1
    low = high = difference_low = difference_high = None
    if several:
        low, high = limits(np.stack([a.curves, b.curves], axis=1), weights, level)
        difference_low, difference_high = limits(a.curves - b.curves, weights, level)
    quantity, horizons = predictor.curve.quantity, predictor.mean.quantity.times
    word = "restricted mean to" if quantity.cause is None else "time lost to"
    lines = {
        f"{word} {h:.6g}": (a.means[i], b.means[i], a.each_means[:, i], b.each_means[:, i])
        for i, h in enumerate(horizons)
    }
    if quantity.cause is None:
        lines = {"median": (a.median, b.median, a.medians, b.medians)} | lines
    numbers = pd.DataFrame(
        index=list(lines), columns=["first", "second", "difference", "low", "high"], dtype=np.float64
    )
    for name, (one, other, ones, others) in lines.items():
        ends = (
            limits(ones - others, weights, level) if several and np.isfinite(ones - others).all() else (np.nan, np.nan)
        )
        numbers.loc[name] = [one, other, one - other, *map(float, ends)]
    reach = np.concatenate([quantity.times, horizons, [a.median, b.median]])
    return Contrast(
        labels,
        quantity,
        np.stack([a.curve, b.curve]),
        low,
        high,
        a.curve - b.curve,
        difference_low,
        difference_high,
        numbers if several else numbers.drop(columns=["low", "high"]),
        source if several else "none",
        level,
        n_rows,
        meaning + beyond(reach, quantity),
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


def _two_labels(labels: Sequence[str]) -> tuple[str, str]:
    if isinstance(labels, str) or len(labels) != 2:
        raise ValueError(f"labels are two names; got {labels!r}.")
    return str(labels[0]), str(labels[1])


def _two_values(rows: Rows, place: int, values: Sequence[Any] | None) -> list[Any]:
    if values is not None:
        if isinstance(values, str) or len(values) != 2:
            raise ValueError(f"values are the two values of the column to compare; got {values!r}.")
        return list(values)
    known = rows.grid(place, None, 3)
    if len(known) != 2:
        count = rows.column(place).nunique()
        raise ValueError(f"Column {rows.names[place]!r} has {count} values; say which two to compare, values=(a, b).")
    return [known.iloc[1], known.iloc[0]]
