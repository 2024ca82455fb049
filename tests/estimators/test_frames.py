"""Predictions as tables have the numbers of the arrays, the index of X and what was asked for as columns."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sumosurv import AalenJohansen, CoxPH, Surv, SurvivalPipeline, WeibullNet, datasets, make_survival_pipeline

DATA = datasets.simulate("weibull", 120, random_state=0)
X = DATA.X.set_axis([f"row {i}" for i in range(120)])
MODEL = WeibullNet(n_members=2, max_epochs=2, random_state=0).fit(X, DATA.y)
TIMES = [0.5, 2.0, 1.0]


@pytest.mark.parametrize("name", ["survival_function", "cumulative_hazard_function", "density", "hazard"])
def test_curves_have_times_as_columns(name):
    ask = getattr(MODEL, f"predict_{name}")
    frame = ask(X, TIMES, as_frame=True)
    assert frame.columns.name == "time"
    assert list(frame.columns) == TIMES
    assert frame.index.equals(X.index)
    np.testing.assert_array_equal(frame.to_numpy(), ask(X, TIMES))
    np.testing.assert_allclose(frame.loc["row 7", 2.0], ask(X.loc[["row 7"]], [2.0])[0, 0])


def test_one_number_for_each_row_is_one_column():
    for name, options in (
        ("median", {}),
        ("mean", {}),
        ("restricted_mean", {"horizon": 1.0}),
        ("quantile", {"q": 0.1}),
    ):
        ask = getattr(MODEL, f"predict_{name}")
        made = ask(X, **options, as_frame=True)
        assert list(made.columns) == [name, "extrapolated"]
        assert made.index.equals(X.index)
        np.testing.assert_array_equal(made[name], ask(X, **options))
    own = np.linspace(0.1, 1.0, len(X))
    made = MODEL.predict_restricted_mean(X, own_horizons=own, as_frame=True)
    np.testing.assert_array_equal(made["restricted_mean"], MODEL.predict_restricted_mean(X, own_horizons=own))


def test_levels_and_horizons_are_columns():
    levels = MODEL.predict_quantile(X, [0.25, 0.75], as_frame=True)
    assert (levels.columns.name, list(levels.columns)) == ("quantile", [0.25, 0.75, "extrapolated"])
    np.testing.assert_array_equal(levels[0.75], MODEL.predict_quantile(X, 0.75))
    horizons = MODEL.predict_restricted_mean(X, [1.0, 2.0], as_frame=True)
    assert (horizons.columns.name, list(horizons.columns)) == ("horizon", [1.0, 2.0, "extrapolated"])
    np.testing.assert_array_equal(horizons[2.0], MODEL.predict_restricted_mean(X, 2.0))


def test_extrapolated_numbers_are_counted_and_marked():
    last, n = MODEL.last_time_, len(X)
    q = float(np.median(MODEL.predict_distribution(X).cdf(last)))  # half of these quantiles lie beyond
    beyond = MODEL.predict_quantile(X, q) > last
    assert 0 < beyond.sum() < n
    with pytest.warns(UserWarning, match=rf"^{beyond.sum()} of {n} quantiles .*\({last:.6g}\)") as told:
        frame = MODEL.predict_quantile(X, q, as_frame=True)
    assert len(told) == 1
    np.testing.assert_array_equal(frame["extrapolated"], beyond)
    with pytest.warns(UserWarning, match=rf"^{beyond.sum() + n} of {2 * n} quantiles"):
        frame = MODEL.predict_quantile(X, [q, 1.0], as_frame=True)
    assert frame["extrapolated"].all()
    distribution = MODEL.predict_distribution(X)
    beyond = distribution.mean() - distribution.restricted_mean(last) > 0.01 * distribution.mean()
    with pytest.warns(UserWarning, match=rf"^{beyond.sum()} of {n} means"):
        frame = MODEL.predict_mean(X, as_frame=True)
    np.testing.assert_array_equal(frame["extrapolated"], beyond)
    with pytest.warns(UserWarning, match=rf"^{n} of {2 * n} restricted means"):
        MODEL.predict_restricted_mean(X, [0.5 * last, 2.0 * last])
    with pytest.warns(UserWarning, match=rf"^1 of {n} restricted means"):
        frame = MODEL.predict_restricted_mean(
            X, own_horizons=last * np.append(np.linspace(0.0, 1.0, n - 1), 1.5), as_frame=True
        )
    assert frame["extrapolated"].to_list() == [False] * (n - 1) + [True]


def test_numbers_within_follow_up_cause_no_warning(recwarn):
    made = MODEL.predict_quantile(X, 1e-6, as_frame=True), MODEL.predict_restricted_mean(X, 0.1, as_frame=True)
    assert not any(frame["extrapolated"].any() for frame in made)
    assert not len(recwarn)


def test_incidences_have_cause_and_time():
    cause = np.random.default_rng(0).integers(0, 3, len(X))
    model = AalenJohansen().fit(X, Surv.from_arrays(cause, DATA.y["time"]))
    frame = model.predict_cumulative_incidence(X, TIMES, as_frame=True)
    array = model.predict_cumulative_incidence(X, TIMES)
    assert frame.columns.names == ["cause", "time"]
    np.testing.assert_array_equal(frame[2][1.0], array[:, 2, 1])
    np.testing.assert_array_equal(frame[1].to_numpy(), array[:, :, 0])


def test_arrays_have_no_index_to_keep():
    model = CoxPH().fit(X.to_numpy(), DATA.y)
    assert model.predict_median(X.to_numpy(), as_frame=True).index.equals(pd.RangeIndex(len(X)))


# ---------------------------------------------------------------------- pipelines


def test_a_plain_pipeline_has_no_medians():
    plain = make_pipeline(StandardScaler(), CoxPH()).fit(X, DATA.y)
    assert not hasattr(plain, "predict_median")
    assert hasattr(plain, "predict")


def test_a_survival_pipeline_predicts_what_its_last_step_does():
    chain = make_survival_pipeline(StandardScaler(), CoxPH()).fit(X, DATA.y)
    assert list(chain.named_steps) == ["standardscaler", "coxph"]
    rows = chain[0].transform(X)
    for name in ("median", "mean"):
        np.testing.assert_array_equal(getattr(chain, f"predict_{name}")(X), getattr(chain[-1], f"predict_{name}")(rows))
    np.testing.assert_array_equal(
        chain.predict_survival_function(X, TIMES), chain[-1].predict_survival_function(rows, TIMES)
    )
    assert len(chain.predict_distribution(X)) == len(X)
    assert chain.predict_median(X, as_frame=True).index.equals(X.index)
    assert chain.last_time_ == DATA.y["time"].max()
    assert chain.score(X, DATA.y) == chain[-1].score(rows, DATA.y)


def test_a_survival_pipeline_has_what_its_last_step_has():
    chain = SurvivalPipeline([("scale", StandardScaler())])
    assert not hasattr(chain, "predict_median")
    assert not hasattr(SurvivalPipeline([("scale", StandardScaler()), ("none", "passthrough")]), "predict_mean")


def test_a_survival_pipeline_can_be_searched():
    chain = make_survival_pipeline(StandardScaler(), CoxPH())
    search = GridSearchCV(chain, {"coxph__alpha": [0.0, 1.0]}, cv=KFold(2)).fit(X, DATA.y)
    assert isinstance(search.best_estimator_, SurvivalPipeline)
    assert search.best_estimator_.predict_median(X[:3]).shape == (3,)


def test_a_survival_pipeline_takes_one_outcome():
    chain = make_survival_pipeline(StandardScaler(), CoxPH())
    with pytest.raises(TypeError, match=r"3 arguments\. .* fit\(X, Surv"):
        chain.fit(X, DATA.y["time"], DATA.y["event"])


def test_a_pipeline_whose_fit_fails_stays_as_it_was():
    chain = make_survival_pipeline(StandardScaler(), WeibullNet(n_members=1, max_epochs=2, random_state=0))
    steps = [step for _, step in chain.steps]
    before = chain.fit(X, DATA.y).predict_median(X)
    assert [step for _, step in chain.steps] == steps
    assert hasattr(steps[0], "mean_")  # the objects that were given are fitted, as in scikit-learn
    with pytest.raises(ValueError, match="one outcome per row"):
        chain.fit(50 * X + 1000, DATA.y[:50])
    np.testing.assert_array_equal(chain.predict_median(X), before)


def test_a_pipeline_whose_fit_is_interrupted_has_all_steps_of_that_fit():
    def stop(*_):
        raise KeyboardInterrupt

    chain = make_survival_pipeline(StandardScaler(), WeibullNet(n_members=1, max_epochs=2, random_state=0))
    chain.fit(X, DATA.y).set_params(weibullnet__verbose=stop)
    with pytest.warns(RuntimeWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        chain.fit(50 * X + 1000, DATA.y)
    assert chain[-1].interrupted_
    np.testing.assert_allclose(chain[0].mean_, (50 * X + 1000).mean())
