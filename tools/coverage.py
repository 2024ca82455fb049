"""Coverage of the intervals that the library prints: how many of them contain the true value.

    python tools/coverage.py                        # all studies, about half an hour on one core
    python tools/coverage.py --only cox fine_gray   # some of them again
    python tools/coverage.py --jobs 4

Every study draws samples from a known distribution, computes intervals at the nominal 95 % and counts those that
contain the truth. For scores and differences between scores, the truth is the expected score: the mean of the estimates
over all samples. Sample i of a study always has the same seed. The record, results/coverage.json, is written after each
study; studies that it has from the same commit and number of samples are not repeated unless they are named.
`python tools/validation.py` writes the table in docs/validation.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from sumosurv import (
    CauseSpecific,
    Conformal,
    CoxPH,
    FineGray,
    KaplanMeier,
    ParametricRegression,
    Surv,
    confidence_band,
    explain,
    restricted_mean_test,
    scores,
)
from sumosurv.calibrate import smooth_calibration
from sumosurv.distributions import Rescaled, Weibull

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "results" / "coverage.json"

Array = npt.NDArray[np.float64]


class Interval(NamedTuple):
    """An interval of one sample; ``truth`` None stands for the mean of the estimates over all samples."""

    name: str
    estimate: float
    lower: float
    upper: float
    truth: float | None


class Study(NamedTuple):
    """How many samples are drawn, what is drawn, and the intervals of one sample."""

    samples: int
    design: str
    intervals: Callable[[np.random.Generator], Iterable[Interval]]
    resamples: int | None = None  # of which quantiles are the limits


# ------------------------------------------------------------------ the population

SHAPE, BETA = 1.5, np.array([0.6, -0.4])
EARLY, LATE, HORIZON = 0.4, 0.9, 1.0
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
# a fair coin and a standard normal covariate, as points with probabilities
POINTS = np.column_stack([np.repeat([0.0, 1.0], 60), np.tile(_NODES, 2)])
PROBABILITY = np.tile(_WEIGHTS / _WEIGHTS.sum() / 2, 2)


def survival(t: Any, x: Array) -> Array:
    """S(t|x) of proportional hazards with a Weibull baseline."""
    return np.asarray(np.exp(-(np.asarray(t) ** SHAPE) * np.exp(x @ BETA)))


@cache
def marginal_survival(t: float) -> float:
    """S(t) of the population."""
    return float(PROBABILITY @ survival(t, POINTS))


def marginal_hazard(t: float) -> float:
    """Cumulative hazard of the population."""
    return -float(np.log(marginal_survival(t)))


def area(curve: Callable[[float], float]) -> float:
    """∫ of a curve from zero to the horizon."""
    nodes, weights = np.polynomial.legendre.leggauss(80)
    return float(sum(w * curve(0.5 * HORIZON * (1 + u)) for u, w in zip(nodes, weights)) * 0.5 * HORIZON)


def subjects(rng: np.random.Generator, n: int, dependence: float = 0.0, size: int = 1) -> tuple[Array, Array]:
    """Covariates and times of subjects in clusters of a size, times in a cluster with Gaussian dependence."""
    x = np.column_stack([rng.integers(0, 2, n), rng.normal(size=n)]).astype(np.float64)
    latent = normals(rng, n, dependence, size)
    if dependence:  # a treatment of whole clusters
        x[:, 0] = np.repeat(rng.integers(0, 2, n // size), size)
    return x, (-log_ndtr(latent) * np.exp(-x @ BETA)) ** (1 / SHAPE)


def normals(rng: np.random.Generator, n: int, dependence: float = 0.0, size: int = 1) -> Array:
    """Standard normal numbers with a correlation within clusters of a size."""
    shared = np.sqrt(dependence) * np.repeat(rng.normal(size=n // size), size) if dependence else 0.0
    return np.asarray(shared + np.sqrt(1.0 - dependence) * rng.normal(size=n))


CLUSTERS = np.repeat(np.arange(100), 4)


def censored(rng: np.random.Generator, times: Array) -> Any:
    """A third is censored; nobody is followed beyond 3."""
    limit = np.minimum(rng.exponential(1.5, len(times)), 3.0)
    return Surv.from_arrays(times <= limit, np.minimum(times, limit))


def weighted_sample(rng: np.random.Generator, n: int) -> tuple[Array, Any, Array]:
    """Subjects that were drawn with probabilities between 0.1 and 0.9, weighted by their inverse."""
    x, times = subjects(rng, 6 * n)
    chance = 0.1 + 0.8 / (1.0 + np.exp(-1.5 * x[:, 1]))
    drawn = np.flatnonzero(rng.random(len(x)) < chance)[:n]
    return x[drawn], censored(rng, times[drawn]), 1.0 / chance[drawn]


# ------------------------------------------------------------------ studies


def curves(rng: np.random.Generator) -> Iterable[Interval]:
    """Kaplan-Meier and Nelson-Aalen."""
    _, times = subjects(rng, 200)
    y = censored(rng, times)
    for kind in ("log-log", "log", "plain"):
        yield from _at(confidence_band(y, kind=kind), f"Kaplan-Meier, {kind}", marginal_survival)
    for kind in ("log-log", "plain"):  # "log" is the same as "log-log" here
        table = confidence_band(y, "nelson_aalen", kind=kind)
        yield from _at(table, f"Nelson-Aalen, {kind}", marginal_hazard)
    _, weighted, weight = weighted_sample(rng, 200)
    _, times = subjects(rng, 400, dependence=0.5, size=4)
    clustered = censored(rng, times)
    for of, name, truth in (
        ("kaplan_meier", "Kaplan-Meier", marginal_survival),
        ("nelson_aalen", "Nelson-Aalen", marginal_hazard),
    ):
        table = confidence_band(weighted, of, sample_weight=weight)
        yield from _at(table, f"{name}, log-log, sampling weights", truth)
        yield from _at(confidence_band(clustered, of, groups=CLUSTERS), f"{name}, log-log, clusters", truth)


def _at(table: Any, name: str, truth: Callable[[float], float]) -> Iterable[Interval]:
    """The limits in force at two times."""
    for time_ in (EARLY, LATE):
        row = table[table["time"] <= time_].iloc[-1]
        yield Interval(name, row["estimate"], row["lower"], row["upper"], truth(time_))


def two_causes(rng: np.random.Generator, n: int, share: Any = 0.4, **clusters: Any) -> Any:
    """Exponential times; cause 2 has a share of the events."""
    times = -log_ndtr(normals(rng, n, **clusters))
    cause = 1 + (ndtr(normals(rng, n, **clusters)) < share)
    limit = np.minimum(rng.exponential(1.5, n), 3.0)
    return Surv.from_arrays(np.where(times <= limit, cause, 0), np.minimum(times, limit))


def incidences(rng: np.random.Generator) -> Iterable[Interval]:
    """Aalen-Johansen, two causes."""
    y = two_causes(rng, 200)
    bands = {kind: confidence_band(y, "aalen_johansen", kind=kind) for kind in ("log-log", "log", "plain")}
    # subjects who tend to have cause 2 are sampled at a third of the rate
    frail = rng.random(600) < 0.5
    drawn = np.flatnonzero(rng.random(600) < np.where(frail, 0.2, 0.6))[:200]
    y = two_causes(rng, len(drawn), share=np.where(frail, 0.6, 0.2)[drawn])
    weight = 1.0 / np.where(frail, 0.2, 0.6)[drawn]  # not whole numbers, which would count rows
    bands["log-log, sampling weights"] = confidence_band(y, "aalen_johansen", sample_weight=weight)
    y = two_causes(rng, 400, dependence=0.5, size=4)
    bands["log-log, clusters"] = confidence_band(y, "aalen_johansen", groups=CLUSTERS)
    for name, table in bands.items():
        for k, share in ((1, 0.6), (2, 0.4)):
            yield from _at(table[table["cause"] == k], f"Aalen-Johansen, {name}", lambda t: share * -np.expm1(-t))  # noqa: B023


def interval_censored(rng: np.random.Generator) -> Iterable[Interval]:
    """Turnbull."""
    _, times = subjects(rng, 100)
    exact, visit = rng.random(100) < 0.5, 0.3 * rng.random(100)
    lower = np.where(exact, times, visit + 0.3 * np.floor((times - visit) / 0.3))
    upper = np.where(exact, times, lower + 0.3)
    y = Surv.interval(np.maximum(lower, 0.0), upper)
    yield from _at(
        confidence_band(y, "turnbull", n_bootstrap=60, random_state=rng),
        "Turnbull, half of the times exact",
        marginal_survival,
    )


def restricted_means(rng: np.random.Generator) -> Iterable[Interval]:
    """Restricted means of two groups, their difference and ratio."""
    x, times = subjects(rng, 200)
    found = restricted_mean_test(censored(rng, times), x[:, 0], HORIZON)
    means = arm_means()
    for (_, row), truth in zip(found.groups.iterrows(), means):
        yield Interval("restricted mean of a group", row["restricted_mean"], row["lower"], row["upper"], truth)
    row, gap = found.differences.iloc[0], means[0] - means[1]
    yield Interval("difference of restricted means", row["difference"], row["lower"], row["upper"], gap)
    yield Interval(
        "ratio of restricted means", row["ratio"], row["ratio_lower"], row["ratio_upper"], means[0] / means[1]
    )
    x, times = subjects(rng, 400, dependence=0.5, size=4)
    found = restricted_mean_test(censored(rng, times), x[:, 0], HORIZON, groups=CLUSTERS)
    row = found.differences.iloc[0]
    yield Interval("difference of restricted means, clusters", row["difference"], row["lower"], row["upper"], gap)


NEW = np.array([[1.0, -1.0], [0.0, 0.5]])


def _ratios(model: Any, name: str, truth: Array, ratio: str = "hazard_ratio") -> Iterable[Interval]:
    """Limits of the first ratios, as many as there are true ones."""
    table = model.summary().coefficients
    columns = [ratio, f"{ratio}_lower", f"{ratio}_upper"]
    for values, true in zip(table[columns].to_numpy(), np.exp(truth)):
        yield Interval(name, *values, float(true))


def _curves(model: Any, name: str) -> Iterable[Interval]:
    """Limits of S(t|x) of two new subjects at two times."""
    lower, upper = model.predict_survival_band(NEW, [EARLY, LATE])
    estimate = model.predict_survival_function(NEW, [EARLY, LATE])
    truth = np.column_stack([survival(t, NEW) for t in (EARLY, LATE)])
    for values in zip(estimate.ravel(), lower.ravel(), upper.ravel(), truth.ravel()):
        yield Interval(name, *values)


def cox(rng: np.random.Generator) -> Iterable[Interval]:
    """Hazard ratios and predictions of Cox regression."""
    x, times = subjects(rng, 200)
    model = CoxPH().fit(x, censored(rng, times))
    yield from _ratios(model, "Cox regression: hazard ratios", BETA)
    yield from _curves(model, "Cox regression: predicted survival, log-log")
    median = np.log(2.0) ** (1 / SHAPE) * np.exp(-NEW @ BETA / SHAPE)
    for values in zip(model.predict_median(NEW), *model.predict_median_limits(NEW), median):
        yield Interval("Cox regression: predicted median", *values)
    means = [area(lambda t: float(survival(t, row))) for row in NEW]  # noqa: B023
    for values in zip(
        model.predict_restricted_mean(NEW, HORIZON), *model.predict_restricted_mean_limits(NEW, HORIZON), means
    ):
        yield Interval("Cox regression: predicted restricted mean", *values)
    x, y, weight = weighted_sample(rng, 200)
    yield from _ratios(CoxPH().fit(x, y, sample_weight=weight), "Cox regression: hazard ratios, sampling weights", BETA)
    x, times = subjects(rng, 400, dependence=0.5, size=4)
    model = CoxPH().fit(x, censored(rng, times), groups=CLUSTERS)
    yield from _ratios(model, "Cox regression: hazard ratios, clusters", BETA)
    yield from _curves(model, "Cox regression: predicted survival, log-log, clusters")
    x, times = subjects(rng, 200)
    first, other = censored(rng, times), rng.exponential(np.exp(-0.5 * x[:, 1]))  # times of another cause
    cause = np.where(first["time"] <= other, first["event"], 2)
    y = Surv.from_arrays(cause, np.minimum(first["time"], other))
    found = CauseSpecific(estimator=CoxPH()).fit(x, y)
    yield from _ratios(found, "Cause-specific Cox regression: hazard ratios", BETA)


def parametric(rng: np.random.Generator) -> Iterable[Interval]:
    """Ratios and predictions of parametric regression."""
    x, times = subjects(rng, 200)
    y = censored(rng, times)
    model = ParametricRegression(family="weibull").fit(x, y)
    yield from _ratios(model, "Weibull regression: time ratios", -BETA / SHAPE, "time_ratio")
    yield from _curves(model, "Weibull regression: predicted survival")
    model = ParametricRegression(family="spline").fit(x, y)
    yield from _ratios(model, "spline regression: hazard ratios", BETA)
    yield from _curves(model, "spline regression: predicted survival")
    x, times = subjects(rng, 400, dependence=0.5, size=4)
    model = ParametricRegression(family="weibull").fit(x, censored(rng, times), groups=CLUSTERS)
    yield from _ratios(model, "Weibull regression: time ratios, clusters", -BETA / SHAPE, "time_ratio")


def subdistributions(rng: np.random.Generator, n: int, dependence: float = 0.0, size: int = 1) -> tuple[Array, Any]:
    """Cause 1 has the incidence 1 - (1 - p (1 - e^-t))^exp(βx), as in Fine and Gray (1999)."""
    p = 0.6
    x = np.column_stack([rng.integers(0, 2, n), rng.normal(size=n)]).astype(np.float64)
    if dependence:
        x[:, 0] = np.repeat(rng.integers(0, 2, n // size), size)
    ratio = np.exp(x @ BETA)
    first = 1.0 - (1.0 - p) ** ratio
    is_first, u = (ndtr(normals(rng, n, dependence, size)) for _ in range(2))
    is_first = is_first < first
    times = -np.log1p(-(1.0 - (1.0 - u * first) ** (1.0 / ratio)) / p)
    times = np.where(is_first, times, rng.exponential(np.exp(-x[:, 1] / 2)))
    limit = np.minimum(rng.exponential(1.5, n), 3.0)
    return x, Surv.from_arrays(np.where(times <= limit, np.where(is_first, 1, 2), 0), np.minimum(times, limit))


def fine_gray(rng: np.random.Generator) -> Iterable[Interval]:
    """Ratios of subdistribution hazards."""
    name = "Fine-Gray regression: subdistribution hazard ratios"
    yield from _ratios(FineGray().fit(*subdistributions(rng, 300)), name, BETA)
    model = FineGray().fit(*subdistributions(rng, 400, 0.5, 4), groups=CLUSTERS)
    yield from _ratios(model, f"{name}, clusters", BETA)


TIME, SPAN = 0.7, (0.1, 1.5)
OPTIONS: dict[str, dict[str, Any]] = {
    **{
        name: {score.times_option: TIME if score.times == "single" else SPAN}
        for name, score in scores.SCORES.items()
        if score.times != "none"
    },
    "uno_c": {"tau": SPAN[1]},
    "mean_absolute_error": {"horizon": SPAN[1]},
}


def _predictions(x: Array, stretch: float) -> Any:
    return Rescaled(Weibull(np.exp(-x @ BETA / SHAPE), SHAPE), stretch)


def evaluation(rng: np.random.Generator) -> Iterable[Interval]:
    """Scores of a false model, and differences from a model that reads a covariate with errors."""
    x, times = subjects(rng, 300)
    noisy = x + np.array([0.0, 1.0]) * rng.normal(size=x.shape)
    models = {"first": _predictions(x, 1.2), "second": _predictions(noisy, 1.0)}
    wanted = {name: OPTIONS.get(name, {}) for name in scores.SCORES}
    table = scores.evaluate(models, None, censored(rng, times), scores=wanted, n_bootstrap=200, random_state=rng)
    for _, row in table.iterrows():
        if row["against"] or row["model"] == "first":
            name = f"`{row['score']}`" + (", difference of two models" if row["against"] else "")
            yield Interval(name, row["value"], row["low"], row["high"], None)


def cross_evaluation(rng: np.random.Generator) -> Iterable[Interval]:
    """Differences between methods over folds."""
    x, times = subjects(rng, 150)
    y = censored(rng, times)
    table = scores.cross_evaluate(
        {"KM": KaplanMeier(), "Cox": CoxPH()},
        x,
        y,
        cv=5,
        scores=["brier", "harrell_c"],
        times=TIME,
        random_state=0,
        verbose=False,
    ).table
    for _, row in table[table["model"] == "Cox"].iterrows():
        what = "difference of two methods" if row["against"] else "mean of a method"
        yield Interval(f"`cross_evaluate`: `{row['score']}`, {what}", row["value"], row["low"], row["high"], None)


def clusters(rng: np.random.Generator) -> Iterable[Interval]:
    """Scores of subjects in clusters."""
    x, times = subjects(rng, 400, dependence=0.5, size=4)
    wanted = {name: OPTIONS.get(name, {}) for name in ("harrell_c", "brier", "calibration_intercept")}
    table = scores.evaluate(
        _predictions(x, 1.2),
        None,
        censored(rng, times),
        scores=wanted,
        n_bootstrap=200,
        random_state=rng,
        groups=CLUSTERS,
    )
    for _, row in table.iterrows():
        yield Interval(f"`{row['score']}`, clusters", row["value"], row["low"], row["high"], None)


def audits(rng: np.random.Generator) -> Iterable[Interval]:
    """Scores in subgroups, and differences between subgroups."""
    x, times = subjects(rng, 300)
    y, predicted = censored(rng, times), _predictions(x, 1.2)
    wanted = {name: OPTIONS.get(name, {}) for name in ("harrell_c", "brier", "calibration_intercept")}
    seed = int(rng.integers(2**31))
    two = scores.audit(predicted, x, y, x[:, 0], scores=wanted, random_state=seed)
    third = np.searchsorted([-0.43, 0.43], x[:, 1])
    three = scores.audit(predicted, x, y, third, scores=wanted, random_state=seed)
    three = three[three["against"] != ""]
    for table, against in ((two, "difference of two levels"), (three, "difference between a level and the rest")):
        for _, row in table.iterrows():
            what = against if row["against"] else "one level"
            yield Interval(f"`audit`: `{row['score']}`, {what}", row["value"], row["low"], row["high"], None)


def _true_calibration_error(stretch: float) -> float:
    return float(PROBABILITY @ np.abs(survival(TIME, POINTS) - survival(TIME / stretch, POINTS)))


def smooth_calibrations(rng: np.random.Generator) -> Iterable[Interval]:
    """ICI of a true model and of a model whose times are too long."""
    x, times = subjects(rng, 300)
    y = censored(rng, times)
    for stretch, name in ((1.0, "true model"), (1.5, "false model")):
        found = smooth_calibration(_predictions(x, stretch), y, TIME, n_bootstrap=40, random_state=rng)
        assert found.ici_interval is not None
        yield Interval(f"ICI of a {name}", found.ici, *found.ici_interval, None)
    yield Interval(
        "ICI of a false model, value in the population",
        found.ici,
        *found.ici_interval,
        _true_calibration_error(stretch),
    )
    for wanted in (0.3, 0.6):
        place = int(np.abs(found.grid - wanted).argmin())
        hazard = -np.log1p(-found.grid[place]) * stretch**SHAPE  # predicted S(t|x) is S(t / stretch|x)
        limits = found.curve[place], found.lower[place], found.upper[place]
        yield Interval("smooth calibration curve of a false model", *limits, float(-np.expm1(-hazard)))


def net_benefit(rng: np.random.Generator) -> Iterable[Interval]:
    """Decision curve of a model whose times are too long."""
    x, times = subjects(rng, 300)
    thresholds = np.array([0.3, 0.5])
    table = scores.decision_curve(
        _predictions(x, 1.2), censored(rng, times), TIME, thresholds=thresholds, n_bootstrap=200, random_state=rng
    ).table
    risk, events = 1.0 - survival(TIME / 1.2, POINTS), 1.0 - survival(TIME, POINTS)
    for p, (_, row) in zip(thresholds, table.iterrows()):
        gain = events - (1.0 - events) * p / (1.0 - p)
        treated, everyone = float(PROBABILITY @ (gain * (risk >= p))), float(PROBABILITY @ gain)
        truth = {"net_benefit": treated, "treat_all": everyone, "advantage": treated - max(everyone, 0.0)}
        for name, value in truth.items():
            yield Interval(
                f"decision curve: {name.replace('_', ' ')}",
                row[name],
                row[f"{name}_lower"],
                row[f"{name}_upper"],
                value,
            )


def arm_survival(t: float, arm: int) -> float:
    """The mean of S(t|x) over x with the first covariate set to 0 or 1."""
    part = slice(60 * arm, 60 * arm + 60)
    return float(2 * PROBABILITY[part] @ survival(t, POINTS[part]))


@cache
def arm_means() -> list[float]:
    """Restricted means with the first covariate set to 0 and 1."""
    return [area(lambda t: arm_survival(t, arm)) for arm in (0, 1)]  # noqa: B023


@cache
def true_contrasts() -> list[float]:
    """Differences (1 less 0) in survival, medians and restricted means."""
    medians = [brentq(lambda t: arm_survival(t, arm) - 0.5, 0.01, 5.0) for arm in (0, 1)]  # noqa: B023
    means = arm_means()
    return [arm_survival(LATE, 1) - arm_survival(LATE, 0), medians[1] - medians[0], means[1] - means[0]]


def contrasts(rng: np.random.Generator) -> Iterable[Interval]:
    """Standardised differences between two arms."""
    x, times = subjects(rng, 150)
    y = censored(rng, times)
    found = explain.standardised_contrast(
        CoxPH().fit(x, y), x, 0, (1.0, 0.0), times=[LATE], horizons=[HORIZON], y=y, n_bootstrap=40, random_state=rng
    )
    truth = true_contrasts()
    for name, row, value in zip(
        ("survival", "medians", "restricted means"),
        [found.to_frame().iloc[0], *(r for _, r in found.numbers.iterrows())],
        truth,
    ):
        yield Interval(
            f"standardised contrast with bootstrap: {name}", row["difference"], row["low"], row["high"], value
        )


_FITTED: list[CoxPH] = []


def importance(rng: np.random.Generator) -> Iterable[Interval]:
    """Permutation importance of a fixed model."""
    if not _FITTED:
        own = np.random.default_rng(0)
        x, times = subjects(own, 500)
        _FITTED.append(CoxPH().fit(x, censored(own, times)))
    x, times = subjects(rng, 300)
    found = explain.permutation_importance(
        _FITTED[0], x, censored(rng, times), scores="harrell_c", n_repeats=5, n_bootstrap=100, random_state=rng
    )
    for _, row in found.table.iterrows():
        yield Interval("permutation importance (loss of Harrell's C)", row["value"], row["low"], row["high"], None)


def bounds(rng: np.random.Generator) -> Iterable[Interval]:
    """Conformal lower bound for one new subject per sample."""
    x, times = subjects(rng, 400)
    model = Conformal(estimator=CoxPH(), fraction=0.5, random_state=int(rng.integers(2**31))).fit(
        x, censored(rng, times)
    )
    new, later = subjects(rng, 1)
    yield Interval(
        "conformal lower bound of an event time",
        np.nan,
        float(model.lower_bound(new, level=0.95)[0]),
        np.inf,
        float(later[0]),
    )


STUDIES = {
    "curves": Study(1000, "200 subjects; clusters: 100 of 4", curves),
    "incidences": Study(1000, "200 subjects, two causes; clusters: 100 of 4", incidences),
    "interval_censored": Study(100, "100 subjects, 60 resamples", interval_censored, 60),
    "restricted_means": Study(1000, "200 subjects, two groups; clusters: 100 of 4", restricted_means),
    "cox": Study(1000, "200 subjects; clusters: 100 of 4", cox),
    "parametric": Study(1000, "200 subjects; clusters: 100 of 4", parametric),
    "fine_gray": Study(1000, "300 subjects, two causes; clusters: 100 of 4", fine_gray),
    "evaluation": Study(400, "300 subjects, 200 resamples", evaluation, 200),
    "cross_evaluation": Study(150, "150 subjects, 5 folds", cross_evaluation),
    "clusters": Study(400, "100 clusters of 4 subjects, 200 resamples", clusters, 200),
    "audits": Study(200, "300 subjects, 200 resamples", audits, 200),
    "smooth_calibration": Study(100, "300 subjects, 40 resamples", smooth_calibrations, 40),
    "net_benefit": Study(400, "300 subjects, 200 resamples", net_benefit, 200),
    "contrasts": Study(100, "150 subjects, 40 refits", contrasts, 40),
    "importance": Study(200, "300 subjects, 100 resamples", importance, 100),
    "bounds": Study(1000, "400 subjects, half for calibration", bounds),
}


# ------------------------------------------------------------------ running


def one_sample(task: tuple[str, int]) -> list[Interval]:
    """The intervals of one sample of a study."""
    name, i = task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(STUDIES[name].intervals(np.random.default_rng([zlib.crc32(name.encode()), i])))


def expected_coverage(resamples: int | None) -> float:
    """The probability with which the 2.5 % and 97.5 % quantiles of so many draws enclose another draw."""
    return 0.95 if resamples is None else 1.0 - 2.0 * (1.0 + 0.025 * (resamples - 1)) / (resamples + 1)


def count(samples: list[list[Interval]]) -> dict[str, dict[str, float]]:
    """By interval: how many contain the truth, and how many lie above or below it."""
    made: dict[str, dict[str, float]] = {}
    places = [[row[j] for row in samples] for j in range(len(samples[0]))]
    for column in places:
        estimate, lower, upper = np.array([row[1:4] for row in column], dtype=np.float64).T
        truth = np.array([np.nan if row.truth is None else row.truth for row in column])
        truth = np.where(np.isnan(truth), estimate.mean(), truth)
        known = ~np.isnan(lower) & ~np.isnan(upper)
        entry = made.setdefault(column[0].name, {"intervals": 0, "above": 0, "below": 0, "undefined": 0})
        slack = 1e-12 * np.abs(truth)
        entry["intervals"] += int(known.sum())
        entry["above"] += int((lower > truth + slack)[known].sum())
        entry["below"] += int((upper < truth - slack)[known].sum())
        entry["undefined"] += int((~known).sum())
    for entry in made.values():
        entry["coverage"] = 1.0 - (entry["above"] + entry["below"]) / max(entry["intervals"], 1)
    return made


def main() -> None:
    """Run the studies that are asked for or missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), metavar="STUDY", help="run these again")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--share", type=float, default=1.0, help="share of the samples that are drawn")
    arguments = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    versions |= {name: version(name) for name in ("numpy", "scipy", "torch", "pandas")}
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"studies": {}}
    for name in arguments.only or STUDIES:
        study, found = STUDIES[name], record["studies"].get(name, {})
        n = max(2, round(study.samples * arguments.share))
        if not arguments.only and (found.get("commit"), found.get("samples")) == (commit, n):
            continue
        start, tasks = time.perf_counter(), [(name, i) for i in range(n)]
        with ProcessPoolExecutor(arguments.jobs) as pool:
            samples = list(pool.map(one_sample, tasks, chunksize=max(1, n // (8 * arguments.jobs))))
        seconds = time.perf_counter() - start
        facts = {"commit": commit, "versions": versions, "samples": n, "seconds": round(seconds, 1)}
        facts |= {"design": study.design, "expected": expected_coverage(study.resamples)}
        record["studies"][name] = facts | {"intervals": count(samples)}
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        print(f"{name}: {n} samples, {seconds:.0f} s", flush=True)
        for interval, entry in record["studies"][name]["intervals"].items():
            print(f"    {interval:<70} {entry['coverage']:.3f}  ({entry['intervals']})", flush=True)


if __name__ == "__main__":
    main()
