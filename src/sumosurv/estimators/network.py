"""Estimators that train populations of networks."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.utils import check_random_state

from sumosurv.distributions import SurvivalDistribution
from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.fitting.plan import FitPlan, FittedComponents, fit_components
from sumosurv.fitting.prepared import Learned, PreparedRows, check_validation_data, read_rows
from sumosurv.fitting.settings import NetworkMethod
from sumosurv.fitting.spread import Members
from sumosurv.fitting.stack import FittedStack
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.sources import StoredRows, as_source
from sumosurv.streaming.fitting import fit_stream
from sumosurv.training import ALONE, Checkpoints, Workers
from sumosurv.warn import warn_user

__all__ = ["NetworkEstimator"]

_DEVICE_CELLS = 1 << 23  # rows × times predicted at once on a GPU


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkEstimator(NetworkMethod, SurvivalEstimator):
    """An estimator whose fitted model is a stack of populations of networks."""

    _supports_blocks: ClassVar[bool] = True  # a row's term depends on no other row, so rows can be read in blocks

    def fit(  # type: ignore[override]  # the base accepts further arguments only to reject them
        self,
        X: Any,
        y: Any,
        validation_data: tuple[Any, ...] | None = None,
        *,
        sample_weight: Any = None,
        groups: Any = None,
        checkpoint: Checkpoints | str | Path | None = None,
        workers: Workers = ALONE,
    ) -> Self:
        """Fit to covariates and outcomes.

        Parameters
        ----------
        X : DataFrame, array of shape (rows, columns), or rows on disk
            Numeric and categorical columns; missing values are allowed. With an ``encoder``, arrays may have more
            dimensions. Rows on disk are a Parquet file, a folder of Parquet files, a ``pyarrow.dataset.Dataset``, an
            iterator of record batches or a `RowSource`: they are read in blocks and need not fit into memory (see
            docs/large_data.md).
        y : outcome
            `Surv.from_arrays(event, time)`, `Surv.interval(lower, upper)`, a two-column DataFrame, or a
            ``(time, event)`` pair. For rows on disk, the names of columns: ``{"time": "months", "event": "died"}``;
            ``sample_weight`` and ``groups`` are then names of columns too.
        validation_data : tuple (X, y) or (X, y, sample_weight), optional
            Rows for early stopping. Without them, each member holds out its own random fraction of the rows
            (``validation_fraction``), so that every row is used by some members.
        sample_weight : array of shape (rows,), optional
            Number of rows that each row represents. Integers count repeats; other weights are scaled to a mean of one.
        groups : array of shape (rows,), optional
            The subject of each row, for subjects with several rows (time-varying covariates). All rows of a subject
            are held out together.
        checkpoint : path or Checkpoints, optional
            Folder for checkpoints, written about every 30 seconds at the end of an epoch
            (`sumosurv.training.Checkpoints` sets the interval). Running the same fit with the same folder resumes it,
            with the same result as without the interruption. Using the folder with other rows, settings or seeds raises
            a ValueError.
        workers : Workers
            The processes that train together; see `sumosurv.training.torchrun_workers`. One process by default.

        Raises
        ------
        KeyboardInterrupt
            On Ctrl-C, so that the caller of ``fit`` stops too (a grid search, a script). After the first epoch, the
            estimator is nevertheless fitted, with each member's best weights so far: a warning is issued,
            ``interrupted_`` is True, and the estimator can be used if a variable refers to it (``model = SumoNet()``,
            then ``model.fit(X, y)``). Before the first epoch ends, and on a second Ctrl-C, the estimator is unchanged.
        """
        resources = None if checkpoint is None else Checkpoints.of(checkpoint), workers
        check_validation_data(validation_data)
        return self._fit_copy(as_source(X, y, sample_weight, groups), validation_data, resources)

    def _fit(
        self,
        X: Any,
        y: Any,
        validation_data: tuple[Any, ...] | None = None,
        resources: tuple[Checkpoints | None, Workers] = (None, ALONE),
    ) -> None:
        rows = self._read(X, y, validation_data)
        given = validation_data is not None
        n_train = rows.n_train if given else round((1 - self.validation_fraction) * rows.n_train)
        plans = [FitPlan(part, name, *resources) for name, part in self._components(max(n_train, 1)).items()]
        random = check_random_state(self.random_state)
        self._keep(fit_components(self, plans, rows, random, has_validation_data=given))

    def _fit_blocks(
        self,
        source: StoredRows,
        validation_data: tuple[Any, ...] | None = None,
        resources: tuple[Checkpoints | None, Workers] = (None, ALONE),
    ) -> None:
        if not self._supports_blocks:
            super()._fit_blocks(source)
        ((name, method),) = self._components_on_disk(source.n_rows).items()
        plan = FitPlan(method, name, *resources)
        self._keep(fit_stream(self, plan, source, validation_data, self._note_rows))

    def _keep(self, made: FittedComponents) -> None:
        self._set_stack(made.stack)
        self.components_, self.members_, self.history_ = made.components(), made.members(), made.history()
        self.best_epoch_ = np.concatenate([part.history.best_epoch for part in made.trained])
        self.best_valid_ = np.concatenate([part.history.best_valid for part in made.trained])
        self.interrupted_ = made.interrupted

    def _set_stack(self, stack: FittedStack) -> None:
        """Set the stack that predicts, and the attributes that describe it."""
        learned = stack.learned
        self.stack_, self.n_members_, self.components_ = stack, stack.n_members, stack.components()
        self.preprocessor_, self.cells_ = learned.preprocessor, learned.cells
        self.resolution_ = None if learned.cells is None else learned.cells.width
        self.time_origin_, self.time_unit_ = learned.time_origin, learned.time_unit

    def _warn_of_interruption(self) -> None:
        epochs = len(self.history_.groupby(["component", "epoch"]))
        warn_user(
            f"Training was interrupted after {epochs} epochs; the model is fitted with the best weights so far.",
            RuntimeWarning,
        )

    def _read(self, X: Any, y: Any, validation_data: tuple[Any, ...] | None = None) -> PreparedRows:
        """Check the training rows, set the common fitted attributes, and convert all rows to tensors."""
        X, outcome = self._start(X, y)
        more = None
        if validation_data is not None:
            X_valid = self._check_covariates(validation_data[0], reset=False)
            weight = validation_data[2] if len(validation_data) == 3 else None
            held_out = check_outcome(validation_data[1], n_rows=len(X_valid), sample_weight=weight)
            more = X_valid, held_out if outcome.cause is not None else held_out.any_cause()
            self._check_rows(more[1])
        return read_rows(self._row_options(), (X, outcome), more)

    def _note_rows(self, X: Any, outcome: Outcome) -> None:
        """Set the common fitted attributes, from columns and an outcome that represent all training rows."""
        self._check_covariates(X, reset=True)
        self._learn_outcome(outcome)

    # ------------------------------------------------------------------ prediction

    @property
    def _device(self) -> torch.device:
        return self.stack_.device

    def _component_table(self) -> pd.DataFrame:
        return self.components_

    def _on_cpu(self) -> Self:
        made = copy.copy(self)
        made.stack_ = self.stack_.on_cpu()
        return made

    def _rows_at_once(self, n_times: int) -> int:
        own = super()._rows_at_once(n_times)
        return own if self._device.type == "cpu" else max(own, _DEVICE_CELLS // max(n_times, 1))

    def _distribution(self, X: Any) -> SurvivalDistribution:
        return self.stack_.distribution(self.preprocessor_.transform(X, self._device))

    def _members(self, X: Any) -> Members:
        return self.stack_.members(self.preprocessor_.transform(X, self._device))

    # ------------------------------------------------------------------ model files

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        fitted, tensors = super()._state()
        own, more = self.stack_.state()
        if (shape := self.preprocessor_.row_shape) is not None:
            tensors["row"] = torch.zeros(1, *shape, dtype=torch.uint8)  # an example row for encoders
        return fitted | own, tensors | more

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        super()._restore(fitted, tensors)
        learned = Learned.from_state(fitted["learned"], tensors)
        columns = learned.preprocessor
        self._check_columns(columns)
        if columns.row_shape is not None and tuple(tensors["row"].shape) != (1, *columns.row_shape):
            raise ValueError(f"rows have shape {columns.row_shape}, the stored row {tuple(tensors['row'].shape)}")
        if max((len(value) for value in vars(self).values() if isinstance(value, tuple)), default=0) > len(tensors):
            raise ValueError("it has fewer tensors than layers")
        builders = {name: FitPlan(part).build for name, part in self._components(1).items()}
        stack = FittedStack.from_state(learned, fitted, tensors, builders, self.device)
        self._set_stack(stack.with_shared_tail() if self._shares_tail else stack)
