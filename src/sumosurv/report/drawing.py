"""Pictures as data URIs: vector graphics, or pixels where those would be large."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable
from typing import Any

from sumosurv.report.document import Picture

__all__ = ["draw"]

_LARGEST = 150_000  # bytes of a vector graphic
_DPI = 150
_WHOLE, _HALF = (6.4, 4.0), (4.8, 4.0)  # small, so that words stay legible on a telephone


def draw(plot: Callable[[Any], Any], alt: str, caption: str, *, half: bool = False, formulas: bool = True) -> Picture:
    """The picture that a function draws on the axes it is given.

    Parameters
    ----------
    plot : callable
        Given matplotlib Axes.
    alt : str
        What is to be seen, in words.
    caption : str
    half : bool
        Two such pictures stand side by side where there is room.
    formulas : bool
        Dollar signs set formulas. False where text comes from the data, whose dollar signs are just that.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError('A report needs matplotlib and Jinja2: pip install "sumosurv[report]".') from None
    settings: dict[Any, Any] = {"svg.hashsalt": "sumosurv", "text.parse_math": formulas, "text.usetex": False}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a name in a script that no font here has
        figure = Figure(figsize=_HALF if half else _WHOLE, layout="constrained")
        plot(figure.subplots())
        vector = io.BytesIO()
        figure.savefig(vector, format="svg", bbox_inches="tight", metadata={"Date": None})
        kind, content = "svg+xml", vector.getvalue()
        if len(content) > _LARGEST:
            pixels = io.BytesIO()
            figure.savefig(pixels, format="png", bbox_inches="tight", dpi=_DPI)
            kind, content = "png", pixels.getvalue()
    source = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return Picture(source, alt, caption, half)
