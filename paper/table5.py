"""The paper's Table 5: do scores rank models alike? Rank correlation over the trials of the searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from paper.report.published import CORRELATION
from paper.report.score_table import save_table
from paper.report.stored import Question, answers, gather
from paper.report.text import aligned, number, signed
from sumosurv.scores import rank_correlation

__all__ = ["NOTES", "SCORES", "correlation", "correlation_table", "run", "trial_scores"]

SCORES = {"S_L": True, "Ctd": True, "IBS": False, "IBLL": True}  # and whether greater is better
NOTES = (
    "Spearman's rank correlation of two scores over the trials of a search, on the test rows of each dataset and fold, "
    "averaged; 1 if two scores rank the trials in the same order.",
    "All four scores are computed for the first trials of each fold (scored_trials in the records), which are a random "
    "sample because settings are drawn at random.",
    "The paper's matrix is computed over all its trials and methods.",
)


@answers
def run(question: Question) -> dict[str, Any]:
    """Print the table, write ``table5.json`` where new records go, return it."""
    records = gather(question)
    scored = trial_scores(records)
    if scored.empty:
        raise ValueError(
            "No record has trials with all four scores; those of SuMo-net do: name SumoNet among the methods."
        )
    ours = correlation(scored)
    by_dataset = {str(name): correlation(group) for name, group in scored.groupby("dataset", sort=False)}
    used = ", ".join(f"{m} on {d} ({n} trials)" for (d, m), n in scored.groupby(["dataset", "method"]).size().items())
    print(f"Rank correlation of scores over trials (Table 5); {used}; all folds together")
    print(aligned(*correlation_table(ours)))
    print("\n" + "\n".join(NOTES))
    results = {
        "scores": list(SCORES),
        "ours": ours.to_numpy(),
        "published": CORRELATION,
        "by_dataset": {name: matrix.to_numpy() for name, matrix in by_dataset.items()},
        "trials": len(scored),
        "notes": NOTES,
    }
    return save_table("table5", question, records, results)


def trial_scores(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per trial whose scores were all taken: dataset, method, fold, scores."""
    rows = [
        {
            "dataset": record["configuration"]["dataset"],
            "method": record["configuration"]["method"],
            "fold": fold["fold"],
        }
        | dict(scores)
        for record in records
        for fold in record["results"]["folds"]
        for scores in fold.get("trials", {}).get("scores", [])
    ]
    return pd.DataFrame(rows, columns=["dataset", "method", "fold", *SCORES])


def correlation(trials: pd.DataFrame) -> pd.DataFrame:
    """The average matrix over datasets, methods and folds."""
    return rank_correlation(trials, list(SCORES), by=["dataset", "method", "fold"], greater_is_better=SCORES)


def correlation_table(ours: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Head and rows: ours, the paper's, the difference, for each pair of scores."""
    names, rows = list(SCORES), []
    for i, first in enumerate(names):
        for j, second in enumerate(names[i + 1 :], i + 1):
            value = float(ours.iloc[i, j])
            theirs = CORRELATION[i][j]
            rows.append([f"{first} and {second}", number(value, 3), number(theirs, 3), signed(value - theirs)])
    return ["scores", "ours", "paper", "difference"], rows
