"""Columns, numeric or categorical: their types, what is learned of them, and how their values become inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.special import ndtri
from torch import Tensor

from sumosurv.model_files import as_flag, as_list, as_number, as_text, as_whole
from sumosurv.outcome.checks import rows_in_words
from sumosurv.preprocessing.levels import check_text, find_rewritten

Floats = npt.NDArray[np.float64]
NumericScaling = Literal["standard", "quantile"]

UNSEEN, _MISSING, _FIRST_LEVEL = 0, 1, 2  # codes of a categorical column
AT_ONCE = 100_000  # values of numeric columns that are read together; they stay in cache
LARGEST = 1e300  # larger numbers overflow when differences or sums are taken
_KNOTS = 257  # of the quantiles of a numeric column
_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "empty")  # of pandas.api.types.infer_dtype


def quantiles(values: Floats, levels: Any, weight: Floats | None = None) -> Floats:
    """Quantiles by linear interpolation, as NumPy has them; with whole weights, those of the rows repeated.

    Values of shape (columns, rows) give one row of quantiles per column; weights are those of the rows.

    Examples
    --------
    >>> quantiles(np.array([3.0, 1.0]), [0.25, 0.5], np.array([1.0, 3.0]))
    array([1., 1.])
    """
    if weight is None:
        return np.moveaxis(np.quantile(values, levels, axis=-1), 0, -1)
    if values.ndim > 1:
        return np.stack([quantiles(column, levels, weight) for column in values])
    order = np.argsort(values, kind="stable")
    ordered, ends = values[order], np.cumsum(weight[order])
    place = np.asarray(levels, dtype=np.float64) * max(float(ends[-1]) - 1.0, 0.0)

    def at(position: Floats) -> Floats:
        found = np.searchsorted(ends, position, side="right")
        return np.asarray(ordered[np.minimum(found, len(ordered) - 1)], dtype=np.float64)

    low = at(np.floor(place))
    return low + (place - np.floor(place)) * (at(np.floor(place) + 1.0) - low)


def _medians(values: Floats, weight: Floats | None) -> Floats:
    """Medians along the last axis, as `quantiles` has them."""
    if weight is not None:
        return quantiles(values, [0.5], weight)[..., 0]
    middle = (values.shape[-1] - 1) // 2
    ordered = np.partition(values, middle, axis=-1)  # NumPy is several times as fast for one place as for two
    low = ordered[..., middle]
    high = low if values.shape[-1] % 2 else ordered[..., middle + 1 :].min(axis=-1)
    return np.asarray(high - 0.5 * (high - low))


def mean_and_width(values: Floats, weight: Floats | None = None) -> tuple[Floats, Floats]:
    """Mean and standard deviation (of the rows themselves, not an estimate for others), along the last axis."""
    if weight is None:
        return values.mean(axis=-1), values.std(axis=-1)
    centre = np.average(values, weights=weight, axis=-1)
    return centre, np.sqrt(np.average((values - centre[..., None]) ** 2, weights=weight, axis=-1))


@dataclass(frozen=True)
class Range:
    """Smallest value, median and largest value of a column, and whether all its values are whole numbers.

    Examples
    --------
    >>> import numpy as np
    >>> Range.of(np.array([[40.0, 52.0, 71.0]]))
    [Range(low=40.0, middle=52.0, high=71.0, whole=True)]
    """

    low: float
    middle: float
    high: float
    whole: bool

    @classmethod
    def of(cls, values: Floats, weight: Floats | None = None) -> list[Self]:
        """The range of each column (columns, rows), none with missing values; medians of whole numbers are whole."""
        whole = (values == np.round(values)).all(axis=1)
        middle = _medians(values, weight)
        middle = np.where(whole, np.floor(middle), middle)
        found = (values.min(axis=1), middle, values.max(axis=1), whole)
        return [cls(*own) for own in zip(*(part.tolist() for part in found))]

    @classmethod
    def from_state(cls, state: Any) -> Self | None:
        """The checked range in a model file; None if the file has none."""
        if state is None:
            return None
        low, middle, high = (as_number(state[name], name) for name in ("low", "middle", "high"))
        if not low <= middle <= high:
            raise ValueError(f"a column has the unordered range {low}, {middle}, {high}")
        return cls(low, middle, high, as_flag(state["whole"], "whole"))


@dataclass(frozen=True)
class NumericColumn:
    """Centred and scaled by the training rows; missing becomes 0 (the centre) beside an indicator."""

    name: str
    centre: float
    width: float
    indicator: bool
    knots: tuple[float, ...] = ()  # quantiles of the training rows, for normal scores
    seen: Range | None = None  # of the training rows; None if all are missing


def normal_scores(knots: Sequence[Sequence[float]], values: Floats) -> Floats:
    """Normal scores of columns (columns, rows) by the quantiles of each; missing values stay missing."""
    table, last = padded_knots(knots)
    ranks = knot_ranks(table, last, torch.from_numpy(np.ascontiguousarray(values))).numpy()
    return np.where(np.isnan(values), np.nan, ndtri((ranks + 0.5) / (last.numpy() + 1)))


def padded_knots(knots: Sequence[Sequence[float]]) -> tuple[Tensor, Tensor]:
    """Knots as a matrix, shorter lists padded with infinities, and the place of the last knot of each."""
    longest = max((len(own) for own in knots), default=0)
    rows = [[*own, *[math.inf] * (longest - len(own))] for own in knots]
    table = torch.tensor(rows, dtype=torch.float64).reshape(len(knots), longest)
    return table, torch.tensor([[len(own) - 1] for own in knots], dtype=torch.long).reshape(-1, 1)


def knot_ranks(knots: Tensor, last: Tensor, values: Tensor) -> Tensor:
    """The rank of each value among the knots of its column: linear between knots, the middle of a run of equal knots.

    Equal to ``np.interp`` between the knots, to the last bit. Knots and their ends are as in `padded_knots`, with two
    knots per column or more; values have the shape (columns, rows).
    """
    low = torch.searchsorted(knots, values)  # of the first knot that is not smaller
    high = torch.searchsorted(knots, values, right=True)
    left = torch.minimum((low - 1).clamp_min(0), last - 1)
    first, second = knots.gather(1, left), knots.gather(1, left + 1)
    step = torch.where(second > first, second - first, 1.0)
    rank = (1.0 / step) * (values - first) + left.to(values.dtype)
    rank = torch.minimum(rank.clamp_min(0.0), last.to(values.dtype))
    return torch.where(high > low, 0.5 * (low + high - 1).to(values.dtype), rank)


@dataclass(frozen=True)
class CategoricalColumn:
    """Codes: 0 a level not seen in training, 1 missing, 2... the levels."""

    name: str
    levels: tuple[Any, ...]
    missing_seen: bool
    common: int = 0  # place of the level that most training rows have

    @property
    def n_codes(self) -> int:
        """Number of codes."""
        return len(self.levels) + _FIRST_LEVEL

    @property
    def missing_code(self) -> int:
        """The code of a missing value: that of a level not seen, where training rows had none missing."""
        return _MISSING if self.missing_seen else UNSEEN

    def transform(self, values: pd.Series) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The codes of a column, and where a level was written in another way than in training ("1" for 1)."""
        is_categorical(values)  # refuses dates and other types that training refuses
        plain = values.astype(object)
        missing = plain.isna().to_numpy()
        found = pd.Index(self.levels, dtype=object).get_indexer(pd.Index(plain.where(~missing, None), dtype=object))
        rewritten = (found < 0) & ~missing
        if rewritten.any():
            places, distinct = pd.factorize(plain[rewritten].to_numpy(dtype=object))
            found = found.copy()
            found[rewritten] = find_rewritten(self.levels, distinct)[places]
            rewritten &= found >= 0
        codes = np.where(found >= 0, found + _FIRST_LEVEL, UNSEEN)
        return np.where(missing, self.missing_code, codes).astype(np.int64), rewritten


def column_from_state(state: dict[str, Any]) -> Column:
    """A column as a model file describes it."""
    name = as_text(state["name"], "a column's name")
    if state["kind"] == "categorical":
        levels = as_list(state["levels"], "levels")
        if not all(isinstance(level, (str, bool, int, float)) for level in levels) or len(set(levels)) < len(levels):
            raise ValueError(f"column {name!r} has invalid or repeated levels")
        common = as_whole(state["common"], "common")
        if common >= max(len(levels), 1):
            raise ValueError(f"column {name!r} has {len(levels)} levels, and the most common is that at {common}")
        return CategoricalColumn(name, tuple(levels), as_flag(state["missing_seen"], "missing_seen"), common)
    if state["kind"] != "numeric":
        raise ValueError(f"unknown type of column: {state['kind']!r}")
    knots = [as_number(knot, "a knot") for knot in as_list(state["knots"], "knots")]
    if any(b < a for a, b in pairwise(knots)):
        raise ValueError(f"the knots of column {name!r} are not in order")
    return NumericColumn(
        name,
        as_number(state["centre"], "centre"),
        as_number(state["width"], "width", above=0.0),
        as_flag(state["indicator"], "indicator"),
        tuple(knots),
        Range.from_state(state["seen"]),
    )


Column = NumericColumn | CategoricalColumn


# ------------------------------------------------------------------ what is learned of columns


def learn_categories(name: str, values: pd.Series, weight: Floats | None) -> CategoricalColumn:
    """Levels of a column; for rows on disk, of its distinct values with the weight of each."""
    present = values.dropna()
    levels = pd.unique(present.astype(object))
    odd = next((level for level in levels if not isinstance(level, (str, bool, int, float, np.generic))), None)
    if odd is not None:
        raise ValueError(
            f"Column {name!r} has levels of type {type(odd).__name__} ({odd}); turn them into text first: "
            ".astype(str).astype('category')."
        )
    if any(isinstance(level, (float, np.floating)) and not math.isfinite(level) for level in levels):
        raise ValueError(f"Column {name!r} has an infinite level; replace it or mark it as missing (NaN).")
    if not isinstance(values.dtype, pd.CategoricalDtype):
        check_text(name, levels, len(present))
    kinds = {type(level) for level in levels}
    ordered = sorted(levels) if len(kinds) <= 1 else sorted(levels, key=lambda v: (type(v).__name__, str(v)))
    places = pd.Index(ordered, dtype=object).get_indexer(pd.Index(values.astype(object), dtype=object))
    rows = places >= 0
    counts = np.bincount(places[rows], None if weight is None else weight[rows], minlength=max(len(ordered), 1))
    common = int(counts.argmax())  # the first of several
    plain = tuple(level.item() if isinstance(level, np.generic) else level for level in ordered)  # JSON can hold them
    return CategoricalColumn(name, plain, bool(values.isna().any()), common)


def learn_numbers(
    names: Sequence[str], values: Floats, weight: Floats | None, scaling: NumericScaling
) -> list[NumericColumn]:
    """Centre, width and range of columns (columns, rows); those with the same rows missing are learned together."""
    alike: dict[bytes, list[int]] = {}
    missing = np.isnan(values)
    if not missing.any():
        return learn_present(names, values, weight, scaling)
    for j, own in enumerate(missing):
        alike.setdefault(own.tobytes(), []).append(j)
    found: dict[int, NumericColumn] = {}
    for places in alike.values():
        there = ~missing[places[0]]
        weights = None if weight is None else weight[there]
        present = np.ascontiguousarray(values[places][:, there])  # sums are the same for columns learned alone
        made = learn_present([names[j] for j in places], present, weights, scaling)
        found |= zip(places, made if there.all() else (replace(column, indicator=True) for column in made))
    return [found[j] for j in range(len(names))]


def learn_present(
    names: Sequence[str], values: Floats, weight: Floats | None, scaling: NumericScaling
) -> list[NumericColumn]:
    """Learn scales and ranges of columns (columns, rows) without missing values."""
    if values.shape[1] == 0:
        return [NumericColumn(name, 0.0, 1.0, False) for name in names]
    seen = Range.of(values, weight)
    low, high = values.min(axis=1), values.max(axis=1)
    largest = np.maximum(np.abs(low), np.abs(high))
    size = np.where(largest > 1e100, largest, 1.0)  # squares of larger numbers overflow
    centre, width = (size * part for part in mean_and_width(values / size[:, None], weight))
    constant = low == high
    centre, width = np.where(constant, low, centre), np.where(constant, 1.0, width)
    knots: dict[int, list[float]] = {}
    if scaling == "quantile":
        between = (values != low[:, None]) & (values != high[:, None])
        ranked = np.flatnonzero(between.any(axis=1))  # columns with more than two values
        if len(ranked):
            count = values.shape[1] if weight is None else max(2, round(float(weight.sum())))
            places = quantiles(values[ranked], np.linspace(0, 1, min(_KNOTS, count)), weight).tolist()
            centre[ranked], width[ranked] = mean_and_width(normal_scores(places, values[ranked]), weight)
            knots = dict(zip(ranked.tolist(), places))
    width[width == 0.0] = 1.0
    learned = zip(names, centre.tolist(), width.tolist(), seen)
    return [
        NumericColumn(name, middle, spread, False, tuple(knots.get(j, ())), own)
        for j, (name, middle, spread, own) in enumerate(learned)
    ]


# ------------------------------------------------------------------ types of columns


def categorical_places(frame: pd.DataFrame) -> list[int]:
    """The places of the columns that are read as categories; see `is_categorical`."""
    return [j for j, kind in enumerate(frame.dtypes) if not _is_plain(kind) and is_categorical(frame.iloc[:, j])]


def _is_plain(dtype: Any) -> bool:
    """Whether a dtype is one of NumPy's real numbers."""
    return isinstance(dtype, np.dtype) and dtype.kind in "iuf"


def is_categorical(values: pd.Series) -> bool:
    """Whether a column is read as categories: those of dtype category, object, string or bool, unless all numbers.

    Raises a ValueError for dates, durations and complex numbers, and a TypeError for other objects.
    """
    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(dtype):
        return True
    if pd.api.types.is_complex_dtype(dtype):
        raise ValueError(f"Complex data not supported: column {values.name!r}.")
    if pd.api.types.is_numeric_dtype(dtype):
        return False
    if pd.api.types.is_datetime64_any_dtype(dtype) or pd.api.types.is_timedelta64_dtype(dtype):
        raise _date_error(values.name)
    if isinstance(dtype, pd.ArrowDtype) and not hasattr(dtype.pyarrow_dtype, "index_type"):  # no dictionary
        values = values.astype(object)
    elif not pd.api.types.is_object_dtype(dtype):
        return True
    kind = pd.api.types.infer_dtype(values, skipna=True)
    if kind == "string" or kind in _NUMBERS:
        return bool(kind == "string")
    present = values.dropna()
    if any(isinstance(value, (date, time, timedelta, np.datetime64, np.timedelta64)) for value in present):
        raise _date_error(values.name)
    for value in present:
        if not isinstance(value, (str, bool, int, float, Decimal, np.bool_, np.integer, np.floating)):
            raise TypeError(
                f"Column {values.name!r}: argument must be a string or a real number, not {type(value).__name__!r}."
            )
    numbers = (int, float, Decimal, np.number)  # Decimal: as databases give them
    return not all(isinstance(v, numbers) and not isinstance(v, (bool, np.bool_)) for v in present)


def numeric_parts(
    frame: pd.DataFrame, places: Sequence[int], rows: npt.NDArray[np.int64] | None = None
) -> Iterator[tuple[list[int], Floats]]:
    """Columns that are numeric in training, some at a time: their places, and their values of shape (columns, rows).

    Raises a ValueError for values of another type, and for infinite or huge ones, with their row numbers: positions in
    ``frame``, or ``rows`` if given.
    """
    plain = [_is_plain(kind) for kind in frame.dtypes]
    step = max(1, AT_ONCE // max(len(frame), 1))
    for begin in range(0, len(places), step):
        some = list(places[begin : begin + step])
        values = None
        if all(plain[j] for j in some):
            part = frame if len(some) == frame.shape[1] else frame.iloc[:, some]
            values = np.array(part.to_numpy(dtype=np.float64).T, order="C")
        if values is None or bool((np.abs(values) > LARGEST).any()):
            values = np.stack([read_numbers(frame.iloc[:, j], rows) for j in some])
        yield some, values


def read_numbers(values: pd.Series, rows: npt.NDArray[np.int64] | None = None) -> Floats:
    """The values of a numeric column; a ValueError for another type, and for infinite or huge values."""
    name = str(values.name)
    if is_categorical(values) and not values.isna().all():
        example = first_non_number(values)
        raise type_error(name, f"the category {example!r}" if type(example) in (int, float) else repr(example))
    try:
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    except OverflowError:  # whole numbers of Python, of any length
        limit = 10 * LARGEST
        numbers = np.array([np.nan if pd.isna(v) else float(min(max(v, -limit), limit)) for v in values])
    wrong = np.abs(numbers) > LARGEST
    if wrong.any():
        bad = np.flatnonzero(wrong)
        what = "contains infinity" if np.isinf(numbers[bad]).all() else f"holds values beyond ±{LARGEST:g}"
        where = rows_in_words(bad if rows is None else rows[bad])
        raise ValueError(f"Column {name!r} {what} in rows {where}; replace these values or mark them as missing (NaN).")
    return np.asarray(numbers)


def first_non_number(values: pd.Series) -> Any:
    """Return the first value that is neither a number nor text that reads as one; otherwise the first text or value."""
    present = pd.Series(values.dropna().tolist(), dtype=object)
    other = present[[isinstance(value, (str, bool)) for value in present]]
    odd = other[pd.to_numeric(other.astype(str), errors="coerce").isna()]
    return next(part for part in (odd, other, present, values) if len(part)).iloc[0]


def type_error(name: str, example: str) -> ValueError:
    """The error for a numeric column that holds something else in new rows."""
    return ValueError(
        f"Column {name!r} was numeric in training and now holds {example}; give it as numbers, as in training."
    )


def _date_error(name: Any) -> ValueError:
    return ValueError(f"Column {name!r} holds dates or durations; turn it into numbers first, for example days.")
