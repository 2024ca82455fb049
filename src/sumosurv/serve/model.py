"""A fitted model that answers requests, independent of the web server."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from sumosurv._version import __version__
from sumosurv.fitting.spread import Members, limits
from sumosurv.model_files import model_digest
from sumosurv.models import cause_names
from sumosurv.serve.request import (
    ChoiceField,
    Field,
    FieldError,
    Limits,
    PredictionRequest,
    RequestError,
    fields_of,
    read_request,
    read_rows,
    remarks,
)

Array = npt.NDArray[np.float64]


class ServedModel:
    """A fitted model that answers JSON requests, without a server.

    Parameters
    ----------
    model : fitted estimator, or a search
        Its columns must be numbers and categories, which a form can show.
    name : str
        Title of the page.
    unit : str
        Time unit, for labels.
    causes : sequence of str, optional
        Names of the competing causes.
    limits : Limits, optional
        Limits of a request.

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
        self.causes = cause_names(self.n_causes, causes)
        self.digest = model_digest(model)
        self._warned: set[str] = set()
        self.last_time = float(model.last_time_)
        self.has_members = self._find_members()

    def schema(self) -> dict[str, Any]:
        """The fields, the last training time and the limits of a request, as JSON."""
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

    def read(self, body: Any) -> PredictionRequest:
        """Check a request; raise `RequestError` if it is invalid."""
        return read_request(body, self.fields, self.last_time, self.limits, members=self.has_members)

    def answer(self, body: Any) -> dict[str, Any]:
        """Read a request and predict."""
        return self.predict(self.read(body))

    def predict(self, request: PredictionRequest) -> dict[str, Any]:
        """Curves, median and restricted mean of each row, as plain values; None for infinite ones."""
        X = self._as_trained(request.frame)
        with torch.no_grad(), self._warning_once():
            distribution = self.model.predict_distribution(X)
            if request.after > 0 and not (alive := distribution.survival(request.after) > 0).all():
                row = int(np.argmin(alive))
                message = f"the model assigns probability zero to rows[{row}] being event-free then"
                raise RequestError([FieldError("after", message)])
            known = _conditional(distribution, request)
            found = _curves(known, request.times)
            if request.summaries:
                found |= {"median": known.median(), "restricted_mean": known.restricted_mean(request.horizon)}
            if request.band is not None:
                found |= _bands(self.model.predict_members(X), request, request.band)
        told = remarks(self.fields, request.frame)
        rows = [
            {name: _plain(values[i]) for name, values in found.items()} | {"remarks": told[i]}
            for i in range(len(request.frame))
        ]
        return {
            "times": request.times.tolist(),
            "after": request.after,
            "horizon": request.horizon,
            "band": request.band,
            "last_time": self.last_time,
            "rows": rows,
        }

    @contextmanager
    def _warning_once(self) -> Iterator[None]:
        """Pass on each warning of a prediction once; remarks repeat it to every client concerned."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for warning in caught:
            kind = re.sub(r"\d+", "", str(warning.message))  # the same warning for another number of rows
            if kind not in self._warned:
                self._warned.add(kind)
                warnings.warn(warning.message, stacklevel=2)

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


def _bands(members: Members, request: PredictionRequest, level: float) -> dict[str, Array]:
    """Limits of each curve from the spread of the members, weighted by their survival probability at ``after``."""
    weights = np.repeat(members.weights[:, None], len(request.frame), axis=1)
    if request.after > 0:
        weights *= np.stack([member.survival(request.after) for member in members.distributions])
        weights /= weights.sum(axis=0)
    curves: dict[str, list[Array]] = {}
    for member in members.distributions:
        for name, values in _curves(_conditional(member, request), request.times).items():
            curves.setdefault(name, []).append(values)
    found = {}
    for name, parts in curves.items():
        stacked, counted = np.stack(parts), weights > 0
        ends = [limits(stacked[counted[:, i], i], weights[counted[:, i], i], level) for i in range(len(request.frame))]
        found[f"{name}_low"], found[f"{name}_high"] = (np.stack(side) for side in zip(*ends))
    return found


def _conditional(distribution: Any, request: PredictionRequest) -> Any:
    return distribution.conditional(after=request.after) if request.after > 0 else distribution


def _curves(distribution: Any, times: Array) -> dict[str, Array]:
    """Survival, (rows, times), and with competing causes their incidences, (rows, causes, times)."""
    found = {"survival": distribution.survival(times)}
    if distribution.n_causes > 1:
        found["incidence"] = np.swapaxes(distribution.cumulative_incidence(times), 1, 2)
    return found


def _plain(value: Any) -> Any:
    """Numbers and lists that JSON can hold."""
    if np.ndim(value):
        return [_plain(part) for part in value]
    return float(value) if np.isfinite(value) else None
