"""One pass over rows on disk: what a fit must know of its columns and times before it has a network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.advice import advise_on_text
from sumosurv.outcome import Outcome
from sumosurv.preprocessing import CategoricalColumn, NumericColumn, Preprocessor
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
    columns: dict[str, NumericSketch | CategoricalSketch] = {
        name: CategoricalSketch(name, pd.api.types.is_string_dtype(_dtype(source, name)))
        if source.is_category(name)
        else NumericSketch(name)
        for name in names
    }
    times = OutcomeSketch(roles.n_causes, two_times=roles.two_times)
    sample, held_out = (row_sample(size) for size in (SAMPLED, 2 * MOST_VALIDATION))
    n_seen, within, between = 0.0, Moments(), []
    for frame in roles.counted(source.frames([*names, *roles.names])):
        outcome, own = roles.outcome(frame), roles.subjects(frame, seed)
        for name, column in columns.items():
            if isinstance(column, NumericSketch):
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
    preprocessor.columns = [column.learned(preprocessor) for column in summary.columns.values()]
    return preprocessor


# ------------------------------------------------------------------ columns


class NumericSketch:
    """Quantiles, moments and missing values of a column of numbers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.quantiles, self.moments, self.missing = QuantileSketch(), Moments(), 0.0

    def check(self, values: pd.Series) -> None:
        """Raise a ValueError that names the first infinite value."""
        infinite = np.isinf(values.to_numpy(dtype=np.float64, na_value=np.nan))
        if infinite.any():
            raise ValueError(
                f"Column {self.name!r} contains infinity, first in row {values.index[infinite][0]:,}; replace such "
                "values or mark them as missing."
            )

    def add(self, values: pd.Series, weight: Floats | None) -> None:
        """Take in more rows, which were checked."""
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        absent = np.isnan(numbers)
        if absent.any():
            self.missing += float(absent.sum() if weight is None else weight[absent].sum())
            numbers, weight = numbers[~absent], None if weight is None else weight[~absent]
        self.quantiles.add(numbers, weight)
        self.moments.add(numbers, weight)

    def learned(self, preprocessor: Preprocessor) -> NumericColumn | CategoricalColumn:
        """The column."""
        points, weight = self.quantiles.points()
        if self.missing:
            points, weight = np.append(points, np.nan), np.append(weight, self.missing)
        made = preprocessor.learn_column(self.name, pd.Series(points, dtype=np.float64), weight)
        assert isinstance(made, NumericColumn)
        if not made.knots and made.seen is not None and made.seen.low < made.seen.high:
            return replace(made, centre=self.moments.mean, width=self.moments.width or 1.0)  # which are exact
        return made


class CategoricalSketch:
    """Levels and missing values of a column of categories."""

    def __init__(self, name: str, text: bool) -> None:
        self.name, self.text = name, text
        self.levels, self.missing, self.present = LevelSketch(), 0.0, 0

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

    def learned(self, preprocessor: Preprocessor) -> NumericColumn | CategoricalColumn:
        """The column; of too many levels the most frequent."""
        counts = self.levels.levels()
        levels, weight = list(counts), np.array(list(counts.values()))
        if self.text:
            advise_on_text(self.name, levels, self.present)
        values = pd.Series(pd.Categorical([*levels, None] if self.missing else levels, categories=levels))
        weight = np.append(weight, self.missing) if self.missing else weight
        return preprocessor.learn_column(self.name, values, weight)


def _dtype(source: RowSource, name: str) -> Any:
    return next(iter(source.frames([name], rows=1)))[name].dtype


def _rows_of(sample: RowSample[tuple[pd.DataFrame, Outcome]]) -> tuple[pd.DataFrame, Outcome]:
    rows = sample.rows()
    assert rows is not None
    return rows
