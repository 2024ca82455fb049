"""The rows that `evaluate` scores: a table in memory, or blocks that are read from disk or sent to a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from sumosurv.distributions import SurvivalDistribution
from sumosurv.models import final_estimator, predict_distribution
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import Outcome
from sumosurv.scores._inputs import CurveMemory, check_rows, check_subjects, time_grid
from sumosurv.scores._resampling import GROUPS, Estimate, Partial
from sumosurv.scores.censoring import CensoringCheck, weigh_requests
from sumosurv.scores.score import Request, Score
from sumosurv.sources import Block, OutcomeSketch, Source, hashed, take_rows

_BLOCK = 16_384  # rows scored at a time
_SAMPLED = 20_000  # rows of the scores that compare rows with each other

MapBlocks = Callable[["BlockTask", Iterable[Block]], Iterable["ScoredBlock"]]


class HeldRows:
    """Rows whose outcomes and predicted curves are held in memory: all rows, a block or a random sample."""

    def __init__(self, curves: Mapping[str, SurvivalDistribution], outcome: Outcome) -> None:
        self.curves, self.outcome = curves, outcome
        self.since_entry = outcome.since_entry()
        self._remaining: dict[str, SurvivalDistribution] = {}

    def seen_by(self, name: str, score: Score) -> tuple[SurvivalDistribution, Outcome]:
        """Return a model's curves and the outcome on the time scale of a score, which may start at entry."""
        if "entry" in score.takes or self.since_entry is self.outcome:
            return self.curves[name], self.outcome
        if name not in self._remaining:
            self._remaining[name] = self.curves[name].remaining(self.outcome.entry)
        return self._remaining[name], self.since_entry


class MemoryRows:
    """A table in memory: one block, on which every score is computed at once."""

    def __init__(self, models: Mapping[str, Any], source: Source) -> None:
        (block,) = source.blocks()
        assert block.outcome is not None
        self.models, self._X = models, block.X
        self.counted = np.zeros(source.n_rows, dtype=np.bool_)  # rows of the source whose weight is not zero
        self.counted[block.rows] = True
        columns = {name: _columns(model, source) for name, model in models.items()}
        self._covariates = _of_any(columns)
        curves, held = {}, block.outcome
        for name, model in models.items():
            d = predict_distribution(model, _read(block.X, columns[name]))
            d = d[block.rows] if len(d) == source.n_rows > len(block) else d
            curves[name], held = d, check_subjects(d, block.outcome, entry=True, intervals=True)
        self.held = HeldRows(curves, held)
        self.outcome = self.held.since_entry  # of the rows that count
        self.n_causes = common_causes(curves) or 1

    def weighted(self, requests: list[Request], censoring: Any, random_state: Any) -> tuple[list[Request], list[str]]:
        """Weigh by the G of the rows themselves, by a given one, or by one that depends on x.

        The test of "auto" reads the columns that the models read: others may hold the outcome. An estimator reads all.
        """
        if isinstance(censoring, CensoringCheck):
            censoring = censoring.of_rows(np.flatnonzero(self.counted))
        requests = [request.of_rows(self.counted) for request in requests]
        X = _read(self._X, self._covariates) if isinstance(censoring, str) and self._X is not None else self._X
        return weigh_requests(requests, censoring, X, self.outcome, random_state)

    def score(
        self, requests: Sequence[Request], verbose: bool = False
    ) -> tuple[dict[tuple[int, str], Estimate], HeldRows | None, list[str]]:
        """Return no merged scores, and all rows, on which to compute them."""
        return {}, self.held, []


class BlockRows:
    """Rows that are read in blocks, twice: the outcomes first, then the rows with their scores.

    Parameters
    ----------
    models : mapping of names to fitted models
    source : Source
    map_blocks : callable
        Applies a `BlockTask` to blocks of rows and returns the results in any order, as the builtin ``map`` does in
        this process. A cluster sends the blocks to its workers.
    """

    def __init__(self, models: Mapping[str, Any], source: Source, map_blocks: MapBlocks = map) -> None:
        self.models, self._source, self._map_blocks = models, source, map_blocks
        self.n_causes = common_causes(models) or 1
        if any(isinstance(model, SurvivalDistribution) for model in models.values()):
            raise TypeError("Rows on disk require a model; got a distribution.")
        self._columns = {name: _columns(model, source) for name, model in models.items()}
        smallest = np.empty(0, dtype=np.uint64)  # hashes of the rows that are sampled
        sketch = None
        for block in source.blocks(None if source.covariates is None else [], rows=1 << 18):
            assert block.outcome is not None
            sketch = sketch or OutcomeSketch(source.n_causes, two_times=block.outcome.upper is not None)
            sketch.add(block.outcome.since_entry(), hashed(block.rows, 0))
            smallest = np.sort(np.concatenate([smallest, hashed(block.rows, 2)]))[:_SAMPLED]
        assert sketch is not None
        self.outcome = sketch.outcome()  # few rows with weights that stand for all; times are counted from entry
        self._sketch, self._last_hash = sketch, smallest[-1]

    def weighted(self, requests: list[Request], censoring: Any, random_state: Any) -> tuple[list[Request], list[str]]:
        """Fix the censoring curve and the range of times, which single blocks do not know."""
        fixed = censoring if isinstance(censoring, SurvivalDistribution) else None
        if (fixed is None and censoring not in ("auto", "marginal")) or (fixed is not None and len(fixed) > 1):
            raise TypeError(
                "Rows in blocks are weighted by one censoring curve: censoring must be 'auto', 'marginal' or a "
                f"distribution of one row; got {type(censoring).__name__}."
            )
        if fixed is None and self.outcome.upper is None:
            fixed = kaplan_meier(self.outcome.any_cause(), censoring=True)
        made = []
        for request in requests:
            options, score = dict(request.options), request.score
            if score.needs_censoring and options.get("censoring") is None:
                options["censoring"] = fixed
            if score.times == "range" and options.get(score.times_option) is None:
                low, high = time_grid(None, self.outcome.time, 2)
                options[score.times_option] = (float(low), float(high))
            made.append(replace(request, options=options))
        notes = []
        if any(request.score.needs_censoring for request in requests):
            error = self._sketch.error
            notes += [f"Ranks of the times behind the censoring curve are off by at most {error:.1g}."] if error else []
            if censoring == "auto":
                notes.append("One G for all rows: whether censoring depends on the covariates was not tested.")
        return made, notes

    def score(
        self, requests: Sequence[Request], verbose: bool = False
    ) -> tuple[dict[tuple[int, str], Estimate], HeldRows | None, list[str]]:
        """Return the merged scores, the sampled rows on which to compute the others, and notes.

        Scores are identified by the position of their request and the name of the model.
        """
        sampled = list(dict.fromkeys(request.score.name for request in requests if request.score.by_block == "sample"))
        task = BlockTask(self.models, self._columns, requests, self._last_hash if sampled else None)
        blocks = self._source.blocks(task.covariates, rows=_BLOCK)
        merged: dict[tuple[int, str], Any] = {}
        rows = []
        from tqdm.auto import tqdm

        with tqdm(total=self._source.n_rows, desc="evaluating", unit="row", disable=not verbose) as bar:
            for block in self._map_blocks(task, blocks):
                for key, partial in block.partials.items():
                    if key in merged:
                        merged[key].merge(partial)
                    else:
                        merged[key] = partial
                rows.append(block.sample)
                bar.update(block.n_rows)
        notes = [
            f"{self._sketch.n_rows:,} rows were read in blocks: means are exact, their intervals from {GROUPS} groups "
            "of subjects, each left out once."
        ]
        found = {key: partial.estimate() for key, partial in merged.items()}
        if not sampled:
            return found, None, notes
        held = self._held(rows)
        if len(held.outcome) < self._sketch.n_rows:
            notes.append(
                f"Computed on {len(held.outcome):,} rows drawn at random: {', '.join(sampled)}. The intervals account "
                "for the size of this sample."
            )
        return found, held, notes

    def _held(self, parts: Sequence[Block]) -> HeldRows:
        """Join the sampled rows, in the order of their hashes, and predict their curves."""
        filled = [part for part in parts if len(part)]
        order = np.argsort(hashed(np.concatenate([part.rows for part in filled]), 2), kind="stable")
        tables = [part.X for part in filled]
        X = take_rows(pd.concat(tables) if isinstance(tables[0], pd.DataFrame) else np.concatenate(tables), order)
        outcome = Outcome.join([part.outcome for part in filled if part.outcome is not None])[order]
        curves = {
            name: predict_distribution(model, _read(X, self._columns[name])) for name, model in self.models.items()
        }
        return HeldRows(curves, check_rows(outcome, entry=True, intervals=True))


@dataclass(frozen=True)
class ScoredBlock:
    """What one block of rows contributes: partial results by request and model, and sampled rows."""

    n_rows: int
    partials: Mapping[tuple[int, str], Partial]
    sample: Block


@dataclass(frozen=True)
class BlockTask:
    """Scores one block of rows; it can be sent to another process."""

    models: Mapping[str, Any]  # by name
    columns: Mapping[str, Sequence[str] | None]  # that each model reads; None for arrays, which are read as they are
    requests: Sequence[Request]  # with all times and censoring curves
    last_hash: np.uint64 | None  # rows up to this hash belong to the sample; None for no sample

    @property
    def covariates(self) -> list[str] | None:
        """The columns that any of the models reads."""
        return _of_any(self.columns)

    def __call__(self, block: Block) -> ScoredBlock:
        """Score the rows of a block."""
        outcome = block.outcome
        assert outcome is not None
        group = (hashed(block.subjects, 1) % np.uint64(GROUPS)).astype(np.intp)
        partials = {}
        for name, model in self.models.items():
            memory = CurveMemory()
            with torch.no_grad():
                held = HeldRows({name: predict_distribution(model, _read(block.X, self.columns[name]))}, outcome)
                for place, request in enumerate(self.requests):
                    partial = request.partial(*held.seen_by(name, request.score), group, memory)
                    if partial is not None:
                        partials[place, name] = partial
        hashes = hashed(block.rows, 2)
        chosen = np.flatnonzero(hashes <= self.last_hash) if self.last_hash is not None else np.empty(0, dtype=np.intp)
        outcome = outcome[chosen]
        if not np.array_equal(block.subjects, block.rows):  # subjects become groups, which are resampled together
            outcome = replace(outcome, group=hashed(block.subjects[chosen], 1).view(np.int64))
        sample = Block(take_rows(block.X, chosen), outcome, block.rows[chosen], block.subjects[chosen])
        return ScoredBlock(len(block), partials, sample)


def _of_any(columns: Mapping[str, Sequence[str] | None]) -> list[str] | None:
    """Return the columns that any of the models reads; None for all, as they are."""
    if None in columns.values():
        return None
    return list(dict.fromkeys(name for own in columns.values() for name in own or ()))


def _read(X: Any, columns: Sequence[str] | None) -> Any:
    return X if columns is None else X[list(columns)]


def common_causes(models: Mapping[str, Any]) -> int | None:
    """Return the number of causes of the models, which must be the same for all; None if it is unknown."""
    numbers = {name: _n_causes(model) for name, model in models.items()}
    known = {name: number for name, number in numbers.items() if number is not None}
    if len(set(known.values())) > 1:
        listed = ", ".join(f"{name} {number}" for name, number in known.items())
        raise ValueError(f"Compared models must have the same number of causes; these have: {listed}.")
    return next(iter(known.values()), None)


def _n_causes(model: Any) -> int | None:
    if isinstance(model, SurvivalDistribution):
        return model.n_causes
    return getattr(final_estimator(model), "n_causes_", None)


def rows_of(models: Mapping[str, Any], source: Source) -> MemoryRows | BlockRows:
    """Return the rows of a source with the models that are scored on them."""
    return source.dispatch(lambda rows: MemoryRows(models, rows), lambda rows: BlockRows(models, rows))


def _columns(model: Any, source: Source) -> list[str] | None:
    """Return the columns that a model reads; None for all, as they are."""
    names, known = getattr(model, "feature_names_in_", None), source.covariates
    if names is None or known is None:
        return known
    missing = [str(name) for name in names if name not in known]
    if missing:
        raise ValueError(
            f"{source.name} is missing columns that the model was fitted on: {', '.join(map(repr, missing))}."
        )
    return [str(name) for name in names]
