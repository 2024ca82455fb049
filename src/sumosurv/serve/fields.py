"""The covariates of a model as fields of a form: what may be given for each, and rows read from JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sumosurv.preprocessing import CategoricalColumn, NumericColumn

__all__ = ["ChoiceField", "Field", "FieldError", "NumberField", "RequestError", "fields_of", "read_rows", "remarks"]

_SHOWN = 8  # levels named in a message
_MOST_ERRORS = 20


@dataclass(frozen=True)
class FieldError:
    """What is wrong with one field of a request."""

    field: str
    message: str


class RequestError(ValueError):
    """A request that cannot be answered, field by field."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{error.field}: {error.message}" for error in errors))
        self.errors = list(errors)


@dataclass(frozen=True)
class NumberField:
    """A number; its range in the training rows is None where the model file does not tell."""

    name: str
    low: float | None
    middle: float
    high: float | None
    whole: bool
    missing: bool  # whether some training rows lacked it

    def schema(self) -> dict[str, Any]:
        """For the page."""
        return {"kind": "number", **vars(self)}

    def read(self, value: Any) -> float:
        """A float, NaN where missing; a ValueError in words for anything else."""
        if value is None:
            return math.nan
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"expected a number, or null if it is missing; got {_shown(value)}")
        number = float(value)
        if not math.isfinite(number):
            raise ValueError("expected a finite number")
        return number

    def remark(self, value: float) -> str | None:
        """What a reader of the prediction should know of the value."""
        if math.isnan(value):
            return None if self.missing else "was never missing in training"
        if self.low is None or self.high is None or self.low <= value <= self.high:
            return None
        return f"lies outside the training range, {self.low:.6g} to {self.high:.6g}"


@dataclass(frozen=True)
class ChoiceField:
    """One of the levels of training."""

    name: str
    levels: tuple[Any, ...]
    common: int
    missing: bool

    def schema(self) -> dict[str, Any]:
        """For the page."""
        return {"kind": "choice", **vars(self), "levels": list(self.levels)}

    def read(self, value: Any) -> Any:
        """A level of training, None where missing; a ValueError in words for anything else."""
        if value is None:
            return None
        for level in self.levels:
            if level == value and isinstance(level, bool) == isinstance(value, bool):
                return level
        known = ", ".join(map(repr, self.levels[:_SHOWN])) + (", ..." if len(self.levels) > _SHOWN else "")
        raise ValueError(f"expected one of {known}, or null if it is missing; got {_shown(value)}")

    def remark(self, value: Any) -> str | None:
        """What a reader of the prediction should know of the value."""
        return "was never missing in training" if value is None and not self.missing else None


Field = NumberField | ChoiceField


def fields_of(model: Any) -> list[Field]:
    """The fields of a fitted model; a ValueError in words where its rows are no table that a form could fill in."""
    name = type(model).__name__
    part = model
    while not hasattr(part, "preprocessor_") and part._parts():
        part = part._parts()[0]  # all of them read the same columns
    preprocessor = getattr(part, "preprocessor_", None)
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
    if column.knots:  # a file that does not describe the range has quantiles, from the smallest to the largest value
        middle = column.knots[len(column.knots) // 2]
        return NumberField(column.name, column.knots[0], middle, column.knots[-1], False, column.indicator)
    return NumberField(column.name, None, column.centre, None, False, column.indicator)


def read_rows(fields: Sequence[Field], rows: Sequence[Any]) -> pd.DataFrame:
    """A table with one column per field, of rows as JSON has them; RequestError that name fields."""
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
    """Of each row, what should be known of the values that it has."""
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
