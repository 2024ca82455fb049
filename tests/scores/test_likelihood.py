import numpy as np
import pytest
import torch
from scipy import stats

from scores import direct
from sumosurv import Surv
from sumosurv.distributions import LogNormal, Rescaled, SurvivalDistribution, Tabulated, Weibull
from sumosurv.scores import log_likelihood


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return (
        Surv.from_arrays(rng.random(200) < 0.6, rng.exponential(2.0, 200)),
        rng.uniform(0.5, 3.0, 200),
        rng.uniform(0.5, 2.0, 200),
    )


def test_against_scipy(data):
    y, scale, shape = data
    t, d = y["time"], y["event"]
    weibull = np.where(
        d, stats.weibull_min.logpdf(t, shape, scale=scale), stats.weibull_min.logsf(t, shape, scale=scale)
    )
    np.testing.assert_allclose(log_likelihood(Weibull(scale, shape), y), weibull, rtol=1e-10)
    normal = np.where(d, stats.lognorm.logpdf(t, shape, scale=scale), stats.lognorm.logsf(t, shape, scale=scale))
    np.testing.assert_allclose(log_likelihood(LogNormal(np.log(scale), shape), y), normal, rtol=1e-10)


def test_impossible_events_score_minus_infinity_unless_floored():
    d = Tabulated([1.0, 2.0, 3.0], [[0.5, 0.5, 0.0]] * 3, between="density")
    y = Surv.from_arrays([True, True, False], [1.5, 0.5, 3.5])
    np.testing.assert_array_equal(log_likelihood(d, y), [-np.inf, np.log(0.5), -np.inf])
    floored = log_likelihood(d, y, floor=1e-6)
    np.testing.assert_allclose(floored, [np.log(1e-6), np.log(0.5), np.log(1e-6)])


def test_time_unit_shifts_by_event_share_times_log(data):
    y, scale, shape = data
    d = Weibull(scale, shape)
    days = Surv.from_arrays(y["event"], 365.0 * y["time"])
    shift = log_likelihood(Rescaled(d, 365.0), days).mean() - log_likelihood(d, y).mean()
    assert shift == pytest.approx(-y["event"].mean() * np.log(365.0), abs=1e-10)


def test_resolution_is_the_probability_of_the_cell(data):
    y, scale, shape = data
    d, r = Weibull(scale, shape), 0.5
    rounded = Surv.from_arrays(y["event"], np.round(y["time"] / r) * r)
    t = rounded["time"]
    low, high = np.maximum(t - r / 2, 0), t + r / 2
    cell = np.log(np.exp(-((low / scale) ** shape)) - np.exp(-((high / scale) ** shape))) - np.log(high - low)
    expected = np.where(y["event"], cell, -((t / scale) ** shape))
    np.testing.assert_allclose(log_likelihood(d, rounded, resolution=r), expected, rtol=1e-9)


def test_resolution_tends_to_the_density(data):
    y, scale, shape = data
    d = Weibull(scale, shape)
    np.testing.assert_allclose(log_likelihood(d, y, resolution=1e-6), log_likelihood(d, y), atol=1e-4)


def test_resolution_of_step_curves_adds_up_to_their_jumps():
    """Cells of width 1 around whole times take in each jump once: the probabilities sum to one."""
    d = Tabulated([1.0, 2.0, 3.0], [0.7, 0.4, 0.0])
    y = Surv.from_arrays([True] * 3, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(np.exp(log_likelihood(d.repeat(3), y, resolution=1.0)), [0.3, 0.3, 0.4])


def test_a_jump_between_two_cells_belongs_to_the_later_one():
    """Cells are closed on the left: [0.5, 1.5) around 1 has the jump at 0.5 and not that at 1.5."""
    d = Tabulated([0.5, 1.5, 2.0], [0.7, 0.4, 0.0])
    y = Surv.from_arrays([True] * 3, [0.0, 1.0, 2.0])
    with np.errstate(divide="ignore"):
        score = log_likelihood(d.repeat(3), y, resolution=1.0)
    np.testing.assert_allclose(np.exp(score), [0.0, 0.3, 0.7])  # the cell around 0 is [0, 0.5)


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_interpolated_density_is_the_papers_equation(k):
    rng = np.random.default_rng(k)
    times = np.concatenate([[0.0], np.sort(rng.uniform(0, 10, 30))])
    table = np.sort(rng.random((20, 31)))[:, ::-1].copy()
    table[:, 0] = 1.0
    z = rng.uniform(0, 12, 20)
    d = Tabulated(times, table).with_half_width(k)
    expected = [np.log(direct.interpolated_density(z[i], times, table[i], k)) for i in range(20)]
    np.testing.assert_allclose(log_likelihood(d, Surv.from_arrays(np.ones(20, bool), z)), expected, rtol=1e-12)


def test_interpolated_density_away_from_the_ends_has_exactly_2k_minus_1_cells():
    times = np.arange(21.0)
    survival = np.exp(-0.3 * times)
    for k in (1, 2, 4, 8):
        d = Tabulated(times, survival).with_half_width(k)
        expected = (np.exp(-0.3 * (10 - k + 1)) - np.exp(-0.3 * (10 + k))) / (2 * k - 1)
        assert np.exp(log_likelihood(d, Surv.from_arrays([True], [10.4])))[0] == pytest.approx(expected, rel=1e-12)


def test_the_cell_of_time_zero_holds_the_chance_of_an_event_at_once():
    """S(0) = 0.7 and S(1) = 0.5: the cell [0, 1/4) has the step at zero alone."""
    d = Tabulated([0.0, 1.0], [0.7, 0.5])
    score = log_likelihood(d, Surv.from_arrays([True], [0.0]), resolution=0.5)
    assert np.exp(score[0]) == pytest.approx(0.3 / 0.25)


class Wobbling(SurvivalDistribution):
    """Flat at e⁻¹, but for rounding: log S rises by some 1e-16."""

    def __len__(self):
        return 1

    def _log_survival(self, t):
        return -1.0 - 2.0**-52 * (t < 2.0).double()

    def _log_density(self, t):
        return torch.full_like(t, -torch.inf)

    def _take(self, rows):
        return self

    @property
    def _like(self):
        return torch.zeros(1, dtype=torch.float64)


def test_rounding_never_makes_a_cell_less_likely_than_impossible():
    score = log_likelihood(Wobbling(), Surv.from_arrays([True], [2.0]), resolution=0.5)
    assert score.tolist() == [-np.inf]


def test_mistakes_are_named():
    y = Surv.from_arrays([True, False], [1.0, 2.0])
    with pytest.raises(ValueError, match="3 subjects and y has 2 rows"):
        log_likelihood(Weibull([1.0, 1.0, 1.0], 1.0), y)
    with pytest.raises(TypeError, match="SurvivalDistribution"):
        log_likelihood(np.ones(2), y)
    with pytest.raises(ValueError, match="floor"):
        log_likelihood(Weibull([1.0, 1.0], 1.0), y, floor=0.0)
    with pytest.raises(ValueError, match="resolution"):
        log_likelihood(Weibull([1.0, 1.0], 1.0), y, resolution=-1.0)


def test_the_likelihood_until_a_time_is_that_of_rows_censored_there():
    d = Weibull([1.0, 2.0, 3.0], 1.5)
    y, then = (
        Surv.from_arrays([True, True, False], [0.5, 2.0, 3.0]),
        Surv.from_arrays([True, False, False], [0.5, 1, 1]),
    )
    np.testing.assert_array_equal(log_likelihood(d, y, until=1.0), log_likelihood(d, then))
