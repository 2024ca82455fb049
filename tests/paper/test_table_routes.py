"""Which rows reach which figure of the paper's tables: on folds whose test rows are like no others."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from paper import searches, table3
from paper.record import load_record
from paper.report.lines import make_line
from paper.scoring import Fold
from sumosurv import CoxPH, KaplanMeier, Surv, kaplan_meier
from sumosurv.scores import integrated_brier, log_likelihood

TRAIN, VALID, TEST = np.arange(0, 90), np.arange(90, 120), np.arange(120, 150)


def rows(test_scale=1.0, valid_scale=1.0):
    """Times of the test rows, or of the validation rows, so many times longer."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=150), "b": rng.normal(size=150)})
    time = np.ceil(20 * rng.weibull(1.5, 150) * np.exp(-X["a"].to_numpy())) / 20  # recorded to the twentieth
    time[TEST] *= test_scale
    time[VALID] *= valid_scale
    return X, Surv.from_arrays(np.arange(150) % 4 != 0, time)


def fold(**options):
    return Fold(0, "made up", *rows(**options), TRAIN, VALID, TEST)


def searched(monkeypatch, method, *, trials=3, **options):
    """The record of one search on such rows."""
    X, y = rows(**options)
    given = type("Data", (), {"X": X, "y": y})
    monkeypatch.setattr(searches.datasets, "load", lambda name: given)
    monkeypatch.setattr(searches.datasets, "fold_source", lambda name: "made up")
    monkeypatch.setattr(searches.datasets, "fold", lambda name, i: (TRAIN, VALID, TEST))
    size = searches.Size(trials, trials, (0,), trials, max_epochs=3, refit_members=2)
    return searches.run_search("metabric", method, size=size, device="cpu")


def test_a_search_sees_training_and_validation_rows_and_no_test_row():
    made = fold()
    X, y, (X_valid, y_valid) = made.rows
    pd.testing.assert_frame_equal(X, made.X.iloc[:90])
    pd.testing.assert_frame_equal(X_valid, made.X.iloc[90:120])
    np.testing.assert_array_equal(y, made.y[:90])
    np.testing.assert_array_equal(y_valid, made.y[90:120])
    both = made.all_rows()
    pd.testing.assert_frame_equal(both[0], made.X.iloc[:120])
    np.testing.assert_array_equal(both[1], made.y[:120])
    pd.testing.assert_frame_equal(made.X_test, made.X.iloc[120:])
    np.testing.assert_array_equal(made.y_test, made.y[120:])


def test_the_scale_of_the_likelihood_is_that_of_training_rows():
    """Test times a thousand times, validation times a hundred times as long: the scale does not follow."""
    made = fold(test_scale=1000.0, valid_scale=100.0)
    times = made.y["time"][:90]
    scale = np.log(times.max() - times.min())
    assert made.shift_test == pytest.approx(made.y["event"][120:].mean() * scale)
    assert made.shift_valid == pytest.approx(made.y["event"][90:120].mean() * scale)
    assert made.shift_test != made.shift_valid
    d = kaplan_meier(made.y[:90]).repeat(30)
    with np.errstate(divide="ignore"):
        own = log_likelihood(d, made.y[120:], floor=1e-3).mean()
    assert made.likelihood(d, floor=1e-3) == pytest.approx(own + made.shift_test)


def test_the_unit_to_which_times_were_rounded_is_that_of_training_rows():
    X, y = rows()
    y["time"] = np.ceil(20 * y["time"])
    y["time"][TEST] += 0.5 * (np.arange(30) % 2)
    assert Fold(0, "made up", X, y, TRAIN, VALID, TEST).resolution == 1.0


def test_test_rows_decide_nothing_in_a_search(monkeypatch):
    """Test times fifty times as long: settings, mixture and validation scores stay; the scores on test rows do not."""
    (plain,), (other,) = (
        searched(monkeypatch, "SumoNet", test_scale=scale)["results"]["folds"] for scale in (1.0, 50.0)
    )
    for name in ("best_params", "mixture_size", "mixture_scores", "valid_S_L"):
        assert plain[name] == other[name], name
    np.testing.assert_array_equal(plain["trials"]["valid_S_L"], other["trials"]["valid_S_L"])
    assert other["honest"]["S_L"] < plain["honest"]["S_L"] - 0.5
    assert other["single"]["S_L"] < plain["single"]["S_L"] - 0.5


def test_validation_rows_decide_in_a_search(monkeypatch):
    (plain,), (other,) = (
        searched(monkeypatch, "SumoNet", valid_scale=scale)["results"]["folds"] for scale in (1.0, 50.0)
    )
    assert (np.asarray(plain["trials"]["valid_S_L"]) > np.asarray(other["trials"]["valid_S_L"]) + 0.5).all()


@pytest.mark.parametrize(("method", "make"), [("KaplanMeier", KaplanMeier), ("CoxPH", CoxPH)])
def test_baselines_are_fitted_to_training_and_validation_rows(monkeypatch, method, make):
    """Test times fifty times as long, where a curve fitted to them would do far better."""
    record = searched(monkeypatch, method, test_scale=50.0)
    made = fold(test_scale=50.0)
    honest, cheat = (
        make().fit(made.X.iloc[r], made.y[r]).predict_distribution(made.X_test) for r in (slice(120), TEST)
    )
    own = record["results"]["folds"][0]["honest"]["IBS"]
    assert own == pytest.approx(integrated_brier(honest, made.y_test, **made.pycox()).mean())
    assert own > integrated_brier(cheat, made.y_test, **made.pycox()).mean() + 0.05


def test_the_oracle_is_the_best_trial_on_test_rows(monkeypatch):
    """And the line of the table shows it: above the trial that validation rows chose, never below."""
    record = searched(monkeypatch, "SumoNet", trials=5)
    (own,) = record["results"]["folds"]
    test = np.asarray(own["trials"]["test_S_L"])
    assert np.ptp(test) > 1e-3
    assert own["oracle"]["trial"] == test.argmax()
    assert own["oracle"]["S_L"] == pytest.approx(test.max(), abs=1e-5)
    assert make_line(record, "S_L", "oracle").mean == pytest.approx(test.max(), abs=1e-5)
    chosen = int(np.argmax(own["trials"]["valid_S_L"]))
    assert own["single"]["S_L"] == pytest.approx(test[chosen], abs=1e-4)
    assert [scores["S_L"] for scores in own["trials"]["scores"]] == pytest.approx(list(test), abs=1e-4)


def test_missing_searches_are_run_said_and_stored(monkeypatch, tmp_path, capsys):
    """Two searches: what is stored is what the table shows, by hand for the one, and is not run again."""
    searched(monkeypatch, "KaplanMeier")  # leaves its rows in the place of METABRIC
    made, runs = fold(), []
    real = searches.run_search
    monkeypatch.setattr("paper.report.stored.run_search", lambda *a, **k: runs.append(a) or real(*a, **k))
    options = {"quick": True, "trials": 2, "folds": 1, "device": "cpu", "names": ["metabric"]}
    shown = table3.run(tmp_path, methods=["SumoNet", "KaplanMeier"], **options)["results"]["rows"]
    printed = capsys.readouterr().out
    assert "2 searches are not stored" in printed
    assert "split: made up" in printed
    assert runs == [("metabric", "SumoNet"), ("metabric", "KaplanMeier")]
    files = {path.stem: load_record(path) for path in (tmp_path / "quick_trials2_folds1").glob("search_*.json")}
    assert sorted(files) == ["search_metabric_kaplanmeier", "search_metabric_sumonet"]
    by_method = {row["method"]: row for row in shown if row["part"] == "honest"}
    for name, record in files.items():
        assert by_method[record["configuration"]["method"]]["mean"] == record["results"]["folds"][0]["honest"]["S_L"], (
            name
        )
    km = KaplanMeier().fit(made.X.iloc[:120], made.y[:120]).predict_distribution(made.X_test)
    assert by_method["KaplanMeier"]["mean"] == pytest.approx(made.likelihood(km))
    assert by_method["SumoNet"]["mean"] != by_method["KaplanMeier"]["mean"]
    assert (by_method["SumoNet"]["trials"], by_method["KaplanMeier"]["trials"]) == (2, 1)
    assert np.isnan(by_method["SumoNet"]["sd"])  # of one fold
    again = table3.run(tmp_path, methods=["SumoNet", "KaplanMeier"], **options)["results"]["rows"]
    assert "not stored" not in capsys.readouterr().out
    assert len(runs) == 2
    assert [row["mean"] for row in again] == [row["mean"] for row in shown]
    table3.run(tmp_path, methods=["KaplanMeier"], **(options | {"trials": 3}))  # another question, another folder
    assert len(runs) == 3
    assert not list(tmp_path.glob("*.json"))
