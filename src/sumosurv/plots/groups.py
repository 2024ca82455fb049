"""Pictures of what was observed in groups: Kaplan-Meier and Turnbull curves, and groups of predicted risk."""

from __future__ import annotations

from typing import Any

import numpy as np

from sumosurv.distributions import SurvivalDistribution
from sumosurv.nonparametric import (
    aalen_johansen,
    at_risk_at,
    confidence_band,
    kaplan_meier,
    turnbull_intervals,
)
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.plots.figure import (
    COLOURS,
    SIZE,
    add_legend,
    axes,
    colour,
    finish,
    last_training_time,
    line_handle,
    patch_handle,
    shade_beyond,
    time_label,
)

__all__ = ["plot_kaplan_meier", "plot_risk_groups"]

_INSIDE = 4  # most groups whose legend fits beside the curves
_TABLE_TOP, _TABLE_LINE = 46, 14  # points below the axis at which the numbers at risk begin, and per line
_DASHED = (0, (5, 2))


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
    level : float, optional
        Level of the (log-log) confidence limits; None for no limits.
    risk_table : bool
        Write the numbers at risk below the ticks of the axis: with weights, their sum; with interval-censored rows, the
        number of rows known to be event-free.
    censoring : bool
        Mark censored times.
    unit : str
        Unit of time, for the axis.
    sample_weight : array of shape (n,), optional
        How many rows each row counts for.
    ax : matplotlib Axes, optional
        Axes to draw on; a new figure by default. The numbers at risk lie below them: leave room, or use a constrained
        layout.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from sumosurv import Surv
    >>> y = Surv.from_arrays(event=[1, 0, 1, 1], time=[1.0, 2.0, 3.0, 4.0])
    >>> plot_kaplan_meier(y, by=["a", "b", "a", "b"]).get_ylabel()
    'survival probability'
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
    """The line of a group: dashed once the colours are used up."""
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
        raise ValueError("by is missing in some rows; leave them out, or make them a group of their own.")
    found = getattr(getattr(by, "cat", None), "categories", None)
    names = sorted(set(values.tolist())) if found is None else list(found)
    groups = [(str(name), np.flatnonzero(counted & (values == name))) for name in names]
    return [(name, rows) for name, rows in groups if len(rows)]


def _write_numbers_at_risk(ax: Any, outcome: Outcome, groups: list[tuple[str, Any]], end: float, heading: str) -> None:
    """A table below the axis, one line per group. Lines are apart by points, so that every layout leaves room."""
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
    groups : int
        Number of groups.
    times : array, optional
        Times at which curves are drawn; 200 times up to the largest of y by default.
    label : str, optional
        Name of the cause, for the axis.
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
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import CauseMixture, Weibull
    >>> d = CauseMixture(np.zeros((40, 2)), [Weibull(np.linspace(1, 3, 40), 1.0)] * 2)
    >>> time, cause = d.sample(random_state=0, return_causes=True)
    >>> plot_risk_groups(d, Surv.from_arrays(cause, time, causes=2), cause=2, groups=2).get_ylabel()
    'cumulative incidence of cause 2'
    """
    outcome = check_outcome(y, n_rows=len(distribution))
    grid = np.linspace(0.0, outcome.time.max(), 200) if times is None else np.asarray(times, dtype=np.float64)
    end = float(grid[-1])
    curves = distribution.survival(grid) if cause is None else distribution.cause(cause).cdf(grid)
    ax, top = axes(ax), 0.0
    risk = curves.mean(axis=1) if cause is not None else -curves.mean(axis=1)
    for i, rows in enumerate(np.array_split(np.argsort(risk, kind="stable"), groups)):
        seen = grid[grid <= outcome.time[rows].max()]  # there is no estimate beyond the last time of the group
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


def _observed(outcome: Outcome, times: Any, cause: int | None) -> Any:
    if cause is None:
        return kaplan_meier(outcome).survival(times)[0]
    return aalen_johansen(outcome, causes=max(cause, outcome.n_causes)).incidence_at(times)[:, cause - 1]
