"""From what `evaluate` is asked for to requests: each score with its options and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.distributions import SurvivalDistribution
from sumosurv.outcome import Cells, Outcome
from sumosurv.scores._inputs import check_rows, check_subjects
from sumosurv.scores.score import Request, Score
from sumosurv.scores.table import SCORES

__all__ = [
    "DEFAULT_SCORES",
    "HORIZON_SCORES",
    "Asked",
    "counted_rows",
    "find_score",
    "in_cells",
    "make_requests",
    "usual_scores",
]

Asked = str | Sequence[str] | Mapping[str, Mapping[str, Any]]

DEFAULT_SCORES = (
    "log_likelihood",
    "concordance_td",
    "integrated_brier",
    "integrated_binomial_log_likelihood",
    "d_calibration",
)
# what is shown beside them at the times that are asked for; of one cause of several, and without causes
HORIZON_SCORES = ("brier", "cumulative_dynamic_auc", "binomial_log_likelihood", "km_calibration")
_OF_CAUSES = {"km_calibration": "incidence_calibration"}
_OF_CELLS = ("log_likelihood", "d_calibration")  # scores that are of cells of time where times are recorded so


def find_score(name: str) -> Score:
    """The score of that name, or an error that lists them."""
    if name not in SCORES:
        raise ValueError(f"There is no score {name!r}; the scores are {', '.join(SCORES)}.")
    return SCORES[name]


def usual_scores(outcome: Outcome, times: Any, causes: int) -> tuple[Asked, Any]:
    """The scores that are shown unasked, and what is left of ``times`` for them.

    A range of times is for the integrated ones; at single times there are the scores at a horizon beside them.
    """
    names = [name for name in DEFAULT_SCORES if outcome.upper is None or "intervals" in SCORES[name].takes]
    if times is None or (isinstance(times, tuple) and len(times) == 2):
        return tuple(names), times
    if outcome.upper is not None:
        raise ValueError("times= is for scores that need to know when events happened; these lie between two times.")
    at = [_OF_CAUSES.get(name, name) if causes > 1 else name for name in HORIZON_SCORES]
    return {name: {} for name in names} | {name: {SCORES[name].times_option: times} for name in at}, None


def make_requests(
    scores: Asked,
    outcome: Outcome,
    censoring: SurvivalDistribution | None,
    times: Any,
    causes: int,
    cells: Cells | None,
) -> list[Request]:
    """Each score with its options: its own, and those that are for all scores which take them."""
    own: Mapping[str, Mapping[str, Any]] = scores if isinstance(scores, Mapping) else {}
    names = [scores] if isinstance(scores, str) else list(scores)
    wanted = [(find_score(name), dict(own.get(name, {}))) for name in names]
    if times is not None:
        _share("times", times, wanted)
    if censoring is not None:
        _share("censoring", censoring, wanted)
    made = []
    for score, options in wanted:
        cellwise = cells is not None and score.name in _OF_CELLS and options.get("resolution") is None
        if cellwise and "resolution" in score.options:
            options["resolution"] = cells
        requests = score.requests(outcome, options, causes)
        made += [replace(r, times=f"cells of {cells.width:g}") for r in requests] if cells and cellwise else requests
    return made


def in_cells(request: Request, outcome: Outcome, cells: Cells | None) -> Outcome:
    """The rows as a score of cells of time sees them."""
    return cells.of(outcome) if request.score.name == "d_calibration" and cells is not None else outcome


def _share(argument: str, value: Any, wanted: Sequence[tuple[Score, dict[str, Any]]]) -> None:
    """Give an argument of `evaluate` to each score that takes it and has not its own; refuse it if there is none."""
    shared = False
    for score, options in wanted:
        option = score.option_for(argument)
        if option is not None and options.get(option) is None:
            options[option], shared = value, True
    if not shared:
        possible = ", ".join(score.name for score in SCORES.values() if score.option_for(argument) is not None)
        names = ", ".join(score.name for score, _ in wanted)
        raise ValueError(f"{argument}= is for {possible}; none of those asked for ({names}) is left without its own.")


def counted_rows(
    distribution: SurvivalDistribution, outcome: Outcome
) -> tuple[SurvivalDistribution, Outcome, npt.NDArray[np.bool_]]:
    """Curves and outcomes of the rows whose weight is not zero, and which these are."""
    outcome = check_subjects(distribution, outcome, entry=True, intervals=True)
    counted = outcome.weights > 0
    if counted.all():
        return distribution, outcome, counted
    rows = np.flatnonzero(counted)
    return distribution[rows], check_rows(outcome[rows], entry=True, intervals=True), counted
