"""Pictures for decisions: net benefit over thresholds of risk, hazard ratios with their limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sumosurv.estimators import CoxPH
from sumosurv.plots._figure import COLOURS, axes, below
from sumosurv.scores import DecisionCurve

__all__ = ["plot_decision_curve", "plot_hazard_ratios"]

_SIZE = (7.2, 4.6)


def plot_decision_curve(
    result: DecisionCurve | Mapping[str, DecisionCurve],
    *,
    thresholds: tuple[float, float] | None = None,
    ax: Any = None,
) -> Any:
    """Net benefit of one or several models against treating everyone and no one, with limits of each model.

    Parameters
    ----------
    result : DecisionCurve, or mapping of names to them
        From `sumosurv.scores.decision_curve`, of the same subjects at the same time.
    thresholds : (low, high), optional
        The range that is drawn; by default up to where no model treats more than one subject in a hundred.
    ax : matplotlib Axes, optional
        Draw here; a new figure otherwise.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> from sumosurv.scores import decision_curve
    >>> y = Surv.from_arrays(np.ones(50, bool), np.linspace(0.1, 3, 50))
    >>> plot_decision_curve(decision_curve(Weibull(np.linspace(0.5, 2, 50), 1.0), y, 1.0, n_bootstrap=20)).get_ylabel()
    'net benefit'
    """
    several = {"model": result} if isinstance(result, DecisionCurve) else dict(result)
    if not several or len({(curve.time, curve.cause) for curve in several.values()}) != 1:
        raise ValueError("Give one or several decision curves, all at the same time and of the same cause.")
    first = next(iter(several.values()))
    if all(curve.table["net_benefit"].isna().all() for curve in several.values()):
        raise ValueError(f"Nobody is followed up to time {first.time:g}, so that net benefit is not known there.")
    ax = axes(ax, _SIZE)
    if thresholds is None:
        used = [curve.table.index[curve.table["treated"] > 0.01] for curve in several.values()]
        ends = [float(part.max()) for part in used if len(part)]
        thresholds = float(first.table.index.min()), max(ends, default=1.0)
    low, high = thresholds
    heights = [0.0]
    for colour, (name, curve) in zip(_colours(len(several)), several.items()):
        table = curve.table[(curve.table.index >= low) & (curve.table.index <= high)]
        ax.fill_between(
            table.index, table["net_benefit_lower"], table["net_benefit_upper"], color=colour, alpha=0.15, lw=0
        )
        ax.plot(table.index, table["net_benefit"], color=colour, lw=2, label=name)
        heights += table[["net_benefit", "net_benefit_upper"]].to_numpy().ravel().tolist()
    table = first.table[(first.table.index >= low) & (first.table.index <= high)]
    ax.plot(table.index, table["treat_all"], color="0.35", lw=1.4, ls="--", label="treat all")
    ax.axhline(0.0, color="0.35", lw=1.4, ls=":", label="treat none")
    top = np.nanmax([*heights, float(table["treat_all"].max())])
    ax.set(xlim=(low, high), ylim=(-0.15 * top, 1.08 * top) if top > 0 else None)
    what = "risk" if first.cause is None else f"risk of cause {first.cause}"
    ax.set(xlabel=f"threshold of the {what} at time {first.time:.4g}", ylabel="net benefit")
    ax.spines[["top", "right"]].set_visible(False)
    if table["net_benefit_lower"].notna().any():
        ax.fill_between([], [], color="0.5", alpha=0.25, lw=0, label=f"{first.level:.0%} limits")
    below(ax, columns=4)
    return ax


def plot_hazard_ratios(
    model: CoxPH, *, per: Mapping[str, float] | None = None, level: float = 0.95, ax: Any = None
) -> Any:
    """Hazard ratios of a Cox model with their limits, on a logarithmic axis: a forest plot.

    Terms that were left out of the fit are named and have no mark.

    Parameters
    ----------
    model : CoxPH
        Fitted.
    per : mapping of terms to numbers, optional
        A ratio for so many units of a column instead of one: ``{"age": 10}``.
    level : float
        Of the limits.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from sumosurv import CoxPH, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> [text.get_text() for text in plot_hazard_ratios(CoxPH().fit(data.X, data.y)).get_yticklabels()]
    ['x']
    """
    if not isinstance(model, CoxPH):
        raise TypeError(f"Hazard ratios are those of a CoxPH; got {type(model).__name__}.")
    table, per = model.summary(level), dict(per or {})
    if unknown := sorted(set(per) - set(table.index)):
        raise ValueError(
            f"per names {', '.join(map(repr, unknown))}; the terms are {', '.join(map(repr, table.index))}."
        )
    if not all(0 < units < np.inf for units in per.values()):
        raise ValueError(f"per holds positive numbers of units; got {per}.")
    power = np.array([per.get(term, 1.0) for term in table.index])
    names = [f"{term}, per {per[term]:g}" if term in per else term for term in table.index]
    ax = axes(ax, (7.2, 1.4 + 0.32 * len(table)))
    places = np.arange(len(table))[::-1]
    columns = ("hazard_ratio", "hazard_ratio_lower", "hazard_ratio_upper")
    ratio, lower, upper = (table[column].to_numpy() ** power for column in columns)
    ax.axvline(1.0, color="0.45", ls="--", lw=1.2)
    ax.hlines(places, lower, upper, color=COLOURS[0], lw=1.8)
    ax.plot(ratio, places, "s", color=COLOURS[0], ms=6)
    ax.set_xscale("log")
    known = np.isfinite(lower) & np.isfinite(upper) & (lower > 0)
    ends = np.concatenate([lower[known], upper[known], [1.0]])
    low, high = np.log(ends.min()), np.log(ends.max())
    edge = 0.06 * max(high - low, 0.1)
    ax.set_xlim(np.exp(low - edge), np.exp(high + edge))
    _plain_ticks(ax)
    ax.set_yticks(places, names)
    ax.set_ylim(-0.7, len(table) - 0.3)
    ax.set_xlabel(f"hazard ratio ({level:.0%} limits)")
    for place, values in zip(places, zip(ratio, lower, upper)):
        text = "left out" if np.isnan(values[0]) else f"{values[0]:.2f} ({values[1]:.2f} to {values[2]:.2f})"
        ax.text(1.02, place, text, transform=ax.get_yaxis_transform(), va="center", fontsize=9)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return ax


def _plain_ticks(ax: Any) -> None:
    """Numbers such as 0.5, 1 and 2 on a logarithmic axis, also where it spans less than a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    low, high = ax.get_xlim()
    decades = np.log10(high / low)
    if decades < 0.3:  # as on a linear axis: a logarithmic locator would find one tick or none
        ax.xaxis.set_major_locator(MaxNLocator(6))
    else:
        subs = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if decades < 1.2 else (1.0, 2.0, 5.0) if decades < 2.5 else (1.0,)
        ax.xaxis.set_major_locator(LogLocator(subs=subs))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _colours(n: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(n)]
