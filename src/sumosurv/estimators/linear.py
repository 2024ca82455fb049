"""What regressions share that are linear in the columns of a design: covariates as they are, or those of a formula."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse
from sklearn.utils.validation import validate_data

from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.estimators.design import Design, FormulaDesign
from sumosurv.estimators.regression import Missing, complete_cases
from sumosurv.estimators.strata import Strata, column_list
from sumosurv.fitting.settings import NONE, Constraints, instance_of, one_of
from sumosurv.formulas import Formula, ModelFrame
from sumosurv.formulas.formula import check_names
from sumosurv.outcome import Outcome
from sumosurv.preprocessing import LevelNotes, Preprocessor
from sumosurv.sources import in_memory

__all__ = ["LinearEstimator"]

Array = npt.NDArray[np.float64]


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

    def _start_complete(self, X: Any, y: Any) -> tuple[Any, Outcome, int]:
        """Check the training data; the rows to fit, and how many rows there were.

        A formula learns from the rows with missing values in other columns too, as in R.
        """
        X, outcome = self._start(X, y)
        n_rows = len(outcome)
        self._formula = None if self.formula is None else self._parse_formula(X).learn(X, outcome.weight)
        X, outcome = complete_cases(X, outcome, self.missing)
        if len(outcome) < n_rows:
            self._note_outcome(outcome)
        return X, outcome, n_rows

    def _learn_design(self, X: Any, weight: Array | None = None) -> tuple[Any, Array]:
        """Learn the columns of the design; the matrix of the training rows, and their offset."""
        formula = self._formula
        if formula is None:
            X = self._covariates(X)
            self.preprocessor_ = Preprocessor().fit(X, weight)
            self._design = Design(self.preprocessor_)
        else:
            X = X[[name for name in X.columns if name in formula.columns]]
            self.preprocessor_ = Preprocessor().fit(formula.categorised(X), weight)
            self._design = FormulaDesign(self.preprocessor_, formula)
        self.terms_ = self._design.names
        return self._design.matrix(X), self._design.offset(X)

    def _linear_parts(self, X: Any) -> tuple[Any, Array]:
        """The matrix of a checked X, and its offset."""
        covariates = self._covariates(X)
        return self._design.matrix(covariates), self._design.offset(covariates)

    def _note_levels(self, X: Any, notes: LevelNotes) -> None:
        self.preprocessor_.note_levels(self._covariates(self._select(X)), notes)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._reads_sparse
        return tags

    def _check_columns(self, columns: Preprocessor) -> None:
        described = {*(column.name for column in columns.columns), *map(str, self._strata_columns)}
        if len(described) != self.n_features_in_:
            raise ValueError(f"{len(described)} columns are described, and there are {self.n_features_in_}")

    def _design_state(self) -> dict[str, Any]:
        """What a model file keeps of the design."""
        made = {"preprocessor_": self.preprocessor_.state()}
        return made | ({"formula": self._design.formula.state()} if isinstance(self._design, FormulaDesign) else {})

    def _restore_design(self, fitted: dict[str, Any]) -> None:
        """The inverse of `_design_state`."""
        self.preprocessor_ = Preprocessor.from_state(fitted["preprocessor_"])
        self._check_columns(self.preprocessor_)
        self._design = Design(self.preprocessor_)
        if (self.formula is None) != ("formula" not in fitted):
            raise ValueError("a formula is set and not described, or described and not set")
        if self.formula is not None:
            formula = Formula.from_state(fitted["formula"], [column.name for column in self.preprocessor_.columns])
            self._design = FormulaDesign(self.preprocessor_, formula)
        self.terms_ = self._design.names
