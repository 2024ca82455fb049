"""Restricted mean survival times of groups by Kaplan-Meier, and their differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri
from scipy.stats import chi2

from sumosurv.confidence import check_level
from sumosurv.nonparametric.comparison import labels_of
from sumosurv.nonparametric.curves import count, product_limit, refuse_intervals
from sumosurv.nonparametric.intervals import Floats
from sumosurv.nonparametric.subjects import is_robust, sum_by_subject, sums_at_risk
from sumosurv.outcome import Outcome, check_outcome


@dataclass(frozen=True)
class RestrictedMeanTest:
    """The result of `restricted_mean_test`.

    Attributes
    ----------
    horizon : float
    groups : DataFrame
        By group: ``rows`` (or their weights), ``restricted_mean``, its ``standard_error`` and its limits ``lower`` and
        ``upper``.
    differences : DataFrame
        By pair of groups, the first of all groups against each other: ``difference`` in units of time, the first named
        less the second, ``standard_error``, ``lower``, ``upper`` and ``p``; and ``ratio`` with ``ratio_lower`` and
        ``ratio_upper``.
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

    with Kaplan-Meier's curve of each group. Hazards need not be proportional, and the difference is in units of time.

    Parameters
    ----------
    y : outcome
        Exact and right-censored times. Rows with delayed entry are at risk from their entry on; as in `kaplan_meier`,
        the curve stays at zero after an event that leaves nobody at risk. Causes are not distinguished.
    by : array of shape (n,)
        The group of each row.
    horizon : float
        τ, chosen before looking at the data. At most the last time of every group, unless its curve has reached zero.
    level : float
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
        raise ValueError(f"horizon is a positive time; got {horizon!r}.")
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
