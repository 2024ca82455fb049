"""Pictures of scores over time: Brier score and AUC of one model or several, with confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sumosurv.distributions import CompetingRisksDistribution, SurvivalDistribution
from sumosurv.outcome import check_outcome
from sumosurv.plots._figure import COLOURS, axes, below, finish, last_seen, mark, shade_beyond
from sumosurv.scores import evaluate

__all__ = ["plot_auc", "plot_brier"]

_SIZE = (7.2, 4.6)
_TIMES = 40
_AT_RISK = 0.05  # share of the rows that is followed past the last time drawn


def plot_brier(
    distribution: SurvivalDistribution | Mapping[str, SurvivalDistribution],
    y: Any,
    *,
    times: Any = None,
    censoring: SurvivalDistribution | str = "marginal",
    cause: int | None = None,
    n_bootstrap: int = 100,
    confidence: float = 0.95,
    unit: str = "",
    seen: float | bool | None = None,
    sample_weight: Any = None,
    ax: Any = None,
) -> Any:
    """Brier score at each time, lower is better, with bootstrap intervals as bands.

    Parameters
    ----------
    distribution : SurvivalDistribution, or mapping of names to these
        Several models are drawn side by side; Kaplan-Meier of the training rows is the one to beat.
    y : outcome
        Of the same subjects.
    times : array, optional
        By default 40 times up to that past which 5 % of the rows are followed: beyond it few rows carry all weight.
        Of given times only those are drawn past which somebody is followed.
    censoring : SurvivalDistribution or "marginal"
        G, as in `brier`; with `censoring_given_x` where censoring depends on x.
    cause : int, optional
        Of causes that compete.
    n_bootstrap : int
        Resamples for the bands; 0 for none.
    confidence : float
        Of the bands, at each time by itself.
    unit : str
        Of time, for the axis.
    seen : float or False, optional
        The last time in the training data: what lies beyond is shaded as extrapolation. By default what the
        distribution knows of it; False for no shading.
    sample_weight : array of shape (n,), optional
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    options = {"cause": cause, "n_bootstrap": n_bootstrap, "confidence": confidence, "sample_weight": sample_weight}
    ax, end, top = _over_time("brier", distribution, y, times, censoring, seen, ax, **options)
    finish(ax, _time(unit), "Brier score (lower is better)", end, top=1.08 * top)
    return ax


def plot_auc(
    distribution: SurvivalDistribution | Mapping[str, SurvivalDistribution],
    y: Any,
    *,
    times: Any = None,
    censoring: SurvivalDistribution | str = "marginal",
    cause: int | None = None,
    n_bootstrap: int = 100,
    confidence: float = 0.95,
    unit: str = "",
    seen: float | bool | None = None,
    sample_weight: Any = None,
    ax: Any = None,
) -> Any:
    """Cumulative/dynamic AUC at each time, higher is better, with bootstrap intervals as bands.

    Parameters
    ----------
    distribution, y, times, censoring, cause, n_bootstrap, confidence, unit, seen, sample_weight, ax
        As in `plot_brier`.

    Returns
    -------
    matplotlib Axes
    """
    options = {"cause": cause, "n_bootstrap": n_bootstrap, "confidence": confidence, "sample_weight": sample_weight}
    ax, end, _ = _over_time("cumulative_dynamic_auc", distribution, y, times, censoring, seen, ax, **options)
    low = min(0.45, *(float(np.nanmin(line.get_ydata())) - 0.02 for line in ax.get_lines()))
    ax.axhline(0.5, color="0.4", lw=1.0, ls=":", zorder=1)
    ax.annotate("chance", (end, 0.5), xytext=(-3, 3), textcoords="offset points", ha="right", fontsize=8, color="0.4")
    finish(ax, _time(unit), "AUC (higher is better)", end)
    ax.set_ylim(low, 1.0)
    return ax


def _over_time(
    score: str,
    distribution: SurvivalDistribution | Mapping[str, SurvivalDistribution],
    y: Any,
    times: Any,
    censoring: SurvivalDistribution | str,
    seen: float | bool | None,
    ax: Any,
    *,
    cause: int | None,
    **options: Any,
) -> tuple[Any, float, float]:
    """Draw one line and band for each model; the axes, the last time, and the highest value drawn."""
    models = distribution if isinstance(distribution, Mapping) else {"": distribution}
    if not models:
        raise ValueError("There is no model to draw: the mapping is empty.")
    several = [d.n_causes for d in models.values() if isinstance(d, CompetingRisksDistribution) and d.n_causes > 1]
    if cause is None and several:
        raise ValueError(f"The distribution tells {several[0]} causes apart: say of which the score is meant, cause=1.")
    outcome = check_outcome(y)
    if outcome.entry is not None or outcome.upper is not None:
        raise ValueError(
            "Scores over time are drawn for rows that are observed from the start, with known event times; pass "
            "distribution.remaining(entry) and the time since entry, and leave out interval-censored rows."
        )
    grid = _grid(outcome.time) if times is None else _drawn(times, float(outcome.time.max()))
    wanted: dict[str, Any] = {"times": list(grid)} | ({} if cause is None else {"cause": cause})
    table = evaluate(distribution, None, y, scores={score: wanted}, censoring=censoring, **options)
    if table["value"].isna().all():
        raise ValueError("There is nothing to draw: up to the last of these times no event can be compared.")
    ax, top = axes(ax, _SIZE), 0.0
    for i, name in enumerate(models):
        rows = table if "model" not in table else table[(table["model"] == name) & (table["against"] == "")]
        colour = COLOURS[i % len(COLOURS)]
        value, low, high = (rows[column].to_numpy(dtype=np.float64) for column in ("value", "low", "high"))
        ax.plot(grid, value, color=colour, lw=2, label=name or None, marker=mark(grid))
        if not np.isnan(low).all():
            ax.fill_between(grid, low, high, color=colour, alpha=0.15, lw=0)
            if len(grid) == 1:
                ax.vlines(grid, low, high, color=colour, lw=2, alpha=0.4)
        top = max(top, float(np.nanmax(np.where(np.isnan(high), value, high))))
    end = float(grid[-1]) * (1.0 if len(grid) > 1 else 2.0)
    shade_beyond(ax, last_seen(next(iter(models.values())), seen), end)
    if any(models):
        below(ax, columns=min(len(models), 4))
    return ax, end, top


def _grid(time: Any) -> Any:
    """Times up to the last past which enough rows are followed; many may end at one time, that of the study's end."""
    ordered = np.sort(time)
    followed = 1.0 - np.searchsorted(ordered, ordered, side="right") / len(ordered)
    end = float(ordered[followed >= _AT_RISK].max(initial=0.0)) or float(ordered[-1])
    return np.linspace(0.0, end, _TIMES + 1)[1:]


def _drawn(times: Any, last: float) -> Any:
    """The given times past which somebody is followed."""
    given = np.atleast_1d(np.asarray(times, dtype=np.float64))
    kept = given[given < last]
    if len(kept) == 0:
        raise ValueError(f"Nobody is followed past time {last:g}; give an earlier time than {given.min():g}.")
    return kept


def _time(unit: str) -> str:
    return "time" + (f" ({unit})" if unit else "")
