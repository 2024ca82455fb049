"""Elements of all plots: axes, colours, lines with limits, legends, shading of extrapolated times."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numpy as np

from sumosurv.distributions import SurvivalDistribution, Tabulated

# Colours that readers with any colour vision can tell apart (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SIZE = (7.2, 4.6)

_SHARED_PARAMETERS = {
    "unit": "str\n    Unit of time, for labels.",
    "last_time": "float or False, optional\n    Last time in the training data: later times are shaded. False for no "
    "shading; by\n    default the last time of the (first) distribution.",
    "ax": "matplotlib Axes, optional\n    Axes to draw on; a new figure by default.",
}

Function = TypeVar("Function", bound=Callable[..., Any])


def picture(function: Function) -> Function:
    """Complete the docstring of a plot function with the parameters that several plots share."""
    taken = inspect.signature(function).parameters
    shared = [f"{name} : {text}" for name, text in _SHARED_PARAMETERS.items() if name in taken]
    function.__doc__ = "\n".join([inspect.getdoc(function) or "", *shared, "\nReturns\n-------\nmatplotlib Axes"])
    return function


def axes(ax: Any, size: tuple[float, float] = SIZE) -> Any:
    """``ax``, or the axes of a new figure that pyplot knows of, so that ``plt.show`` and ``plt.savefig`` find it."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained")[1]


def colour(number: int) -> str:
    """The colour of a curve, by its number; colours repeat after seven."""
    return COLOURS[number % len(COLOURS)]


def draw_curve(
    ax: Any, x: Any, y: Any, low: Any = None, high: Any = None, *, colour: str, label: str | None = None, **style: Any
) -> None:
    """Draw a line and, if its limits are known, a band; a single point gets a marker and a bar."""
    if low is not None and not np.isnan(np.asarray(low, dtype=np.float64)).all():
        ax.fill_between(x, low, high, color=colour, alpha=0.18, lw=0)
        if len(x) == 1:
            ax.vlines(x, low, high, color=colour, lw=4, alpha=0.35)
    ax.plot(x, y, **{"color": colour, "lw": 2, "label": label, "marker": "o" if len(x) == 1 else None} | style)


def time_label(unit: str) -> str:
    """The label of a time axis."""
    return f"time ({unit})" if unit else "time"


def finish(ax: Any, x_label: str, y_label: str, *, xlim: Any = None, ylim: Any = None) -> None:
    """Labels, limits, and no frame on the two open sides."""
    ax.set(xlabel=x_label, ylabel=y_label)
    if xlim is not None:
        ax.set_xlim(xlim)
    if ylim is not None:
        ax.set_ylim(ylim)
    ax.spines[["top", "right"]].set_visible(False)


def line_handle(**style: Any) -> Any:
    """A line for the legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **style)


def patch_handle() -> Any:
    """A grey area for the legend, which stands for the bands of all curves."""
    from matplotlib.patches import Patch

    return Patch(color="0.5", alpha=0.3, lw=0)


def add_legend(
    ax: Any, place: Literal["below", "right", "inside"], *, extra: dict[str, Any] | None = None, columns: int = 1
) -> None:
    """A legend of everything that has a label, and of some extra handles; outside of the axes it hides nothing."""
    handles, names = ax.get_legend_handles_labels()
    for name, handle in (extra or {}).items():
        handles.append(handle)
        names.append(name)
    places: dict[str, dict[str, Any]] = {
        "below": {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13), "ncol": columns},
        "right": {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)},
        "inside": {"loc": "best"},
    }
    ax.legend(handles, names, frameon=False, fontsize=9, **places[place])


def last_training_time(distribution: SurvivalDistribution, given: float | bool | None) -> float | None:
    """The last time in the training data: ``given``, or that of the distribution; None if ``given`` is False."""
    if given is None:
        return distribution.last_time
    if given is True:
        raise ValueError("last_time must be the last time in the training data, or False for no shading; got True.")
    return None if given is False else float(given)


def shade_beyond(ax: Any, last_time: float | None, end: float, *, cover: bool = False) -> None:
    """Shade the times after the last training time, behind curves, or over areas if ``cover``."""
    if last_time is None or last_time >= end:
        return
    if cover:
        ax.axvspan(last_time, end, color="white", alpha=0.4, lw=0, zorder=3)
        ax.axvline(last_time, color="0.2", lw=1.2, ls=":", zorder=4)
    else:
        ax.axvspan(last_time, end, color="0.93", lw=0, zorder=0)
    no_room = last_time > 0.75 * end  # on the right
    ax.text(
        last_time + (-0.015 if no_room else 0.015) * end,
        0.97,
        "end of follow-up" if no_room else "extrapolated",
        transform=ax.get_xaxis_transform(),
        ha="right" if no_room else "left",
        va="top",
        fontsize=9,
        color="0.1" if cover else "0.45",
        zorder=5,
    )


def at_times(distribution: SurvivalDistribution, times: Any) -> SurvivalDistribution:
    """The same curves tabulated at these times, so that each curve is predicted only once."""
    if distribution.step_table() is not None or len(times) == 1:
        return distribution
    if distribution.n_causes == 1:
        return Tabulated(times, np.minimum.accumulate(distribution.survival(times), axis=1))
    incidence = np.maximum.accumulate(distribution.cumulative_incidence(times), axis=1)
    return Tabulated(times, incidence=incidence / np.maximum(incidence.sum(axis=2, keepdims=True), 1.0))
