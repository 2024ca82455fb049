"""Expected scores by quadrature, and the search for a false distribution that beats the truth.

Two groups, X = 0 and X = 1, with Weibull event times and exponential censoring times whose rate depends on X.
For any pair of Weibull curves the expected value of every score is an integral over time, so that the search
meets no sampling noise: what it finds is a fault of the score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

__all__ = ["EXPECTED_SCORES", "Design", "Finding", "search"]

Array = npt.NDArray[np.float64]

LEVELS = np.arange(1, 10) / 10


@dataclass(frozen=True)
class Design:
    """The true model: P(X = 1), Weibull scale and shape of each group, mean censoring time of each group.

    ``time`` is that of the scores at one time; the integrated ones run from 0 to ``horizon``.
    """

    share: float = 0.5
    scale: tuple[float, float] = (1.6, 1.0)
    shape: tuple[float, float] = (0.6, 2.5)
    censoring_mean: tuple[float, float] = (0.7, 4.0)
    time: float = 1.0
    horizon: float = 2.0

    @cached_property
    def truth(self) -> Array:
        """(log scale, log shape) of the two groups: what a candidate is made of."""
        return np.log([*self.scale, *self.shape])

    @cached_property
    def nodes(self) -> tuple[Array, Array]:
        """Times and quadrature weights from 0 to where nobody is left (Gauss-Legendre panels, dense near 0)."""
        points, weights = np.polynomial.legendre.leggauss(16)
        edges = np.linspace(0.0, 1.0, 301)
        centre, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
        v = (centre[:, None] + half[:, None] * points).ravel()
        end = 40.0 * max(self.censoring_mean)
        return end * v**4, (half[:, None] * weights).ravel() * 4.0 * end * v**3

    @cached_property
    def law(self) -> tuple[Array, Array, Array]:
        """Of each group at the nodes, shape (2, m): sub-density of events, of censorings, and P(Z > t)."""
        t, _ = self.nodes
        p = np.array([1.0 - self.share, self.share])[:, None]
        log_s, log_f = weibull(self.truth, t)
        mean = np.array(self.censoring_mean)[:, None]
        g = np.exp(-t / mean)
        return p * np.exp(log_f) * g, p * np.exp(log_s) * g / mean, p * np.exp(log_s) * g

    @cached_property
    def kaplan_meier_limit(self) -> Array:
        """What Kaplan-Meier of the censoring tends to, ignoring X: exp(-∫ hazard of censoring among all at risk)."""
        t, _ = self.nodes
        _, censored, at_risk = (part.sum(axis=0) for part in self.law)
        hazard = censored / np.maximum(at_risk, 1e-300)
        steps = np.concatenate([[hazard[0] * t[0]], 0.5 * (hazard[1:] + hazard[:-1]) * np.diff(t)])
        return np.asarray(np.exp(-np.cumsum(steps)))


def weibull(parameters: Array, t: Array) -> tuple[Array, Array]:
    """log S and log f of the two groups at times t, shape (2, m)."""
    log_scale, log_shape = parameters[:2, None], parameters[2:, None]
    shape = np.exp(log_shape)
    with np.errstate(over="ignore"):
        log_ratio = np.log(t) - log_scale
        power = np.exp(np.minimum(shape * log_ratio, 700.0))
    return -power, log_shape - np.log(t) + shape * log_ratio - power


# ------------------------------------------------------------------ expected scores, all such that more is better


def expected_log_likelihood(design: Design, candidate: Array) -> float:
    """E S_L."""
    t, w = design.nodes
    events, censored, _ = design.law
    log_s, log_f = weibull(candidate, t)
    return float((w * (events * log_f + censored * log_s)).sum())


def expected_concordance_td(design: Design, candidate: Array) -> float:
    """Ctd of infinitely many subjects; pairs within a group are ties."""
    log_s, _ = weibull(candidate, design.nodes[0])
    return _concordance(design, np.sign(log_s[1] - log_s[0]), np.ones_like(log_s[0]))


def expected_harrell_c(design: Design, candidate: Array) -> float:
    """Harrell's C of the restricted mean."""
    return _concordance(design, _order(design, candidate), 1.0)


def expected_uno_c(design: Design, candidate: Array) -> float:
    """Uno's C of the restricted mean, G by Kaplan-Meier, events before the horizon."""
    weight = np.where(design.nodes[0] < design.horizon, design.kaplan_meier_limit**-2.0, 0.0)
    return _concordance(design, _order(design, candidate), weight)


def _order(design: Design, candidate: Array) -> Any:
    t, w = design.nodes
    mean = (np.exp(weibull(candidate, t)[0]) * w * (t < design.horizon)).sum(axis=1)
    return np.sign(mean[1] - mean[0])


def _concordance(design: Design, order: Any, weight: Any) -> float:
    """``order`` is 1 where group 1 is predicted to outlive group 0, -1 where the reverse, 0 at ties."""
    _, w = design.nodes
    events, _, at_risk = design.law
    credit = 0.5 * (events[0] * at_risk[0] + events[1] * at_risk[1])
    credit = credit + 0.5 * ((1 + order) * events[0] * at_risk[1] + (1 - order) * events[1] * at_risk[0])
    pairs = events.sum(axis=0) * at_risk.sum(axis=0)
    return float((w * weight * credit).sum() / (w * weight * pairs).sum())


def _at_time(loss: str, own_censoring: bool) -> Callable[[Design, Array], float]:
    def score(design: Design, candidate: Array) -> float:
        """The weighted loss at one time."""
        return float(_weighted(design, candidate, loss, own_censoring, np.array([design.time]))[0])

    return score


def _integrated(loss: str, own_censoring: bool) -> Callable[[Design, Array], float]:
    points, weights = np.polynomial.legendre.leggauss(60)

    def score(design: Design, candidate: Array) -> float:
        """The weighted loss, integrated from 0 to the horizon and divided by it."""
        times = 0.5 * design.horizon * (points + 1.0)
        return float(0.5 * weights @ _weighted(design, candidate, loss, own_censoring, times))

    return score


def _weighted(design: Design, candidate: Array, loss: str, own_censoring: bool, times: Array) -> Array:
    """Minus the expected Brier score, or the expected binomial log-likelihood, at given times."""
    if own_censoring:  # the weights undo the censoring: what is left are F and S of the truth
        log_true = weibull(design.truth, times)[0]
        p = np.array([1.0 - design.share, design.share])[:, None]
        died, alive = -p * np.expm1(log_true), p * np.exp(log_true)
    else:
        t, w = design.nodes
        events, _, at_risk = design.law
        g = design.kaplan_meier_limit
        died = np.array([np.interp(times, t, np.cumsum(row)) for row in w * events / g])
        alive = np.array([np.interp(times, t, row) for row in at_risk / np.maximum(g, 1e-300)])
    log_s = weibull(candidate, times)[0]
    if loss == "brier":
        s = np.exp(log_s)
        return np.asarray(-(s**2 * died + (1 - s) ** 2 * alive).sum(axis=0))
    log_f = np.log(np.maximum(-np.expm1(log_s), 1e-300))
    return np.asarray((log_f * died + np.maximum(log_s, -1e3) * alive).sum(axis=0))


def expected_crps(design: Design, candidate: Array) -> float:
    """Minus the expected survival-CRPS, ∫ F² P(Z > t) + S² P(Z <= t, D = 1) dt."""
    t, w = design.nodes
    events, _, at_risk = design.law
    s = np.exp(weibull(candidate, t)[0])
    died = np.cumsum(w * events, axis=1)
    return -float((w * ((1 - s) ** 2 * at_risk + s**2 * died)).sum())


def expected_calibration(design: Design, candidate: Array) -> float:
    """Minus the paper's calibration score of infinitely many subjects."""
    scale, shape = np.exp(candidate[:2, None]), np.exp(candidate[2:, None])
    quantile = scale * np.power(-np.log1p(-LEVELS), 1.0 / shape)
    true_scale, true_shape = np.array(design.scale)[:, None], np.array(design.shape)[:, None]
    left = np.exp(-((quantile / true_scale) ** true_shape) - quantile / np.array(design.censoring_mean)[:, None])
    p = np.array([1.0 - design.share, design.share])
    return -float(np.square(LEVELS - (1.0 - p @ left)).sum())


def expected_group_calibration(design: Design, candidate: Array) -> float:
    """Minus the calibration score in groups at one time, X making the groups."""
    at = np.array([design.time])
    gap = np.exp(weibull(candidate, at)[0]) - np.exp(weibull(design.truth, at)[0])
    return -float(np.array([1.0 - design.share, design.share]) @ np.square(gap[:, 0]))


# name -> expected score (more is better), whether it is proper as used here
EXPECTED_SCORES: dict[str, tuple[Callable[[Design, Array], float], bool]] = {
    "log_likelihood": (expected_log_likelihood, True),
    "concordance_td": (expected_concordance_td, False),
    "harrell_c": (expected_harrell_c, False),
    "uno_c": (expected_uno_c, False),
    "brier": (_at_time("brier", False), False),
    "binomial_log_likelihood": (_at_time("log", False), False),
    "integrated_brier": (_integrated("brier", False), False),
    "integrated_binomial_log_likelihood": (_integrated("log", False), False),
    "survival_crps": (expected_crps, False),
    "calibration": (expected_calibration, False),
    "group_calibration": (expected_group_calibration, False),
    "integrated_brier, G(t|x) known": (_integrated("brier", True), True),
    "integrated_binomial_log_likelihood, G(t|x) known": (_integrated("log", True), True),
}


@dataclass(frozen=True)
class Finding:
    """The false distribution that a score likes best.

    ``gain`` is its expected score less that of the truth, positive where the score is fooled; ``distance`` is what it
    loses in expected log-likelihood: zero at the truth alone.
    """

    score: str
    proper: bool
    at_truth: float
    gain: float
    distance: float
    scale: tuple[float, float]
    shape: tuple[float, float]

    @property
    def verdict(self) -> str:
        """Fooled: a false one beats the truth by more than the quadrature's error. Blind: one far off does as well."""
        if self.gain > 1e-5:
            return "fooled"
        return "blind" if self.distance > 1e-2 else "the truth is best"


def search(design: Design, name: str, *, n_starts: int = 200, n_polish: int = 4, seed: int = 0) -> Finding:
    """Random candidates, the best of them polished by Nelder-Mead; the truth itself is one of the starts."""
    function, proper = EXPECTED_SCORES[name]
    rng = np.random.default_rng(seed)
    low, high = np.log([0.2, 0.2, 0.3, 0.3]), np.log([6.0, 6.0, 5.0, 5.0])
    starts = np.vstack([design.truth + rng.normal(0, 0.05, 4), rng.uniform(low, high, (n_starts, 4))])
    values = np.array([function(design, start) for start in starts])

    def loss(x: Array) -> float:
        outside = np.maximum(low - 1.0 - x, 0.0).sum() + np.maximum(x - high - 1.0, 0.0).sum()
        return -function(design, np.clip(x, low - 1.0, high + 1.0)) + float(outside)

    chosen = [0, *np.argsort(-values)[:n_polish]]
    options = {"maxiter": 600, "xatol": 1e-7, "fatol": 1e-12}
    ends = [minimize(loss, starts[k], method="Nelder-Mead", options=options) for k in chosen]
    best = min(ends, key=lambda end: float(end.fun)).x
    at_truth = function(design, design.truth)
    distance = expected_log_likelihood(design, design.truth) - expected_log_likelihood(design, best)
    (s0, s1, k0, k1) = np.exp(best).tolist()
    return Finding(name, proper, at_truth, function(design, best) - at_truth, distance, (s0, s1), (k0, k1))
