"""Aalen-Johansen, cause-specific models and Fine-Gray, against lifelines, literal formulas and each other."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import optimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from sumosurv import (
    AalenJohansen,
    CauseSpecific,
    CoxPH,
    FineGray,
    KaplanMeier,
    Surv,
    SurvivalMixture,
    WeibullNet,
    load,
)
from sumosurv.distributions import cause_specific
from sumosurv.estimators.fine_gray import SubdistributionLikelihood
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import check_outcome
from sumosurv.scores import log_likelihood

SMALL = {"n_members": 2, "max_epochs": 3, "covariate_layers": (8,), "random_state": 0}


def simulated(n=200, causes=2, seed=0, ties=False):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    each = np.stack([rng.exponential(size=n) * np.exp(-0.5 * (k + 1) * X["a"] + 0.3 * X["b"]) for k in range(causes)])
    censored = rng.exponential(2.0, size=n)
    time = np.minimum(each.min(0), censored)
    cause = np.where(each.min(0) < censored, 1 + each.argmin(0), 0)
    if ties:
        time = np.ceil(time * 5) / 5
    return X, Surv.from_arrays(cause, time)


X, Y = simulated()
GRID = np.array([0.0, 0.1, 0.4, 1.0, 2.5, 50.0])
MODELS = {
    "AalenJohansen": lambda: AalenJohansen(),
    "CauseSpecific": lambda: CauseSpecific(),
    "CauseSpecific(KaplanMeier)": lambda: CauseSpecific(KaplanMeier(half_width=3)),
    "CauseSpecific(WeibullNet)": lambda: CauseSpecific(WeibullNet(**SMALL)),
    "FineGray": lambda: FineGray(),
}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request):
    return MODELS[request.param]().fit(X, Y)


# ---------------------------------------------------------------------- what holds for all


def test_incidences_and_survival_sum_to_one(model):
    incidence = model.predict_cumulative_incidence(X, GRID)
    assert incidence.shape == (len(X), len(GRID), 2)
    assert model.n_causes_ == 2
    np.testing.assert_allclose(incidence.sum(-1) + model.predict_survival_function(X, GRID), 1.0, atol=1e-14)
    assert (np.diff(incidence, axis=1) >= -1e-14).all()
    assert model.predict_distribution(X).n_causes == 2


def test_rows_have_a_likelihood(model):
    d = model.predict_distribution(X)
    values = log_likelihood(d, Y)
    possible = d.survival(own_times=Y["time"]) > 0  # Fine-Gray may have spent all probability before
    assert possible.mean() > 0.9
    assert np.isfinite(values[possible]).all()
    assert model.score(X, Y) == pytest.approx(values.mean())


def test_permuting_causes_permutes_incidences(model):
    swapped = Surv.from_arrays(np.array([0, 2, 1])[Y["event"]], Y["time"])
    other = clone(model).fit(X, swapped)
    np.testing.assert_allclose(
        other.predict_cumulative_incidence(X, GRID),
        model.predict_cumulative_incidence(X, GRID)[..., ::-1],
        rtol=1e-6,
        atol=1e-8,
    )


def test_files_keep_the_causes(model, tmp_path):
    path = tmp_path / "model"
    model.save(path)
    again = load(path)
    assert type(again) is type(model)
    assert repr(again) == repr(model)
    np.testing.assert_array_equal(
        again.predict_cumulative_incidence(X, GRID), model.predict_cumulative_incidence(X, GRID)
    )
    np.testing.assert_array_equal(clone(again).fit(X, Y).predict(X), model.predict(X))


@pytest.mark.parametrize("name", ["AalenJohansen", "FineGray"])
def test_whole_weights_are_repeated_rows(name):
    weight = np.random.default_rng(1).integers(0, 4, len(X))
    rows = np.repeat(np.arange(len(X)), weight)
    weighted = MODELS[name]().fit(X, Y, sample_weight=weight)
    repeated = MODELS[name]().fit(X.iloc[rows], Y[rows])
    np.testing.assert_allclose(
        weighted.predict_cumulative_incidence(X, GRID), repeated.predict_cumulative_incidence(X, GRID), atol=1e-9
    )


def test_a_mixture_keeps_the_causes():
    both = SurvivalMixture([AalenJohansen(), FineGray()], [1.0, 3.0]).fit(X, Y)
    expected = 0.25 * AalenJohansen().fit(X, Y).predict_cumulative_incidence(X, GRID)
    expected = expected + 0.75 * FineGray().fit(X, Y).predict_cumulative_incidence(X, GRID)
    np.testing.assert_allclose(both.predict_cumulative_incidence(X, GRID), expected, atol=1e-14)


# ---------------------------------------------------------------------- Aalen-Johansen


def test_aalen_johansen_equals_lifelines(lifelines):
    fitted = AalenJohansen().fit(X, Y)
    for k in (1, 2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            peer = lifelines.AalenJohansenFitter(calculate_variance=False).fit(Y["time"], Y["event"], k)
        curve = peer.cumulative_density_.iloc[:, 0]
        ours = fitted.predict_cumulative_incidence(X.iloc[:1], curve.index.to_numpy())[0, :, k - 1]
        np.testing.assert_allclose(ours, curve.to_numpy(), atol=1e-12)


def test_with_one_cause_it_is_kaplan_meier():
    y = Surv.from_arrays(Y["event"] > 0, Y["time"])
    one, km = AalenJohansen().fit(X, y), KaplanMeier().fit(X, y)
    np.testing.assert_allclose(one.predict_survival_function(X, GRID), km.predict_survival_function(X, GRID))
    assert one.score(X, y) == pytest.approx(km.score(X, y))


# ---------------------------------------------------------------------- one model per cause


@pytest.mark.filterwarnings("ignore:y contains only times")
@parametrize_with_checks([CauseSpecific(CoxPH(alpha=0.1))])
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


def test_rows_that_are_all_censored_are_told_of_once():
    with pytest.warns(UserWarning, match="All 200 rows are censored") as caught:
        model = CauseSpecific().fit(X, Surv.from_arrays(np.zeros(len(X)), Y["time"]))
    assert len(caught) == 1
    assert (model.predict_survival_function(X, GRID) == 1.0).all()


def test_a_model_per_cause_has_the_others_censored():
    model = CauseSpecific(CoxPH(ties="breslow")).fit(X, Y)
    parts = [CoxPH(ties="breslow").fit(X, Surv.from_arrays(Y["event"] == k, Y["time"])) for k in (1, 2)]
    for fitted, alone in zip(model.estimators_, parts):
        np.testing.assert_array_equal(fitted.coef_, alone.coef_)
    expected = cause_specific([part.predict_distribution(X) for part in parts])
    np.testing.assert_array_equal(model.predict_cumulative_incidence(X, GRID), expected.cumulative_incidence(GRID))
    product = parts[0].predict_survival_function(X, GRID) * parts[1].predict_survival_function(X, GRID)
    np.testing.assert_allclose(model.predict_survival_function(X, GRID), product, rtol=1e-12)


def test_kaplan_meier_per_cause_is_aalen_johansen_without_ties():
    ours = CauseSpecific(KaplanMeier()).fit(X, Y).predict_cumulative_incidence(X, GRID)
    np.testing.assert_allclose(ours, AalenJohansen().fit(X, Y).predict_cumulative_incidence(X, GRID), atol=1e-12)


def test_with_one_cause_it_is_the_estimator():
    y = Surv.from_arrays(Y["event"] > 0, Y["time"])
    np.testing.assert_array_equal(CauseSpecific().fit(X, y).predict(X), CoxPH().fit(X, y).predict(X))


def test_parameters_of_the_estimator_can_be_set():
    model = CauseSpecific(CoxPH(alpha=0.5))
    assert model.get_params()["estimator__alpha"] == 0.5
    model.set_params(estimator__alpha=2.0)
    assert clone(model).fit(X, Y).estimators_[1].alpha == 2.0
    for wrong in (CoxPH, "cox", object()):
        with pytest.raises(ValueError, match="survival estimator"):
            CauseSpecific(wrong).fit(X, Y)


# ---------------------------------------------------------------------- Fine-Gray


def expanded(time, cause, k):
    """Rows with a competing event cut at the later event times of cause k, weighted by the curve of censoring."""
    censoring = kaplan_meier(Surv.from_arrays(cause > 0, time), censoring=True)

    def before(t):
        return float(censoring.survival(np.nextafter(t, 0.0))[0])

    events = np.unique(time[cause == k])
    rows = []
    for i, (z, c) in enumerate(zip(time, cause)):
        rows.append((i, 0.0, z, c == k, 1.0))
        if c not in (0, k):
            start = z
            for t in events[events > z]:
                rows.append((i, start, t, False, before(t) / before(z)))
                start = t
    return pd.DataFrame(rows, columns=["row", "start", "stop", "event", "weight"])


def test_coefficients_equal_a_weighted_cox_model_of_expanded_rows(lifelines):
    fitted = FineGray().fit(X, Y)
    for k in (1, 2):
        table = expanded(Y["time"], Y["event"], k)
        table = table.join(X, on="row").drop(columns="row")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            peer = lifelines.CoxPHFitter().fit(
                table, "stop", "event", entry_col="start", weights_col="weight", robust=True
            )
        np.testing.assert_allclose(fitted.coef_[k - 1], peer.params_[["a", "b"]], atol=1e-4)


def literal(beta, x, time, cause, k):
    """The weighted partial log-likelihood, event by event, with Breslow's ties."""
    censoring = kaplan_meier(Surv.from_arrays(cause > 0, time), censoring=True)
    reach = censoring.survival(np.nextafter(time, 0.0))[0]
    total = 0.0
    for i in np.flatnonzero(cause == k):
        competing = (time < time[i]) & (cause != k) & (cause != 0)
        weight = np.where(time >= time[i], 1.0, np.where(competing, reach[i] / reach, 0.0))
        total += x[i] @ beta - np.log(weight @ np.exp(x @ beta))
    return total


@pytest.mark.parametrize("k", [1, 2, 3])
def test_coefficients_maximise_the_literal_likelihood_with_ties(k):
    table, y = simulated(120, causes=3, seed=3, ties=True)
    x, time, cause = table.to_numpy(), y["time"], y["event"]
    fitted = FineGray().fit(table, y)
    best = optimize.minimize(lambda beta: -literal(beta, x, time, cause, k), np.zeros(2), method="BFGS", tol=1e-9)
    np.testing.assert_allclose(fitted.coef_[k - 1], best.x, atol=1e-5)
    assert fitted.log_likelihood_[k - 1] == pytest.approx(-best.fun, abs=1e-7)


def test_errors_are_those_of_the_sandwich():
    """Each row's influence, by refitting with a little more of it in every risk set, the curve of censoring fixed."""
    table, y = simulated(60, seed=5)
    fitted = FineGray().fit(table, y)
    x = table.to_numpy() - table.to_numpy().mean(0)
    likelihood = SubdistributionLikelihood(x, check_outcome(y), 1)

    def solve():
        beta = np.zeros(2)
        for _ in range(40):
            _, gradient, information = likelihood(beta)
            beta = beta + np.linalg.solve(information, gradient)
        return beta

    step, influence = 1e-5, []
    for i in range(len(x)):
        found = []
        for sign in (1, -1):
            likelihood.weight[i] = 1.0 + sign * step
            likelihood.events = np.bincount(likelihood.place, weights=likelihood.weight[likelihood.own])
            found.append(solve())
        likelihood.weight[i] = 1.0
        influence.append((found[0] - found[1]) / (2 * step))
    likelihood.events = np.bincount(likelihood.place, weights=likelihood.weight[likelihood.own]).astype(float)
    np.testing.assert_allclose(fitted.standard_errors_[0], np.sqrt((np.array(influence) ** 2).sum(0)), rtol=1e-5)


def test_with_one_cause_it_is_cox_s_model():
    y = Surv.from_arrays(Y["event"] > 0, Y["time"])
    one, cox = FineGray().fit(X, y), CoxPH(ties="breslow").fit(X, y)
    np.testing.assert_allclose(one.coef_[0], cox.coef_, atol=1e-8)
    np.testing.assert_allclose(
        one.predict_survival_function(X, GRID), cox.predict_survival_function(X, GRID), atol=1e-8
    )


def test_incidences_follow_the_coefficients():
    fitted = FineGray().fit(X, Y)
    incidence = fitted.predict_cumulative_incidence(X, GRID[:4])
    inside = incidence.sum(-1) < 1
    assert inside[:, :3].all()
    ratio = np.log1p(-incidence[:, 2]) / np.log1p(-incidence[[0], 2])
    np.testing.assert_allclose(np.log(ratio), fitted.log_risk(X) - fitted.log_risk(X.iloc[:1]), atol=1e-9)


def test_incidences_that_would_pass_one_stop_there():
    fitted = FineGray().fit(X, Y)
    far = pd.DataFrame({"a": [8.0, 0.0, 4.0], "b": [-8.0, 0.0, 1.0]})
    times = np.sort(np.unique(Y["time"]))
    incidence = fitted.predict_cumulative_incidence(far, times)
    total = incidence.sum(-1)
    assert total.max() <= 1 + 1e-15
    assert total[0, -1] == pytest.approx(1.0, abs=1e-15)
    assert (np.diff(incidence, axis=1) >= 0).all()
    raw = []
    for k, (own, baseline) in enumerate(fitted.baselines_):
        at = np.append(0.0, baseline)[np.searchsorted(own, times, side="right")]
        raw.append(-np.expm1(-np.exp(fitted.log_risk(far)[:, [k]]) * at))
    raw = np.stack(raw, axis=-1)
    before = raw.sum(-1) <= 1
    assert not before[0].all()
    np.testing.assert_allclose(incidence[before], raw[before], atol=1e-14)
    stop = int(np.argmin(before[0]))
    np.testing.assert_allclose(incidence[0, stop:], np.broadcast_to(incidence[0, stop], incidence[0, stop:].shape))
    rise, wanted = incidence[0, stop] - incidence[0, stop - 1], raw[0, stop] - raw[0, stop - 1]
    np.testing.assert_allclose(rise / rise.sum(), wanted / wanted.sum(), rtol=1e-6)


def test_summary_has_a_row_for_each_cause_and_term():
    fitted = FineGray().fit(X, Y)
    summary = fitted.summary().coefficients
    assert summary.loc[(2, "a"), "coef"] == fitted.coef_[1, 0]
    np.testing.assert_allclose(summary["z"], summary["coef"] / summary["standard_error"])
    assert (summary["hazard_ratio_lower"] < summary["hazard_ratio"]).all()
    assert (summary["hazard_ratio"] < summary["hazard_ratio_upper"]).all()
    narrow = fitted.summary(level=0.5).coefficients
    assert (narrow["hazard_ratio_lower"] > summary["hazard_ratio_lower"]).all()
    by_cause = CauseSpecific().fit(X, Y)
    assert by_cause.summary().coefficients.index.equals(summary.index)
    alone = by_cause.estimators_[1].summary(0.5)
    for table in ("coefficients", "terms", "tests"):
        pd.testing.assert_frame_equal(getattr(by_cause.summary(0.5), table).loc[2], getattr(alone, table))
    assert not hasattr(CauseSpecific(KaplanMeier()).fit(X, Y), "summary")
    with pytest.warns(UserWarning, match="left out.*'c'"):
        dropped = FineGray().fit(X.assign(c=2 * X["a"] + 1), Y)
    np.testing.assert_allclose(dropped.coef_[:, :2], fitted.coef_, atol=1e-8)
    assert np.isnan(dropped.summary().coefficients.loc[(1, "c")]).all()


def test_a_column_that_is_constant_among_events_has_an_infinite_standard_error():
    """The coefficients of the other columns are compared with R (tests/r)."""
    carrier = np.where(Y["event"] > 0, 0.0, np.arange(len(Y)) % 2)
    with pytest.warns(ConvergenceWarning, match="no maximum.*'carrier'") as told:
        table = FineGray().fit(X.assign(carrier=carrier), Y).summary().coefficients
    assert len(told) == 2  # one per cause
    for k in (1, 2):
        row = table.loc[(k, "carrier")]
        assert np.isposinf(row["standard_error"])
        assert row["p"] == 1.0
        assert (row["hazard_ratio_lower"], row["hazard_ratio_upper"]) == (0.0, np.inf)
    assert np.isfinite(table.drop(index="carrier", level="term")).all(axis=None)


def test_a_ridge_shrinks_the_coefficients():
    free, tied = FineGray().fit(X, Y), FineGray(alpha=100.0).fit(X, Y)
    assert (np.abs(tied.coef_) < np.abs(free.coef_)).all()
    for options, message in (({"alpha": -1.0}, "alpha"), ({"tol": 0.0}, "tol"), ({"max_iter": 0}, "max_iter")):
        with pytest.raises(ValueError, match=message):
            FineGray(**options).fit(X, Y)


def test_entry_is_refused_with_a_remedy():
    late = Surv.from_arrays(Y["event"], Y["time"] + 1, entry=np.full(len(X), 0.5))
    with pytest.raises(ValueError, match=r"FineGray .* delayed entry"):
        FineGray().fit(X, late)


def test_coefficients_on_melanoma_equal_a_weighted_cox_model(lifelines, real_data):
    path = real_data / "outcomes" / "melanoma.parquet"
    if not path.is_file():
        pytest.skip(f"no data with competing risks: {path.name} is not in {path.parent}")
    table = pd.read_parquet(path)
    time, cause = table["time"].to_numpy(dtype=float), table["event"].to_numpy()
    columns = ["age", "thickness", "ulcer"]
    fitted = FineGray().fit(table[columns].astype(float), Surv.from_arrays(cause, time))
    rows = expanded(time, cause, 1).join(table[columns].astype(float), on="row").drop(columns="row")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = lifelines.CoxPHFitter().fit(rows, "stop", "event", entry_col="start", weights_col="weight", robust=True)
    np.testing.assert_allclose(fitted.coef_[0], peer.params_[columns], atol=1e-5)
