"""The paper's Table 6: its calibration score, and D-calibration, which is valid with censoring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scipy import stats

from paper.report.lines import TITLES, Line, make_line
from paper.report.score_table import save_table
from paper.report.stored import Question, answers, gather
from paper.report.text import aligned, mean_sd, number, paper, signed

__all__ = ["NOTES", "DTest", "calibration_table", "calibrations", "d_test", "run"]

LEVEL = 0.05
NOTES = (
    "'calibration' is the paper's score (lower is better). It treats censored times as events, so the true "
    "distribution does not score 0 if many rows are censored.",
    "'rejected' counts folds with a D-calibration p-value below 0.05; 'combined' is Fisher's combined p-value.",
)


@dataclass(frozen=True)
class DTest:
    """D-calibration over the folds."""

    p_values: tuple[float, ...]
    rejected: int
    combined: float

    @property
    def passed(self) -> bool:
        """Not rejected in most folds, and not by all folds together."""
        return 2 * self.rejected < len(self.p_values) and self.combined >= LEVEL


@answers
def run(question: Question) -> dict[str, Any]:
    """Print the table, write ``table6.json`` where new records go, return it."""
    records = gather(question)
    found = calibrations(records)
    for dataset in dict.fromkeys(line.dataset for line, _ in found):
        own = [pair for pair in found if pair[0].dataset == dataset]
        print(f"\nCalibration (Table 6), {TITLES[dataset]}, mean ± sd over folds\n{aligned(*calibration_table(own))}")
    print("\n" + "\n".join(NOTES))
    rows = [asdict(line) | {"d_calibration": asdict(test)} for line, test in found]
    return save_table("table6", question, records, {"rows": rows, "notes": NOTES})


def calibrations(records: Sequence[Mapping[str, Any]]) -> list[tuple[Line, DTest]]:
    """The paper's score and D-calibration of every record that has them."""
    found = []
    for record in records:
        line, p = make_line(record, "calibration"), make_line(record, "D_calibration_p")
        if line is not None and p is not None:
            found.append((line, d_test(p.values)))
    return found


def d_test(p_values: Sequence[float]) -> DTest:
    """Judge the p values of the folds.

    Examples
    --------
    >>> d_test([0.5, 0.01, 0.9]).rejected, d_test([0.5, 0.01, 0.9]).passed
    (1, True)
    """
    combined = 0.0 if min(p_values) <= 0 else float(stats.combine_pvalues(list(p_values), method="fisher").pvalue)
    return DTest(tuple(p_values), sum(p < LEVEL for p in p_values), combined)


def calibration_table(found: Sequence[tuple[Line, DTest]]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of one dataset."""
    rows = [
        [
            line.label,
            mean_sd(line.mean, line.sd, 3),
            paper(line.published),
            signed(line.difference),
            ", ".join(number(p, 3) for p in test.p_values),
            f"{test.rejected} of {len(test.p_values)}",
            number(test.combined, 3),
        ]
        for line, test in found
    ]
    return ["method", "calibration", "paper", "difference", "D-calibration p", "rejected", "combined"], rows
