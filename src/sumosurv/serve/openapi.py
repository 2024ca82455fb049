"""The OpenAPI document of a served model, with its own covariates."""

from __future__ import annotations

from typing import Any

from sumosurv._version import __version__
from sumosurv.serve.model import ServedModel
from sumosurv.serve.request import Field, NumberField

__all__ = ["openapi"]


def openapi(served: ServedModel) -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    limits = served.limits
    time = {"type": "number", "minimum": 0}
    curve = {"type": "array", "items": {"type": "number"}}
    unit = f", in {served.unit}" if served.unit else ""
    asked: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "required": ["rows"],
        "properties": {
            "rows": {"type": "array", "minItems": 1, "maxItems": limits.rows, "items": _ref("Subject")},
            "times": {
                "type": "array",
                "minItems": 1,
                "maxItems": limits.times,
                "items": time,
                "description": f"Where curves are wanted{unit}; 101 times up to the end of follow-up by default.",
            },
            "after": {**time, "default": 0, "description": "Subjects are known to be event-free at this time."},
            "horizon": {**time, "default": served.last_time, "description": "Where the restricted mean ends."},
            "figures": {"type": "boolean", "default": True, "description": "Median and restricted mean too."},
        },
    }
    row: dict[str, Any] = {
        "type": "object",
        "required": ["survival", "remarks"],
        "properties": {
            "survival": {**curve, "description": "P(no event by t) at each time."},
            "median": {"type": ["number", "null"], "description": "Counted from time zero; null if there is none."},
            "restricted_mean": {"type": "number", "description": "Expected event-free time up to the horizon."},
            "remarks": {"type": "array", "items": _ref("FieldError")},
        },
    }
    if served.n_causes > 1:
        text = f"P(event of a cause by t): a list of values for each of {', '.join(served.causes)}."
        row["properties"]["incidence"] = {"type": "array", "items": curve, "description": text}
    curves = [name for name in ("survival", "incidence") if name in row["properties"]]
    if served.has_members:
        text = f"Limits of the curves: the central share of the model's networks; for {limits.band_rows} rows."
        asked["properties"]["band"] = {
            "type": ["number", "null"],
            "exclusiveMinimum": 0,
            "exclusiveMaximum": 1,
            "description": text,
        }
        ends = {f"{name}_{end}": row["properties"][name] for name in curves for end in ("low", "high")}
        row["properties"] |= ends
    answer = {
        "type": "object",
        "required": ["times", "after", "horizon", "last_time", "rows"],
        "properties": {
            "times": curve,
            "after": time,
            "horizon": time,
            "band": {"type": ["number", "null"]},
            "last_time": {**time, "description": "Follow-up of the training rows ends here; later is extrapolated."},
            "rows": {"type": "array", "items": _ref("Prediction")},
        },
    }
    told = {"type": "object", "properties": {name: {"type": "string"} for name in ("field", "message")}}
    schemas = {
        "Subject": {
            "type": "object",
            "additionalProperties": False,
            "required": [field.name for field in served.fields],
            "properties": {field.name: _of_field(field) for field in served.fields},
        },
        "Request": asked,
        "Prediction": row,
        "Answer": answer,
        "FieldError": told,
        "Errors": {"type": "object", "properties": {"errors": {"type": "array", "items": _ref("FieldError")}}},
    }
    predict = {
        "summary": "Predictions of one subject or several",
        "requestBody": {"required": True, "content": _content("Request")},
        "responses": {
            "200": {"description": "Curves and figures, one entry for each row.", "content": _content("Answer")},
            "400": _fault("The body is no JSON."),
            "408": _fault("The body did not arrive in time."),
            "413": _fault(f"The body is longer than {limits.body} bytes."),
            "415": _fault("The body is not said to be JSON."),
            "422": _fault("A field is missing, unknown, or has a value that it cannot have; each is named."),
            "503": _fault("The model is busy, or the answer took too long."),
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": f"Predictions of {served.name}", "version": __version__},
        "paths": {
            "/predict": {"post": predict},
            "/schema": {"get": _plain_answer("The covariates, with their ranges in training, and the limits.")},
            "/health": {"get": _plain_answer("Whether the server runs, and the digest of its model.")},
        },
        "components": {"schemas": schemas},
    }


def _of_field(field: Field) -> dict[str, Any]:
    if isinstance(field, NumberField):
        text = "" if field.low is None else f"{field.low:.6g} to {field.high:.6g} in training."
        return {"type": ["number", "null"], "description": text}
    return {"enum": [*field.levels, None]}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": _ref(name)}}


def _fault(text: str) -> dict[str, Any]:
    return {"description": text, "content": _content("Errors")}


def _plain_answer(text: str) -> dict[str, Any]:
    return {"summary": text, "responses": {"200": {"description": text}}}
