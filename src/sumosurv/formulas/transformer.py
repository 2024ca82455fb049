"""The columns of a formula as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from sumosurv.formulas.formula import Formula, check_names
from sumosurv.outcome.surv import as_pandas


class FormulaTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The columns of a formula as a scikit-learn transformer, for pipelines with any estimator.

    Splines, means and levels are learned from the training rows. If a value is missing, all columns derived from it are
    missing in that row; the estimator then handles them as usual.

    Parameters
    ----------
    formula : str
        The right-hand side of a formula: see `CoxPH.from_formula`.

    Attributes
    ----------
    formula_ : Formula
        The formula with its fitted splines, means and levels.
    n_features_in_, feature_names_in_
        The columns that the formula reads.

    Examples
    --------
    >>> from sumosurv import CoxPH, FormulaTransformer, SurvivalPipeline, datasets
    >>> X, y = datasets.load("gbsg2")
    >>> FormulaTransformer("ns(age, df=2) + tumour_grade").fit_transform(X).columns.tolist()
    ['ns(age, df=2)[1]', 'ns(age, df=2)[2]', 'tumour_grade[II]', 'tumour_grade[III]']
    """

    def __init__(self, formula: str) -> None:
        self.formula = formula

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the columns of the formula; ``y`` is ignored."""
        X = as_pandas(X)
        if not isinstance(X, pd.DataFrame):
            raise TypeError(f"A formula needs a DataFrame with named columns; got {type(X).__name__}.")
        made = Formula.parse(self.formula, list(X.columns))
        if made.offsets:
            raise ValueError("A transformer has no offset(); use from_formula of a regression.")
        validate_data(self, X[list(made.columns)], skip_check_array=True)
        self.formula_ = made.learn(X)
        return self

    @classmethod
    def restored(cls, text: str, columns: list[str], state: Any) -> Self:
        """A fitted transformer from its formula, the columns it reads and what a model file keeps of it."""
        made = cls(text)
        made.formula_ = Formula.from_state(state, columns)
        if made.formula_.offsets or sorted(made.formula_.columns) != sorted(columns):
            raise ValueError("the formula does not read the columns that are described")
        made.n_features_in_, made.feature_names_in_ = len(columns), np.array(columns, dtype=object)
        return made

    def transform(self, X: Any) -> pd.DataFrame:
        """The columns of the formula; other columns of X are ignored."""
        check_is_fitted(self)
        X = as_pandas(X)
        check_names(self.formula_.columns, getattr(X, "columns", []))
        return pd.DataFrame(self.formula_.matrix(X), columns=self.formula_.names, index=X.index)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Names of the columns."""
        check_is_fitted(self)
        return np.array(self.formula_.names, dtype=object)
