"""Pictures of competing risks: the incidences of a subject, and predicted ones against Aalen-Johansen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sumosurv.distributions import CompetingRisksDistribution
from sumosurv.nonparametric import aalen_johansen
from sumosurv.outcome import check_outcome
from sumosurv.plots._figure import COLOURS, axes, finish, last_seen, shade_beyond

__all__ = ["plot_incidence_groups", "plot_incidences"]

_SIZE = (7.2, 4.6)


def plot_incidences(
    distribution: CompetingRisksDistribution,
    *,
    subject: int = 0,
    horizon: float | None = None,
    labels: Sequence[str] | None = None,
    unit: str = "",
    seen: float | bool | None = None,
    ax: Any = None,
) -> Any:
    """Cumulative incidences of one subject, one on top of the other; what is left is survival.

    Parameters
    ----------
    distribution : CompetingRisksDistribution
    subject : int
        Its row.
    horizon : float, optional
        Last time drawn; by default where survival is down to 2 %, and no later than ``seen``: give a later one to see
        what is extrapolated, shaded.
    labels : sequence of str, optional
        Names of the K causes.
    unit : str
        Of time, for the axis.
    seen : float or False, optional
        The last time in the training data: what lies beyond is shaded as extrapolation. By default what the
        distribution knows of it, as those do that a fitted model predicted; False for no shading.
    ax : matplotlib Axes, optional

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
    one = _with_causes(distribution)[subject]
    names = _names(labels, one.n_causes)
    ax, seen = axes(ax, _SIZE), last_seen(distribution, seen)
    if horizon is None:
        end = float(one.quantile(0.98)[0])
        horizon = end if np.isfinite(end) else float(seen or 1.0)
        if seen is not None:
            horizon = min(horizon, seen)
    grid = np.linspace(0.0, horizon, 400)
    parts = np.column_stack([one.cumulative_incidence(grid)[0], one.survival(grid)[0]])
    edges = np.column_stack([np.zeros(len(grid)), np.cumsum(parts, axis=1)])
    edges[:, -1] = 1.0
    for k, name in enumerate([*names, "no event yet"]):
        colour = COLOURS[k % len(COLOURS)] if k < len(names) else "0.92"
        ax.fill_between(grid, edges[:, k], edges[:, k + 1], color=colour, alpha=0.85, lw=0, label=name)
        if k:
            ax.plot(grid, edges[:, k], color="white", lw=1.2)
    shade_beyond(ax, seen, horizon, cover=True)
    handles, texts = ax.get_legend_handles_labels()
    columns = min(4, len(texts)) if max(map(len, texts)) <= 24 else 2
    ax.legend(handles, texts, frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=columns)
    finish(ax, "time" + (f" ({unit})" if unit else ""), "probability", horizon, top=1.0)
    return ax


def plot_incidence_groups(
    distribution: CompetingRisksDistribution,
    y: Any,
    *,
    cause: int,
    groups: int = 4,
    times: Any = None,
    label: str | None = None,
    unit: str = "",
    seen: float | bool | None = None,
    ax: Any = None,
) -> Any:
    """Mean predicted incidence of one cause against Aalen-Johansen within groups of equal size by predicted risk.

    Subjects are ordered by their mean predicted incidence over the times drawn.

    Parameters
    ----------
    distribution : CompetingRisksDistribution
    y : outcome
        Of the same subjects.
    cause : int
        Counted from one.
    groups : int
    times : array, optional
        Grid; 200 times up to the largest of y by default.
    label : str, optional
        Name of the cause, for the axis.
    unit : str
    seen : float or False, optional
        The last time in the training data: what lies beyond is shaded as extrapolation. By default what the
        distribution knows of it, as those do that a fitted model predicted; False for no shading.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import CauseMixture, Weibull
    >>> d = CauseMixture(np.zeros((40, 2)), [Weibull(np.linspace(1, 3, 40), 1.0)] * 2)
    >>> time, cause = d.sample(random_state=0)
    >>> plot_incidence_groups(d, Surv.from_arrays(cause, time, causes=2), cause=2, groups=2).get_ylabel()
    'cumulative incidence of cause 2'
    """
    outcome = check_outcome(y, n_rows=len(distribution))
    place = _place(distribution, cause)
    ax = axes(ax, _SIZE)
    end = float(outcome.time.max())
    grid = np.linspace(0.0, end, 200) if times is None else np.asarray(times, dtype=np.float64)
    curves = distribution.cumulative_incidence(grid)[..., place]
    order = np.argsort(curves.mean(axis=1), kind="stable")
    top = 0.0
    for i, rows in enumerate(np.array_split(order, groups)):
        colour = COLOURS[i % len(COLOURS)]
        found = aalen_johansen(outcome[rows], causes=distribution.n_causes)
        last = grid[grid <= outcome.time[rows].max()]  # no estimate past the last time of the group
        observed, predicted = found.incidence_at(last)[:, place], curves[rows].mean(axis=0)
        ax.step(last, observed, where="post", color=colour, lw=1.2, alpha=0.75)
        name = {0: " (lowest risk)", groups - 1: " (highest risk)"}.get(i, "")
        ax.plot(grid, predicted, color=colour, lw=2.2, ls=(0, (5, 2)), label=f"group {i + 1}{name}")
        top = max(top, float(observed.max(initial=0.0)), float(predicted.max()))
    from matplotlib.lines import Line2D

    handles, names = ax.get_legend_handles_labels()
    handles += [Line2D([], [], color="0.3", lw=1.2), Line2D([], [], color="0.3", lw=2.2, ls=(0, (5, 2)))]
    ax.legend(
        handles,
        [*names, "Aalen-Johansen", "predicted, mean of the group"],
        frameon=False,
        fontsize=9,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.13),
        ncol=3 if groups < 7 else 4,
    )
    shade_beyond(ax, last_seen(distribution, seen), float(grid[-1]))
    of = f"cumulative incidence of {label or f'cause {cause}'}"
    finish(ax, "time" + (f" ({unit})" if unit else ""), of, float(grid[-1]), top=min(1.02, 1.08 * top or 1.0))
    return ax


def _with_causes(distribution: Any) -> CompetingRisksDistribution:
    if not isinstance(distribution, CompetingRisksDistribution):
        raise TypeError(
            "This picture needs a distribution with causes, as models that were fitted to several causes predict; got "
            f"{type(distribution).__name__}."
        )
    return distribution


def _names(labels: Sequence[str] | None, n_causes: int) -> list[str]:
    if labels is None:
        return [f"cause {k + 1}" for k in range(n_causes)]
    if len(labels) != n_causes:
        raise ValueError(f"Give a label for each of the {n_causes} causes; got {len(labels)}.")
    return list(labels)


def _place(distribution: Any, cause: int) -> int:
    _with_causes(distribution).cause(cause)  # which refuses a cause that is not there
    return int(cause) - 1
