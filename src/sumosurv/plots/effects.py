"""Pictures of effects: predictions along one column, or two."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sumosurv.explain import Effect, Quantity
from sumosurv.plots.figure import add_legend, axes, colour, draw_curve, finish, line_handle, patch_handle

__all__ = ["plot_effect", "quantity_label", "time_name", "time_places"]

Array = npt.NDArray[np.float64]

_NARROW = 0.05  # share of the axis that a cell needs for a number
_DOTS = 300  # rows drawn over a map
_INDIVIDUAL = 60  # curves of single rows
_MOST_TIMES = 4  # lines drawn unasked


def plot_effect(
    effect: Effect, *, times: Any = None, unit: str = "", individual: bool | None = None, ax: Any = None
) -> Any:
    """An effect: along one column a line for each of a few times; over two columns a map at one time.

    Along one column, bands show the spread of the members, and short lines at the foot the deciles of the column:
    where there are few, there are few rows. Categories are drawn as points. Over two columns, values are written into
    the cells or on contour lines; dots are rows, and where there are none the model extrapolates.

    Parameters
    ----------
    effect : Effect
        From `partial_dependence` or `accumulated_local_effects`.
    times : float or array, optional
        Some of the times of the effect; by default up to four for one column, and the one in the middle for two.
    unit : str
        Unit of time, for labels.
    individual : bool, optional
        Whether to draw the curves of single rows (ICE) of partial dependence on one column; by default if one time is
        drawn.
    ax : matplotlib Axes, optional
        Axes to draw on; a new figure by default.

    Returns
    -------
    matplotlib Axes
    """
    if len(effect.columns) == 2:
        return _plot_map(effect, times, unit, ax)
    ax, quantity = axes(ax), effect.quantity
    places = time_places(quantity, times, _MOST_TIMES)
    is_category = effect.kinds[0] == "category"
    x = _positions(effect, 0)
    if individual is None:
        individual = len(places) == 1
    individual = individual and effect.individual is not None
    if individual and effect.individual is not None:
        curves = effect.individual[..., places[0]]
        order = np.argsort(curves.mean(axis=1), kind="stable")
        chosen = order[np.unique(np.linspace(0, len(order) - 1, min(_INDIVIDUAL, len(order))).round().astype(int))]
        ax.plot(x, curves[chosen].T, color="0.55", lw=0.6, alpha=0.5, ls=":" if is_category else "-", zorder=1)
    for number, place in enumerate(places):
        limits = () if effect.low is None or effect.high is None else (effect.low[:, place], effect.high[:, place])
        label = time_name(quantity, place, unit) or effect.method
        if is_category:
            at = x + 0.12 * (number - 0.5 * (len(places) - 1))
            if limits:
                ax.vlines(at, *limits, color=colour(number), lw=6, alpha=0.3)
            ax.plot(at, effect.mean[:, place], "o", color=colour(number), ms=5, label=label, zorder=4)
        else:
            draw_curve(ax, x, effect.mean[:, place], *limits, colour=colour(number), label=label, zorder=4)
    is_local = effect.method == "accumulated local effects"
    if is_local:
        ax.axhline(0.0, color="0.6", lw=0.8, zorder=1)
    extra = {"single rows": line_handle(color="0.55", lw=0.8)} if individual else {}
    if effect.low is not None:
        extra[f"{effect.level:.0%} of the networks"] = patch_handle()
    name, ends = effect.columns[0], (x.min(), x.max()) if len(x) > 1 else (x[0] - 0.5, x[0] + 0.5)
    if is_category:
        shares = [float(np.mean(effect.observed[0] == level)) for level in effect.grid[0]]
        ax.set_xticks(x, [f"{level}\n{share:.0%}" for level, share in zip(effect.grid[0], shares)])
        name, ends = f"{name} (share of rows)", (-0.6, len(x) - 0.4)
    else:
        deciles = np.quantile(np.asarray(effect.observed[0], dtype=np.float64), np.linspace(0.1, 0.9, 9))
        style = {"color": "0.2", "ls": "", "marker": "|"}
        ax.plot(deciles, np.zeros(9), ms=10, transform=ax.get_xaxis_transform(), clip_on=False, **style)
        extra["deciles"] = line_handle(ms=9, **style)
    add_legend(ax, "right", extra=extra)
    finish(ax, name, quantity_label(quantity, unit) + (",\ndifference from its mean" if is_local else ""), xlim=ends)
    return ax


def _plot_map(effect: Effect, time: Any, unit: str, ax: Any) -> Any:
    places = time_places(effect.quantity, time, 1)
    if len(places) != 1:
        raise ValueError(f"An effect of two columns is drawn at one time; got {len(places)} times.")
    ax, place = axes(ax), places[0]
    values = effect.mean[..., place].T  # the first column along x
    points = [_positions(effect, 0), _positions(effect, 1)]
    numbers = all(kind == "number" for kind in effect.kinds)
    if numbers and min(values.shape) > 1:
        image = ax.contourf(*points, values, levels=12, cmap="cividis")
        lines = ax.contour(*points, values, levels=image.levels[1:-1:2], colors="white", linewidths=0.8)
        ax.clabel(lines, fontsize=8, fmt="%.3g")
    else:
        edges = [_edges(point) for point in points]
        image = ax.pcolormesh(*edges, values, cmap="cividis")
        wide, high = (np.diff(edge) / (edge[-1] - edge[0]) >= _NARROW for edge in edges)
        middle = 0.5 * (values.min() + values.max())
        for (j, i), value in np.ndenumerate(values):
            if wide[i] and high[j]:  # else there is no room for a number; the colour shows it
                ink = "white" if value < middle else "black"
                ax.text(points[0][i], points[1][j], f"{value:.2g}", ha="center", va="center", fontsize=8, color=ink)
    if numbers:
        ax.set(xlim=(points[0][0], points[0][-1]), ylim=(points[1][0], points[1][-1]))
        rows = (column[:_DOTS] for column in effect.observed)
        ax.plot(*rows, ".", color="white", mec="0.2", mew=0.4, ms=4, alpha=0.7)
    for axis, name, grid, kind, point in zip("xy", effect.columns, effect.grid, effect.kinds, points):
        getattr(ax, f"set_{axis}label")(name)
        if kind == "category":
            getattr(ax, f"set_{axis}ticks")(point, [str(level) for level in grid])
    when = time_name(effect.quantity, place, unit)
    ax.figure.colorbar(image, ax=ax, label=quantity_label(effect.quantity, unit) + (f", {when}" if when else ""))
    return ax


def _positions(effect: Effect, column: int) -> Array:
    """The values of a column on an axis: numbers as they are, categories counted from zero."""
    grid = effect.grid[column]
    return np.arange(len(grid), dtype=float) if effect.kinds[column] == "category" else np.asarray(grid, dtype=float)


def _edges(points: Array) -> Array:
    """Ends of cells around points."""
    if len(points) == 1:
        return np.array([points[0] - 0.5, points[0] + 0.5])
    inner = 0.5 * (points[1:] + points[:-1])
    return np.concatenate([[2 * points[0] - inner[0]], inner, [2 * points[-1] - inner[-1]]])


# ------------------------------------------------------------------ times of an explained quantity


def time_places(quantity: Quantity, times: Any, most: int) -> npt.NDArray[np.int64]:
    """Positions of some of the times of a quantity: those given, or up to ``most`` of them spread evenly."""
    known = quantity.columns
    if times is None:
        steps = (np.arange(most) + 1) / (most + 1) if len(known) > most else np.linspace(0, 1, len(known))
        return np.unique((steps * (len(known) - 1)).round().astype(np.int64))
    given = np.atleast_1d(np.asarray(times, dtype=np.float64))
    found = np.array([int(np.argmin(np.abs(known - t))) for t in given])
    wrong = np.flatnonzero(~np.isclose(known[found], given))
    if len(wrong):
        raise ValueError(
            f"The result has no time {given[wrong[0]]:g}; the nearest is {known[found[wrong[0]]]:g}. Compute the "
            "result with times= that include it."
        )
    return found


def time_name(quantity: Quantity, place: int, unit: str) -> str:
    """ "t = 5 years", "up to 5 years", or nothing for a median."""
    if quantity.name == "median":
        return ""
    before = "up to" if quantity.name.startswith("restricted") else "t ="
    value = quantity.times[place]
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{before} {number}{f' {unit}' if unit else ''}"


def quantity_label(quantity: Quantity, unit: str) -> str:
    """The label of an axis, with the unit if the quantity is a time."""
    return quantity.label + (f" ({unit})" if unit and not quantity.is_curve else "")
