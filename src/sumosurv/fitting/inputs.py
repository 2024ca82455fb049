"""Checks of what users pass to ``fit`` besides covariates."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from sumosurv.outcome import Outcome, check_outcome

__all__ = ["ONE_OUTCOME", "check_learns_from", "check_validation_data", "with_rows"]

ONE_OUTCOME = "Give time and event as one: fit(X, Surv.from_arrays(event, time))."

_NAMES = {
    "entry": "delayed entry (left truncation)",
    "intervals": "interval-censored events",
    "causes": "competing risks",
    "weights": "sample weights",
}


def check_validation_data(given: Any) -> None:
    """Raise a ValueError unless ``validation_data`` is None, (X, y) or (X, y, weights)."""
    if given is None:
        return
    fits = isinstance(given, (tuple, list)) and len(given) in (2, 3)
    if fits and len(given) == 3 and not isinstance(given[1], Outcome):
        y = np.asarray(given[1])
        fits = y.ndim > 1 or y.dtype.names is not None  # a plain array of times is followed by events, not by weights
    if not fits:
        size = f" of length {len(given)}" if hasattr(given, "__len__") else ""
        raise ValueError(
            f"validation_data is a pair (X, y) of rows for early stopping, or (X, y, sample_weight); got "
            f"{type(given).__name__}{size}. {ONE_OUTCOME}"
        )


def with_rows(y: Any, sample_weight: Any, groups: Any) -> Any:
    """The outcome with weights and subjects; unchanged if there are none."""
    if sample_weight is None and groups is None:
        return y
    return check_outcome(y, sample_weight=sample_weight, groups=groups)


def check_learns_from(name: str, able: Collection[str], outcome: Outcome) -> None:
    """Raise a ValueError if the outcome has a feature that a method does not support."""
    present = {
        "entry": outcome.entry is not None,
        "intervals": outcome.upper is not None,
        "causes": outcome.cause is not None,
        "weights": outcome.weight is not None,
    }
    for feature, found in present.items():
        if found and feature not in able:
            extra = f" For one model per cause, use CauseSpecific({name}())." if feature == "causes" else ""
            raise ValueError(f"{name} does not support {_NAMES[feature]}; SumoNet does.{extra}")
