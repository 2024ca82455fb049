"""A fit to rows on disk: the walk of a fit in memory, with other rows beneath it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils import check_random_state

from sumosurv.fitting.components import FittedComponents, stack_components
from sumosurv.fitting.inputs import check_validation_data
from sumosurv.fitting.method import NetworkMethod
from sumosurv.fitting.plan import FitPlan
from sumosurv.fitting.rows import Learned, PreparedRows, find_time_scale, for_training
from sumosurv.networks import Inputs, Observed, Table
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.preprocessing import Preprocessor, telling_unseen, time_unit
from sumosurv.sources import Roles, RowSource, is_source
from sumosurv.streaming.batches import BUFFER, StreamBatches
from sumosurv.streaming.learning import (
    Summary,
    held_out_share,
    is_held_out,
    learned_columns,
    summarise,
)
from sumosurv.training import Batches, Member
from sumosurv.warn import warn_user

__all__ = ["fit_stream"]

_SORTED = 20.0  # how much more than at random the times of parts of a table may differ


@dataclass(frozen=True)
class _Stream:
    """The training rows on disk, and how they are told from those that are held out."""

    source: RowSource
    roles: Roles
    seed: int
    share: float


@dataclass(frozen=True)
class StreamedRows(PreparedRows):
    """As `PreparedRows`; its table has some of the training rows, then the validation rows. The others are on disk."""

    stream: _Stream | None = None
    summary: Summary | None = None

    @property
    def training(self) -> Outcome:
        """Rows with weights that represent the outcome of all training rows."""
        return self._summary.outcome

    @property
    def _summary(self) -> Summary:
        assert self.summary is not None
        return self.summary

    def n_training(self, members: Sequence[Member]) -> int:
        """The number of training rows."""
        return self._summary.n_train

    def event_shares(self, members: Sequence[Member]) -> npt.NDArray[np.float64]:
        """For each member, the share of training rows whose likelihood is a density."""
        return np.full(len(members), self._summary.share_seen)

    def batches(self, members: Sequence[Member], batch_size: int, device: torch.device) -> Batches:
        """Batches that are read from disk."""
        assert self.stream is not None
        n = self._summary.n_train  # weights have mean one, so that all rows count for as many
        signature = self.stream.source.signature()
        return StreamBatches(self._read, n, float(n), self.table, members, batch_size, device, BUFFER, signature)

    def _read(self, epoch: int) -> Iterator[Table]:
        """The training rows of an epoch, in the order in which they are read, as tables."""
        stream, names = self.stream, [column.name for column in self.learned.preprocessor.columns]
        assert stream is not None
        with telling_unseen():
            frames = stream.source.shuffled_frames(stream.seed + epoch, [*names, *stream.roles.names], buffer=BUFFER)
            for frame in stream.roles.counted(frames):
                if stream.share > 0:
                    frame = frame[~is_held_out(stream.roles, frame, stream.seed, stream.share)]
                if len(frame):
                    yield self.rows_as_table(frame[names], stream.roles.outcome(frame))

    def rows_as_table(self, X: Any, outcome: Outcome) -> Table:
        """Some rows as networks read them."""
        return Table(self.learned.preprocessor.transform(X), self.observed(outcome))

    def observed(self, outcome: Outcome) -> Observed:
        """An outcome on the networks' time scale."""
        own, learned = outcome, self.learned
        if learned.cells is not None:
            own = learned.cells.of(own)
        own = for_training(own.on_clock(learned.time_origin, learned.time_unit), self._summary.mean_weight)
        return Observed.of(replace(own, group=None))


def fit_stream(
    model: NetworkMethod,
    plan: FitPlan,
    source: RowSource,
    roles: Roles,
    validation_data: tuple[Any, ...] | None,
    known_of: Callable[[Any, Outcome], dict[str, Any]],
) -> tuple[PreparedRows, FittedComponents]:
    """Fit the networks of a plan to rows that are read in pieces.

    ``known_of`` returns the fitted attributes that every estimator has, from rows and an outcome that represent all
    training rows.
    """
    if model.refit:
        raise ValueError(
            "refit=True is not supported for rows on disk, of which at most 100,000 are held out; leave it out."
        )
    roles = roles.read(source)
    random = check_random_state(model.random_state)
    seeds = [int(value) for value in random.randint(0, 2**31 - 1, size=plan.method.n_members)]
    seed = int(random.randint(0, 2**31 - 1))  # of the split, and of the order in which files are read
    share = 0.0 if validation_data is not None else held_out_share(model.validation_fraction, source.n_rows)
    stream = _Stream(source, roles, seed, share)
    summary = summarise(source, roles, seed=seed, share=share)
    if summary.sorting > _SORTED and summary.n_train > BUFFER:
        warn_user(
            f"The rows of {source.name} are nearly ordered by time. Training shuffles {BUFFER:,} rows at a time, "
            "from at least 16 row groups, which is then not enough: write the table in random order."
        )
    rows = _prepared(model, stream, summary, validation_data, known_of)
    members = [plan.member(own, *rows.own_rows()) for own in seeds]
    trained = plan.fit(rows, members)
    return rows, stack_components(model, [trained], rows, interrupted=trained.interrupted)


def _prepared(
    model: NetworkMethod,
    stream: _Stream,
    summary: Summary,
    validation_data: tuple[Any, ...] | None,
    known_of: Callable[[Any, Outcome], dict[str, Any]],
) -> StreamedRows:
    """The rows of the fit as networks read them."""
    X, outcome = summary.sample
    model._check_rows(summary.outcome)
    known = known_of(X, summary.outcome)
    options = model._row_options()
    if options.resolution == "auto" and not summary.exact:
        options = replace(options, resolution=None)  # more times than cells could have
    preprocessor = learned_columns(Preprocessor(options.numeric_scaling, one_hot=options.one_hot), summary)
    held_out = summary.validation
    if validation_data is not None:
        held_out = _given_validation(stream.roles, list(X.columns), validation_data)
        model._check_rows(held_out[1])
    parts = [summary.outcome, *([] if held_out is None else [held_out[1].any_cause()])]
    cells, origin = find_time_scale(options, summary.outcome, parts)
    observed = summary.outcome if cells is None else cells.of(summary.outcome)
    unit = time_unit(observed.on_clock(origin))
    learned = Learned(preprocessor, origin, unit, {}, cells)
    bare = StreamedRows(learned, _NO_ROWS, outcome, len(outcome), known, stream=stream, summary=summary)
    tables = [bare.rows_as_table(X, outcome)]
    if held_out is not None:
        tables.append(bare.rows_as_table(*held_out))
        outcome = Outcome.join([outcome, held_out[1]])
    return replace(bare, table=Table.join(tables), outcome=outcome)


def _given_validation(roles: Roles, names: list[str], validation_data: tuple[Any, ...]) -> tuple[Any, Outcome]:
    """Validation rows that were given: in memory, or on disk, of which at most so many are read."""
    if is_source(validation_data[0]):
        source = RowSource.of(validation_data[0])
        summary = summarise(source, roles.read(source, roles.n_causes), seed=0, share=0.0)
        return summary.sample[0][names], summary.sample[1]
    check_validation_data(validation_data)
    weight = validation_data[2] if len(validation_data) == 3 else None
    made = check_outcome(validation_data[1], n_rows=len(validation_data[0]), sample_weight=weight)
    return validation_data[0], roles.with_fields(made)


_NO_ROWS = Table(
    Inputs(torch.zeros(0, 0), torch.zeros(0, 0, dtype=torch.long)), Observed(torch.zeros(0).bool(), torch.zeros(0))
)
