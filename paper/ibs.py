"""The paper's table of the integrated Brier score (appendix)."""

from __future__ import annotations

from typing import Any

from paper.report.score_table import score_table
from paper.report.stored import Question, answers

__all__ = ["run"]


@answers
def run(question: Question) -> dict[str, Any]:
    """Print the table, write ``ibs.json`` where new records go, return it."""
    return score_table("ibs", "IBS", "Integrated Brier score", question)
