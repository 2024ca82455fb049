"""Plots of explanations: effects, importance, SurvSHAP(t) values, contrasts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.explain import Contrast, Effect, Importance, Quantity, SurvShap
from sumosurv.plots.figure import (
    COLOURS,
    add_legend,
    axes,
    colour,
    draw_curve,
    finish,
    line_handle,
    patch_handle,
    picture,
    shade_beyond,
    time_label,
)
from sumosurv.scores import SCORES

Array = npt.NDArray[np.float64]

_NARROW = 0.05  # share of the axis that a cell needs for a number
_DOTS = 300  # rows drawn over a map
_INDIVIDUAL = 60  # curves of single rows
_MOST_TIMES = 4  # lines drawn by default


@picture
def plot_effect(
    effect: Effect, *, times: Any = None, unit: str = "", individual: bool | None = None, ax: Any = None
) -> Any:
    """Draw an effect: for one column, one line per time; for two columns, a map at one time.

    For one column, bands show the spread of the members, and ticks on the axis mark the deciles of the column.
    Categories are drawn as points. For two columns, values are written in the cells or on contour lines; dots are the
    observed rows, and the model extrapolates in regions without rows.

    Parameters
    ----------
    effect : Effect
        From `partial_dependence` or `accumulated_local_effects`.
    times : float or array, optional
        Some of the times of the effect; by default up to four for one column, and the one in the middle for two.
    individual : bool, optional
        Whether to draw the curves of single rows (ICE) of partial dependence on one column; by default if one time is
        drawn.
    """
    if len(effect.columns) == 2:
        return _plot_map(effect, times, unit, ax)
    ax, quantity = axes(ax), effect.quantity
    places = _time_places(quantity, times, _MOST_TIMES)
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
        label = quantity.time_name(place, unit) or effect.method
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
    finish(ax, name, _quantity_label(quantity, unit) + (",\ndifference from its mean" if is_local else ""), xlim=ends)
    return ax


def _plot_map(effect: Effect, time: Any, unit: str, ax: Any) -> Any:
    places = _time_places(effect.quantity, time, 1)
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
    when = effect.quantity.time_name(place, unit)
    ax.figure.colorbar(image, ax=ax, label=_quantity_label(effect.quantity, unit) + (f", {when}" if when else ""))
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


@picture
def plot_importance(
    importance: Importance,
    *,
    score: str | None = None,
    cause: int | None = None,
    max_columns: int = 12,
    unit: str = "",
    ax: Any = None,
) -> Any:
    """Loss of a score when each column is shuffled: bars with limits, or lines if the score is taken at several times.

    Parameters
    ----------
    importance : Importance
    score : str, optional
        One of the scores of the result; the first by default.
    cause : int, optional
        One of the causes of the score; the first by default.
    max_columns : int, default 12
        Number of columns to draw, most important first; at most seven lines.
    """
    table = importance.table
    known = list(dict.fromkeys(table["score"]))
    name = known[0] if score is None else score
    if name not in known:
        raise ValueError(f"The result has the scores {', '.join(known)}; got {name!r}.")
    table = table[table["score"] == name]
    causes = sorted(set(table["cause"].dropna()))
    if causes:
        cause = int(causes[0]) if cause is None else cause
        if cause not in causes:
            raise ValueError(f"The result has the causes {', '.join(f'{c:g}' for c in causes)}; got {cause!r}.")
        table = table[table["cause"] == cause]
    change = "loss" if SCORES[name].greater_is_better else "rise"
    label = f"{change} of {SCORES[name].title}" + (f", cause {cause}" if causes else "")
    if table["time"].nunique() <= 1:
        shown = table.head(max_columns)
        ax = _draw_bars(ax, shown["value"].to_numpy(), list(shown["column"]), label, signed=False)
        if shown["low"].notna().any():  # none for infinite losses
            low, high = (shown[side].where(np.isfinite(shown["value"])) for side in ("low", "high"))
            ax.hlines(np.arange(len(shown))[::-1], low, high, color="0.15", lw=1.5)
        return ax
    ax = axes(ax)
    for shade, column in zip(COLOURS, list(dict.fromkeys(table["column"]))[:max_columns]):
        own = table[table["column"] == column].sort_values("time")
        draw_curve(ax, own["time"], own["value"], own["low"], own["high"], colour=shade, label=column, marker="o", ms=4)
    _finish_over_time(ax, label, unit)
    ax.set_xlim(left=0)
    return ax


@picture
def plot_survshap(
    shap: SurvShap,
    subject: int | None = None,
    *,
    time: float | None = None,
    max_columns: int | None = None,
    unit: str = "",
    ax: Any = None,
) -> Any:
    """SurvSHAP(t) values of one subject, or of all subjects together.

    One subject: a line per column over time, and bars for a median or restricted mean. The columns with the largest
    values are drawn on their own and named with the subject's values, the others together, in grey. Lines add up to the
    predicted curve less the mean of the background.

    All subjects: a line per column over time, the mean of absolute values. At one ``time``, and for a median or
    restricted mean, a point per subject and column at its contribution; light points have low values of the column,
    dark points high values, and grey ones are categories or missing.

    Parameters
    ----------
    shap : SurvShap
    subject : int, optional
        Position of the subject among those of ``shap``; all subjects by default.
    time : float, optional
        One of the times of ``shap``, for all subjects.
    max_columns : int, optional
        Number of columns to draw, most important first, at most seven as lines; 6 for one subject and 10 for all by
        default.
    """
    if subject is not None:
        return _plot_subject(shap, subject, 6 if max_columns is None else max_columns, unit, ax)
    quantity = shap.quantity
    columns = list(shap.importance().index[: 10 if max_columns is None else max_columns])
    places = [shap.columns.index(column) for column in columns]
    if time is None and quantity.is_curve and len(quantity.times) > 1:
        ax, mean = axes(ax), np.abs(shap.values).mean(axis=0)
        for shade, place, column in zip(COLOURS, places, columns):
            draw_curve(ax, quantity.times, mean[place], colour=shade, label=column)
        _finish_over_time(ax, f"mean absolute contribution to\n{quantity.label}", unit, shap)
        ax.set_ylim(bottom=0)
        return ax
    at = len(quantity.columns) - 1 if time is None else int(_time_places(quantity, time, 1)[0])
    ax, image = axes(ax, (7.2, 1.2 + 0.42 * len(columns))), None
    for height, (place, column) in enumerate(zip(places[::-1], columns[::-1])):
        x = shap.values[:, place, at]
        level = _ranks(shap.X[column]) if column in shap.X else np.full(len(x), np.nan)
        y, unknown = height + _swarm(x), np.isnan(level)
        ax.scatter(x[unknown], y[unknown], s=14, color="0.6", lw=0)
        if (~unknown).any():
            style = {"s": 14, "cmap": "cividis_r", "vmin": 0, "vmax": 1, "lw": 0}
            image = ax.scatter(x[~unknown], y[~unknown], c=level[~unknown], **style)
    ax.axvline(0.0, color="0.5", lw=0.8, zorder=0)
    ax.set_yticks(np.arange(len(columns)), columns[::-1])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    when = quantity.time_name(at, unit)
    finish(ax, f"contribution to {_quantity_label(quantity, unit)}" + (f", {when}" if when else ""), "")
    if image is not None:
        label = "value of the column (rank);\ngrey: category or missing"
        bar = ax.figure.colorbar(image, ax=ax, ticks=[0, 1], aspect=30, label=label)
        bar.ax.set_yticklabels(["low", "high"])
        bar.outline.set_visible(False)
    return ax


def _plot_subject(shap: SurvShap, subject: int, max_columns: int, unit: str, ax: Any) -> Any:
    if not -len(shap) <= subject < len(shap):
        raise ValueError(f"There are {len(shap)} subjects, numbered from 0; got {subject}.")
    values, quantity = shap.values[subject], shap.quantity
    order = np.argsort(-np.abs(values).mean(axis=1), kind="stable")
    shown = min(max_columns, len(COLOURS))
    parts = {_with_value(shap, subject, int(place)): values[place] for place in order[:shown]}
    others = "other columns together"
    if len(order) > shown:
        parts[others] = values[order[shown:]].sum(axis=0)
    if not quantity.is_curve or len(quantity.times) == 1:
        last = np.array([value[-1] for value in parts.values()])
        return _draw_bars(ax, last, list(parts), f"{_quantity_label(quantity, unit)}, contribution", signed=True)
    ax = axes(ax)
    for i, (name, value) in enumerate(parts.items()):
        style = {"color": "0.55", "lw": 1.6, "ls": ":"} if name == others else {}
        draw_curve(ax, quantity.times, value, colour=colour(i), label=name, **style)
    total = shap.predicted[subject] - shap.base
    ax.plot(quantity.times, total, color="0.1", lw=1.4, ls="--", label="sum: prediction less mean")
    _finish_over_time(ax, f"contribution to\n{quantity.label}", unit, shap)
    return ax


def _with_value(shap: SurvShap, subject: int, place: int) -> str:
    """A column with the subject's value of it."""
    column = shap.columns[place]
    if column not in shap.X:
        return column
    value = shap.X[column].iloc[subject]
    if pd.isna(value):
        return f"{column} missing"
    if isinstance(value, (float, np.floating, int, np.integer)) and not isinstance(value, bool):
        number = float(value)
        return f"{column} = {f'{number:,.0f}' if abs(number) >= 1000 else f'{number:.3g}'}"
    return f"{column} = {value}"


def _ranks(values: pd.Series) -> Array:
    """The rank of each number among all subjects, from 0 to 1; NaN for categories and missing values."""
    if not pd.api.types.is_numeric_dtype(values.dtype) or pd.api.types.is_bool_dtype(values.dtype):
        return np.full(len(values), np.nan)
    ranks = values.rank().to_numpy(dtype=np.float64, na_value=np.nan)
    low, high = np.nanmin(ranks, initial=np.inf), np.nanmax(ranks, initial=-np.inf)
    return np.asarray((ranks - low) / (high - low)) if high > low else np.where(np.isnan(ranks), np.nan, 0.5)


def _swarm(x: Array, width: float = 0.36, bins: int = 60) -> Array:
    """Offsets that spread points of about the same value apart."""
    if np.ptp(x) == 0:
        return np.linspace(-width, width, len(x)) if len(x) > 1 else np.zeros(1)
    cell = np.digitize(x, np.linspace(x.min(), x.max(), bins))
    offset = np.zeros(len(x))
    most = max(np.bincount(cell).max(), 2)
    for own in np.unique(cell):
        places = np.flatnonzero(cell == own)
        offset[places] = (np.arange(len(places)) - 0.5 * (len(places) - 1)) * 2 * width / most
    return offset


@picture
def plot_contrast(contrast: Contrast, *, difference: bool = True, unit: str = "", ax: Any = None) -> Any:
    """The difference of two curves over time with its limits, or the two curves.

    Parameters
    ----------
    contrast : Contrast
    difference : bool, default True
        Draw the difference; False for the two curves.
    """
    ax, quantity = axes(ax), contrast.quantity
    if difference:
        name = f"{contrast.labels[0]}  less  {contrast.labels[1]}"
        curves = {name: (contrast.difference, contrast.difference_low, contrast.difference_high)}
        ax.axhline(0.0, color="0.6", lw=0.8, zorder=1)
    else:
        limits = (
            [(None, None)] * 2
            if contrast.low is None or contrast.high is None
            else list(zip(contrast.low, contrast.high))
        )
        curves = {name: (contrast.curves[i], *limits[i]) for i, name in enumerate(contrast.labels)}
    for i, (name, parts) in enumerate(curves.items()):
        draw_curve(ax, quantity.times, *parts, colour=colour(i), label=name)
    spread = {"members": "of the networks", "bootstrap": "of the fits to resampled rows"}.get(contrast.limits_from)
    add_legend(ax, "below", extra={f"{contrast.level:.0%} {spread}": patch_handle()} if spread else {}, columns=3)
    end = float(quantity.times[-1])
    shade_beyond(ax, quantity.last_time, end)
    probability = not difference and quantity.name != "cumulative_hazard"
    label = f"difference in\n{quantity.label}" if difference else quantity.label
    finish(ax, time_label(unit), label, xlim=(0, end), ylim=(0, 1.02) if probability else None)
    return ax


def _draw_bars(ax: Any, values: Array, names: list[str], label: str, *, signed: bool) -> Any:
    """Horizontal bars, the first on top; if signed, negative ones have a second colour."""
    ax = axes(ax, (7.2, 1.0 + 0.36 * len(values)))
    height = np.arange(len(values))[::-1]
    shades = [COLOURS[0] if value >= 0 or not signed else COLOURS[1] for value in values]
    ax.barh(height, np.where(np.isinf(values), np.nan, values), color=shades, height=0.62)
    for place in height[np.isposinf(values)]:
        ax.annotate("∞", (0.0, place), xytext=(4, 0), textcoords="offset points", va="center")
    ax.axvline(0.0, color="0.3", lw=0.8)
    ax.set_yticks(height, names)
    ax.tick_params(axis="y", length=0)
    finish(ax, label, "")
    return ax


def _finish_over_time(ax: Any, label: str, unit: str, shap: SurvShap | None = None) -> None:
    """A line at zero, labels, the legend on the right and, for curves, the shading of extrapolated times."""
    ax.axhline(0.0, color="0.6", lw=0.8, zorder=1)
    if shap is not None:
        end = float(shap.quantity.times[-1])
        ax.set_xlim(0, end)
        shade_beyond(ax, shap.quantity.last_time, end)
    finish(ax, time_label(unit), label)
    add_legend(ax, "right")


def _time_places(quantity: Quantity, times: Any, most: int) -> npt.NDArray[np.int64]:
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


def _quantity_label(quantity: Quantity, unit: str) -> str:
    """The label of an axis, with the unit if the quantity is a time."""
    return quantity.label + (f" ({unit})" if unit and not quantity.is_curve else "")
