"""The quantity that is explained (a curve, a median, a restricted mean): its prediction, and tables of it as text."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.sparse import csr_array

from sumosurv.distributions import SurvivalDistribution
from sumosurv.explain._rows import Places, Rows
from sumosurv.fitting.spread import Members, limits
from sumosurv.models import innermost, predict_distribution
from sumosurv.sources import take_rows
from sumosurv.warn import warn_user

P = ParamSpec("P")
R = TypeVar("R")

Array = npt.NDArray[np.float64]
Precision = Literal["double", "single"]
QuantityName = Literal[
    "survival", "cumulative_incidence", "cumulative_hazard", "median", "restricted_mean", "restricted_time_lost"
]
_OF_A_CAUSE = ("cumulative_incidence", "restricted_time_lost")
_TIMES = 50
_CELLS = 4_000_000  # rows × times predicted at once
_ROWS = 20_000
_AVERAGED = 5_000  # rows averaged at once, over all members
_SHOWN = 5  # times in a printed table
_PANELS, _NODES = 12, 6  # of the quadrature of restricted means

_LABELS = {
    "survival": "survival probability S(t)",
    "cumulative_incidence": "cumulative incidence F(t)",
    "cumulative_hazard": "cumulative hazard Λ(t)",
    "median": "median time",
    "restricted_mean": "restricted mean time",
    "restricted_time_lost": "restricted time lost",
}


@dataclass(frozen=True, eq=False)
class Quantity:
    """The quantity that is explained: a function of each predicted distribution.

    Attributes
    ----------
    name : str
    times : ndarray of shape (m,)
        Times of a curve, horizons of a restricted mean; empty for the median, which is one number.
    cause : int or None
    last_time : float or None
        The last training time, beyond which the model extrapolates.
    """

    name: QuantityName
    times: Array
    cause: int | None
    last_time: float | None

    @property
    def label(self) -> str:
        """The name of the quantity in words, for axes and tables."""
        return _LABELS[self.name] + (f" of cause {self.cause}" if self.cause is not None else "")

    @property
    def is_curve(self) -> bool:
        """Whether the quantity is a function of time; medians and restricted means are numbers."""
        return self.name in ("survival", "cumulative_incidence", "cumulative_hazard")

    @property
    def averages(self) -> bool:
        """Whether the value of a mixture is the mean of its members' values; extrapolated values are not."""
        inside = self.last_time is not None and bool((self.times <= self.last_time).all())
        return self.name not in ("median", "cumulative_hazard") and inside

    @property
    def columns(self) -> Array:
        """One entry for each value of a row: its time, its horizon, or NaN for the median."""
        return np.array([np.nan]) if self.name == "median" else self.times

    def time_name(self, place: int, unit: str = "") -> str:
        """Return the time of a value in words: "t = 5 years", "up to 5 years", or "" for the median."""
        if self.name == "median":
            return ""
        before, time = "up to" if self.name.startswith("restricted") else "t =", self.times[place]
        return f"{before} {f'{time:.4g}' if time < 10_000 else f'{time:,.0f}'}" + (f" {unit}" if unit else "")

    def of(self, distribution: SurvivalDistribution) -> Array:
        """Return the values of each subject, shape (n, m)."""
        own = distribution if self.cause is None else distribution.cause(self.cause)
        if self.name == "median":
            values = np.asarray(own.median())[:, None]
            if not np.isfinite(values).all():
                count = int((~np.isfinite(values)).sum())
                raise ValueError(
                    f"The median of {count} of {len(values)} predicted curves is infinite, as they stay above 1/2; "
                    "explain quantity='restricted_mean' with times= instead."
                )
            return values
        if self.is_curve:
            curve = {"survival": own.survival, "cumulative_hazard": own.cumulative_hazard}.get(self.name, own.cdf)
            return np.asarray(curve(self.times))
        mean = _restricted_mean(own, self.times)
        return mean if self.name == "restricted_mean" else self.times - mean


def _restricted_mean(distribution: SurvivalDistribution, horizons: Array) -> Array:
    """Return ∫₀^h S(t) dt at increasing horizons, shape (n, m).

    Step curves are integrated exactly, other curves by Gauss's rule with six nodes in each of at least twelve panels.
    With default networks we measured an error of 1e-5 of the horizon, which does not matter for explanations.
    """
    if distribution.step_table() is not None:
        return np.asarray(distribution.restricted_mean(horizons))
    ends = np.unique(np.concatenate([np.linspace(0.0, horizons[-1], _PANELS + 1), horizons]))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    half = 0.5 * np.diff(ends)
    at = ends[:-1, None] + half[:, None] * (1.0 + nodes)
    curve = np.asarray(distribution.survival(at.ravel())).reshape(len(distribution), *at.shape)
    area = np.cumsum((curve * weights).sum(axis=2) * half, axis=1)
    return np.asarray(area[:, np.searchsorted(ends, horizons) - 1])


@dataclass(frozen=True, eq=False)
class QuantityPredictor:
    """Predicts a quantity of a model, some rows at a time."""

    model: Any
    quantity: Quantity
    weights: Array  # of the members of the model
    precision: Precision = "double"
    causes: tuple[int | None, ...] = ()  # if cumulative incidences of several causes are predicted, one after the other

    def values(self, X: Any) -> Array:
        """Return the quantity of each row, shape (rows, m)."""
        return np.concatenate(self._by_blocks(X, lambda rows: self._of(predict_distribution(self.model, rows))))

    def with_members(self, X: Any) -> tuple[Array, Array]:
        """Return `values`, and the quantity of each row by each member of the model, shape (members, rows, m)."""

        def of_members(rows: Any) -> Array:
            return np.stack([self._of(member) for member in predict_members(self.model, rows).distributions])

        each = np.concatenate(self._by_blocks(X, of_members), axis=1)
        if len(each) > 1 and not self.quantity.averages:
            return self.values(X), each
        return np.tensordot(self.weights, each, axes=1), each

    def averages(
        self,
        rows: Rows,
        chosen: Places,
        values: Mapping[int, pd.Series],
        group: Places,
        weight: Array,
        *,
        keep: bool = False,
    ) -> tuple[Array, Array, Array | None]:
        """Predict rows with columns replaced, and sum up the predictions by group.

        Parameters
        ----------
        rows : Rows
        chosen : int array of shape (r,)
            The rows to predict, repeats allowed.
        values : mapping of positions of columns to Series of length r
            New values of columns in the chosen rows.
        group : int array of shape (r,)
        weight : array of shape (r,)
        keep : bool
            Return the single predictions too.

        Returns
        -------
        sums : array of shape (groups, m)
        by_member : array of shape (members, groups, m)
        single : array of shape (r, m) or None
        """
        n_groups, kept = int(group.max()) + 1, []
        sums, by_member = np.zeros(()), np.zeros(())
        for start in range(0, len(chosen), _AVERAGED):
            part = slice(start, start + _AVERAGED)
            new = {place: column.iloc[part] for place, column in values.items()}
            single, each = self.with_members(rows.take(chosen[part]).replaced(new))
            share = csr_array((weight[part], (group[part], np.arange(len(single)))), shape=(n_groups, len(single)))
            sums, by_member = sums + share @ single, by_member + np.stack([share @ member for member in each])
            kept += [single] if keep else []
        return sums, by_member, np.concatenate(kept) if keep else None

    def limits(self, by_member: Array, level: float) -> tuple[Array | None, Array | None]:
        """Return limits that contain a share ``level`` of the members, by weight; None if there is one member."""
        return limits(by_member, self.weights, level) if len(by_member) > 1 else (None, None)

    def _of(self, distribution: SurvivalDistribution) -> Array:
        distribution = distribution.single() if self.precision == "single" else distribution
        if not self.causes:
            return self.quantity.of(distribution)
        incidence = distribution.cumulative_incidence(self.quantity.times)
        return np.concatenate([incidence[..., k - 1] for k in self.causes if k is not None], axis=1)

    def _by_blocks(self, X: Any, function: Callable[[Any], Array]) -> list[Array]:
        size = max(1, min(_ROWS, _CELLS // max(1, len(self.quantity.times))))
        with torch.no_grad():
            return [function(take_rows(X, slice(start, start + size))) for start in range(0, len(X), size)]


def explanation(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function that predicts many times issue each warning once, at its end."""

    @wraps(function)
    def warning_once(*args: P.args, **kwargs: P.kwargs) -> R:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = function(*args, **kwargs)
        first = {re.sub(r"[\d,]+", "", str(one.message)): one for one in reversed(caught)}  # counts may differ
        for one in reversed(first.values()):
            warn_user(str(one.message), one.category)
        return result

    return warning_once


def quantity_predictor(
    model: Any,
    X: Rows,
    quantity: QuantityName | None,
    times: Any,
    cause: int | None,
    precision: Precision = "double",
) -> QuantityPredictor:
    """Check the quantity, its times and its cause; defaults are derived from a prediction for the first row."""
    if precision not in get_args(Precision):
        raise ValueError(f"precision must be 'double' or 'single'; got {precision!r}.")
    if quantity is None:
        quantity = "survival" if cause is None else "cumulative_incidence"
    if quantity not in get_args(QuantityName):
        raise ValueError(f"quantity must be one of {', '.join(get_args(QuantityName))}; got {quantity!r}.")
    with torch.no_grad():
        members = predict_members(model, X.take([0]).table)
    first = members.distributions[0]
    cause = _check_cause(first, quantity, cause)
    checked = Quantity(quantity, _check_times(first, quantity, times), cause, first.last_time)
    return QuantityPredictor(model, checked, members.weights, precision)


def _check_cause(first: SurvivalDistribution, quantity: QuantityName, cause: int | None) -> int | None:
    n_causes = first.n_causes
    if cause is None:
        if quantity in _OF_A_CAUSE and n_causes > 1:
            raise ValueError(
                f"The model has {n_causes} causes: choose the cause of the {quantity}, for example cause=1."
            )
        return None
    if not isinstance(cause, (int, np.integer)) or not 1 <= cause <= n_causes:
        raise ValueError(f"Causes of this model are numbered from 1 to {n_causes}; got {cause!r}.")
    if quantity not in _OF_A_CAUSE:
        raise ValueError(
            f"{quantity} refers to the first event of any cause; with cause={cause}, use "
            "quantity='cumulative_incidence' or 'restricted_time_lost'."
        )
    return int(cause)


def _check_times(first: SurvivalDistribution, quantity: QuantityName, times: Any) -> Array:
    if quantity == "median":
        if times is not None:
            raise ValueError("The median has no times; leave out times.")
        return np.empty(0)
    if times is None:
        last = first.last_time
        if last is None:
            raise ValueError("times is required: the predicted distributions do not store the last training time.")
        number = quantity.startswith("restricted")
        return np.array([last]) if number else np.linspace(0.0, last, _TIMES)
    grid = np.atleast_1d(np.asarray(times, dtype=np.float64))
    wrong = grid.ndim != 1 or len(grid) == 0 or not np.isfinite(grid).all()
    if wrong or (grid < 0).any() or (np.diff(grid) <= 0).any():
        raise ValueError(
            "times must be a number or an array of finite, non-negative and strictly increasing times; np.unique sorts "
            "times and drops repeats."
        )
    if quantity.startswith("restricted") and grid[0] == 0:
        raise ValueError(f"Horizons of {quantity} must be positive; got 0.")
    return grid


def predict_members(model: Any, X: Any) -> Members:
    """Return the predictions of each member of a model; models that are not ensembles have one member."""
    estimator, rows = innermost(model, X)
    if hasattr(estimator, "predict_members"):
        members: Members = estimator.predict_members(rows)
        return members
    return Members.equal([predict_distribution(estimator, rows)])


# ------------------------------------------------------------------ text of results


def mean_over_time(values: Array, quantity: Quantity) -> Array:
    """Return the mean over the last axis; for curves by the trapezoidal rule, since times may be uneven."""
    times = quantity.times
    if not quantity.is_curve or len(times) < 2:
        return np.asarray(values.mean(axis=-1))
    width = np.diff(times)
    return np.asarray((0.5 * (values[..., 1:] + values[..., :-1]) * width).sum(axis=-1) / width.sum())


def spread_out(count: int, most: int) -> npt.NDArray[np.int64]:
    """Return all of ``count`` positions, or ``most`` of them at equal steps, including the last."""
    return np.arange(count) if count <= most else ((np.arange(most) + 1) / most * (count - 1)).round().astype(np.int64)


def table_at_times(values: Array, names: Sequence[str], quantity: Quantity) -> str:
    """Return values of shape (names, m) at up to five of the times, as text."""
    chosen = spread_out(values.shape[1], _SHOWN)
    heads = [quantity.time_name(i) or "median" for i in chosen]
    frame = pd.DataFrame(values[:, chosen], index=[_short(name) for name in names], columns=heads)
    text = str(frame.to_string(float_format=lambda value: f"{value:.4g}"))
    return text + beyond(quantity.times[chosen] if quantity.name != "median" else np.empty(0), quantity)


def beyond(times: Array, quantity: Quantity) -> str:
    """Return a note if some of the times lie beyond the last training time."""
    last = quantity.last_time
    if last is None or not (times > last).any():
        return ""
    return f"\nPredictions beyond {last:.4g}, the last training time, are extrapolated."


def as_text(value: Any) -> str:
    """Return a value of a column in a few characters."""
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def _short(name: str) -> str:
    return name if len(name) <= 28 else name[:27] + "…"
