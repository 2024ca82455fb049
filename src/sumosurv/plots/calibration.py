"""Pictures of calibration, one for each kind of result."""

from __future__ import annotations

from typing import Any

import numpy as np

from sumosurv.calibrate import SmoothCalibration
from sumosurv.plots.figure import add_legend, axes, colour, draw_curve, finish
from sumosurv.scores import Calibration, DCalibration, IncidenceCalibration, KMCalibration

__all__ = ["plot_calibration"]

_SIZE = (4.2, 4.0)
_IDEAL = {"color": "0.45", "ls": "--", "lw": 1.2}


def plot_calibration(
    result: Calibration | DCalibration | KMCalibration | IncidenceCalibration | SmoothCalibration,
    *,
    label: str | None = None,
    ax: Any = None,
) -> Any:
    """A calibration result: on the dashed line, predictions and observations agree.

    ==================================  ===============================================================================
    result of                           picture
    ==================================  ===============================================================================
    `calibration`                       share of subjects with F(z|x) ≤ p against p
    `d_calibration`                     share of subjects in each bin of F(T|x)
    `km_calibration`                    Kaplan-Meier against mean predicted survival in groups, with 95 % limits
    `incidence_calibration`             Aalen-Johansen against mean predicted incidence in groups, with 95 % limits
    `calibrate.smooth_calibration`      smoothed observed risk against predicted risk, and a histogram of predictions
    ==================================  ===============================================================================

    Parameters
    ----------
    result : Calibration, DCalibration, KMCalibration, IncidenceCalibration or SmoothCalibration
    label : str, optional
        Name of the model in the legend, for several models on the same ``ax``.
    ax : matplotlib Axes, optional
        Axes to draw on; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> from sumosurv.scores import calibration, d_calibration
    >>> y, d = Surv.from_arrays(np.ones(50, bool), np.linspace(0.1, 3, 50)), Weibull(np.ones(50), 1.0)
    >>> plot_calibration(calibration(d, y)).get_xlabel()
    'probability p'
    >>> len(plot_calibration(d_calibration(d, y)).patches)
    10
    """
    for kind, draw in _DRAW.items():
        if isinstance(result, kind):
            ax = axes(ax, _SIZE)
            draw(ax, result, label)
            if label is not None:
                add_legend(ax, "inside")
            return ax
    raise TypeError(f"result must be a calibration result of sumosurv; got {type(result).__name__}.")


def _draw_probabilities(ax: Any, result: Calibration, label: str | None) -> None:
    _square(ax, 1.0, "probability p", "share of subjects with F(z|x) ≤ p")
    score = f"score {result.score:.3g}"
    ax.plot(result.expected, result.observed, "o-", color=_next_colour(ax), ms=5, label=label and f"{label}, {score}")
    ax.set_title("Calibration" if label else f"Calibration, {score}")


def _draw_bins(ax: Any, result: DCalibration, label: str | None) -> None:
    style = {"align": "edge", "alpha": 0.75, "edgecolor": "w"}
    ax.bar(result.edges[:-1], result.shares, np.diff(result.edges), color=_next_colour(ax), label=label, **style)
    ax.axhline(1.0 / len(result.shares), **_IDEAL)
    finish(ax, "F(T|x), censored rows spread above F(z|x)", "share of subjects", xlim=(0, 1))
    ax.set_title(f"D-calibration, p = {result.p_value:.3g}")


def _draw_survival_groups(ax: Any, result: KMCalibration, label: str | None) -> None:
    test = f"p = {result.p_value:.3g}"
    _draw_groups(ax, result, "S", "Kaplan-Meier", 1.0, label and f"{label}, {test}")
    ax.set_title(f"At time {result.time:.4g}" + ("" if label else f", {test}"))


def _draw_incidence_groups(ax: Any, result: IncidenceCalibration, label: str | None) -> None:
    known = ~np.isnan(result.observed)
    highest = np.append(result.observed[known] + np.nan_to_num(1.96 * result.std_error[known]), result.predicted)
    _draw_groups(ax, result, _risk(result.cause), "Aalen-Johansen", min(1.0, 1.08 * float(highest.max())) or 1.0, label)
    ax.set_title(f"{'Any cause' if result.cause is None else f'Cause {result.cause}'} at time {result.time:.4g}")


def _draw_groups(
    ax: Any, result: KMCalibration | IncidenceCalibration, of: str, estimate: str, top: float, label: str | None
) -> None:
    """Observed against predicted probabilities of groups, with 95 % limits cut at 0 and 1."""
    _square(ax, top, f"predicted {of}({result.time:.4g}|x), mean of group", estimate)
    known = ~np.isnan(result.observed)
    observed, half = result.observed[known], 1.96 * result.std_error[known]
    limits = [np.minimum(half, observed), np.minimum(half, 1.0 - observed)]
    style = {"fmt": "o", "ms": 5, "capsize": 2, "lw": 1.2}
    ax.errorbar(result.predicted[known], observed, yerr=limits, color=_next_colour(ax), label=label, **style)


def _draw_smooth(ax: Any, result: SmoothCalibration, label: str | None) -> None:
    reach = max(float(result.predicted.max()), float(result.curve.max()), float(np.nan_to_num(result.upper).max()))
    predicted = f"predicted {_risk(result.cause)}({result.time:.4g}|x); bars: how many"
    top = _square(ax, min(1.0, 1.05 * reach), predicted, "observed risk, smoothed")
    shade, name = _next_colour(ax), label and f"{label}, ICI {result.ici:.3f}"
    draw_curve(ax, result.grid, result.curve, result.lower, result.upper, colour=shade, label=name)
    counts, edges = np.histogram(result.predicted, bins=40, range=(0.0, top))
    bars = 0.12 * top * counts / counts.max()  # an eighth of the picture, under the curve
    ax.bar(edges[:-1], bars, np.diff(edges), align="edge", color=shade, alpha=0.35, lw=0, zorder=1)
    if label is None:
        ax.set_title(f"ICI {result.ici:.3f}, E50 {result.e50:.3f}, E90 {result.e90:.3f}", fontsize=10)


_DRAW: dict[type, Any] = {
    Calibration: _draw_probabilities,
    DCalibration: _draw_bins,
    KMCalibration: _draw_survival_groups,
    IncidenceCalibration: _draw_incidence_groups,
    SmoothCalibration: _draw_smooth,
}


def _square(ax: Any, top: float, x_label: str, y_label: str) -> float:
    """Axes of two probabilities with the diagonal, as large as the results drawn on them need."""
    if ax.lines:
        top = max(top, ax.get_xlim()[1])
    else:
        ax.plot([0, 1], [0, 1], **_IDEAL)
    finish(ax, x_label, y_label, xlim=(0, top), ylim=(0, top))
    ax.set_aspect("equal")
    return top


def _risk(cause: int | None) -> str:
    return "F" if cause is None else f"F$_{{{cause}}}$"


def _next_colour(ax: Any) -> str:
    """The colour of the next model: each that is named in the legend has used one."""
    return colour(len(ax.get_legend_handles_labels()[1]))
