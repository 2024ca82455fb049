"""Overviews, pictures and links of the pages of results."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paper.report.lines import GREATER_IS_BETTER, SELECTED, TITLES, Line, best, place_of, score_lines
from paper.report.text import markdown, mean_sd, number, signed

__all__ = ["embedded", "joined", "overview", "real_datasets", "relative"]

Record = dict[str, Any]


def overview(records: Sequence[Record], score: str) -> str:
    """One row per method, one column per dataset; the best of what was selected on validation rows in bold."""
    parts = {"S_L": (SELECTED, "single", "oracle")}.get(score, (SELECTED,))
    lines = score_lines(records, score, sumo_parts=parts)
    datasets = real_datasets(records)
    first = {
        dataset: best(line for line in lines if line.dataset == dataset and line.part == SELECTED)
        for dataset in datasets
    }
    rows = []
    for label in dict.fromkeys(line.label for line in lines):
        own = {line.dataset: line for line in lines if line.label == label}
        cells = [_cell(own[d], own[d] is first[d]) if d in own else "-" for d in datasets]
        window = score == "S_L" and next(iter(own.values())).density == "k"
        rows.append([label + (" \\*" if window else ""), *cells])
    arrow = "higher is better" if GREATER_IS_BETTER[score] else "lower is better"
    return markdown([f"{score} ({arrow})", *(TITLES[d] for d in datasets)], rows)


def _cell(line: Line, bold: bool) -> str:
    text = mean_sd(line.mean, line.sd)
    text = f"**{text}**" if bold else text
    if line.published is None:
        return text
    return f"{text}<br><sub>paper {number(line.published[0], 3)}, {signed(line.difference)}</sub>"


def embedded(drawn: Mapping[str, Path], name: str, title: str, page: Path) -> str:
    """The Markdown of a picture; nothing where it was not drawn."""
    return f"![{title}]({relative(drawn[name], page)})" if name in drawn else ""


def real_datasets(records: Sequence[Record]) -> list[str]:
    """The datasets of some records in the order of the tables, the simulated one left out."""
    there = {place_of(record)[0] for record in records}
    return [name for name in TITLES if name in there and name != "kkbox"]


def relative(path: Path, page: Path) -> str:
    """A path as seen from the page."""
    return Path(os.path.relpath(path, page.parent)).as_posix()


def joined(parts: Sequence[str]) -> str:
    """Paragraphs, those that are empty left out."""
    return "\n\n".join(part for part in parts if part)
