"""All scores of the paper's tables for one prediction, in the paper's conventions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv import datasets
from sumosurv.distributions import Mixture, Rescaled, SurvivalDistribution, Tabulated
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import Cells, Surv, SurvArray
from sumosurv.scores import (
    calibration,
    concordance_td,
    d_calibration,
    integrated_binomial_log_likelihood,
    integrated_brier,
    log_likelihood,
)

__all__ = ["HALF_WIDTHS", "Fold", "scored", "short_scores", "step_scores"]

HALF_WIDTHS = (1, 2, 4, 8)  # k of the interpolated density: the main table has 2
_GRID = 100  # times of IBS and IBLL, from the smallest to the largest test duration
_FEW = 100  # quantiles of the event times at which a trial's concordance is taken, or that of very many rows
_MASS_ROWS = 20_000  # rows whose densities are integrated
_EXACT = 5_000  # rows up to which the concordance of what was chosen is taken at all event times


@dataclass(frozen=True)
class Fold:
    """One of the fixed folds: training, validation and test rows, and the time scale of the paper's S_L."""

    number: int
    split: str
    X: pd.DataFrame
    y: SurvArray
    train: npt.NDArray[np.int64]
    valid: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]
    rounded_up: bool = False  # a recorded time is the end of its unit, not its middle

    @classmethod
    def of(cls, data: Any, name: str, number: int) -> Fold:
        """Fold ``number`` of a real dataset."""
        return cls(number, datasets.fold_source(name), data.X, data.y, *datasets.fold(name, number))

    @classmethod
    def simulated(cls, rows: int, number: int) -> Fold:
        """Fold ``number`` of the stand-in for KKBOX: so many rows, whole days as there, split by customer."""
        made = datasets.simulate("kkbox", rows, random_state=0)
        y = Surv.from_arrays(made.y["event"], np.ceil(made.y["time"]))
        assert made.customer is not None
        parts = datasets.fold_by_customer(made.customer, number)
        return cls(number, "by customer, made from the seed", made.X, y, *parts, rounded_up=True)

    @property
    def rows(self) -> tuple[pd.DataFrame, SurvArray, tuple[pd.DataFrame, SurvArray]]:
        """What a search may see."""
        return self.X.iloc[self.train], self.y[self.train], (self.X.iloc[self.valid], self.y[self.valid])

    def all_rows(self) -> tuple[pd.DataFrame, SurvArray]:
        """Training and validation rows together."""
        both = np.concatenate([self.train, self.valid])
        return self.X.iloc[both], self.y[both]

    @property
    def X_test(self) -> pd.DataFrame:  # noqa: N802 (scikit-learn's letter)
        """Covariates of the test rows."""
        return self.X.iloc[self.test]

    @property
    def y_test(self) -> SurvArray:
        """SurvArray of the test rows."""
        return self.y[self.test]

    def _shift(self, rows: npt.NDArray[np.int64]) -> float:
        """What the mean S_L gains when durations are min-max scaled on the training rows."""
        times = self.y["time"][self.train]
        return float(self.y["event"][rows].mean() * np.log(times.max() - times.min()))

    @property
    def shift_valid(self) -> float:
        """Of the validation rows."""
        return self._shift(self.valid)

    @property
    def shift_test(self) -> float:
        """Of the test rows."""
        return self._shift(self.test)

    @property
    def resolution(self) -> float:
        """The unit to which times were rounded: the commonest small step between recorded times."""
        steps = np.diff(np.unique(np.round(self.y["time"][self.train], 4)))
        values, counts = np.unique(np.round(steps, 3), return_counts=True)
        common = values[counts >= 0.05 * counts.sum()]
        return float(common[common > 0].min())

    def likelihood(self, distribution: SurvivalDistribution, **options: Any) -> float:
        """Mean S_L of the test rows, on the paper's scale."""
        return float(log_likelihood(distribution, self.y_test, **options).mean() + self.shift_test)

    def truth(self) -> dict[str, float]:
        """Log-likelihoods of the true distribution on simulated test rows, to hold those of models against."""
        true = datasets.true_distribution("kkbox", self.X_test)
        return {"S_L_interval": self.likelihood(true, resolution=self.cells)}

    @property
    def cells(self) -> Cells | float:
        """What a recorded time stands for: the unit before it if times are rounded up, else half a unit either way."""
        return Cells(self.resolution, 0.0) if self.rounded_up else self.resolution

    def pycox(self) -> dict[str, Any]:
        """IBS and IBLL as the paper's tables have them (pycox's convention)."""
        y = self.y_test
        flipped = kaplan_meier(Surv.from_arrays(~y["event"], y["time"]))
        grid = np.linspace(y["time"].min(), y["time"].max(), _GRID)
        return {"censoring": flipped, "times": grid, "rule": "simpson", "normalize": True, "on_zero": "drop"}


def scored(distribution: SurvivalDistribution, fold: Fold) -> dict[str, Any]:
    """Every score of the tables, on the test rows."""
    y, pycox = fold.y_test, fold.pycox()
    d, paper = d_calibration(distribution, y), calibration(distribution, y)
    return {
        "S_L": fold.likelihood(distribution),
        "S_L_interval": fold.likelihood(distribution, resolution=fold.cells),
        "resolution": fold.resolution,
        "IBLL": float(integrated_binomial_log_likelihood(distribution, y, floor=1e-7, **pycox).mean()),
        "IBS": float(integrated_brier(distribution, y, **pycox).mean()),
        "Ctd": float(
            concordance_td(distribution, y, times=None if len(y) <= _EXACT else _quantiles(y), method="adj_antolini")
        ),
        "D_calibration_p": float(d.p_value),
        "D_calibration_shares": np.round(np.asarray(d.shares), 5),
        "calibration": float(paper.score),
        "calibration_levels": np.asarray(paper.expected),
        "calibration_observed": np.round(np.asarray(paper.observed), 5),
    }


def short_scores(distribution: SurvivalDistribution, fold: Fold) -> dict[str, float]:
    """The four scores of Table 5; concordance at quantiles of the event times, which is much quicker."""
    y, pycox = fold.y_test, fold.pycox()
    values = {
        "S_L": fold.likelihood(distribution),
        "Ctd": float(concordance_td(distribution, y, times=_quantiles(y), method="adj_antolini")),
        "IBS": float(integrated_brier(distribution, y, **pycox).mean()),
        "IBLL": float(integrated_binomial_log_likelihood(distribution, y, floor=1e-7, **pycox).mean()),
    }
    return {name: round(value, 6) for name, value in values.items()}


def _quantiles(y: SurvArray) -> npt.NDArray[np.float64]:
    return np.unique(np.quantile(y["time"][y["event"]], np.linspace(0, 1, _FEW)))


def step_scores(distribution: SurvivalDistribution, fold: Fold) -> dict[str, Any]:
    """S_L of step curves for every half-width k, with the mass of each density; and of the same curves read as
    densities that are constant between steps, which have mass one by construction."""
    result: dict[str, Any] = {"S_L_by_k": {}, "mass_by_k": {}}
    y = fold.y[np.concatenate([fold.train, fold.valid])]
    knots = np.unique(y["time"][y["event"]])
    for k in HALF_WIDTHS:
        with_k = with_half_width(distribution, k)
        result["S_L_by_k"][str(k)] = fold.likelihood(with_k)
        result["mass_by_k"][str(k)] = _mass(with_k, knots)
    later = np.append(knots, max(float(fold.y["time"].max()), float(knots[-1])) * 1.001)
    survival = np.append(distribution.survival(knots), np.zeros((len(distribution), 1)), axis=1)
    result["S_L_constant_density"] = fold.likelihood(Tabulated(later, survival, between="density"))
    return result


def with_half_width(distribution: SurvivalDistribution, k: int) -> SurvivalDistribution:
    """Step curves with another half-width of their density."""
    if isinstance(distribution, Mixture):
        return Mixture([with_half_width(part, k) for part in distribution.components], distribution.weights)
    if isinstance(distribution, Rescaled):
        return Rescaled(with_half_width(distribution.base, k), distribution.scale)
    if isinstance(distribution, Tabulated):
        return Tabulated(distribution.times, distribution.table, between=distribution.between, half_width=k)
    raise TypeError(f"A {type(distribution).__name__} is no step curve.")


def _mass(distribution: SurvivalDistribution, knots: npt.NDArray[np.float64]) -> float:
    """∫ f dt of a density that is constant between knots, averaged over the first subjects."""
    edges = np.insert(knots, 0, 0.0)
    middle = 0.5 * (edges[1:] + edges[:-1])
    few = distribution[:_MASS_ROWS]
    return float((few.density(middle) * np.diff(edges)).sum(axis=1).mean())
