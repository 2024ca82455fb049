"""The simulated stand-in for KKBOX: its form, and that its rows follow the distribution it claims."""

from __future__ import annotations

import math

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
    paid = np.expm1(X["log_actual_amount_paid"]) / np.expm1(X["log_plan_list_price"])
    shares = [np.isclose(paid, part, atol=0.02).mean() for part in (1.0, 0.0, 0.8)]
    np.testing.assert_allclose(shares, [0.88, 0.07, 0.05], atol=0.01)


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


def expected_parameters(row: dict[str, object]) -> tuple[float, float, float, float]:
    """Scales and shapes of the two components for one row, written out again."""
    age, auto, cancel = (float(row[name]) for name in ("age_at_start", "is_auto_renew", "is_cancel"))
    city, via = (0 if pd.isna(row[name]) else int(row[name]) for name in ("city", "registered_via"))
    plan, since = math.expm1(row["log_payment_plan_days"]), row["log_days_since_reg_init"] / 8
    free = float(row["log_actual_amount_paid"] == 0)
    decades = (age - 30) / 12 if age > 0 else 0.0
    by_gender = 0.2 if row["gender"] == "female" else 1.0
    eta = 0.9 * auto - 1.4 * cancel + 0.35 * decades * by_gender
    eta -= 0.3 * (decades - 1) ** 2 if decades > 1 else 0.0
    eta += 0.3 * math.sin(1.7 * city) + 0.35 * math.cos(2.3 * via)
    eta += 0.7 * since * auto - 0.35 * math.log(1 + row["n_prev_churns"])
    log_shape = -0.15 + 0.3 * auto - 0.25 * since + 0.15 * math.tanh(decades) - 0.2 * cancel
    return (
        plan * math.exp(0.25 + 0.45 * auto - 0.35 * free + 0.1 * math.sin(1.9 * via)),
        1.6 + 2.2 * auto + (0.8 if plan > 30.5 else 0) + 0.6 * free,
        107 * math.exp(min(max(eta, -3.0), 2.5)) + plan,
        math.exp(log_shape + (0.25 if plan > 60 else 0)),
    )


def test_distribution_by_its_formula(data: Simulated) -> None:
    X = pd.concat([data.X.iloc[:300], data.X[data.X["n_prev_churns"] > 1].iloc[:20]])
    extreme = X.iloc[:8].assign(
        age_at_start=np.float32([99, 95, 90, 80, 0, -1, 29, 31]), is_cancel=np.float32(1), is_auto_renew=np.float32(0)
    )
    steady = X.iloc[:8].assign(is_auto_renew=np.float32(1), log_days_since_reg_init=np.float32(24), is_cancel=0.0)
    X = pd.concat([X, extreme, steady])
    found = true_distribution("kkbox", X)
    assert isinstance(found, Mixture)
    np.testing.assert_array_equal(found.weights, [0.4, 0.6])
    expected = np.array([expected_parameters(row) for row in X.to_dict("records")])
    for part, own in zip(found.components, (expected[:, :2], expected[:, 2:])):
        assert isinstance(part, Weibull)
        np.testing.assert_allclose(np.column_stack([part.scale, part.shape]), own, rtol=1e-6)
    log_scale = np.log((expected[:, 2] - np.expm1(X["log_payment_plan_days"].to_numpy())) / 107)
    assert log_scale.min() == pytest.approx(-3.0)  # both ends of the range occur
    assert log_scale.max() == pytest.approx(2.5)


def likely(happened: object, probability: object) -> bool:
    """Whether a number of events is within four standard deviations of what is expected."""
    happened, probability = np.asarray(happened, dtype=float), np.broadcast_to(probability, np.shape(happened))
    assert len(happened) > 100
    error = np.sqrt((probability * (1 - probability)).sum())
    return abs((happened - probability).sum()) < 4 * error


def test_covariates_of_customers(data: Simulated) -> None:
    X = data.X[data.X["n_prev_churns"] == 0]  # every customer has a first row
    known, age = X["nan_days_since_reg_init"] == 0, X["age_at_start"].to_numpy()
    assert likely(known, 0.9)
    for column in ("city", "registered_via"):
        np.testing.assert_array_equal(X[column].notna(), known)
    assert (X.loc[~known, "log_days_since_reg_init"] == 0).all()
    stated = X["gender"].notna().to_numpy()
    assert not (stated & ~known).any()
    assert likely(stated[known], 0.45)
    assert likely(X["gender"][stated] == "female", 0.5)
    np.testing.assert_array_equal(age[~stated], np.where(known[~stated], 0, -1))
    np.testing.assert_array_equal(X["strange_age"], known & ~stated)
    for years in (18, 22, 27, 32, 40, 50):
        assert likely(age[stated] <= years, stats.gamma(3, scale=5.5).cdf(years + 0.5 - 14))
    shares = 1 / np.arange(2, 22)
    expected = {1: 0.5} | dict(zip(range(3, 23), 0.5 * shares / shares.sum()))
    expected = {("city", level): share for level, share in expected.items()}
    ways = {3: 0.14, 4: 0.2, 7: 0.42, 9: 0.23, 13: 0.01}
    expected |= {("registered_via", level): share for level, share in ways.items()}
    for (column, level), share in expected.items():
        assert likely(X[column][known] == level, share), (column, level)
    days = np.exp(X["log_days_since_reg_init"][known].to_numpy(dtype=float)) - 2
    for limit in (0, 100, 500, 1000, 2000):
        assert likely(days < limit + 0.5, 0.3 + 0.7 * stats.expon(scale=900).cdf(limit + 1)), limit
    assert stats.kstest(data.censoring_time[X.index], stats.uniform(0, 790).cdf).pvalue > 0.01


def test_covariates_of_subscriptions(data: Simulated) -> None:
    X = data.X
    plan, price, paid = (
        np.expm1(X[f"log_{name}"].to_numpy(dtype=float)).round()
        for name in ("payment_plan_days", "plan_list_price", "actual_amount_paid")
    )
    rest = np.full(N, True)
    for days, share in {7: 0.05, 30: 0.85, 90: 0.04, 180: 0.02, 410: 0.04}.items():
        assert likely(plan == days, share), days
        rest &= plan != days
        discount = 0.9 if days > 30 else 1.0
        for per_month, part in {99: 0.35, 129: 0.08, 149: 0.47, 180: 0.10}.items():
            own = price[plan == days] == round(per_month * days / 30 * discount)
            assert likely(own, part), (days, per_month)
    assert not rest.any()
    assert likely(paid == price, 0.88)
    assert likely(paid == 0, 0.07)
    assert likely(paid == np.round(0.8 * price), 0.05)
    assert likely(X["is_cancel"], 0.03)
    monthly, place = plan <= 30, X["n_prev_churns"].to_numpy()
    auto = X["is_auto_renew"].to_numpy() > 0
    assert not auto[~monthly].any()
    assert likely(auto[monthly & (place == 0)], 0.85)
    again = np.flatnonzero(place[1:] > 0) + 1
    again = again[monthly[again] & monthly[again - 1] & auto[again - 1]]  # a threshold that falls, for one number
    for later, share in {1: 0.75 / 0.85, 2: 0.65 / 0.75}.items():
        assert likely(auto[again][place[again] == later], share), later
    longest = auto[again][place[again] > 3]
    assert longest.all()


def test_customers_who_return(data: Simulated) -> None:
    X, place = data.X, data.X["n_prev_churns"].to_numpy()
    left = data.censoring_time - data.event_time  # of the window, after a customer has gone
    returned = np.append(place[1:] > 0, False)
    gone = left > 32
    assert not returned[~gone].any()
    within = stats.expon(31, 120).cdf(left - 1)  # the pause ends before the window does
    assert likely(returned[gone], 0.4 * within[gone])
    before = np.flatnonzero(returned)
    gap = left[before] - data.censoring_time[before + 1]
    assert stats.kstest(stats.expon(31, 120).cdf(gap) / within[before], "uniform").pvalue > 0.01
    np.testing.assert_allclose(X["log_days_between_subs"].iloc[before + 1], np.log1p(np.floor(gap)), rtol=1e-5)
    assert (X["log_days_between_subs"][place == 0] == 0).all()
    np.testing.assert_array_equal(X["no_prev_churns"], place == 0)
    first = before[(place[before] == 0) & (X["nan_days_since_reg_init"].to_numpy()[before] == 0)]
    days = np.exp(X["log_days_since_reg_init"].to_numpy(dtype=float)) - 2
    later = days[first].round() + data.event_time[first] + left[first] - data.censoring_time[first + 1]
    np.testing.assert_allclose(days[first + 1], np.floor(later), atol=0.01)
