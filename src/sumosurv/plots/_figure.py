"""A new figure where none was given."""

from __future__ import annotations

from typing import Any

__all__ = ["axes"]


def axes(ax: Any, figsize: tuple[float, float]) -> Any:
    """``ax``, or the axes of a new figure that pyplot knows of, so that ``plt.show`` and ``plt.savefig`` find it."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError:
        raise ModuleNotFoundError('Pictures need matplotlib: pip install "sumosurv[plots]".') from None
    return plt.subplots(figsize=figsize, layout="constrained")[1]
