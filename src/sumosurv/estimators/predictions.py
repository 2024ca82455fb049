"""What follows from a predicted distribution: curves, quantiles and means, as arrays or as tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from sumosurv.distributions import SurvivalDistribution
from sumosurv.estimators.frames import framed, incidence_frame
from sumosurv.estimators.gathering import Gathered, ResultType, check_result
from sumosurv.preprocessing import telling_unseen
from sumosurv.sources import RowSource, count_rows, is_source, opened, take_rows

__all__ = ["Precision", "Predictions"]

Precision = Literal["double", "single"]
Predicted: TypeAlias = "npt.NDArray[np.float64] | pd.Series | pd.DataFrame"

_BLOCK = 20_000  # rows predicted at a time


class Predictions(ABC):
    """Predictions of whoever gives a distribution.

    With ``as_frame=True`` a prediction is a DataFrame with the index of X, and with the times, levels or horizons that
    were asked for as columns; a Series where there is one number for each row.
    """

    risk_times_: npt.NDArray[np.float64]

    @abstractmethod
    def predict_distribution(self, X: Any) -> SurvivalDistribution:
        """The survival distribution of each row."""

    def predict_survival_function(
        self,
        X: Any,
        times: Any,
        *,
        precision: Precision = "double",
        as_frame: bool = False,
        dtype: ResultType = "float64",
        out: npt.NDArray[Any] | None = None,
    ) -> Predicted:
        """S(t|x) on a grid of times: shape (rows, times).

        Parameters
        ----------
        X : covariates
        times : array of shape (times,)
        precision : {"double", "single"}
            "single" is two to three times as fast with networks that are monotone in time; on CUDA it is one
            kernel. The error in S is then below 2e-6 with the default settings (3e-7 to 7e-7 was measured), more where
            weights are unusually large: see `SurvivalDistribution.single`. Other methods stay as they are.
        as_frame : bool
            Give a DataFrame with the index of X and the times as columns.
        dtype : {"float64", "float32"}
            Of the result. For tables of many millions of cells most of the time may go into writing them.
        out : array of shape (rows, times), optional
            Filled and returned, instead of a new array; of either type. Memory that is used again costs less than new.

        Notes
        -----
        ``predict_distribution(X).survival(torch.tensor(times))`` leaves the result where the networks are, as a tensor.
        """
        return self._on_grid(X, times, "survival", precision, as_frame, dtype, out)

    def predict_cumulative_hazard_function(
        self, X: Any, times: Any, *, precision: Precision = "double", as_frame: bool = False
    ) -> Predicted:
        """Λ(t|x) = -log S(t|x) on a grid of times: shape (rows, times)."""
        return self._on_grid(X, times, "cumulative_hazard", precision, as_frame)

    def predict_density(
        self, X: Any, times: Any, *, precision: Precision = "double", as_frame: bool = False
    ) -> Predicted:
        """f(t|x) on a grid of times: shape (rows, times)."""
        return self._on_grid(X, times, "density", precision, as_frame)

    def predict_hazard(
        self, X: Any, times: Any, *, precision: Precision = "double", as_frame: bool = False
    ) -> Predicted:
        """λ(t|x) = f(t|x) / S(t|x) on a grid of times: shape (rows, times)."""
        return self._on_grid(X, times, "hazard", precision, as_frame)

    def predict_quantile(self, X: Any, q: Any, *, as_frame: bool = False) -> Predicted:
        """The time by which a share q of such subjects has had the event: (rows,), or (rows, levels)."""
        found = self._by_blocks(X, lambda distribution, rows: distribution.quantile(q))
        return framed(found, X, "quantile", q) if as_frame else found

    def predict_median(self, X: Any, *, as_frame: bool = False) -> Predicted:
        """The median survival time of each row."""
        found = self.predict_quantile(X, 0.5)
        return framed(found, X, "median") if as_frame else found

    def predict_mean(self, X: Any, *, as_frame: bool = False) -> Predicted:
        """Life expectancy ∫ S(t|x) dt of each row.

        It rests on the tail past the last training time (``last_time_``), which no data support; where much of the
        curve lies there, `predict_restricted_mean` is the safer question.
        """
        found = self._by_blocks(X, lambda distribution, rows: distribution.mean())
        return framed(found, X, "mean") if as_frame else found

    def predict_restricted_mean(
        self, X: Any, horizon: Any = None, *, own_horizons: Any = None, as_frame: bool = False
    ) -> Predicted:
        """Expected time lived up to the horizon, ∫₀^horizon S(t|x) dt.

        Parameters
        ----------
        X : covariates
        horizon : float or array of shape (m,)
            Shared by all rows: a number gives shape (rows,), m horizons give (rows, m).
        own_horizons : array of shape (rows,), optional
            Each row's own, instead of ``horizon``; gives shape (rows,).
        as_frame : bool
            Give a Series, or a DataFrame with the horizons as columns, with the index of X.
        """
        if own_horizons is None:
            found = self._by_blocks(X, lambda distribution, rows: distribution.restricted_mean(horizon))
            return framed(found, X, "horizon", horizon, name="restricted_mean") if as_frame else found
        own = np.asarray(own_horizons, dtype=np.float64)
        X = opened(X)
        if own.shape != (count_rows(X),):
            raise ValueError(f"own_horizons has one horizon for each of {count_rows(X)} rows; got shape {own.shape}.")
        found = self._by_blocks(
            X, lambda distribution, rows: distribution.restricted_mean(horizon, own_horizons=own[rows])
        )
        return framed(found, X, "restricted_mean") if as_frame else found

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        r"""A risk score in [0, 1], higher for earlier events.

        The mean of F(tⱼ|x) over quantiles tⱼ of the event times seen in training: the probability of
        having had the event, averaged over when events happen.
        """
        check_is_fitted(self)
        return self._by_blocks(X, lambda distribution, rows: distribution.cdf(self.risk_times_).mean(axis=1))

    def predict_cumulative_incidence(self, X: Any, times: Any, *, as_frame: bool = False) -> Predicted:
        """P(T <= t, cause k | x) on a grid of times: shape (rows, times, causes); one cause where none compete."""
        grid = self._check_grid(times)
        found = self._by_blocks(X, lambda distribution, rows: distribution.cumulative_incidence(grid))
        return incidence_frame(found, X, grid) if as_frame else found

    @staticmethod
    def _check_grid(times: Any) -> npt.NDArray[np.float64]:
        grid = np.atleast_1d(np.asarray(times, dtype=np.float64))
        if grid.ndim != 1:
            raise ValueError(
                f"times is a one-dimensional grid; got shape {grid.shape}. Use predict_distribution for own times."
            )
        return grid

    def _on_grid(
        self,
        X: Any,
        times: Any,
        quantity: str,
        precision: Precision,
        as_frame: bool,
        dtype: ResultType = "float64",
        out: npt.NDArray[Any] | None = None,
    ) -> Predicted:
        if precision not in ("double", "single"):
            raise ValueError(f"precision is 'double' or 'single'; got {precision!r}.")
        X, grid = opened(X), self._check_grid(times)
        out = check_result(out, dtype, (count_rows(X), len(grid)))

        def on_grid(distribution: SurvivalDistribution, rows: slice) -> torch.Tensor:
            wanted = distribution.single() if precision == "single" else distribution
            result: torch.Tensor = getattr(wanted, quantity)(torch.from_numpy(np.ascontiguousarray(grid)))
            return result

        found = self._by_blocks(X, on_grid, dtype, out, n_times=len(grid))
        return framed(found, X, "time", grid) if as_frame else found

    def _by_blocks(
        self,
        X: Any,
        quantity: Callable[[SurvivalDistribution, slice], Any],
        dtype: ResultType = "float64",
        out: npt.NDArray[Any] | None = None,
        n_times: int = 1,
    ) -> npt.NDArray[np.float64]:
        """A quantity of every row, some rows at a time: memory stays bounded for tables of any length."""
        check_is_fitted(self)
        step, parts = self._rows_at_once(n_times), iter([X])
        if is_source(X):
            source, names = RowSource.of(X), getattr(self, "feature_names_in_", None)
            n, parts = source.n_rows, source.frames(None if names is None else list(names), rows=step)
        elif (n := count_rows(X)) > step:
            parts = (take_rows(X, slice(i, i + step)) for i in range(0, n, step))
        gathered, done = Gathered(n, dtype, out), 0
        with torch.no_grad(), telling_unseen():
            for part in parts:
                rows = slice(done, done + count_rows(part))
                gathered.put(rows, quantity(self.predict_distribution(part), rows))
                done = rows.stop
        return gathered.array()

    def _rows_at_once(self, n_times: int) -> int:
        """How many rows are predicted together, at so many times each."""
        return _BLOCK
