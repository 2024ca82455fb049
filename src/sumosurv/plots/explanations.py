"""Pictures of importance, SurvSHAP(t) values and contrasts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.explain import Contrast, Importance, SurvShap
from sumosurv.plots.effects import quantity_label, time_name, time_places
from sumosurv.plots.figure import (
    COLOURS,
    add_legend,
    axes,
    colour,
    draw_curve,
    finish,
    patch_handle,
    shade_beyond,
    time_label,
)
from sumosurv.scores import SCORES

__all__ = ["plot_contrast", "plot_importance", "plot_survshap"]

Array = npt.NDArray[np.float64]

_SCORE_NAMES = {
    "log_likelihood": "log-likelihood (nats)",
    "brier": "Brier score",
    "integrated_brier": "integrated Brier score",
    "harrell_c": "Harrell's C",
    "uno_c": "Uno's C",
    "concordance_td": "time-dependent concordance",
    "cumulative_dynamic_auc": "AUC",
}


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
    max_columns : int
        Number of columns to draw, most important first; at most seven lines.
    unit : str
        Unit of time, for the axis.
    ax : matplotlib Axes, optional
        Axes to draw on; a new figure by default.

    Returns
    -------
    matplotlib Axes
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
    label = f"{change} of {_SCORE_NAMES.get(name, name.replace('_', ' '))}" + (f", cause {cause}" if causes else "")
    if table["time"].nunique() <= 1:
        shown = table.head(max_columns)
        ax = _draw_bars(ax, shown["value"].to_numpy(), list(shown["column"]), label, signed=False)
        if shown["low"].notna().all():
            ax.hlines(np.arange(len(shown))[::-1], shown["low"], shown["high"], color="0.15", lw=1.5)
        return ax
    ax = axes(ax)
    for shade, column in zip(COLOURS, list(dict.fromkeys(table["column"]))[:max_columns]):
        own = table[table["column"] == column].sort_values("time")
        draw_curve(ax, own["time"], own["value"], own["low"], own["high"], colour=shade, label=column, marker="o", ms=4)
    _finish_over_time(ax, label, unit)
    ax.set_xlim(left=0)
    return ax


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
    unit : str
        Unit of time, for labels.
    ax : matplotlib Axes, optional
        Axes to draw on; a new figure by default.

    Returns
    -------
    matplotlib Axes
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
    at = len(quantity.columns) - 1 if time is None else int(time_places(quantity, time, 1)[0])
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
    when = time_name(quantity, at, unit)
    finish(ax, f"contribution to {quantity_label(quantity, unit)}" + (f", {when}" if when else ""), "")
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
        return _draw_bars(ax, last, list(parts), f"{quantity_label(quantity, unit)}, contribution", signed=True)
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


def plot_contrast(contrast: Contrast, *, difference: bool = True, unit: str = "", ax: Any = None) -> Any:
    """The difference of two curves over time with its limits, or the two curves.

    Parameters
    ----------
    contrast : Contrast
    difference : bool
        Draw the difference; False for the two curves.
    unit : str
        Unit of time, for the axis.
    ax : matplotlib Axes, optional
        Axes to draw on; a new figure by default.

    Returns
    -------
    matplotlib Axes
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
    ax.barh(height, values, color=shades, height=0.62)
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
