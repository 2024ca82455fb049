"""The section on how good the model is: scores, their course over time, calibration, decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sumosurv.calibrate import smooth_calibration
from sumosurv.plots import plot_calibration, plot_decision_curve, plot_score
from sumosurv.report.document import Note, Picture, Section, Table, attempt, estimate, number
from sumosurv.report.drawing import draw
from sumosurv.report.given import Given
from sumosurv.scores import decision_curve, evaluate
from sumosurv.scores.censoring import CensoringTestError, check_censoring

__all__ = ["quality_section"]

_NAMES = {
    "log_likelihood": "log-likelihood, nats per row",
    "concordance_td": "concordance (time-dependent)",
    "integrated_brier": "integrated Brier score",
    "brier": "Brier score",
    "cumulative_dynamic_auc": "AUC",
    "d_calibration": "D-calibration",
}
_AT = ("brier", "cumulative_dynamic_auc")
_MOST_RESAMPLES = 100  # of pictures, each with a regression of its own


def quality_section(given: Given) -> Section:
    """How well the model predicts these rows, beside others."""
    section = Section("quality", "Performance")
    table = evaluate(
        given.curves,
        None,
        given.outcome,
        scores=_wanted(given),
        n_bootstrap=given.n_bootstrap,
        random_state=given.seed,
        resolution=given.estimator.cells_,
    )
    verdict = _verdict(given, table)
    section.summary.append(verdict)
    section.items.append(
        Note(
            f"{verdict} A gain of 0.1 nats means that the model gave what was observed about 10% more probability, row "
            "by row, in the geometric mean."
        )
    )
    section.items.append(_scores(given, table))
    section.items += [Note(text) for text in [*table.notes, *_on_censoring(given)]]
    if not given.exact:
        section.items.append(
            Note(
                "Some events are interval-censored: AUC, Brier score, calibration curves and decision curves need "
                "exact event times and are not shown."
            )
        )
        return section
    if given.outcome.entry is not None:
        section.items.append(Note("Some rows enter late: in what follows, time is counted from each row's entry."))
    own = table[
        (table["model"] == given.name) & (table["against"] == "") & (table["score"] == "cumulative_dynamic_auc")
    ]
    for cause in given.cause_numbers:
        of = own if cause is None else own[own["cause"] == cause]
        listed = ", ".join(f"{number(v, 3)} at {given.time(float(t))}" for v, t in zip(of["value"], given.times))
        section.summary.append(
            f"AUC{'' if cause is None else f' of {given.of_cause(cause)}'}: {listed} (0.5 is chance)."
        )
    for cause in given.cause_numbers:
        section.items += attempt("AUC over time", _over_time, given, cause, "AUC")
        section.items += attempt("Brier score over time", _over_time, given, cause, "Brier score")
        section.items += attempt("Calibration", _calibration, given, cause)
        section.items += attempt("Decision curve", _decisions, given, cause)
    return section


def _verdict(given: Given, table: pd.DataFrame) -> str:
    """By how much the likelihood is higher than that of the others, in words."""
    rows = table[(table["score"] == "log_likelihood") & (table["against"] == given.name)]
    parts = []
    for row in rows.to_dict("records"):
        gain, low, high = -row["value"], -row["high"], -row["low"]
        shown, limits = estimate(gain, low, high)
        sure = "a clear gain" if low > 0 else "a clear loss" if high < 0 else "no clear difference"
        limits = f" (95% interval {limits}: {sure})" if limits else ""
        parts.append(f"{shown} nats per row over {row['model']}{limits}")
    return f"Gain in mean log-likelihood, the one proper score here: {'; '.join(parts)}."


def _wanted(given: Given) -> dict[str, dict[str, Any]]:
    """The scores, with their times; of events between two times the likelihood alone is defined, and D-calibration."""
    if not given.exact:
        return {"log_likelihood": {}, "d_calibration": {}}
    at = {"times": list(given.times)}
    return {
        "log_likelihood": {},
        "concordance_td": {},
        "integrated_brier": {},
        "brier": at,
        "cumulative_dynamic_auc": at,
    }


def _on_censoring(given: Given) -> list[str]:
    """Whether censoring depends on the covariates, and what that means for the scores that are weighted for it."""
    if not given.exact or np.ndim(given.X) != 2:
        return []
    try:
        found = check_censoring("auto", given.X, given.later, random_state=given.seed)
    except CensoringTestError as reason:
        return [str(reason)]
    if not found.depends:
        return [str(found)]
    return [
        f"{found} AUC and Brier score are weighted as if it did not: judge models by the likelihood first, which "
        "needs no such weights."
    ]


def _scores(given: Given, table: pd.DataFrame) -> Table:
    """One line for each score, one column for each model."""
    keys = [name for name in ("score", "cause", "times") if name in table]
    names = list(given.curves)
    rows = []
    for key, part in table.groupby(keys, sort=False, dropna=False):
        facts = dict(zip(keys, key if isinstance(key, tuple) else (key,)))
        label = _NAMES[facts["score"]] + (f" at {facts['times']}" if facts["score"] in _AT else "")
        if facts.get("cause", "") != "":
            label += f", {given.causes[int(facts['cause']) - 1]}"
        higher = bool(part["greater_is_better"].iloc[0])
        cells = []
        for name in names:
            own = part[(part["model"] == name) & (part["against"] == "")].iloc[0]
            value, limits = estimate(own["value"], own["low"], own["high"])
            cells.append(value + (f"\n{limits}" if limits else ""))
        rows.append([label, "higher" if higher else "lower", *cells])
    return Table(
        "Scores with 95% bootstrap intervals (rows resampled, models not refitted)",
        ["score", "better if", *names],
        rows,
        text_columns=2,
    )


def _over_time(given: Given, cause: int | None, what: str) -> Picture:
    score = "cumulative_dynamic_auc" if what == "AUC" else "brier"
    found = evaluate(
        given.later_curves, None, given.later, scores={score: {"times": list(given.times)} | _of(cause)}, n_bootstrap=0
    )
    own = found[(found["model"] == given.name) & (found["against"] == "")]
    values = ", ".join(f"{number(v, 3)} at {given.time(float(t))}" for v, t in zip(own["value"], given.times))
    of = f" of {given.of_cause(cause)}" if cause else ""
    meaning = (
        "how often someone with the event by then had a higher predicted risk than someone without; 0.5 is chance"
        if what == "AUC"
        else "the mean squared difference between predicted probability and outcome; lower is better"
    )
    return draw(
        lambda ax: plot_score(
            given.later_curves, given.later, score, unit=given.unit, n_bootstrap=_resamples(given), ax=ax, **_of(cause)
        ),
        f"{what}{of} over time of {', '.join(given.later_curves)}. {given.name}: {values}.",
        f"{what}{of} over time: {meaning}. {given.name}: {values}. Bands: pointwise 95% intervals.",
        half=True,
        formulas=False,
    )


def _calibration(given: Given, cause: int | None) -> Picture:
    found = smooth_calibration(
        given.own_later, given.later, given.main, cause=cause, n_bootstrap=_resamples(given), random_state=given.seed
    )
    low, high = found.ici_interval
    noise = "" if np.isnan(low) else f"; {100 * low:.1f} to {100 * high:.1f} in resampled rows, where noise adds to it"
    of = f" of {given.of_cause(cause)}" if cause else ""
    text = (
        f"Predicted and observed risk{of} at {given.time(given.main)} differ by {100 * found.ici:.1f} percentage points"
    )
    text += f" on average (ICI{noise})"
    return draw(
        lambda ax: plot_calibration(found, ax=ax),
        f"Calibration curve: observed against predicted risk. {text}.",
        f"Calibration. {text}. On the dashed line they would agree; bars show how predictions are distributed.",
        half=True,
    )


def _decisions(given: Given, cause: int | None) -> Picture:
    marginal = list(given.curves)[1]
    found = {
        name: decision_curve(
            curves, given.later, given.main, cause=cause, n_bootstrap=given.n_bootstrap, random_state=given.seed
        )
        for name, curves in given.later_curves.items()
        if name != marginal  # one risk for all: everyone is treated, or no one
    }
    table = found[given.name].table
    ranges = _ranges(table.index.to_numpy(), (table["advantage_lower"] > 0).to_numpy())
    where = (
        f"The net benefit is clearly above that of treating everyone or no one at thresholds of {ranges}."
        if ranges
        else "At no threshold is the net benefit clearly above that of treating everyone or no one."
    )
    of = f" of {given.of_cause(cause)}" if cause else ""
    at = given.time(given.main)
    return draw(
        lambda ax: plot_decision_curve(found, ax=ax),
        f"Decision curve for the risk{of} at {at}. {where}",
        f"Decision curve: net benefit of treating those whose predicted risk{of} at {at} exceeds a threshold. {where}",
        half=True,
        formulas=False,
    )


def _ranges(thresholds: Any, good: Any) -> str:
    """Runs of thresholds in words."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], good.astype(int), [0]])))
    runs = [(thresholds[a], thresholds[b - 1]) for a, b in zip(edges[::2], edges[1::2])]
    return ", ".join(f"{low:.0%} to {high:.0%}" if high > low else f"{low:.0%}" for low, high in runs)


def _of(cause: int | None) -> dict[str, Any]:
    return {} if cause is None else {"cause": cause}


def _resamples(given: Given) -> int:
    return min(given.n_bootstrap, _MOST_RESAMPLES)
