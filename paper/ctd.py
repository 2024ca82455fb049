"""The paper's table of time-dependent concordance (appendix)."""

from __future__ import annotations

from typing import Any

from paper.report.score_table import score_table
from paper.report.stored import Question, answers

__all__ = ["run"]


@answers
def run(question: Question) -> dict[str, Any]:
    """Print the table, write ``ctd.json`` where new records go, return it."""
    return score_table("ctd", "Ctd", "Time-dependent concordance", question)
