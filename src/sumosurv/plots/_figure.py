"""What pictures share: colours, a new figure where none was given, plain axes."""

from __future__ import annotations

from typing import Any

from sumosurv.distributions import SurvivalDistribution

__all__ = ["COLOURS", "axes", "below", "finish", "last_seen", "mark", "shade_beyond"]

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


def last_seen(distribution: SurvivalDistribution, seen: float | bool | None) -> float | None:
    """The last time in the training data: as given, or as a fitted model left it on the distribution; None if False."""
    if seen is None:
        return distribution.last_time
    if seen is True:
        raise ValueError("seen is the last time in the training data, or False; got True.")
    return None if seen is False else float(seen)


def shade_beyond(ax: Any, seen: float | None, end: float, *, cover: bool = False) -> None:
    """Shade what lies between the last training time and the end of the axis, behind the curves or over areas."""
    if seen is None or seen >= end:
        return
    ax.axvspan(
        seen, end, color="white" if cover else "0.93", alpha=0.4 if cover else None, lw=0, zorder=3 if cover else 0
    )
    if cover:
        ax.axvline(seen, color="0.2", lw=1.2, ls=":", zorder=4)
    late = seen > 0.75 * end  # no room on the right
    place = seen - 0.015 * end if late else seen + 0.015 * end
    ax.text(
        place,
        0.97,
        "end of the data" if late else "beyond the data",
        transform=ax.get_xaxis_transform(),
        ha="right" if late else "left",
        va="top",
        fontsize=9,
        color="0.1" if cover else "0.45",
        zorder=5,
    )


def below(ax: Any, *, columns: int, handles: Any = None, names: Any = None) -> None:
    """The legend under the axes, where it hides nothing: of all that has a label, or of some handles."""
    if handles is None:
        handles, names = ax.get_legend_handles_labels()
    ax.legend(handles, names, frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=columns)


def mark(x: Any) -> str | None:
    """The marker of a line through these points: one point alone would not show."""
    return "o" if len(x) == 1 else None


def finish(ax: Any, x_label: str, y_label: str, end: float, *, top: float = 1.02) -> None:
    """Labels, limits and no frame on the open sides, for probabilities against time."""
    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label)
    ax.set_xlim(0, end)
    ax.set_ylim(0, top)
    ax.spines[["top", "right"]].set_visible(False)
