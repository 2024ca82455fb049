"""The paper's Table 3: right-censored log-likelihood of every method on the test folds."""

from __future__ import annotations

from typing import Any

from paper.report.score_table import score_table
from paper.report.stored import Question, answers

__all__ = ["run"]


@answers
def run(question: Question) -> dict[str, Any]:
    """Print the table, write ``table3.json`` where new records go, return it."""
    return score_table("table3", "S_L", "Log-likelihood S_L (Table 3)", question)
