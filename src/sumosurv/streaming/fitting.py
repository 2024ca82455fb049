"""A fit to rows on disk: one pass to learn columns and outcome, then the walk of a fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils import check_random_state

from sumosurv.fitting.plan import FitPlan, FittedComponents, stack_components
from sumosurv.fitting.prepared import Learned, PreparedRows, learn_time_scale
from sumosurv.fitting.settings import NetworkMethod
from sumosurv.networks import Inputs, Observed, Table
from sumosurv.outcome import Outcome
from sumosurv.preprocessing import Preprocessor, TableSummary, check_columns
from sumosurv.sources import Block, Moments, OutcomeSketch, StoredRows, as_source, hashed, row_sample, uniform
from sumosurv.training.batches import Batches, Member, StreamBatches
from sumosurv.warn import warn_user

BUFFER = 262_144  # rows that are shuffled together
MOST_VALIDATION = 100_000  # rows that are held out at most
SAMPLED = 100_000  # training rows that are kept for what needs whole rows
_SORTED = 20.0  # how much more than at random the times of parts of a table may differ


@dataclass(frozen=True)
class Split:
    """Training and held-out rows: by a hash of the subject, the same in every pass."""

    seed: int
    share: float

    @classmethod
    def of(cls, seed: int, fraction: float, n_rows: int) -> Split:
        """Hold out a share of the subjects, but not more rows than memory is meant for."""
        return cls(seed, min(fraction, MOST_VALIDATION / n_rows))

    def is_held_out(self, block: Block) -> npt.NDArray[np.bool_]:
        """Which rows are held out."""
        return np.asarray(uniform(hashed(block.subjects, self.seed)) < self.share)


@dataclass(frozen=True)
class Summary:
    """What one pass over the rows learns."""

    columns: TableSummary  # of the training rows
    outcome: Outcome  # represents the outcome of all training rows: few rows with weights in place of many
    exact: bool  # whether it has every time of the rows with its weight
    n_train: int  # training rows whose weight is not zero
    mean_weight: float | None  # of the training rows; None if rows have no weights
    share_seen: float  # of training rows whose event time is known exactly
    sample: tuple[pd.DataFrame, Outcome]  # some of the training rows
    validation: tuple[pd.DataFrame, Outcome] | None  # the rows that are held out
    sorting: float  # see `_sorting`; about 1 for rows in no order


def summarise(source: StoredRows, split: Split) -> Summary:
    """Go through all rows once."""
    columns, times = TableSummary(), OutcomeSketch(source.n_causes, two_times=source.roles.two_times)
    sample, held_out = (row_sample(size) for size in (SAMPLED, 2 * MOST_VALIDATION))
    n_seen, within, between = 0.0, Moments(), []
    for block in source.blocks():
        check_columns(block.X, block.rows)
        assert block.outcome is not None
        out = split.is_held_out(block)
        held_out.add((block.X[out], block.outcome[out]), hashed(block.subjects[out], split.seed))
        if out.all():
            continue
        X, outcome, rows = block.X[~out], block.outcome[~out], hashed(block.rows[~out], split.seed + 1)
        columns.add(X, outcome.weight)
        times.add(outcome, rows)
        sample.add((X, outcome), rows)
        within.add(outcome.time)
        between.append((len(outcome), float(outcome.time.mean())))
        n_seen += float(outcome.weights[outcome.event].sum())
    whole = sample.rows()
    if whole is None:
        raise ValueError(f"{source.name} has no training rows: all rows are held out or have weight zero.")
    return Summary(
        columns,
        times.outcome(),
        times.exact,
        times.n_rows,
        None if source.roles.weight is None else times.total / times.n_rows,
        n_seen / times.total,
        whole,
        held_out.rows() if split.share > 0 else None,
        _sorting(between, within),
    )


def _sorting(parts: list[tuple[int, float]], whole: Moments) -> float:
    """The variance of the means of parts, relative to that of parts drawn at random (F of a one-way ANOVA)."""
    if len(parts) < 2 or whole.width == 0.0:
        return 1.0
    n, mean = np.array(parts).T
    return float((n * np.square(mean - whole.mean)).sum() / (len(parts) - 1) / whole.width**2)


@dataclass(frozen=True, kw_only=True)
class StreamedRows(PreparedRows):
    """As `PreparedRows`; its table has some of the training rows, then the validation rows. The others are on disk."""

    source: StoredRows
    split: Split
    summary: Summary

    @property
    def training(self) -> Outcome:
        """Rows with weights that represent the outcome of all training rows."""
        return self.summary.outcome

    def n_training(self, members: Sequence[Member]) -> int:
        """The number of training rows."""
        return self.summary.n_train

    def event_shares(self, members: Sequence[Member]) -> npt.NDArray[np.float64]:
        """For each member, the share of training rows whose likelihood is a density."""
        return np.full(len(members), self.summary.share_seen)

    def batches(self, members: Sequence[Member], batch_size: int, device: torch.device) -> Batches:
        """Batches that are read from disk."""
        n, signature = self.summary.n_train, self.source.source.signature()
        return StreamBatches(self._read, n, self.table, members, batch_size, device, BUFFER, signature)

    def _read(self, epoch: int) -> Generator[Table, None, None]:
        """The training rows of an epoch, in the order in which they are read, as tables."""
        for block in self.source.shuffled_blocks(self.split.seed + epoch, buffer=BUFFER):
            kept = ~self.split.is_held_out(block)
            if kept.any():
                assert block.outcome is not None
                yield self.rows_as_table(block.X[kept], block.outcome[kept])

    def rows_as_table(self, X: Any, outcome: Outcome) -> Table:
        """Return some rows as a table of tensors."""
        observed = self.learned.observe(outcome, self.summary.mean_weight)
        return Table(self.learned.preprocessor.transform(X), Observed.of(replace(observed, group=None)))


def fit_stream(
    model: NetworkMethod,
    plan: FitPlan,
    source: StoredRows,
    validation_data: tuple[Any, ...] | None,
    note_rows: Callable[[Any, Outcome], None],
) -> FittedComponents:
    """Fit the networks of a plan to rows that are read in blocks.

    ``note_rows`` is called with columns and an outcome that represent all training rows, before training.
    """
    if model.refit:
        raise ValueError("refit=True is not supported for rows on disk; use refit=False.")
    random = check_random_state(model.random_state)
    seeds = [int(value) for value in random.randint(0, 2**31 - 1, size=plan.method.n_members)]
    seed = int(random.randint(0, 2**31 - 1))  # of the split, and of the order in which files are read
    fraction = 0.0 if validation_data is not None else model.validation_fraction
    split = Split.of(seed, fraction, source.n_rows)
    summary = summarise(source, split)
    if summary.sorting > _SORTED and summary.n_train > BUFFER:
        warn_user(
            f"The rows of {source.name} are nearly ordered by time. Training shuffles {BUFFER:,} rows at "
            "a time, from at least 16 row groups, which does not suffice: write the table in random "
            "order."
        )
    model._check_rows(summary.outcome)
    note_rows(summary.sample[0], summary.outcome)
    held_out = summary.validation
    if validation_data is not None:
        given = as_source(*validation_data, n_causes=source.n_causes, columns=source.covariates)
        X, outcome = given.sample(MOST_VALIDATION)
        held_out = X, source.roles.with_fields(outcome)
    if held_out is not None:
        model._check_rows(held_out[1])
    learned = _learn(model, summary, held_out)
    outcomes = [part[1] for part in (summary.sample, held_out) if part is not None]
    rows = StreamedRows(
        learned, _NO_ROWS, Outcome.join(outcomes), len(outcomes[0]), source=source, split=split, summary=summary
    )
    tables = [rows.rows_as_table(*part) for part in (summary.sample, held_out) if part is not None]
    rows = replace(rows, table=Table.join(tables))
    members = [plan.member(own, *rows.own_rows()) for own in seeds]
    trained = plan.fit(rows, members)
    return stack_components(model, [trained], rows, interrupted=trained.interrupted)


def _learn(model: NetworkMethod, summary: Summary, held_out: tuple[Any, Outcome] | None) -> Learned:
    """Columns and time scale."""
    options = model._row_options()
    if options.resolution == "auto" and not summary.exact:
        options = replace(options, resolution=None)  # more times than cells could have
    columns = Preprocessor(
        options.numeric_scaling, one_hot=options.one_hot, max_components=options.max_components
    ).learn(summary.columns, summary.sample[0].sort_index(), named=True)
    parts = [summary.outcome, *([] if held_out is None else [held_out[1].any_cause()])]
    return learn_time_scale(options, columns, summary.outcome, parts)


_NO_ROWS = Table(
    Inputs(torch.zeros(0, 0), torch.zeros(0, 0, dtype=torch.long)), Observed(torch.zeros(0).bool(), torch.zeros(0))
)
