"""Kaplan-Meier curves of groups, with their limits and the numbers at risk."""

from __future__ import annotations

from typing import Any

import numpy as np

from sumosurv.nonparametric import at_risk_at, confidence_band, kaplan_meier, refuse_intervals
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.plots._figure import COLOURS, axes, finish

__all__ = ["plot_kaplan_meier"]

_SIZE = (7.2, 4.6)
_INSIDE = 4  # groups whose legend finds room beside the curves
_LINE = 0.055  # of the height of the axes, for each line of the table


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
    """Kaplan-Meier curves of one or several groups, with limits, censored times and a table of the numbers at risk.

    Parameters
    ----------
    y : outcome
        Of exact and right-censored times; rows that enter late are at risk from their entry on.
    by : array of shape (n,), optional
        The group of each row; a pandas Series gives the table its name.
    horizon : float, optional
        Last time drawn; the largest of y by default. A curve ends at the last time of its group.
    level : float, optional
        Of the limits (log-log); None for no limits.
    risk_table : bool
        Under the axis, how many are at risk at each of its ticks. With weights, their sum.
    censoring : bool
        Mark censored times.
    unit : str
        Of time, for the axis.
    sample_weight : array of shape (n,), optional
        How many rows each row counts for.
    ax : matplotlib Axes, optional
        Draw here; a new figure otherwise. The table lies below it: leave room, or use a constrained layout.

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
    refuse_intervals(outcome, "Kaplan-Meier curves")
    groups = _groups(outcome, by)
    ax = axes(ax, _SIZE)
    end = float(outcome.time.max()) if horizon is None else float(horizon)
    if not 0.0 < end < np.inf:
        raise ValueError(f"horizon is a positive time; got {horizon!r}.")
    for i, (name, rows) in enumerate(groups):
        own, colour = outcome[rows], COLOURS[i % len(COLOURS)]
        last = float(own.time.max())
        curve = kaplan_meier(own)
        times = np.unique(np.concatenate([[0.0], curve.times.numpy(), [last]]))
        ax.step(
            times, curve.survival(times)[0], where="post", color=colour, ls=_style(i), lw=2,
            label=name if by is not None else None,
        )  # fmt: skip
        if level is not None:
            band = confidence_band(own, level=level)
            low, high = (np.append(1.0, band[side]) for side in ("lower", "upper"))
            at = np.append(0.0, band["time"])
            ax.fill_between(
                np.append(at, last), np.append(low, low[-1]), np.append(high, high[-1]),
                step="post", color=colour, alpha=0.15, lw=0,
            )  # fmt: skip
        if censoring:
            ended = own.time[~own.event & (own.time <= end)]
            ax.plot(ended, curve.survival(ended)[0], "|", color=colour, ms=6, mew=0.9, alpha=0.7)
    finish(ax, "time" + (f" ({unit})" if unit else ""), "survival probability", end)
    if by is not None:
        place = {"loc": "best"} if len(groups) <= _INSIDE else {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        ax.legend(frameon=False, fontsize=9, title=getattr(by, "name", None), **place)
    if risk_table:
        _at_risk(ax, outcome, groups, end)
    return ax


def _style(number: int) -> Any:
    """The line of a group: where colours are used up, dashed."""
    return ("-", (0, (4, 1.5)), (0, (1, 1)))[number // len(COLOURS) % 3]


def _groups(outcome: Outcome, by: Any) -> list[tuple[str, Any]]:
    """Names and rows of the groups, without rows that do not count."""
    counted = outcome.weights > 0
    if by is None:
        return [("all", np.flatnonzero(counted))]
    values = np.asarray(by)
    if values.shape != (len(outcome),):
        raise ValueError(f"by has one group for each of the {len(outcome)} rows; got shape {values.shape}.")
    if any(value is None or value != value for value in values.tolist()):
        raise ValueError("by is missing in some rows; leave them out, or make them a group of their own.")
    found = getattr(getattr(by, "cat", None), "categories", None)
    names = sorted(set(values.tolist())) if found is None else list(found)
    made = [(str(name), np.flatnonzero(counted & (values == name))) for name in names]
    return [(name, rows) for name, rows in made if len(rows)]


def _at_risk(ax: Any, outcome: Outcome, groups: list[tuple[str, Any]], end: float) -> None:
    """The table under the axis: a line for each group."""
    ticks = np.array([tick for tick in ax.get_xticks() if 0 <= tick <= end * (1 + 1e-9)])
    height = _LINE * (len(groups) + 1)
    table = ax.inset_axes((0.0, -0.17 - height, 1.0, height))
    table.set(xlim=ax.get_xlim(), ylim=(-(len(groups)) - 0.5, 0.5))
    table.axis("off")
    table.text(0.0, 0, "at risk", fontsize=9, color="0.3", va="center", ha="right", transform=_beside(table))
    for i, (name, rows) in enumerate(groups):
        colour = COLOURS[i % len(COLOURS)]
        table.text(0.0, -1 - i, name, fontsize=9, color=colour, va="center", ha="right", transform=_beside(table))
        for tick, number in zip(ticks, at_risk_at(outcome[rows], ticks)):
            table.text(tick, -1 - i, f"{number:.0f}", fontsize=9, color=colour, va="center", ha="center")


def _beside(ax: Any) -> Any:
    """Left of the axes by a little, at heights of the data."""
    from matplotlib.transforms import ScaledTranslation

    return ax.get_yaxis_transform() + ScaledTranslation(-0.25, 0.0, ax.figure.dpi_scale_trans)
