"""The paper's Table 4: integrated binomial log-likelihood of every method on the test folds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sumosurv.experiments.results.score_table import score_table
from sumosurv.experiments.results.stored import Question

__all__ = ["run"]


def run(
    out: Path,
    *,
    seed: int = 0,
    quick: bool | None = None,
    device: str = "auto",
    names: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    trials: int | None = None,
    folds: int | None = None,
    stored: bool = False,
) -> dict[str, Any]:
    """Print the table, write ``table4.json`` beside the records it is made of, return it.

    Parameters
    ----------
    out : path
        Holds the records of full searches, ``search_<dataset>_<method>.json``; other sizes have sub-folders.
    seed : int
        Of the searches.
    quick : bool
        Searches that take minutes.
    device : str
        "auto", "cpu" or "cuda".
    names, methods : sequence of str, optional
        Only these datasets and methods.
    trials, folds : int, optional
        Other sizes of the searches.
    stored : bool
        Run no search: missing records are missing rows.
    """
    question = Question.of(
        out,
        seed=seed,
        quick=quick,
        device=device,
        names=names,
        methods=methods,
        trials=trials,
        folds=folds,
        stored=stored,
    )
    return score_table("table4", "IBLL", "Integrated binomial log-likelihood (Table 4)", question)
