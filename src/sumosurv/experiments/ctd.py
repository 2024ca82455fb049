"""The paper's table of time-dependent concordance (appendix)."""

from __future__ import annotations

from typing import Any

from sumosurv.experiments.results.score_table import score_table
from sumosurv.experiments.results.stored import Question, answers

__all__ = ["run"]


@answers
def run(question: Question) -> dict[str, Any]:
    """Print the table, write ``ctd.json`` beside the records it is made of, return it."""
    return score_table("ctd", "Ctd", "Time-dependent concordance", question)
