"""The simulated stand-in for KKBOX: its form, and that its rows follow the distribution it claims."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import paper.kkbox as real_one
from sumosurv import CoxPH, Surv
from sumosurv.datasets import Simulated, fold_by_customer, simulate, true_distribution
from sumosurv.distributions import Mixture, Weibull
from sumosurv.scores import log_likelihood

N = 30_000


@pytest.fixture(scope="module")
def data() -> Simulated:
    return simulate("kkbox", N, random_state=0)


def test_form(data: Simulated) -> None:
    X, y = data
    assert X.shape == (N, 15)
    assert tuple(X.columns) == real_one._PUBLISHED
    kinds = {name: str(dtype) for name, dtype in X.dtypes.items()}
    assert [name for name, kind in kinds.items() if kind == "category"] == ["city", "gender", "registered_via"]
    assert {kind for kind in kinds.values() if kind != "category"} == {"float32"}
    assert [len(X[name].cat.categories) for name in ("city", "gender", "registered_via")] == [21, 2, 5]
    binary = [name for name in X if kinds[name] != "category" and set(X[name].unique()) <= {0.0, 1.0}]
    assert binary == ["is_auto_renew", "is_cancel", "strange_age", "nan_days_since_reg_init", "no_prev_churns"]
    assert X["gender"].isna().mean() == pytest.approx(0.6, abs=0.02)
    assert X.memory_usage(deep=True).sum() < 60 * N
    np.testing.assert_array_equal(y["time"], np.minimum(data.event_time, data.censoring_time))


def test_share_of_censoring(data: Simulated) -> None:
    assert 1 - data.y["event"].mean() == pytest.approx(0.28, abs=0.01)


def test_default_size() -> None:
    assert len(simulate("weibull", random_state=0)) == 25_000
    from sumosurv.datasets._simulated_kkbox import ROWS

    assert ROWS == 2_646_746


def test_event_times_follow_the_true_distribution(data: Simulated) -> None:
    u = data.distribution.cdf(own_times=data.event_time)
    groups = {
        "all": np.ones(N, bool),
        "came back": (data.X["n_prev_churns"] > 0).to_numpy(),
        "manual": (data.X["is_auto_renew"] == 0).to_numpy(),
        "no gender": data.X["gender"].isna().to_numpy(),
        "city 5": (data.X["city"] == 5).to_numpy(),
        "long plans": (data.X["log_payment_plan_days"] > 4).to_numpy(),
        "begins late": data.censoring_time < 100,
    }
    for name, rows in groups.items():
        assert rows.sum() > 300
        assert stats.kstest(u[rows], "uniform").pvalue > 0.005, name
    for column in ("age_at_start", "log_days_since_reg_init", "log_plan_list_price"):
        assert abs(stats.spearmanr(u, data.X[column]).statistic) < 0.02
    assert abs(stats.spearmanr(u, data.censoring_time).statistic) < 0.02


def test_truth_has_the_best_likelihood(data: Simulated) -> None:
    truth = data.distribution
    best = log_likelihood(truth, data.y)
    assert isinstance(truth, Mixture)
    soon, stay = truth.components
    other = [
        Mixture([soon, Weibull(1.1 * stay.scale[:, 0], stay.shape[:, 0])], truth.weights),
        Mixture([soon, Weibull(stay.scale[:, 0], 1.1 * stay.shape[:, 0])], truth.weights),
        Mixture([soon, stay], [0.45, 0.55]),
        true_distribution("kkbox", data.X.assign(age_at_start=np.float32(0.0))),
        true_distribution("kkbox", data.X.assign(city=data.X["city"].array[::-1])),
        Weibull(np.full(N, data.y["time"].sum() / data.y["event"].sum()), 1.0),
    ]
    for wrong in other:
        loss = best - log_likelihood(wrong, data.y)
        assert loss.mean() > 3 * loss.std() / np.sqrt(N)


def test_hazards_are_not_proportional(data: Simulated) -> None:
    """A Cox model must stay clearly behind the truth."""
    X, y = data.X.iloc[:4000], data.y[:4000]
    fresh = simulate("kkbox", 4000, random_state=9)
    with pytest.warns(UserWarning, match="Columns left out"):  # indicators of what is missing together
        cox = CoxPH(missing="indicator").fit(X, y).predict_distribution(fresh.X)
    gap = log_likelihood(fresh.distribution, fresh.y).mean() - log_likelihood(cox, fresh.y).mean()
    assert gap > 0.05


def test_repeatable_by_seed() -> None:
    first, second, other = (simulate("kkbox", 500, random_state=seed) for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(first.X, second.X)
    np.testing.assert_array_equal(first.y, second.y)
    np.testing.assert_array_equal(first.customer, second.customer)
    assert not np.array_equal(first.y["time"], other.y["time"])


@pytest.mark.parametrize("n", [1, 2, 7, 1234])
def test_number_of_rows(n: int) -> None:
    data = simulate("kkbox", n, random_state=3)
    assert len(data.X) == len(data.y) == len(data.customer) == len(data.distribution) == n


def test_customers(data: Simulated) -> None:
    customer, y = data.customer, data.y
    assert customer is not None
    assert (np.diff(customer) >= 0).all()
    assert 1.2 < N / len(np.unique(customer)) < 1.5
    first = np.append(True, np.diff(customer) > 0)
    start = np.maximum.accumulate(np.where(first, np.arange(N), 0))
    np.testing.assert_array_equal(data.X["n_prev_churns"], np.arange(N) - start)
    assert y["event"][:-1][~first[1:]].all()  # who comes back has churned before
    for column in ("city", "gender", "registered_via", "age_at_start"):
        values = data.X[column].astype(object).where(data.X[column].notna(), "missing").to_numpy()
        assert (values[1:] == values[:-1])[~first[1:]].all()
    train, _, test = fold_by_customer(customer, 0)
    assert not set(customer[train]) & set(customer[test])


def test_distribution_of_some_rows(data: Simulated) -> None:
    rows = np.array([5, 17, 400])
    some = true_distribution("kkbox", data.X.iloc[rows])
    times = [0.0, 30.0, 300.0]
    np.testing.assert_array_equal(some.survival(times), data.distribution[rows].survival(times))
    assert (some.survival(0.0) == 1).all()


def test_wrong_x(data: Simulated) -> None:
    with pytest.raises(ValueError, match="gender are missing"):
        true_distribution("kkbox", data.X.drop(columns="gender"))
    with pytest.raises(ValueError, match="columns of simulate"):
        true_distribution("kkbox", np.zeros((3, 15)))
    with pytest.raises(ValueError, match="at least one row"):
        true_distribution("kkbox", data.X.iloc[:0])
    with pytest.raises(ValueError, match="'city' is a category"):
        true_distribution("kkbox", data.X.assign(city=1))


def test_outcome_is_a_plain_one(data: Simulated) -> None:
    np.testing.assert_array_equal(data.y, Surv.from_arrays(data.event_time <= data.censoring_time, data.y["time"]))
