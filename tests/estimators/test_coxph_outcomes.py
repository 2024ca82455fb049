"""Cox's model with entry times, weights, strata, robust errors and the test of proportionality."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from forging import forged, put, read
from sumosurv import CoxPH, ModelFileError, Surv, breslow, check_outcome, datasets, load
from sumosurv.estimators.partial_likelihood import PartialLikelihood, ever_at_risk

EXACT = {"precision": 1e-12}


def sample(n=150, seed=0, *, ties=True, late=True):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    time = rng.exponential(np.exp(-x @ [0.8, -0.5, 0.0]))
    time = np.ceil(5 * time) if ties else time
    entry = np.where(rng.random(n) < 0.6, np.floor(0.6 * time) if ties else 0.6 * time * rng.random(n), 0.0)
    y = Surv.from_arrays(rng.random(n) < 0.7, time, entry if late else None)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    weight = rng.uniform(0.5, 2.0, n)
    return frame, check_outcome(y), weight / weight.mean(), rng.integers(0, 3, n)


def counts(n, seed=0):
    return np.random.default_rng(seed).integers(0, 4, n).astype(float)


def literal(beta, x, y, weight, stratum, ties):
    """Σ over strata and distinct event times, as the textbooks write it."""
    total, g = 0.0, x @ beta
    entry = np.zeros(len(y)) if y.entry is None else y.entry
    for s in np.unique(stratum):
        own = stratum == s
        for t in np.unique(y.time[y.event & own]):
            dead = (y.time == t) & y.event & own
            at_risk = ((entry < t) | (entry == 0)) & (y.time >= t) & own
            risk = weight * np.exp(g)
            for place in range(dead.sum()):
                share = place / dead.sum() if ties == "efron" else 0.0
                total -= weight[dead].mean() * np.log(risk[at_risk].sum() - share * risk[dead].sum())
            total += weight[dead] @ g[dead]
    return total


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_value_gradient_and_information_are_those_of_the_formula(ties):
    frame, y, weight, stratum = sample(60)
    y.time[:8], y.entry[:8], y.event[:6] = 0.0, 0.0, True
    x, y = frame.to_numpy(), replace(y, weight=weight)
    beta, step = np.array([0.3, -0.2, 0.1]), 1e-5 * np.eye(3)
    partial = PartialLikelihood(x, y, ties, stratum)
    value, gradient, information = partial(beta)
    assert value == pytest.approx(literal(beta, x, y, weight, stratum, ties), rel=1e-12)
    slopes = [
        (literal(beta + e, x, y, weight, stratum, ties) - literal(beta - e, x, y, weight, stratum, ties)) / 2e-5
        for e in step
    ]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6)
    rows = [(partial(beta - e)[1] - partial(beta + e)[1]) / 2e-5 for e in step]
    np.testing.assert_allclose(information, rows, rtol=1e-6)


def test_a_case_is_in_its_risk_set_however_large_the_risks_of_rows_that_enter_later():
    y = check_outcome(Surv.from_arrays([1, 1, 0], [1.0, 4.0, 5.0], [0.0, 2.0, 3.0]))
    value, _, _ = PartialLikelihood(np.array([[-50.0], [0.0], [1.0]]), y, "efron")(np.ones(1))
    assert value == pytest.approx(-np.log(1 + np.e), rel=1e-12)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_score_residuals_are_derivatives_in_the_weights(ties):
    frame, y, weight, stratum = sample(40)
    x, beta = frame.to_numpy(), np.array([0.3, -0.2, 0.1])
    partial = PartialLikelihood(x, replace(y, weight=weight), ties, stratum)
    residuals = partial.score_residuals(beta)
    np.testing.assert_allclose(weight @ residuals, partial(beta)[1], atol=1e-10)
    for i in range(len(y)):
        step = 1e-5 * (np.arange(len(y)) == i)
        above, below = (
            PartialLikelihood(x, replace(y, weight=weight + sign * step), ties, stratum)(beta)[1] for sign in (1, -1)
        )
        np.testing.assert_allclose(residuals[i], (above - below) / 2e-5, atol=1e-7)


def lifelines_fit(lifelines, table, strata=None, cluster=None, **columns):
    fitter = lifelines.CoxPHFitter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fitter.fit(table, "time_", "event_", strata=strata, cluster_col=cluster, fit_options=EXACT, **columns)


@pytest.mark.parametrize("strata", [None, "d"])
@pytest.mark.parametrize("late", [False, True])
def test_against_lifelines(late, strata, lifelines):
    frame, y, weight, stratum = sample(300, late=late)
    frame["d"] = stratum
    model = CoxPH(strata=strata, robust=False).fit(frame, y, sample_weight=weight)
    table = frame.assign(time_=y.time, event_=y.event, weight_=weight)
    columns = {"weights_col": "weight_"}
    if late:  # an entry counts in lifelines from its own time on
        table["entry_"] = y.entry + np.where(y.entry > 0, 1e-6, 0.0)
        columns["entry_col"] = "entry_"
    theirs = lifelines_fit(lifelines, table, strata=strata, **columns)
    np.testing.assert_allclose(model.coef_, theirs.params_, atol=1e-6)
    np.testing.assert_allclose(model.standard_errors_, theirs.standard_errors_, atol=1e-6)
    assert model.log_likelihood_ == pytest.approx(theirs.log_likelihood_, abs=1e-6)
    summary = model.summary(level=0.95).coefficients
    np.testing.assert_allclose(summary["hazard_ratio_lower"], theirs.summary["exp(coef) lower 95%"], rtol=1e-6)
    np.testing.assert_allclose(summary["hazard_ratio_upper"], theirs.summary["exp(coef) upper 95%"], rtol=1e-6)
    if not late and strata is None:  # its baseline ignores entry times
        at = np.unique(y.time[y.event])
        curves = theirs.predict_survival_function(frame.iloc[:30], times=at).to_numpy().T
        ours = breslow(y, model.log_risk(frame), model.log_risk(frame.iloc[:30]), sample_weight=weight)
        np.testing.assert_allclose(ours.survival(at), curves, atol=1e-6)


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["channing", "nafld_age", "heart"])
def test_entry_against_lifelines_on_real_data(name, outcome_data, lifelines):
    table = outcome_data(name).rename(columns={"start": "entry", "stop": "time"})
    table = table.iloc[:: 10 if name == "nafld_age" else 1].dropna()
    y = Surv.from_columns(table, event="event", time="time", entry="entry")
    X = pd.get_dummies(table.drop(columns=["event", "time", "entry", "id"], errors="ignore"), drop_first=True)
    X = X.astype(float)
    model = CoxPH().fit(X, y)
    shifted = table["entry"] + np.where(table["entry"] > 0, 1e-7, 0.0)
    theirs = lifelines_fit(
        lifelines, X.assign(time_=table["time"], event_=table["event"], entry_=shifted), entry_col="entry_"
    )
    np.testing.assert_allclose(model.coef_, theirs.params_, atol=1e-5)
    np.testing.assert_allclose(model.standard_errors_, theirs.standard_errors_, atol=1e-5)


@pytest.mark.real_data
def test_heart_transplants_have_the_coefficients_of_r(outcome_data):
    # R's survival: coxph(Surv(start, stop, event) ~ (age + surgery) * transplant, heart)
    table = outcome_data("heart")
    X = table[["age", "surgery", "transplant"]].astype(float)
    X["age:transplant"], X["surgery:transplant"] = (X[c] * X["transplant"] for c in ("age", "surgery"))
    y = Surv.from_columns(table, event="event", time="stop", entry="start")
    found = CoxPH(ties="breslow").fit(X, y)
    np.testing.assert_allclose(found.coef_, [0.0138, -0.5457, 0.1181, 0.0348, -0.2916], atol=1e-3)
    np.testing.assert_allclose(found.standard_errors_, [0.0181, 0.6109, 0.3277, 0.0273, 0.7582], atol=1e-3)


@pytest.mark.real_data
def test_robust_errors_against_lifelines_on_real_data(outcome_data, lifelines):
    table = outcome_data("pbc")[["time", "event", "age", "bili", "albumin", "stage"]].dropna()
    rng = np.random.default_rng(0)
    time = table["time"].to_numpy(float) + rng.uniform(0.0, 0.1, len(table))  # theirs does not know ties
    X = table[["age", "bili", "albumin"]]
    y = Surv.from_arrays(table["event"] == 2, time)
    weight, subject = rng.uniform(0.5, 2.0, len(table)), np.arange(len(table)) // 3
    weight /= weight.mean()
    data = X.assign(time_=time, event_=table["event"] == 2, weight_=weight, subject_=subject, stage=table["stage"])
    for settings, options, theirs in (
        ({"robust": True}, {}, {"robust": True}),
        ({}, {"sample_weight": weight}, {"robust": True, "weights_col": "weight_"}),
        ({}, {"groups": subject}, {"cluster": "subject_"}),
        ({"strata": "stage", "robust": True}, {}, {"strata": ["stage"], "robust": True}),
    ):
        own = data[
            [
                *X.columns,
                "time_",
                "event_",
                *[c for c in ("weight_", "subject_", "stage") if c in str(theirs)],
            ]
        ]
        fitted = lifelines_fit(lifelines, own, **theirs)
        table_ = X.assign(stage=table["stage"]) if "strata" in settings else X
        model = CoxPH(**settings).fit(table_, y, **options)
        assert model.robust_
        np.testing.assert_allclose(model.coef_, fitted.params_, atol=1e-6)
        np.testing.assert_allclose(model.standard_errors_, fitted.standard_errors_, rtol=1e-4)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_robust_errors_are_the_infinitesimal_jackknife(ties):
    """β moves with each subject's weight; with entry, ties and strata, which lifelines' do not know."""
    frame, y, weight, stratum = sample(50)
    frame["d"] = stratum
    subject = np.arange(50) // 2
    settings = {"strata": "d", "ties": ties}
    model = CoxPH(**settings).fit(frame, y, sample_weight=weight, groups=subject)
    assert model.robust_
    moves = []
    for s in range(25):
        step = 1e-4 * weight * (subject == s)
        # an Outcome: its weights are taken as they are
        above, below = (CoxPH(**settings).fit(frame, replace(y, weight=weight + h * step)).coef_ for h in (1, -1))
        moves.append((above - below) / 2e-4)
    np.testing.assert_allclose(model.standard_errors_, np.sqrt(np.sum(np.square(moves), axis=0)), rtol=1e-5)


def test_when_errors_are_robust():
    frame, y, weight, _ = sample(80)
    plain = CoxPH().fit(frame, y)
    assert not plain.robust_
    assert not CoxPH().fit(frame, y, sample_weight=counts(80)).robust_
    assert CoxPH().fit(frame, y, sample_weight=weight).robust_
    assert not CoxPH().fit(frame, y, groups=np.arange(80)).robust_
    spells = CoxPH().fit(frame, y, groups=np.arange(80) // 2)
    assert spells.robust_
    np.testing.assert_array_equal(spells.coef_, plain.coef_)
    forced = CoxPH(robust=False).fit(frame, y, groups=np.arange(80) // 2)
    np.testing.assert_array_equal(forced.standard_errors_, plain.standard_errors_)
    assert not np.allclose(spells.standard_errors_, plain.standard_errors_, rtol=1e-3)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("settings", [{"alpha": 2.0}, {"robust": True}, {"robust": False}])
@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_whole_weights_are_repeated_rows(ties, settings, grouped):
    frame, y, _, stratum = sample()
    weight, subject = counts(len(y)), np.arange(len(y)) // 3
    frame["d"] = stratum
    frame.loc[::7, "c"] = np.nan  # their mean is put there
    rows = np.repeat(np.arange(len(y)), weight.astype(int))
    settings = {"ties": ties, "strata": "d", "missing": "indicator", **settings}
    one = CoxPH(**settings).fit(frame, y, sample_weight=weight, groups=subject if grouped else None)
    other = CoxPH(**settings).fit(frame.iloc[rows], y[rows], groups=subject[rows] if grouped else None)
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-8)
    np.testing.assert_allclose(one.standard_errors_, other.standard_errors_, atol=1e-8)
    assert one.log_likelihood_ == pytest.approx(other.log_likelihood_, rel=1e-10)
    at = np.unique(y.time)
    np.testing.assert_allclose(
        one.predict_survival_function(frame, at), other.predict_survival_function(frame, at), atol=1e-8
    )
    tests = (one.test_proportionality(frame, y, sample_weight=weight, transform="rank"),)
    tests += (other.test_proportionality(frame.iloc[rows], y[rows], transform="rank"),)
    np.testing.assert_allclose(tests[0]["statistic"], tests[1]["statistic"], rtol=1e-6)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_cutting_rows_into_spells_changes_nothing(ties):
    frame, y, _, _ = sample(ties=False)
    cut = y.entry + 0.3 * (y.time - y.entry)
    both = pd.concat([frame, frame], ignore_index=True)
    spells = Surv.from_arrays(
        np.append(np.zeros(len(y), dtype=bool), y.event), np.append(cut, y.time), np.append(y.entry, cut)
    )
    whole, parts = CoxPH(ties=ties).fit(frame, y), CoxPH(ties=ties).fit(both, spells)
    np.testing.assert_allclose(parts.coef_, whole.coef_, atol=1e-8)
    np.testing.assert_allclose(parts.standard_errors_, whole.standard_errors_, atol=1e-8)
    # and a subject's spells together owe what the subject owes
    subject = np.tile(np.arange(len(y)), 2)
    robust, clustered = CoxPH(ties=ties, robust=True).fit(frame, y), CoxPH(ties=ties).fit(both, spells, groups=subject)
    np.testing.assert_allclose(clustered.standard_errors_, robust.standard_errors_, atol=1e-8)


def test_a_cause_of_its_own_is_learned_with_the_others_as_censoring():
    frame, y, _, _ = sample()
    cause = np.where(y.event, 1 + (np.arange(len(y)) % 2), 0)
    both = check_outcome(Surv.from_arrays(cause, y.time, y.entry))
    one = CoxPH().fit(frame, both.of_cause(2))
    np.testing.assert_array_equal(one.coef_, CoxPH().fit(frame, Surv.from_arrays(cause == 2, y.time, y.entry)).coef_)


def test_the_truth_is_found_with_late_entry_and_missed_without():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40000)
    time, entry = rng.weibull(1.5, 40000) * np.exp(-0.7 * x / 1.5), rng.exponential(0.7, 40000)
    seen = entry < time
    x, time, entry = x[seen, None], time[seen], entry[seen]
    event = rng.random(len(x)) < 0.7
    assert CoxPH().fit(x, Surv.from_arrays(event, time, entry)).coef_[0] == pytest.approx(0.7, abs=0.02)
    assert CoxPH().fit(x, Surv.from_arrays(event, time)).coef_[0] > 0.74


def test_rows_in_no_risk_set_are_left_out_of_the_columns():
    y = check_outcome(Surv.from_arrays([1, 0, 0, 1, 0], [2.0, 1.0, 2.5, 5.0, 9.0], [0.0, 0.0, 2.0, 3.0, 6.0]))
    assert ever_at_risk(y).tolist() == [True, False, False, True, False]
    assert ever_at_risk(replace(y, entry=None)).tolist() == [True, False, True, True, True]
    assert ever_at_risk(replace(y, entry=None), np.array([0, 0, 1, 1, 1])).tolist() == [True, False, False, True, True]


def test_a_column_that_is_constant_within_strata_is_left_out():
    frame, y, _, stratum = sample()
    frame["d"], frame["e"] = stratum, 7.1 * stratum + 3.3
    with pytest.warns(UserWarning, match=r"Columns left out.*'e' \(constant\)"):
        model = CoxPH(strata="d").fit(frame, y)
    expected = CoxPH(strata=["d"]).fit(frame.drop(columns="e"), y)
    np.testing.assert_allclose(model.coef_, [*expected.coef_, 0.0], atol=1e-9)


# ---------------------------------------------------------------------- strata


def test_strata_are_told_by_values_of_any_kind_and_saved(tmp_path):
    frame, y, weight, stratum = sample()
    frame["kind"] = pd.Categorical(np.array(["x", "y", "z"])[stratum])
    frame["old"] = np.where(np.arange(len(y)) % 2 == 0, np.nan, 1)
    model = CoxPH(strata=["kind", "old"], missing="indicator", ties="breslow").fit(frame, y, sample_weight=weight)
    assert model.terms_ == ["a", "b", "c"]
    assert ("x", "missing") in model.strata_
    assert ("z", "1.0") in model.strata_
    model.save(tmp_path / "m.sumo")
    again = load(tmp_path / "m.sumo")
    at = np.unique(y.time)
    new = frame.assign(kind=frame["kind"].astype(str)).iloc[::-1]
    curves = model.predict_survival_function(frame, at)
    np.testing.assert_array_equal(again.predict_survival_function(new, at), curves[::-1])
    assert again.strata_ == model.strata_
    assert again.robust_ == model.robust_
    # each row's curve is that of a model of its stratum's rows with the same coefficients
    own = (frame["kind"] == "x") & frame["old"].isna()
    risk = frame[["a", "b", "c"]] @ model.coef_
    expected = breslow(replace(y, weight=weight)[own.to_numpy()], risk[own], risk[own]).survival(at)
    np.testing.assert_allclose(curves[own], expected, rtol=1e-10)


@pytest.mark.parametrize(
    "labels", [[], [["0.0"], ["0.0"], ["2.0"]], [["0.0", "1"], ["1.0", "1"], ["2.0", "1"]], [["0.0"], ["1.0"]], None]
)
def test_a_file_with_other_strata_is_refused(labels, tmp_path):
    """None at all, one of them twice, of two columns, too few, not described."""
    frame, y, _, stratum = sample()
    CoxPH(strata="d").fit(frame.assign(d=stratum), y).save(tmp_path / "m.sumo")
    assert read(tmp_path / "m.sumo")[0]["fitted"]["strata_"] == [["0.0"], ["1.0"], ["2.0"]]
    with pytest.raises(ModelFileError):
        load(forged(tmp_path / "m.sumo", tmp_path / "forged", put("fitted", "strata_", value=labels)))


def test_strata_of_an_array_are_positions():
    frame, y, _, stratum = sample()
    x = np.column_stack([frame["a"], stratum, frame["b"]])
    model = CoxPH(strata=1).fit(x, y)
    named = CoxPH(strata="d").fit(pd.DataFrame({"a": frame["a"], "d": stratum, "b": frame["b"]}), y)
    np.testing.assert_allclose(model.coef_, named.coef_)
    assert model.predict_survival_function(x[:3], [1.0]).shape == (3, 1)


def test_curves_of_strata_have_densities_at_their_own_events():
    frame, y, _, stratum = sample(ties=False, late=False)
    frame["d"] = stratum
    model = CoxPH(strata="d", half_width=1).fit(frame, y)
    assert np.isfinite(model.score(frame[y.event], y[y.event]))


@pytest.mark.parametrize(
    "change",
    [
        {"strata_": None},
        {"strata_": []},
        {"strata_": [["0.0"], ["0.0"], ["2.0"]]},
        {"strata_": [["0.0"], ["1.0"], ["2.0", "x"]]},
        {"strata_": [["0.0"], ["1.0"], [2.0]]},
        {"strata_": [["0.0"], ["1.0"]]},
        {"baseline_sizes": [1, 1, 1]},
        {"baseline_sizes": [1, 1]},
        {"baseline_sizes": [-1, 1, 1]},
        {"robust_": "yes"},
    ],
)
def test_a_file_whose_strata_do_not_fit_is_refused(change):
    frame, y, _, stratum = sample()
    frame["d"] = stratum
    fitted, tensors = CoxPH(strata="d").fit(frame, y)._state()
    CoxPH(strata="d")._restore(fitted, tensors)
    *sizes, last = fitted["baseline_sizes"]
    with pytest.raises(ValueError, match="baseline"):
        CoxPH(strata="d")._restore(fitted | {"baseline_sizes": [*sizes, last + 1]}, tensors)
    with pytest.raises((ValueError, TypeError)):
        CoxPH(strata="d")._restore(fitted | change, tensors)
    with pytest.raises(ValueError, match="strata"):
        CoxPH(strata=None if "strata_" in change else "e")._restore(fitted, tensors)


def test_strata_that_cannot_be(tmp_path):
    frame, y, _, stratum = sample()
    frame["d"] = stratum
    with pytest.raises(ValueError, match=r"'e', .* 'a', 'b', 'c', 'd'"):
        CoxPH(strata="e").fit(frame, y)
    with pytest.raises(ValueError, match="at least one must be left"):
        CoxPH(strata=["d"]).fit(frame[["d"]], y)
    model = CoxPH(strata="d").fit(frame, y)
    with pytest.raises(ValueError, match=r"1 rows .*strata.* 2 \(d=9\.0\)"):
        model.predict_survival_function(frame[:3].assign(d=[0, 1, 9]), [1.0])
    with pytest.raises(ValueError, match=r"robust.*'yes'"):
        CoxPH(robust="yes").fit(frame, y)
    with pytest.raises(ValueError, match=r"level.*95"):
        model.summary(level=95)


# ---------------------------------------------------------------------- proportionality


def test_proportionality_holds_its_level_and_sees_ratios_that_change():
    rng = np.random.default_rng(0)
    small, seen = [], []
    for _ in range(100):
        x = rng.normal(size=(200, 2))
        time, entry = rng.weibull(1.5, 200) * np.exp(-0.5 * x[:, 0]), rng.exponential(0.2, 200)
        rows = entry < time
        y = Surv.from_arrays(rng.random(rows.sum()) < 0.8, time[rows], entry[rows])
        small.append(CoxPH().fit(x[rows], y).test_proportionality(x[rows], y)["p"].to_numpy())
        changing = rng.weibull(1.0, 200) ** np.exp(-0.5 * x[:, 1])
        y = Surv.from_arrays(np.ones(200), changing)
        seen.append(CoxPH().fit(x, y).test_proportionality(x, y, transform="rank")["p"].to_numpy())
    level, power = np.mean(np.array(small) < 0.05, axis=0), np.mean(np.array(seen) < 0.05, axis=0)
    assert ((level > 0.005) & (level < 0.11)).all()
    assert power[1] > 0.9
    assert power[2] > 0.85
    assert power[0] < 0.15


def test_proportionality_of_columns_that_are_left_out_and_errors():
    frame, y, _, _ = sample()
    frame["e"] = 1.0
    with pytest.warns(UserWarning, match="Columns left out"):
        model = CoxPH().fit(frame, y)
    table = model.test_proportionality(frame, y)
    assert table.index.tolist() == ["a", "b", "c", "e", "global"]
    assert np.isnan(table.loc["e", "statistic"])
    assert table.loc["global", "df"] == 3
    with pytest.raises(ValueError, match=r"transform.*km.*'sqrt'"):
        model.test_proportionality(frame, y, transform="sqrt")
    with pytest.raises(ValueError, match="All events have the same time"):
        model.test_proportionality(frame, Surv.from_arrays(y.event, np.ones(len(y))))
    with pytest.raises(ValueError, match="All events have the same time"):
        model.test_proportionality(frame, Surv.from_arrays(np.zeros(len(y), dtype=bool), y.time))
    with pytest.raises(ValueError, match="does not support interval-censored"):
        model.test_proportionality(frame, Surv.interval(y.time, y.time + 1.0))


def test_limits_of_predictions_contain_them_and_grow_with_the_level():
    X, y = datasets.simulate("weibull", 150, random_state=1)
    model = CoxPH().fit(X, y)
    times = np.quantile(y["time"][y["event"]], [0.1, 0.5, 0.8])
    lower, upper = model.predict_survival_band(X[:5], times)
    estimate = model.predict_survival_function(X[:5], times)
    assert (lower <= estimate).all()
    assert (estimate <= upper).all()
    wide = model.predict_survival_band(X[:5], times, level=0.99)
    assert (wide[0] < lower).all()
    np.testing.assert_array_equal(model.predict_survival_band(X[:5], [0.0]), np.ones((2, 5, 1)))
    low, high = model.predict_restricted_mean_limits(X[:5], 1.0)
    mean = model.predict_restricted_mean(X[:5], 1.0)
    np.testing.assert_allclose((low + high) / 2, mean, rtol=1e-9)
    early, late = model.predict_median_limits(X[:5])
    median = model.predict_median(X[:5])
    assert (early <= median).all()
    assert (median <= late).all()
    few = CoxPH().fit(X, Surv.from_arrays(np.arange(150) < 30, y["time"]))
    assert np.isposinf(few.predict_median_limits(X)[1]).any()


def test_limits_without_information_or_risk_sets(tmp_path):
    X, y = datasets.simulate("weibull", 80, random_state=1)
    model = CoxPH().fit(X, y)
    model.save(tmp_path / "model.sumo")
    with pytest.raises(ValueError, match="risk sets"):
        load(tmp_path / "model.sumo").predict_survival_band(X, [1.0])
    with pytest.raises(ValueError, match="alpha=0"):
        CoxPH(alpha=1.0).fit(X, y).predict_median_limits(X)
    with pytest.raises(ValueError, match="horizon"):
        model.predict_restricted_mean_limits(X, -1.0)
    separated = np.column_stack([X, np.where(y["event"], 0.0, 1.0)])
    with pytest.warns(UserWarning, match="no maximum"):
        infinite = CoxPH().fit(separated, y)
    lower, upper = infinite.predict_survival_band(separated, [np.median(y["time"])])
    np.testing.assert_array_equal([lower.max(), upper.min()], [0.0, 1.0])
