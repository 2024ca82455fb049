"""What is learned of columns: from one block of rows, or from many by summaries that take in one after the other."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse

from sumosurv.preprocessing.columns import (
    AT_ONCE,
    CategoricalColumn,
    NumericColumn,
    NumericScaling,
    Range,
    categorical_places,
    is_categorical,
    normal_scores,
    numeric_parts,
)
from sumosurv.preprocessing.levels import listed
from sumosurv.quantiles import mean_and_width, quantiles
from sumosurv.sources import LevelSketch, Moments, QuantileSketch
from sumosurv.warn import warn_user

Floats = npt.NDArray[np.float64]
Column = NumericColumn | CategoricalColumn

_KNOTS = 257  # of the quantiles of a numeric column
_MANY_NUMBERS = 10  # different ones: category names are rarely that many numbers
_IDENTIFIERS = 20  # rows: a text column in which at least so many all differ does not describe them
_CLOCK = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?(\s*[ap]\.?m\.?)?"
_DAY, _MONTH, _YEAR = r"(0?[1-9]|[12]\d|3[01])", r"(0?[1-9]|1[0-2])", r"(19|20)\d{2}"
_NAMED = (
    r"(jan(uary?)?|feb(ruary?)?|mar(ch)?|märz?|mrz|apr(il)?|ma[iy]|june?|july?|aug(ust)?"
    r"|sept?(ember)?|o[ck]t(ober)?|nov(ember)?|de[cz](ember)?)\.?"
)
_DATE = re.compile(
    rf"""\s*([^\W\d_]{{2,10}},?\s+)?(
    \d{{4}}(?P<a>[-/.])\d{{1,2}}(?P=a)\d{{1,2}} | {_YEAR}{_MONTH}\d{{2}}(?=T) | {_YEAR}-?W\d{{1,2}}(-?\d)?
    | \d{{1,2}}(?P<b>[-/.])\d{{1,2}}(?P=b)\d{{4}} | {_DAY}(?P<c>[-/.]){_DAY}(?P=c)\d{{2}}
    | {_YEAR}[-/](0[1-9]|1[0-2]) | {_MONTH}[-/]{_YEAR}
    | \d{{1,2}}[ -.]+[^\W\d_]{{3,9}}[ -.,]+\d{{4}} | [^\W\d_]{{3,9}}[ .]+\d{{1,2}},?\ +\d{{4}}
    | \d{{1,2}}[ -.]*{_NAMED}[ -.,]*(\d{{2}}|\d{{4}}) | {_NAMED}[ -.,]+(\d{{2}}|\d{{4}})
    )(T\d{{4}}(\d{{2}})?Z? | [T ]+{_CLOCK}\s*(Z|UTC|GMT|[+-]\d{{2}}:?\d{{2}})?)?\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_TIME_OF_DAY = re.compile(rf"\s*{_CLOCK}\s*", re.IGNORECASE)
_PERCENTAGE = re.compile(r"\s*[-+]?\d+([.,]\d+)?\s*%\s*")
_QUANTITY = re.compile(r"\s*[<>≤≥~≈=]*\s*[$€£¥]?\s*[-+−]?\d[\d.,'’\s_]*(?P<unit>\D.*)?")  # "37 days", "<5", "$ 1'200"


class TableSummary:
    """What the columns of a table hold, in any number of blocks of rows.

    Of one block it is exact; of many, columns are learned up to the error of their sketches.
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self._block: tuple[pd.DataFrame, Floats | None] | None = None  # the only one so far
        self._sketches: dict[str, _NumericSketch | _CategoricalSketch] = {}

    def add(self, frame: pd.DataFrame, weight: Floats | None) -> None:
        """Take in a block of rows."""
        self.n_rows += len(frame)
        if self._block is None and not self._sketches:
            self._block = frame, weight
            return
        blocks = [(frame, weight)]
        if self._block is not None:
            blocks, self._block = [self._block, *blocks], None
            self._sketches = {
                str(name): _CategoricalSketch(values) if is_categorical(values) else _NumericSketch()
                for name, values in frame.items()
            }
        for rows, own in blocks:
            for sketch, (_, values) in zip(self._sketches.values(), rows.items()):
                sketch.add(values, own)

    def learned(self, scaling: NumericScaling) -> list[Column]:
        """The columns, in the order of the table."""
        if self._block is None:
            return [sketch.learned(name, scaling) for name, sketch in self._sketches.items()]
        frame, weight = self._block
        names = [str(name) for name in frame.columns]
        coded = categorical_places(frame)
        found: dict[int, Column] = {j: _learn_categories(names[j], frame.iloc[:, j], weight) for j in coded}
        numeric = sorted(set(range(len(names))).difference(coded))
        for places, values in numeric_parts(frame, numeric):
            found |= zip(places, _learn_numbers([names[j] for j in places], values, weight, scaling))
        return [found[j] for j in range(len(names))]


def learn_sparse(matrix: Any, weight: Floats | None, scaling: NumericScaling) -> list[Column]:
    """The columns of a sparse matrix without missing values, some of which are arrays at a time."""
    found: list[Column] = []
    matrix = sparse.csc_array(matrix)
    step = max(1, AT_ONCE // max(matrix.shape[0], 1))
    for begin in range(0, matrix.shape[1], step):
        values = matrix[:, begin : begin + step].toarray().T
        names = [str(begin + j) for j in range(len(values))]
        found += _learn_present(names, np.ascontiguousarray(values), weight, scaling)
    return found


class _NumericSketch:
    """Quantiles, moments and missing values of a column of numbers."""

    def __init__(self) -> None:
        self.quantiles, self.moments, self.missing = QuantileSketch(), Moments(), 0.0

    def add(self, values: pd.Series, weight: Floats | None) -> None:
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        absent = np.isnan(numbers)
        if absent.any():
            self.missing += float(absent.sum() if weight is None else weight[absent].sum())
            numbers, weight = numbers[~absent], None if weight is None else weight[~absent]
        self.quantiles.add(numbers, weight)
        self.moments.add(numbers, weight)

    def learned(self, name: str, scaling: NumericScaling) -> Column:
        points, weight = self.quantiles.points()
        (made,) = _learn_present([name], points[None], weight, scaling)
        if not made.knots and made.seen is not None and made.seen.low < made.seen.high:
            made = replace(made, centre=self.moments.mean, width=self.moments.width or 1.0)  # which are exact
        return replace(made, indicator=self.missing > 0)


class _CategoricalSketch:
    """Levels and missing values of a column of categories; the most frequent levels if there are too many."""

    def __init__(self, values: pd.Series) -> None:
        self.text = pd.api.types.is_string_dtype(values.dtype)
        self.levels, self.missing, self.present = LevelSketch(), 0.0, 0

    def add(self, values: pd.Series, weight: Floats | None) -> None:
        absent = values.isna().to_numpy()
        self.missing += float(absent.sum() if weight is None else weight[absent].sum())
        self.present += int((~absent).sum())
        if weight is None:
            counts = values.value_counts(dropna=True)
        else:
            counts = pd.Series(weight, index=values.index).groupby(values, observed=True).sum()
        self.levels.add({level: float(count) for level, count in counts.items() if count > 0})

    def learned(self, name: str, scaling: NumericScaling) -> Column:
        counts = self.levels.levels()
        levels, weight = list(counts), np.array(list(counts.values()))
        if self.text:
            check_text(name, levels, self.present)
        values = pd.Series(pd.Categorical([*levels, None] if self.missing else levels, categories=levels))
        return _learn_categories(name, values, np.append(weight, self.missing) if self.missing else weight)


def _learn_categories(name: str, values: pd.Series, weight: Floats | None) -> CategoricalColumn:
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
    common = _most_common(ordered, values, weight)
    return CategoricalColumn(name, tuple(_plain(level) for level in ordered), bool(values.isna().any()), common)


def _learn_numbers(
    names: Sequence[str], values: Floats, weight: Floats | None, scaling: NumericScaling
) -> list[NumericColumn]:
    """Centre, width and range of columns (columns, rows); those with the same rows missing are learned together."""
    alike: dict[bytes, list[int]] = {}
    missing = np.isnan(values)
    for j, own in enumerate(missing):
        alike.setdefault(own.tobytes(), []).append(j)
    found: dict[int, NumericColumn] = {}
    for places in alike.values():
        there = ~missing[places[0]]
        weights = None if weight is None else weight[there]
        present = np.ascontiguousarray(values[places][:, there])  # sums are the same for columns learned alone
        made = _learn_present([names[j] for j in places], present, weights, scaling)
        found |= zip(places, made if there.all() else (replace(column, indicator=True) for column in made))
    return [found[j] for j in range(len(names))]


def _learn_present(
    names: Sequence[str], values: Floats, weight: Floats | None, scaling: NumericScaling
) -> list[NumericColumn]:
    """What is learned of columns (columns, rows) without missing values."""
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


def _most_common(levels: list[Any], values: pd.Series, weight: Floats | None) -> int:
    """The place of the level that most rows have; the first of several."""
    places = pd.Index(levels, dtype=object).get_indexer(pd.Index(values.astype(object), dtype=object))
    rows = places >= 0
    counts = np.bincount(places[rows], None if weight is None else weight[rows], minlength=max(len(levels), 1))
    return int(counts.argmax())


def _plain(level: Any) -> Any:
    """A level as a plain Python value that JSON can hold."""
    return level.item() if isinstance(level, np.generic) else level


def check_columns(frame: pd.DataFrame, rows: npt.NDArray[np.int64]) -> None:
    """Raise an error for a column of no supported type, and for infinite numbers, with their row numbers."""
    numeric = sorted(set(range(frame.shape[1])).difference(categorical_places(frame)))
    for _ in numeric_parts(frame, numeric, rows):
        pass


def check_text(name: str, levels: Sequence[Any], n_rows: int) -> None:
    """Check a column of text: refuse dates and percentages, warn of numbers written as text and of identifiers.

    Parameters
    ----------
    name : str
    levels : sequence
        Its distinct values.
    n_rows : int
        How many of its values are not missing.
    """
    if len(levels) and all(isinstance(level, str) for level in levels):
        keep = "or turn the column into a category to keep it as it is"
        if _most(levels, _DATE) or _most(levels, _TIME_OF_DAY):
            raise ValueError(
                f"Column {name!r} holds dates or times as text, such as {min(levels)!r}; turn it into numbers first, "
                f"for example days, {keep}."
            )
        if _most(levels, _PERCENTAGE):
            raise ValueError(
                f"Column {name!r} holds percentages as text, such as {min(levels)!r}; turn it into numbers first by "
                f"removing the %, {keep}."
            )
    if _warn_of_numbers(name, levels) or not len(levels) == n_rows >= _IDENTIFIERS:
        return
    warn_user(
        f"Column {name!r} has a different category in each of its {n_rows} rows, as identifiers have: nothing can be "
        "learned from it; leave it out, or turn it into numbers."
    )


def _most(levels: Sequence[str], pattern: re.Pattern[str]) -> bool:
    """Whether all levels match a pattern, or nine in ten of many."""
    found = sum(pattern.fullmatch(level) is not None for level in levels)
    return found == len(levels) or found >= max(_MANY_NUMBERS, 0.9 * len(levels))


def _warn_of_numbers(name: str, levels: Sequence[Any]) -> bool:
    """Warn of a column of text whose levels are numbers but for a few, or numbers with commas or a unit."""
    if len(levels) < _MANY_NUMBERS or not all(isinstance(level, str) for level in levels):
        return False
    text = pd.Series(list(levels), dtype=object)
    values = pd.to_numeric(text, errors="coerce")
    numbers = values.notna()
    read = [pd.to_numeric(text.str.replace(",", to, n=n), errors="coerce") for to, n in ((".", 1), ("", -1))]
    with_comma = read[0].notna() | read[1].notna()  # a decimal comma; commas between thousands
    parts = [_QUANTITY.fullmatch(level) for level in text]
    units = Counter(part["unit"] for part in parts if part is not None)
    most = max(_MANY_NUMBERS, 0.9 * len(text))
    if numbers.all():
        if (values % 1 == 0).all():  # codes, such as those of postal districts
            return False
        what = f"they are numbers, such as {text[0]!r}. Turn them into numbers"
    elif numbers.sum() >= most:
        odd = [repr(level) for level in text[~numbers]]
        what = f"all but {len(odd)} of them are numbers: {listed(odd)}. Correct these or mark them as missing"
    elif with_comma.sum() >= most:
        shown = repr(text[~numbers].iloc[0])
        what = f"they are numbers with commas, such as {shown}. Write them with a decimal point and no other separator"
    elif max(units.values(), default=0) >= most:
        shown = repr(text[~numbers].iloc[0])
        what = f"they are numbers with other characters, such as {shown}. Write them as numbers"
    else:
        return False
    warn_user(
        f"Column {name!r} holds text and becomes {len(text)} categories, but {what}, or turn the column into a "
        "category to keep it so."
    )
    return True
