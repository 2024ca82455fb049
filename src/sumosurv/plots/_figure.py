"""What pictures share: colours, a new figure where none was given, plain axes."""

from __future__ import annotations

from typing import Any

__all__ = ["COLOURS", "axes", "finish"]

# Colours that readers with any colour vision can tell apart (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def axes(ax: Any, figsize: tuple[float, float]) -> Any:
    """``ax``, or the axes of a new figure that pyplot knows of, so that ``plt.show`` and ``plt.savefig`` find it."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError:
        raise ModuleNotFoundError('Pictures need matplotlib: pip install "sumosurv[plots]".') from None
    return plt.subplots(figsize=figsize, layout="constrained")[1]


def finish(ax: Any, x_label: str, y_label: str, end: float, *, top: float = 1.02) -> None:
    """Labels, limits and no frame on the open sides, for probabilities against time."""
    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label)
    ax.set_xlim(0, end)
    ax.set_ylim(0, top)
    ax.spines[["top", "right"]].set_visible(False)
