"""A fitted model as it is served: its fields, and answers to requests. It knows nothing of the web."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from sumosurv._version import __version__
from sumosurv.estimators.members import Members, limits
from sumosurv.io import model_digest
from sumosurv.serve.asked import Asked, read_request
from sumosurv.serve.fields import ChoiceField, Field, FieldError, RequestError, fields_of, read_rows, remarks
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
        """What a request asks for, checked; `RequestError` otherwise."""
        return read_request(body, self.fields, self.last_time, self.limits, members=self.has_members)

    def answer(self, body: Any) -> dict[str, Any]:
        """Read a request and predict."""
        return self.predict(self.read(body))

    def predict(self, asked: Asked) -> dict[str, Any]:
        """Curves and figures of each row, as plain values; what is infinite is None."""
        X = self._as_trained(asked.frame)
        with torch.no_grad():
            distribution = self.model.predict_distribution(X)
            if asked.after > 0:
                _check_alive(distribution.survival(asked.after))
            known = _given(distribution, asked)
            found = _curves(known, asked.times)
            if asked.figures:
                found |= {"median": known.median(), "restricted_mean": known.restricted_mean(asked.horizon)}
            if asked.band is not None:
                found |= _bands(self.model.predict_members(X), asked, asked.band)
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
        choices = any(isinstance(field, ChoiceField) for field in self.fields)
        return frame.to_numpy(dtype=object if choices else np.float64)

    def _find_members(self) -> bool:
        usual = {field.name: _usual(field) for field in self.fields}
        return len(self.model.predict_members(self._as_trained(read_rows(self.fields, [usual])))) > 1


def _usual(field: Field) -> Any:
    if isinstance(field, ChoiceField):
        return field.levels[field.common] if field.levels else None
    return field.middle


def _bands(members: Members, asked: Asked, level: float) -> dict[str, Array]:
    """Limits of each curve from the spread of the members; given survival to a time, each counts as it foresaw that."""
    weights = np.repeat(members.weights[:, None], len(asked.frame), axis=1)
    if asked.after > 0:
        weights *= np.stack([member.survival(asked.after) for member in members.distributions])
        weights /= weights.sum(axis=0)
    curves: dict[str, list[Array]] = {}
    for member in members.distributions:
        for name, values in _curves(_given(member, asked), asked.times).items():
            curves.setdefault(name, []).append(values)
    found = {}
    for name, parts in curves.items():
        stacked, counted = np.stack(parts), weights > 0
        ends = [limits(stacked[counted[:, i], i], weights[counted[:, i], i], level) for i in range(len(asked.frame))]
        found[f"{name}_low"], found[f"{name}_high"] = (np.stack(side) for side in zip(*ends))
    return found


def _check_alive(survival: Array) -> None:
    """Raise a RequestError if the model holds it for impossible that a row is event-free so long."""
    none = np.flatnonzero(survival <= 0)
    if len(none):
        raise RequestError([FieldError("after", f"the model gives rows[{none[0]}] no chance to be event-free then")])


def _given(distribution: Any, asked: Asked) -> Any:
    return distribution.conditional(after=asked.after) if asked.after > 0 else distribution


def _curves(distribution: Any, times: Array) -> dict[str, Array]:
    """Survival, (rows, times), and where causes compete their incidences, (rows, causes, times)."""
    found = {"survival": distribution.survival(times)}
    if distribution.n_causes > 1:
        found["incidence"] = np.swapaxes(distribution.cumulative_incidence(times), 1, 2)
    return found


def _plain(value: Any) -> Any:
    """Numbers and lists that JSON can hold."""
    if np.ndim(value):
        return [_plain(part) for part in value]
    return float(value) if np.isfinite(value) else None
