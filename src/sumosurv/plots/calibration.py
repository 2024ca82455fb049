"""Pictures of calibration: the paper's curve, the D-calibration histogram, groups against Kaplan-Meier and the like."""

from __future__ import annotations

from typing import Any

import numpy as np

from sumosurv.calibrate import SmoothCalibration
from sumosurv.plots._figure import COLOURS, axes, mark
from sumosurv.scores import Calibration, DCalibration, IncidenceCalibration, KMCalibration

__all__ = [
    "plot_calibration",
    "plot_d_calibration",
    "plot_incidence_calibration",
    "plot_km_calibration",
    "plot_smooth_calibration",
]

_SIZE = (4.2, 4.0)
_MODEL, _IDEAL = COLOURS[0], "0.45"


def plot_calibration(result: Calibration, *, ax: Any = None, label: str | None = None) -> Any:
    """Observed share of F(z|x) <= p against p; on the diagonal where the two agree.

    Parameters
    ----------
    result : Calibration
        From `sumosurv.scores.calibration`.
    ax : matplotlib Axes, optional
        Draw here; a new figure otherwise.
    label : str, optional
        Name of the model in the legend.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> from sumosurv.scores import calibration
    >>> y = Surv.from_arrays(np.ones(50, bool), np.linspace(0.1, 3, 50))
    >>> plot_calibration(calibration(Weibull(np.ones(50), 1.0), y)).get_xlabel()
    'probability p'
    """
    ax = axes(ax, _SIZE)
    _diagonal(ax)
    named = label and f"{label}, score {result.score:.3g}"
    ax.plot(result.expected, result.observed, "o-", color=_next_colour(ax), ms=5, label=named)
    ax.set(xlabel="probability p", ylabel="share of subjects with F(z|x) ≤ p", xlim=(0, 1), ylim=(0, 1))
    ax.set_aspect("equal")
    ax.set_title("Calibration" if label else f"Calibration, score {result.score:.3g}")
    return _finish(ax, label)


def plot_d_calibration(result: DCalibration, *, ax: Any = None) -> Any:
    """Share of subjects in each bin of F(T|x); level where the model is calibrated.

    Parameters
    ----------
    result : DCalibration
        From `sumosurv.scores.d_calibration`.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> from sumosurv.scores import d_calibration
    >>> y = Surv.from_arrays(np.ones(50, bool), np.linspace(0.1, 3, 50))
    >>> len(plot_d_calibration(d_calibration(Weibull(np.ones(50), 1.0), y)).patches)
    10
    """
    ax = axes(ax, _SIZE)
    bins = len(result.shares)
    ax.bar(
        result.edges[:-1], result.shares, np.diff(result.edges), align="edge", color=_MODEL, alpha=0.75, edgecolor="w"
    )
    ax.axhline(1.0 / bins, color=_IDEAL, ls="--", lw=1.2)
    ax.set(xlabel="F(T|x), censored rows spread above F(z|x)", ylabel="share of subjects", xlim=(0, 1))
    ax.set_title(f"D-calibration, p = {result.p_value:.3g}")
    return _finish(ax, None)


def plot_km_calibration(result: KMCalibration, *, ax: Any = None, label: str | None = None) -> Any:
    """Kaplan-Meier against predicted survival at one time, by groups of risk, with 95 % intervals.

    Parameters
    ----------
    result : KMCalibration
        From `sumosurv.scores.km_calibration`.
    ax : matplotlib Axes, optional
    label : str, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> from sumosurv.scores import km_calibration
    >>> y = Surv.from_arrays(np.ones(50, bool), np.linspace(0.1, 3, 50))
    >>> plot_km_calibration(km_calibration(Weibull(np.ones(50), 1.0), y, 1.0)).get_ylabel()
    'Kaplan-Meier'
    """
    test = f"p = {result.p_value:.3g}"
    ax = _plot_groups(result, "S", "Kaplan-Meier", 1.0, ax, label and f"{label}, {test}")
    ax.set_title(f"At time {result.time:.4g}" + ("" if label else f", {test}"))
    return ax


def plot_incidence_calibration(result: IncidenceCalibration, *, ax: Any = None, label: str | None = None) -> Any:
    """Aalen-Johansen against predicted incidence at one time, by groups of risk, with 95 % intervals.

    Parameters
    ----------
    result : IncidenceCalibration
        From `sumosurv.scores.incidence_calibration`.
    ax : matplotlib Axes, optional
    label : str, optional
        Name of the model in the legend.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import CauseMixture, Weibull
    >>> from sumosurv.scores import incidence_calibration
    >>> d = CauseMixture(np.zeros((40, 2)), [Weibull(np.linspace(1, 3, 40), 1.0)] * 2)
    >>> time, cause = d.sample(random_state=0)
    >>> result = incidence_calibration(d, Surv.from_arrays(cause, time, causes=2), 1.0, cause=2, groups=4)
    >>> plot_incidence_calibration(result).get_ylabel()
    'Aalen-Johansen'
    """
    seen = ~np.isnan(result.observed)
    highest = np.append(result.observed[seen] + np.nan_to_num(1.96 * result.std_error[seen]), result.predicted)
    of = "F" if result.cause is None else f"F$_{{{result.cause}}}$"
    ax = _plot_groups(result, of, "Aalen-Johansen", min(1.0, 1.08 * float(highest.max())) or 1.0, ax, label)
    about = "Any cause" if result.cause is None else f"Cause {result.cause}"
    ax.set_title(f"{about} at time {result.time:.4g}")
    return ax


def plot_smooth_calibration(result: SmoothCalibration, *, ax: Any = None, label: str | None = None) -> Any:
    """Observed against predicted risk at one time, smoothed, with limits if there are any; below, a histogram.

    Parameters
    ----------
    result : SmoothCalibration
        From `sumosurv.calibrate.smooth_calibration`.
    ax : matplotlib Axes, optional
    label : str, optional
        Name of the model in the legend; for several models on one ``ax``.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from sumosurv import Surv
    >>> from sumosurv.calibrate import smooth_calibration
    >>> from sumosurv.distributions import Weibull
    >>> d = Weibull(np.linspace(1, 3, 100), 1.0)
    >>> y = Surv.from_arrays(np.ones(100, bool), d.sample(random_state=0))
    >>> plot_smooth_calibration(smooth_calibration(d, y, 1.0)).get_ylabel()
    'observed risk, smoothed'
    """
    ax = axes(ax, _SIZE)
    first = not ax.lines
    if first:
        _diagonal(ax)
    colour = _next_colour(ax)
    if not np.isnan(result.lower).all():
        ax.fill_between(result.grid, result.lower, result.upper, color=colour, alpha=0.18, lw=0)
    ax.plot(result.grid, result.curve, color=colour, lw=2, label=label, marker=mark(result.grid))
    reach = max(float(result.predicted.max()), float(result.curve.max()), float(np.nan_to_num(result.upper).max()))
    top = min(1.0, 1.05 * reach) if first else max(ax.get_xlim()[1], min(1.0, 1.05 * reach))
    if len(result.grid) == 1 and not np.isnan(result.lower).all():
        ax.vlines(result.grid, result.lower, result.upper, color=colour, lw=2, alpha=0.4)
    heights, edges = np.histogram(result.predicted, bins=40, range=(0.0, top))
    bars = 0.12 * top * heights / heights.max()  # a tenth of the picture, under the curve
    ax.bar(edges[:-1], bars, np.diff(edges), align="edge", color=colour, alpha=0.35, lw=0, zorder=1)
    of = "F" if result.cause is None else f"F$_{{{result.cause}}}$"
    ax.set(xlabel=f"predicted {of}({result.time:.4g}|x); bars: how many", ylabel="observed risk, smoothed")
    ax.set(xlim=(0, top), ylim=(0, top))
    ax.set_aspect("equal")
    if label is None:
        ax.set_title(f"ICI {result.ici:.3f}, E50 {result.e50:.3f}, E90 {result.e90:.3f}", fontsize=10)
    else:
        ax.lines[-1].set_label(f"{label}, ICI {result.ici:.3f}")
    return _finish(ax, label)


def _plot_groups(
    result: KMCalibration | IncidenceCalibration, of: str, estimate: str, top: float, ax: Any, label: str | None
) -> Any:
    """What was observed against what was predicted in each group, with 95 % intervals cut at 0 and 1."""
    ax = axes(ax, _SIZE)
    if ax.lines:
        top = max(top, ax.get_xlim()[1])
    _diagonal(ax)
    seen = ~np.isnan(result.observed)
    observed, half = result.observed[seen], 1.96 * result.std_error[seen]
    ax.errorbar(
        result.predicted[seen],
        observed,
        yerr=[np.minimum(half, observed), np.minimum(half, 1.0 - observed)],
        fmt="o",
        color=_next_colour(ax),
        ms=5,
        capsize=2,
        lw=1.2,
        label=label,
    )
    ax.set(xlabel=f"predicted {of}({result.time:.4g}|x), mean of group", ylabel=estimate)
    ax.set(xlim=(0, top), ylim=(0, top))
    ax.set_aspect("equal")
    return _finish(ax, label)


def _next_colour(ax: Any) -> str:
    """The colour of the next model: one for each that has a name in the legend."""
    return COLOURS[len(ax.get_legend_handles_labels()[1]) % len(COLOURS)]


def _diagonal(ax: Any) -> None:
    ax.plot([0, 1], [0, 1], color=_IDEAL, ls="--", lw=1.2)


def _finish(ax: Any, label: str | None) -> Any:
    ax.spines[["top", "right"]].set_visible(False)
    if label is not None:
        ax.legend(frameon=False)
    return ax
