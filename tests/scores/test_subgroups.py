"""The audit of subgroups, against `evaluate` of the rows of each level."""

import numpy as np
import pandas as pd
import pytest

from sumosurv import CoxPH, Surv, kaplan_meier
from sumosurv.scores import audit, evaluate

SCORES = {"harrell_c": {}, "brier": {"times": 1.0}}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=240), "clinic": rng.choice(["a", "b", "c"], 240)})
    time = rng.exponential(np.exp(-X["x"] + (X["clinic"] == "c")))
    return X, Surv.from_arrays(rng.random(240) < 0.8, time)


def scored(model, X, y, which, **options):
    return evaluate(model, X[which], y[which], scores=SCORES, n_bootstrap=0, **options).set_index("score")["value"]


@pytest.mark.parametrize("given", ["marginal", "own"])
def test_values_are_those_of_the_rows_of_a_level(rows, given):
    X, y = rows
    model = CoxPH().fit(X[["x"]], y)
    censoring = kaplan_meier(y, censoring=True) if given == "own" else given
    found = audit(model, X, y, by="clinic", scores=SCORES, censoring=censoring, n_bootstrap=20)
    for level in "abc":
        inside = (X["clinic"] == level).to_numpy()
        own, rest = (scored(model, X[["x"]], y, which, censoring=censoring) for which in (inside, ~inside))
        by_level = found[found["level"] == level].set_index("score")
        values = by_level[by_level["against"] == ""]["value"]
        differences = by_level[by_level["against"] == "rest"]["value"]
        np.testing.assert_allclose(values[own.index], own, rtol=1e-12)
        np.testing.assert_allclose(differences[own.index], own - rest, atol=1e-12)


def test_two_levels_are_independent_samples_and_missing_is_a_level(rows):
    X, y = rows
    model = CoxPH().fit(X[["x"]], y)
    by = X["clinic"].where(X["clinic"] != "c")
    two = X["clinic"] != "a"
    found = audit(model, X[two], y[two], by=by[two], scores=SCORES, n_bootstrap=4000)
    assert list(dict.fromkeys(found["level"])) == ["b", "missing"]
    for _, lines in found.groupby("score"):
        errors = lines.set_index(["level", "against"])["std_error"]
        expected = np.hypot(errors["b", ""], errors["missing", ""])
        assert errors["missing", "b"] == pytest.approx(expected, rel=0.05)


def test_a_distribution_needs_no_covariates(rows):
    X, y = rows
    model = CoxPH().fit(X[["x"]], y)
    of_model, of_curves = (
        audit(*given, y, by=X["clinic"], scores=SCORES, n_bootstrap=20)
        for given in ((model, X), (model.predict_distribution(X[["x"]]), None))
    )
    pd.testing.assert_frame_equal(pd.DataFrame(of_curves), pd.DataFrame(of_model))


@pytest.mark.parametrize("by", ["age", "x", np.ones(240), np.arange(3)])
def test_what_does_not_define_subgroups_is_refused(rows, by):
    X, y = rows
    with pytest.raises(ValueError, match=r"column|values"):
        audit(CoxPH().fit(X[["x"]], y), X, y, by=by)


def test_the_table_prints_within_80_columns(rows):
    X, y = rows
    printed = str(audit(CoxPH().fit(X[["x"]], y), X, y, by="clinic", n_bootstrap=20))
    assert max(map(len, printed.splitlines())) <= 80
    assert "c - rest" in printed
