"""Plots of predicted and observed curves, of groups of subjects, and of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from sumosurv.distributions import SurvivalDistribution
from sumosurv.fitting.spread import Members, spread
from sumosurv.models import cause_names
from sumosurv.nonparametric import aalen_johansen, at_risk_at, confidence_band, kaplan_meier, turnbull_intervals
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.plots.figure import (
    COLOURS,
    SIZE,
    add_legend,
    axes,
    colour,
    draw_curve,
    finish,
    last_training_time,
    line_handle,
    patch_handle,
    picture,
    shade_beyond,
    time_label,
)

_INSIDE = 4  # most groups whose legend fits beside the curves
_TABLE_TOP, _TABLE_LINE = 46, 14  # points below the axis at which the numbers at risk begin, and per line
_DASHED = (0, (5, 2))


@picture
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
    band : Members, optional
        ``model.predict_members(X)`` of the same subjects: draws the band of ``predict_survival_band``.
    level : float, default 0.95
        Weight of the members inside the band.
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


@picture
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
    subject : int, default 0
        Row of the distribution.
    horizon : float, optional
        Last time drawn; as in `plot_survival`.
    labels : sequence of str, optional
        Names of the K causes.
    """
    if not -len(distribution) <= subject < len(distribution):
        raise ValueError(f"There is no subject {subject}; the distribution has {len(distribution)}, counted from 0.")
    one = distribution[subject]
    names = cause_names(one.n_causes, labels, "labels")
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


@picture
def plot_training(history: Any, *, baseline: float | None = None, ax: Any = None) -> Any:
    """Mean log-likelihood per epoch: members as thin lines, the mean of each component as a thick line.

    Parameters
    ----------
    history : DataFrame, or fitted network estimator
        ``model.history_``, or the model.
    baseline : float, optional
        A horizontal line, for example the log-likelihood of Kaplan-Meier.
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


@picture
def plot_kaplan_meier(
    y: Any,
    by: Any = None,
    *,
    horizon: float | None = None,
    level: float | None = 0.95,
    risk_table: bool = True,
    censoring: bool = True,
    unit: str = "",
    sample_weight: Any = None,
    ax: Any = None,
) -> Any:
    """Kaplan-Meier curves of one or several groups, with limits, censored times and numbers at risk.

    If some rows are interval-censored, the curves are Turnbull's. They are determined up to the position of the mass
    within some intervals: the shaded boxes hold all curves of maximum likelihood, and the line is the one that falls
    evenly. No limits and no censored times are drawn then; `confidence_band` computes limits by the bootstrap.

    Parameters
    ----------
    y : outcome
        Rows with delayed entry are at risk from their entry on.
    by : array of shape (n,), optional
        Group of each row. The name of a pandas Series becomes the title of the legend.
    horizon : float, optional
        Last time drawn; the largest of y by default. A curve ends at the last time of its group.
    level : float, optional, default 0.95
        Level of the (log-log) confidence limits; None for no limits.
    risk_table : bool, default True
        Write the numbers at risk below the ticks of the axis: with weights, their sum; with interval-censored rows, the
        number of rows known to be event-free.
    censoring : bool, default True
        Mark censored times.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents.
    ax : matplotlib Axes, optional
        Axes to draw on; a new figure by default. The numbers at risk lie below them: leave room, or use a constrained
        layout.
    """
    outcome = check_outcome(y, sample_weight=sample_weight).any_cause()
    groups = _groups(outcome, by)
    end = outcome.last_time if horizon is None else float(horizon)
    if not 0.0 < end < np.inf:
        raise ValueError(f"horizon must be a positive time; got {horizon!r}.")
    lines = len(groups) + 1 if risk_table else 0
    ax = axes(ax, (SIZE[0], SIZE[1] + lines * _TABLE_LINE / 72))
    intervals = bool(outcome.in_interval.any())
    for i, (name, rows) in enumerate(groups):
        style = {"color": colour(i), "ls": _line_style(i), "lw": 2, "label": name if by is not None else None}
        if intervals:
            _draw_turnbull(ax, outcome[rows], style)
        else:
            _draw_kaplan_meier(ax, outcome[rows], style, level, censoring)
    finish(ax, time_label(unit), "survival probability", xlim=(0, end), ylim=(0, 1.02))
    undetermined = {"not determined by the data": patch_handle()} if intervals else {}
    if by is not None or intervals:
        add_legend(ax, "inside" if len(groups) <= _INSIDE else "right", extra=undetermined)
        ax.get_legend().set_title(getattr(by, "name", None))
    if risk_table:
        _write_numbers_at_risk(ax, outcome, groups, end, "event-free" if intervals else "at risk")
    return ax


def _draw_kaplan_meier(ax: Any, outcome: Outcome, style: dict[str, Any], level: float | None, censoring: bool) -> None:
    last, curve = float(outcome.time.max()), kaplan_meier(outcome)
    times = np.unique(np.concatenate([[0.0], curve.times.numpy(), [last]]))
    ax.step(times, curve.survival(times)[0], where="post", **style)
    if level is not None:
        band = confidence_band(outcome, level=level)
        at = np.concatenate([[0.0], band["time"], [last]])
        low, high = (np.append(1.0, band[side]) for side in ("lower", "upper"))
        low, high = np.append(low, low[-1]), np.append(high, high[-1])
        ax.fill_between(at, low, high, step="post", color=style["color"], alpha=0.15, lw=0)
    if censoring:
        times = outcome.time[~outcome.event]
        ax.plot(times, curve.survival(times)[0], "|", color=style["color"], ms=6, mew=0.9, alpha=0.7)


def _draw_turnbull(ax: Any, outcome: Outcome, style: dict[str, Any]) -> None:
    found = turnbull_intervals(outcome)
    known = np.isfinite(found.upper)
    lower, upper = found.lower[known], found.upper[known]
    after = 1.0 - np.cumsum(found.mass[known])
    before = np.append(1.0, after[:-1])
    for left, right, high, low in zip(lower, upper, before, after):
        ax.fill_between([left, right], low, high, color=style["color"], alpha=0.25, lw=0)
    times = np.concatenate([[0.0], np.column_stack([lower, upper]).ravel(), [outcome.last_time]])
    heights = np.concatenate([[1.0], np.column_stack([before, after]).ravel(), after[-1:] if len(after) else [1.0]])
    ax.plot(times, np.maximum(heights, 0.0), **style)


def _line_style(number: int) -> Any:
    """The line style of a group: solid for the first seven, then dashed and dotted."""
    return ("-", (0, (4, 1.5)), (0, (1, 1)))[number // len(COLOURS) % 3]


def _groups(outcome: Outcome, by: Any) -> list[tuple[str, Any]]:
    """Names and rows of the groups; rows of weight zero are left out."""
    counted = outcome.weights > 0
    if by is None:
        return [("all", np.flatnonzero(counted))]
    values = np.asarray(by)
    if values.shape != (len(outcome),):
        raise ValueError(f"by must have one group for each of the {len(outcome)} rows; got shape {values.shape}.")
    if any(value is None or value != value for value in values.tolist()):
        raise ValueError("by is missing in some rows; drop these rows, or assign them to a separate group.")
    found = getattr(getattr(by, "cat", None), "categories", None)
    names = sorted(set(values.tolist())) if found is None else list(found)
    groups = [(str(name), np.flatnonzero(counted & (values == name))) for name in names]
    return [(name, rows) for name, rows in groups if len(rows)]


def _write_numbers_at_risk(ax: Any, outcome: Outcome, groups: list[tuple[str, Any]], end: float, heading: str) -> None:
    """A table below the axis, one line per group, spaced in points so that every layout leaves room for it."""
    ticks = np.array([tick for tick in ax.get_xticks() if 0 <= tick <= end * (1 + 1e-9)])
    where = {"textcoords": "offset points", "va": "center", "fontsize": 9, "annotation_clip": False}
    place = ax.get_xaxis_transform()

    def write(line: int, label: str, numbers: Any, color: str) -> None:
        below = -_TABLE_TOP - line * _TABLE_LINE
        ax.annotate(label, (0.0, 0.0), xytext=(-18, below), xycoords=place, ha="right", color=color, **where)
        for tick, number in zip(ticks, numbers):
            ax.annotate(number, (tick, 0.0), xytext=(0, below), xycoords=place, ha="center", color=color, **where)

    write(0, heading, [], "0.3")
    for i, (name, rows) in enumerate(groups):
        write(i + 1, name, [f"{number:.0f}" for number in at_risk_at(outcome[rows], ticks)], colour(i))


@picture
def plot_risk_groups(
    distribution: SurvivalDistribution,
    y: Any,
    *,
    cause: int | None = None,
    groups: int = 4,
    times: Any = None,
    label: str | None = None,
    unit: str = "",
    last_time: float | bool | None = None,
    ax: Any = None,
) -> Any:
    """Mean predicted curves against observed ones within groups of equal size by predicted risk.

    Without a cause the curves are survival and Kaplan-Meier; with one, cumulative incidence and Aalen-Johansen.
    Subjects are ordered by the mean of their predicted curve over the times drawn.

    Parameters
    ----------
    distribution : SurvivalDistribution
    y : outcome
        Outcome of the same subjects.
    cause : int, optional
        Cause, counted from one.
    groups : int, default 4
        Number of groups.
    times : array, optional
        Times at which curves are drawn; 200 times up to the largest of y by default.
    label : str, optional
        Name of the cause, for the axis.
    """
    outcome = check_outcome(y, n_rows=len(distribution))
    grid = np.linspace(0.0, outcome.time.max(), 200) if times is None else np.asarray(times, dtype=np.float64)
    end = float(grid[-1])
    curves = distribution.survival(grid) if cause is None else distribution.cause(cause).cdf(grid)
    ax, top = axes(ax), 0.0
    risk = curves.mean(axis=1) if cause is not None else -curves.mean(axis=1)
    for i, rows in enumerate(np.array_split(np.argsort(risk, kind="stable"), groups)):
        seen = grid[grid <= known_until(outcome[rows])]
        predicted, observed = curves[rows].mean(axis=0), _observed(outcome[rows], seen, cause)
        name = {0: " (lowest risk)", groups - 1: " (highest risk)"}.get(i, "")
        ax.step(seen, observed, where="post", color=colour(i), lw=1.2, alpha=0.75)
        ax.plot(grid, predicted, color=colour(i), lw=2.2, ls=_DASHED, label=f"group {i + 1}{name}")
        top = max(top, float(observed.max(initial=0.0)), float(predicted.max()))
    extra = {
        "Kaplan-Meier" if cause is None else "Aalen-Johansen": line_handle(color="0.3", lw=1.2),
        "predicted, mean of the group": line_handle(color="0.3", lw=2.2, ls=_DASHED),
    }
    add_legend(ax, "below", extra=extra, columns=3 if groups < 7 else 4)
    shade_beyond(ax, last_training_time(distribution, last_time), end)
    of = "survival probability" if cause is None else f"cumulative incidence of {label or f'cause {cause}'}"
    finish(ax, time_label(unit), of, xlim=(0, end), ylim=(0, min(1.02, 1.08 * top or 1.0)))
    return ax


def known_until(outcome: Outcome) -> float:
    """The last time at which a group's curve is known: its last time, or infinity if everyone then had an event."""
    last = float(outcome.time.max())
    return np.inf if outcome.had_event[outcome.time == last].all() else last


def _observed(outcome: Outcome, times: Any, cause: int | None) -> Any:
    if cause is None:
        return kaplan_meier(outcome).survival(times)[0]
    return aalen_johansen(outcome, causes=max(cause, outcome.n_causes)).cumulative_incidence(times)[0, :, cause - 1]
