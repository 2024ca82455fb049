"""The predictions of every estimator: distributions, curves, quantiles and means, as arrays or as tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sumosurv.confidence import check_level
from sumosurv.distributions import CovariatePath, SurvivalDistribution
from sumosurv.distributions.extrapolation import is_mean_extrapolated
from sumosurv.fitting.spread import Members, spread
from sumosurv.outcome.checks import check_groups, check_time, without_mask
from sumosurv.preprocessing import LevelNotes
from sumosurv.sources import Source, as_source
from sumosurv.warn import warn_user

__all__ = ["Precision", "Predictions", "ResultArray"]

Precision = Literal["double", "single"]
Predicted: TypeAlias = "npt.NDArray[np.float64] | pd.Series | pd.DataFrame"

ResultType = Literal["float64", "float32"]

_BLOCK = 20_000  # rows predicted at once
_IN_FLIGHT = 2  # most blocks that are being copied from a device


class Predictions(ABC):
    """The ``predict_*`` methods, derived from ``_distribution``.

    With ``as_frame=True`` a prediction is a DataFrame with the index of X and the requested times, levels or horizons
    as columns. Quantiles, medians and means that depend on times beyond ``last_time_`` cause a warning with their
    number; in a DataFrame, the column ``extrapolated`` marks their rows.
    """

    last_time_: float
    risk_times_: npt.NDArray[np.float64]

    @abstractmethod
    def _distribution(self, X: Any) -> SurvivalDistribution:
        """Return the distribution of the rows of a checked X."""

    @abstractmethod
    def _check_covariates(self, X: Any, *, reset: bool) -> Any:
        """Return the covariates as a DataFrame or an array; raise a ValueError if ``fit`` would reject them."""

    @abstractmethod
    def _note_levels(self, X: Any, notes: LevelNotes) -> None:
        """Record levels of a checked X that this model, or a part of it, did not see in training."""

    def predict_distribution(self, X: Any) -> SurvivalDistribution:
        """The survival distribution of each row, in the time unit of the training rows."""
        notes = LevelNotes()
        predicted = self._predict(X, notes)
        notes.warn()
        return predicted

    def _predict(self, X: Any, notes: LevelNotes | None = None) -> SurvivalDistribution:
        """`predict_distribution` without warnings; levels not seen in training are recorded in ``notes``."""
        check_is_fitted(self)
        X = self._check_covariates(X, reset=False)
        if notes is not None:
            self._note_levels(X, notes)
        with torch.no_grad():
            predicted = self._distribution(X)
        predicted.last_time = self.last_time_
        return predicted

    def _check_new_rows(self, X: Any) -> Any:
        """Check the covariates of rows to predict, and warn about levels that were not seen in training."""
        X, notes = self._check_covariates(X, reset=False), LevelNotes()
        self._note_levels(X, notes)
        notes.warn()
        return X

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
            "single" is two to three times as fast with networks that are monotone in time; on CUDA it is one kernel.
            The error in S is then below 2e-6 with the default settings (measured: 3e-7 to 7e-7), and larger for
            unusually large weights: see `SurvivalDistribution.single`. Other methods ignore this option.
        as_frame : bool
            Return a DataFrame with the index of X and the times as columns.
        dtype : {"float64", "float32"}
            Type of the result. For many millions of cells, writing the result may take most of the time.
        out : array of shape (rows, times), optional
            An array of either type that is filled and returned instead of a new array. Reusing memory is faster than
            allocating it.

        Notes
        -----
        ``predict_distribution(X).survival(torch.tensor(times))`` returns a tensor on the device of the networks.
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
        """The time by which the event has happened with probability q: shape (rows,), or (rows, levels)."""
        found = self._by_blocks(X, lambda distribution, rows: distribution.quantile(q))
        return self._marked(found, found > self.last_time_, "quantiles lie", X if as_frame else None, "quantile", q)

    def predict_median(self, X: Any, *, as_frame: bool = False) -> Predicted:
        """The median survival time of each row."""
        found = self._by_blocks(X, lambda distribution, rows: distribution.median())
        return self._marked(found, found > self.last_time_, "medians lie", X if as_frame else None, "median")

    def predict_mean(self, X: Any, *, as_frame: bool = False) -> Predicted:
        """Life expectancy ∫ S(t|x) dt of each row.

        It includes the tail beyond the last training time (``last_time_``), which is extrapolated. A mean counts as
        extrapolated if more than 1 % of it lies there; `predict_restricted_mean` avoids the extrapolation.
        """

        def both(distribution: SurvivalDistribution, rows: slice) -> npt.NDArray[np.float64]:
            within = distribution.restricted_mean(self.last_time_)
            return np.column_stack([distribution.mean(), within])

        found, within = self._by_blocks(X, both).T
        beyond = is_mean_extrapolated(found, within)
        return self._marked(found, beyond, "means include times", X if as_frame else None, "mean")

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
            One horizon per row, instead of ``horizon``; gives shape (rows,).
        as_frame : bool
            Return a DataFrame with the index of X, the horizons as columns and a column ``extrapolated``.
        """
        source, own, label = self._source(X), None, "horizon"
        if own_horizons is not None:
            own, label = np.asarray(own_horizons, dtype=np.float64), "restricted_mean"
            if own.shape != (source.n_rows,):
                raise ValueError(
                    f"own_horizons must have one horizon for each of {source.n_rows} rows; got shape {own.shape}."
                )

        def restricted(distribution: SurvivalDistribution, rows: slice) -> Any:
            return distribution.restricted_mean(horizon, own_horizons=None if own is None else own[rows])

        found = self._by_blocks(source, restricted)
        beyond = np.broadcast_to(np.asarray(horizon if own is None else own) > self.last_time_, found.shape)
        words = "restricted means include times"
        return self._marked(found, beyond, words, X if as_frame else None, label, horizon, name="restricted_mean")

    def _marked(
        self,
        found: npt.NDArray[np.float64],
        extrapolated: npt.NDArray[np.bool_],
        words: str,
        X: Any,
        label: str,
        asked: Any = None,
        name: str | None = None,
    ) -> Predicted:
        """Warn about extrapolated predictions; if X is given, return a DataFrame in which their rows are marked."""
        if count := int(extrapolated.sum()):
            warn_user(
                f"{count:,} of {extrapolated.size:,} {words} beyond the last training time ({self.last_time_:.6g}), "
                "where predictions are extrapolated."
            )
        if X is None:
            return found
        frame = pd.DataFrame(framed(found, X, label, asked, name))
        return frame.assign(extrapolated=extrapolated if extrapolated.ndim == 1 else extrapolated.any(axis=1))

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        r"""A risk score in [0, 1], higher for earlier events.

        The score is the mean of F(tⱼ|x) over quantiles tⱼ of the training event times: the probability of having had
        the event, averaged over typical event times.
        """
        return self._by_blocks(X, lambda distribution, rows: distribution.cdf(self.risk_times_).mean(axis=1))

    def predict_cumulative_incidence(self, X: Any, times: Any, *, as_frame: bool = False) -> Predicted:
        """P(T <= t, cause k | x) on a grid of times: shape (rows, times, causes)."""
        grid = self._check_grid(times)
        found = self._by_blocks(X, lambda distribution, rows: distribution.cumulative_incidence(grid))
        return incidence_frame(found, X, grid) if as_frame else found

    def predict_survival_band(
        self, X: Any, times: Any, level: float = 0.95
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Lower and upper limits of S(t|x) from the spread of the model's members, each of shape (rows, times).

        At each time, the limits contain the central proportion ``level`` of the members' curves, weighted as in the
        mixture. The members were trained on different subsets of the rows, from different initial weights. The band is
        not a confidence interval: it does not show errors that all members have in common, and it contains the true
        curve less often than ``level`` (docs/uncertainty.md). It describes the uncertainty of the curve, not the
        variation of event times.

        `CoxPH` and `ParametricRegression` give confidence limits instead. Other methods with a single model raise a
        ValueError.
        """
        check_level(level)
        members = self.predict_members(X)
        if len(members) < 2:
            raise ValueError(
                f"This {type(self).__name__} is a single model, so it has no band of members. Fit a network "
                "method with n_members of two or more, or a SurvivalMixture; for a Kaplan-Meier curve, use "
                "confidence_band."
            )
        return spread(members, self._check_grid(times), level)

    def predict_members(self, X: Any) -> Members:
        """The distributions that the members of the model predict for each row, and their weights in the mixture.

        The members are the networks of all components of an ensemble. A single model has one member, itself.
        """
        check_is_fitted(self)
        X = self._check_new_rows(X)
        with torch.no_grad():
            found = self._members(X)
        for member in found.distributions:
            member.last_time = self.last_time_
        return found

    def _members(self, X: Any) -> Members:
        """Return the members' predictions for the rows of a checked X; by default, the model is the only member."""
        return Members.equal([self._distribution(X)])

    def predict_path(self, X: Any, start: Any, groups: Any) -> SurvivalDistribution:
        """The distribution of subjects with time-varying covariates, which change at known times.

        Parameters
        ----------
        X : covariates
            One row per spell.
        start : array of shape (rows,)
            Start of each spell. A spell ends at the start of the subject's next spell; the last one does not end.
        groups : array of shape (rows,)
            The subject of each spell.

        Returns
        -------
        SurvivalDistribution
            One row per subject, in order of first appearance, given that the subject is event-free at the start of its
            first spell. The covariates of the last spell are assumed to stay constant.
        """
        spells = self.predict_distribution(X)
        begin = check_time(start, "start", if_missing="say when each spell begins")
        made = CovariatePath(spells, begin, check_groups(groups, len(spells)))
        made.last_time = self.last_time_
        return made

    @staticmethod
    def _check_grid(times: Any) -> npt.NDArray[np.float64]:
        given = without_mask(times)
        if given.dtype.kind in "mM":
            raise ValueError("times are dates or durations; give numbers in the time unit of the training rows.")
        grid = np.atleast_1d(np.asarray(given, dtype=np.float64))
        if grid.ndim != 1:
            raise ValueError(
                f"times must be a one-dimensional array; got shape {grid.shape}. For times "
                "per row, use predict_distribution(X) and own_times=."
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
            raise ValueError(f"precision must be 'double' or 'single'; got {precision!r}.")
        source, grid = self._source(X), self._check_grid(times)
        out = check_result(out, dtype, (source.n_rows, len(grid)))

        def on_grid(distribution: SurvivalDistribution, rows: slice) -> torch.Tensor:
            wanted = distribution.single() if precision == "single" else distribution
            result: torch.Tensor = getattr(wanted, quantity)(torch.from_numpy(np.ascontiguousarray(grid)))
            return result

        found = self._by_blocks(source, on_grid, dtype, out, n_times=len(grid))
        return framed(found, X, "time", grid) if as_frame else found

    def _by_blocks(
        self,
        X: Any,
        quantity: Callable[[SurvivalDistribution, slice], Any],
        dtype: ResultType = "float64",
        out: npt.NDArray[Any] | None = None,
        n_times: int = 1,
    ) -> npt.NDArray[np.float64]:
        """Compute a quantity of every row, some rows at a time, so that memory use does not grow with the table."""
        source, notes = self._source(X), LevelNotes()
        gathered, done = ResultArray(source.n_rows, dtype, out), 0
        with torch.no_grad():
            for block in source.blocks(rows=self._rows_at_once(n_times)):
                rows = slice(done, done + len(block))
                gathered.put(rows, quantity(self._predict(block.X, notes), rows))
                done = rows.stop
        notes.warn()
        return gathered.array()

    def _source(self, X: Any, y: Any = None, sample_weight: Any = None) -> Source:
        """Return rows in memory or on disk as a source; from disk, only the columns of the model are read."""
        check_is_fitted(self)
        names, causes = getattr(self, "feature_names_in_", None), getattr(self, "n_causes_", None)
        return as_source(X, y, sample_weight, n_causes=causes, columns=None if names is None else list(names))

    def _rows_at_once(self, n_times: int) -> int:
        """Return the number of rows to predict at once, at ``n_times`` times each."""
        return _BLOCK


# ------------------------------------------------------------------ tables


def framed(values: npt.NDArray[np.float64], X: Any, label: str, asked: Any = None, name: str | None = None) -> Any:
    """Return a Series with one number per row, or a DataFrame with one column per requested time, level or horizon.

    The index is that of X, if it has one. ``label`` names the column axis and, by default, a Series.
    """
    if values.ndim == 1:
        return pd.Series(values, index=_index(X), name=name or label)
    return pd.DataFrame(values, index=_index(X), columns=pd.Index(np.asarray(asked, dtype=np.float64), name=label))


def incidence_frame(values: npt.NDArray[np.float64], X: Any, times: npt.NDArray[np.float64]) -> Any:
    """Return incidences (rows, times, causes) as a DataFrame with two levels of columns: cause, time."""
    causes = np.arange(1, values.shape[2] + 1)
    columns = pd.MultiIndex.from_product([causes, times], names=["cause", "time"])
    return pd.DataFrame(values.transpose(0, 2, 1).reshape(len(values), -1), index=_index(X), columns=columns)


def _index(X: Any) -> Any:
    index = getattr(X, "index", None)
    return index if isinstance(index, pd.Index) else None


# ------------------------------------------------------------------ results of blocks in one array


def check_result(out: Any, dtype: Any, shape: tuple[int, ...]) -> npt.NDArray[Any] | None:
    """Return the array to fill, or None; raise a ValueError if ``out`` or ``dtype`` is invalid."""
    if dtype not in ("float64", "float32"):
        raise ValueError(f"dtype must be 'float64' or 'float32'; got {dtype!r}.")
    if out is None:
        return None
    wanted = f"out must be a writable, contiguous array of float64 or float32 with shape {shape}"
    if not isinstance(out, np.ndarray):
        raise ValueError(f"{wanted}; got {type(out).__name__}.")
    right = out.shape == shape and out.dtype in (np.float64, np.float32)
    if not right or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(f"{wanted}; got {out.dtype} of shape {out.shape}.")
    return out


def start_copy(values: Tensor) -> tuple[Tensor, Callable[[], None] | None]:
    """Start a copy to pinned memory; return it and a function that waits for it. CPU tensors are returned as is."""
    if values.device.type == "cpu":
        return values, None
    staged = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    staged.copy_(values, non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()
    return staged, copied.synchronize


class ResultArray:
    """A NumPy array (rows, ...) that is filled with results for slices of its rows, from any device.

    Copies from a device go through pinned memory and run asynchronously, a few at a time.

    Parameters
    ----------
    n : int
        The number of rows.
    dtype : {"float64", "float32"}
        Type of the array if ``out`` is None.
    out : ndarray, optional
        The array to fill.
    """

    def __init__(self, n: int, dtype: ResultType = "float64", out: npt.NDArray[Any] | None = None) -> None:
        self._n, self._dtype, self._array = n, dtype, out
        self._under_way: deque[tuple[slice, Tensor, Callable[[], None]]] = deque()

    def put(self, rows: slice, part: Any) -> None:
        """Store the result of some rows."""
        values = torch.as_tensor(part).detach()
        if self._array is None:
            self._array = np.empty((self._n, *values.shape[1:]), dtype=self._dtype)
        staged, wait = start_copy(values)
        if wait is None:
            self._write(rows, staged)
            return
        self._under_way.append((rows, staged, wait))
        if len(self._under_way) > _IN_FLIGHT:
            self._finish_first()

    def array(self) -> npt.NDArray[Any]:
        """Wait for all copies and return the array."""
        while self._under_way:
            self._finish_first()
        assert self._array is not None
        return self._array

    def _finish_first(self) -> None:
        rows, values, wait = self._under_way.popleft()
        wait()
        self._write(rows, values)

    def _write(self, rows: slice, values: Tensor) -> None:
        assert self._array is not None
        torch.from_numpy(self._array)[rows].copy_(values)  # converts to the precision of the array
