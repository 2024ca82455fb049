"""The simulated datasets against their laws, written out again here with scipy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sumosurv.datasets import simulate, true_distribution
from sumosurv.distributions import Normal, Tabulated, Weibull

NAMES = ("weibull", "checkerboard", "normal")
N = 20_000
X_GRID = np.array([0.05, 0.2, 0.3, 0.49, 0.6, 0.74, 0.8, 1.0])


def checkerboard_cdf(x: float, t: np.ndarray) -> np.ndarray:
    """The share of T's three rows that lies below t, row by row."""
    column = 1 + min(int(4 * x), 3)
    rows = (1, 3, 5) if column in (1, 3) else (2, 4, 6)
    return sum(stats.uniform((row - 1) / 6, 1 / 6).cdf(t) for row in rows) / 3


def true_cdf(name: str, x: float, t: np.ndarray) -> np.ndarray:
    if name == "weibull":
        return stats.weibull_min(2 + 6 * x).cdf(t)
    if name == "normal":
        return stats.norm(100, 6 * x).cdf(t)
    return checkerboard_cdf(x, t)


@pytest.mark.parametrize("name", NAMES)
def test_true_distribution_against_scipy(name: str) -> None:
    times = np.linspace(0, 1, 61) if name != "normal" else np.linspace(60, 140, 61)
    if name == "weibull":
        times = 2 * times
    truth = true_distribution(name, X_GRID)
    expected = np.stack([true_cdf(name, x, times) for x in X_GRID])
    np.testing.assert_allclose(truth.cdf(times), expected, atol=1e-12)
    assert isinstance(truth, {"weibull": Weibull, "checkerboard": Tabulated, "normal": Normal}[name])


@pytest.mark.parametrize("name", NAMES)
def test_survival_is_one_at_zero(name: str) -> None:
    data = simulate(name, 500, random_state=1)
    np.testing.assert_array_equal(data.distribution.survival(0.0), 1.0)
    assert len(data.distribution) == len(data) == 500


@pytest.mark.parametrize("name", NAMES)
def test_event_times_follow_the_true_distribution(name: str) -> None:
    data = simulate(name, N, random_state=2)
    # the probability-integral transform of T is uniform, and independent of x
    u = data.distribution.cdf(own_times=data.event_time)
    assert stats.kstest(u, "uniform").pvalue > 0.01
    for low in np.arange(4) / 4:
        here = (data.X["x"] > low) & (data.X["x"] <= low + 0.25)
        assert stats.kstest(u[here.to_numpy()], "uniform").pvalue > 0.005
    assert abs(stats.spearmanr(u, data.X["x"]).statistic) < 0.025


@pytest.mark.parametrize(
    ("name", "law"),
    [("weibull", stats.expon(scale=1.5)), ("checkerboard", stats.expon(scale=1.5)), ("normal", stats.norm(100, 6))],
)
def test_covariate_and_censoring_laws(name: str, law: stats.rv_continuous) -> None:
    data = simulate(name, N, random_state=3)
    assert stats.kstest(data.X["x"], "uniform").pvalue > 0.01
    assert stats.kstest(data.censoring_time, law.cdf).pvalue > 0.01
    assert abs(stats.spearmanr(data.censoring_time, data.X["x"]).statistic) < 0.025
    assert abs(stats.spearmanr(data.censoring_time, data.distribution.cdf(own_times=data.event_time)).statistic) < 0.025


@pytest.mark.parametrize(
    ("name", "low", "high"), [("weibull", 0.54, 0.56), ("checkerboard", 0.72, 0.75), ("normal", 0.49, 0.51)]
)
def test_share_of_events(name: str, low: float, high: float) -> None:
    assert low < simulate(name, 100_000, random_state=4).y["event"].mean() < high


@pytest.mark.parametrize("name", NAMES)
def test_outcome_is_the_smaller_of_the_two_times(name: str) -> None:
    data = simulate(name, 1000, random_state=5)
    X, y = data
    assert X is data.X
    assert list(X.columns) == ["x"]
    assert X["x"].dtype == np.float64
    np.testing.assert_array_equal(y["time"], np.where(y["event"], data.event_time, data.censoring_time))
    np.testing.assert_array_equal(y["event"], data.event_time <= data.censoring_time)


@pytest.mark.parametrize("name", NAMES)
def test_repeatable_by_seed(name: str) -> None:
    first, second, other = (simulate(name, 100, random_state=seed) for seed in (6, 6, 7))
    pd.testing.assert_frame_equal(first.X, second.X)
    np.testing.assert_array_equal(first.y, second.y)
    assert not np.array_equal(first.y["time"], other.y["time"])
    generator = np.random.default_rng(6)
    np.testing.assert_array_equal(simulate(name, 100, generator).y, first.y)
    assert not np.array_equal(simulate(name, 100, generator).y, first.y)  # the generator has moved on


def test_checkerboard_stays_on_its_squares() -> None:
    data = simulate("checkerboard", N, random_state=8)
    column = np.ceil(4 * data.X["x"].to_numpy()).astype(int)
    row = np.ceil(6 * data.event_time).astype(int)
    assert (column % 2 == row % 2).all()
    assert np.isfinite(data.distribution.log_density(own_times=data.event_time)).all()


@pytest.mark.parametrize("name", NAMES)
def test_ends_of_the_covariate(name: str) -> None:
    truth = true_distribution(name, [0.0, 2.0**-53, 1.0])
    assert np.isfinite(truth.median()).all()
    np.testing.assert_array_equal(truth.survival(0.0), 1.0)
    assert not np.isnan(truth.log_density([0.5, 99.0, 100.0, 101.0])).any()


@pytest.mark.parametrize("X", [[0.1, 0.6], [[0.1], [0.6]], pd.DataFrame({"x": [0.1, 0.6]})])
def test_forms_of_x(X: object) -> None:
    np.testing.assert_allclose(true_distribution("weibull", X).survival(1.0), np.exp([-1.0, -1.0]))


@pytest.mark.parametrize(
    ("X", "message"),
    [([-0.1], "lie in"), ([1.5], "got 1.5"), ([np.nan], "lie in"), ([[0.1, 0.2]], "one column"), ([], "one row")],
)
def test_wrong_x(X: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        true_distribution("normal", X)


@pytest.mark.parametrize("n", [0, -1, 2.5, True])
def test_wrong_n(n: object) -> None:
    with pytest.raises(ValueError, match="n must be an integer"):
        simulate("normal", n)  # type: ignore[arg-type]


def test_unknown_name() -> None:
    for function in (simulate, true_distribution):
        with pytest.raises(ValueError, match="weibull, checkerboard, normal"):
            function("lognormal", 10)  # type: ignore[operator]
