"""The paper's tables of S_L by half-width of the interpolated density (appendix, k = 1, 4, 8; k = 2 beside)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from paper.report.lines import TITLES, Line, make_line
from paper.report.score_table import save_table
from paper.report.stored import Question, answers, gather
from paper.report.text import aligned, mean_sd, number, paper, signed
from paper.scoring import HALF_WIDTHS

__all__ = ["NOTES", "half_width_table", "half_widths", "run"]

NOTES = (
    "k is the half-width, in steps, of the window over which a step curve is interpolated; the main table has k = 2.",
    "'mass' is the integral of that density up to the last event; it should be what the curve falls by till then.",
    "Exact densities know no k. The paper's DeepHit was read through a window too; its figure beside our exact one "
    "has k = 2.",
)


@answers
def run(question: Question) -> dict[str, Any]:
    """Print the table, write ``likelihood_k.json`` where new records go, return it."""
    records = gather(question)
    for dataset in dict.fromkeys(record["configuration"]["dataset"] for record in records):
        own = [record for record in records if record["configuration"]["dataset"] == dataset]
        print(f"\nS_L by half-width k, {TITLES[dataset]}, mean ± sd over folds\n{aligned(*half_width_table(own))}")
    print("\n" + "\n".join(NOTES))
    rows = [asdict(line) | {"k": k, "mass": mass} for record in records for k, line, mass in half_widths(record)]
    return save_table("likelihood_k", question, records, {"rows": rows, "notes": NOTES})


def half_widths(record: Mapping[str, Any]) -> list[tuple[int | None, Line, float | None]]:
    """k, S_L and the mass of the density up to the last event; one line, without k, where the density is exact."""
    exact = make_line(record, "S_L")
    if exact is not None and exact.density == "exact":
        return [(None, exact, None)]
    found: list[tuple[int | None, Line, float | None]] = []
    for k in HALF_WIDTHS:
        line, mass = make_line(record, f"S_L_k{k}"), make_line(record, f"mass_k{k}")
        if line is not None and mass is not None:
            found.append((k, line, mass.mean))
    return found


def half_width_table(records: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of one dataset."""
    rows = []
    for record in records:
        for k, line, mass in half_widths(record):
            ours = [mean_sd(line.mean, line.sd), paper(line.published), signed(line.difference), number(mass, 3)]
            rows.append([line.label, "exact" if k is None else str(k), *ours])
    return ["method", "k", "S_L", "paper", "difference", "mass"], rows
