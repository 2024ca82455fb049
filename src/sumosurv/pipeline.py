"""A scikit-learn pipeline whose last step is a survival estimator, with all its prediction methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import pandas as pd
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.metaestimators import available_if

from sumosurv.fitting.prepared import ONE_OUTCOME
from sumosurv.formulas import FormulaTransformer
from sumosurv.model_files import as_list, as_text, save

__all__ = ["SurvivalPipeline", "make_survival_pipeline"]


def _passed_on(name: str) -> Any:
    """A method that transforms the rows and calls the last step, available if the last step has such a method."""

    def has_method(pipeline: Pipeline) -> bool:
        getattr(pipeline.steps[-1][1], name)  # its own AttributeError says what is missing
        return True

    def method(self: Pipeline, X: Any, *args: Any, **options: Any) -> Any:
        rows = self[:-1].transform(X) if len(self.steps) > 1 else X
        found = getattr(self.steps[-1][1], name)(rows, *args, **options)
        own = getattr(X, "index", None)
        if options.get("as_frame") and isinstance(own, pd.Index) and len(own) == len(found):
            found = found.set_axis(own)  # most transformers return arrays, which have no index
        return found

    method.__name__, method.__qualname__ = name, f"SurvivalPipeline.{name}"
    method.__doc__ = f"Transform the rows, and ``{name}`` of the last step."
    passed: Callable[..., Any] = available_if(has_method)(method)
    return passed


class SurvivalPipeline(Pipeline):  # type: ignore[misc]
    """scikit-learn's ``Pipeline`` for survival estimators: transformers, then an estimator of this library.

    A plain ``Pipeline`` has only ``predict``, ``score`` and other methods of scikit-learn's own estimators. This one
    also predicts distributions, curves, medians and means. It can be used in grid searches like any ``Pipeline``.

    Parameters
    ----------
    steps, transform_input, memory, verbose
        As in ``Pipeline``.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sumosurv import CoxPH, SurvivalPipeline, datasets
    >>> data = datasets.simulate("weibull", 200, random_state=0)
    >>> chain = SurvivalPipeline([("scale", StandardScaler()), ("cox", CoxPH())]).fit(data.X, data.y)
    >>> chain.predict_survival_function(data.X[:2], times=[0.5, 1.0]).shape
    (2, 2)
    """

    def fit(self, X: Any, y: Any = None, *more: Any, **params: Any) -> Self:
        """Fit as ``Pipeline`` does, but leave every step unchanged if a step fails; see `SumoNet.fit` for Ctrl-C."""
        if more:
            raise TypeError(f"fit takes X and one outcome; got {2 + len(more)} arguments. {ONE_OUTCOME}")
        made = clone(self)
        try:
            Pipeline.fit(made, X, y, **params)
        except KeyboardInterrupt:
            if getattr(made.steps[-1][1], "interrupted_", False):
                self._become(made)
            raise
        self._become(made)
        return self

    def _become(self, other: SurvivalPipeline) -> None:
        """Take over what the steps of a copy have learned; the steps stay the objects that they are."""
        for (_, own), (_, fitted) in zip(self.steps, other.steps):
            if own is not fitted and hasattr(own, "fit"):  # not "passthrough", and nothing that is never copied
                vars(own).clear()
                vars(own).update(vars(fitted))

    predict_distribution = _passed_on("predict_distribution")
    predict_survival_function = _passed_on("predict_survival_function")
    predict_cumulative_hazard_function = _passed_on("predict_cumulative_hazard_function")
    predict_density = _passed_on("predict_density")
    predict_hazard = _passed_on("predict_hazard")
    predict_quantile = _passed_on("predict_quantile")
    predict_median = _passed_on("predict_median")
    predict_mean = _passed_on("predict_mean")
    predict_restricted_mean = _passed_on("predict_restricted_mean")
    predict_cumulative_incidence = _passed_on("predict_cumulative_incidence")
    predict_path = _passed_on("predict_path")

    def save(self, path: str | Path) -> None:
        """Write the fitted pipeline to a file that `sumosurv.load` reads: a `FormulaTransformer` and an estimator.

        A pipeline with other transformers raises a TypeError, because a model file does not contain code of other
        libraries.
        """
        save(self, path)

    def _parts(self) -> list[Any]:
        """The estimator, which a model file describes by itself."""
        return [self.steps[-1][1]]

    @classmethod
    def _settings_with(cls, parts: Sequence[Any], default: bool) -> dict[str, Any]:
        """Steps that `_restore` names and completes."""
        (estimator,) = parts
        return {"steps": [("columns", FormulaTransformer("1")), ("estimator", estimator)]}

    def _restore_parts(self, parts: Sequence[Any]) -> None:
        """The estimator is among the steps already."""

    def _check_settings(self) -> None:
        """The steps have checked their own settings."""

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what a model file keeps besides the estimator."""
        transformers = [step for _, step in self.steps[:-1]]
        if [type(step) for step in transformers] != [FormulaTransformer]:
            raise TypeError(
                "Only a pipeline of one FormulaTransformer and an estimator can be saved; got "
                f"{', '.join(type(step).__name__ for step in transformers) or 'no transformer'}. Transform the rows "
                "first, and save the estimator alone."
            )
        (transformer,) = transformers
        names = [name for name, _ in self.steps]
        fitted = {"names": names, "text": transformer.formula, "columns": transformer.feature_names_in_.tolist()}
        return fitted | {"formula": transformer.formula_.state()}, {}

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, Any]) -> None:
        """The inverse of `_state`."""
        names = [as_text(name, "the name of a step") for name in as_list(fitted["names"], "names")]
        columns = [as_text(name, "a column's name") for name in as_list(fitted["columns"], "columns")]
        transformer = FormulaTransformer.restored(as_text(fitted["text"], "a formula"), columns, fitted["formula"])
        (estimator,) = self._parts()
        made = [str(name) for name in transformer.get_feature_names_out()]
        if made != list(getattr(estimator, "feature_names_in_", ())):
            raise ValueError("the formula does not make the columns of the estimator")
        self.set_params(steps=list(zip(names, [transformer, estimator], strict=True)), memory=None)

    @property
    def last_time_(self) -> float:
        """The largest training time, beyond which predictions are extrapolated."""
        return float(self.steps[-1][1].last_time_)


def make_survival_pipeline(*steps: Any, memory: Any = None, verbose: bool = False) -> SurvivalPipeline:
    """A `SurvivalPipeline` whose steps are named by their classes, as scikit-learn's ``make_pipeline`` does."""
    return SurvivalPipeline(make_pipeline(*steps).steps, memory=memory, verbose=verbose)
