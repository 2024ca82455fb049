"""The paper's Table 4: integrated binomial log-likelihood of every method on the test folds."""

from __future__ import annotations

from typing import Any

from paper.report.score_table import score_table
from paper.report.stored import Question, answers

__all__ = ["run"]


@answers
def run(question: Question) -> dict[str, Any]:
    """Print the table, write ``table4.json`` where new records go, return it."""
    return score_table("table4", "IBLL", "Integrated binomial log-likelihood (Table 4)", question)
