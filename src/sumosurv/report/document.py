"""Sections, paragraphs, tables and pictures of a report. All text is plain; the template escapes it."""

from __future__ import annotations

import base64
import io
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_LONGEST = 80  # characters of a value in a table
_LARGEST = 150_000  # bytes of a vector graphic
_DPI = 150
_PADDING = 3 / 72  # inches around a picture
_WHOLE, _HALF = (6.4, 4.0), (4.8, 4.0)  # small, so that words stay legible on a phone


@dataclass(frozen=True)
class Note:
    """A paragraph; a warning stands out."""

    text: str
    warning: bool = False
    kind: str = "note"


@dataclass(frozen=True)
class Table:
    """Rows of text below a heading; all columns after the first ``text_columns`` are numbers."""

    caption: str
    heading: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int
    kind: str = "table"


@dataclass(frozen=True)
class Picture:
    """A picture as a data URI, with a description for readers who cannot see it, and a caption."""

    source: str
    alt: str
    caption: str
    half: bool = False
    kind: str = "picture"


Item = Note | Table | Picture


@dataclass
class Section:
    """A part of the report with its own heading."""

    name: str
    title: str
    items: list[Item] = field(default_factory=list)
    summary: list[str] = field(default_factory=list)  # sentences for the top of the report

    def note(self, text: str, *, warning: bool = False) -> None:
        """Add a paragraph."""
        self.items.append(Note(text, warning))

    def table(self, caption: str, heading: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> None:
        """Add a table."""
        self.items.append(Table(caption, heading, rows, text_columns))

    def attempt(self, what: str, make: Callable[..., Item], *arguments: Any) -> None:
        """Add the item that a function makes, or a note that says why it cannot be shown for these rows."""
        try:
            self.items.append(make(*arguments))
        except ValueError as error:
            self.note(f"{what}: not shown. {error}")


def draw(
    alt: str,
    caption: str,
    plot: Callable[..., Any],
    *arguments: Any,
    half: bool = False,
    formulas: bool = False,
    legend: bool = True,
    **options: Any,
) -> Picture:
    """The picture that a function of `sumosurv.plots` draws: a vector graphic, or pixels if that would be large.

    ``half``: two such pictures stand side by side if there is room. ``formulas``: dollar signs enclose formulas, which
    is wrong if text comes from the data. ``legend=False`` removes the legend. Other options go to the function.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {"svg.hashsalt": "sumosurv", "text.parse_math": formulas, "text.usetex": False}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # names in a script without font
        figure = Figure(figsize=_HALF if half else _WHOLE)
        ax = plot(*arguments, **options, ax=figure.subplots())
        if not legend:
            ax.get_legend().remove()
        fill_figure(figure, ax)
        vector = io.BytesIO()
        figure.savefig(vector, format="svg", metadata={"Date": None})
        kind, content = "svg+xml", vector.getvalue()
        if len(content) > _LARGEST:
            pixels = io.BytesIO()
            figure.savefig(pixels, format="png", dpi=_DPI)
            kind, content = "png", pixels.getvalue()
    source = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return Picture(source, alt, caption, half)


def fill_figure(figure: Any, ax: Any) -> None:
    """Let the axes with their labels fill the figure: the constrained layout of one pair of axes, in one pass."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    renderer = canvas.get_renderer()
    outer, inner, padding = ax.get_tightbbox(renderer), ax.get_window_extent(renderer), _PADDING * figure.dpi
    low, high = inner.min - outer.min + padding, outer.max - inner.max + padding
    (left, bottom), (right, top) = low / figure.bbox.size, 1.0 - high / figure.bbox.size
    figure.subplots_adjust(left=left, bottom=bottom, right=right, top=top)


def number(value: Any, digits: int = 4) -> str:
    """A number in few digits, with a true minus sign."""
    value = float(value)
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.{digits}g}" if abs(value) < 10 ** (digits - 1) or abs(value) >= 1e9 else f"{value:,.0f}"
    text = text.replace(",", "") if abs(value) < 10_000 else text
    return text.replace("-", "−")


def estimate(value: Any, low: Any, high: Any) -> tuple[str, str]:
    """A score and its limits with the same number of decimals; without limits if they are unknown."""
    value = float(value)
    size = math.floor(math.log10(abs(value))) if math.isfinite(value) and value else 0
    decimals = min(max(3, 2 - size), 6)
    shown = [number(v) if not math.isfinite(v) else f"{v:.{decimals}f}".replace("-", "−") for v in (value, low, high)]
    return shown[0], "" if np.isnan(low) or np.isnan(high) else f"{shown[1]} to {shown[2]}"


def in_percent(value: Any) -> str:
    """A proportion in per cent."""
    return "–" if np.isnan(value) else f"{100 * float(value):.1f}%"


def shown(value: Any) -> str:
    """A value of a covariate, as text."""
    if value is None or value is np.nan or (isinstance(value, float) and math.isnan(value)):
        return "missing"
    text = number(value, 6) if isinstance(value, (float, np.floating)) else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
