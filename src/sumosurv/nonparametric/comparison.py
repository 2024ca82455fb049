"""Comparing groups: log-rank tests, weighted and stratified, and restricted means by Kaplan-Meier."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtri
from scipy.stats import chi2

from sumosurv.confidence import check_level
from sumosurv.nonparametric.curves import Counts, at_risk_at, count, product_limit, refuse_intervals
from sumosurv.nonparametric.intervals import Floats
from sumosurv.nonparametric.subjects import is_robust, sum_by_subject, sums_at_risk
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.outcome.checks import without_mask

Weighting = Literal["logrank", "gehan-breslow", "tarone-ware", "peto", "fleming-harrington"]
_WEIGHTINGS = ("logrank", "gehan-breslow", "tarone-ware", "peto", "fleming-harrington")


@dataclass(frozen=True)
class LogrankTest:
    """The result of `logrank_test`: statistic, p-value, and observed and expected events per group.

    Attributes
    ----------
    statistic : float
        Chi-squared with ``df`` degrees of freedom if all groups have the same hazard.
    df : int
        The number of groups minus one; groups without rows at risk at any event time do not count.
    p_value : float
    groups : DataFrame
        By group: ``rows`` (or their weights), ``events``, and ``expected``, the number of events if all groups had the
        same hazard.
    """

    statistic: float
    df: int
    p_value: float
    groups: pd.DataFrame


def logrank_test(
    y: Any,
    by: Any,
    *,
    weighting: Weighting = "logrank",
    rho: float = 0.0,
    gamma: float = 0.0,
    strata: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
) -> LogrankTest:
    r"""Test whether two or more groups have the same hazard at all times.

    At each event time tⱼ, the events d of group g are compared with the number expected from all events and the numbers
    at risk:

    .. math:: U_g = \sum_j W_j \Big(d_{gj} - d_j \frac{n_{gj}}{n_j}\Big), \qquad
              V_{gh} = \sum_j W_j^2 \, d_j \frac{n_j - d_j}{n_j - 1} \frac{n_{gj}}{n_j}
              \Big(1\{g = h\} - \frac{n_{hj}}{n_j}\Big),

    and :math:`U^\top V^{-1} U` is chi-squared. U and V are computed in each stratum and added up.

    Parameters
    ----------
    y : outcome
        Exact and right-censored times. Rows with delayed entry are at risk from their entry on. Causes are not
        distinguished: for one of several causes, pass ``Surv.from_arrays(cause == k, time)``, which compares
        cause-specific hazards.
    by : array of shape (n,)
        The group of each row.
    weighting : {"logrank", "gehan-breslow", "tarone-ware", "peto", "fleming-harrington"}
        The weight W of each event time: 1, n, √n, the survival estimate Π (1 - d/(n + 1)) (Peto and Peto, modified), or
        S(t-)^rho (1 - S(t-))^gamma with Kaplan-Meier's S of all groups. The log-rank test has the highest power if
        hazards are proportional; the next three emphasise early differences, Fleming-Harrington with gamma > 0 late
        ones. Choose the weighting before looking at the data: the smallest of several p-values is not a p-value.
    rho, gamma : float, default 0.0
        Exponents of Fleming-Harrington's weights, zero or more.
    strata : array of shape (n,), optional
        Groups are compared within strata only.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents. With integer weights, the test equals that of repeated rows. With other
        weights, V is the robust variance, the sum of squares of the weighted scores of the rows.
    groups : array of shape (n,), optional
        The subject of each row, if subjects have several rows: V is then the sum of squares of their scores.

    Returns
    -------
    LogrankTest

    References
    ----------
    Klein, Moeschberger (2003), Survival Analysis, chapter 7; Lin, Wei (1989), JASA 84.

    Notes
    -----
    All weightings use the variance of the hypergeometric distribution, with the factor (n - d)/(n - 1), as ``survdiff``
    in R does. The log-rank and Fleming-Harrington (rho = 1) tests agree with ``survdiff``, the others with their
    definition written out in R (tests/r/curves.R). R's survMisc (version 0.5.6) agrees for three groups. For two groups
    with tied events it differs, even for the log-rank test: it replaces d (n - d) by the sum over both groups of d_g (n
    - d_g), which is larger, so that its statistics are smaller.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> y = Surv.from_arrays(event=[1, 1, 1, 0, 1, 1, 1, 1], time=[5.0, 6.0, 8.0, 9.0, 1.0, 2.0, 3.0, 7.0])
    >>> found = logrank_test(y, by=["new"] * 4 + ["old"] * 4)
    >>> round(found.statistic, 3), round(found.p_value, 3)
    (2.969, 0.085)
    """
    outcome = check_outcome(y, sample_weight=sample_weight, groups=groups)
    refuse_intervals(outcome, "log-rank tests", "give exact or right-censored times")
    if weighting not in _WEIGHTINGS:
        raise ValueError(f"weighting must be one of {', '.join(map(repr, _WEIGHTINGS))}; got {weighting!r}.")
    if not (rho >= 0 and gamma >= 0) or ((rho or gamma) and weighting != "fleming-harrington"):
        raise ValueError(
            "rho and gamma must be zero or more, and require weighting='fleming-harrington'; got "
            f"rho={rho!r}, gamma={gamma!r} with {weighting!r}."
        )
    names, group = labels_of(by, len(outcome), "by")
    kept = np.flatnonzero(outcome.weights > 0)
    stratum = np.zeros(len(outcome), dtype=np.intp) if strata is None else labels_of(strata, len(outcome), "strata")[1]
    (u, events, expected), v = np.zeros((3, len(names))), np.zeros((len(names), len(names)))
    scores = np.zeros((len(outcome), len(names)))
    for s in np.unique(stratum[kept]):
        rows = kept[stratum[kept] == s]
        found = _stratum(outcome[rows], group[rows], len(names), lambda counts: _weights(counts, weighting, rho, gamma))
        u, events, expected, v = u + found[0], events + found[1], expected + found[2], v + found[3]
        scores[rows] = found[4]
    if is_robust(outcome):
        by_subject = sum_by_subject(scores, outcome)
        v = by_subject.T @ by_subject
    compared = np.flatnonzero(expected > 0)
    if len(compared) < 2:
        raise ValueError(
            "There is nothing to compare: no event happened while rows of two or more groups were at risk."
        )
    df, some = len(compared) - 1, compared[:-1]
    statistic = float(u[some] @ np.linalg.pinv(v[np.ix_(some, some)], hermitian=True) @ u[some])
    table = {
        "rows": np.bincount(group[kept], weights=outcome.weights[kept], minlength=len(names)),
        "events": events,
        "expected": expected,
    }
    by_group = pd.DataFrame(table, index=pd.Index(names, name="group"))
    return LogrankTest(statistic, df, float(chi2.sf(statistic, df)), by_group)


def labels_of(given: Any, n: int, name: str) -> tuple[list[Hashable], npt.NDArray[np.intp]]:
    """Return the sorted groups and the number of the group of each row; raise ValueError if a label is missing."""
    values = pd.Series(without_mask(given).tolist() if not isinstance(given, pd.Series) else given.to_numpy())
    if len(values) != n or getattr(given, "ndim", 1) != 1:
        raise ValueError(f"{name} must have one group for each of the {n} rows; got shape {np.shape(given)}.")
    if values.isna().any():
        row = int(np.flatnonzero(values.isna())[0])
        raise ValueError(f"{name} is missing in row {row}; drop such rows, or assign them to a separate group.")
    codes, found = pd.factorize(values, sort=True)
    if len(found) < 2 and name == "by":
        raise ValueError(f"{name} has one group, {str(found[0])!r}; there is nothing to compare.")
    return list(found), np.asarray(codes, dtype=np.intp)


def _weights(counts: Counts, weighting: Weighting, rho: float, gamma: float) -> Floats:
    """Return W at each event time."""
    events, at_risk = counts.events, counts.at_risk
    if weighting == "gehan-breslow":
        return at_risk
    if weighting == "tarone-ware":
        return np.sqrt(at_risk)
    if weighting == "peto":
        return np.cumprod(1.0 - events / (at_risk + 1.0), dtype=np.float64)
    before = np.append(1.0, product_limit(counts))[:-1]
    return np.asarray(before**rho * (1.0 - before) ** gamma)  # ones for the log-rank test, where both are zero


def _stratum(
    outcome: Outcome,
    group: npt.NDArray[np.intp],
    n_groups: int,
    weigh: Callable[[Counts], Floats],
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return what a stratum contributes: U, events and expected events of each group, V, and the rows' shares of U."""
    counts = count(outcome)
    counts = counts[counts.events > 0]
    times, d, n = counts.times, counts.events, counts.at_risk
    events, at_risk = np.zeros((2, len(times), n_groups))
    for g in range(n_groups):
        rows = outcome[group == g]
        at_risk[:, g] = at_risk_at(rows, times)
        place = np.searchsorted(times, rows.time[rows.event])
        events[:, g] = np.bincount(place, weights=rows.weights[rows.event], minlength=len(times))
    weight, share = weigh(counts), at_risk / at_risk.sum(axis=1, keepdims=True)
    left = np.divide(n - d, n - 1.0, out=np.ones_like(n), where=n > 1)
    factor = weight**2 * d * left
    variance = np.diag(factor @ share) - (share * factor[:, None]).T @ share
    # the rows' shares: W (1{own group} - share), integrated over the martingale of each row
    own, hazard = np.eye(n_groups)[group], weight * d / n
    passed = sums_at_risk(outcome, times, hazard[:, None] * np.column_stack([np.ones(len(hazard)), share]))
    scores = passed[:, 1:] - own * passed[:, :1]
    seen = outcome.event
    place = np.searchsorted(times, outcome.time[seen])
    scores[seen] += weight[place, None] * (own[seen] - share[place])
    u = weight @ (events - d[:, None] * share)
    return u, events.sum(axis=0), d @ share, variance, scores * outcome.weights[:, None]


# ------------------------------------------------------------------ restricted means


@dataclass(frozen=True)
class RestrictedMeanTest:
    """The result of `restricted_mean_test`: restricted means of the groups, their differences and a test.

    Attributes
    ----------
    horizon : float
    groups : DataFrame
        By group: ``rows`` (or their weights), ``restricted_mean``, its ``standard_error`` and its limits ``lower`` and
        ``upper``.
    differences : DataFrame
        By pair of groups: ``difference``, the first minus the second in units of time, with ``standard_error``,
        ``lower``, ``upper`` and ``p``; ``ratio`` with ``ratio_lower`` and ``ratio_upper``.
    statistic, p_value : float
        Wald's test that all groups have the same restricted mean, chi-squared on ``df`` degrees of freedom.
    df : int
    """

    horizon: float
    groups: pd.DataFrame
    differences: pd.DataFrame
    statistic: float
    df: int
    p_value: float


def restricted_mean_test(
    y: Any, by: Any, horizon: float, *, level: float = 0.95, sample_weight: Any = None, groups: Any = None
) -> RestrictedMeanTest:
    r"""Compare the expected time lived up to a horizon between two or more groups.

    .. math:: \hat μ(τ) = \int_0^τ \hat S(t) \, dt, \qquad
              \widehat{Var} = \sum_{t_i \le τ} \Big(\int_{t_i}^τ \hat S(t) \, dt\Big)^2 \frac{d_i}{n_i (n_i - d_i)}

    with the Kaplan-Meier curve of each group. Hazards need not be proportional, and the difference is in units of time.

    Parameters
    ----------
    y : outcome
        Exact and right-censored times. Rows with delayed entry are at risk from their entry on; as in `kaplan_meier`,
        the curve stays at zero after an event that leaves nobody at risk. Causes are not distinguished.
    by : array of shape (n,)
        The group of each row.
    horizon : float
        τ, chosen before looking at the data. At most the last time of every group, unless its curve has reached zero.
    level : float, default 0.95
        Confidence level of the intervals, which use the normal distribution, for ratios on the logarithmic scale.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents. With integer weights, the variance equals that of repeated rows. With
        other weights (inverse probability weights, for example) it is the infinitesimal jackknife, which takes the
        weights as known.
    groups : array of shape (n,), optional
        The subject of each row, if subjects have several rows: the jackknife is then over subjects. Groups to compare
        are assumed independent.

    Returns
    -------
    RestrictedMeanTest

    References
    ----------
    Royston, Parmar (2013), BMC Medical Research Methodology 13; Uno et al. (2014), Journal of Clinical Oncology 32.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> y = Surv.from_arrays(event=[1, 1, 1, 0, 1, 1, 1, 1], time=[5.0, 6.0, 8.0, 9.0, 1.0, 2.0, 3.0, 7.0])
    >>> found = restricted_mean_test(y, by=["new"] * 4 + ["old"] * 4, horizon=7.0)
    >>> found.groups["restricted_mean"].tolist(), found.differences["difference"].tolist()
    ([6.25, 3.25], [3.0])
    """
    outcome = check_outcome(y, sample_weight=sample_weight, groups=groups)
    refuse_intervals(outcome, "restricted means by Kaplan-Meier", "give exact or right-censored times")
    check_level(level)
    if not (np.ndim(horizon) == 0 and 0.0 < float(horizon) < np.inf):
        raise ValueError(f"horizon must be a positive time; got {horizon!r}.")
    names, group = labels_of(by, len(outcome), "by")
    kept = outcome.weights > 0
    robust = is_robust(outcome)
    means, variances, sizes = np.empty((3, len(names)))
    for g, name in enumerate(names):
        rows = outcome[kept & (group == g)]
        if not len(rows):
            raise ValueError(f"All rows of group {name!r} have a weight of zero.")
        means[g], variances[g], last = _restricted_mean(rows, float(horizon), robust)
        if rows.time.max() < horizon and last > 0:
            raise ValueError(
                f"Group {name!r} is followed up to {rows.time.max():g}, and the horizon is {horizon:g}; give a horizon "
                "that all groups reach."
            )
        sizes[g] = rows.total
    z = float(ndtri(0.5 + 0.5 * level))
    errors = np.sqrt(variances)
    table = {"rows": sizes, "restricted_mean": means, "standard_error": errors}
    by_group = pd.DataFrame(table | {"lower": means - z * errors, "upper": means + z * errors})
    by_group.index = pd.Index(names, name="group")
    contrasts = np.eye(len(names))[:1] - np.eye(len(names))[1:]
    gap, spread = contrasts @ means, contrasts @ np.diag(variances) @ contrasts.T
    statistic = float(gap @ np.linalg.pinv(spread, hermitian=True) @ gap)
    df = len(names) - 1
    return RestrictedMeanTest(
        float(horizon), by_group, _differences(names, means, variances, z), statistic, df, float(chi2.sf(statistic, df))
    )


def _differences(names: list[Any], means: Floats, variances: Floats, z: float) -> pd.DataFrame:
    rows = []
    for i in range(len(names)):
        for j in range(i + 1, len(names)):
            gap, error = means[i] - means[j], np.sqrt(variances[i] + variances[j])
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = means[i] / means[j]
                width = z * np.sqrt(variances[i] / means[i] ** 2 + variances[j] / means[j] ** 2)
                p = float(chi2.sf((gap / error) ** 2, 1)) if error > 0 else float("nan")
            rows.append(
                {"first": names[i], "second": names[j], "difference": gap, "standard_error": error}
                | {"lower": gap - z * error, "upper": gap + z * error, "p": p, "ratio": ratio}
                | {"ratio_lower": ratio * np.exp(-width), "ratio_upper": ratio * np.exp(width)}
            )
    return pd.DataFrame(rows).set_index(["first", "second"])


def _restricted_mean(outcome: Outcome, horizon: float, robust: bool) -> tuple[float, float, float]:
    """Return the restricted mean of one group by Kaplan-Meier, its variance, and S at the horizon."""
    counts = count(outcome)
    counts = counts[(counts.events > 0) & (counts.times <= horizon)]
    times, events, at_risk = counts.times, counts.events, counts.at_risk
    if not len(times):
        return horizon, 0.0, 1.0
    survival = product_limit(counts)
    pieces = survival * np.diff(np.append(times, horizon))
    area = np.cumsum(pieces[::-1])[::-1]  # ∫ S from each jump on
    left = at_risk - events
    # d log S = -dN / (n - d): what an event changes at each jump; once S is zero nothing is uncertain
    per_event = np.divide(area, left, out=np.zeros_like(left), where=left > 1e-12 * at_risk)
    if robust:
        own = sums_at_risk(outcome, times, per_event * events / at_risk)
        seen = outcome.event & (outcome.time <= times[-1])
        own[seen] -= per_event[np.searchsorted(times, outcome.time[seen])]
        variance = float(np.square(sum_by_subject(own * outcome.weights, outcome)).sum())
    else:
        variance = float((area * per_event * events / at_risk).sum())
    return float(times[0]) + float(pieces.sum()), variance, float(survival[-1])
