"""Times that were recorded to a resolution: which cell of time a recorded time stands for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sumosurv.outcome.record import Outcome

__all__ = ["Cells"]

Floats = npt.NDArray[np.float64]

_EVENTS_PER_TIME = 5.0  # from so many on, on average, ties tell more than the times themselves
_ROUNDED = 0.01  # of a cell: how far a recorded time may be off its grid


@dataclass(frozen=True)
class Cells:
    """A recorded time t stands for the cell (t - width + ahead, t + ahead].

    With ``ahead`` zero a time is the end of its cell, as a number of periods is: the probability that the recorded time
    exceeds t is then S(t), as Kaplan-Meier and all scores take it. Where a time of zero was recorded, or all times lie
    midway between multiples of the width, a time is the middle of its cell.
    """

    width: float
    ahead: float

    @classmethod
    def of_width(cls, outcome: Outcome, width: float) -> Cells:
        """Cells of a given width."""
        remainder = outcome.time / width - np.floor(outcome.time / width)
        midway = bool((np.abs(remainder - 0.5) < _ROUNDED).all())
        return cls(float(width), 0.5 * float(width) if midway or bool((outcome.time == 0).any()) else 0.0)

    @classmethod
    def found(cls, outcome: Outcome) -> Cells | None:
        """The cells of times on an even grid with at least five events at each of them, on average; else None."""
        if outcome.upper is not None or not outcome.event.any():
            return None
        weight = None if outcome.weight is None else outcome.weight[outcome.event]
        events = int(outcome.event.sum()) if weight is None else float(weight.sum())
        if events < _EVENTS_PER_TIME * len(np.unique(outcome.time[outcome.event])):
            return None
        width = _grid_step(np.unique(outcome.time))
        return None if width is None else cls.of_width(outcome, width)

    def of(self, outcome: Outcome) -> Outcome:
        """The same rows with each event in its cell, no earlier than its entry."""
        lower = np.maximum(outcome.time - self.width + self.ahead, 0.0)
        if outcome.entry is not None:
            lower = np.maximum(lower, outcome.entry)
        upper = outcome.time + self.ahead
        event = outcome.event & (upper > lower)
        ends = np.where(outcome.event, outcome.time, np.inf) if outcome.upper is None else outcome.upper
        return replace(
            outcome,
            event=outcome.event & ~event,
            time=np.where(event, lower, outcome.time),
            upper=np.where(event, upper, ends),
        )

    def widths(self, outcome: Outcome) -> Floats:
        """The width of the cell of each event, and 1 for rows without: what its probability is divided by."""
        inside = self.of(outcome)
        cell = inside.in_interval & outcome.event
        assert inside.upper is not None
        return np.where(cell, np.where(cell, inside.upper, 1.0) - np.where(cell, inside.time, 0.0), 1.0)


def _grid_step(times: Floats) -> float | None:
    """The step of an even grid, from 0 or from half a step, on which sorted times lie; None if there is none."""
    positive = times[times > 0]
    if len(positive) < 2:  # one time tells no step
        return None
    step = float(np.diff(positive).min())
    # the smallest difference is rounded more coarsely than the whole range
    step = float((positive[-1] - positive[0]) / round((positive[-1] - positive[0]) / step))
    places = positive / step
    on_grid = np.abs(places - np.round(places)).max() < _ROUNDED
    midway = np.abs(places - np.floor(places) - 0.5).max() < _ROUNDED and len(positive) == len(times)
    return step if on_grid or midway else None
