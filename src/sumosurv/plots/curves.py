"""Pictures of survival curves and of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from sumosurv.distributions import SurvivalDistribution
from sumosurv.estimators.members import Members, spread
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import check_outcome
from sumosurv.plots._figure import COLOURS, axes, finish, last_seen, shade_beyond

__all__ = ["plot_risk_groups", "plot_survival", "plot_training"]

_SIZE = (7.2, 4.6)


def plot_survival(
    distribution: SurvivalDistribution,
    *,
    horizon: float | None = None,
    labels: Sequence[str] | None = None,
    unit: str = "",
    seen: float | bool | None = None,
    band: Members | None = None,
    level: float = 0.95,
    ax: Any = None,
) -> Any:
    """Survival curves of a few subjects, each with its median (dot) and life expectancy (triangle) marked.

    Marks that fall past the horizon are not drawn; the legend names every subject.

    Parameters
    ----------
    distribution : SurvivalDistribution
        Of the subjects to draw.
    horizon : float, optional
        Last time drawn; by default where the curves are down to 2 %, and no later than ``seen``: give a later one
        to see what is extrapolated, shaded.
    labels : sequence of str, optional
    unit : str
        Of time, for the axis.
    seen : float or False, optional
        The last time in the training data: what lies beyond is shaded as extrapolation. By default what the
        distribution knows of it, as those do that a fitted model predicted; False for no shading.
    band : Members, optional
        ``model.predict_members(X)`` of the same subjects: a band shows how far apart the members of the model are, as
        ``predict_survival_band`` gives it. What it does not show is said there.
    level : float
        The share of the members' weight in the band.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    if band is not None and (not isinstance(band, Members) or len(band.distributions[0]) != len(distribution)):
        raise ValueError("band is model.predict_members(X) of the subjects that are drawn.")
    ax, seen = axes(ax, _SIZE), last_seen(distribution, seen)
    medians, means = distribution.median(), distribution.mean()
    if horizon is None:
        ends = distribution.quantile(0.98)
        horizon = float(ends[np.isfinite(ends)].max()) if np.isfinite(ends).any() else float(seen or 1.0)
        if seen is not None:
            horizon = min(horizon, seen)
    grid = np.linspace(0.0, horizon, 400)
    curves = distribution.survival(grid)
    limits = None if band is None else spread(band, grid, level)
    for i, curve in enumerate(curves):
        colour = COLOURS[i % len(COLOURS)]
        if limits is not None:
            ax.fill_between(grid, limits[0][i], limits[1][i], color=colour, alpha=0.18, lw=0)
        ax.plot(grid, curve, color=colour, lw=2, label=None if labels is None else labels[i])
        for x, marker in ((medians[i], "o"), (means[i], "^")):
            if x <= horizon:
                height = float(distribution[i].survival(float(x))[0])
                ax.plot([x], [height], marker, color=colour, ms=8, mec="white", mew=1.2, zorder=4)
    shade_beyond(ax, seen, horizon)
    handles, names = ax.get_legend_handles_labels()
    line = _line_class()
    handles += [line([], [], ls="", marker="o", color="0.3", ms=7), line([], [], ls="", marker="^", color="0.3", ms=7)]
    names = [*names, "median", "life expectancy"]
    if band is not None:
        from matplotlib.patches import Patch

        handles.append(Patch(color="0.5", alpha=0.3, lw=0))
        names.append(f"{level:.0%} of the networks")
    ax.legend(
        handles,
        names,
        frameon=False,
        fontsize=9,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.13),
        ncol=1 if max(map(len, names)) > 60 else 2,
    )
    finish(ax, "time" + (f" ({unit})" if unit else ""), "survival probability S(t|x)", horizon)
    return ax


def plot_risk_groups(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    groups: int = 4,
    times: Any = None,
    unit: str = "",
    seen: float | bool | None = None,
    ax: Any = None,
) -> Any:
    """Mean predicted survival against Kaplan-Meier within groups of equal size by predicted risk.

    Subjects are ordered by their predicted expected time up to the largest time of y.

    Parameters
    ----------
    distribution : SurvivalDistribution
    y : outcome
        Of the same subjects.
    groups : int
    times : array, optional
        Grid; 200 times up to the largest of y by default.
    unit : str
    seen : float or False, optional
        The last time in the training data: what lies beyond is shaded as extrapolation. By default what the
        distribution knows of it, as those do that a fitted model predicted; False for no shading.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    ax = axes(ax, _SIZE)
    outcome = check_outcome(y, n_rows=len(distribution))
    end = float(outcome.time.max())
    grid = np.linspace(0.0, end, 200) if times is None else np.asarray(times, dtype=np.float64)
    curves = distribution.survival(grid)
    order = np.argsort(-curves.mean(axis=1), kind="stable")
    for i, rows in enumerate(np.array_split(order, groups)):
        colour = COLOURS[i % len(COLOURS)]
        observed = kaplan_meier(outcome[rows])
        ax.step(grid, observed.survival(grid)[0], where="post", color=colour, lw=1.2, alpha=0.75)
        name = {0: " (lowest risk)", groups - 1: " (highest risk)"}.get(i, "")
        ax.plot(grid, curves[rows].mean(axis=0), color=colour, lw=2.2, ls=(0, (5, 2)), label=f"group {i + 1}{name}")
    line = _line_class()
    handles, names = ax.get_legend_handles_labels()
    handles += [line([], [], color="0.3", lw=1.2), line([], [], color="0.3", lw=2.2, ls=(0, (5, 2)))]
    ax.legend(handles, [*names, "Kaplan-Meier", "predicted, mean of the group"], frameon=False, fontsize=9)
    shade_beyond(ax, last_seen(distribution, seen), end)
    finish(ax, "time" + (f" ({unit})" if unit else ""), "survival probability", end)
    return ax


def plot_training(history: Any, *, baseline: float | None = None, ax: Any = None) -> Any:
    """Mean log-likelihood per epoch: each member thin, their mean thick; of several kinds of networks, one mean each.

    Parameters
    ----------
    history : DataFrame, or fitted network estimator
        ``model.history_``, or the model.
    baseline : float, optional
        A horizontal line, for example the likelihood of Kaplan-Meier.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    history = getattr(history, "history_", history)
    if not isinstance(history, pd.DataFrame):
        raise TypeError(
            f"history is model.history_ of a network that was fitted; {type(history).__name__} has none to draw."
        )
    ax = axes(ax, _SIZE)
    kinds = list(history.groupby("kind", sort=False)) if "kind" in history else [("", history)]
    for column, colour, name in (
        ("train", "#0072B2", "training rows (dropout on)"),
        ("valid", "#D55E00", "validation rows"),
    ):
        if history[column].isna().all():
            continue
        for number, (kind, part) in enumerate(kinds):
            table = part.pivot(index="epoch", columns="member", values=column)
            mean = table.mean(axis=1)
            ax.plot(table.index + 1, table.to_numpy(), color=colour, lw=0.6, alpha=0.35)
            ax.plot(table.index + 1, mean, color=colour, lw=2.2, label=None if number else name)
            if column == "valid" and kind:
                end = (table.index[-1] + 1, mean.iloc[-1])
                ax.annotate(kind, end, xytext=(4, 0), textcoords="offset points", va="center", fontsize=8, color="0.3")
    if baseline is not None:
        ax.axhline(baseline, color="0.4", lw=1.2, ls=":", label="Kaplan-Meier on validation rows")
    values = history[["train", "valid"]].to_numpy()
    low, high = np.nanquantile(values, 0.03), np.nanmax(values)
    if baseline is not None:
        low, high = min(low, baseline), max(high, baseline)
    ax.set_ylim(low - 0.05 * (high - low), high + 0.08 * (high - low))
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    ax.set_xlabel("epoch")
    ax.set_ylabel("mean log-likelihood (nats)")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _line_class() -> Any:
    from matplotlib.lines import Line2D

    return Line2D
