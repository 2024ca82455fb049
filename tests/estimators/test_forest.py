"""Random survival forest: the arrays say what scikit-survival says; and Kaplan-Meier as an estimator."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import check_random_state

from sumosurv import KaplanMeier, RandomSurvivalForest, Surv, kaplan_meier, load
from sumosurv.scores import log_likelihood

ensemble = pytest.importorskip("sksurv.ensemble")


def sample(n=200, seed=0, ties=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    time = rng.exponential(np.exp(-X[:, 0]))
    return X, Surv.from_arrays(rng.random(n) < 0.7, np.ceil(6 * time) if ties else time)


@pytest.mark.parametrize("ties", [False, True])
def test_the_curves_are_those_of_scikit_survival(ties):
    X, y = sample(ties=ties)
    settings = {"n_estimators": 12, "min_samples_leaf": 4, "min_samples_split": 8, "max_features": 2}
    model = RandomSurvivalForest(**settings, random_state=5).fit(X, y)
    seed = check_random_state(5).randint(2**31 - 1)
    theirs = ensemble.RandomSurvivalForest(**settings, random_state=seed).fit(X, y)
    new, _ = sample(70, seed=1)
    at = np.unique(y["time"])
    curves = np.stack([curve(at) for curve in theirs.predict_survival_function(new)])
    np.testing.assert_allclose(model.predict_survival_function(new, at), curves, atol=1e-12)


def test_a_forest_is_saved_as_arrays_and_read_without_scikit_survival(tmp_path, monkeypatch):
    X, y = sample()
    model = RandomSurvivalForest(n_estimators=5, random_state=0).fit(X, y)
    model.save(tmp_path / "forest")
    expected = model.predict(X)
    for name in [name for name in sys.modules if name.partition(".")[0] == "sksurv"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError):
        import sksurv.ensemble  # noqa: F401
    np.testing.assert_array_equal(load(tmp_path / "forest").predict(X), expected)


def test_without_scikit_survival_fit_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sksurv.ensemble", None)
    with pytest.raises(ImportError, match=r"sumosurv\[forest\]"):
        RandomSurvivalForest().fit(*sample(30))


def test_categories_and_missing_values():
    X, y = sample()
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["d"] = np.where(frame["a"] > 0, "high", "low")
    frame.loc[::9, "b"] = np.nan
    model = RandomSurvivalForest(n_estimators=5, random_state=0).fit(frame, y)
    assert np.isfinite(model.predict(frame)).all()


def test_a_forest_finds_what_kaplan_meier_cannot():
    (X, y), (new, _) = sample(800), sample(300, seed=1)
    at = np.array([0.2, 0.5, 1.0, 2.0])
    truth = np.exp(-at * np.exp(new[:, :1]))
    forest, floor = RandomSurvivalForest(n_estimators=50, random_state=0), KaplanMeier()
    error, most = (abs(m.fit(X, y).predict_survival_function(new, at) - truth).mean() for m in (forest, floor))
    assert error < 0.6 * most


def test_windows_of_the_density():
    X, y = sample()
    settings = {"n_estimators": 5, "random_state": 0}
    wide = RandomSurvivalForest(**settings).fit(X, y).predict_distribution(X)
    assert wide.half_width == max(2, len(np.unique(y["time"][y["event"]])) // 40)
    assert RandomSurvivalForest(**settings, half_width=7).fit(X, y).predict_distribution(X).half_width == 7


def falls(model, X):
    return model.predict_survival_function(X, [model.event_times_[-1]])[:, 0] < 1


@pytest.mark.parametrize("seed", range(4))
def test_the_score_is_finite_wherever_the_curve_of_an_event_falls(seed):
    (X, y), (new, later) = sample(60, seed=seed), sample(200, seed=100 + seed)
    model = RandomSurvivalForest(n_estimators=3, min_samples_leaf=3, random_state=seed).fit(X, y)
    event = later["event"]
    scores = log_likelihood(model.predict_distribution(new), later)
    np.testing.assert_array_equal(np.isfinite(scores[event]), falls(model, new)[event])
    gone = model.predict_distribution(new).survival(own_times=later["time"]) == 0
    np.testing.assert_array_equal(np.isinf(scores[~event]), gone[~event])


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["diabetes", "e1684", "pbc", "zinc"])
def test_the_score_is_finite_on_small_real_tables(name):
    path = Path(__file__).parents[3] / "shared" / "data" / "zoo" / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    table = pd.read_parquet(path)
    X, y = table.drop(columns=["time", "event"]), Surv.from_arrays(table["event"], table["time"])
    train = np.arange(len(X)) % 5 > 0
    model = RandomSurvivalForest(n_estimators=20, random_state=0).fit(X[train], y[train])
    assert np.isfinite(model.score(X[~train], y[~train]))


def test_kaplan_meier_is_the_same_curve_for_everyone():
    X, y = sample(ties=True)
    model = KaplanMeier(half_width=3).fit(X, y)
    at = np.unique(y["time"])
    expected = kaplan_meier(y, half_width=3)
    np.testing.assert_array_equal(model.predict_survival_function(X, at), np.tile(expected.survival(at), (200, 1)))
    assert model.score(X, y) == pytest.approx(log_likelihood(expected.repeat(200), y).mean())
    assert len(np.unique(model.predict(X))) == 1


def test_subjects_far_from_the_data_and_windows_that_cannot_be():
    X, y = sample()
    model = RandomSurvivalForest(n_estimators=5, random_state=0).fit(X, y)
    far = np.full((2, 3), 1e6)
    far[1] = 1e300  # past the range of float32, in which trees compare
    curves = model.predict_survival_function(far, [0.1, 1.0])
    np.testing.assert_array_equal(curves[0], curves[1])
    with pytest.raises(ValueError, match=r"half_width .*'auto' .* 1; got 0"):
        RandomSurvivalForest(half_width=0).fit(X, y)
    with pytest.raises(ValueError, match=r"half_width .*got 1\.5"):
        KaplanMeier(half_width=1.5).fit(X, y)
