"""All tables and figures of the paper, and the page of results."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paper import ctd, ibs, likelihood_k, table3, table4, table5, table6
from paper.report.page import write_page
from paper.report.stored import Question, gather

__all__ = ["run"]

_OF_SEARCHES = (table3, table4, ctd, ibs, likelihood_k, table5, table6)
_OTHERS = ("table1", "table2", "table7", "figure1", "lemma1", "figure3", "life_expectancy")


def run(
    out: Path | None,
    *,
    records: Path | None = None,
    seed: int = 0,
    quick: bool | None = None,
    device: str = "auto",
    names: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    trials: int | None = None,
    folds: int | None = None,
    stored: bool = False,
    page: Path | None = None,
) -> dict[str, Any]:
    """Make every table and figure that is not stored yet, then the page; returns what was made.

    Parameters
    ----------
    out : path, optional
        Where new records are written; other sizes than the full one have sub-folders. None writes nothing.
    records : path, optional
        Where stored records are; ``out`` by default.
    seed, quick, device, names, methods, trials, folds :
        As for the tables.
    stored : bool
        Run nothing: tables and page are made of the records that are there.
    page : path, optional
        The Markdown file to write; ``results.md`` among the new records by default. Pictures go to ``figures`` beside
        it.
    """
    options: dict[str, Any] = {
        "seed": seed,
        "quick": quick,
        "device": device,
        "names": names,
        "methods": methods,
        "trials": trials,
        "folds": folds,
    }
    question = Question.of(out, records=records, stored=stored, **options)
    searches = gather(question)
    for table in _OF_SEARCHES:
        print(f"\n=== {table.__name__.rpartition('.')[2]}")
        try:
            table.run(out, records=records, **options, stored=True)  # what there is of searches is stored by now
        except ValueError as error:  # of a table that these methods cannot fill
            print(error)
    others = {name: path for name in _OTHERS if (path := _other(name, question)) is not None}
    if page is None and question.target is not None:
        page = question.target / "results.md"
    if page is not None:
        drawn = importlib.util.find_spec("matplotlib") is not None
        write_page(searches, others, page, question.source, pictures=drawn)
        print(f"\nThe page of results is {page}" + ("" if drawn else ", without pictures: matplotlib is not installed"))
    return {"page": page, "records": len(searches), "others": others}


def _other(name: str, question: Question) -> Path | None:
    """The record of an experiment that needs no search: the stored one, or made now; None where it may not run."""
    found = question.find(name)
    if found is not None or question.stored or question.target is None:
        return found
    print(f"\n=== {name}")
    module = importlib.import_module(f"paper.{name}")
    offered = {"seed": question.seed, "quick": True if question.quick else None}
    known = inspect.signature(module.run).parameters
    module.run(question.target, **{key: value for key, value in offered.items() if key in known and value is not None})
    return question.find(name)
