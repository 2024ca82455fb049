"""Plots of performance: calibration, scores over time, net benefit; hazard ratios and penalty paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sumosurv.calibrate import SmoothCalibration
from sumosurv.distributions import SurvivalDistribution
from sumosurv.estimators import CoxPH, CoxPHCV
from sumosurv.outcome import check_outcome
from sumosurv.plots.figure import (
    COLOURS,
    add_legend,
    at_times,
    axes,
    colour,
    draw_curve,
    finish,
    last_training_time,
    patch_handle,
    picture,
    shade_beyond,
    time_label,
)
from sumosurv.scores import (
    Calibration,
    DCalibration,
    DecisionCurve,
    GroupCalibration,
    evaluate,
)
from sumosurv.scores.score import find_score

_SQUARE = (4.2, 4.0)
_IDEAL = {"color": "0.45", "ls": "--", "lw": 1.2}
_TIMES = 40
_AT_RISK = 0.05  # least share of the rows that is followed beyond the last time drawn


@picture
def plot_calibration(
    result: Calibration | DCalibration | GroupCalibration | SmoothCalibration,
    *,
    label: str | None = None,
    ax: Any = None,
) -> Any:
    """A calibration result: on the dashed line, predictions and observations agree.

    ==================================  ===============================================================================
    result of                           plot
    ==================================  ===============================================================================
    `calibration`                       share of subjects with F(z|x) ≤ p against p
    `d_calibration`                     share of subjects in each bin of F(T|x)
    `group_calibration`                 observed against mean predicted risk in groups, with 95 % limits
    `calibrate.smooth_calibration`      smoothed observed risk against predicted risk, and a histogram of predictions
    ==================================  ===============================================================================

    Parameters
    ----------
    result : Calibration, DCalibration, GroupCalibration or SmoothCalibration
    label : str, optional
        Name of the model in the legend, for several models on the same ``ax``.
    """
    for kind, draw in _DRAW.items():
        if isinstance(result, kind):
            ax = axes(ax, _SQUARE)
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


def _draw_groups(ax: Any, result: GroupCalibration, label: str | None) -> None:
    """Observed against predicted risks of groups, with 95 % limits cut at 0 and 1."""
    known = ~np.isnan(result.observed)
    observed, half = result.observed[known], 1.96 * result.std_error[known]
    top = min(1.0, 1.08 * float(np.append(observed + np.nan_to_num(half), result.predicted).max())) or 1.0
    risk = f"predicted {_risk(result.cause)}({result.time:.4g}|x), mean of group"
    _square(ax, top, risk, "Aalen-Johansen" if result.cause else "one minus Kaplan-Meier")
    test = "" if np.isnan(result.p_value) else f", p = {result.p_value:.3g}"
    limits = [np.minimum(half, observed), np.minimum(half, 1.0 - observed)]
    style = {"fmt": "o", "ms": 5, "capsize": 2, "lw": 1.2, "color": _next_colour(ax), "label": label and label + test}
    ax.errorbar(result.predicted[known], observed, yerr=limits, **style)
    what = "At" if result.cause is None else f"Cause {result.cause} at"
    ax.set_title(f"{what} time {result.time:.4g}" + ("" if label else test))


def _draw_smooth(ax: Any, result: SmoothCalibration, label: str | None) -> None:
    reach = max(float(result.predicted.max()), float(result.curve.max()), float(np.nan_to_num(result.upper).max()))
    predicted = f"predicted {_risk(result.cause)}({result.time:.4g}|x); bars: number of rows"
    top = _square(ax, min(1.0, 1.05 * reach), predicted, "observed risk, smoothed")
    shade, name = _next_colour(ax), label and f"{label}, ICI {result.ici:.3f}"
    draw_curve(ax, result.grid, result.curve, result.lower, result.upper, colour=shade, label=name)
    counts, edges = np.histogram(result.predicted, bins=40, range=(0.0, top))
    bars = 0.12 * top * counts / counts.max()  # an eighth of the height, below the curve
    ax.bar(edges[:-1], bars, np.diff(edges), align="edge", color=shade, alpha=0.35, lw=0, zorder=1)
    if label is None:
        ax.set_title(f"ICI {result.ici:.3f}, E50 {result.e50:.3f}, E90 {result.e90:.3f}", fontsize=10)


_DRAW: dict[type, Any] = {
    Calibration: _draw_probabilities,
    DCalibration: _draw_bins,
    GroupCalibration: _draw_groups,
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


@picture
def plot_score(
    distribution: SurvivalDistribution | Mapping[str, SurvivalDistribution],
    y: Any,
    score: str = "brier",
    *,
    times: Any = None,
    censoring: SurvivalDistribution | str = "marginal",
    cause: int | None = None,
    n_bootstrap: int = 100,
    confidence: float = 0.95,
    unit: str = "",
    last_time: float | bool | None = None,
    sample_weight: Any = None,
    ax: Any = None,
) -> Any:
    """A score of one or several models over time, with pointwise bootstrap intervals as bands.

    Parameters
    ----------
    distribution : SurvivalDistribution, or mapping of names to distributions
        Predictions for the same subjects. Kaplan-Meier of the training rows is a useful reference.
    y : outcome
        Outcome of these subjects.
    score : str
        A score at single times, such as "brier" or "cumulative_dynamic_auc".
    times : array, optional
        By default 40 times up to the last one beyond which at least 5 % of the rows are followed: later, few rows
        carry all the weight. Times beyond the last of y are left out.
    censoring : SurvivalDistribution or "marginal"
        Censoring distribution, as in `brier`; `censoring_given_x` if censoring depends on x.
    cause : int, optional
        Cause, counted from one; required if the models have several.
    n_bootstrap : int, default 100
        Bootstrap resamples for the bands; 0 for no bands.
    confidence : float, default 0.95
        Level of the bands.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents.
    """
    record = find_score(score)
    if record.times != "single":
        raise ValueError(
            f"{score} is not defined at single times, so it cannot be drawn over time; use a score such as 'brier'."
        )
    models = dict(distribution) if isinstance(distribution, Mapping) else {"": distribution}
    if not models:
        raise ValueError("There is no model to draw: the mapping is empty.")
    n_causes = max(d.n_causes for d in models.values())
    if cause is None and n_causes > 1:
        raise ValueError(f"The distribution has {n_causes} causes: choose one of them, for example cause=1.")
    grid = score_times(y, times)
    first = next(iter(models.values()))
    models = {name: at_times(one, grid) for name, one in models.items()}
    table = evaluate(
        models if isinstance(distribution, Mapping) else models[""],
        None,
        y,
        scores={score: {record.times_option: list(grid)} | ({} if cause is None else {"cause": cause})},
        censoring=censoring,
        n_bootstrap=n_bootstrap,
        confidence=confidence,
        sample_weight=sample_weight,
    )
    if table["value"].isna().all():
        raise ValueError("There is nothing to draw: there are no comparable events up to the last of these times.")
    if "against" in table:
        table = table[table["against"] == ""]
    ax = axes(ax)
    for i, name in enumerate(models):
        rows = table if "model" not in table else table[table["model"] == name]
        columns = (rows[column].to_numpy(dtype=np.float64) for column in ("value", "low", "high"))
        draw_curve(ax, grid, *columns, colour=colour(i), label=name or None)
    end = float(grid[-1]) * (1.0 if len(grid) > 1 else 2.0)
    limits = None
    if record.chance is not None:
        limits = min(record.chance - 0.05, float(table["value"].min()) - 0.02), 1.0
        ax.axhline(record.chance, color="0.4", lw=1.0, ls=":", zorder=1)
        style = {"textcoords": "offset points", "ha": "right", "fontsize": 8, "color": "0.4"}
        ax.annotate("chance", (end, record.chance), xytext=(-3, 3), **style)
    elif not record.greater_is_better:
        limits = 0.0, 1.08 * float(np.nanmax(table[["value", "high"]].to_numpy(dtype=np.float64)))
    shade_beyond(ax, last_training_time(first, last_time), end)
    if any(models):
        add_legend(ax, "below", columns=min(len(models), 4))
    finish(ax, time_label(unit), f"{record.title} ({record.direction} is better)", xlim=(0, end), ylim=limits)
    return ax


def score_times(y: Any, times: Any = None) -> Any:
    """The times of a plot of scores; follow-up must extend beyond each of them."""
    outcome = check_outcome(y)
    if outcome.entry is not None or outcome.upper is not None:
        raise ValueError(
            "Scores over time support neither left truncation nor interval censoring; pass "
            "distribution.remaining(entry) and the time since entry, and leave out interval-censored "
            "rows."
        )
    ordered = np.sort(outcome.time)
    if times is None:
        followed = 1.0 - np.searchsorted(ordered, ordered, side="right") / len(ordered)
        end = float(ordered[followed >= _AT_RISK].max(initial=0.0)) or float(ordered[-1])
        return np.linspace(0.0, end, _TIMES + 1)[1:]
    given = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if not (given < ordered[-1]).any():
        raise ValueError(f"Nobody is followed past time {ordered[-1]:g}; give an earlier time than {given.min():g}.")
    return np.unique(given[given < ordered[-1]])


@picture
def plot_decision_curve(
    result: DecisionCurve | Mapping[str, DecisionCurve],
    *,
    thresholds: tuple[float, float] | None = None,
    ax: Any = None,
) -> Any:
    """Net benefit of one or several models, with their limits, against treating everyone and treating no one.

    Parameters
    ----------
    result : DecisionCurve, or mapping of names to decision curves
        From `sumosurv.scores.decision_curve`, of the same subjects at the same time.
    thresholds : (low, high), optional
        Range of thresholds to draw; by default up to where no model treats more than one subject in a hundred.
    """
    several = {"model": result} if isinstance(result, DecisionCurve) else dict(result)
    if not several or len({(curve.time, curve.cause) for curve in several.values()}) != 1:
        raise ValueError("Give one or several decision curves, all at the same time and of the same cause.")
    first = next(iter(several.values()))
    if all(curve.table["net_benefit"].isna().all() for curve in several.values()):
        raise ValueError(f"Nobody is followed up to time {first.time:g}, so net benefit is unknown there.")
    if thresholds is None:
        used = [curve.table.index[curve.table["treated"] > 0.01] for curve in several.values()]
        ends = [float(part.max()) for part in used if len(part)]
        thresholds = float(first.table.index.min()), max(ends, default=1.0)
    low, high = thresholds
    tables = {name: curve.table.loc[low:high] for name, curve in several.items()}
    ax = axes(ax)
    for i, (name, table) in enumerate(tables.items()):
        columns = (table[column] for column in ("net_benefit", "net_benefit_lower", "net_benefit_upper"))
        draw_curve(ax, table.index, *columns, colour=colour(i), label=name)
    table = next(iter(tables.values()))
    ax.plot(table.index, table["treat_all"], color="0.35", lw=1.4, ls="--", label="treat all")
    ax.axhline(0.0, color="0.35", lw=1.4, ls=":", label="treat none")
    heights = [one[["net_benefit", "net_benefit_upper", "treat_all"]].to_numpy() for one in tables.values()]
    top = max(0.0, float(np.nanmax(np.concatenate(heights))))
    what = "risk" if first.cause is None else f"risk of cause {first.cause}"
    bands = {f"{first.level:.0%} limits": patch_handle()} if table["net_benefit_lower"].notna().any() else {}
    add_legend(ax, "below", extra=bands, columns=4)
    finish(
        ax,
        f"threshold for the {what} at time {first.time:.4g}",
        "net benefit",
        xlim=(low, high),
        ylim=(-0.15 * top, 1.08 * top) if top > 0 else None,
    )
    return ax


@picture
def plot_penalty_path(model: CoxPHCV, *, max_names: int = 10, ax: Any = None) -> Any:
    """Coefficients against the penalty, which decreases to the right; a dashed line marks the chosen penalty.

    Parameters
    ----------
    model : CoxPHCV
        Fitted model.
    max_names : int, default 10
        How many terms are named: those with the largest coefficients for the chosen penalty.
    """
    if not isinstance(model, CoxPHCV):
        raise TypeError(f"plot_penalty_path needs a fitted CoxPHCV; got {type(model).__name__}.")
    check_is_fitted(model)
    largest = np.argsort(-np.abs(model.coef_), kind="stable")[:max_names]
    named = {j: {"color": colour(i), "label": model.terms_[j]} for i, j in enumerate(largest.tolist())}
    ax = axes(ax, (7.2, 4.2))
    for j, coef in enumerate(model.coef_path_.T):
        ax.plot(model.alphas_, coef, **{"color": "0.75", "lw": 1.2, "zorder": 1 + (j in named)} | named.get(j, {}))
    ax.axvline(model.alpha_, color="0.45", ls="--", lw=1.2)
    ax.set_xscale("log")
    finish(ax, "penalty α", "coefficient", xlim=(model.alphas_.max(), model.alphas_.min()))
    add_legend(ax, "right")
    return ax


@picture
def plot_hazard_ratios(
    model: CoxPH, *, per: Mapping[str, float] | None = None, level: float = 0.95, ax: Any = None
) -> Any:
    """Forest plot: hazard ratios of a Cox model with their limits, on a logarithmic axis.

    Terms that were left out of the fit are listed without a mark.

    Parameters
    ----------
    model : CoxPH
        Fitted model.
    per : mapping of terms to numbers, optional
        Units of a column per which its ratio is shown, instead of one: ``{"age": 10}``.
    level : float, default 0.95
        Level of the limits.
    """
    if not isinstance(model, CoxPH):
        raise TypeError(f"plot_hazard_ratios needs a fitted CoxPH; got {type(model).__name__}.")
    table, per = model.summary(level).coefficients, dict(per or {})
    if unknown := sorted(set(per) - set(table.index)):
        terms = ", ".join(map(repr, table.index))
        raise ValueError(f"per has the unknown terms {', '.join(map(repr, unknown))}; the terms are {terms}.")
    if not all(0 < units < np.inf for units in per.values()):
        raise ValueError(f"per must hold positive numbers of units; got {per}.")
    power = np.array([per.get(term, 1.0) for term in table.index])
    columns = ("hazard_ratio", "hazard_ratio_lower", "hazard_ratio_upper")
    ratio, lower, upper = (table[column].to_numpy() ** power for column in columns)
    ax = axes(ax, (7.2, 1.4 + 0.32 * len(table)))
    places = np.arange(len(table))[::-1]
    ax.axvline(1.0, color="0.45", ls="--", lw=1.2)
    ax.hlines(places, lower, upper, color=COLOURS[0], lw=1.8)
    ax.plot(ratio, places, "s", color=COLOURS[0], ms=6)
    known = np.isfinite(lower) & np.isfinite(upper) & (lower > 0)
    ends = np.concatenate([lower[known], upper[known], [1.0]])
    low, high = np.log(ends.min()), np.log(ends.max())
    edge = 0.06 * max(high - low, 0.1)
    ax.set_xscale("log")
    finish(
        ax,
        f"hazard ratio ({level:.0%} limits)",
        "",
        xlim=(np.exp(low - edge), np.exp(high + edge)),
        ylim=(-0.7, len(table) - 0.3),
    )
    _set_plain_ticks(ax)
    ax.set_yticks(places, [f"{term}, per {per[term]:g}" if term in per else term for term in table.index])
    for place, values in zip(places, zip(ratio, lower, upper)):
        text = "left out" if np.isnan(values[0]) else f"{values[0]:.2f} ({values[1]:.2f} to {values[2]:.2f})"
        ax.text(1.02, place, text, transform=ax.get_yaxis_transform(), va="center", fontsize=9)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return ax


def _set_plain_ticks(ax: Any) -> None:
    """Ticks such as 0.5, 1 and 2 on a logarithmic axis, also if it spans less than a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = ax.get_xlim()
    decades = np.log10(high / low)
    if decades < 0.3:  # as on a linear axis: a logarithmic locator would find one tick or none
        ax.xaxis.set_major_locator(MaxNLocator(6))
    else:
        subs = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if decades < 1.2 else (1.0, 2.0, 5.0) if decades < 2.5 else (1.0,)
        ax.xaxis.set_major_locator(LogLocator(subs=subs))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
