"""Contracts of every public function and classical method that takes weights or groups.

Whole-number weights equal repeated rows; the order of rows and the time unit do not matter; rows of one subject are
dependent; an interval contains its estimate.
"""

from __future__ import annotations

import inspect
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

import sumosurv
from sumosurv import (
    AalenJohansen,
    CauseSpecific,
    CoxPH,
    FineGray,
    KaplanMeier,
    ParametricRegression,
    Surv,
    calibrate,
    check_outcome,
    estimators,
    explain,
    nonparametric,
    scores,
)
from sumosurv.calibrate import smooth_calibration
from sumosurv.distributions import CauseMixture, Mixture, Rescaled, Weibull
from sumosurv.explain import (
    accumulated_local_effects,
    partial_dependence,
    permutation_importance,
    standardised_contrast,
)
from sumosurv.nonparametric import (
    aalen_johansen,
    breslow,
    confidence_band,
    kaplan_meier,
    logrank_test,
    marginal_curve,
    nelson_aalen,
    restricted_mean_test,
    risk_table,
    turnbull,
    turnbull_intervals,
)
from sumosurv.scores import SCORES, audit, censoring_given_x, decision_curve, evaluate

N = 80
TIME = 0.75
COUNT = np.arange(N) % 4  # a weight of zero leaves a row out
AGAIN = np.repeat(np.arange(N), COUNT)
ORDER = np.random.default_rng(1).permutation(N)
NEW = pd.DataFrame({"x": [-1.0, 0.0, 1.0], "z": [0.0, 1.0, 1.0]})


def sample(causes=1, seed=0):
    """Predicted distributions, an outcome with ties, and covariates."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=N)
    scale = np.exp(0.6 * x)
    time = np.ceil(8 * scale * rng.exponential(size=N)) / 8
    cause = np.where(rng.random(N) < 0.7, rng.integers(1, causes + 1, N), 0)
    y = Surv.from_arrays(cause if causes > 1 else cause > 0, time)
    predicted = scale.round(1) + 0.1
    curves = Mixture([Weibull(predicted, 0.8), Weibull(1.5 * predicted[::-1], 1.6)], [0.7, 0.3])  # they cross
    if causes > 1:
        curves = CauseMixture(np.column_stack([x, -x]), [Weibull(predicted, 0.8), Weibull(predicted, 1.2)])
    return curves, y, pd.DataFrame({"x": x, "z": rng.integers(0, 2, N).astype(float)})


def scaled(y, unit):
    made = y.copy()
    made["time"] = unit * made["time"]
    return made


def options_of(score, unit=1.0):
    return (
        {score.times_option: {"single": TIME * unit, "range": (0.25 * unit, 1.5 * unit)}[score.times]}
        if (score.times != "none")
        else {}
    )


def numbers(result):
    """All numbers of a result: arrays, floats, or the fields of a record."""
    if isinstance(result, pd.DataFrame):
        return result.select_dtypes("number").to_numpy(dtype=float).ravel()
    if hasattr(result, "__dataclass_fields__"):
        fields = [getattr(result, name) for name in result.__dataclass_fields__]
        return np.concatenate([numbers(value) for value in fields if value is not None and not isinstance(value, str)])
    return np.asarray(result, dtype=float).ravel()


def direct(name, causes=1, grid=None, **more):
    """A score as a function; of scores by row the mean."""
    score = SCORES[name]

    def compute(d, y, X, unit=1.0, sample_weight=None):
        options = options_of(score, unit) | more | ({} if grid is None else {"times": unit * np.array(grid)})
        if score.needs_censoring:
            options["censoring"] = kaplan_meier(
                check_outcome(y, sample_weight=sample_weight).any_cause(), censoring=True
            )
        found = score.function(d, y, sample_weight=sample_weight, **options)
        return numbers(found.mean() if np.ndim(found) else found)

    return compute, causes


def with_intervals(name, **more):
    """A score by `evaluate`: value, low, high and standard error."""
    score = SCORES[name]

    def compute(d, y, X, unit=1.0, **rows):
        scores = {name: options_of(score, unit) | more}
        found = evaluate(d, None, y, scores=scores, n_bootstrap=2000, censoring="marginal", **rows)
        return found[["value", "low", "high", "std_error"]].to_numpy(dtype=float)

    return compute


def smooth(d, y, X, unit=1.0, sample_weight=None, **more):
    found = smooth_calibration(d, y, TIME * unit, sample_weight=sample_weight, **more)
    return np.array([found.ici, found.e50, found.e90, found.emax])


def decision(d, y, X, unit=1.0, sample_weight=None, cause=None, n_bootstrap=0):
    found = decision_curve(
        d, y, TIME * unit, thresholds=[0.3, 0.5], cause=cause, n_bootstrap=n_bootstrap, sample_weight=sample_weight,
        random_state=0,
    )  # fmt: skip
    return found.table.to_numpy(dtype=float)[:, : None if n_bootstrap else 1].ravel()


def curve_at(function):
    return lambda d, y, X, unit=1.0, **o: function(y, **o).survival(unit * np.array([0.3, 0.8, 1.4])).ravel()


def explained(function, *arguments, field="mean", **settings):
    def compute(d, y, X, unit=1.0, sample_weight=None):
        model = CoxPH().fit(X, y, sample_weight=sample_weight)
        found = function(
            model, X, *arguments, times=np.array([0.5, 1.0]) * unit, sample_weight=sample_weight, max_rows=None,
            **settings,
        )  # fmt: skip
        return np.asarray(getattr(found, field)).ravel()

    return compute


def predicted(estimator):
    """Curves of three rows, of each cause if there are several."""

    def compute(d, y, X, unit=1.0, sample_weight=None):
        model = estimator().fit(X, y, sample_weight=sample_weight)
        return model.predict_cumulative_incidence(NEW, unit * np.array([0.3, 0.8, 1.4])).ravel()

    return compute


def audited(d, y, X, unit=1.0, sample_weight=None):
    model = CoxPH().fit(X, y, sample_weight=sample_weight)
    wanted = {"harrell_c": {}, "brier": {"times": 0.4 * unit}, "calibration_slope": {"time": 0.8 * unit}}
    found = audit(model, X, y, X["z"].to_numpy(), scores=wanted, n_bootstrap=0, sample_weight=sample_weight)
    return found["value"].to_numpy(dtype=float)


def from_formula(d, y, X, unit=1.0, sample_weight=None):
    """The column of weights is no covariate."""
    data = X.assign(time=y["time"], event=y["event"])
    if sample_weight is None:
        return CoxPH.from_formula("Surv(time, event) ~ .", data).coef_
    return CoxPH.from_formula("Surv(time, event) ~ .", data.assign(n=sample_weight), sample_weight="n").coef_


def proportionality(d, y, X, unit=1.0, sample_weight=None):
    model = CoxPH().fit(X, y, sample_weight=sample_weight)
    return model.test_proportionality(X, y, sample_weight=sample_weight).to_numpy(dtype=float).ravel()


def counted(d, y, X, unit=1.0, sample_weight=None):
    times, events, at_risk = risk_table(y, sample_weight=sample_weight)
    return np.concatenate(
        [(column / scale)[events > 0] for column, scale in ((times, unit), (events, 1), (at_risk, 1))]
    )


def turnbull_mass(d, y, X, unit=1.0, sample_weight=None):
    known = Surv.interval(y["time"], np.where(y["event"], y["time"] + 0.2 * unit, np.inf))
    return turnbull_intervals(known, sample_weight=sample_weight).survival(unit * np.array([0.31, 0.81, 1.41]))


def unshuffled(d, y, X, unit=1.0, sample_weight=None):
    """The score of all columns: shuffles of repeated rows are not those of weighted rows."""
    model = CoxPH().fit(X, y, sample_weight=sample_weight)
    found = permutation_importance(model, X, y, scores="harrell_c", n_bootstrap=0, sample_weight=sample_weight)
    return found.full["value"].to_numpy()


def band(of, kind, causes=1):
    def compute(d, y, X, unit=1.0, **rows):
        return confidence_band(y, of, kind=kind, **rows)[["estimate", "lower", "upper"]].to_numpy()

    return compute, causes


def restricted_means(d, y, X, unit=1.0, **rows):
    found = restricted_mean_test(y, X["z"], 1.5 * unit, **rows).differences
    return found[["difference", "lower", "upper"]].to_numpy() / unit


def limits_of(estimator, method, *arguments, in_time=False):
    """The confidence limits of a prediction of a regression."""

    def compute(d, y, X, unit=1.0, **rows):
        model = estimator().fit(X, y, **rows)
        scaled_arguments = [unit * np.asarray(argument) for argument in arguments]
        limits = [np.ravel(found) for found in getattr(model, f"predict_{method}")(NEW, *scaled_arguments)]
        name = {"survival_band": "survival_function"}.get(method, method.removesuffix("_limits"))
        estimate = np.ravel(getattr(model, f"predict_{name}")(NEW, *scaled_arguments))
        return np.column_stack([estimate, *limits]) / (unit if in_time else 1.0)

    return compute, 1


def coefficients(estimator, causes=1):
    """Coefficients of the columns, with Wald's limits."""

    def compute(d, y, X, unit=1.0, **rows):
        found = estimator().fit(X, y, **rows).summary().coefficients
        found = found[found.index.get_level_values(-1).isin(["x", "z"])]
        return found["coef"].to_numpy()[:, None] + found["standard_error"].to_numpy()[:, None] * [0.0, -2.0, 2.0]

    return compute, causes


ESTIMATES = {name: direct(name) for name in SCORES}
ESTIMATES |= {f"{name} of a cause": direct(name, 2, cause=1) for name, score in SCORES.items() if score.of_causes}
ESTIMATES |= {
    "concordance_td by adj_antolini": direct("concordance_td", method="adj_antolini"),
    "concordance_td by antolini": direct("concordance_td", method="antolini"),
    "concordance_td by adj_antolini on a grid": direct("concordance_td", method="adj_antolini", grid=[0.25, 0.5, 1.0]),
    "brier normalized": direct("brier", normalize=True),
    "log_likelihood of causes": direct("log_likelihood", 2),
    "decision_curve": (decision, 1),
    "smooth_calibration": (smooth, 1),
    "kaplan_meier": (curve_at(kaplan_meier), 1),
    "kaplan_meier of the censoring": (curve_at(lambda y, **o: kaplan_meier(y, censoring=True, **o)), 1),
    "nelson_aalen": (curve_at(nelson_aalen), 1),
    "breslow": (lambda d, y, X, unit=1.0, **o: breslow(y, X["x"], [0.5], **o).survival(0.8 * unit).ravel(), 1),
    "risk_table": (counted, 1),
    "turnbull": (curve_at(turnbull), 1),
    "turnbull_intervals": (turnbull_mass, 1),
    "marginal_curve": (curve_at(lambda y, **o: marginal_curve(check_outcome(y, **o))), 1),
    "aalen_johansen": (lambda d, y, X, unit=1.0, **o: aalen_johansen(y, **o).cumulative_incidence(0.8 * unit)[0], 2),
    "partial_dependence": (explained(partial_dependence, "x"), 1),
    "accumulated_local_effects": (explained(accumulated_local_effects, "x", n_intervals=5), 1),
    "standardised_contrast": (explained(standardised_contrast, "z", field="difference"), 1),
    "permutation_importance": (unshuffled, 1),
    "logrank_test": (lambda d, y, X, unit=1.0, **o: np.array([logrank_test(y, X["z"], **o).statistic]), 1),
    "CoxPH.test_proportionality": (proportionality, 1),
    "KaplanMeier": (predicted(KaplanMeier), 1),
    "AalenJohansen": (predicted(AalenJohansen), 2),
    "CoxPH": (predicted(CoxPH), 1),
    "CoxPH with natural splines": (predicted(lambda: CoxPH(formula="ns(x, df=4) + z")), 1),
    "CoxPH with B-splines": (predicted(lambda: CoxPH(formula="bs(x, df=5) + z")), 1),
    "CoxPH with centred columns": (predicted(lambda: CoxPH(formula="scale(x):z + center(x)", alpha=1.0)), 1),
    "CoxPH.from_formula": (from_formula, 1),
    "audit": (audited, 1),
    "ParametricRegression": (predicted(lambda: ParametricRegression(family="weibull")), 1),
    "ParametricRegression with splines": (predicted(lambda: ParametricRegression(family="spline")), 1),
    "FineGray": (predicted(FineGray), 2),
    "CauseSpecific": (predicted(lambda: CauseSpecific(CoxPH())), 2),
}  # fmt: skip

LIMITS = {
    f"confidence_band of {of}, {kind}": band(of, kind, 2 if of == "aalen_johansen" else 1)
    for of, kinds in {
        "kaplan_meier": ("log-log", "log", "plain"),
        "nelson_aalen": ("log-log", "plain"),
        "aalen_johansen": ("log-log", "plain"),
    }.items()
    for kind in kinds
}
LIMITS |= {
    "restricted_mean_test": (restricted_means, 1),
    "CoxPH coefficients": coefficients(CoxPH),
    "ParametricRegression coefficients": coefficients(lambda: ParametricRegression(family="weibull")),
    "FineGray coefficients": coefficients(FineGray, 2),
    "CauseSpecific coefficients": coefficients(lambda: CauseSpecific(CoxPH()), 2),
    "CoxPH.predict_survival_band": limits_of(CoxPH, "survival_band", [0.3, 0.8, 1.4]),
    "CoxPH.predict_median_limits": limits_of(CoxPH, "median_limits", in_time=True),
    "CoxPH.predict_restricted_mean_limits": limits_of(CoxPH, "restricted_mean_limits", 1.5, in_time=True),
    "ParametricRegression.predict_survival_band": limits_of(
        lambda: ParametricRegression(family="spline"), "survival_band", [0.3, 0.8, 1.4]
    ),
}
ESTIMATES |= LIMITS

# folds, shuffles, batches and trees are drawn at random, so that repeated rows do not repeat them
RANDOM = {"censoring_given_x", "cross_evaluate", "validate", "Conformal", "CoxPHCV", "RandomSurvivalForest"}
# they only pass the weights on
PASSED_ON = {"check_outcome", "evaluate", "SurvivalMixture"}


def public_functions(module: ModuleType) -> set[str]:
    named = ((name, getattr(module, name)) for name in module.__all__)
    return {name for name, f in named if inspect.isfunction(f) and "sample_weight" in inspect.signature(f).parameters}


def test_every_function_and_method_that_takes_weights_has_a_contract():
    known = {name.split()[0].split(".")[0] for name in ESTIMATES} | RANDOM | PASSED_ON
    functions = set().union(*map(public_functions, (sumosurv, scores, nonparametric, explain, calibrate)))
    methods = {
        name
        for name, method in estimators.METHODS.items()
        if not issubclass(method, estimators.network.NetworkEstimator)
    }
    assert functions | methods <= known


@pytest.mark.parametrize("name", ESTIMATES)
def test_estimates(name):
    """Whole-number weights equal repeated rows; the order of rows and the time unit do not matter."""
    compute, causes = ESTIMATES[name]
    d, y, X = sample(causes)
    weighted = compute(d, y, X, sample_weight=COUNT)
    np.testing.assert_allclose(weighted, compute(d[AGAIN], y[AGAIN], X.iloc[AGAIN]), rtol=1e-6, atol=1e-9)
    plain = compute(d, y, X)
    assert weighted.shape != plain.shape or not np.allclose(weighted, plain, rtol=1e-4)
    np.testing.assert_allclose(plain, compute(d[ORDER], y[ORDER], X.iloc[ORDER]), rtol=1e-6, atol=1e-9)
    other = compute(Rescaled(d, 7.0), scaled(y, 7.0), X, unit=7.0)
    if name.startswith("log_likelihood"):  # a density is per unit of time
        other = other + y["event"].astype(bool).mean() * np.log(7.0)
    if name in (
        "survival_crps",
        "mean_absolute_error",
        "decision_curve",
        "group_calibration",
        "group_calibration of a cause",
    ):
        other = np.where(np.isclose(other, 7.0 * plain, rtol=1e-6), plain, other)  # times are among their numbers
    np.testing.assert_allclose(plain, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", LIMITS)
def test_limits_by_formula(name):
    """Rows of one subject are dependent, and limits contain their estimate."""
    compute, causes = LIMITS[name]
    d, y, X = sample(causes)
    repeated = compute(d[AGAIN], y[AGAIN], X.iloc[AGAIN])
    subject = compute(d[AGAIN], y[AGAIN], X.iloc[AGAIN], groups=AGAIN)
    np.testing.assert_allclose(subject[:, 0], repeated[:, 0], rtol=1e-9)
    known = np.isfinite(repeated + subject).all(axis=1)
    width = subject[known, 2] - subject[known, 1]
    assert width.sum() > 1.05 * (repeated[known, 2] - repeated[known, 1]).sum()
    for found in (repeated[known], subject[known]):
        assert (found[:, 1] <= found[:, 0]).all()
        assert (found[:, 0] <= found[:, 2]).all()


def test_rows_of_one_subject_make_the_logrank_test_less_sure():
    _, y, X = sample()
    by = X["x"].to_numpy()[AGAIN] > 0
    assert logrank_test(y[AGAIN], by, groups=AGAIN).statistic < logrank_test(y[AGAIN], by).statistic / 1.15


INTERVALS = {name: (with_intervals(name), 1) for name in SCORES}
INTERVALS |= {
    "brier normalized": (with_intervals("brier", normalize=True), 1),
    "concordance_td of a cause": (with_intervals("concordance_td", cause=1), 2),
    "group_calibration of a cause": (with_intervals("group_calibration", cause=1), 2),
}


@pytest.mark.parametrize("name", INTERVALS)
def test_intervals_of_evaluate(name):
    """Weights count rows, rows of one subject are dependent, and an interval contains its estimate."""
    compute, causes = INTERVALS[name]
    d, y, X = sample(causes)
    weighted, repeated = compute(d, y, X, sample_weight=COUNT), compute(d[AGAIN], y[AGAIN], X)
    np.testing.assert_allclose(weighted[:, 0], repeated[:, 0], rtol=1e-9)
    np.testing.assert_allclose(weighted[:, 3], repeated[:, 3], rtol=0.12)  # of 2,000 resamples each
    subject = compute(d[AGAIN], y[AGAIN], X, groups=AGAIN)
    np.testing.assert_allclose(subject[:, 0], repeated[:, 0], rtol=1e-9)
    assert (subject[:, 3] > 1.15 * repeated[:, 3]).all()
    for found in (weighted, repeated, subject):
        assert (found[:, 1] <= found[:, 0]).all()
        assert (found[:, 0] <= found[:, 2]).all()


@pytest.mark.parametrize("seed", [0, 41, 42, 112, 133])
def test_intervals_of_calibration_scores_contain_the_score(seed):
    """A sum of squares that is small by chance, as with all seeds but the first, lies below most resampled ones."""
    rng = np.random.default_rng(seed)
    scale = np.exp(0.5 * rng.normal(size=100))
    time, end = scale * rng.exponential(size=100), 2 * rng.exponential(size=100)
    y = Surv.from_arrays(time <= end, np.minimum(time, end))
    wanted = {"group_calibration": {"time": 0.7}, "d_calibration": {}, "calibration": {}}
    found = evaluate(Weibull(scale, 1.0), None, y, scores=wanted, n_bootstrap=100)
    assert found["value"].between(found["low"], found["high"]).all()


def weighted_errors(name):
    def compute(d, y, X, sample_weight=None, groups=None):
        outcome = check_outcome(y, sample_weight=sample_weight, groups=groups)
        if name == "decision_curve":
            table = decision_curve(d, outcome, TIME, thresholds=[0.3, 0.5], n_bootstrap=1000, random_state=0).table
            limits = table[["net_benefit_lower", "net_benefit", "net_benefit_upper"]].to_numpy()
        elif name == "smooth_calibration":
            found = smooth_calibration(d, outcome, TIME, n_bootstrap=150, random_state=0)
            chosen = [10, len(found.grid) // 2, -10]
            limits = np.column_stack([found.lower, found.curve, found.upper])[chosen]
            limits = np.vstack([limits, [found.ici_interval[0], found.ici, found.ici_interval[1]]])
        elif name == "turnbull":
            known = Surv.interval(outcome.time, np.where(outcome.event, outcome.time + 0.1, np.inf))
            band = confidence_band(
                known, "turnbull", n_bootstrap=150, random_state=0, sample_weight=sample_weight, groups=groups
            )
            limits = band[["lower", "estimate", "upper"]].to_numpy()[[3, 6, 9]]
        else:
            found = permutation_importance(
                CoxPH().fit(X, y, sample_weight=COUNT if len(y) == N else None), X, y, scores="harrell_c",
                columns=["x"], n_repeats=20, n_bootstrap=1000, sample_weight=sample_weight, groups=groups,
            )  # fmt: skip
            limits = found.table[["low", "value", "high"]].to_numpy()
        return limits

    return compute


@pytest.mark.parametrize("name", ["decision_curve", "smooth_calibration", "turnbull", "permutation_importance"])
def test_intervals_by_resampling(name):
    compute = weighted_errors(name)
    d, y, X = sample()
    weighted, repeated = compute(d, y, X, sample_weight=COUNT), compute(d[AGAIN], y[AGAIN], X.iloc[AGAIN])
    subject = compute(d[AGAIN], y[AGAIN], X.iloc[AGAIN], groups=AGAIN)
    if name != "permutation_importance":  # copies of a row are shuffled apart
        np.testing.assert_allclose(weighted[:, 1], repeated[:, 1], rtol=1e-5, atol=1e-7)
    width, again, by_subject = ((found[:, 2] - found[:, 0]).sum() for found in (weighted, repeated, subject))
    assert width == pytest.approx(again, rel=0.2)
    assert by_subject > 1.15 * again
    for found in (weighted, repeated, subject):
        assert (np.diff(found, axis=1) >= 0).all()


def test_a_censoring_model_given_x_takes_weights_and_any_time_unit():
    """Folds are drawn among rows, so that repeated rows are not held out together."""
    _, y, X = sample()
    at = np.array([0.3, 0.8])
    one = censoring_given_x(CoxPH(), X, y, sample_weight=COUNT).survival(at)
    assert not np.allclose(one, censoring_given_x(CoxPH(), X, y).survival(at))
    np.testing.assert_allclose(
        one, censoring_given_x(CoxPH(), X, scaled(y, 7.0), sample_weight=COUNT).survival(7.0 * at), atol=1e-6
    )
