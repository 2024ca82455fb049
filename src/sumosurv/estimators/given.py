"""What users hand to ``fit`` beside covariates, checked before anything is read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from sumosurv.outcome import Outcome, check_outcome

__all__ = ["ONE_OUTCOME", "check_learns_from", "check_validation_data", "with_rows"]

ONE_OUTCOME = "Give time and event as one: fit(X, Surv.from_arrays(event, time))."

_KINDS = {
    "entry": "rows that enter late (entry)",
    "intervals": "events between two times (interval censoring)",
    "causes": "several causes",
    "weights": "weighted rows",
}


def check_validation_data(given: Any) -> None:
    """Raise a ValueError if ``validation_data`` is not None, nor (X, y), nor (X, y, weights): events, for example."""
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
    """The outcome with its weights and subjects; as it is where there are none."""
    if sample_weight is None and groups is None:
        return y
    return check_outcome(y, sample_weight=sample_weight, groups=groups)


def check_learns_from(name: str, able: Collection[str], outcome: Outcome) -> None:
    """Raise a ValueError that names what a method cannot learn from, and methods that can."""
    given = {
        "entry": outcome.entry is not None,
        "intervals": outcome.upper is not None,
        "causes": outcome.cause is not None,
        "weights": outcome.weight is not None,
    }
    for kind, present in given.items():
        if present and kind not in able:
            from sumosurv.estimators import METHODS

            others = ", ".join(method for method, found in METHODS.items() if kind in found._learns_from)
            extra = f" For one model per cause: CauseSpecific({name}())." if kind == "causes" else ""
            raise ValueError(f"{name} does not learn from {_KINDS[kind]}; these do: {others}.{extra}")
