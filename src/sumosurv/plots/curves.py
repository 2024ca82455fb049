"""Pictures of predicted curves, and of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from sumosurv.distributions import SurvivalDistribution
from sumosurv.fitting.members import Members, spread
from sumosurv.plots.figure import (
    add_legend,
    axes,
    colour,
    draw_curve,
    finish,
    last_training_time,
    line_handle,
    patch_handle,
    shade_beyond,
    time_label,
)

__all__ = ["plot_incidences", "plot_survival", "plot_training"]


def plot_survival(
    distribution: SurvivalDistribution,
    *,
    horizon: float | None = None,
    labels: Sequence[str] | None = None,
    unit: str = "",
    last_time: float | bool | None = None,
    band: Members | None = None,
    level: float = 0.95,
    ax: Any = None,
) -> Any:
    """Survival curves of a few subjects, each with its median (dot) and life expectancy (triangle).

    Marks beyond the horizon are not drawn.

    Parameters
    ----------
    distribution : SurvivalDistribution
        One curve per subject.
    horizon : float, optional
        Last time drawn. By default the time at which the curves have fallen to 2 %, but no later than ``last_time``;
        give a later time to see the extrapolation.
    labels : sequence of str, optional
        Names of the subjects.
    unit : str
        Unit of time, for the axis.
    last_time : float or False, optional
        Last time in the training data: later times are shaded. By default the distribution's own; False for no shading.
    band : Members, optional
        ``model.predict_members(X)`` of the same subjects: draws the band of ``predict_survival_band``.
    level : float
        Weight of the members inside the band.
    ax : matplotlib Axes, optional
        Axes to draw on; a new figure by default.

    Returns
    -------
    matplotlib Axes
    """
    if band is not None and (not isinstance(band, Members) or len(band.distributions[0]) != len(distribution)):
        raise ValueError("band must be model.predict_members(X) of the subjects that are drawn.")
    ax, last_time = axes(ax), last_training_time(distribution, last_time)
    medians, means = distribution.median(), distribution.mean()
    end = _horizon(distribution, last_time) if horizon is None else horizon
    grid = np.linspace(0.0, end, 400)
    curves = distribution.survival(grid)
    low, high = (None, None) if band is None else spread(band, grid, level)
    for i, curve in enumerate(curves):
        limits = () if low is None or high is None else (low[i], high[i])
        draw_curve(ax, grid, curve, *limits, colour=colour(i), label=None if labels is None else labels[i])
        for x, marker in ((medians[i], "o"), (means[i], "^")):
            if x <= end:
                height = float(distribution[i].survival(float(x))[0])
                ax.plot([x], [height], marker, color=colour(i), ms=8, mec="white", mew=1.2, zorder=4)
    shade_beyond(ax, last_time, end)
    extra = {
        "median": line_handle(ls="", marker="o", color="0.3", ms=7),
        "life expectancy": line_handle(ls="", marker="^", color="0.3", ms=7),
    }
    if band is not None:
        extra[f"{level:.0%} of the networks"] = patch_handle()
    add_legend(ax, "below", extra=extra, columns=1 if max(map(len, labels or [""])) > 60 else 2)
    finish(ax, time_label(unit), "survival probability S(t|x)", xlim=(0, end), ylim=(0, 1.02))
    return ax


def plot_incidences(
    distribution: SurvivalDistribution,
    *,
    subject: int = 0,
    horizon: float | None = None,
    labels: Sequence[str] | None = None,
    unit: str = "",
    last_time: float | bool | None = None,
    ax: Any = None,
) -> Any:
    """Cumulative incidences of one subject, stacked; the remainder is survival.

    Parameters
    ----------
    distribution : SurvivalDistribution
    subject : int
        Row of the distribution.
    horizon : float, optional
        Last time drawn; as in `plot_survival`.
    labels : sequence of str, optional
        Names of the K causes.
    unit : str
        Unit of time, for the axis.
    last_time : float or False, optional
        Last time in the training data: later times are shaded. By default the distribution's own; False for no shading.
    ax : matplotlib Axes, optional
        Axes to draw on; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from sumosurv.distributions import CauseMixture, Weibull
    >>> d = CauseMixture(np.log([[0.7, 0.3]]), [Weibull([1.0], [1.0]), Weibull([2.0], [1.5])])
    >>> len(plot_incidences(d, labels=["relapse", "death"]).collections)
    3
    """
    if not -len(distribution) <= subject < len(distribution):
        raise ValueError(f"There is no subject {subject}; the distribution has {len(distribution)}, counted from 0.")
    one = distribution[subject]
    names = [f"cause {k + 1}" for k in range(one.n_causes)] if labels is None else list(labels)
    if len(names) != one.n_causes:
        raise ValueError(f"labels must name each of the {one.n_causes} causes; got {len(names)}.")
    ax, last_time = axes(ax), last_training_time(distribution, last_time)
    end = _horizon(one, last_time) if horizon is None else horizon
    grid = np.linspace(0.0, end, 400)
    parts = np.column_stack([one.cumulative_incidence(grid)[0], one.survival(grid)[0]])
    edges = np.column_stack([np.zeros(len(grid)), np.cumsum(parts, axis=1)])
    edges[:, -1] = 1.0
    for k, name in enumerate([*names, "no event yet"]):
        fill = colour(k) if k < len(names) else "0.92"
        ax.fill_between(grid, edges[:, k], edges[:, k + 1], color=fill, alpha=0.85, lw=0, label=name)
        if k:
            ax.plot(grid, edges[:, k], color="white", lw=1.2)
    shade_beyond(ax, last_time, end, cover=True)
    add_legend(ax, "below", columns=min(4, len(names) + 1) if max(map(len, names)) <= 24 else 2)
    finish(ax, time_label(unit), "probability", xlim=(0, end), ylim=(0, 1))
    return ax


def plot_training(history: Any, *, baseline: float | None = None, ax: Any = None) -> Any:
    """Mean log-likelihood per epoch: members as thin lines, the mean of each component as a thick line.

    Parameters
    ----------
    history : DataFrame, or fitted network estimator
        ``model.history_``, or the model.
    baseline : float, optional
        A horizontal line, for example the log-likelihood of Kaplan-Meier.
    ax : matplotlib Axes, optional
        Axes to draw on; a new figure by default.

    Returns
    -------
    matplotlib Axes
    """
    history = getattr(history, "history_", history)
    if not isinstance(history, pd.DataFrame):
        raise TypeError(
            f"history must be a fitted network estimator or its history_; {type(history).__name__} has no history."
        )
    ax = axes(ax)
    components = list(history.groupby("component", sort=False))
    for column, shade, name in (
        ("train", colour(0), "training rows (dropout on)"),
        ("valid", colour(1), "validation rows"),
    ):
        if history[column].isna().all():
            continue
        for number, (component, part) in enumerate(components):
            table = part.pivot(index="epoch", columns="member", values=column)
            mean = table.mean(axis=1)
            ax.plot(table.index + 1, table.to_numpy(), color=shade, lw=0.6, alpha=0.35)
            ax.plot(table.index + 1, mean, color=shade, lw=2.2, label=None if number else name)
            if column == "valid" and len(components) > 1:
                end = (table.index[-1] + 1, mean.iloc[-1])
                ax.annotate(
                    component, end, xytext=(4, 0), textcoords="offset points", va="center", fontsize=8, color="0.3"
                )
    values = history[["train", "valid"]].to_numpy()
    low, high = np.nanquantile(values, 0.03), np.nanmax(values)
    if baseline is not None:
        ax.axhline(baseline, color="0.4", lw=1.2, ls=":", label="Kaplan-Meier on validation rows")
        low, high = min(low, baseline), max(high, baseline)
    add_legend(ax, "inside")
    edge = 0.05 * (high - low)
    finish(ax, "epoch", "mean log-likelihood (nats)", ylim=(low - edge, high + 1.6 * edge))
    return ax


def _horizon(distribution: SurvivalDistribution, last_time: float | None) -> float:
    """The time at which all curves have fallen to 2 %, but no later than the last training time."""
    ends = np.asarray(distribution.quantile(0.98))
    if not np.isfinite(ends).any():
        return float(last_time or 1.0)
    end = float(ends[np.isfinite(ends)].max())
    return end if last_time is None else min(end, last_time)
