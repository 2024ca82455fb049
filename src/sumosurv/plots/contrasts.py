"""Pictures of contrasts."""

from __future__ import annotations

from typing import Any

from sumosurv.explain import Contrast
from sumosurv.plots._figure import COLOURS, axes, below, shade_beyond

__all__ = ["plot_contrast"]


def plot_contrast(contrast: Contrast, *, difference: bool = True, unit: str = "", ax: Any = None) -> Any:
    """The difference of two curves over time with its limits, or the two curves themselves.

    Parameters
    ----------
    contrast : Contrast
    difference : bool
        False for the two curves.
    unit : str
        Of time, for the axis.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    ax = axes(ax, (7.2, 4.6))
    times = contrast.quantity.times
    if difference:
        sides = [(contrast.difference, contrast.difference_low, contrast.difference_high)]
        names = [f"{contrast.labels[0]}  less  {contrast.labels[1]}"]
        ax.axhline(0.0, color="0.6", lw=0.8, zorder=1)
    else:
        none = (None, None)
        low, high = (none, none) if contrast.low is None or contrast.high is None else (contrast.low, contrast.high)
        sides = [(contrast.curves[i], low[i], high[i]) for i in (0, 1)]
        names = list(contrast.labels)
    spread = {"members": "of the networks", "bootstrap": "of the fits to resampled rows"}.get(contrast.limits_from)
    for number, ((curve, lower, upper), name) in enumerate(zip(sides, names)):
        colour = COLOURS[number]
        if lower is not None and upper is not None:
            band = f"{contrast.level:.0%} {spread}" if number == len(sides) - 1 else None
            ax.fill_between(times, lower, upper, color=colour, alpha=0.2, lw=0, label=band)
        ax.plot(times, curve, color=colour, lw=2.2, label=name, marker="o" if len(times) == 1 else None)
    end = float(times[-1])
    ax.set_xlim(0, end)
    shade_beyond(ax, contrast.quantity.last_time, end)
    ax.set_xlabel("time" + (f" ({unit})" if unit else ""))
    what = contrast.quantity.label
    ax.set_ylabel(f"difference in\n{what}" if difference else what)
    if not difference and contrast.quantity.name != "cumulative_hazard":
        ax.set_ylim(0, 1.02)
    ax.spines[["top", "right"]].set_visible(False)
    handles, labels = ax.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: labels[i] not in names)  # curves before the band
    below(ax, columns=3, handles=[handles[i] for i in order], names=[labels[i] for i in order])
    return ax
