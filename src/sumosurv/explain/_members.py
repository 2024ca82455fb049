"""The members of a model as it comes: an estimator, or one inside a pipeline or search."""

from __future__ import annotations

from typing import Any

from sumosurv.estimators.members import Members
from sumosurv.models import innermost, predict_distribution

__all__ = ["predict_members"]


def predict_members(model: Any, X: Any) -> Members:
    """What each member of a model predicts for each row of X; one that knows no members is its only one."""
    estimator, rows = innermost(model, X)
    if hasattr(estimator, "predict_members"):
        members: Members = estimator.predict_members(rows)
        return members
    return Members.equal([predict_distribution(estimator, rows)])
