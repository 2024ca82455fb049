"""The inputs of a report, checked, with the predictions of all models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.distributions import SurvivalDistribution
from sumosurv.models import cause_names, final_estimator, predict_distribution
from sumosurv.outcome import Outcome, as_pandas, check_outcome
from sumosurv.preprocessing.columns import quantiles
from sumosurv.sources import take_rows

Array = npt.NDArray[np.float64]

_AT_RISK = 0.05  # least share of rows that is followed beyond a horizon


class ReportInputs:
    """A model, the rows on which it is evaluated, and predictions, which are made once.

    Networks that are monotone in time predict in single precision: the error of probabilities is below 2e-6 with the
    default settings (see `SurvivalDistribution.single`). The parameters are those of `make_report`.
    """

    def __init__(
        self,
        model: Any,
        X: Any,
        y: Any,
        *,
        against: Mapping[str, Any] | None = None,
        times: Any = None,
        name: str = "",
        unit: str = "",
        causes: Sequence[str] | None = None,
        sample_weight: Any = None,
        groups: Any = None,
        n_bootstrap: int = 200,
        max_rows: int = 1000,
        random_state: int = 0,
    ) -> None:
        self.model, self.estimator = model, final_estimator(model)
        self.unit, self.n_bootstrap, self.max_rows, self.seed = unit, n_bootstrap, max_rows, random_state
        self.X, self.outcome = as_pandas(X), check_outcome(y, sample_weight=sample_weight, groups=groups)
        if self.outcome.weight is not None and not self.outcome.weight.all():
            counted = np.flatnonzero(self.outcome.weight)
            self.X, self.outcome = take_rows(self.X, counted), self.outcome[counted]
        self.causes = self._cause_names(causes)  # of competing causes; empty if there is one
        self.name = name or type(self.estimator).__name__
        marginal = "Aalen-Johansen" if self.causes else "Kaplan-Meier"
        self.curves: dict[str, SurvivalDistribution] = {self.name: predict_distribution(model, self.X).single()}
        self.curves[f"{marginal} of the training rows"] = self.estimator.training_curve_.repeat(len(self.outcome))
        for other, found in (against or {}).items():
            if other in self.curves:
                raise ValueError(f"against has a second model named {other!r}; give it another name.")
            self.curves[str(other)] = predict_distribution(found, self.X).single()
        # time counted from the entry of each row
        self.since_entry, self.curves_since_entry = self.outcome.since_entry(), self.curves
        if self.outcome.entry is not None:
            self.curves_since_entry = {key: d.remaining(self.outcome.entry) for key, d in self.curves.items()}
        self.times = _horizons(self.since_entry) if times is None else np.unique(np.asarray(times, dtype=float))
        if not len(self.times) or not (np.isfinite(self.times) & (self.times > 0)).all():
            raise ValueError(f"times must be positive numbers; got {times!r}.")
        self.main = float(self.times[len(self.times) // 2])  # the horizon at which risks are shown

    def _cause_names(self, given: Sequence[str] | None) -> list[str]:
        n_causes = int(self.estimator.n_causes_)
        if (n_causes > 1) != (self.outcome.cause is not None) or self.outcome.n_causes > n_causes:
            raise ValueError(
                f"The model was fitted to {n_causes} cause(s) and the rows have {self.outcome.n_causes}; they must "
                "agree."
            )
        return cause_names(n_causes if n_causes > 1 else 0, given)

    @property
    def predicted(self) -> Any:
        """Predictions of the model."""
        return self.curves[self.name]

    @property
    def predicted_since_entry(self) -> Any:
        """Predictions of the model with time counted from the entry of each row."""
        return self.curves_since_entry[self.name]

    @property
    def frame(self) -> pd.DataFrame | None:
        """The covariates as a table; None for images and sequences."""
        if isinstance(self.X, pd.DataFrame):
            return self.X
        return pd.DataFrame(np.asarray(self.X)).rename(columns=str) if np.ndim(self.X) == 2 else None

    @property
    def exact(self) -> bool:
        """Whether no event is interval-censored: all scores and pictures but the likelihood need that."""
        return self.outcome.upper is None

    @property
    def cause_numbers(self) -> list[int | None]:
        """The competing causes, counted from one; None alone if there is one cause."""
        return [k + 1 for k in range(len(self.causes))] if self.causes else [None]

    def event_name(self, cause: int | None) -> str:
        """The name of a cause, or "the event"."""
        return "the event" if cause is None else self.causes[cause - 1]

    def time(self, value: float) -> str:
        """A time with its unit."""
        return f"{value:,.4g}{f' {self.unit}' if self.unit else ''}"

    def risk(self, cause: int | None) -> Array:
        """The predicted risk of each row at the main horizon."""
        if cause is None:
            return np.asarray(self.predicted_since_entry.cdf(self.main))
        return np.asarray(self.predicted_since_entry.cumulative_incidence(self.main)[:, cause - 1])

    def take(self, rows: Any) -> Any:
        """Some rows of X."""
        return take_rows(self.X, rows)

    def some_rows(self) -> npt.NDArray[np.int64]:
        """Rows for costly computations: all, or ``max_rows`` of them drawn at random."""
        n = len(self.outcome)
        if n <= self.max_rows:
            return np.arange(n)
        return np.sort(np.random.default_rng(self.seed).choice(n, self.max_rows, replace=False))


def _horizons(outcome: Outcome) -> Array:
    """Quartiles of the event times in three digits, as far as enough rows are followed."""
    known = outcome.at_midpoints()
    times = known.time[known.event] if known.event.any() else known.time
    end = float(quantiles(known.time, [1.0 - _AT_RISK])[0])
    rounded = np.unique([float(f"{min(value, end):.3g}") for value in quantiles(times, [0.25, 0.5, 0.75])])
    return np.asarray(rounded[rounded > 0] if (rounded > 0).any() else [float(known.time.max()) or 1.0])
