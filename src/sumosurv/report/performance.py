"""The section on performance: scores, their course over time, calibration, decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sumosurv.calibrate import smooth_calibration
from sumosurv.plots import plot_calibration, plot_decision_curve, plot_score
from sumosurv.plots.figure import at_times
from sumosurv.plots.performance import score_times
from sumosurv.report.document import Picture, Section, draw, estimate, number
from sumosurv.report.inputs import ReportInputs
from sumosurv.scores import SCORES, decision_curve, evaluate
from sumosurv.scores.censoring import CensoringTestError, check_censoring

_NARROWEST = 0.05  # range of thresholds that is worth a sentence: limits are pointwise
_MOST_RESAMPLES = 100  # for figures: each resample needs a regression


def performance_section(inputs: ReportInputs) -> Section:
    """Scores of the model and of others, calibration and decision curves."""
    section = Section("performance", "Performance")
    table = evaluate(
        inputs.curves,
        None,
        inputs.outcome,
        scores=_wanted(inputs),
        n_bootstrap=inputs.n_bootstrap,
        random_state=inputs.seed,
        resolution=inputs.estimator.cells_,
    )
    verdict = _verdict(inputs, table)
    section.summary.append(verdict)
    section.note(
        f"{verdict} A gain of 0.1 nats per row means that the model assigned about 10% more probability to what was "
        "observed, in the geometric mean over rows."
    )
    section.table(
        "Scores with 95% bootstrap intervals (rows resampled, models not refitted)",
        ["score", "better if", *inputs.curves],
        _scores(inputs, table),
        text_columns=2,
    )
    marginal = "Aalen-Johansen" if inputs.causes else "Kaplan-Meier"
    section.note(
        f"{marginal} of the training rows ignores the covariates. It is smoothed: hazards are constant between a few "
        "times, so that the model file contains no training rows and the density is defined at every time."
    )
    for text in [*table.notes, *_on_censoring(inputs)]:
        section.note(text)
    if not inputs.exact:
        section.note(
            "Some events are interval-censored: AUC, Brier score, calibration curves and decision curves need exact "
            "event times and are not shown."
        )
        return section
    if inputs.outcome.entry is not None:
        section.note("Some rows have delayed entry: below, time is measured from the entry of each row.")
    grid = score_times(inputs.since_entry)
    curves = {name: at_times(one, grid) for name, one in inputs.curves_since_entry.items()}
    for cause in inputs.cause_numbers:
        values = _values_in_words(inputs, table, "cumulative_dynamic_auc", cause)
        section.summary.append(f"AUC{_of(inputs, cause)}: {values} (0.5 is chance).")
        for score in ("cumulative_dynamic_auc", "brier"):
            what = f"{SCORES[score].title} over time"
            section.attempt(what, _over_time, inputs, table, curves, grid, score, cause)
        section.attempt("Calibration", _calibration, inputs, cause)
        section.attempt("Decision curve", _decisions, inputs, cause)
    return section


def _verdict(inputs: ReportInputs, table: pd.DataFrame) -> str:
    """The gain in likelihood over each of the other models, in words."""
    rows = table[(table["score"] == "log_likelihood") & (table["against"] == inputs.name)]
    parts = []
    for row in rows.to_dict("records"):
        gain, low, high = -row["value"], -row["high"], -row["low"]
        shown, limits = estimate(gain, low, high)
        sure = "a clear gain" if low > 0 else "a clear loss" if high < 0 else "no clear difference"
        limits = f" (95% interval {limits}: {sure})" if limits else ""
        parts.append(f"{shown} nats per row over {row['model']}{limits}")
    return f"Gain in mean log-likelihood, the only proper score below: {'; '.join(parts)}."


def _wanted(inputs: ReportInputs) -> dict[str, dict[str, Any]]:
    """The scores, with their times; with interval censoring only the likelihood and D-calibration are defined."""
    if not inputs.exact:
        return {"log_likelihood": {}, "d_calibration": {}}
    at = {"times": list(inputs.times)}
    return {
        "log_likelihood": {},
        "concordance_td": {},
        "integrated_brier": {},
        "brier": at,
        "cumulative_dynamic_auc": at,
    }


def _on_censoring(inputs: ReportInputs) -> list[str]:
    """Whether censoring depends on the covariates, and what that means for weighted scores."""
    if not inputs.exact or np.ndim(inputs.X) != 2:
        return []
    try:
        found = check_censoring("auto", inputs.X, inputs.since_entry, random_state=inputs.seed)
    except CensoringTestError as reason:
        return [str(reason)]
    text = str(found).replace(" -", " −")  # a true minus sign, as elsewhere in the report
    if not found.depends:
        return [text]
    return [
        f"{text} The weights of AUC and Brier score ignore this. Judge models by the likelihood first, which needs no "
        "such weights."
    ]


def _scores(inputs: ReportInputs, table: pd.DataFrame) -> list[list[str]]:
    """One line for each score, one column for each model."""
    keys = [name for name in ("score", "cause", "times") if name in table]
    rows = []
    for key, part in table.groupby(keys, sort=False, dropna=False):
        facts = dict(zip(keys, key if isinstance(key, tuple) else (key,)))
        score = SCORES[facts["score"]]
        label = score.title + (f" at {inputs.time(float(facts['times']))}" if score.times == "single" else "")
        if facts.get("cause", "") != "":
            label += f", {inputs.causes[int(facts['cause']) - 1]}"
        cells = []
        for name in inputs.curves:
            own = part[(part["model"] == name) & (part["against"] == "")].iloc[0]
            value, limits = estimate(own["value"], own["low"], own["high"])
            cells.append(value + (f"\n{limits}" if limits else ""))
        rows.append([label, score.direction, *cells])
    return rows


def _over_time(
    inputs: ReportInputs, table: pd.DataFrame, curves: dict[str, Any], grid: Any, score: str, cause: int | None
) -> Picture:
    what = SCORES[score].title
    values, of = _values_in_words(inputs, table, score, cause), _of(inputs, cause)
    meaning = {
        "cumulative_dynamic_auc": "how often a subject with the event by that time had a higher predicted risk than a "
        "subject without; 0.5 is chance",
        "brier": "the mean squared difference between predicted probability and outcome; lower is better",
    }[score]
    return draw(
        f"{what}{of} over time of {', '.join(inputs.curves)}. {inputs.name}: {values}.",
        f"{what}{of} over time: {meaning}. {inputs.name}: {values}. Bands: pointwise 95% intervals.",
        plot_score,
        curves,
        inputs.since_entry,
        score,
        times=grid,
        cause=cause,
        unit=inputs.unit,
        n_bootstrap=min(inputs.n_bootstrap, _MOST_RESAMPLES),
        half=True,
    )


def _values_in_words(inputs: ReportInputs, table: pd.DataFrame, score: str, cause: int | None) -> str:
    """A score of the model at all horizons."""
    rows = table[(table["model"] == inputs.name) & (table["against"] == "") & (table["score"] == score)]
    if cause is not None:
        rows = rows[rows["cause"] == cause]
    return ", ".join(f"{number(v, 3)} at {inputs.time(float(t))}" for v, t in zip(rows["value"], inputs.times))


def _calibration(inputs: ReportInputs, cause: int | None) -> Picture:
    found = smooth_calibration(
        inputs.predicted_since_entry,
        inputs.since_entry,
        inputs.main,
        cause=cause,
        n_bootstrap=min(inputs.n_bootstrap, _MOST_RESAMPLES),
        random_state=inputs.seed,
    )
    low, high = found.ici_interval
    limits = f"; 95% interval {100 * low:.1f} to {100 * high:.1f}" if low <= found.ici <= high else ""
    of = _of(inputs, cause)
    text = (
        f"Predicted and observed risk{of} at {inputs.time(inputs.main)} differ by {100 * found.ici:.1f} percentage "
        f"points on average (ICI{limits})"
    )
    return draw(
        f"Calibration curve: observed against predicted risk. {text}.",
        f"Calibration. {text}. On the dashed line they agree; bars show the distribution of predictions.",
        plot_calibration,
        found,
        half=True,
        formulas=True,
    )


def _decisions(inputs: ReportInputs, cause: int | None) -> Picture:
    marginal = list(inputs.curves)[1]
    found = {
        name: decision_curve(
            curves,
            inputs.since_entry,
            inputs.main,
            cause=cause,
            n_bootstrap=inputs.n_bootstrap,
            random_state=inputs.seed,
        )
        for name, curves in inputs.curves_since_entry.items()
        if name != marginal  # with one risk for all, everyone is treated or no one
    }
    where = _advantage(found[inputs.name].table)
    of = _of(inputs, cause)
    at = inputs.time(inputs.main)
    return draw(
        f"Decision curve for the risk{of} at {at}. {where}",
        f"Decision curve: net benefit of treating those whose predicted risk{of} at {at} exceeds a threshold. {where}",
        plot_decision_curve,
        found,
        half=True,
    )


def _advantage(table: pd.DataFrame) -> str:
    """The thresholds at which the net benefit exceeds that of treating everyone or no one, by pointwise limits."""
    if table["advantage_lower"].isna().all():
        return ""
    thresholds, above = table.index.to_numpy(), (table["advantage_lower"] > 0).to_numpy()
    edges = np.flatnonzero(np.diff(np.concatenate([[0], above.astype(int), [0]])))
    runs = [(thresholds[a], thresholds[b - 1]) for a, b in zip(edges[::2], edges[1::2])]
    wide = [f"{low:.0%} to {high:.0%}" for low, high in runs if round(high - low, 6) >= _NARROWEST]
    least = f"{100 * _NARROWEST:.0f} percentage points"
    if not wide:
        return (
            f"In no range of thresholds of {least} or more is the net benefit clearly higher than that of treating "
            "everyone and of treating no one (lower 95% limit of the difference above zero)."
        )
    return (
        f"At thresholds of {' and '.join(wide)}, the net benefit is clearly higher than that of treating everyone and "
        "of treating no one (lower 95% limit of the difference above zero). The limits are pointwise; ranges below "
        f"{least} are not listed."
    )


def _of(inputs: ReportInputs, cause: int | None) -> str:
    return "" if cause is None else f" of {inputs.event_name(cause)}"
