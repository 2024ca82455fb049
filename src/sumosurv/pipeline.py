"""A scikit-learn pipeline that ends in a survival estimator, and predicts what it predicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import pandas as pd
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.metaestimators import available_if

from sumosurv.fitting.prepared import ONE_OUTCOME

__all__ = ["SurvivalPipeline", "make_survival_pipeline"]


def _passed_on(name: str) -> Any:
    """A method that transforms the rows and asks the last step, where that has such a method."""

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

    A plain ``Pipeline`` passes on ``predict``, ``score`` and what scikit-learn's own estimators have. This one passes
    on distributions, curves, medians and means as well; everything else is as there, and grid searches can use it.

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

    @property
    def last_time_(self) -> float:
        """The largest training time, beyond which predictions are extrapolated."""
        return float(self.steps[-1][1].last_time_)


def make_survival_pipeline(*steps: Any, memory: Any = None, verbose: bool = False) -> SurvivalPipeline:
    """A `SurvivalPipeline` whose steps are named by their classes, as scikit-learn's ``make_pipeline`` does."""
    return SurvivalPipeline(make_pipeline(*steps).steps, memory=memory, verbose=verbose)
