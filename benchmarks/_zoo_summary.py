"""Summaries of the results of `zoo.py`: means, ranks and clear differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

DEFAULT, WEIBULL = "SumoNet", "Weibull regression"
SIMPLE = (WEIBULL, "penalised Cox", "Kaplan-Meier")
SIGN = {"cells": 1.0, "S_L": 1.0, "IBS": -1.0, "Ctd": 1.0}  # which way is better
LABEL = {"cells": "cell likelihood", "S_L": "S_L", "IBS": "IBS", "Ctd": "Ctd"}
MARGIN_S_L, MARGIN_IBS = 0.02, 0.02  # nats; share of the best simple method's IBS
LEVEL = 0.05


def frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Results as a table; a fold that failed has NaN for its scores and the reason in ``error``."""
    columns = ["table", "method", "fold", *SIGN, "D_calibration_p", "fit_seconds", "error"]
    made = pd.DataFrame(list(rows)).reindex(columns=columns)
    return made.astype(dict.fromkeys((*SIGN, "D_calibration_p", "fit_seconds"), float))


def whole(units: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Methods that were tried on every table and fold that any method was tried on, and the others."""
    tried = units.groupby("method", sort=False).size()
    most = len(units[["table", "fold"]].drop_duplicates())
    return [m for m in tried.index if tried[m] == most], [m for m in tried.index if tried[m] < most]


def by_table(units: pd.DataFrame, score: str, methods: Sequence[str]) -> pd.DataFrame:
    """Means over the folds, one row per table and one column per method; NaN where a fold failed."""
    part = units[units["method"].isin(methods)]
    means = part.groupby(["table", "method"])[score].agg(lambda values: values.mean(skipna=False))
    return means.unstack("method").reindex(columns=list(methods))


def ranks(means: pd.DataFrame, score: str) -> pd.DataFrame:
    """Ranks within each row, 1 for the best; ties share the mean of their ranks, and what is NaN is last."""
    worst = (-SIGN[score] * means).fillna(np.inf)
    return pd.DataFrame(stats.rankdata(worst, axis=1), index=means.index, columns=means.columns)


def critical_difference(methods: int, tables: int, level: float = LEVEL) -> float:
    """Nemenyi's critical difference of mean ranks: q √(k (k + 1) / 6N).

    q is the quantile of the studentised range of k methods with infinite degrees of freedom, divided by √2 (Demšar
    2006, Journal of Machine Learning Research 7).
    """
    q = float(stats.studentized_range.ppf(1.0 - level, methods, np.inf)) / math.sqrt(2.0)
    return q * math.sqrt(methods * (methods + 1) / (6.0 * tables))


@dataclass(frozen=True)
class Difference:
    """A mean difference over folds, paired, and its standard error."""

    mean: float
    error: float

    @property
    def sign(self) -> int:
        """1 or -1 where the mean is more than twice its standard error away from zero, else 0."""
        return int(np.sign(self.mean)) if abs(self.mean) > 2.0 * self.error else 0


def paired(one: Any, other: Any) -> Difference:
    """The difference of two methods' scores on the same folds; NaN where a fold failed or there are fewer than two."""
    d = np.asarray(one, dtype=float) - np.asarray(other, dtype=float)
    if len(d) < 2 or not np.isfinite(d).all():
        return Difference(float(d.mean()) if len(d) else math.nan, math.nan)
    return Difference(float(d.mean()), float(d.std(ddof=1) / math.sqrt(len(d))))


def folds_of(units: pd.DataFrame, table: str, method: str, score: str) -> Any:
    """The scores of a method on the folds of a table."""
    part = units[(units["table"] == table) & (units["method"] == method)].sort_values("fold")
    return part[score].to_numpy()


def wins(units: pd.DataFrame, one: str, other: str, score: str) -> tuple[int, int, int]:
    """On how many tables ``one`` is clearly better, not clearly different, clearly worse; a failure counts as worse."""
    counts = [0, 0, 0]
    for table in units["table"].unique():
        a, b = folds_of(units, table, one, score), folds_of(units, table, other, score)
        if len(a) == 0 or len(a) != len(b):
            continue
        sign = int(np.isnan(b).any()) - int(np.isnan(a).any())
        if sign == 0 and not np.isnan(a).any():
            sign = int(SIGN[score]) * paired(a, b).sign
        counts[1 - sign] += 1
    return counts[0], counts[1], counts[2]


def against_simple(units: pd.DataFrame, method: str) -> pd.DataFrame:
    """For each table: S_L less that of Weibull regression, and IBS against the best simple method, with their noise.

    ``low_S_L`` and ``high_IBS`` say that the method is behind by more than the margin (0.02 nats; 2 %) and that the
    difference is clear. The best simple method is the one with the smallest mean IBS on that table.
    """
    lines = []
    for table in sorted(units.loc[units["method"] == method, "table"].unique()):
        likelihood = paired(folds_of(units, table, method, "S_L"), folds_of(units, table, WEIBULL, "S_L"))
        means = by_table(units[units["table"] == table], "IBS", SIMPLE).loc[table]
        best = means.idxmin()
        brier = paired(folds_of(units, table, method, "IBS"), folds_of(units, table, best, "IBS"))
        share = brier.mean / means[best]
        lines.append({
            "table": table, "S_L": likelihood.mean, "S_L_error": likelihood.error,
            "low_S_L": likelihood.mean < -MARGIN_S_L and likelihood.sign < 0,
            "best": best, "IBS": share, "IBS_error": brier.error / means[best],
            "high_IBS": share > MARGIN_IBS and brier.sign > 0,
        })  # fmt: skip
    return pd.DataFrame(lines)


def rejections(units: pd.DataFrame, method: str) -> tuple[int, int, int]:
    """Folds in which D-calibration is rejected at 5 %, folds in all, and the most that chance allows.

    The last is the 95 % quantile of the binomial distribution with probability 0.05, as if folds were independent.
    """
    p = units.loc[units["method"] == method, "D_calibration_p"].dropna()
    return int((p < LEVEL).sum()), len(p), int(stats.binom.ppf(1.0 - LEVEL, len(p), LEVEL))


def overview(units: pd.DataFrame) -> pd.DataFrame:
    """One row per method: means over the tables on which no method failed, seconds, rejections and failures."""
    methods, _ = whole(units)
    failed = set(units.loc[units["method"].isin(methods) & units["error"].notna(), "table"])
    kept = units[~units["table"].isin(failed)]
    lines = []
    for method in methods:
        own, all_own = kept[kept["method"] == method], units[units["method"] == method]
        means = own.groupby("table")[list(SIGN)].mean().mean()
        bad, folds, bound = rejections(units, method)
        lines.append({
            "method": method, **means, "fit_seconds": all_own["fit_seconds"].mean(),
            "fit_seconds_median": all_own["fit_seconds"].median(), "rejected": bad, "folds": folds, "bound": bound,
            "failed": int(all_own["error"].notna().sum()), "tables": kept["table"].nunique(),
        })  # fmt: skip
    return pd.DataFrame(lines)


def mean_ranks(units: pd.DataFrame, score: str) -> tuple[pd.Series, float, int]:
    """Mean ranks, best first, with the critical difference and the number of tables; S_L among those with a density."""
    methods, _ = whole(units)
    if score == "S_L":
        methods = [m for m in methods if units.loc[units["method"] == m, "S_L"].notna().any()]
    if len(methods) < 2:
        return pd.Series(dtype=float), math.nan, 0
    table = ranks(by_table(units, score, methods), score)
    return table.mean().sort_values(), critical_difference(len(methods), len(table)), len(table)


def subject(units: pd.DataFrame) -> str:
    """The method that is compared with all others: the default, or the first by cell likelihood where it is missing."""
    methods, _ = whole(units)
    return DEFAULT if DEFAULT in methods or len(methods) < 2 else str(mean_ranks(units, "cells")[0].index[0])


def standing(units: pd.DataFrame, method: str) -> list[str]:
    """Lines that say where one method stands: ranks, differences from simple methods, calibration."""
    lines = []
    for score in ("cells", "S_L", "IBS", "Ctd"):
        found, critical, tables = mean_ranks(units, score)
        if method in found:
            place = 1 + int((found < found[method]).sum())
            lines.append(
                f"mean rank on {LABEL[score]}: {found[method]:.2f}, place {place} of {len(found)} over {tables} "
                f"tables (first: {found.index[0]}, {found.iloc[0]:.2f}; critical difference {critical:.2f})"
            )
    both = by_table(units, "S_L", [method, WEIBULL]).dropna()
    if method != WEIBULL and len(both):
        mean = both.mean()
        lines.append(
            f"mean S_L over {len(both)} tables: {mean[method]:.4f}, which is {mean[method] - mean[WEIBULL]:+.4f} "
            f"relative to {WEIBULL} ({mean[WEIBULL]:.4f})"
        )
    if method not in SIMPLE and set(SIMPLE) <= set(units["method"]):
        found = against_simple(units, method)
        if len(both):
            low = found[found["low_S_L"]]
            which = "".join(f"; {r.table} {r.S_L:+.3f} ± {r.S_L_error:.3f}" for r in low.itertuples())
            lines.append(
                f"clearly below {WEIBULL} on S_L, by more than {MARGIN_S_L} nats: {len(low)} of {len(both)} "
                f"tables{which}"
            )
        high = found[found["high_IBS"]]
        which = "".join(f"; {r.table} {r.IBS:+.1%} ± {r.IBS_error:.1%} ({r.best})" for r in high.itertuples())
        lines.append(
            f"IBS clearly above the best simple method, by more than {100 * MARGIN_IBS:g} %: {len(high)} of "
            f"{found['IBS'].notna().sum()} tables{which}"
        )
    bad, folds, bound = rejections(units, method)
    if folds:
        within = "within" if bad <= bound else "more than"
        lines.append(
            f"D-calibration rejected at 5 % in {bad} of {folds} folds, {within} the {bound} expected by chance "
            "(95 % binomial bound)"
        )
    return lines


def failures(units: pd.DataFrame) -> list[str]:
    """One line per method, table and reason."""
    lost = units[units["error"].notna()]
    grouped = lost.groupby(["method", "table", "error"], sort=False)["fold"].apply(list)
    return [f"{m} on {t}, fold {', '.join(map(str, folds))}: {error}" for (m, t, error), folds in grouped.items()]


def report(rows: Sequence[dict[str, Any]]) -> str:
    """The summary in plain text."""
    if not rows:
        return "The record is empty."
    units = frame(rows)
    methods, partial = whole(units)
    table = overview(units)
    lines = [f"\nmeans over the {table['tables'].iloc[0] if len(table) else 0} tables on which no method failed"]
    lines.append(
        f"{'':22s}{'cells':>9s}{'S_L':>9s}{'IBS':>8s}{'Ctd':>8s}{'D-cal rejected':>18s}{'fit s':>9s}  failed folds"
    )
    for r in table.sort_values("cells", ascending=False).itertuples():
        s_l = "" if math.isnan(r.S_L) else f"{r.S_L:.4f}"
        rejected = f"{r.rejected} of {r.folds} ({r.bound})"
        lines.append(
            f"{r.method:22s}{r.cells:9.4f}{s_l:>9s}{r.IBS:8.4f}{r.Ctd:8.4f}{rejected:>18s}{r.fit_seconds:9.2f}"
            f"  {r.failed}"
        )
    if partial:
        lines.append(f"not on every table yet, and left out: {', '.join(partial)}")
    for score in SIGN:
        found, critical, tables = mean_ranks(units, score)
        if len(found):
            said = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
            lines.append(
                f"\nmean ranks on {LABEL[score]}, {tables} tables, critical difference {critical:.2f}:\n  {said}"
            )
    first = subject(units)
    if first in methods:
        lines.append(f"\n{first}: tables better / not clearly different / worse")
        for other in (m for m in methods if m != first):
            counts = {s: wins(units, first, other, s) for s in ("cells", "IBS", "Ctd")}
            lines.append(f"  {other:22s}" + "   ".join(f"{LABEL[s]} {a}/{b}/{c}" for s, (a, b, c) in counts.items()))
        lines += [f"\n{first}:", *(f"- {line}" for line in standing(units, first))]
    if lost := failures(units):
        lines += ["\nfailed:", *(f"- {line}" for line in lost)]
    return "\n".join(lines)
