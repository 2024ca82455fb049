"""One pass over rows on disk: what a fit must know of its columns and times before it has a network."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.outcome import Outcome
from sumosurv.preprocessing import (
    CategoricalColumn,
    NumericColumn,
    NumericScaling,
    Preprocessor,
    check_text,
    is_categorical,
    learn_column,
    read_numbers,
)
from sumosurv.sources import (
    LevelSketch,
    Moments,
    OutcomeSketch,
    QuantileSketch,
    Roles,
    RowSample,
    RowSource,
    hashed,
    row_sample,
    uniform,
)

__all__ = ["Summary", "held_out_share", "is_held_out", "learned_columns", "summarise"]

Floats = npt.NDArray[np.float64]

MOST_VALIDATION = 100_000  # rows that are held out at most
SAMPLED = 100_000  # training rows that are kept for what needs whole rows


@dataclass(frozen=True)
class Summary:
    """What one pass tells of the rows.

    Attributes
    ----------
    columns : dict
        Of each covariate what is known of the training rows.
    outcome : Outcome
        Stands for that of all training rows, with weights: few rows in place of many.
    exact : bool
        Whether it has every time of the rows with its weight.
    n_train : int
        Training rows whose weight is not zero.
    mean_weight : float or None
        Of the training rows; None where rows have no weights.
    share_seen : float
        The share of training rows whose event time is known exactly.
    sample, validation : pair of DataFrame and Outcome, the latter or None
        Some of the training rows, and the rows that are held out.
    sorting : float
        How much more the mean times of parts of the table differ than those of parts drawn at random: about 1 for rows
        in no order.
    """

    columns: dict[str, NumericSketch | CategoricalSketch]
    outcome: Outcome
    exact: bool
    n_train: int
    mean_weight: float | None
    share_seen: float
    sample: tuple[pd.DataFrame, Outcome]
    validation: tuple[pd.DataFrame, Outcome] | None
    sorting: float


def held_out_share(fraction: float, n_rows: int) -> float:
    """The share of subjects that is held out: what was asked for, but no more rows than memory is meant for."""
    return min(fraction, MOST_VALIDATION / n_rows)


def is_held_out(roles: Roles, frame: pd.DataFrame, seed: int, share: float) -> npt.NDArray[np.bool_]:
    """Which rows are held out: by a hash of their subject, the same in every pass."""
    return np.asarray(uniform(roles.subjects(frame, seed)) < share)


def summarise(source: RowSource, roles: Roles, *, seed: int, share: float) -> Summary:
    """Go through all rows once.

    Parameters
    ----------
    source : RowSource
    roles : Roles
        As `Roles.read` returned it.
    seed : int
        Of the split.
    share : float
        Of the subjects, to be held out.
    """
    names = roles.covariates(source)
    columns = _sketches(source, names)
    times = OutcomeSketch(roles.n_causes, two_times=roles.two_times)
    sample, held_out = (row_sample(size) for size in (SAMPLED, 2 * MOST_VALIDATION))
    n_seen, within, between = 0.0, Moments(), []
    for frame in roles.counted(source.frames([*names, *roles.names])):
        outcome, own = roles.outcome(frame), roles.subjects(frame, seed)
        for name, column in columns.items():
            column.check(frame[name])
        if share > 0:
            out = np.flatnonzero(uniform(own) < share)
            held_out.add((frame[names].iloc[out], outcome[out]), own[out])
            kept = np.flatnonzero(uniform(own) >= share)
            frame, outcome = frame.iloc[kept], outcome[kept]
        if len(frame) == 0:
            continue
        for name, column in columns.items():
            column.add(frame[name], outcome.weight)
        rows = hashed(frame.index.to_numpy(), seed + 1)
        times.add(outcome, rows)
        sample.add((frame[names], outcome), rows)
        within.add(outcome.time)
        between.append((len(outcome), float(outcome.time.mean())))
        n_seen += float(outcome.weights[outcome.event].sum())
    if times.n_rows == 0:
        raise ValueError(f"{source.name} has no training rows: all of them are held out or have the weight zero.")
    return Summary(
        columns,
        times.outcome(),
        times.exact,
        times.n_rows,
        None if roles.weight is None else times.total / times.n_rows,
        n_seen / times.total,
        _rows_of(sample),
        held_out.rows() if share > 0 else None,
        _sorting(between, within),
    )


def _sorting(parts: list[tuple[int, float]], whole: Moments) -> float:
    """The variance of the means of parts, by what it is for parts drawn at random (F of a one-way ANOVA)."""
    if len(parts) < 2 or whole.width == 0.0:
        return 1.0
    n, mean = np.array(parts).T
    return float((n * np.square(mean - whole.mean)).sum() / (len(parts) - 1) / whole.width**2)


def learned_columns(preprocessor: Preprocessor, summary: Summary) -> Preprocessor:
    """Columns as if all training rows had been in memory, up to the error of the sketches."""
    preprocessor.named = True
    preprocessor.columns = [column.learned(preprocessor.scaling) for column in summary.columns.values()]
    return preprocessor


# ------------------------------------------------------------------ columns


class NumericSketch:
    """Quantiles, moments and missing values of a column of numbers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.quantiles, self.moments, self.missing = QuantileSketch(), Moments(), 0.0

    def check(self, values: pd.Series) -> None:
        """Raise a ValueError for values that are not numbers, or infinite."""
        read_numbers(values, self.name, values.index)

    def add(self, values: pd.Series, weight: Floats | None) -> None:
        """Take in more rows, which were checked."""
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        absent = np.isnan(numbers)
        if absent.any():
            self.missing += float(absent.sum() if weight is None else weight[absent].sum())
            numbers, weight = numbers[~absent], None if weight is None else weight[~absent]
        self.quantiles.add(numbers, weight)
        self.moments.add(numbers, weight)

    def learned(self, scaling: NumericScaling) -> NumericColumn | CategoricalColumn:
        """The column."""
        points, weight = self.quantiles.points()
        if self.missing:
            points, weight = np.append(points, np.nan), np.append(weight, self.missing)
        made = learn_column(self.name, pd.Series(points, dtype=np.float64), weight, scaling)
        assert isinstance(made, NumericColumn)
        if not made.knots and made.seen is not None and made.seen.low < made.seen.high:
            return replace(made, centre=self.moments.mean, width=self.moments.width or 1.0)  # which are exact
        return made


class CategoricalSketch:
    """Levels and missing values of a column of categories."""

    def __init__(self, name: str, text: bool) -> None:
        self.name, self.text = name, text
        self.levels, self.missing, self.present = LevelSketch(), 0.0, 0

    def check(self, values: pd.Series) -> None:
        """Raise an error for values that are neither text nor truth values nor numbers."""
        is_categorical(values)

    def add(self, values: pd.Series, weight: Floats | None) -> None:
        """Take in more rows."""
        absent = values.isna().to_numpy()
        self.missing += float(absent.sum() if weight is None else weight[absent].sum())
        self.present += int((~absent).sum())
        if weight is None:
            counts = values.value_counts(dropna=True)
        else:
            counts = pd.Series(weight, index=values.index).groupby(values, observed=True).sum()
        self.levels.add({level: float(count) for level, count in counts.items() if count > 0})

    def learned(self, scaling: NumericScaling) -> NumericColumn | CategoricalColumn:
        """The column; if it has too many levels, with the most frequent ones."""
        counts = self.levels.levels()
        levels, weight = list(counts), np.array(list(counts.values()))
        if self.text:
            check_text(self.name, levels, self.present)
        values = pd.Series(pd.Categorical([*levels, None] if self.missing else levels, categories=levels))
        weight = np.append(weight, self.missing) if self.missing else weight
        return learn_column(self.name, values, weight, scaling)


def _sketches(source: RowSource, names: list[str]) -> dict[str, NumericSketch | CategoricalSketch]:
    """Of each column an empty sketch, of numbers or of categories; an error for columns that are neither."""
    first = next(source.frames(names, rows=1))
    made: dict[str, NumericSketch | CategoricalSketch] = {}
    for name in names:
        category = source.is_category(name)
        if is_categorical(first[name]) if category is None else category:
            made[name] = CategoricalSketch(name, pd.api.types.is_string_dtype(first[name].dtype))
        else:
            made[name] = NumericSketch(name)
    return made


def _rows_of(sample: RowSample[tuple[pd.DataFrame, Outcome]]) -> tuple[pd.DataFrame, Outcome]:
    rows = sample.rows()
    assert rows is not None
    return rows
