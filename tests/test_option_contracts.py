"""Options that many functions share: seeds, confidence levels and progress bars."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import pytest

from sumosurv import (
    Conformal,
    CoxPH,
    CoxPHCV,
    NetworkSearch,
    ParametricRegression,
    RandomSurvivalForest,
    Surv,
    WeibullNet,
    datasets,
    estimators,
)
from sumosurv.calibrate import smooth_calibration
from sumosurv.distributions import Weibull
from sumosurv.explain import (
    accumulated_local_effects,
    contrast,
    partial_dependence,
    permutation_importance,
    standardised_contrast,
    survshap,
)
from sumosurv.nonparametric import confidence_band, restricted_mean_test
from sumosurv.scores import audit, censoring_given_x, cross_evaluate, decision_curve, evaluate, validate
from sumosurv.streaming import predict_to_parquet
from test_docstrings import CALLABLES

RNG = np.random.default_rng(0)
N, TIME = 60, 0.6
X = pd.DataFrame({"x": RNG.normal(size=N), "z": RNG.integers(0, 2, N).astype(float)})
SCALE = np.exp(0.6 * X["x"].to_numpy())
EVENT_TIME, END = SCALE * RNG.exponential(size=N), RNG.exponential(1.5, size=N)
Y = Surv.from_arrays(EVENT_TIME <= END, np.minimum(EVENT_TIME, END))
KNOWN = Surv.interval(Y["time"], np.where(Y["event"], Y["time"] + 0.3, np.inf))
D, COX = Weibull(SCALE, 1.2), CoxPH().fit(X, Y)
NETWORK = WeibullNet(n_members=3, max_epochs=1, random_state=0).fit(X, Y)
SMALL = {"n_members": 1, "max_epochs": 1, "covariate_layers": (4,)}
BOOTSTRAP = {"scores": "harrell_c", "n_bootstrap": 20}
FOLDS = {"scores": "harrell_c", "verbose": False}


def limits(table):
    return table[["low", "high"]].to_numpy(dtype=float)


def fitted(method, **settings):
    return lambda seed: method(**settings, random_state=seed).fit(X, Y).predict(X)


# a function of the seed
SEEDED = {
    "SurvivalDistribution.sample": lambda s: D.sample(2, random_state=s),
    "confidence_band": lambda s: confidence_band(KNOWN, "turnbull", n_bootstrap=5, random_state=s)["lower"],
    "smooth_calibration": lambda s: smooth_calibration(D, Y, TIME, n_bootstrap=5, random_state=s).ici_interval,
    "decision_curve": lambda s: decision_curve(D, Y, TIME, n_bootstrap=5, random_state=s).table["net_benefit_lower"],
    "simulate": lambda s: datasets.simulate("weibull", 5, random_state=s).X["x"],
    "evaluate": lambda s: limits(evaluate(D, None, Y, **BOOTSTRAP, random_state=s)),
    "audit": lambda s: limits(audit(D, X, Y, X["z"].to_numpy(), **BOOTSTRAP, random_state=s)),
    "cross_evaluate": lambda s: cross_evaluate({"cox": COX}, X, Y, 3, **FOLDS, random_state=s).folds["value"],
    "validate": lambda s: validate(COX, X, Y, **FOLDS, n_bootstrap=3, random_state=s).table["optimism"],
    "censoring_given_x": lambda s: censoring_given_x(CoxPH(), X, Y, random_state=s).survival(TIME),
    "partial_dependence": lambda s: partial_dependence(COX, X, "x", times=TIME, max_rows=20, random_state=s).mean,
    "accumulated_local_effects": lambda s: accumulated_local_effects(
        COX, X, "x", times=TIME, max_rows=20, random_state=s
    ).mean,
    "permutation_importance": lambda s: permutation_importance(
        COX, X, Y, scores="harrell_c", n_repeats=2, n_bootstrap=0, random_state=s
    ).table["value"],
    "permutation_importance, limits": lambda s: limits(
        permutation_importance(COX, X, Y, columns=["x"], **BOOTSTRAP, n_repeats=1, random_state=s).table
    ),
    "standardised_contrast": lambda s: standardised_contrast(
        COX, X, "z", times=[TIME], max_rows=20, random_state=s
    ).curves,
    "standardised_contrast, limits": lambda s: standardised_contrast(
        COX, X, "z", y=Y, times=[TIME], n_bootstrap=3, random_state=s
    ).difference_low,
    "survshap": lambda s: survshap(
        NETWORK, X[:2], X, times=[TIME], method="permutations", n_permutations=1, random_state=s
    ).values,
    "Conformal": lambda s: Conformal(estimator=COX, random_state=s).fit(X, Y).predict(X),
    "CoxPHCV": lambda s: CoxPHCV(cv=3, n_alphas=4, random_state=s).fit(X, Y).cv_score_,
    "RandomSurvivalForest": fitted(RandomSurvivalForest, n_estimators=3),
    "NetworkSearch": lambda s: NetworkSearch(
        WeibullNet(**SMALL), space={"dropout": [0.0, 0.5]}, n_trials=2, random_state=s
    ).fit(X, Y).predict(X),
} | {
    name: fitted(method, **SMALL | ({"steps": 1} if "steps" in inspect.signature(method).parameters else {}))
    for name, method in estimators.METHODS.items()
    if issubclass(method, estimators.network.NetworkEstimator)
}  # fmt: skip


@pytest.mark.parametrize("name", SEEDED)
def test_a_seed_makes_a_result_repeatable_and_another_seed_changes_it(name):
    first, second, other = (np.asarray(SEEDED[name](seed), dtype=float) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


# a function of the level that returns lower and upper limits
LEVELS = {
    "confidence_band": lambda p: confidence_band(Y, level=p)[["lower", "upper"]].to_numpy()[3:9],
    "confidence_band of Turnbull's curve": lambda p: confidence_band(
        KNOWN, "turnbull", level=p, n_bootstrap=10, random_state=0
    )[["lower", "upper"]].to_numpy()[3:6],
    "restricted_mean_test": lambda p: (
        restricted_mean_test(Y, X["z"], 1.0, level=p).differences[["lower", "upper"]].to_numpy()
    ),
    "CoxPH.predict_survival_band": lambda p: COX.predict_survival_band(X[:3], [TIME], level=p),
    "CoxPH.predict_median_limits": lambda p: COX.predict_median_limits(X[:1], level=p),
    "CoxPH.predict_restricted_mean_limits": lambda p: COX.predict_restricted_mean_limits(X[:3], TIME, level=p),
    "ParametricRegression.predict_survival_band": lambda p: (
        ParametricRegression().fit(X, Y).predict_survival_band(X[:3], [TIME], level=p)
    ),
    "smooth_calibration": lambda p: np.vstack(
        [
            (found := smooth_calibration(D, Y, TIME, level=p, n_bootstrap=20, random_state=0)).ici_interval,
            np.column_stack([found.lower, found.upper])[[20, 40]],
        ]
    ),
    "decision_curve": lambda p: (
        decision_curve(D, Y, TIME, thresholds=[0.4], level=p, n_bootstrap=30, random_state=0)
        .table[["net_benefit_lower", "net_benefit_upper"]]
        .to_numpy()
    ),
    "evaluate": lambda p: limits(evaluate(D, None, Y, **BOOTSTRAP, confidence=p)),
    "audit": lambda p: limits(audit(D, X, Y, X["z"].to_numpy(), **BOOTSTRAP, confidence=p)),
    "cross_evaluate": lambda p: limits(cross_evaluate({"cox": COX}, X, Y, 3, **FOLDS, n_repeats=2, confidence=p).table),
    "permutation_importance": lambda p: limits(
        permutation_importance(COX, X, Y, columns=["x"], **BOOTSTRAP, level=p).table
    ),
    "accumulated_local_effects": lambda p: np.stack(
        [(found := accumulated_local_effects(NETWORK, X, "x", times=TIME, level=p)).low, found.high], axis=-1
    ),
    "partial_dependence": lambda p: np.stack(
        [(found := partial_dependence(NETWORK, X, "x", times=TIME, level=p)).low, found.high], axis=-1
    ),
    "contrast": lambda p: np.stack(
        [(found := contrast(NETWORK, X[:1], X[1:2], times=[TIME], level=p)).difference_low, found.difference_high],
        axis=-1,
    ),
    "standardised_contrast": lambda p: np.stack(
        [
            (found := standardised_contrast(NETWORK, X, "z", times=[TIME], level=p)).difference_low,
            found.difference_high,
        ],
        axis=-1,
    ),
}


def pair(found):
    """Lower and upper limits, given as a tuple or along the last axis."""
    return [
        np.asarray(part, dtype=float) for part in (found if isinstance(found, tuple) else np.moveaxis(found, -1, 0))
    ]


@pytest.mark.parametrize("name", LEVELS)
def test_limits_are_wider_at_a_higher_level(name):
    (low, high), (lower, higher) = (pair(LEVELS[name](p)) for p in (0.5, 0.9))
    known = np.isfinite(lower + higher)
    assert known.any()
    assert (higher - lower)[known].sum() > 1.1 * (high - low)[known].sum()
    assert (lower <= low)[known].all()
    assert (high <= higher)[known].all()


def in_file(tmp_path, verbose):
    X.to_parquet(tmp_path / "rows.parquet")
    predict_to_parquet(COX, tmp_path / "rows.parquet", tmp_path / "made.parquet", verbose=verbose)


# a function that shows its progress if asked
SHOWN = {
    "evaluate": lambda path, v: evaluate({"a": D, "b": D}, None, Y, **BOOTSTRAP, verbose=v),
    "audit": lambda path, v: audit(D, X, Y, X["z"].to_numpy(), **BOOTSTRAP, verbose=v),
    "cross_evaluate": lambda path, v: cross_evaluate({"cox": COX}, X, Y, 3, scores="harrell_c", verbose=v),
    "validate": lambda path, v: validate(COX, X, Y, scores="harrell_c", n_bootstrap=2, verbose=v),
    "predict_to_parquet": in_file,
    "NetworkSearch": lambda path, v: NetworkSearch(
        WeibullNet(**SMALL), space={"dropout": [0.0]}, n_trials=1, random_state=0, verbose=v
    ).fit(X, Y),
    "WeibullNet": lambda path, v: WeibullNet(**SMALL, random_state=0, verbose=v).fit(X, Y),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_progress_is_shown_if_asked(name, tmp_path, capsys):
    SHOWN[name](tmp_path, False)
    silent = capsys.readouterr()
    assert silent.out + silent.err == ""
    SHOWN[name](tmp_path, True)
    shown = capsys.readouterr()
    assert shown.out + shown.err != ""


def test_every_function_with_a_seed_or_a_level_has_a_case():
    for option, cases, others in (
        ("random_state", SEEDED, {"SumoNetSearch", "make_report"}),
        ("level", LEVELS, {"Conformal.lower_bound"}),
        ("verbose", SHOWN, {"SumoNetSearch", "SurvivalPipeline", "make_survival_pipeline", "make_report"}),
    ):
        known = {name.partition(",")[0].partition(" ")[0] for name in cases} | others
        taking = {name for name, made in CALLABLES.items() if option in inspect.signature(made).parameters}
        if option == "level":  # records of results have one, too, and pictures draw limits that others compute
            taking = {name for name in taking if name.partition(".")[2] or inspect.isfunction(CALLABLES[name])}
            taking -= {name for name in taking if name.startswith("plot_")} | {"ways_to_write"}
        if option == "verbose":  # the bar of all networks is the same
            taking -= set(estimators.METHODS) - {"WeibullNet"}
        assert taking <= known, option
