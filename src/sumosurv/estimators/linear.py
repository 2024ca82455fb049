"""Base of regressions that are linear in the columns of a design: covariates as they are, or those of a formula."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy import sparse
from sklearn.utils.validation import check_is_fitted, validate_data

from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.estimators.design import Design, FormulaDesign, Strata, column_list
from sumosurv.estimators.regression import listed
from sumosurv.estimators.summary import ModelSummary
from sumosurv.fitting.settings import NONE, Constraints, instance_of, one_of
from sumosurv.formulas import Formula, ModelFrame
from sumosurv.formulas.formula import check_names
from sumosurv.nonparametric import is_whole
from sumosurv.outcome import Outcome
from sumosurv.preprocessing import LevelNotes, Preprocessor
from sumosurv.sources import in_memory, take_rows
from sumosurv.warn import warn_user

__all__ = ["LinearEstimator", "Missing", "TrainingRows"]

Array = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Missing = Literal["drop", "error", "indicator"]


@dataclass(frozen=True)
class TrainingRows:
    """The complete rows of a fit: the matrix of the design (an array or sparse), offset, outcome and stratum."""

    matrix: Any
    offset: Array
    outcome: Outcome
    stratum: Whole | None
    dropped: int  # rows with missing values

    def __getitem__(self, rows: Any) -> TrainingRows:
        stratum = None if self.stratum is None else self.stratum[rows]
        return TrainingRows(self.matrix[rows], self.offset[rows], self.outcome[rows], stratum, self.dropped)

    def counts(self) -> dict[str, float]:
        """Rows and events that were fitted, each with its weight if weights are counts, and rows that were dropped."""
        weights = self.outcome.weights
        count = weights if is_whole(weights) else np.ones(len(weights))
        events = float(count[self.outcome.had_event].sum())
        return {"rows": float(count.sum()), "rows_dropped": float(self.dropped), "events": events}


@dataclass(kw_only=True, eq=False, repr=False)
class LinearEstimator(SurvivalEstimator):
    """Base of regressions with one coefficient for each column of a design."""

    _parameter_constraints: ClassVar[Constraints] = {
        "formula": NONE | instance_of(str, "the right-hand side of a formula"),
        "missing": one_of("drop", "error", "indicator"),
    }

    formula: str | None = None
    missing: Missing = "drop"

    @classmethod
    def _formula_settings(cls, frame: ModelFrame, settings: dict[str, Any]) -> dict[str, Any]:
        known, made = inspect.signature(cls).parameters, dict[str, Any](formula=frame.formula)
        if frame.strata:
            if "strata" not in known:
                raise ValueError(f"{cls.__name__} has no strata; leave strata() out of the formula.")
            made["strata"] = frame.strata
        if frame.groups is not None and "robust" in known:
            made["robust"] = True
        return made | settings

    def _select(self, X: Any) -> Any:
        """The columns that a fitted formula reads, in their order; other columns are ignored."""
        names = list(getattr(self, "feature_names_in_", ()))
        if self.formula is None or list(getattr(X, "columns", ())) == names:
            return X
        check_names(names, getattr(X, "columns", ()))
        return X[names]

    @property
    def _reads_sparse(self) -> bool:
        """Whether X may be a sparse matrix."""
        return False

    def _check_covariates(self, X: Any, *, reset: bool) -> Any:
        if sparse.issparse(X) and self._reads_sparse:
            if self.formula is not None or self._strata_columns:
                raise TypeError("A formula or strata need named columns; got a sparse matrix. Pass a DataFrame.")
            return sparse.csr_array(validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float64))
        if self.formula is not None:
            X = in_memory(X)
            if not isinstance(X, pd.DataFrame):
                raise TypeError(f"A formula needs a DataFrame with named columns; got {type(X).__name__}.")
            if reset:
                wanted = {*self._parse_formula(X).columns, *self._strata_columns}
                X = X[[name for name in X.columns if name in wanted]]
            else:
                X = self._select(X)
        return super()._check_covariates(X, reset=reset)

    @property
    def _strata_columns(self) -> list[Any]:
        return column_list(getattr(self, "strata", None))

    def _parse_formula(self, X: pd.DataFrame) -> Formula:
        assert self.formula is not None
        return Formula.parse(self.formula, list(X.columns), apart=self._strata_columns)

    def _covariates(self, X: Any) -> Any:
        """The columns with coefficients; those of strata are among them only if a formula names them."""
        if self.formula is None:
            return Strata(self._strata_columns).without(X)
        return X[[column.name for column in self.preprocessor_.columns]]

    def _read_rows(self, X: Any, y: Any) -> TrainingRows:
        """Check the training data, learn strata and design, and return the complete rows.

        A formula also learns from rows with missing values in other columns, as in R.
        """
        X, outcome = self._start(X, y)
        n_rows = len(outcome)
        formula = None if self.formula is None else self._parse_formula(X).learn(X, outcome.weight)
        kept = self._complete_rows(X)
        if len(kept) < n_rows:
            X, outcome = take_rows(X, kept), outcome[kept]
            self._learn_outcome(outcome)
        self._strata = Strata.of(X, self._strata_columns)
        stratum = self._strata.learn(X, outcome.had_event)
        if formula is None:
            X = self._covariates(X)
            self.preprocessor_ = Preprocessor().fit(X, outcome.weight)
            self._design = Design(self.preprocessor_)
        else:
            X = X[[name for name in X.columns if name in formula.columns]]
            self.preprocessor_ = Preprocessor().fit(formula.categorised(X), outcome.weight)
            self._design = FormulaDesign(self.preprocessor_, formula)
        self.terms_ = self._design.names
        return TrainingRows(self._design.matrix(X), self._design.offset(X), outcome, stratum, n_rows - len(outcome))

    def _complete_rows(self, X: Any) -> npt.NDArray[np.intp]:
        """The rows to fit: those without missing values if ``missing="drop"``; a warning counts the others."""
        complete = np.flatnonzero(~self._absent(X).any(axis=1))
        self._tell_of_missing(
            X,
            f"the model is fitted to the {len(complete)} complete rows. Impute the values, or choose missing='error' "
            "or missing='indicator'.",
            refuse=len(complete) == 0,
        )
        return complete

    def _absent(self, X: Any) -> npt.NDArray[np.bool_]:
        """Which values are missing, (rows, columns); none if indicators show them."""
        if self.missing == "indicator" or np.ndim(X) != 2 or sparse.issparse(X):
            return np.zeros((X.shape[0], 1), dtype=np.bool_)
        return np.asarray(pd.isna(X))

    def _tell_of_missing(self, X: Any, consequence: str, *, refuse: bool = False) -> None:
        """Issue a warning if values are missing; a ValueError if ``missing="error"`` or they are to be refused."""
        absent = self._absent(X)
        if not absent.any():
            return
        names = list(X.columns) if hasattr(X, "columns") else list(range(absent.shape[1]))
        columns = listed([name for name, values in zip(names, absent.T) if values.any()])
        told = f"{int(absent.any(axis=1).sum())} of {len(absent)} rows have missing values (in {columns})"
        if refuse or self.missing == "error":
            raise ValueError(f"{told}. Impute them, or fit with missing='indicator'.")
        warn_user(f"{told}; {consequence}", UserWarning)

    def _linear_parts(self, X: Any) -> tuple[Any, Array]:
        """The matrix of a checked X, and its offset."""
        self._tell_of_missing(
            X,
            "they are predicted with the training mean of the column, or its first level. Impute the values, or fit "
            "with missing='indicator'.",
        )
        covariates = self._covariates(X)
        return self._design.matrix(covariates), self._design.offset(covariates)

    def summary(self, level: float = 0.95) -> ModelSummary:
        """Coefficients, ratios of hazards or times, tests and measures of fit, as a printable summary.

        Coefficients are nan for a column that is left out; p = 1 if the standard error is infinite. With a lasso or
        elastic-net penalty there are no standard errors and tests. `FineGray` has no AIC and BIC, because its
        likelihood is a weighted partial likelihood, its likelihood ratio and score tests take the censoring weights
        as known, and its concordance compares an event with the rows of its weighted risk set. In a parametric
        regression, the parameters of the family follow the coefficients.

        Parameters
        ----------
        level : float
            Confidence level of the limits of the ratios.
        """
        check_is_fitted(self)
        return self._summary(level)

    @abstractmethod
    def _summary(self, level: float) -> ModelSummary:
        """The summary of a fitted model."""

    @property
    def strata_(self) -> list[tuple[str, ...]] | None:
        """The strata of the training rows, values as text."""
        return self._strata.labels

    @property
    def _in_strata(self) -> str:
        """The strata, for the title of a summary."""
        columns = ", ".join(map(str, self._strata.columns))
        return columns and f", strata of {columns}"

    def _note_levels(self, X: Any, notes: LevelNotes) -> None:
        X = self._select(X)
        complete = ~self._absent(X).any(axis=1)  # _linear_parts warns of the other rows
        covariates = self._covariates(X if complete.all() else take_rows(X, np.flatnonzero(complete)))
        self.preprocessor_.note_levels(covariates, notes, "read as the first level of the column")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._reads_sparse
        return tags

    def _check_columns(self, columns: Preprocessor) -> None:
        described = {*(column.name for column in columns.columns), *map(str, self._strata_columns)}
        if len(described) != self.n_features_in_:
            raise ValueError(f"{len(described)} columns are described, and there are {self.n_features_in_}")

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """What a model file keeps of the design and the strata."""
        fitted, tensors = super()._state()
        fitted["preprocessor_"] = self.preprocessor_.state()
        if isinstance(self._design, FormulaDesign):
            fitted["formula"] = self._design.formula.state()
        if self._strata.labels is not None:
            fitted["strata_"] = [list(label) for label in self._strata.labels]
        return fitted, tensors

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        super()._restore(fitted, tensors)
        names = getattr(self, "feature_names_in_", None)
        self._strata = Strata.restored(self._strata_columns, fitted.get("strata_"), names)
        self.preprocessor_ = Preprocessor.from_state(fitted["preprocessor_"])
        self._check_columns(self.preprocessor_)
        self._design = Design(self.preprocessor_)
        if (self.formula is None) != ("formula" not in fitted):
            raise ValueError("a formula is set and not described, or described and not set")
        if self.formula is not None:
            formula = Formula.from_state(fitted["formula"], [column.name for column in self.preprocessor_.columns])
            self._design = FormulaDesign(self.preprocessor_, formula)
        self.terms_ = self._design.names
