"""The base class of all estimators: fitting, scores and model files."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from sumosurv.distributions import Tabulated
from sumosurv.estimators.predictions import Predictions
from sumosurv.fitting.prepared import ONE_OUTCOME, check_learns_from
from sumosurv.fitting.settings import Constraints, check_parameters
from sumosurv.formulas import ModelFrame, model_frame
from sumosurv.model_files import as_list, as_number, as_text, as_whole, save, tensor_of
from sumosurv.nonparametric import coarse_aalen_johansen, coarse_kaplan_meier
from sumosurv.outcome import Cells, Outcome, check_outcome
from sumosurv.preprocessing import LevelNotes, Preprocessor
from sumosurv.preprocessing.columns import quantiles
from sumosurv.scores import log_likelihood
from sumosurv.sources import Source, StoredRows, as_source, in_memory, take_rows
from sumosurv.streaming import PredictionTable, predict_to_parquet
from sumosurv.warn import warn_user

__all__ = ["SurvivalEstimator", "curve_tensors", "stored_curve"]

_RISK_TIMES = 32
_KNOWN = ("n_features_in_", "feature_names_in_", "n_causes_", "last_time_", "risk_times_", "training_curve_")


class SurvivalEstimator(Predictions, BaseEstimator, ABC):  # type: ignore[misc]
    """Base class of all estimators: ``fit``, ``predict_distribution`` and the predictions derived from it.

    Subclasses define ``_fit`` and ``_distribution``; subclasses with further settings or fitted attributes also define
    ``_check_settings``, ``_state`` and ``_restore``. ``_start`` sets these fitted attributes of all estimators:
    ``n_features_in_``, ``feature_names_in_`` (with DataFrames), ``n_causes_``, ``last_time_`` (the largest training
    time, beyond which predictions are extrapolated), ``risk_times_``, and ``training_curve_``, the Kaplan-Meier curve
    of the training rows (with competing risks, the Aalen-Johansen curves), too coarse to reveal single rows.
    """

    _supports_blocks: ClassVar[bool] = False  # whether it can be fitted to rows read in blocks
    # outcomes supported besides right-censored times: "entry", "intervals", "causes", "weights"
    _supported_outcomes: ClassVar[frozenset[str]] = frozenset()
    # allowed values of the parameters that a class adds
    _parameter_constraints: ClassVar[Constraints] = {}

    cells_: Cells | None  # the cells of rounded times; None if times are exact

    def fit(self, X: Any, y: Any, *more: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit to covariates and outcomes.

        Parameters
        ----------
        X : DataFrame or array of shape (rows, columns)
            Numeric and categorical columns, missing values allowed.
        y : outcome
            `Surv.from_arrays(event, time)`, `Surv.interval(lower, upper)`, a two-column DataFrame, or a
            ``(time, event)`` pair.
        *more
            Not used. A third positional argument raises an error: time and event are one argument.
        sample_weight : array of shape (rows,), optional
            Number of rows that each row represents.
        groups : array of shape (rows,), optional
            The subject of each row, for subjects with several rows (time-varying covariates).
        """
        if more:
            raise TypeError(f"fit takes X and one outcome; got {2 + len(more)} arguments. {ONE_OUTCOME}")
        return self._fit_copy(as_source(X, y, sample_weight, groups))

    @classmethod
    def from_formula(cls, formula: str, data: Any, *, sample_weight: Any = None, **settings: Any) -> Self:
        """Fit to a table with a formula in the notation of R, such as ``"Surv(time, event) ~ age + C(stage)"``.

        The left-hand side is ``Surv(time, event)``, ``Surv(start, stop, event)`` or ``Surv(lower, upper,
        type="interval2")``, in which a missing limit means that the interval is unbounded on that side, as in R.
        ``type="interval"`` means the same here, but not in R. With competing risks, ``event`` is the number of the
        cause.

        ===================================== =============================================================
        right-hand side                       meaning
        ===================================== =============================================================
        ``age``, ``.``                        a column; all columns that have no other role
        ``a:b``, ``a * b``, ``- a``           an interaction; the same with its main effects; without a
        ``C(stage, ref="I")``                 categories, with a reference level (the first by default)
        ``C(stage, contr.sum)``               other contrasts: ``contr.sum``, ``contr.helmert``, ``contr.poly``
        ``bs(age, df=4)``, ``ns(age, df=3)``  B-splines and natural cubic splines, as in R
        ``poly(age, 2)``                      orthogonal polynomials
        ``center(age)``, ``scale(age)``       minus the mean; divided by the standard deviation
        ``log(age)``, ``I(age / 10)``         functions and arithmetic
        ``strata(site)``                      strata
        ``cluster(id)``                       groups of dependent rows, for robust standard errors
        ``offset(z)``                         added to the linear predictor, in the fit and in predictions
        ===================================== =============================================================

        Knots, means and levels are learned from the training rows, and model files contain them. `CoxPH`, `FineGray`,
        `ParametricRegression` and `CauseSpecific` of these support all terms. Other estimators use columns as they are;
        for them, use a `FormulaTransformer` in a pipeline. Requires ``pip install "sumosurv[formula]"``.

        Parameters
        ----------
        formula : str
        data : DataFrame
        sample_weight : array of shape (rows,) or name of a column, optional
            Number of rows that each row represents.
        **settings
            Parameters of the estimator.

        Examples
        --------
        >>> from sumosurv import CoxPH, datasets
        >>> X, y = datasets.load("gbsg2")
        >>> data = X.assign(time=y["time"], event=y["event"])
        >>> model = CoxPH.from_formula("Surv(time, event) ~ age + C(tumour_grade, ref='II')", data)
        >>> model.terms_
        ['age', 'tumour_grade[I]', 'tumour_grade[III]']
        """
        named = [sample_weight] if isinstance(sample_weight, str) else []
        frame = model_frame(formula, data, apart=named)
        weight = data[sample_weight] if named else sample_weight
        model = cls(**cls._formula_settings(frame, settings))
        return model.fit(frame.X, frame.y, sample_weight=weight, groups=frame.groups)

    @classmethod
    def _formula_settings(cls, frame: ModelFrame, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of an estimator that is fitted with a formula."""
        if not frame.plain or frame.strata:
            raise ValueError(
                f"{cls.__name__} reads columns as they are; the formula has other terms ({frame.formula}), strata or "
                "offsets. Use make_survival_pipeline(FormulaTransformer(...), ...), or a regression such as CoxPH."
            )
        return settings

    @abstractmethod
    def _fit(self, X: Any, y: Any) -> None:
        """Set the fitted attributes; the estimator has none before."""

    @property
    def _device(self) -> torch.device:
        """The device of a fitted model and all of its parts."""
        parts = self._parts()
        return parts[0]._device if parts else torch.device("cpu")

    def _on_cpu(self) -> Self:
        """Return a fitted model on the CPU: itself or a copy."""
        parts = self._parts()
        if not parts:
            return self
        made = copy.copy(self)
        made._restore_parts([part._on_cpu() for part in parts])
        return made

    def _check_settings(self) -> None:
        """Raise a ValueError that names an invalid parameter and its allowed values."""
        check_parameters(self)

    def _note_levels(self, X: Any, notes: LevelNotes) -> None:
        columns: Preprocessor | None = vars(self).get("preprocessor_")
        if columns is not None:
            columns.note_levels(X, notes)
        for part in self._parts():
            part._note_levels(X, notes)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean log-likelihood, in nats, on the scale of the training times (higher is better).

        If the model treats times as rounded (``SumoNet.resolution``), events are scored by the probability of their
        cell; see `log_likelihood`.
        """
        values, weights, notes = [], [], LevelNotes()
        for block in self._source(X, y, sample_weight).blocks(rows=self._rows_at_once(1)):
            assert block.outcome is not None
            found = self._predict(block.X, notes)
            values.append(log_likelihood(found, block.outcome, resolution=self.cells_))
            weights.append(block.outcome.weights)
        notes.warn()
        return float(np.average(np.concatenate(values), weights=np.concatenate(weights)))

    def predict_to_parquet(self, X: Any, path: str | Path, *, identifiers: Sequence[str] = (), **table: Any) -> int:
        """Write predictions for rows on disk to a Parquet file, and return the number of rows.

        The file is written completely or not at all, and a run that was killed resumes: see
        `sumosurv.streaming.predict_to_parquet`.

        Parameters
        ----------
        X : path, pyarrow.dataset.Dataset, iterator of record batches or RowSource
        path : path
        identifiers : sequence of str
            Columns to copy to the output.
        **table
            What to predict, as in `sumosurv.streaming.PredictionTable`: times, quantiles, mean, restricted_mean, risk,
            precision.
        """
        check_is_fitted(self)
        return predict_to_parquet(self, X, path, PredictionTable(**table), identifiers=identifiers)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a file that `sumosurv.load` reads: tensors and JSON, no code, no training rows."""
        save(self, path)

    # ------------------------------------------------------------------ model files

    def _parts(self) -> list[SurvivalEstimator]:
        """The fitted estimators that this one contains; a model file describes each of them."""
        return []

    @classmethod
    def _settings_with(cls, parts: Sequence[SurvivalEstimator], default: bool) -> dict[str, Any]:
        """Return the settings that are estimators, stored as parts of a file; ``default``: ``estimator`` was None."""
        return {}

    def _mixed(self) -> list[tuple[SurvivalEstimator, float]]:
        """The estimators whose mixture this one predicts, with their weights; by default, itself."""
        return [(self, 1.0)]

    def _component_table(self) -> pd.DataFrame:
        """The components of the fitted model, in the format of ``components_`` of `SumoNet`; by default, one."""
        name = type(self).__name__
        return pd.DataFrame([{"component": name, "weight": 1.0, "members": 1, "held_out": np.nan}])

    def _restore_parts(self, parts: Sequence[SurvivalEstimator]) -> None:
        """Set the fitted parts; for a model file, this is called before `_restore`."""

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """Return the contents of a model file: plain values and tensors."""
        names = getattr(self, "feature_names_in_", None)
        fitted = {
            "n_features_in_": self.n_features_in_,
            "feature_names_in_": None if names is None else [str(name) for name in names],
            "n_causes_": self.n_causes_,
            "last_time_": self.last_time_,
        }
        tensors = {"risk_times_": torch.from_numpy(self.risk_times_)}
        return fitted, tensors | curve_tensors(self.training_curve_, "training_")

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """Set the fitted attributes of a new estimator from its `_state`."""
        self.n_features_in_ = as_whole(fitted["n_features_in_"], "n_features_in_", low=1)
        if fitted["feature_names_in_"] is not None:
            names = [as_text(name, "a column's name") for name in as_list(fitted["feature_names_in_"], "the names")]
            if len(names) != self.n_features_in_:
                raise ValueError(f"{len(names)} names for {self.n_features_in_} columns")
            self.feature_names_in_ = np.array(names, dtype=object)
        own = set(getattr(self, "feature_names_in_", ()))
        for part in self._parts():
            some = vars(part).get("formula") is not None and own.issuperset(getattr(part, "feature_names_in_", ()))
            if part.n_features_in_ != self.n_features_in_ and not some:  # a formula need not use all columns
                raise ValueError("its parts have different numbers of columns")
        self.n_causes_ = as_whole(fitted["n_causes_"], "n_causes_", low=1)
        self.__dict__.setdefault("cells_", None)  # unless its parts have cells
        self.risk_times_ = tensor_of(tensors, "risk_times_", _RISK_TIMES, low=0.0).numpy()
        self.last_time_ = as_number(fitted["last_time_"], "last_time_", low=0.0)
        self.training_curve_ = stored_curve(tensors, self.n_causes_, "training_", between="hazard")

    def _check_columns(self, columns: Preprocessor) -> None:
        """Raise a ValueError unless a model file describes all columns."""
        if columns.row_shape is None and len(columns.columns) != self.n_features_in_:
            raise ValueError(f"{len(columns.columns)} columns are described, but there are {self.n_features_in_}")

    # ------------------------------------------------------------------ fitting

    def _fit_copy(self, source: Source, *more: Any) -> Self:
        """Fit a copy and take over its attributes at the end, so that a failed fit leaves the estimator unchanged.

        If Ctrl-C ended training early and there are weights to keep (``interrupted_``), the fit is kept and
        KeyboardInterrupt is raised again, so that the caller stops too. Ctrl-C at any other moment, or while a part of
        the estimator is fitted, leaves the estimator unchanged.
        """
        self._check_settings()
        made = self._unfitted()
        try:
            made._fit_source(source, *more)
        except KeyboardInterrupt as stopped:
            raise KeyboardInterrupt(f"the fit was interrupted; {type(self).__name__} is unchanged") from stopped
        self.__dict__ = made.__dict__  # removes the attributes of an earlier fit
        if vars(self).get("interrupted_", False):
            self._warn_of_interruption()
            raise KeyboardInterrupt("the fit was interrupted; the estimator is fitted with the best weights so far")
        return self

    def _fit_source(self, source: Source, *more: Any) -> None:
        """Fit to rows from any source."""
        source.dispatch(
            lambda rows: self._fit(*rows.whole(type(self).__name__), *more),
            lambda rows: self._fit_blocks(rows, *more),
        )

    def _fit_blocks(self, source: StoredRows, *more: Any) -> None:
        """Fit to rows that are read in blocks; raise a TypeError if the method does not support it."""
        source.whole(type(self).__name__)

    def _warn_of_interruption(self) -> None:
        """Warn that Ctrl-C ended the fit early."""

    def _fitted_part(self, X: Any, outcome: Outcome) -> Self:
        """Return a clone fitted as a part of another estimator; an interrupted fit raises KeyboardInterrupt."""
        made: Self = clone(self)
        made._check_settings()
        made._fit_source(as_source(X, outcome))
        if vars(made).get("interrupted_", False):
            raise KeyboardInterrupt
        return made

    def _unfitted(self) -> Self:
        """Return a copy with the same settings and no fitted attributes."""
        made = copy.copy(self)
        for name in [name for name in vars(made) if name.endswith("_") and not name.startswith("_")]:
            delattr(made, name)
        return made

    def _known(self) -> dict[str, Any]:
        """The fitted attributes that every estimator has."""
        return {name: vars(self)[name] for name in _KNOWN if name in vars(self)}

    def _start(self, X: Any, y: Any) -> tuple[Any, Outcome]:
        """Check the training data and set the fitted attributes that all estimators have."""
        X = self._check_covariates(X, reset=True)
        outcome = check_outcome(y, n_rows=X.shape[0])
        if outcome.cause is not None and outcome.n_causes == 1:
            outcome = outcome.any_cause()
        if outcome.weight is not None and not outcome.weight.all():  # drop rows of weight zero
            counted = np.flatnonzero(outcome.weight)
            X, outcome = take_rows(X, counted), outcome[counted]
        self._check_rows(outcome)
        self._learn_outcome(outcome)
        return X, outcome

    def _check_rows(self, outcome: Outcome) -> None:
        check_learns_from(type(self).__name__, self._supported_outcomes, outcome)

    def _learn_outcome(self, outcome: Outcome) -> None:
        """Set the fitted attributes that all estimators learn from the training outcome."""
        self.n_causes_, self.last_time_, self.cells_ = outcome.n_causes, outcome.last_time, None
        if not outcome.had_event.any():
            warn_user(f"All {outcome.total:.0f} rows are censored, so event times cannot be learned.")
        known = outcome.at_midpoints()
        rows = known.event if known.event.any() else np.ones(len(known), dtype=bool)
        levels = (np.arange(_RISK_TIMES) + 0.5) / _RISK_TIMES
        self.risk_times_ = quantiles(known.time[rows], levels, None if known.weight is None else known.weight[rows])
        several = outcome.cause is not None
        self.training_curve_ = coarse_aalen_johansen(outcome) if several else coarse_kaplan_meier(outcome)

    def _check_covariates(self, X: Any, *, reset: bool) -> Any:
        X = in_memory(X)
        if hasattr(X, "columns"):
            names = list(X.columns)
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"X has two columns named {twice!r}; rename one, or drop it.")
            if reset or names != list(getattr(self, "feature_names_in_", ())):  # known names need no check
                validate_data(self, X, reset=reset, skip_check_array=True)
            if len(X) == 0:
                raise ValueError("Found array with 0 sample(s) (shape=(0, ...)) while a minimum of 1 is required.")
            if X.shape[1] == 0:
                raise ValueError("Found 0 feature(s) (shape=(..., 0)): X needs at least one column.")
            return X
        if sparse.issparse(X):
            raise TypeError(
                f"{type(self).__name__} with these settings does not read sparse matrices. Pass X.toarray(), or use "
                "CoxPHCV or CoxPH(alpha=...) with l1_ratio > 0."
            )
        if getattr(X, "ndim", 2) > 2:  # images or sequences, for custom encoders
            if reset:
                self.n_features_in_ = int(X.shape[1])
            return np.asarray(X)
        is_object = getattr(getattr(X, "dtype", None), "kind", "") == "O"
        return validate_data(
            self, X, reset=reset, dtype=None if is_object else "numeric", ensure_all_finite="allow-nan"
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def curve_tensors(curve: Tabulated, prefix: str = "") -> dict[str, torch.Tensor]:
    """Return the tensors that a model file stores for one curve common to all subjects."""
    found = {"times": curve.times, "survival": curve.table[0]}
    if curve.n_causes > 1:
        found["incidence"] = curve.incidence[0].reshape(-1)
    return {prefix + name: value for name, value in found.items()}


def stored_curve(tensors: dict[str, torch.Tensor], n_causes: int, prefix: str = "", **options: Any) -> Tabulated:
    """The inverse of `curve_tensors`."""
    times = tensor_of(tensors, prefix + "times", low=0.0, increasing=True)
    survival = tensor_of(tensors, prefix + "survival", len(times), low=0.0, high=1.0)
    incidence = None
    if n_causes > 1:
        flat = tensor_of(tensors, prefix + "incidence", len(times) * n_causes, low=0.0, high=1.0)
        incidence = flat.reshape(len(times), n_causes)
    return Tabulated(times, survival, incidence, **options)
