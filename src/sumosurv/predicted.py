"""Tables of predictions: one row for each row of covariates, one column for each figure that was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["Figures"]

_NEGLIGIBLE = 0.01  # a mean of which less than this lies past the last training time is not called extrapolated
_SINGLE_RANGE = (1e-30, 1e30)  # last training times whose figures float32 can hold


@dataclass(frozen=True)
class Figures:
    """The figures of a table of predictions; without any choice the expected time up to the last training time, risk,
    life expectancy and quartiles.

    Parameters
    ----------
    times : sequence of float
        Survival probabilities at these times, and the incidence of each cause.
    quantiles : sequence of float
        Of the event time.
    mean : bool
        Life expectancy, after the expected time up to the last training time.
    restricted_mean : float, optional
        Expected time up to a horizon.
    risk : bool
        The risk score of ``model.predict``.
    precision : {"double", "single"}
        "single" evaluates networks that are monotone in time in float32 (see `SurvivalDistribution.single`) and gives
        all figures as float32: some six digits, in half the time.
    """

    times: Sequence[float] = ()
    quantiles: Sequence[float] = ()
    mean: bool = False
    restricted_mean: float | None = None
    risk: bool = False
    precision: Literal["double", "single"] = "double"

    def table(self, model: Any, X: pd.DataFrame, beyond: Counter[str]) -> pd.DataFrame:
        """The figures of some rows; counts those in which a figure is extrapolated.

        The column "extrapolated" names the figures of a row that rest on what lies past the last training time.
        """
        nothing = not (self.times or self.quantiles or self.mean or self.restricted_mean or self.risk)
        mean, levels = self.mean or nothing, self.quantiles or ([0.25, 0.5, 0.75] if nothing else [])
        horizon, last, n = self.restricted_mean, float(model.last_time_), len(X)
        single = self.precision == "single" and _SINGLE_RANGE[0] < last < _SINGLE_RANGE[1]
        distribution = model.predict_distribution(X)
        if single:
            distribution = distribution.single()
        columns: dict[str, Any] = {}
        past: dict[str, Any] = {}  # the rows in which a figure rests on what lies past the last training time
        within = distribution.restricted_mean(last) if mean else None
        if horizon is not None:
            columns[f"restricted_mean_{horizon:g}"] = distribution.restricted_mean(horizon)
            past[f"restricted_mean_{horizon:g}"] = np.full(n, horizon > last)
        elif within is not None:
            columns[f"restricted_mean_{last:g}"] = within
        if self.risk or nothing:
            columns["risk"] = distribution.cdf(model.risk_times_).mean(axis=1)  # as model.predict
        for t in self.times:
            columns[f"survival_{t:g}"] = distribution.survival(float(t))
            past[f"survival_{t:g}"] = np.full(n, t > last)
            if model.n_causes_ > 1:
                incidence = distribution.cumulative_incidence(float(t))
                columns |= {f"incidence_{k + 1}_{t:g}": values for k, values in enumerate(incidence.T)}
        if within is not None:
            columns["mean"] = distribution.mean()
            past["mean"] = within < (1.0 - _NEGLIGIBLE) * columns["mean"]
        for q, values in zip(levels, distribution.quantile(levels).T if levels else ()):
            name = "median" if q == 0.5 else f"quantile_{q:g}"
            columns[name], past[name] = values, values > last
        if single:
            columns = {name: values.astype(np.float32) for name, values in columns.items()}
        if mean or levels or any(rows.any() for rows in past.values()):
            columns["extrapolated"] = _named(past, n)
        beyond.update({name: int(rows.sum()) for name, rows in past.items() if rows.any()})
        return pd.DataFrame(columns, index=X.index)


def _named(past: Mapping[str, npt.NDArray[np.bool_]], n: int) -> npt.NDArray[np.object_]:
    """For each of n rows the names of the columns that are marked in it, separated by spaces."""
    marks = np.column_stack([np.zeros(n, dtype=bool), *past.values()])
    kinds, which = np.unique(marks @ (1 << np.arange(marks.shape[1], dtype=object)), return_inverse=True)
    words = [" ".join(name for place, name in enumerate(past, 1) if kind >> place & 1) for kind in kinds]
    return np.array(words, dtype=object)[which]
