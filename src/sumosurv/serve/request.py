"""Requests to a served model: limits, the covariates as fields, and reading a request from JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.models import preprocessor_of
from sumosurv.preprocessing import CategoricalColumn, NumericColumn
from sumosurv.preprocessing.columns import LARGEST

_MOST_LEVELS = 8  # named in a message
_MOST_ERRORS = 20
_STEPS = 100  # of the follow-up, if no times are given
_OPTIONS = ("rows", "times", "after", "horizon", "band", "summaries")


@dataclass(frozen=True)
class Limits:
    """Limits on the size, duration and number of requests to `serve`.

    Attributes
    ----------
    body : int, default 1000000
        Bytes.
    rows : int, default 1000
        Subjects.
    times : int, default 1000
        Times.
    values : int, default 200000
        Rows × times.
    band_rows : int, default 50
        Subjects of a request for bands, which need a curve of every network.
    seconds : float, default 10.0
        Time limit for reading the request, and for waiting and predicting.
    waiting : int, default 32
        Requests that wait for the model; more are refused (503).
    """

    body: int = 1_000_000
    rows: int = 1_000
    times: int = 1_000
    values: int = 200_000
    band_rows: int = 50
    seconds: float = 10.0
    waiting: int = 32

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"The limit {field.name} must be positive; got {getattr(self, field.name)!r}.")


@dataclass(frozen=True)
class FieldError:
    """An error in one field of a request."""

    field: str
    message: str


class RequestError(ValueError):
    """An invalid request, with an error for each field at fault."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{error.field}: {error.message}" for error in errors))
        self.errors = list(errors)


@dataclass(frozen=True)
class NumberField:
    """A number; its range in the training rows is None if the model does not store it."""

    name: str
    low: float | None
    middle: float
    high: float | None
    whole: bool
    missing: bool  # in some training rows

    def schema(self) -> dict[str, Any]:
        """The field as JSON, for the page."""
        return {"kind": "number", **vars(self)}

    def read(self, value: Any) -> float:
        """A float, NaN if missing; anything else raises ValueError."""
        if value is None:
            return math.nan
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"expected a number, or null if it is missing; got {_shown(value)}")
        if not _is_finite(value) or abs(value) > LARGEST:
            raise ValueError(f"expected a finite number, up to {LARGEST:g}")
        return float(value)

    def remark(self, value: float) -> str | None:
        """A remark if the value is outside the range of training, or missing although it never was in training."""
        if math.isnan(value):
            return None if self.missing else "was never missing in training"
        if self.low is None or self.high is None or self.low <= value <= self.high:
            return None
        return f"lies outside the training range, {self.low:.6g} to {self.high:.6g}"


@dataclass(frozen=True)
class ChoiceField:
    """One of the levels seen in training."""

    name: str
    levels: tuple[Any, ...]
    common: int
    missing: bool

    def schema(self) -> dict[str, Any]:
        """The field as JSON, for the page."""
        return {"kind": "choice", **vars(self), "levels": list(self.levels)}

    def read(self, value: Any) -> Any:
        """A level seen in training, None if missing; anything else raises ValueError."""
        if value is None:
            return None
        for level in self.levels:
            if level == value and isinstance(level, bool) == isinstance(value, bool):
                return level
        known = ", ".join(map(repr, self.levels[:_MOST_LEVELS])) + (", ..." if len(self.levels) > _MOST_LEVELS else "")
        raise ValueError(f"expected one of {known}, or null if it is missing; got {_shown(value)}")

    def remark(self, value: Any) -> str | None:
        """A remark if the value is outside the range of training, or missing although it never was in training."""
        return "was never missing in training" if value is None and not self.missing else None


Field = NumberField | ChoiceField


def fields_of(model: Any) -> list[Field]:
    """The fields of a fitted model; ValueError if its rows are not a table that a form can fill in."""
    name = type(model).__name__
    preprocessor = preprocessor_of(model)
    if preprocessor is None:
        raise ValueError(f"This {name} predicts the same for everyone: there are no covariates to set.")
    if preprocessor.row_shape is not None:
        raise ValueError(
            f"This {name} reads rows of shape {preprocessor.row_shape}, which cannot be entered in a form."
        )
    if len(preprocessor.columns) != model.n_features_in_:
        raise ValueError(
            f"This {name} has strata, whose columns are not described as fields; fit them as covariates to serve it."
        )
    return [_field(column) for column in preprocessor.columns]


def _field(column: NumericColumn | CategoricalColumn) -> Field:
    if isinstance(column, CategoricalColumn):
        return ChoiceField(column.name, column.levels, column.common, column.missing_seen)
    if column.seen is not None:
        seen = column.seen
        middle = min(max(float(f"{seen.middle:.6g}"), seen.low), seen.high)  # to start from, in few digits
        return NumberField(column.name, seen.low, middle, seen.high, seen.whole, column.indicator)
    return NumberField(column.name, None, column.centre, None, False, column.indicator)


def read_rows(fields: Sequence[Field], rows: Sequence[Any]) -> pd.DataFrame:
    """A table with one column per field from rows as in JSON; RequestError names the fields at fault."""
    errors: list[FieldError] = []
    known = {field.name for field in fields}
    values: dict[str, list[Any]] = {field.name: [] for field in fields}
    for i, row in enumerate(rows):
        if len(errors) >= _MOST_ERRORS:
            break
        if not isinstance(row, dict):
            errors.append(FieldError(f"rows[{i}]", f"expected an object of covariates; got {_shown(row)}"))
            continue
        errors += [FieldError(_place(i, name), "the model has no such covariate") for name in row.keys() - known]
        for field in fields:
            if field.name not in row:
                errors.append(FieldError(_place(i, field.name), "is required; give null if it is missing"))
                continue
            try:
                values[field.name].append(field.read(row[field.name]))
            except ValueError as error:
                errors.append(FieldError(_place(i, field.name), str(error)))
    if errors:
        raise RequestError(sorted(errors[:_MOST_ERRORS], key=lambda error: error.field))
    kinds = {field.name: np.float64 if isinstance(field, NumberField) else object for field in fields}
    return pd.DataFrame({name: pd.Series(column, dtype=kinds[name]) for name, column in values.items()})


def remarks(fields: Sequence[Field], frame: pd.DataFrame) -> list[list[dict[str, str]]]:
    """The remarks on each row."""
    made: list[list[dict[str, str]]] = []
    for row in frame.itertuples(index=False, name=None):
        told = [(field.name, field.remark(value)) for field, value in zip(fields, row)]
        made.append([{"field": name, "message": message} for name, message in told if message is not None])
    return made


def _place(row: int, name: str) -> str:
    return f"rows[{row}].{name[:100]}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


@dataclass(frozen=True)
class PredictionRequest:
    """A valid request."""

    frame: pd.DataFrame  # the rows
    times: npt.NDArray[np.float64]  # of the curves
    after: float  # time at which subjects are known to be event-free
    horizon: float  # of the restricted mean
    band: float | None  # share of the networks between the limits
    summaries: bool = True  # whether to compute the median and the restricted mean, which take longer than the curves


def read_request(
    body: Any, fields: Sequence[Field], last_time: float, limits: Limits, *, members: bool
) -> PredictionRequest:
    """The request in a body; RequestError names the fields at fault."""
    if not isinstance(body, dict):
        raise RequestError([FieldError("body", 'expected an object, {"rows": [...]}')])
    unknown = [name for name in body if name not in _OPTIONS]
    errors = [FieldError(name[:100], f"unknown option; the options are {', '.join(_OPTIONS)}") for name in unknown[:5]]

    def check(valid: bool, field: str, message: str) -> None:
        if not valid:
            errors.append(FieldError(field, message))

    rows: Any = body.get("rows")
    times = body.get("times")
    after, horizon, band = body.get("after", 0.0), body.get("horizon", last_time), body.get("band")
    summaries = body.get("summaries", True)
    subjects = f"expected a list of 1 to {limits.rows} objects, one for each subject; got {_what(rows)}"
    check(isinstance(rows, list) and 1 <= len(rows) <= limits.rows, "rows", subjects)
    if isinstance(times, list) and 1 <= len(times) <= limits.times:
        wrong = [i for i, value in enumerate(times) if not _is_time(value)]
        check(not wrong, f"times[{wrong[0] if wrong else 0}]", "expected a non-negative number")
    else:
        expected = f"expected a list of 1 to {limits.times} non-negative numbers; got {_what(times)}"
        check(times is None, "times", expected)
    check(_is_time(after), "after", "expected a non-negative number: the time up to which subjects are event-free")
    check(_is_time(horizon), "horizon", "expected a non-negative number: where the restricted mean ends")
    if band is not None:
        share = "expected a number between 0 and 1, such as 0.95, or null"
        check(_is_time(band) and 0.0 < band < 1.0, "band", share)
        check(members, "band", "this model has a single network or none, so there is no spread to show")
    boolean = "expected true or false: whether to compute the median and the restricted mean"
    check(isinstance(summaries, bool), "summaries", boolean)
    if errors:
        raise RequestError(errors)
    grid = np.linspace(0.0, last_time, _STEPS + 1) if times is None else np.array(times, dtype=np.float64)
    many = f"{len(rows)} rows at {len(grid)} times are more than {limits.values} values; split the request"
    check(len(rows) * len(grid) <= limits.values, "rows", many)
    if band is not None and not errors:
        bands = f"bands are computed for at most {limits.band_rows} rows per request; got {len(rows)}"
        check(len(rows) <= limits.band_rows, "rows", bands)
    if errors:
        raise RequestError(errors)
    level = None if band is None else float(band)
    return PredictionRequest(read_rows(fields, rows), grid, float(after), float(horizon), level, summaries)


def _what(given: Any) -> str:
    """A value in a few words."""
    if isinstance(given, list):
        return f"a list of {len(given)}"
    return "nothing" if given is None else _shown(given)


def _is_time(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and value >= 0.0 and _is_finite(value)


def _is_finite(value: float) -> bool:
    """Whether a number is finite as a float; JSON has integers of any length."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
