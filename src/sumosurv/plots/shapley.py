"""Pictures of SurvSHAP(t) values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.explain import SurvShap
from sumosurv.plots._explained import at_times, name_of_time, number_text, quantity_label
from sumosurv.plots._figure import COLOURS, axes, shade_beyond

__all__ = ["plot_survshap", "plot_survshap_summary"]

Array = npt.NDArray[np.float64]


def plot_survshap(shap: SurvShap, subject: int = 0, *, max_columns: int = 6, unit: str = "", ax: Any = None) -> Any:
    """What each column contributes to the predicted curve of one subject, over time.

    The columns with the largest values are named with the subject's own; the others are drawn together, in grey. Lines
    add up to the predicted curve less the mean of the background. Of a median or restricted mean bars are drawn.

    Parameters
    ----------
    shap : SurvShap
    subject : int
        Its position among the subjects of ``shap``.
    max_columns : int
        Columns that are drawn on their own.
    unit : str
        Of time, for the axis.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    if not -len(shap) <= subject < len(shap):
        raise ValueError(f"There are {len(shap)} subjects, numbered from 0; got {subject}.")
    values, quantity = shap.values[subject], shap.quantity
    order = np.argsort(-np.abs(values).mean(axis=1), kind="stable")
    first, rest = order[: min(max_columns, len(COLOURS))], order[min(max_columns, len(COLOURS)) :]
    names = [_with_value(shap, subject, int(place)) for place in first]
    others = f"{len(rest)} others together"
    if not quantity.is_curve or len(quantity.times) == 1:
        place = len(quantity.columns) - 1
        bars = [*values[first, place], *([values[rest, place].sum()] if len(rest) else [])]
        labels = [*names, *([others] if len(rest) else [])]
        return _bars(ax, np.array(bars), labels, f"{quantity_label(quantity, unit)}, contribution")
    ax = axes(ax, (7.2, 4.6))
    for colour, place, name in zip(COLOURS, first, names):
        ax.plot(quantity.times, values[place], color=colour, lw=2, label=name)
    if len(rest):
        ax.plot(quantity.times, values[rest].sum(axis=0), color="0.55", lw=1.6, ls=":", label=others)
    total = shap.predicted[subject] - shap.base
    ax.plot(quantity.times, total, color="0.1", lw=1.4, ls="--", label="sum: prediction less mean")
    end = float(quantity.times[-1])
    ax.set_xlim(0, end)
    shade_beyond(ax, quantity.last_time, end)
    _finish(ax, f"contribution to\n{quantity.label}", unit)
    return ax


def plot_survshap_summary(
    shap: SurvShap, *, time: float | None = None, max_columns: int = 10, unit: str = "", ax: Any = None
) -> Any:
    """Values of all subjects: at one time as points, coloured by the value of the column; without a time, over time.

    Over time, lines are the means of absolute values. As points, each is a subject, at the value of its contribution;
    light points have low values of the column, dark ones high values; grey ones are of categories or missing.

    Parameters
    ----------
    shap : SurvShap
    time : float, optional
        One of the times of ``shap``. Medians and restricted means are drawn as points without it.
    max_columns : int
        The most important ones are drawn; of lines no more than there are colours.
    unit : str
        Of time, for labels.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    quantity = shap.quantity
    columns = list(shap.importance().index[:max_columns])
    places = [shap.columns.index(column) for column in columns]
    if time is None and quantity.is_curve and len(quantity.times) > 1:
        ax = axes(ax, (7.2, 4.6))
        mean = np.abs(shap.values).mean(axis=0)
        for colour, place, column in zip(COLOURS, places, columns):
            ax.plot(quantity.times, mean[place], color=colour, lw=2, label=column)
        end = float(quantity.times[-1])
        ax.set_xlim(0, end)
        ax.set_ylim(bottom=0)
        shade_beyond(ax, quantity.last_time, end)
        _finish(ax, f"mean absolute contribution to\n{quantity.label}", unit)
        return ax
    (at,) = at_times(quantity, time, 1) if time is not None else [len(quantity.columns) - 1]
    ax = axes(ax, (7.2, 1.2 + 0.42 * len(columns)))
    image = None
    for height, (place, column) in enumerate(zip(places[::-1], columns[::-1])):
        x = shap.values[:, place, at]
        level = _levels(shap.X[column]) if column in shap.X else np.full(len(x), np.nan)
        y = height + _swarm(x)
        unknown = np.isnan(level)
        ax.scatter(x[unknown], y[unknown], s=14, color="0.6", lw=0)
        if (~unknown).any():
            image = ax.scatter(
                x[~unknown], y[~unknown], s=14, c=level[~unknown], cmap="cividis_r", vmin=0, vmax=1, lw=0
            )
    ax.axvline(0.0, color="0.5", lw=0.8, zorder=0)
    ax.set_yticks(np.arange(len(columns)), columns[::-1])
    ax.tick_params(axis="y", length=0)
    when = name_of_time(quantity, at, unit)
    ax.set_xlabel(f"contribution to {quantity_label(quantity, unit)}" + (f", {when}" if when else ""))
    ax.spines[["top", "right", "left"]].set_visible(False)
    if image is not None:
        bar = ax.figure.colorbar(
            image, ax=ax, ticks=[0, 1], aspect=30, label="value of the column (rank);\ngrey: category or missing"
        )
        bar.ax.set_yticklabels(["low", "high"])
        bar.outline.set_visible(False)
    return ax


def _with_value(shap: SurvShap, subject: int, place: int) -> str:
    """A column with the subject's value of it."""
    column = shap.columns[place]
    if column not in shap.X:
        return column
    value = shap.X[column].iloc[subject]
    if pd.isna(value):
        return f"{column} missing"
    number = isinstance(value, (float, np.floating, int, np.integer)) and not isinstance(value, (bool, np.bool_))
    return f"{column} = {number_text(float(value)) if number else value}"


def _levels(values: pd.Series) -> Array:
    """Where each number stands among those of all subjects, from 0 to 1; NaN for categories and missing values."""
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


def _bars(ax: Any, values: Array, labels: list[str], label: str) -> Any:
    ax = axes(ax, (7.2, 1.0 + 0.36 * len(values)))
    height = np.arange(len(values))[::-1]
    ax.barh(height, values, color=[COLOURS[0] if value >= 0 else COLOURS[1] for value in values], height=0.62)
    ax.axvline(0.0, color="0.3", lw=0.8)
    ax.set_yticks(height, labels)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(label)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _finish(ax: Any, label: str, unit: str) -> None:
    ax.axhline(0.0, color="0.6", lw=0.8, zorder=1)
    ax.set_xlabel("time" + (f" ({unit})" if unit else ""))
    ax.set_ylabel(label)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
