"""What a request to ``/predict`` asks for, read from JSON and checked field by field."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.serve.fields import Field, FieldError, RequestError, read_rows
from sumosurv.serve.limits import Limits

__all__ = ["Asked", "read_request"]

_STEPS = 100  # of the follow-up, where no times are given
_KNOWN = ("rows", "times", "after", "horizon", "band", "figures")


@dataclass(frozen=True)
class Asked:
    """A request that can be answered.

    Attributes
    ----------
    frame : DataFrame
        The rows.
    times : ndarray
        Where curves are wanted.
    after : float
        Subjects are known to be event-free then.
    horizon : float
        Of the restricted mean.
    band : float or None
        The share of the networks between the limits.
    figures : bool
        Whether median and restricted mean are wanted, which take longer than the curves.
    """

    frame: pd.DataFrame
    times: npt.NDArray[np.float64]
    after: float
    horizon: float
    band: float | None
    figures: bool = True


def read_request(body: Any, fields: Sequence[Field], last_time: float, limits: Limits, *, members: bool) -> Asked:
    """What the body asks for; RequestError that name fields where it cannot be answered."""
    if not isinstance(body, dict):
        raise RequestError([FieldError("body", 'expected an object, {"rows": [...]}')])
    unknown = [name for name in body if name not in _KNOWN]
    errors = [FieldError(name[:100], f"unknown option; the options are {', '.join(_KNOWN)}") for name in unknown[:5]]
    rows: Any = body.get("rows")
    times = body.get("times")
    if not isinstance(rows, list) or not 1 <= len(rows) <= limits.rows:
        errors.append(
            FieldError(
                "rows", f"expected a list of 1 to {limits.rows} objects, one for each subject; got {_what(rows)}"
            )
        )
    if times is not None and not (isinstance(times, list) and 1 <= len(times) <= limits.times):
        errors.append(
            FieldError("times", f"expected a list of 1 to {limits.times} non-negative numbers; got {_what(times)}")
        )
    elif times is not None and not all(map(_is_time, times)):
        place = next(i for i, value in enumerate(times) if not _is_time(value))
        errors.append(FieldError(f"times[{place}]", "expected a non-negative number"))
    after, horizon, band = body.get("after", 0.0), body.get("horizon", last_time), body.get("band")
    if not _is_time(after):
        errors.append(
            FieldError("after", "expected a non-negative number: the time up to which subjects are event-free")
        )
    if not _is_time(horizon):
        errors.append(FieldError("horizon", "expected a non-negative number: where the restricted mean ends"))
    if band is not None and not (_is_time(band) and 0.0 < band < 1.0):
        errors.append(FieldError("band", "expected a number between 0 and 1, such as 0.95, or null"))
    elif band is not None and not members:
        errors.append(FieldError("band", "this model has a single network or none, so there is no spread to show"))
    if not isinstance(body.get("figures", True), bool):
        errors.append(
            FieldError("figures", "expected true or false: whether to compute the median and the restricted mean")
        )
    if errors:
        raise RequestError(errors)
    grid = np.linspace(0.0, last_time, _STEPS + 1) if times is None else np.array(times, dtype=np.float64)
    if len(rows) * len(grid) > limits.values:
        text = f"{len(rows)} rows at {len(grid)} times are more than {limits.values} values; split the request"
        raise RequestError([FieldError("rows", text)])
    if band is not None and len(rows) > limits.band_rows:
        raise RequestError(
            [FieldError("rows", f"bands are computed for at most {limits.band_rows} rows per request; got {len(rows)}")]
        )
    frame = read_rows(fields, rows)
    share = None if band is None else float(band)
    return Asked(frame, grid, float(after), float(horizon), share, body.get("figures", True))


def _what(given: Any) -> str:
    """What was given in place of a list, or a list of how many."""
    return f"a list of {len(given)}" if isinstance(given, list) else "nothing" if given is None else "something else"


def _is_time(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and value >= 0.0 and math.isfinite(value)
