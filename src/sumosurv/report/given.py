"""What a report is asked to speak of: a model, rows it is tried on, models to compare with, times that matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.distributions import SurvivalDistribution
from sumosurv.models import final_estimator, predict_distribution
from sumosurv.outcome import Outcome, as_pandas, check_outcome
from sumosurv.quantiles import quantiles

__all__ = ["Given", "prepare"]

Array = npt.NDArray[np.float64]

_AT_RISK = 0.05  # least share of rows that is followed past a horizon


@dataclass(frozen=True)
class Given:
    """The inputs of a report, predictions made once.

    Attributes
    ----------
    model : fitted estimator, pipeline or search
    estimator : fitted estimator
        The one inside.
    X : DataFrame or array
    outcome : Outcome
    name : str
        Of the model.
    curves : dict of str to SurvivalDistribution
        Of the model, of the marginal curve of its training rows, and of the models to compare with.
    later, later_curves
        The same on clocks that start at each row's entry; as they are where none enters late.
    times : ndarray
        Horizons; ``main`` is the one at which risks are shown.
    causes : list of str
        Names, where causes compete; else empty.
    """

    model: Any
    estimator: Any
    X: Any
    outcome: Outcome
    name: str
    curves: dict[str, SurvivalDistribution]
    later: Outcome
    later_curves: dict[str, SurvivalDistribution]
    times: Array
    main: float
    unit: str
    causes: list[str]
    n_bootstrap: int
    max_rows: int
    seed: int

    @property
    def own(self) -> Any:
        """The model's predictions: a SurvivalDistribution, with causes where they compete."""
        return self.curves[self.name]

    @property
    def own_later(self) -> Any:
        """The model's predictions from each row's entry on."""
        return self.later_curves[self.name]

    @property
    def exact(self) -> bool:
        """Whether all event times are known: scores and pictures other than the likelihood need that."""
        return self.outcome.upper is None

    @property
    def cause_numbers(self) -> list[int | None]:
        """The causes to go through; None alone where there is one."""
        return [k + 1 for k in range(len(self.causes))] if self.causes else [None]

    def of_cause(self, cause: int | None) -> str:
        """What an event is called."""
        return "the event" if cause is None else self.causes[cause - 1]

    def time(self, value: float) -> str:
        """A time with its unit."""
        return f"{value:,.4g}{f' {self.unit}' if self.unit else ''}"

    def some_rows(self) -> npt.NDArray[np.int64]:
        """Row numbers for what is costly: all, or so many of them drawn at random."""
        n = len(self.outcome)
        if n <= self.max_rows:
            return np.arange(n)
        return np.sort(np.random.default_rng(self.seed).choice(n, self.max_rows, replace=False))


def prepare(
    model: Any,
    X: Any,
    y: Any,
    *,
    against: Mapping[str, Any] | None,
    times: Any,
    name: str,
    unit: str,
    causes: Sequence[str] | None,
    sample_weight: Any,
    groups: Any,
    n_bootstrap: int,
    max_rows: int,
    seed: int,
) -> Given:
    """Check what is given, and predict."""
    X, outcome = as_pandas(X), check_outcome(y, sample_weight=sample_weight, groups=groups)
    if outcome.weight is not None and not outcome.weight.all():  # rows that do not count are not looked at
        kept = np.flatnonzero(outcome.weight)
        X, outcome = (X.iloc[kept] if hasattr(X, "iloc") else X[kept]), outcome[kept]
    estimator = final_estimator(model)
    n_causes = int(estimator.n_causes_)
    if (n_causes > 1) != (outcome.cause is not None) or outcome.n_causes > n_causes:
        raise ValueError(
            f"The model was fitted to {n_causes} cause(s) and the rows have {outcome.n_causes}; they must agree."
        )
    names = [] if n_causes == 1 else [f"cause {k + 1}" for k in range(n_causes)] if causes is None else list(causes)
    if causes is not None and len(causes) != (n_causes if n_causes > 1 else 0):
        raise ValueError(f"causes has one name for each competing cause; the model has {n_causes}, got {len(causes)}.")
    name = name or type(estimator).__name__
    marginal = "Aalen-Johansen" if n_causes > 1 else "Kaplan-Meier"
    curves: dict[str, SurvivalDistribution] = {name: predict_distribution(model, X)}
    curves[f"{marginal} of the training rows"] = estimator.training_curve_.repeat(len(outcome))
    for other, found in (against or {}).items():
        if other in curves:
            raise ValueError(f"against has a second model named {other!r}; give it another name.")
        curves[str(other)] = found if isinstance(found, SurvivalDistribution) else predict_distribution(found, X)
    late = outcome.entry is not None
    later = outcome.since_entry()
    later_curves = {key: d.remaining(outcome.entry) for key, d in curves.items()} if late else curves
    horizons = _horizons(later) if times is None else np.unique(np.atleast_1d(np.asarray(times, dtype=np.float64)))
    if not len(horizons) or not (np.isfinite(horizons) & (horizons > 0)).all():
        raise ValueError(f"times must be positive numbers; got {times!r}.")
    main = float(horizons[len(horizons) // 2])
    return Given(
        model, estimator, X, outcome, name, curves, later, later_curves, horizons, main, unit, names, n_bootstrap,
        max_rows, seed,
    )  # fmt: skip


def _horizons(outcome: Outcome) -> Array:
    """Quartiles of the event times, in three digits, as far as enough rows are followed."""
    known = outcome.at_midpoints()
    seen = known.time[known.event] if known.event.any() else known.time
    end = float(quantiles(known.time, [1.0 - _AT_RISK])[0])
    found = quantiles(seen, [0.25, 0.5, 0.75])
    rounded = np.unique([float(f"{min(value, end):.3g}") for value in found])
    return np.asarray(rounded[rounded > 0] if (rounded > 0).any() else [float(known.time.max()) or 1.0])
