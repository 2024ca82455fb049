"""Contrasts of subjects and of values, with limits from members and from fits to resampled rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from explain.formulas import Formula, TwoCauses, data
from sumosurv import CoxPH, KaplanMeier, Surv, WeibullNet, datasets
from sumosurv.explain import contrast, partial_dependence, standardised_contrast
from sumosurv.fitting.spread import limits

TIMES = np.array([0.3, 1.0])


@pytest.fixture(scope="module")
def fitted():
    X, y = data()
    return WeibullNet(n_members=4, max_epochs=8, covariate_layers=(8,), random_state=0).fit(X, y), X, y


def test_two_subjects(fitted):
    model, X, _ = fitted
    found = contrast(model, X.iloc[[0]], X.iloc[[5]], times=TIMES, horizons=[1.0, 2.0], labels=("one", "other"))
    d = model.predict_distribution(X.iloc[[0, 5]])
    np.testing.assert_allclose(found.curves, d.survival(TIMES), atol=1e-12)
    np.testing.assert_allclose(found.difference, found.curves[0] - found.curves[1], atol=1e-15)
    np.testing.assert_allclose(found.numbers.loc["median", ["first", "second"]], d.median(), rtol=1e-9)
    for h in (1.0, 2.0):
        line = found.numbers.loc[f"restricted mean to {h:g}"]
        np.testing.assert_allclose(line[["first", "second"]], d.restricted_mean(h), rtol=1e-5)
        assert line["difference"] == pytest.approx(line["first"] - line["second"])
    members = model.predict_members(X.iloc[[0, 5]]).distributions
    assert len(members) == 4
    each = np.array([one.survival(1.0) for one in members])
    differences = np.sort(each[:, 0] - each[:, 1])
    assert differences[0] <= found.difference_low[1] <= found.difference_high[1] <= differences[-1]
    medians = np.array([one.median() for one in members])
    low, high = limits(medians[:, 0] - medians[:, 1], np.full(4, 0.25), 0.95)
    np.testing.assert_allclose(found.numbers.loc["median", ["low", "high"]], [low, high])
    assert found.limits_from == "members"
    assert "an association, not the effect" in repr(found)
    assert "one (first) less other (second)" in repr(found)
    assert list(found.to_frame().columns) == ["time", "first", "second", "difference", "low", "high"]


def test_a_row_may_be_given_in_other_ways(fitted):
    model, X, _ = fitted
    one = contrast(model, X.iloc[[1]], X.iloc[[2]], times=TIMES)
    for first, second in ((X.iloc[1], X.iloc[2]), (X.iloc[1].to_dict(), X.iloc[2].to_dict())):
        np.testing.assert_allclose(contrast(model, first, second, times=TIMES).difference, one.difference, atol=1e-12)
    array = np.array([[0.0, 1.0], [1.0, 0.0]])
    model = Formula(lambda X: np.exp(X[:, 0]))
    np.testing.assert_allclose(contrast(model, array[0], array[1], times=1.0).difference, np.exp(-1) - np.exp(-np.e))
    with pytest.raises(ValueError, match="one row each; got 2 rows"):
        contrast(model, array, array)


def test_weighted_limits_are_those_of_repeated_members():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(5, 3))
    low, high = limits(values, np.full(5, 0.2), 0.6)
    np.testing.assert_allclose(low, np.quantile(values, 0.2, axis=0, method="hazen"))
    np.testing.assert_allclose(high, np.quantile(values, 0.8, axis=0, method="hazen"))
    one, other = limits(values, np.array([0.996, 0.001, 0.001, 0.001, 0.001]), 0.5)
    np.testing.assert_allclose(one, values[0], atol=0.9)
    assert (np.abs(one - values[0]) < np.abs(low - high)).all()
    assert (one <= other).all()


def test_standardised_curves_are_means_over_rows(fitted):
    model, X, _ = fitted
    weight = np.arange(len(X)) % 3
    found = standardised_contrast(model, X, "d", times=TIMES, horizons=1.0, sample_weight=weight)
    assert found.labels == ("d = 1", "d = 0")
    for curve, mean, value in zip(found.curves, found.numbers.loc["restricted mean to 1", ["first", "second"]], (1, 0)):
        d = model.predict_distribution(X.assign(d=value))
        np.testing.assert_allclose(curve, np.average(d.survival(TIMES), axis=0, weights=weight), atol=1e-12)
        assert mean == pytest.approx(np.average(d.restricted_mean(1.0), weights=weight), rel=1e-5)
    assert "g-formula" in repr(found)
    assert max(map(len, repr(found).splitlines())) <= 100
    other = standardised_contrast(model, X, "c", ["v", "w"], times=TIMES, max_rows=50)
    assert other.labels == ("c = v", "c = w")
    assert other.n_rows == 50
    with pytest.raises(ValueError, match=r"has 3 values; say which two"):
        standardised_contrast(model, X, "c")
    with pytest.raises(ValueError, match="two values of the column"):
        standardised_contrast(model, X, "c", "v")


def test_the_median_of_the_mean_curve():
    """Half of the rows have rate 1, half rate 3: the mean curve falls to one half where (e^-t + e^-3t)/2 does."""
    X = np.column_stack([np.tile([0.0, 1.0], 20), np.tile([1.0, 3.0], 20)])
    model = Formula(lambda X: X[:, 1] * (1 + X[:, 0]))
    found = standardised_contrast(model, X, 0, (0.0, 1.0), times=1.0)
    root = np.roots([1, 0, 1, -1])  # u = e^-t: u³ + u = 1
    u = root[np.isreal(root)].real.item()
    assert found.numbers.loc["median", "first"] == pytest.approx(-np.log(u), rel=1e-9)
    late = standardised_contrast(Formula(lambda X: 0.1 + 0 * X[:, 0]), X, 0, (0.0, 1.0), times=1.0)
    assert np.isnan(late.numbers.loc["median", "first"])


def test_the_median_of_a_mean_curve_with_a_long_follow_up():
    """One time that is a thousand medians away: the median of steps is the time of a step, exactly."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=200), "treated": np.arange(200) % 2})
    time = rng.exponential(np.exp(0.5 * X["treated"]))
    time[0] = 1000.0
    model = CoxPH().fit(X, Surv.from_arrays(np.ones(200), time))
    found = standardised_contrast(model, X, "treated", (1, 0), times=1.0)
    for side, value in (("first", 1), ("second", 0)):
        at = np.sort(time)
        mean = model.predict_survival_function(X.assign(treated=value), at).mean(axis=0)
        assert found.numbers.loc["median", side] == at[np.argmax(mean <= 0.5)]


def test_one_row_is_a_contrast_of_two_values(fitted):
    model, X, _ = fitted
    found = standardised_contrast(model, X.iloc[[3]], "c", ("u", "w"), times=TIMES)
    direct = contrast(model, X.iloc[[3]].assign(c="u"), X.iloc[[3]].assign(c="w"), times=TIMES)
    np.testing.assert_allclose(found.difference, direct.difference, atol=1e-12)
    np.testing.assert_allclose(found.numbers.to_numpy(), direct.numbers.to_numpy())
    assert "association" in found.meaning


def test_of_a_cause():
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = TwoCauses(lambda X: np.exp(X[:, 1]))
    found = standardised_contrast(model, X, 1, (1.0, 0.0), cause=2, times=TIMES, horizons=1.5)
    rows = X.copy()
    rows[:, 1] = 1.0
    d = model.predict_distribution(rows)
    np.testing.assert_allclose(found.curves[0], d.cumulative_incidence(TIMES)[..., 1].mean(axis=0), atol=1e-12)
    assert found.numbers.loc["time lost to 1.5", "first"] == pytest.approx(d.restricted_time_lost(1.5)[:, 1].mean())
    assert list(found.numbers.index) == ["time lost to 1.5"]


def test_models_with_one_member_have_no_limits():
    X, y = data()
    found = contrast(CoxPH(alpha=0.1, missing="indicator").fit(X, y), X.iloc[[0]], X.iloc[[1]], times=TIMES)
    assert found.difference_low is None
    assert found.limits_from == "none"
    assert list(found.numbers.columns) == ["first", "second", "difference"]
    assert "low, high" not in repr(found)


def test_fits_to_resampled_rows_find_the_effect_and_its_error():
    """A randomised binary column: its standardised effect has the error that fresh samples show."""

    def sample(seed):
        rng = np.random.default_rng(seed)
        X = pd.DataFrame({"treated": rng.integers(0, 2, 150), "x": rng.normal(size=150)})
        time = rng.exponential(np.exp(0.7 * X["treated"] - 0.5 * X["x"]))
        return X, Surv.from_arrays(time <= 2.0, np.minimum(time, 2.0))

    effects = []
    for seed in range(40):
        X, y = sample(seed)
        found = standardised_contrast(CoxPH().fit(X, y), X, "treated", times=1.0)
        effects.append(found.difference[0])
    X, y = sample(0)
    found = standardised_contrast(CoxPH().fit(X, y), X, "treated", times=1.0, y=y, n_bootstrap=60, level=0.6827)
    assert found.limits_from == "bootstrap"
    half = 0.5 * (found.difference_high[0] - found.difference_low[0])
    assert half == pytest.approx(np.std(effects, ddof=1), rel=0.35)
    # truth: the mean over x of exp(-e^{0.5x - 0.7}) - exp(-e^{0.5x})
    x = np.linspace(-6, 6, 2001)
    density = np.exp(-0.5 * x**2) / np.exp(-0.5 * x**2).sum()
    truth = (density * (np.exp(-np.exp(0.5 * x - 0.7)) - np.exp(-np.exp(0.5 * x)))).sum()
    assert np.mean(effects) == pytest.approx(truth, abs=3 * np.std(effects) / np.sqrt(40))
    with pytest.raises(ValueError, match="requires their outcome y="):
        standardised_contrast(CoxPH().fit(X, y), X, "treated", n_bootstrap=2)


def test_subjects_are_resampled_with_all_of_their_rows():
    X, y = data(60)
    seen = []

    class Spy(KaplanMeier):
        def fit(self, X, y, **options):
            seen.append((X, y))
            return super().fit(X, y, **options)

    model = Spy().fit(X, y)
    seen.clear()
    subject = np.arange(60) // 3
    weight = np.where(np.arange(60) % 2, 2.0, 1.0)
    standardised_contrast(
        model, X, "d", times=1.0, y=y, n_bootstrap=3, groups=subject, sample_weight=weight, random_state=0
    )
    assert len(seen) == 3
    for table, outcome in seen:
        assert len(np.unique(outcome.group)) == 20  # a subject that was drawn twice is two subjects
        assert (np.bincount(outcome.group) == 3).all()
        assert set(np.unique(outcome.weight)) == {1.0, 2.0}
        assert len(table) == 60


@pytest.mark.real_data
def test_on_real_data(real_data):
    X, y = datasets.load("gbsg")
    model = CoxPH(alpha=0.1, missing="indicator").fit(X, y)
    binary = next(name for name in X if X[name].nunique() == 2)
    found = standardised_contrast(model, X, binary)
    assert found.quantity.times[-1] == model.last_time_
    assert np.isfinite(found.difference).all()


def test_what_is_extrapolated_is_said_to_be(fitted):
    model, X, y = fitted
    last = float(y["time"].max())
    far = contrast(model, X.iloc[[0]], X.iloc[[5]], times=TIMES, horizons=2 * last)
    assert f"beyond {last:.4g}, the last training time, are extrapolated." in repr(far)
    assert repr(far).startswith("survival probability S(t): first less second\n")
    near = standardised_contrast(model, X, "a", (1.0, 0.0), times=0.1 * last, horizons=0.5 * last)
    assert "extrapolated" not in repr(near)
    effect = partial_dependence(model, X, "a", times=[0.5 * last, 2 * last], max_rows=20)
    assert repr(effect).endswith("are extrapolated.")
