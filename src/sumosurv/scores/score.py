"""What is known of a score: the one record that everything which handles scores reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sumosurv.distributions import SurvivalDistribution
from sumosurv.outcome import Outcome
from sumosurv.scores._inputs import check_rows, median_time, time_grid
from sumosurv.scores._resampling import MeanTerms, Terms

__all__ = ["Request", "Score"]


@dataclass(frozen=True)
class Score:
    """One row of the table of scores.

    Attributes
    ----------
    name : str
    function : callable
        (distribution, y, ...) to one value per subject, a number, or a result with the attribute ``score``.
    greater_is_better : bool
    proper : bool
        Whether the true distribution has the best expected score under every censoring that is independent given x.
    why : str
        What makes it proper, or how it is fooled.
    formula, reference : str
    cost : str
        In the number n of subjects, m of times and e of events; a "curve value" is one S(t|x).
    by_subject : callable, optional
        (distribution, y, ...) to what the subjects contribute and how that makes the score; by default the score is
        the mean of the values of ``function``. Where ``function`` requires a censoring distribution, this one takes
        that of the rows themselves if none is given.
    times : {"none", "single", "range"}
        Whether it is taken at no particular time, at single times, or integrated over a range of times.
    times_option : str
        The option of ``function`` that holds them.
    takes : set of str
        "entry" where rows may enter late, "intervals" where events may lie between two times. `evaluate` gives other
        scores the time since entry.
    given_x : bool
        Whether its weights are right with a censoring distribution G(t|x) of each row's own.
    """

    name: str
    function: Callable[..., Any]
    greater_is_better: bool
    proper: bool
    why: str
    formula: str
    reference: str
    cost: str
    by_subject: Callable[..., Terms] | None = None
    times: Literal["none", "single", "range"] = "none"
    times_option: str = "times"
    takes: frozenset[str] = frozenset()
    given_x: bool = True

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the options: the arguments of ``function`` after the distribution and the outcome."""
        return tuple(name for name in inspect.signature(self.function).parameters if name != "sample_weight")[2:]

    @property
    def needs_censoring(self) -> bool:
        """Whether it is weighted by a censoring distribution G."""
        return "censoring" in self.options

    def option_for(self, argument: str) -> str | None:
        """The option that an argument of `evaluate`, "times" or "censoring", is for; None if there is none."""
        if argument == "times":
            return None if self.times == "none" else self.times_option
        return "censoring" if self.needs_censoring else None

    @property
    def needs(self) -> str:
        """What it needs beside the distribution and the outcome, in words."""
        times = {"none": [], "single": ["a time"], "range": ["a range of times"]}[self.times]
        return ", ".join((["G"] if self.needs_censoring else []) + times)

    @property
    def in_short(self) -> str:
        """Direction, properness and needs, for a list of scores."""
        facts = [f"{'higher' if self.greater_is_better else 'lower'} is better"]
        facts += ["proper"] if self.proper else []
        facts += [f"needs {self.needs}"] if self.needs else []
        return "; ".join(facts)

    def terms(self, distribution: SurvivalDistribution, y: Any, **options: Any) -> Terms:
        """What the subjects contribute to the score, at one time if it is taken at times, and how that makes it."""
        if self.by_subject is None:
            outcome = check_rows(y, entry=True, intervals=True)
            return MeanTerms(self.function(distribution, outcome, **options)[:, None], weight=outcome.weight)
        return self.by_subject(distribution, y, **options)

    def check(self, options: Mapping[str, Any]) -> None:
        """Refuse options that the score does not have, and times of a kind that it does not take."""
        for name in options:
            if name not in self.options:
                known = f"its options are {', '.join(self.options)}" if self.options else "it has none"
                raise ValueError(f"{self.name} has no option {name!r}; {known}.")
        given = options.get(self.times_option)
        if given is None or self.times == "none":
            return
        if self.times == "range" and np.ndim(given) == 0:
            raise ValueError(
                f"{self.name} is an average over a range of times; give it as (low, high) or as a grid of times, "
                f"not as the one time {given!r}."
            )
        if np.size(given) == 0:
            raise ValueError(f"{self.name} is given no times; leave {self.times_option} out for the usual ones.")
        if self.times == "single" and isinstance(given, tuple) and len(given) == 2:
            raise ValueError(
                f"{self.name} is taken at single times, and {given!r} is a range; give a number or a list of times, or "
                f"times for each score: scores={{{self.name!r}: {{{self.times_option!r}: [...]}}, ...}}."
            )

    @property
    def of_causes(self) -> bool:
        """Whether it can be taken for one cause of several."""
        return "cause" in self.options

    def requests(self, outcome: Outcome, options: Mapping[str, Any], causes: int = 1) -> list[Request]:
        """What is to be computed for given options: the score, or the score at each of some times.

        With several ``causes``, a score that can be is taken for each of them, unless the options name one.
        """
        if causes > 1 and self.of_causes and options.get("cause") is None:
            each = [self.requests(outcome, {**options, "cause": k}) for k in range(1, causes + 1)]
            return [request for found in each for request in found]
        self.check(options)
        given = options.get(self.times_option)
        if self.times == "single":
            at = median_time(outcome) if given is None else np.asarray(given, dtype=np.float64)
            return [Request(self, {**options, self.times_option: float(t)}, _word(t)) for t in np.ravel(at)]
        if self.times == "range":
            ends = time_grid(given, outcome.time, 2)
            return [Request(self, dict(options), f"{_word(ends[0])}–{_word(ends[-1])}")]
        return [Request(self, dict(options), "")]


@dataclass(frozen=True)
class Request:
    """A score with its options, and in words the time or range of times at which it is taken."""

    score: Score
    options: Mapping[str, Any]
    times: str
    censoring: str = ""  # which of two G, in words

    @property
    def horizon(self) -> float | None:
        """The last time that it looks at, where it is told; None where it is not, or where there is none."""
        given = self.options.get(self.score.times_option)
        return None if self.score.times == "none" or given is None else float(np.max(given))

    @property
    def cause(self) -> int | None:
        """The cause that it is about; None for any, or all of them together."""
        return self.options.get("cause")

    def of_rows(self, counted: npt.NDArray[np.bool_]) -> Request:
        """The same on some of the rows: of a G with a curve for each row, theirs."""
        g = self.options.get("censoring")
        if counted.all() or not isinstance(g, SurvivalDistribution) or len(g) != len(counted):
            return self
        return replace(self, options={**self.options, "censoring": g[np.flatnonzero(counted)]})

    def terms(self, distribution: SurvivalDistribution, outcome: Outcome) -> Terms:
        """As `Score.terms`."""
        return self.score.terms(distribution, outcome, **self.options)


def _word(time: float) -> str:
    """A time in a few characters: exact, or rounded if that takes more than seven."""
    for text in (f"{time:g}", f"{time:.4g}" if time < 1000 else f"{time:.0f}"):
        if len(text) <= 7:
            return text
    return f"{time:.3g}"
