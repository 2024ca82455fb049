"""The page and the pictures of `zoo.py`, made from its record alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import _zoo_summary as summary
import numpy as np
import pandas as pd
from page import markdown, prose

FIGURES = {"ranks": "zoo_ranks.png", "tables": "zoo_tables.png"}
NOTES = {
    "penalised Cox": "elastic net with l1_ratio 0.5; penalty by the partial likelihood of five inner folds",
    "SurvivalBoost": "hazardous",
    "gradient boosting": "scikit-survival",
}


def write_page(record: dict[str, Any], folder: Path) -> None:
    """Write zoo.md and its pictures into a folder."""
    units = summary.frame(record["results"]["units"])
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    drawn = draw(units, folder / "figures")
    (folder / "zoo.md").write_text(text(record, units, drawn), encoding="utf-8")


def text(record: dict[str, Any], units: pd.DataFrame, drawn: dict[str, str]) -> str:
    """The page."""
    settings = record["configuration"]
    methods, partial = summary.whole(units)
    tables, folds = units["table"].nunique(), units["fold"].nunique()
    first = summary.subject(units)
    lines = ["# Small and wide tables", ""]
    if first in methods:
        lines += [f"Results of `{first}` on {tables} real right-censored tables, {folds} folds each:", ""]
        lines += [f"- {line}" for line in summary.standing(units, first)]
    lines += ["", "## Mean scores", "", *_means(units)]
    if partial:
        lines += ["", f"Not run on every table yet, and left out: {', '.join(partial)}."]
    if summary.DEFAULT not in methods:
        lines += ["", f"`{summary.DEFAULT}` is not in the record yet."]
    lines += ["", "| method | settings | commit |", "|---|---|---|"]
    for method in (*methods, *partial):
        note = f" ({NOTES[method]})" if method in NOTES else ""
        made = ", ".join(_commits(record, method))
        lines.append(f"| {method} | `{settings['methods'].get(method, 'not known any more')}`{note} | {made} |")
    lines += ["", "## Mean ranks", ""]
    lines += [
        "Methods are ranked within each table, with rank 1 for the best. Two methods differ significantly (Nemenyi's "
        "test",
        "at 5 %, Demšar 2006) if their mean ranks differ by at least the critical difference.",
        "",
    ]
    lines += _ranks(units)
    if "ranks" in drawn:
        lines += [
            "",
            f"![Mean ranks; lines join methods whose ranks do not differ significantly](figures/{drawn['ranks']})",
        ]
    if first in methods:
        lines += ["", f"## {first} against each other method", ""]
        lines += [
            f"Number of tables on which {first} is better / not clearly different / worse. A method that fails on a "
            "table",
            "counts as worse there.",
            "",
        ]
        others = [m for m in methods if m != first]
        scores = ("cells", "IBS", "Ctd")
        cells = [(o, *("/".join(map(str, summary.wins(units, first, o, s))) for s in scores)) for o in others]
        lines.append(markdown(("against", *(summary.LABEL[s] for s in scores)), cells))
        lines += ["", *_tables(units, first, drawn)]
    if lost := summary.failures(units):
        lines += ["", "## Failures", "", "A method that fails is ranked last on the table.", ""]
        lines += [f"- {line}" for line in lost]
    lines += ["", "## Protocol", "", *_protocol(record)]
    return "\n".join(lines) + "\n"


def _commits(record: dict[str, Any], method: str) -> list[str]:
    """The commits with which a method was run; none if any of its results does not name one."""
    named = {unit.get("commit", "") for unit in record["results"]["units"] if unit["method"] == method}
    return [] if "" in named else sorted(named)


def _protocol(record: dict[str, Any]) -> list[str]:
    """How the results were obtained."""
    settings, versions = record["configuration"], record["versions"]
    paragraphs = (
        "Models are fitted to the training rows of each fold (stratified by event) with default settings and seed 0, "
        "and scored on the test rows. `benchmarks/zoo.py` describes the scores.",
        "The *cell likelihood* is defined for every method. Time is divided into at most 30 cells at quantiles of the "
        "training event times. An event scores the log-probability of its cell, a censored row the log-probability of "
        "surviving to its time. S_L is the mean log-likelihood of methods with a density, with the range of the "
        "training times as the unit of time.",
        "A difference on a table is *clear* if its paired mean over the folds is more than twice its standard error. "
        "Because there are only five folds, which share training rows, this standard error is rough: without any true "
        "difference, about one table in nine would show a clear difference, in either direction.",
        "The components of the default, their numbers and epochs, and the knots of its time feature were chosen after "
        "seeing the test folds of these tables, so its results here are optimistic. The other methods were not tuned "
        "to them.",
        "Fits ran on different machines, beside other work: compare only the order of magnitude of seconds.",
    )
    lines = [line for text in paragraphs for line in (prose(text), "")]
    lines += [
        f"{_processors(record['results']['units'])}; {settings['threads']} thread, at most "
        f"{settings['seconds_at_most']:g} s per fit; torch {versions['torch']}, scikit-learn "
        f"{versions['scikit-learn']}.",
        "",
    ]
    return [*lines, "```", "python benchmarks/zoo.py --out results --page docs", "```"]


def _processors(units: list[dict[str, Any]]) -> str:
    """On which processor each method ran."""
    methods: dict[str, list[str]] = {}
    for unit in units:
        own = methods.setdefault(unit["processor"], [])
        own += [unit["method"]] * (unit["method"] not in own)
    return "; ".join(f"{processor}: {', '.join(own)}" for processor, own in methods.items())


def _means(units: pd.DataFrame) -> list[str]:
    table = summary.overview(units)
    if not len(table):
        return ["No method has been run on every table yet."]
    lines = [
        (r.method, _figure(r.cells), _figure(r.S_L), _figure(r.IBS), _figure(r.Ctd),
         f"{r.rejected} of {r.folds} ({r.bound})", f"{r.fit_seconds_median:.2f} / {r.fit_seconds:.2f}", str(r.failed))
        for r in table.sort_values("cells", ascending=False).itertuples()
    ]  # fmt: skip
    header = ("method", "cell likelihood", "S_L", "IBS", "Ctd", "D-calibration rejected at 5 %",
              "seconds to fit, median / mean", "failed folds")  # fmt: skip
    note = (
        f"Scores are means over the {table['tables'].iloc[0]} tables on which no method failed. In brackets: the "
        "largest number of rejections expected by chance (95 % binomial bound)."
    )
    return [markdown(header, lines), "", note]


def _ranks(units: pd.DataFrame) -> list[str]:
    found = {score: summary.mean_ranks(units, score) for score in summary.SIGN}
    found = {score: part for score, part in found.items() if len(part[0])}
    if "cells" not in found:
        return ["There are fewer than two methods."]
    lines = [
        (method, *(f"{part[0][method]:.2f}" if method in part[0] else "" for part in found.values()))
        for method in found["cells"][0].index
    ]
    lines.append(("critical difference", *(f"{part[1]:.2f}" for part in found.values())))
    return [markdown(("method", *(summary.LABEL[score] for score in found)), lines)]


def _tables(units: pd.DataFrame, first: str, drawn: dict[str, str]) -> list[str]:
    """Each table: the differences of one method to Weibull regression and to the best simple method."""
    if first in summary.SIMPLE or not set(summary.SIMPLE) <= set(units["method"]):
        return []
    lines = []
    for r in summary.against_simple(units, first).itertuples():
        s_l = "" if math.isnan(r.S_L) else f"{r.S_L:+.3f} ± {r.S_L_error:.3f}{' **behind**' if r.low_S_L else ''}"
        behind = " **behind**" if r.high_IBS else ""
        brier = "" if math.isnan(r.IBS) else f"{r.IBS:+.1%} ± {r.IBS_error:.1%}{behind}"
        lines.append((r.table, s_l, brier, r.best))
    header = ("table", f"S_L minus that of {summary.WEIBULL}", "IBS against the best simple method", "simple method")
    made = [f"## {first} on each table", "", "Differences with their standard errors over folds; lower IBS is better."]
    made += ["", markdown(header, lines)]
    return (
        [*made, "", f"![The same differences as a picture](figures/{drawn['tables']})"] if "tables" in drawn else made
    )


def _figure(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"


# ------------------------------------------------------------------ pictures


def draw(units: pd.DataFrame, out: Path) -> dict[str, str]:
    """Draw what the results allow; the names of the files."""
    import matplotlib as mpl

    mpl.use("Agg")
    drawn = {}
    for name, make in (("ranks", rank_picture), ("tables", table_picture)):
        if (figure := make(units)) is not None:
            figure.savefig(out / FIGURES[name], dpi=130)
            drawn[name] = FIGURES[name]
    return drawn


def rank_picture(units: pd.DataFrame) -> Any:
    """Critical-difference diagrams: mean ranks, with lines that join methods which do not differ significantly."""
    from matplotlib import pyplot

    found = {score: summary.mean_ranks(units, score) for score in ("cells", "IBS", "Ctd")}
    if any(len(part[0]) < 2 for part in found.values()):
        return None
    k = max(len(part[0]) for part in found.values())
    figure, axes = pyplot.subplots(3, 1, figsize=(8.5, 3 * (0.95 + 0.21 * k)), layout="constrained")
    for axis, (score, (ranks, critical, tables)) in zip(axes, found.items()):
        _diagram(axis, ranks, critical, k)
        axis.set_title(f"{summary.LABEL[score]}: mean rank over {tables} tables", fontsize=10, loc="left")
    return figure


def _diagram(axis: Any, ranks: pd.Series, critical: float, k: int) -> None:
    values, names = ranks.to_numpy(), list(ranks.index)
    half = (len(names) + 1) // 2
    groups = _groups(values, critical)
    depth = 0.35 + 0.28 * len(groups)  # below the lines come the names
    axis.hlines(0, 1, k, color="black", lw=1)
    for rank in range(1, k + 1):
        axis.vlines(rank, 0, 0.12, color="black", lw=1)
        axis.text(rank, 0.2, str(rank), ha="center", va="bottom", fontsize=8)
    axis.hlines(0.95, 1, 1 + critical, color="0.4", lw=2)
    axis.text(1 + critical + 0.08, 0.95, f"critical difference {critical:.2f}", va="center", fontsize=8, color="0.3")
    for i, (value, name) in enumerate(zip(values, names)):
        left = i < half
        y = -depth - 0.42 * (i if left else len(names) - 1 - i)
        end = 0.7 if left else k + 0.3
        colour = "C0" if name == summary.DEFAULT else "black"
        axis.plot([value, value, end], [0, y, y], color=colour, lw=0.8)
        label = f"{name}  {value:.2f}" if left else f"{value:.2f}  {name}"
        weight = "bold" if name == summary.DEFAULT else "normal"
        where = end - 0.08 if left else end + 0.08
        axis.text(
            where, y, label, ha="right" if left else "left", va="center", fontsize=9, color=colour, fontweight=weight
        )
    for i, (low, high) in enumerate(groups):
        axis.hlines(-0.25 - 0.28 * i, values[low] - 0.05, values[high] + 0.05, color="C3", lw=3.5)
    axis.set(xlim=(-1.6, k + 2.6), ylim=(-depth - 0.42 * half, 1.2))
    axis.axis("off")


def _groups(values: Any, critical: float) -> list[tuple[int, int]]:
    """The longest runs of sorted mean ranks whose ends are less than the critical difference apart."""
    found: list[tuple[int, int]] = []
    for low in range(len(values)):
        high = int(np.searchsorted(values, values[low] + critical)) - 1
        if high > low and (not found or high > found[-1][1]):
            found.append((low, high))
    return found


def table_picture(units: pd.DataFrame) -> Any:
    """Differences of one method on every table, with two standard errors."""
    from matplotlib import pyplot

    first = summary.subject(units)
    if first in summary.SIMPLE or not {first, *summary.SIMPLE} <= set(units["method"]):
        return None
    found = summary.against_simple(units, first)
    parts = [("S_L", "low_S_L", f"S_L less that of {summary.WEIBULL} (right is better)", summary.MARGIN_S_L, 1.0)]
    parts += [
        ("IBS", "high_IBS", "IBS against the best simple method, % (left is better)", 100 * summary.MARGIN_IBS, 100.0)
    ]
    parts = [part for part in parts if found[part[0]].notna().any()]
    figure, axes = pyplot.subplots(
        1,
        len(parts),
        figsize=(4.8 * len(parts) + 0.8, 1.2 + 0.21 * len(found)),
        sharey=True,
        layout="constrained",
        squeeze=False,
    )
    places = np.arange(len(found))[::-1]
    for axis, (score, behind, title, margin, unit) in zip(axes[0], parts):
        value, error = unit * found[score], unit * found[f"{score}_error"]
        colours = np.where(found[behind], "C3", np.where(abs(value) > 2 * error, "C0", "0.6"))
        axis.axvline(0, color="0.3", lw=0.8)
        axis.axvline(-margin if score == "S_L" else margin, color="C3", lw=0.8, ls=":")
        axis.hlines(places, value - 2 * error, value + 2 * error, color=colours, lw=1.5)
        reach = max(4 * margin, float(np.nanquantile(abs(value), 0.9)) * 1.5)
        inside = (abs(value) <= reach).to_numpy()
        axis.scatter(value[inside], places[inside], color=colours[inside], s=22, zorder=3)
        for i in np.flatnonzero(~inside & value.notna()):  # off the scale: a mark at the edge with the value
            right = value[i] > 0
            axis.plot(np.copysign(reach, value[i]), places[i], ">" if right else "<", color=colours[i], ms=6)
            where = np.copysign(0.96 * reach, value[i])
            axis.text(where, places[i] + 0.1, f"{value[i]:+.3g}", ha="right" if right else "left", fontsize=7)
        axis.set(xlim=(-1.05 * reach, 1.05 * reach))
        axis.set_title(title, fontsize=9)
        axis.grid(axis="x", color="0.92")
        axis.tick_params(labelsize=8)
    axes[0, 0].set_yticks(places, found["table"], fontsize=8)
    said = f"{first}: mean over folds ± 2 standard errors\n"
    said += "red: clearly behind, by more than the margin (dotted)\nblue: clear difference; grey: no clear difference"
    figure.supxlabel(said, fontsize=8)
    return figure
