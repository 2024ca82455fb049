"""Figures and tables as text: aligned for the screen, Markdown for the page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paper.report.published import Figure

__all__ = ["aligned", "markdown", "mean_sd", "number", "paper", "signed"]


def number(value: float | None, digits: int = 4) -> str:
    """A figure, "-" where there is none.

    Examples
    --------
    >>> number(-0.13301), number(float("-inf")), number(None)
    ('-0.1330', '-inf', '-')
    """
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.{digits}f}" if math.isfinite(value) else str(value)


def signed(value: float | None, digits: int = 3) -> str:
    """A difference with its sign."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:+.{digits}f}" if math.isfinite(value) else str(value)


def mean_sd(mean: float, sd: float, digits: int = 4) -> str:
    """Mean ± standard deviation over folds; the mean alone where there is no deviation."""
    return number(mean, digits) + ("" if math.isnan(sd) else f" ± {sd:.{digits}f}")


def paper(figure: Figure | None) -> str:
    """The paper's figure with its three digits."""
    if figure is None:
        return "-"
    mean, sd = figure
    return f"{mean:.3f}" + ("" if sd is None else f" ± {sd:.3f}")


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns for the screen, the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]
        return "  ".join(cells).rstrip()

    return "\n".join([line(head), "-" * (sum(widths) + 2 * (len(widths) - 1)), *map(line, rows)])


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, the first column to the left, the others to the right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])
