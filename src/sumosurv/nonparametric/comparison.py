"""Log-rank tests, weighted and stratified."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import chi2

from sumosurv.nonparametric.curves import Counts, at_risk_at, count, product_limit, refuse_intervals
from sumosurv.nonparametric.intervals import Floats
from sumosurv.nonparametric.subjects import is_robust, sum_by_subject, sums_at_risk
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.outcome.checks import without_mask

Weighting = Literal["logrank", "gehan-breslow", "tarone-ware", "peto", "fleming-harrington"]
_WEIGHTINGS = ("logrank", "gehan-breslow", "tarone-ware", "peto", "fleming-harrington")


@dataclass(frozen=True)
class LogrankTest:
    """The result of `logrank_test`.

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

    At each event time tⱼ the events d of group g are compared with those expected, given all events and those at risk:

    .. math:: U_g = \sum_j W_j \Big(d_{gj} - d_j \frac{n_{gj}}{n_j}\Big), \qquad
              V_{gh} = \sum_j W_j^2 \, d_j \frac{n_j - d_j}{n_j - 1} \frac{n_{gj}}{n_j}
              \Big(1\{g = h\} - \frac{n_{hj}}{n_j}\Big),

    and :math:`U^\top V^{-1} U` is chi-squared. In strata U and V are computed apart and added up.

    Parameters
    ----------
    y : outcome
        Exact and right-censored times. Rows with delayed entry are at risk from their entry on. Causes are not
        distinguished: for one of several, pass ``Surv.from_arrays(cause == k, time)``, which compares cause-specific
        hazards.
    by : array of shape (n,)
        The group of each row.
    weighting : {"logrank", "gehan-breslow", "tarone-ware", "peto", "fleming-harrington"}
        The weight W of each event time: 1, n, √n, the survival estimate Π (1 - d/(n + 1)) (Peto and Peto, modified), or
        S(t-)^rho (1 - S(t-))^gamma with Kaplan-Meier's S of all groups. The log-rank test has the highest power if
        hazards are proportional; the next three emphasise early differences, Fleming-Harrington with gamma > 0 late
        ones. Choose the weighting before looking at the data: the smallest of several p-values is not a p-value.
    rho, gamma : float
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
    with events at the same time, it differs, also in the log-rank test: it replaces d (n - d) by the sum over both
    groups of d_g (n - d_g), which is larger, so that its statistics are smaller.

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
        raise ValueError(f"weighting is one of {', '.join(map(repr, _WEIGHTINGS))}; got {weighting!r}.")
    if not (rho >= 0 and gamma >= 0) or ((rho or gamma) and weighting != "fleming-harrington"):
        raise ValueError(
            "rho and gamma are zero or more, and belong to weighting='fleming-harrington'; got "
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
    """The groups there are, in order, and the number of each row's; an error for missing labels or a single group."""
    values = pd.Series(without_mask(given).tolist() if not isinstance(given, pd.Series) else given.to_numpy())
    if len(values) != n:
        raise ValueError(f"{name} has one group for each of the {n} rows; got {len(values)}.")
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
        if len(rows):
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
