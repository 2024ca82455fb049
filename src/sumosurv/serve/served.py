"""A fitted model as it is served: its fields, and answers to requests. It knows nothing of the web."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from sumosurv._version import __version__
from sumosurv.distributions import CompetingRisksDistribution
from sumosurv.estimators.members import Members, spread
from sumosurv.io import model_digest
from sumosurv.serve.asked import Asked, read_request
from sumosurv.serve.fields import fields_of, remarks
from sumosurv.serve.limits import Limits

__all__ = ["ServedModel"]

Array = npt.NDArray[np.float64]


class ServedModel:
    """A model that answers requests.

    Parameters
    ----------
    model : fitted estimator, or a search
        With columns that a form can show: numbers and categories.
    name : str
        Shown as a title.
    unit : str
        Of time.
    causes : sequence of str, optional
        Names of the causes, where causes compete.
    limits : Limits, optional

    Examples
    --------
    >>> from sumosurv import CoxPH, datasets
    >>> data = datasets.simulate("weibull", 200, random_state=0)
    >>> served = ServedModel(CoxPH().fit(data.X, data.y))
    >>> answer = served.answer({"rows": [{"x": 0.5}], "times": [0.0, 1.0]})
    >>> sorted(answer["rows"][0])
    ['median', 'remarks', 'restricted_mean', 'survival']
    """

    def __init__(
        self,
        model: Any,
        *,
        name: str = "",
        unit: str = "",
        causes: Any = None,
        limits: Limits | None = None,
    ) -> None:
        model = getattr(model, "best_estimator_", model)
        check_is_fitted(model)
        self.model, self.name, self.unit = model, name or type(model).__name__, unit
        self.limits = limits or Limits()
        self.fields = fields_of(model)
        self.n_causes = int(model.n_causes_)
        self.causes = [f"cause {k + 1}" for k in range(self.n_causes)] if causes is None else [str(c) for c in causes]
        if len(self.causes) != self.n_causes:
            raise ValueError(f"The model tells {self.n_causes} causes apart; got names for {len(self.causes)}.")
        self.digest = model_digest(model)
        self.last_time = float(model.last_time_)
        self.has_members = self._find_members()

    def schema(self) -> dict[str, Any]:
        """What may be asked: the fields, the times, the limits."""
        return {
            "name": self.name,
            "method": type(self.model).__name__,
            "version": __version__,
            "digest": self.digest,
            "unit": self.unit,
            "last_time": self.last_time,
            "causes": self.causes if self.n_causes > 1 else [],
            "band": self.has_members,
            "fields": [field.schema() for field in self.fields],
            "limits": vars(self.limits),
        }

    def read(self, body: Any) -> Asked:
        """What a request asks for, checked; `RowErrors` otherwise."""
        return read_request(body, self.fields, self.last_time, self.limits, members=self.has_members)

    def answer(self, body: Any) -> dict[str, Any]:
        """Read a request and predict."""
        return self.predict(self.read(body))

    def predict(self, asked: Asked) -> dict[str, Any]:
        """Curves and figures of each row, as plain values; what is infinite is None."""
        X = self._as_trained(asked.frame)
        with torch.no_grad():
            distribution = self.model.predict_distribution(X)
            known = distribution.conditional(after=asked.after) if asked.after > 0 else distribution
            found: dict[str, Array] = {
                "survival": known.survival(asked.times),
                "median": known.median(),
                "restricted_mean": known.restricted_mean(asked.horizon),
            }
            if isinstance(known, CompetingRisksDistribution):
                found["incidence"] = np.swapaxes(known.cumulative_incidence(asked.times), 1, 2)  # causes before times
            if asked.band is not None:
                members = self.model.predict_members(X)
                found["low"], found["high"] = _band(members, asked.times, asked.after, asked.band)
        told = remarks(self.fields, asked.frame)
        rows = [
            {name: _plain(values[i]) for name, values in found.items()} | {"remarks": told[i]}
            for i in range(len(asked.frame))
        ]
        return {
            "times": asked.times.tolist(),
            "after": asked.after,
            "horizon": asked.horizon,
            "band": asked.band,
            "last_time": self.last_time,
            "rows": rows,
        }

    def _as_trained(self, frame: pd.DataFrame) -> Any:
        """The rows as a table with names, or as an array if the model was fitted to one."""
        if hasattr(self.model, "feature_names_in_"):
            return frame
        return frame.to_numpy(dtype=object if (frame.dtypes == object).any() else np.float64)

    def _find_members(self) -> bool:
        usual = {field.name: [field.read(_usual(field))] for field in self.fields}
        try:
            self.model.predict_members(self._as_trained(pd.DataFrame(usual)))
        except ValueError:  # a method with a single member says so
            return False
        return True


def _usual(field: Any) -> Any:
    if hasattr(field, "levels"):
        return field.levels[field.common] if field.levels else None
    return field.middle


def _band(members: Members, times: Array, after: float, level: float) -> tuple[Array, Array]:
    """Limits of S from the spread of the members; given survival to a time, each counts as it foresaw that."""
    if after == 0:
        return spread(members, times, level)
    chances = np.stack([member.survival(after) for member in members.distributions])  # members, rows
    weights = members.weights[:, None] * chances
    weights = weights / weights.sum(axis=0)
    parts = []
    for i in range(weights.shape[1]):
        kept = [k for k in range(len(members)) if weights[k, i] > 0]
        curves = tuple(members.distributions[k][i : i + 1].conditional(after=after) for k in kept)
        parts.append(spread(Members(curves, weights[kept, i]), times, level))
    low, high = zip(*parts)
    return np.concatenate(low), np.concatenate(high)


def _plain(value: Any) -> Any:
    """Numbers and lists that JSON can hold."""
    if np.ndim(value):
        return [_plain(part) for part in value]
    return float(value) if np.isfinite(value) else None
