"""What every survival estimator can do once it returns a distribution."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from sumosurv.distributions import CovariatePath, SurvivalDistribution, Tabulated
from sumosurv.estimators.predictions import Predictions
from sumosurv.fitting.inputs import ONE_OUTCOME, check_learns_from, with_rows
from sumosurv.fitting.members import Members, check_level, spread
from sumosurv.fitting.parameters import Constraints, check_parameters
from sumosurv.model_file import save
from sumosurv.nonparametric import coarse_aalen_johansen, coarse_kaplan_meier
from sumosurv.outcome import Cells, Outcome, as_pandas, check_outcome
from sumosurv.outcome.checks import check_groups, check_time
from sumosurv.preprocessing import Preprocessor, telling_unseen
from sumosurv.quantiles import quantiles
from sumosurv.scores import evaluate, log_likelihood
from sumosurv.sources import Roles, RowSource, count_rows, is_source, take_rows
from sumosurv.stored import as_list, as_number, as_text, as_whole, tensor_of
from sumosurv.streaming import PredictionTable, predict_to_parquet
from sumosurv.warn import warn_user

__all__ = ["SurvivalEstimator"]

_RISK_TIMES = 32


class SurvivalEstimator(Predictions, BaseEstimator, ABC):  # type: ignore[misc]
    """Base of all estimators: fit, then ask for the distribution or for what follows from it.

    A method defines ``_fit`` and ``_distribution``; methods with settings or fitted attributes of their own also define
    ``_check_settings``, ``_state`` and ``_restore``.
    Fitted attributes that ``_start`` sets for all: ``n_features_in_``, ``feature_names_in_`` (with DataFrames),
    ``n_causes_``, ``last_time_`` (the largest training time, past which predictions are extrapolated), ``risk_times_``,
    and ``training_curve_``, the Kaplan-Meier curve of the training rows (where causes
    compete: the Aalen-Johansen curves), coarse enough to hold no row.
    """

    _streams: ClassVar[bool] = False  # whether it can be fitted to rows that are read in pieces
    # what a method can learn from beside right-censored times: "entry", "intervals", "causes", "weights"
    _learns_from: ClassVar[frozenset[str]] = frozenset()
    # the values that each parameter may have, in scikit-learn's notation; a class lists those that it adds
    _parameter_constraints: ClassVar[Constraints] = {}

    cells_: Cells | None = None  # the cells that recorded times stand for; None if times are exact

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
            Nothing: time and event are one argument.
        sample_weight : array of shape (rows,), optional
            How many rows each row counts for.
        groups : array of shape (rows,), optional
            The subject that each row belongs to, where a subject has several (spells with covariates that change).
        """
        if more:
            raise TypeError(f"fit takes X and one outcome; got {2 + len(more)} arguments. {ONE_OUTCOME}")
        if is_source(X):
            return self._fit_source(X, y, sample_weight, groups)
        return self._fit_anew(X, with_rows(y, sample_weight, groups))

    @abstractmethod
    def _fit(self, X: Any, y: Any) -> None:
        """Fit: set the fitted attributes of an estimator that has none."""

    @abstractmethod
    def _distribution(self, X: Any) -> SurvivalDistribution:
        """The distribution of the rows of a checked X."""

    @property
    def _device(self) -> torch.device:
        """Where a fitted model computes its predictions."""
        return torch.device("cpu")

    def _on_cpu(self) -> Self:
        """A fitted model whose predictions are computed on the CPU: itself, or a copy."""
        return self

    def _check_settings(self) -> None:
        """Raise a ValueError that names an invalid parameter and the values that it may have."""
        check_parameters(self)

    def predict_distribution(self, X: Any) -> SurvivalDistribution:
        """The survival distribution of each row, in the unit of the training times."""
        check_is_fitted(self)
        with torch.no_grad(), telling_unseen():
            predicted = self._distribution(self._check_covariates(X, reset=False))
        predicted.last_time = self.last_time_
        return predicted

    def predict_survival_band(
        self, X: Any, times: Any, level: float = 0.95
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Lower and upper limits of S(t|x) from the spread of the model's members, each of shape (rows, times).

        Between them lies the central share ``level`` of the members' curves, each counted with its weight in the
        mixture; both limits fall in time, as the curves do. The members were trained on different shares of the rows
        from different starting values, so that their spread shows what the networks do not know. It is not a confidence
        interval: what all members get wrong together does not show, and the truth lies in the band less often than
        ``level`` says (docs/uncertainty.md has figures). How far apart the *times* of such subjects are is another
        question, which the distribution itself answers.

        Methods with one model have no members, and raise a ValueError.
        """
        check_level(level)
        members = self.predict_members(X)
        if len(members) < 2:
            raise ValueError(
                f"This {type(self).__name__} is a single model, so that there is no spread to show. Fit networks with "
                "an n_members of two or more, or several models as a SurvivalMixture; limits of a Kaplan-Meier "
                "curve are those of confidence_band."
            )
        return spread(members, self._check_grid(times), level)

    def predict_members(self, X: Any) -> Members:
        """The distributions that the members of the model predict for each row, and their weights in the mixture.

        The members are the networks of an ensemble, of all kinds; a method that is a single model is its only member.
        """
        check_is_fitted(self)
        with torch.no_grad(), telling_unseen():
            found = self._members(self._check_covariates(X, reset=False))
        for member in found.distributions:
            member.last_time = self.last_time_
        return found

    def _members(self, X: Any) -> Members:
        """What the members say of the rows of a checked X; here there is one."""
        return Members.equal([self._distribution(X)])

    def predict_path(self, X: Any, start: Any, groups: Any) -> SurvivalDistribution:
        """The distribution of subjects whose covariates change at known times.

        Parameters
        ----------
        X : covariates
            One row for each spell.
        start : array of shape (rows,)
            When each spell begins; it lasts until the next one of the same subject, the last for ever.
        groups : array of shape (rows,)
            The subject of each spell.

        Returns
        -------
        SurvivalDistribution
            Of one row per subject, in the order in which they first appear, given that each is event-free at the
            start of its first spell. What happens past the start of the last spell is said as if its covariates
            stayed as they are.
        """
        subject = check_groups(groups, count_rows(X))
        begin = check_time(start, "start", if_missing="say when each spell begins")
        made = CovariatePath(self.predict_distribution(X), begin, subject)
        made.last_time = self.last_time_
        return made

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean log-likelihood, in nats, on the scale of the training times (higher is better).

        Of a model that took recorded times for cells (``SumoNet.resolution``) it is that of the cells; see
        `log_likelihood`.
        """
        check_is_fitted(self)
        if is_source(X):
            found = evaluate(self, X, y, scores="log_likelihood", sample_weight=sample_weight)
            return float(found["value"].iloc[0])
        outcome, cells = check_outcome(y, n_rows=count_rows(X), sample_weight=sample_weight), self.cells_
        values = self._by_blocks(
            X, lambda distribution, rows: log_likelihood(distribution, outcome[rows], resolution=cells)
        )
        return float(values.mean() if outcome.weight is None else np.average(values, weights=outcome.weight))

    def predict_to_parquet(self, X: Any, path: str | Path, *, identifiers: Sequence[str] = (), **table: Any) -> int:
        """Write predictions of rows on disk to a Parquet file, one row for each; returns how many.

        The file is written as a whole or not at all, and a run that was killed resumes: see
        `sumosurv.streaming.predict_to_parquet`.

        Parameters
        ----------
        X : path, pyarrow.dataset.Dataset, iterator of record batches or RowSource
        path : path
        identifiers : sequence of str
            Columns to pass through.
        **table
            What to predict, as in `sumosurv.streaming.PredictionTable`: times, quantiles, mean, restricted_mean, risk,
            precision.
        """
        check_is_fitted(self)
        return predict_to_parquet(self, X, path, PredictionTable(**table), identifiers=identifiers)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file, to be read by `sumosurv.load`: tensors and JSON, no code, no data."""
        save(self, path)

    # ------------------------------------------------------------------ model files

    def _parts(self) -> list[SurvivalEstimator]:
        """The fitted estimators that this one is made of, which a model file describes one by one."""
        return []

    @classmethod
    def _settings_with(cls, parts: Sequence[SurvivalEstimator], default: bool) -> dict[str, Any]:
        """The settings that hold estimators, which a file keeps as parts; ``default``: ``estimator`` was None."""
        return {}

    def _restore_parts(self, parts: Sequence[SurvivalEstimator]) -> None:
        """Take over the fitted parts of a model file, before `restore`."""

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """What a model file keeps of the fit: plain values and tensors."""
        names = getattr(self, "feature_names_in_", None)
        fitted = {
            "n_features_in_": self.n_features_in_,
            "feature_names_in_": None if names is None else [str(name) for name in names],
            "n_causes_": self.n_causes_,
            "last_time_": self.last_time_,
        }
        curve, tensors = self.training_curve_, {"risk_times_": torch.from_numpy(self.risk_times_)}
        if curve.n_causes > 1:
            tensors["training_incidence"] = curve.incidence[0].reshape(-1)
        return fitted, tensors | {"training_times": curve.times, "training_survival": curve.table[0]}

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of `state`, on an estimator that was just made."""
        self.n_features_in_ = as_whole(fitted["n_features_in_"], "n_features_in_", low=1)
        if fitted["feature_names_in_"] is not None:
            names = [as_text(name, "a column's name") for name in as_list(fitted["feature_names_in_"], "the names")]
            if len(names) != self.n_features_in_:
                raise ValueError(f"{len(names)} names for {self.n_features_in_} columns")
            self.feature_names_in_ = np.array(names, dtype=object)
        self.n_causes_ = as_whole(fitted["n_causes_"], "n_causes_", low=1)
        self.risk_times_ = tensor_of(tensors, "risk_times_", _RISK_TIMES, low=0.0).numpy()
        self.last_time_ = as_number(fitted["last_time_"], "last_time_", low=0.0)
        times = tensor_of(tensors, "training_times", low=0.0, increasing=True)
        survival = tensor_of(tensors, "training_survival", len(times), low=0.0, high=1.0)
        incidence = None
        if self.n_causes_ > 1:
            flat = tensor_of(tensors, "training_incidence", len(times) * self.n_causes_, low=0.0, high=1.0)
            incidence = flat.reshape(len(times), self.n_causes_)
        self.training_curve_ = Tabulated(times, survival, incidence, between="hazard")

    def _check_columns(self, columns: Preprocessor) -> None:
        """Raise a ValueError unless a model file describes as many columns as it says there are."""
        if columns.row_shape is None and len(columns.columns) != self.n_features_in_:
            raise ValueError(f"{len(columns.columns)} columns are described, and there are {self.n_features_in_}")

    # ------------------------------------------------------------------ fitting

    def _fit_anew(self, *rows: Any) -> Self:
        """Fit a copy and become it at the end: a fit that fails leaves the estimator as it was.

        One that Ctrl-C ended early but that has something to show (``interrupted_``) is kept, and the interruption goes
        on to the caller, who may be in the middle of many fits. Ctrl-C at any other moment is a failure like others;
        so it is for an estimator of which a part was being fitted.
        """
        self._check_settings()
        made = self._unfitted()
        try:
            if isinstance(rows[0], RowSource):
                made._fit_stream(*rows)
            else:
                made._fit(*rows)
        except KeyboardInterrupt as stopped:
            raise KeyboardInterrupt(f"the fit was ended early; {type(self).__name__} is as it was before") from stopped
        self._become(made)
        if vars(self).get("interrupted_", False):
            raise KeyboardInterrupt("the fit was ended early; the estimator is fitted with what it had by then")
        return self

    def _fit_source(self, X: Any, y: Any, sample_weight: Any, groups: Any, *more: Any) -> Self:
        """Fit to rows that are read in pieces, if the method can."""
        if not self._streams:
            raise TypeError(
                f"{type(self).__name__} looks at all rows at once and cannot be fitted to rows on disk; read the table "
                "into memory, or fit SumoNet or another network whose rows have likelihoods of their own."
            )
        return self._fit_anew(RowSource.of(X), Roles.of(y, sample_weight, groups), *more)

    def _fit_stream(self, source: RowSource, roles: Roles) -> None:
        """As `_fit`, from rows that are read in pieces."""
        raise NotImplementedError

    def _unfitted(self) -> Self:
        """A copy with the same settings and no fitted attributes."""
        made = copy.copy(self)
        for name in [name for name in vars(made) if name.endswith("_") and not name.startswith("_")]:
            delattr(made, name)
        return made

    def _become(self, made: Self) -> None:
        """Take over the fitted attributes of a copy, and nothing of an earlier fit."""
        self.__dict__ = made.__dict__

    def _start(self, X: Any, y: Any) -> tuple[Any, Outcome]:
        """Check the training data and learn what every estimator keeps of it."""
        X = self._check_covariates(X, reset=True)
        outcome = check_outcome(y, n_rows=len(X))
        if outcome.cause is not None and outcome.n_causes == 1:
            outcome = outcome.any_cause()
        check_learns_from(type(self).__name__, self._learns_from, outcome)
        if outcome.weight is not None and not outcome.weight.all():  # rows that do not count are not looked at
            counted = np.flatnonzero(outcome.weight)
            X, outcome = take_rows(X, counted), outcome[counted]
        self._note_outcome(outcome)
        return X, outcome

    def _note_outcome(self, outcome: Outcome) -> None:
        """What every estimator keeps of the outcome of its training rows."""
        self.n_causes_, self.last_time_ = outcome.n_causes, outcome.last_time
        if not outcome.had_event.any():
            warn_user(f"All {outcome.total:.0f} rows are censored; the times of events cannot be learned from them.")
        known = outcome.at_midpoints()
        rows = known.event if known.event.any() else np.ones(len(known), dtype=bool)
        levels = (np.arange(_RISK_TIMES) + 0.5) / _RISK_TIMES
        self.risk_times_ = quantiles(known.time[rows], levels, None if known.weight is None else known.weight[rows])
        several = outcome.cause is not None
        self.training_curve_ = coarse_aalen_johansen(outcome) if several else coarse_kaplan_meier(outcome)

    def _check_covariates(self, X: Any, *, reset: bool) -> Any:
        if is_source(X):
            raise TypeError(
                "Curves are of rows in memory; of rows on disk, predict_* gives arrays and predict_to_parquet writes a "
                "file."
            )
        X = as_pandas(X)
        if hasattr(X, "columns"):
            names = list(X.columns)
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"X has two columns named {twice!r}; rename one, or drop it.")
            if reset or names != list(getattr(self, "feature_names_in_", ())):  # else there is nothing to check
                validate_data(self, X, reset=reset, skip_check_array=True)
            if len(X) == 0:
                raise ValueError("Found array with 0 sample(s) (shape=(0, ...)) while a minimum of 1 is required.")
            if X.shape[1] == 0:
                raise ValueError("Found 0 feature(s) (shape=(..., 0)): X needs at least one column.")
            return X
        if getattr(X, "ndim", 2) > 2:  # images, sequences: for encoders of the user's own
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
