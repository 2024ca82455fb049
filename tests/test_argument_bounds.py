"""Bounds of numeric arguments: the first value outside is refused, the last one inside is accepted."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from sumosurv import CoxPH, KaplanMeier, SumoNet, Surv, SurvivalMixture, compare_nested, datasets
from sumosurv.calibrate import smooth_calibration
from sumosurv.cluster import Cluster
from sumosurv.confidence import check_level, check_resamples
from sumosurv.distributions import (
    CauseMixture,
    Continued,
    GeneralisedGamma,
    Gompertz,
    Mixture,
    Remaining,
    Rescaled,
    Tabulated,
    Weibull,
)
from sumosurv.explain import (
    accumulated_local_effects,
    partial_dependence,
    permutation_importance,
    standardised_contrast,
    survshap,
)
from sumosurv.nonparametric import confidence_band, kaplan_meier, logrank_test, restricted_mean_test
from sumosurv.plots import plot_hazard_ratios, plot_incidences, plot_kaplan_meier
from sumosurv.scores import (
    audit,
    binomial_log_likelihood,
    brier,
    calibration,
    censoring_given_x,
    concordance_td,
    cross_evaluate,
    d_calibration,
    decision_curve,
    evaluate,
    group_calibration,
    integrated_brier,
    log_likelihood,
    validate,
)
from sumosurv.serve import Limits

mpl.use("Agg")

RNG = np.random.default_rng(0)
N = 40
X = pd.DataFrame({"x": RNG.normal(size=N), "z": np.arange(N) % 2})
SCALE = np.exp(0.5 * X["x"].to_numpy())
EVENT_TIME, END = SCALE * RNG.exponential(size=N), RNG.exponential(2.0, size=N)
Y = Surv.from_arrays(EVENT_TIME <= END, np.minimum(EVENT_TIME, END))
LAST = float(Y["time"].max())
D, G = Weibull(SCALE, 1.0), kaplan_meier(Y, censoring=True)
TWO = CauseMixture(np.zeros((2, 2)), [Weibull([1.0, 2.0], 1.0)] * 2)
COX = CoxPH().fit(X, Y)
INF, NAN = np.inf, np.nan

FRACTION = ((0.0, 1.0, -0.1, 1.1, NAN), (1e-3, 0.999))  # strictly between 0 and 1
POSITIVE = ((0.0, -1.0, INF, NAN), (0.3,))
COUNT = ((0, -1), (1,))

# name: (what takes the value, values that are refused, values that are accepted)
BOUNDS = {
    "survival at a time": (D.survival, (-1e-9, NAN), (0.0, INF)),
    "quantile": (D.quantile, (-1e-9, 1.0 + 1e-9, NAN), (0.0, 1.0)),
    "restricted mean": (D.restricted_mean, (-1e-9, NAN), (0.0,)),
    "cause": (TWO.cause, (0, 3, -1, 1.0), (1, 2)),
    "Weibull scale": (lambda v: Weibull([v], 1.0), (0.0, -1.0, INF, NAN), (1e-300,)),
    "GeneralisedGamma q": (lambda v: GeneralisedGamma([0.0], [1.0], [v]), (10.1, -10.1, NAN), (10.0, -10.0)),
    "Rescaled scale": (lambda v: Rescaled(D, v), *POSITIVE),
    "Remaining after": (lambda v: Remaining(D, v), (-1e-9, NAN), (0.0,)),
    "Continued horizon": (lambda v: Continued(Gompertz([1.0], [0.1]), v, 0.0), *POSITIVE),
    "Continued growth": (lambda v: Continued(Gompertz([1.0], [0.1]), 1.0, v), (-1e-9, INF, NAN), (0.0, 2.0)),
    "Continued least": (lambda v: Continued(Gompertz([1.0], [0.1]), 1.0, 0.0, v), (-1e-9, INF, NAN), (0.0, 2.0)),
    "Mixture weight": (lambda v: Mixture([D, D], [v, 1.0 - v]), (0.0, 1.0, -0.1), (0.1,)),
    "Mixture sum of weights": (lambda v: Mixture([D, D], [0.5, 0.5 + v]), (1e-8, -1e-8), (0.0,)),
    "Tabulated knots": (lambda v: Tabulated([1.0, v], [0.5, 0.2]), (1.0, 0.5, INF, NAN), (1.1,)),
    "Tabulated first knot": (lambda v: Tabulated([v, 9.0], [0.5, 0.2]), (-1e-9,), (0.0,)),
    "Tabulated table": (lambda v: Tabulated([1.0, 2.0], [0.5, v]), (0.6, -1e-9, NAN), (0.5, 0.0)),
    "Tabulated hazard": (lambda v: Tabulated([1.0, 2.0], [0.5, v], between="hazard"), (0.0,), (1e-9,)),
    "Tabulated half_width": (lambda v: Tabulated([1.0], [0.5], half_width=v), *COUNT),
    "with_half_width": (Tabulated([1.0], [0.5]).with_half_width, *COUNT),
    "proportional risk": (lambda v: Tabulated.proportional([1.0], [0.5], [v]), (-1e-9, INF, NAN), (0.0, 1.0)),
    "proportional hazard": (lambda v: Tabulated.proportional([1.0, 2.0], [0.5, v], [1.0]), (0.4, NAN), (0.5,)),
    "level": (check_level, *FRACTION),
    "n_bootstrap": (check_resamples, (-1, 0.5), (0, 1)),
    "confidence_band level": (lambda v: confidence_band(Y, level=v), *FRACTION),
    "summary level": (COX.summary, *FRACTION),
    "evaluate confidence": (lambda v: evaluate(D, None, Y, scores="harrell_c", n_bootstrap=2, confidence=v), *FRACTION),
    "restricted_mean_test horizon": (lambda v: restricted_mean_test(Y, X["z"], v), *POSITIVE),
    "restricted_mean_limits horizon": (lambda v: COX.predict_restricted_mean_limits(X, v), *POSITIVE),
    "logrank rho": (lambda v: logrank_test(Y, X["z"], weighting="fleming-harrington", rho=v), (-0.1, NAN), (0.0, 2.0)),
    "logrank gamma": (lambda v: logrank_test(Y, X["z"], weighting="fleming-harrington", gamma=v), (-0.1,), (0.0, 2.0)),
    "brier time": (lambda v: brier(D, Y, [v], censoring=G), (-1e-9, INF, NAN), (0.0,)),
    "brier times": (lambda v: brier(D, Y, [0.5, v], censoring=G), (0.5, 0.4), (0.6,)),
    "brier min_followed": (lambda v: brier(D, Y, [0.5], censoring=G, min_followed=v), (1.0, -0.1, NAN), (0.0, 0.99)),
    "brier max_weight": (lambda v: brier(D, Y, [0.5], censoring=G, max_weight=v), (0.0, -1.0, NAN), (0.1,)),
    "integrated_brier range": (lambda v: integrated_brier(D, Y, censoring=G, times=(0.5, v)), (0.5, 0.4), (0.6,)),
    "integrated_brier n_times": (lambda v: integrated_brier(D, Y, censoring=G, n_times=v), (1, 0), (2,)),
    "integrated_brier grid": (lambda v: integrated_brier(D, Y, censoring=G, times=[0.1, 0.2, 0.3][:v]), (1, 0), (2,)),
    "log_likelihood floor": (lambda v: log_likelihood(D, Y, floor=v), *FRACTION),
    "log_likelihood resolution": (lambda v: log_likelihood(D, Y, resolution=v), (0.0, -1.0, NAN), (0.1,)),
    "binomial_log_likelihood floor": (lambda v: binomial_log_likelihood(D, Y, [0.5], censoring=G, floor=v),
                                      (0.0, 0.5, -0.1), (0.49,)),
    "calibration levels": (lambda v: calibration(D, Y, levels=[v]), (-1e-9, 1.0 + 1e-9, NAN), (0.0, 1.0)),
    "d_calibration bins": (lambda v: d_calibration(D, Y, bins=v), (1, 0), (2,)),
    "group_calibration groups": (lambda v: group_calibration(D, Y, 0.5, groups=v), *COUNT),
    "group_calibration time": (lambda v: group_calibration(D, Y, v), (-1.0, INF, NAN), (0.3,)),
    "smooth_calibration time": (lambda v: smooth_calibration(D, Y, v), *POSITIVE),
    "concordance_td time": (lambda v: concordance_td(D, Y, times=[0.2, v]), (0.2, 0.1, INF, NAN), (0.3,)),
    "decision_curve thresholds": (lambda v: decision_curve(D, Y, 0.5, thresholds=[v], n_bootstrap=0), *FRACTION),
    "decision_curve level": (lambda v: decision_curve(D, Y, 0.5, n_bootstrap=2, level=v), *FRACTION),
    "censoring_given_x n_folds": (lambda v: censoring_given_x(KaplanMeier(), X, Y, n_folds=v), (1, N + 1), (2,)),
    "cross_evaluate cv": (lambda v: cross_evaluate({"a": KaplanMeier()}, X, Y, v, scores="harrell_c", verbose=False),
                          (1, 0), (2,)),
    "cross_evaluate n_repeats": (lambda v: cross_evaluate({"a": KaplanMeier()}, X, Y, 2, scores="harrell_c",
                                                          n_repeats=v, verbose=False), *COUNT),
    "standardised_contrast n_bootstrap": (
        lambda v: standardised_contrast(COX, X, "z", y=Y, n_bootstrap=v),
        (-1, 0.5),
        (0,),
    ),
    "validate n_bootstrap": (lambda v: validate(COX, X, Y, scores="harrell_c", n_bootstrap=v, verbose=False), *COUNT),
    "audit levels": (lambda v: audit(D, X, Y, np.arange(N) % v, scores="harrell_c", n_bootstrap=0), (1,), (2,)),
    "partial_dependence max_rows": (lambda v: partial_dependence(COX, X, "x", times=0.5, max_rows=v), *COUNT),
    "partial_dependence n_values": (lambda v: partial_dependence(COX, X, "x", times=0.5, n_values=v), *COUNT),
    "partial_dependence times": (lambda v: partial_dependence(COX, X, "x", times=[0.5, v], n_values=2),
                                 (0.5, 0.4, INF, NAN), (0.6,)),
    "partial_dependence first time": (lambda v: partial_dependence(COX, X, "x", times=v, n_values=2), (-0.1,), (0.0,)),
    "partial_dependence cause": (lambda v: partial_dependence(COX, X, "x", times=0.5, n_values=2, cause=v),
                                 (0, 2, 1.5), (1,)),
    "accumulated_local_effects n_intervals": (
        lambda v: accumulated_local_effects(COX, X, "x", times=0.5, n_intervals=v), *COUNT),
    "permutation_importance n_repeats": (
        lambda v: permutation_importance(COX, X, Y, scores="harrell_c", n_repeats=v, n_bootstrap=0), *COUNT),
    "survshap n_permutations": (
        lambda v: survshap(COX, X[:2], X, times=[0.5], method="permutations", n_permutations=v), *COUNT),
    "survshap n_background": (lambda v: survshap(COX, X[:2], X, times=[0.5], n_background=v), *COUNT),
    "plot_kaplan_meier horizon": (lambda v: plot_kaplan_meier(Y, horizon=v), *POSITIVE),
    "plot_hazard_ratios per": (lambda v: plot_hazard_ratios(COX, per={"x": v}), *POSITIVE),
    "plot_incidences subject": (lambda v: plot_incidences(TWO, subject=v), (2, -3), (1, -2)),
    "limits of a server": (lambda v: Limits(rows=v), *COUNT),
    "seconds of a server": (lambda v: Limits(seconds=v), (0.0, -1.0, NAN), (0.1,)),
    "workers of a cluster": (lambda v: Cluster(workers=v), *COUNT),
    "simulated rows": (lambda v: datasets.simulate("weibull", v, random_state=0), *COUNT),
    "time": (lambda v: Surv.from_arrays([1, 0], [1.0, v]), (-1e-9, INF, NAN), (0.0,)),
    "event": (lambda v: Surv.from_arrays([1, 0, v], [1.0, 2.0, 3.0]), (-1, 0.5, 3, 101, NAN), (0, 1, 2)),
    "event up to a number of causes": (lambda v: Surv.from_arrays([1, v], [1.0, 2.0], causes=3), (4, -1), (0, 3)),
    "number of causes": (lambda v: Surv.from_arrays([1, 0], [1.0, 2.0], causes=v), (0, 101, 1.5), (1, 100)),
    "entry": (lambda v: Surv.from_arrays([1], [1.0], [v]), (1.0, 1.1, -1e-9, NAN), (0.0, 0.999)),
    "entry at zero": (lambda v: Surv.from_arrays([1], [v], [0.0]), (-1.0,), (0.0,)),
    "upper": (lambda v: Surv.interval([1.0], [v]), (0.999, NAN), (1.0, INF)),
    "lower": (lambda v: Surv.interval([v], [1.0]), (1.001, -1e-9, NAN), (0.0, 1.0)),
    "sample_weight": (lambda v: kaplan_meier(Y, sample_weight=np.append(np.ones(N - 1), v)), (-1e-9, INF, NAN), (0.0,)),
    "weights of SurvivalMixture": (lambda v: SurvivalMixture([COX, COX], weights=[v, 1.0]).fit(X, Y),
                                   (0.0, -1.0, INF, NAN), (0.5,)),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_a_value_outside_is_refused_and_one_inside_is_not(name):
    call, refused, accepted = BOUNDS[name]
    for value in accepted:
        call(value)
    for value in refused:
        with pytest.raises((ValueError, TypeError), match=r"\w"):
            call(value)


def test_models_must_be_nested_to_be_compared():
    small = CoxPH().fit(X[["x"]], Y)
    assert compare_nested(small, COX)["df"].iloc[-1] == 1
    with pytest.raises(ValueError, match=r"\w"):
        compare_nested(COX, COX)


@pytest.mark.parametrize("components", ["network", "", [], ["network", "network"], ["tree"], "lognormal"])
def test_components_are_different_names_of_components(components):
    with pytest.raises(ValueError, match="components must be"):
        SumoNet(components=components, n_members=1, max_epochs=1).fit(X, Y)
