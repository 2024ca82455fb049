"""Scores of rows on disk: means exactly, areas under curves by sketches, concordances by a sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.special import ndtri

from sumosurv.distributions import SurvivalDistribution
from sumosurv.models import final_estimator, predict_distribution
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import Cells, Outcome
from sumosurv.scores._inputs import Array, of_cause, remembering, time_grid
from sumosurv.scores._requests import Asked, in_cells, make_requests, usual_scores
from sumosurv.scores._resampling import MeanTerms, SquareTerms
from sumosurv.scores._weighting import Weighting
from sumosurv.scores.score import Request
from sumosurv.sources import OutcomeSketch, QuantileSketch, Roles, RowSource, hashed, row_sample

__all__ = ["Streamed", "StreamedScores", "is_sampled"]

_GROUPS = 100  # of subjects, each left out once for the standard error
_BLOCK = 16_384  # rows scored at a time
_SAMPLED = 20_000  # rows of the scores that compare rows with each other
_MARKERS = 65_536  # risks of cases and of controls that the area under the curve is computed from


@dataclass
class Streamed:
    """One score of one model: its value, and those with a group of subjects left out."""

    value: float
    left_out: Array = field(default_factory=lambda: np.empty(0))
    std_error: float = np.nan

    def less(self, other: Streamed) -> Streamed:
        """The difference from another model's."""
        if len(self.left_out) and len(other.left_out):
            return Streamed(self.value - other.value, self.left_out - other.left_out)
        return Streamed(self.value - other.value)

    def interval(self, confidence: float) -> tuple[float, float, float]:
        """Ends and standard error."""
        error = self.std_error
        if len(self.left_out):
            n = len(self.left_out)
            error = float(np.sqrt((n - 1) / n * np.square(self.left_out - self.left_out.mean()).sum()))
        width = float(ndtri(0.5 + 0.5 * confidence)) * error
        return self.value - width, self.value + width, error


class StreamedScores:
    """Two passes over rows on disk: times and censoring first, then the scores.

    Parameters
    ----------
    models : mapping of names to fitted models
    source : RowSource
    roles : Roles
        As `Roles.read` returned it.
    scores, times
        As in `evaluate`.
    censoring : SurvivalDistribution, optional
        G; the Kaplan-Meier curve of the censoring of these rows by default.
    cells : Cells, optional
    """

    def __init__(
        self,
        models: Mapping[str, Any],
        source: RowSource,
        roles: Roles,
        *,
        scores: Asked | None,
        times: Any,
        censoring: SurvivalDistribution | None,
        causes: int,
        cells: Cells | None,
    ) -> None:
        self.models, self.source, self.roles = models, source, roles
        self.columns = {name: _columns(model, source, roles) for name, model in models.items()}
        self.names = list(dict.fromkeys(column for own in self.columns.values() for column in own))
        self._read = list(dict.fromkeys([*self.names, *roles.names]))
        self.cells = None if roles.lower is not None else cells
        self.times = self._times()
        whole = self.times.outcome()
        if scores is None:
            scores, times = usual_scores(whole, times, causes)
        if censoring is None and roles.lower is None:
            censoring = kaplan_meier(whole.any_cause(), censoring=True)
        self.censoring = censoring
        requests = make_requests(scores, whole, None, times, causes, self.cells)
        self.requests = [self._fixed(request, whole) for request in requests]
        self.sampled = [request for request in self.requests if is_sampled(request)]

    def _times(self) -> OutcomeSketch:
        """The first pass: times on the clock that scores are of, which starts at entry."""
        sketch = OutcomeSketch(self.roles.n_causes, two_times=self.roles.lower is not None)
        for frame in self.roles.counted(self.source.frames(self.roles.names, rows=1 << 18)):
            sketch.add(self.roles.outcome(frame).since_entry(), hashed(frame.index.to_numpy(), 0))
        return sketch

    def _fixed(self, request: Request, whole: Outcome) -> Request:
        """With the censoring curve and the times of all rows, which a part of them would not have."""
        options, score = dict(request.options), request.score
        if score.needs_censoring and options.get("censoring") is None:
            options["censoring"] = self.censoring
        if score.times == "range" and options.get(score.times_option) is None:
            ends = time_grid(None, whole.time, 2)
            options[score.times_option] = (float(ends[0]), float(ends[-1]))
        return replace(request, options=options)

    def score(self, advance: Any) -> tuple[dict[tuple[int, str], Streamed], tuple[pd.DataFrame, Outcome]]:
        """The second pass: scores by the place of their request and the model's name, and the sampled rows."""
        sums = {
            (place, name): _SUMS[_kind(request)](request)
            for place, request in enumerate(self.requests)
            if _kind(request) != "sample"
            for name in self.models
        }
        sample = row_sample(_SAMPLED)
        for frame in self.roles.counted(self.source.frames(self._read, rows=_BLOCK)):
            outcome = self.roles.outcome(frame)
            group = (self.roles.subjects(frame, 1) % np.uint64(_GROUPS)).astype(np.intp)
            X = frame[self.names]
            sample.add((X, outcome), hashed(frame.index.to_numpy(), 2))
            later = outcome.since_entry()
            for name, model in self.models.items():
                with remembering(), torch.no_grad():
                    distribution = predict_distribution(model, X[self.columns[name]])
                    remaining = distribution if later is outcome else distribution.remaining(outcome.entry)
                    for place, request in enumerate(self.requests):
                        if (place, name) in sums:
                            from_start = "entry" in request.score.takes
                            own, seen = (distribution, outcome) if from_start else (remaining, later)
                            sums[place, name].add(own, in_cells(request, seen, self.cells), group)
            advance(len(frame))
        rows = sample.rows()
        assert rows is not None
        return {key: found.result() for key, found in sums.items()}, rows

    def notes(self, n_sampled: int) -> list[str]:
        """How scores that are not exact were computed."""
        said = [
            f"{self.times.n_rows:,} rows were read in pieces: means are exact, their intervals from {_GROUPS} groups "
            "of subjects, each left out once."
        ]
        if self.censoring is not None and any(r.score.needs_censoring for r in self.requests):
            error = self.times.error
            said += [f"Ranks of the times behind the censoring curve are off by at most {error:.1g}."] if error else []
        if self.sampled and n_sampled < self.times.n_rows:
            named = ", ".join(dict.fromkeys(request.score.name for request in self.sampled))
            said.append(
                f"Of {n_sampled:,} rows drawn at random: {named}; the interval is that of the sample, and says how far "
                "the value of all rows may be."
            )
        return said


def _kind(request: Request) -> str:
    """How a score is computed: from sums over rows, from sketches of risks, or from a sample."""
    name = request.score.name
    if name == "cumulative_dynamic_auc":
        return "areas"
    compared = ("concordance_td", "harrell_c", "uno_c", "integrated_auc", "km_calibration", "incidence_calibration")
    return "sample" if name in compared else "sums"


def is_sampled(request: Request) -> bool:
    """Whether a score compares rows with each other, and is computed from a sample of them."""
    return _kind(request) == "sample"


class _Sums:
    """Sums over rows of what each contributes, by group of subjects."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._sums: Array | None = None
        self._weights = np.zeros(_GROUPS)
        self._terms: Any = None

    def add(self, distribution: SurvivalDistribution, outcome: Outcome, group: Any) -> None:
        """Take in more rows."""
        terms = self.request.terms(distribution, outcome)
        if not isinstance(terms, (MeanTerms, SquareTerms)):
            raise ValueError(f"{self.request.score.name} is not made of sums over rows; score some rows in memory.")
        weight = outcome.weights
        own = np.zeros((_GROUPS, terms.values.shape[1]))
        with np.errstate(invalid="ignore"):
            np.add.at(own, group, weight[:, None] * terms.values)
        self._sums = own if self._sums is None else self._sums + own
        self._weights += np.bincount(group, weights=weight, minlength=_GROUPS)
        self._terms = terms

    def result(self) -> Streamed:
        """The score, and those without each group."""
        assert self._sums is not None
        value = self._of(self._sums.sum(axis=0)[None] / self._weights.sum())[0]
        if isinstance(self._terms, SquareTerms) or not np.isfinite(value):
            return Streamed(float(value))
        there = self._weights > 0
        if there.sum() < 2:
            return Streamed(float(value))
        left = self._sums.sum(axis=0) - self._sums[there]
        return Streamed(float(value), self._of(left / (self._weights.sum() - self._weights[there])[:, None]))

    def _of(self, means: Array) -> Array:
        if isinstance(self._terms, SquareTerms):
            return np.asarray(np.square(means - self._terms.target).sum(axis=1))
        return np.asarray(self._terms.combine(means))


class _Areas:
    """The AUC at a time from sketches of the risks of cases and of controls."""

    def __init__(self, request: Request) -> None:
        options = dict(request.options)
        self.time, self.cause = float(options.pop("times")), options.pop("cause", None)
        self.weighting = Weighting(**options)
        self._sides = [QuantileSketch(_MARKERS), QuantileSketch(_MARKERS)]
        self._squares = np.zeros(2)

    def add(self, distribution: SurvivalDistribution, outcome: Outcome, group: Any) -> None:
        """Take in more rows."""
        curves, other = of_cause(distribution, outcome, self.cause)
        marker = -np.asarray(curves.log_survival(self.time), dtype=np.float64)
        ended = outcome.event & (outcome.time <= self.time)
        of_event = self.weighting.of_events(ended, outcome.time)
        case = of_event if other is None else np.where(other, 0.0, of_event)
        alive = outcome.time > self.time
        g = np.broadcast_to(np.asarray(self.weighting.censoring.survival(self.time), dtype=np.float64), alive.shape)
        control = of_event - case + self.weighting.inverse(g, alive, np.full(len(alive), self.time))
        for k, weight in enumerate((case * outcome.weights, control * outcome.weights)):
            rows = weight > 0
            self._sides[k].add(marker[rows], weight[rows])
            self._squares[k] += float(np.square(weight).sum())

    def result(self) -> Streamed:
        """The AUC, with DeLong's standard error."""
        (cases, w), (controls, v) = (side.points() for side in self._sides)
        if not (len(cases) and len(controls)):
            return Streamed(np.nan)
        over, under = _placed(cases, controls, v), 1.0 - _placed(controls, cases, w)
        value = float(np.average(over, weights=w))
        spread = [float(np.average(np.square(part - value), weights=own)) for part, own in ((over, w), (under, v))]
        sizes = np.array([w.sum(), v.sum()]) ** 2 / self._squares
        return Streamed(value, std_error=float(np.sqrt((np.array(spread) / sizes).sum())))


def _placed(values: Array, others: Array, weight: Array) -> Array:
    """The share of the others' weight below each value, half of that at it."""
    ends = np.concatenate([[0.0], np.cumsum(weight)])
    low, high = np.searchsorted(others, values, "left"), np.searchsorted(others, values, "right")
    return np.asarray(0.5 * (ends[low] + ends[high]) / ends[-1])


_SUMS: Mapping[str, Any] = {"sums": _Sums, "areas": _Areas}


def _columns(model: Any, source: RowSource, roles: Roles) -> list[str]:
    """The columns that a model reads."""
    if isinstance(model, SurvivalDistribution):
        raise TypeError("Rows on disk are scored by a model that reads them, not by a distribution.")
    names = getattr(final_estimator(model), "feature_names_in_", None)
    wanted = roles.covariates(source) if names is None else [str(name) for name in names]
    missing = [name for name in wanted if name not in source.names]
    if missing:
        raise ValueError(f"{source.name} lacks columns that the model was fitted on: {', '.join(map(repr, missing))}.")
    return wanted
