"""Pictures of effects: predictions along a column, or two."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.explain import Effect
from sumosurv.plots._explained import at_times, name_of_time, quantity_label
from sumosurv.plots._figure import COLOURS, axes, mark

__all__ = ["plot_effect", "plot_two_way_effect"]

_SIZE = (7.2, 4.6)
_NARROW = 0.05  # share of the axis that a cell needs for a number
_DOTS = 300  # rows drawn over a map
_INDIVIDUAL = 60  # curves drawn of partial dependence at one time


def plot_effect(
    effect: Effect, *, times: Any = None, unit: str = "", individual: bool | None = None, ax: Any = None
) -> Any:
    """A quantity along one column: one line for each of a few times, with the spread of the members.

    Of partial dependence at one time the curves of single rows (ICE) are drawn too, thin. Short lines at the foot are
    deciles of the column: where there are few, there are few rows. Categories are drawn as points.

    Parameters
    ----------
    effect : Effect
        Of one column.
    times : float or array, optional
        Some of the times of the effect; up to four of them by default.
    unit : str
        Of time, for labels.
    individual : bool, optional
        Whether to draw curves of single rows: by default where one time is drawn.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    if len(effect.columns) != 1:
        raise ValueError("plot_effect is for one column; for two use plot_two_way_effect.")
    ax = axes(ax, _SIZE)
    quantity = effect.quantity
    places = at_times(quantity, times, 4)
    category = effect.kinds[0] == "category"
    grid = effect.grid[0]
    x = np.arange(len(grid), dtype=np.float64) if category else np.asarray(grid, dtype=np.float64)
    if individual is None:
        individual = len(places) == 1
    if individual and effect.individual is not None:
        _draw_individual(ax, x, effect.individual[..., places[0]], category)
    for number, place in enumerate(places):
        colour, shift = COLOURS[number % len(COLOURS)], 0.0
        label = name_of_time(quantity, place, unit) or effect.method
        if category:
            shift = 0.12 * (number - 0.5 * (len(places) - 1))
            if effect.low is not None and effect.high is not None:
                ax.vlines(x + shift, effect.low[:, place], effect.high[:, place], color=colour, lw=6, alpha=0.3)
            ax.plot(x + shift, effect.mean[:, place], "o", color=colour, ms=5, label=label, zorder=4)
            continue
        if effect.low is not None and effect.high is not None:
            ax.fill_between(x, effect.low[:, place], effect.high[:, place], color=colour, alpha=0.18, lw=0)
        ax.plot(x, effect.mean[:, place], color=colour, lw=2.2, label=label, zorder=4, marker=mark(x))
        if len(x) == 1 and effect.low is not None and effect.high is not None:
            ax.vlines(x, effect.low[:, place], effect.high[:, place], color=colour, lw=6, alpha=0.3)
    _finish_column(ax, effect, x, category)
    is_local = effect.method == "accumulated local effects"
    if is_local:
        ax.axhline(0.0, color="0.6", lw=0.8, zorder=1)
    ax.set_ylabel(quantity_label(quantity, unit) + (",\ndifference from its mean" if is_local else ""))
    _legend(ax, effect, individual and effect.individual is not None)
    return ax


def plot_two_way_effect(effect: Effect, *, time: float | None = None, unit: str = "", ax: Any = None) -> Any:
    """A quantity over two columns at one time, as a map with its values written in or on contour lines.

    Dots are rows, of two numbers: where there are none, the model extrapolates.

    Parameters
    ----------
    effect : Effect
        Of two columns.
    time : float, optional
        One of the times of the effect; the one in the middle by default.
    unit : str
        Of time, for labels.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    if len(effect.columns) != 2:
        raise ValueError("plot_two_way_effect is for two columns; for one use plot_effect.")
    ax = axes(ax, _SIZE)
    (place,) = at_times(effect.quantity, time, 1)
    values = effect.mean[..., place].T  # the first column along x
    numbers = [kind == "number" for kind in effect.kinds]
    points = [
        np.asarray(grid, dtype=np.float64) if number else np.arange(len(grid), dtype=np.float64)
        for grid, number in zip(effect.grid, numbers)
    ]
    if all(numbers) and min(values.shape) > 1:
        image = ax.contourf(*points, values, levels=12, cmap="cividis")
        lines = ax.contour(*points, values, levels=image.levels[1:-1:2], colors="white", linewidths=0.8)
        ax.clabel(lines, fontsize=8, fmt="%.3g")
    else:
        image = ax.pcolormesh(*(_edges(point) for point in points), values, cmap="cividis")
        middle = 0.5 * (values.min() + values.max())
        for (j, i), value in np.ndenumerate(values):
            if min(_share(points[0], i), _share(points[1], j)) < _NARROW:
                continue  # no room for a number; its colour says it
            ink = "white" if value < middle else "black"
            ax.text(points[0][i], points[1][j], f"{value:.2g}", ha="center", va="center", fontsize=8, color=ink)
    if all(numbers):
        ax.set(xlim=(points[0][0], points[0][-1]), ylim=(points[1][0], points[1][-1]))
        ax.plot(
            *(values[:_DOTS] for values in effect.observed), ".", color="white", mec="0.2", mew=0.4, ms=4, alpha=0.7
        )
    for axis, name, grid, number, point in zip("xy", effect.columns, effect.grid, numbers, points):
        getattr(ax, f"set_{axis}label")(name)
        if not number:
            getattr(ax, f"set_{axis}ticks")(point, [str(level) for level in grid])
    when = name_of_time(effect.quantity, place, unit)
    ax.figure.colorbar(image, ax=ax, label=quantity_label(effect.quantity, unit) + (f", {when}" if when else ""))
    return ax


def _draw_individual(ax: Any, x: npt.NDArray[np.float64], curves: npt.NDArray[np.float64], category: bool) -> None:
    """Some of the rows' curves, those whose means are at equal steps."""
    order = np.argsort(curves.mean(axis=1), kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, min(_INDIVIDUAL, len(order))).round().astype(int))]
    ax.plot(x, curves[chosen].T, color="0.55", lw=0.6, alpha=0.5, ls=":" if category else "-", zorder=1)


def _finish_column(ax: Any, effect: Effect, x: npt.NDArray[np.float64], category: bool) -> None:
    ax.set_xlabel(effect.columns[0])
    ax.spines[["top", "right"]].set_visible(False)
    if category:
        shares = [float(np.mean(effect.observed[0] == level)) for level in effect.grid[0]]
        ax.set_xticks(x, [f"{level}\n{share:.0%}" for level, share in zip(effect.grid[0], shares)])
        ax.set_xlim(-0.6, len(x) - 0.4)
        ax.set_xlabel(f"{effect.columns[0]} (share of rows)")
        return
    deciles = np.quantile(np.asarray(effect.observed[0], dtype=np.float64), np.linspace(0.1, 0.9, 9))
    ax.plot(deciles, np.zeros(9), "|", color="0.2", ms=10, mew=1.0, transform=ax.get_xaxis_transform(), clip_on=False)
    ax.set_xlim(*((x.min(), x.max()) if len(x) > 1 else (x[0] - 0.5, x[0] + 0.5)))


def _legend(ax: Any, effect: Effect, individual: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles, names = ax.get_legend_handles_labels()
    if individual:
        handles, names = [*handles, Line2D([], [], color="0.55", lw=0.8)], [*names, "single rows"]
    if effect.low is not None:
        handles = [*handles, Patch(color="0.5", alpha=0.3, lw=0)]
        names = [*names, f"{effect.level:.0%} of the networks"]
    if effect.kinds[0] == "number":
        handles = [*handles, Line2D([], [], color="0.2", ls="", marker="|", ms=9)]
        names = [*names, "deciles"]
    ax.legend(handles, names, frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _share(points: npt.NDArray[np.float64], place: int) -> float:
    """The width of a cell, as a share of the axis."""
    edges = _edges(points)
    return float((edges[place + 1] - edges[place]) / (edges[-1] - edges[0]))


def _edges(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Ends of cells around points."""
    if len(points) == 1:
        return np.array([points[0] - 0.5, points[0] + 0.5])
    inner = 0.5 * (points[1:] + points[:-1])
    return np.concatenate([[2 * points[0] - inner[0]], inner, [2 * points[-1] - inner[-1]]])
