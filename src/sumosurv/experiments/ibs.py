"""The paper's table of the integrated Brier score (appendix)."""

from __future__ import annotations

from typing import Any

from sumosurv.experiments.results.score_table import score_table
from sumosurv.experiments.results.stored import Question, answers

__all__ = ["run"]


@answers
def run(question: Question) -> dict[str, Any]:
    """Print the table, write ``ibs.json`` beside the records it is made of, return it."""
    return score_table("ibs", "IBS", "Integrated Brier score", question)
