"""Each kind against a closed form or another library, and its own errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

import small_networks
from distribution_kinds import FALLING, KNOTS, TO_ZERO
from sumosurv.distributions import (
    Continued,
    CovariatePath,
    Delayed,
    GeneralisedGamma,
    Gompertz,
    LogLogistic,
    LogNormal,
    Mixture,
    Monotone,
    Normal,
    Ode,
    Recalibrated,
    Remaining,
    Rescaled,
    RoystonParmar,
    Tabulated,
    Weibull,
)

TIMES = np.array([1e-3, 0.1, 0.7, 1.0, 2.5, 10.0, 80.0])


def literally_widened(times, row, t, k):
    i, last = np.searchsorted(times, t, side="right") - 1, len(times) - 1
    for size in range(k, len(times) + 1):
        right = min(max(i + size, 1), last)
        left = min(max(i - size + 1, 0), right - 1)
        if row[left] > row[right]:
            return (row[left] - row[right]) / (times[right] - times[left])
    return 0.0


@pytest.mark.parametrize("k", [1, 2, 3])
def test_windows_without_a_fall_widen(k):
    rng = np.random.default_rng(k)
    times = np.append(0.0, np.cumsum(rng.exponential(size=12)))
    table = np.cumprod(np.where(rng.random((9, 13)) < 0.2, 0.6, 1.0), axis=1)
    table[:, 0], table[0] = 1.0, 1.0  # one that never falls
    table[1] = np.where(times < times[4], 1.0, 0.0)  # one that falls once, to zero
    asked = np.concatenate([times, times[:-1] + 0.5 * np.diff(times), times[-1:] + 3.0])
    wide, plain = (Tabulated(times, table, half_width=k, widen=widen) for widen in (True, False))
    expected = [[literally_widened(times, row, t, k) for t in asked] for row in table]
    np.testing.assert_allclose(wide.density(asked), expected, rtol=1e-12)
    np.testing.assert_allclose(wide[2:5].density(own_times=asked[:3]), np.diag(wide[2:5].density(asked[:3])))
    np.testing.assert_array_equal((wide.density(asked) > 0).all(axis=1), table[:, -1] < 1)
    np.testing.assert_array_equal(wide.survival(asked), plain.survival(asked))
    inside = plain.density(asked) > 0
    np.testing.assert_array_equal(wide.density(asked)[inside], plain.density(asked)[inside])


def test_rounding_of_an_incidence_opens_no_window():
    times, cause = np.arange(5.0), np.array([[0.0, 0.1, 0.1, 0.2, 0.3]])
    other = np.array([[0.0, 0.3, 0.3, 0.3, 0.5]])
    rounded = other + np.array([[0.0, 0.0, 5.6e-17, 5.6e-17, 0.0]])
    assert (rounded != other).any()
    exact, noisy = (Tabulated(times, 1 - cause - f, np.stack([cause, f], axis=-1)) for f in (other, rounded))
    np.testing.assert_allclose(noisy.cause_density(times), exact.cause_density(times), rtol=1e-12)


@pytest.mark.parametrize("between", ["step", "density", "hazard"])
@pytest.mark.parametrize(
    "times", [[1e-308, 1.0], [1e-320, 1e-308, 1e-10, 1.0], [1e-308, 1.0, 1.7e308], [1e308, 1.7e308]]
)
def test_tables_whose_times_are_far_apart(between, times):
    d = Tabulated(times, np.linspace(1.0, 0.0, len(times) + 2)[1:-1], between=between)
    asked = np.unique([0.0, 5e-324, *times, *(0.5 * np.array(times)), *np.nextafter(times, np.inf), 1.75e308, np.inf])
    survival = d.survival(asked)[0]
    assert not np.isnan(survival).any()
    assert (np.diff(survival) <= 0).all()
    np.testing.assert_allclose(d.survival(times)[0], np.linspace(1.0, 0.0, len(times) + 2)[1:-1])
    quantiles = d.quantile([0.01, 0.2, 0.5, 0.6])[0]
    assert (np.diff(quantiles) >= 0).all()
    means = d.restricted_mean(times)[0]
    assert (np.diff(means) >= 0).all()
    assert ((means > 0) & (means <= times)).all()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Weibull(2.0, 0.7), stats.weibull_min(0.7, scale=2.0)),
        (Weibull(2.0, 1.0), stats.expon(scale=2.0)),
        (LogNormal(0.5, 1.2), stats.lognorm(1.2, scale=np.exp(0.5))),
        (Normal(1.0, 2.0), stats.truncnorm(-0.5, np.inf, loc=1.0, scale=2.0)),
        (Normal(-4.0, 2.0), stats.truncnorm(2.0, np.inf, loc=-4.0, scale=2.0)),
        (LogLogistic(2.0, 1.3), stats.fisk(1.3, scale=2.0)),
        (LogLogistic(0.5, 4.0), stats.fisk(4.0, scale=0.5)),
        (Gompertz(0.4, 0.2), stats.gompertz(2.0, scale=5.0)),
        (Gompertz(0.01, 0.5), stats.gompertz(0.02, scale=2.0)),
        (GeneralisedGamma(0.3, 0.5, 0.5), stats.gamma(4.0, scale=np.exp(0.3) / 4.0)),
        (GeneralisedGamma(0.3, 1.0, 2.0), stats.gengamma(0.25, 2.0, scale=np.exp(0.3) * 2.0)),
        (GeneralisedGamma(0.3, 0.5, -1.2), stats.gengamma(1.2**-2, -2.4, scale=np.exp(0.3) * 1.2 ** (-2 / 2.4))),
        (GeneralisedGamma(0.5, 1.2, 0.0), stats.lognorm(1.2, scale=np.exp(0.5))),
    ],
)
def test_parametric_kinds_equal_scipy(ours, theirs):
    t = TIMES[:6]
    np.testing.assert_allclose(ours.log_survival(t)[0], theirs.logsf(t), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(ours.log_density(t)[0], theirs.logpdf(t), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.cdf(t)[0], theirs.cdf(t), rtol=1e-9)
    q = np.array([1e-6, 0.1, 0.5, 0.9, 0.9999])
    np.testing.assert_allclose(ours.quantile(q)[0], theirs.ppf(q), rtol=1e-8)
    np.testing.assert_allclose(ours.mean()[0], theirs.mean(), rtol=1e-9)


def test_exponential_at_zero_has_its_rate_as_density():
    assert Weibull(4.0, 1.0).density(0.0)[0] == 0.25
    assert Weibull(4.0, 2.0).density(0.0)[0] == 0.0
    assert np.isinf(Weibull(4.0, 0.5).density(0.0)[0])


@pytest.mark.parametrize("sigma", [1.0, 3.0, 5.0, 8.0])
def test_mean_of_heavy_tails(sigma):
    np.testing.assert_allclose(LogNormal(0.0, sigma).mean(), np.exp(0.5 * sigma**2), rtol=1e-8)


@pytest.mark.parametrize("shape", [0.1, 0.3, 1.0, 10.0, 200.0])
def test_mean_of_extreme_weibulls(shape):
    scale = np.array([1e-9, 1.0, 1e9])
    np.testing.assert_allclose(Weibull(scale, shape).mean(), scale * special.gamma(1 + 1 / shape), rtol=1e-8)


@pytest.mark.parametrize("horizon", [1e5, 1e20, 1e30, 1e200])
def test_restricted_mean_with_a_horizon_far_past_the_curve_is_the_mean(horizon):
    d = Weibull([1.0, 3.0], [1.0, 2.0])
    np.testing.assert_allclose(d.restricted_mean(horizon), d.mean(), rtol=1e-10)


@pytest.mark.parametrize("after", [0.0, 1.0, 30.0, 300.0, 1e5])
def test_an_exponential_forgets(after):
    """Also where almost nobody gets: the mean of what remains is not a difference of two nearly equal areas."""
    d = Weibull([1.0, 2.0], 1.0)
    np.testing.assert_allclose(d.conditional(after).mean() - after, [1.0, 2.0], rtol=1e-9)
    mixed = Mixture([Weibull(1.0, 1.0), Weibull(2.0, 1.0)]).conditional(after)
    share = 1 / (1 + np.exp(-0.5 * after))  # of the slower component among the survivors
    np.testing.assert_allclose(mixed.mean()[0] - after, share * 2.0 + (1 - share) * 1.0, rtol=1e-9)
    table = Tabulated([1.0], [np.exp(-0.5)], between="hazard").conditional(after)
    np.testing.assert_allclose(table.mean()[0] - after, 2.0, rtol=1e-9)
    again = Rescaled(d, 7.0).conditional(7.0 * after).conditional(7.0 * after + 3.0)
    np.testing.assert_allclose(again.mean() - 7 * after - 3.0, [7.0, 14.0], rtol=1e-9)


def test_mean_of_a_conditional_table_with_an_open_end():
    d = Tabulated(KNOTS, TO_ZERO, between="density").conditional([0.2, 2.6, 7.99])
    rest = (8 - 7.99) / 2  # a line down to zero: half of what is left
    assert d.mean()[2] == pytest.approx(7.99 + rest, rel=1e-9)


@pytest.mark.parametrize("shape", [1.0001, 1.02, 1.5, 2.0, 30.0])
def test_means_of_log_logistics_have_formulas(shape):
    scale = np.array([1e-100, 0.5, 1e9])
    d = LogLogistic(scale, shape)
    np.testing.assert_allclose(d.mean(), scale * stats.fisk(shape).mean(), rtol=1e-11)
    horizon = np.array([0.5, 1.0, 3.0])[:, None] * scale
    by_scipy = horizon * special.hyp2f1(1.0, 1.0 / shape, 1.0 + 1.0 / shape, -((horizon / scale) ** shape))
    np.testing.assert_allclose(d.restricted_mean(own_horizons=horizon.T), by_scipy.T, rtol=1e-10)
    given = d.conditional(scale).mean() - scale
    np.testing.assert_allclose(given, 2.0 * (d.mean() - by_scipy[1]), rtol=1e-9)  # S(scale) = 1/2
    far = d.conditional(1e30 * scale).mean() / (1e30 * scale)  # a power of t by now
    np.testing.assert_allclose(far, shape / (shape - 1.0), rtol=1e-9)


def test_the_mean_of_a_log_logistic_grows_without_bound_towards_shape_1():
    excess = 2.0**-30
    assert LogLogistic(1.0, 1.0 + excess).mean()[0] == pytest.approx(1.0 / excess, rel=1e-14)


def test_heavy_tails_have_no_mean():
    d = LogLogistic(1.0, [0.03, 0.5, 1.0])
    assert np.isinf(d.mean()).all()
    assert np.isinf(d.conditional(5.0).mean()).all()
    assert np.isfinite(d.restricted_mean(1e300)).all()
    assert d.restricted_mean(1e300)[2] == pytest.approx(np.log(1e300), rel=1e-10)  # log(1 + h)


def test_log_logistic_where_the_ratio_of_the_times_overflows():
    d, t = LogLogistic([1e-250, 1e250], [2.0, 0.5]), np.array([1e300, 1e-300])
    log_odds = np.array([2.0 * 550, -0.5 * 550]) * np.log(10)
    np.testing.assert_allclose(d.log_survival(own_times=t), [-log_odds[0], -np.exp(log_odds[1])], rtol=1e-12)
    log_density = np.log([2.0, 0.5]) - np.log(t) - np.abs(log_odds)
    np.testing.assert_allclose(d.log_density(own_times=t), log_density, rtol=1e-13)
    np.testing.assert_allclose(d.hazard(own_times=t), [2e-300, 0.5 * np.exp(log_odds[1]) / t[1]], rtol=1e-12)
    q = 1.0 / (1.0 + np.exp(-10.0))  # at log-odds of 10 the ratio of the times is exp(1000)
    wide = np.log(LogLogistic(1e-300, 0.01).quantile(q))
    np.testing.assert_allclose(wide, 1000.0 - 300 * np.log(10), rtol=1e-11)


def test_log_logistic_at_zero():
    d = LogLogistic(4.0, [0.5, 1.0, 2.0])
    np.testing.assert_array_equal(d.density(0.0), [np.inf, 0.25, 0.0])
    np.testing.assert_array_equal(d.hazard(0.0), [np.inf, 0.25, 0.0])
    np.testing.assert_array_equal(d.hazard(np.inf), [0.0, 0.0, 0.0])


@pytest.mark.parametrize("rate", [1e-300, 1e-12, 1e-5, 0.3, 50.0])
def test_gompertz_with_slow_and_fast_growth(rate):
    level, t = 0.7, np.array([0.0, 1e-300, 1e-3, 0.5, 2.0])
    # ∫ exp(rate · u) du over [0, t], by Gauss-Legendre
    nodes, weights = special.roots_legendre(60)
    area = 0.5 * t * (np.exp(rate * 0.5 * t[:, None] * (nodes + 1)) @ weights)
    d = Gompertz(level, rate)
    np.testing.assert_allclose(d.cumulative_hazard(t)[0], level * area, rtol=1e-12)
    np.testing.assert_allclose(d.hazard(t)[0], level * np.exp(rate * t), rtol=1e-13)
    q = np.array([1e-300, 1e-12, 0.5, 1 - 1e-12])
    np.testing.assert_allclose(d.cdf(own_times=d.quantile(q))[0], q, rtol=1e-12)
    eta = level / rate
    mean = special.exp1(eta) * np.exp(eta) / rate if eta < 700 else (1.0 - 1.0 / eta) / level
    np.testing.assert_allclose(d.mean(), mean, rtol=1e-9)


def test_the_gradient_of_a_slow_growth_is_that_of_the_limit():
    rate = torch.tensor([1e-300, 1e-14, 1e-9], dtype=torch.float64, requires_grad=True)
    Gompertz(0.7, rate).log_survival(torch.tensor(2.0, dtype=torch.float64)).sum().backward()
    np.testing.assert_allclose(rate.grad.numpy(), -0.7 * 2.0**2 / 2, rtol=1e-8)


def test_gompertz_where_the_growth_overflows():
    d = Gompertz([1e-300, 1e-300, 1.0], [1.0, 1.0, 1.0])
    t = np.array([720.0, 690.0, 1e4])
    expected = [-np.exp(720 - 300 * np.log(10)), -np.exp(690 - 300 * np.log(10)), -np.inf]
    np.testing.assert_allclose(d.log_survival(own_times=t), expected, rtol=1e-12)
    np.testing.assert_allclose(d.quantile(1.0 - 1e-9)[0], np.log(9 * np.log(10)) + 300 * np.log(10), rtol=1e-9)
    slow = Gompertz(1e-308, 10.0)  # -log S / level overflows on the way to the quantile
    np.testing.assert_allclose(slow.quantile(1.0 - 1e-15), (np.log(-np.log1p(-(1 - 1e-15))) + 309 * np.log(10)) / 10)


@pytest.mark.parametrize(
    ("kind", "second"),
    [(LogLogistic, 0.5), (LogLogistic, 1.0), (LogLogistic, 2.5), (Gompertz, 1e-6), (Gompertz, 1.0), (Gompertz, 12.0)],
)
def test_gradients_of_the_parameters(kind, second):
    """By central differences; also at time zero, where the likelihood of a censored subject is one."""

    def terms(a, b):
        d = kind(a, b)
        t = torch.tensor([0.3, 1.0, 4.0], dtype=torch.float64)
        return torch.cat([d.log_survival(own_times=t), d.log_density(own_times=t)])

    first = torch.tensor([0.7, 1.0, 1.3], dtype=torch.float64, requires_grad=True)
    other = torch.full((3,), second, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(terms, (first, other), eps=1e-7, atol=1e-6)
    a, b = (torch.full((1,), v, dtype=torch.float64, requires_grad=True) for v in (0.7, second))
    kind(a, b).log_survival(torch.zeros(1, dtype=torch.float64)).sum().backward()
    assert float(a.grad) == float(b.grad) == 0.0


# ---------------------------------------------------------------------- tables


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_interpolated_density_is_the_paper_s_equation(k):
    """f(t) = -(S(t_{i+k}) - S(t_{i-k+1})) / (t_{i+k} - t_{i-k+1}), the indices held inside the table."""
    times, table = np.concatenate([[0.0], KNOTS]), np.concatenate([np.ones((3, 1)), FALLING], axis=1)
    last = len(times) - 1
    asked = np.array([0.0, 0.1, 0.5, 0.7, 1.0, 2.0, 2.5, 2.9, 3.0, 4.9, 5.0, 7.9, 8.0, 9.0, 1e6])
    d = Tabulated(KNOTS, FALLING, half_width=k)
    expected = np.empty((3, len(asked)))
    for column, t in enumerate(asked):
        i = max(j for j in range(len(times)) if times[j] <= t)
        right = min(i + k, last)
        left = max(i - k + 1, 0)
        if left >= right:  # past the end: the last cell
            left = right - 1
        for row in range(3):
            expected[row, column] = -(table[row, right] - table[row, left]) / (times[right] - times[left])
    np.testing.assert_allclose(d.density(asked), expected, rtol=1e-12)
    np.testing.assert_array_equal(d.survival(asked), Tabulated(KNOTS, FALLING, half_width=1).survival(asked))
    np.testing.assert_array_equal(d.density(asked), Tabulated(KNOTS, FALLING).with_half_width(k).density(asked))


def test_a_step_curve_is_right_continuous():
    d = Tabulated([1.0, 2.0], [0.6, 0.2])
    np.testing.assert_array_equal(d.survival([0.0, 1 - 1e-12, 1.0, 1.5, 2.0, 99.0])[0], [1, 1, 0.6, 0.6, 0.2, 0.2])
    np.testing.assert_array_equal(d.quantile([0.0, 0.3, 0.4, 0.400001, 0.8, 0.81])[0], [0, 1, 1, 2, 2, np.inf])


def test_a_table_that_starts_at_zero_may_have_an_atom_there():
    d = Tabulated([0.0, 2.0], [0.75, 0.5])
    assert d.survival(0.0)[0] == 0.75
    assert d.quantile([0.0, 0.25, 0.3])[0].tolist() == [0.0, 0.0, 2.0]
    assert d.restricted_mean(4.0)[0] == 0.75 * 2 + 0.5 * 2
    assert (d.sample(400, random_state=0) == 0.0).mean() == pytest.approx(0.25, abs=0.07)


def test_interpolation_between_two_times():
    s = np.array([[1.0, 0.8, 0.2]])
    linear, exponential = (Tabulated([0.0, 1.0, 3.0], s, between=name) for name in ("density", "hazard"))
    np.testing.assert_allclose(linear.survival([0.5, 2.0, 3.0, 7.0]), [[0.9, 0.5, 0.2, 0.2]])
    np.testing.assert_allclose(exponential.survival([0.5, 2.0, 3.0, 5.0]), [[0.8**0.5, 0.4, 0.2, 0.05]])
    assert exponential.mean()[0] == pytest.approx(
        0.2 / np.log(1.25) + 0.6 / (0.5 * np.log(4)) + 0.2 / (0.5 * np.log(4))
    )


def test_repeat_makes_one_curve_serve_many():
    d = Tabulated([1.0, 2.0], [0.6, 0.2]).repeat(4)
    assert len(d) == 4
    np.testing.assert_array_equal(d.survival(own_times=[0.5, 1.0, 2.0, 9.0]), [1.0, 0.6, 0.2, 0.2])
    with pytest.raises(ValueError, match=r"single curve; .* 4"):
        d.repeat(2)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([1.0, 2.0], [0.5]), {}, "one column per time"),
        (([], []), {}, "one column per time"),
        (([2.0, 1.0], [0.5, 0.2]), {}, "strictly increasing"),
        (([-1.0, 1.0], [0.5, 0.2]), {}, "zero or more"),
        (([1.0, np.inf], [0.5, 0.2]), {}, "finite"),
        (([1.0, 2.0], [0.5, 0.6]), {}, "never increase"),
        (([1.0, 2.0], [1.5, 0.6]), {}, r"lie in \[0, 1\]"),
        (([1.0, 2.0], [0.5, np.nan]), {}, r"lie in \[0, 1\]"),
        (([1.0, 2.0], [0.5, 0.0]), {"between": "hazard"}, "never reaches zero"),
        (([1.0], [0.5]), {"between": "cubic"}, "'cubic'"),
        (([1.0], [0.5]), {"half_width": 0}, "half_width must be 1 or more"),
    ],
)
def test_tables_that_are_no_survival_curves(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        Tabulated(*arguments, **options)


# ---------------------------------------------------------------------- wrappers


def test_mixture_likelihood_is_the_log_mean_of_its_members():
    parts = [Weibull([1.0, 2.0], 1.5), LogNormal([0.0, 0.3], 0.8), Normal([1.0, 2.0], 1.0)]
    mixed = Mixture(parts)
    for name in ("log_survival", "log_density"):
        each = np.stack([getattr(part, name)(TIMES) for part in parts])
        np.testing.assert_allclose(getattr(mixed, name)(TIMES), special.logsumexp(each, axis=0) - np.log(3), atol=1e-14)


def test_mixture_in_the_tail_keeps_its_logarithm():
    far = Mixture([Weibull(1.0, 1.0), Weibull(2.0, 1.0)]).log_survival(1e5)[0]
    assert far == pytest.approx(-5e4 + np.log(0.5), rel=1e-12)


def test_wrappers_say_what_is_wrong():
    one, two = Weibull(1.0, 1.0), Weibull([1.0, 2.0], 1.0)
    with pytest.raises(ValueError, match="at least one component"):
        Mixture([])
    with pytest.raises(ValueError, match=r"same subjects; they have \[1, 2\]"):
        Mixture([one, two])
    for weights in ([0.5, 0.6], [1.5, -0.5], [1.0], [1.0, 0.0]):
        with pytest.raises(ValueError, match="2 positive weights that sum to one"):
            Mixture([one, one], weights)
    for scale in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="finite and positive"):
            Rescaled(one, scale)
    for wrong in (-1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="start must be finite"):
            Delayed(one, wrong)
    for wrong in (-1.0, np.nan):
        with pytest.raises(ValueError, match="after must be zero or more"):
            Remaining(one, wrong)
    for condition in ("conditional", "remaining"):
        with pytest.raises(ValueError, match=r"Subject 1 .* after = 8"):
            getattr(Tabulated(KNOTS, TO_ZERO), condition)([0.0, 8.0, 1.0])


def test_rescaled_is_the_same_distribution_in_another_unit():
    years, days = LogNormal(0.2, 0.9), Rescaled(LogNormal(0.2, 0.9), 365.25)
    direct = LogNormal(0.2 + np.log(365.25), 0.9)
    for name in ("log_survival", "log_density", "hazard"):
        np.testing.assert_allclose(getattr(days, name)(365 * TIMES), getattr(direct, name)(365 * TIMES), rtol=1e-10)
    np.testing.assert_allclose(days.mean(), 365.25 * years.mean())


def test_a_shifted_clock_passes_on_what_its_base_knows():
    base = Monotone(line, torch.tensor([[0.0], [1.0]], dtype=torch.float64), breaks=(0.2, 0.5))
    late = Remaining(Continued(base, 2.0, 0.0), 0.4)
    assert late._breaks == (pytest.approx(0.1), pytest.approx(1.6))
    table = Remaining(Tabulated(KNOTS, TO_ZERO), 0.75)
    area = np.diff([0.75, *KNOTS[1:]]) @ np.column_stack([TO_ZERO[:, :-1]]).T / TO_ZERO[:, 0]
    np.testing.assert_allclose(table.mean(), area, rtol=1e-14)  # exact, cell by cell
    network = small_networks.network((0,)).requires_grad_(False).distribution(small_networks.inputs(3))
    single = Remaining(network, 0.1).single()
    assert isinstance(single, Remaining)
    assert single._like.dtype == single.base._like.dtype == single._log_reach.dtype == torch.float32
    np.testing.assert_allclose(single.survival(0.3), Remaining(network, 0.1).survival(0.3), atol=1e-6)
    given = Remaining(Tabulated([0.0, 1.0], [0.8, 0.4]), 0.0)  # also of no more than T > 0
    np.testing.assert_allclose(given.survival([0.0, 1.0]), [[1.0, 0.5]], rtol=1e-15)


def test_clocks_within_clocks():
    inner = Remaining(Delayed(Rescaled(LogNormal([0.2, -0.3], 0.9), 7.0), 2.0), 0.5)  # T = 7 T₀ + 1.5
    base, t = LogNormal([0.2, -0.3], 0.9), np.array([0.5, 1.5, 2.0, 9.0, 40.0])
    own = np.maximum(t - 1.5, 0.0) / 7.0
    np.testing.assert_allclose(inner.survival(t), base.survival(own), rtol=1e-12)
    np.testing.assert_allclose(inner.density(t), np.where(t < 1.5, 0.0, base.density(own) / 7.0), rtol=1e-12)
    np.testing.assert_allclose(inner.hazard(t), np.where(t < 1.5, 0.0, base.hazard(own) / 7.0), rtol=1e-12)
    np.testing.assert_allclose(inner.quantile(0.3), 7.0 * base.quantile(0.3) + 1.5, rtol=1e-10)
    np.testing.assert_allclose(inner.mean(), 7.0 * base.mean() + 1.5, rtol=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weibull(0.0, 1.0), "scale must be finite and positive"),
        (lambda: Weibull([1.0, np.nan], 1.0), "scale must be finite and positive"),
        (lambda: Weibull(1.0, [[1.0]]), r"shape .*got shape \(1, 1\)"),
        (lambda: LogNormal(np.inf, 1.0), "mu must be finite"),
        (lambda: LogNormal(0.0, -1.0), "sigma must be finite and positive"),
        (lambda: Normal(0.0, 0.0), "sd must be finite and positive"),
        (lambda: LogLogistic(0.0, 1.0), "scale must be finite and positive"),
        (lambda: LogLogistic(1.0, 0.0), "shape must be finite and positive"),
        (lambda: Gompertz(0.0, 1.0), "level must be finite and positive"),
        (lambda: Gompertz(1.0, np.inf), "rate must be finite"),
        (lambda: GeneralisedGamma(0.0, 1.0, -11.0), "q .* between -10 and 10; got -11"),
        (lambda: RoystonParmar(torch.tensor([[0.0, 1.0, 5.0]]), torch.tensor([0.0, 1.0, 2.0])), "slope positive"),
    ],
)
def test_parameters_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# ---------------------------------------------------------------------- the monotone kind


def line(code, t):
    """h = code + log t: the log-logistic distribution, S = 1 / (1 + e^code t)."""
    return code + torch.log(t + 0.0), (1.0 / t).expand(len(code), -1)


def test_monotone_is_the_log_logistic_distribution_for_a_line():
    code = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    d = Monotone(line, code, anchored=True)
    t = np.array([0.1, 1.0, 5.0])
    for row, scale in enumerate([1.0, np.exp(-1.0)]):
        theirs = stats.fisk(1.0, scale=scale)
        np.testing.assert_allclose(d.log_survival(t)[row], theirs.logsf(t), rtol=1e-12)
        np.testing.assert_allclose(d.log_density(t)[row], theirs.logpdf(t), rtol=1e-12, atol=1e-12)
    assert np.isinf(d.mean()).all()  # as it should be for this tail
    np.testing.assert_allclose(d.quantile(0.9), [9.0, 9.0 * np.exp(-1.0)], rtol=1e-12)


@pytest.mark.parametrize("growth", [0.0, 1e-9, 0.4, 3.0])
@pytest.mark.parametrize("power", [0.5, 3.0])
def test_past_the_horizon_the_hazard_grows_from_where_it_was(power, growth):
    def curve(code, t):  # log-logistic
        return code + power * torch.log(t), (power / t).expand(len(code), -1)

    horizon = 2.0
    before = Monotone(curve, torch.tensor([[-4.0], [0.0], [1.0]], dtype=torch.float64))
    d = Continued(before, horizon, growth)
    level = before.hazard(horizon)[:, None]
    t = np.array([2.0 + 1e-9, 2.5, 4.0, 5.0])
    np.testing.assert_allclose(d.survival([1.0, 2.0]), before.survival([1.0, 2.0]), rtol=1e-14)
    np.testing.assert_allclose(d.log_survival(t[0]), before.log_survival(horizon), rtol=1e-7)  # no jump
    np.testing.assert_allclose(d.hazard(t), level * np.exp(growth * (t - horizon)), rtol=1e-9)
    for row in range(3):
        for end in t[1:]:
            risen = integrate.quad(lambda u, i=row: float(d[i].hazard(u)[0]), horizon, end, epsrel=1e-12)[0]
            expected = float(before[row].cumulative_hazard(horizon)[0]) + risen
            np.testing.assert_allclose(d[row].cumulative_hazard(end), expected, rtol=1e-9)
    assert (np.diff(d.survival(np.linspace(1.9, 2.1, 400)), axis=1) < 0).all()


@pytest.mark.parametrize("growth", [0.0, 1e-12, 0.4, 3.0])
def test_means_and_quantiles_past_the_horizon(growth):
    d = Continued(Monotone(line, torch.tensor([[-6.0], [0.0], [2.0]], dtype=torch.float64)), 2.0, growth)
    for row in range(3):
        one = d[row]
        far = float(one.quantile(1 - 1e-15)[0])

        def tail(start, end, one=one):
            nodes, weights = np.polynomial.legendre.leggauss(20)
            edges = np.linspace(start, end, 300)  # short stretches, for a curve that ends steeply
            half = 0.5 * np.diff(edges)[:, None]
            places = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * nodes).ravel()
            return float(one.survival(places)[0] @ (half * weights).ravel())

        inside = tail(0.0, 2.0)
        np.testing.assert_allclose(one.mean(), inside + tail(2.0, far), rtol=1e-9)
        np.testing.assert_allclose(one.restricted_mean(3.5), inside + tail(2.0, 3.5), rtol=1e-9)
        given = 3.0 + tail(3.0, far) / one.survival(3.0)
        np.testing.assert_allclose(one.conditional(3.0).mean(), given, rtol=1e-9)
        given = 1.0 + (one.restricted_mean(2.0) - one.restricted_mean(1.0) + tail(2.0, far)) / one.survival(1.0)
        np.testing.assert_allclose(one.conditional(1.0).mean(), given, rtol=1e-9)
    levels = np.array([0.01, 0.3, 0.9, 0.999, 1 - 1e-12])
    q = d.quantile(levels)
    assert np.isfinite(q).all()
    np.testing.assert_allclose(d.survival(own_times=q), np.tile(1 - levels, (3, 1)), rtol=1e-6)


@pytest.mark.parametrize("growth", [0.0, 20.0])
def test_a_tail_from_a_tiny_hazard_ends_nevertheless(growth):
    def curve(code, t):
        return code + t, torch.ones_like(t).expand(len(code), -1)

    d = Continued(Monotone(curve, torch.tensor([[-650.0], [-30.0]], dtype=torch.float64)), 1.0, growth)
    assert np.isfinite(d.mean()).all()
    assert np.isfinite(d.median()).all()
    log_hazard = special.log_expit(np.array([-649.0, -29.0]))
    if growth:  # S = 1/2 where (λ/g) e^{g u} = log 2, as good as
        np.testing.assert_allclose(d.median(), 1.0 + (np.log(np.log(2) * growth) - log_hazard) / growth, rtol=1e-9)
    else:
        np.testing.assert_allclose(d.mean(), np.exp(-log_hazard), rtol=1e-9)
    assert (d.log_survival(np.inf) == -np.inf).all()
    assert (d.density([1e300, np.inf]) == 0).all() or growth == 0


def test_the_solution_of_an_equation_has_the_same_tail():
    code = torch.tensor([[0.0], [1.0]], dtype=torch.float64)

    def exponential(code, steps):
        tau = torch.linspace(0, 1, steps + 1, dtype=code.dtype)
        return torch.exp(code) * tau, code.expand(-1, steps + 1)

    d = Continued(Ode(exponential, code, offset=None), 1.0, 0.8)
    after = Gompertz(np.exp([0.0, 1.0]), 0.8)
    t = np.array([1.0 + 1e-9, 1.5, 4.0])
    np.testing.assert_allclose(d.log_survival(t), -np.exp([[0.0], [1.0]]) + after.log_survival(t - 1.0), rtol=1e-7)
    np.testing.assert_allclose(d.hazard(t), after.hazard(t - 1.0), rtol=1e-7)
    np.testing.assert_allclose(d.mean(), d.restricted_mean(1.0) + np.exp(-np.exp([0.0, 1.0])) * after.mean(), rtol=1e-9)


def test_without_anchor_mass_is_lost_at_zero_and_quantiles_know():
    def curve(code, t):  # the paper's bounded network
        return code + torch.tanh(t), (1 - torch.tanh(t) ** 2).expand(len(code), -1)

    d = Monotone(curve, torch.tensor([[-1.0], [0.0]], dtype=torch.float64), anchored=False)
    start, end = special.expit([1.0, 0.0]), special.expit([0.0, -1.0])
    np.testing.assert_allclose(d.survival(0.0), start, rtol=1e-12)
    np.testing.assert_allclose(d.survival(1e9), end, rtol=1e-12)
    assert (d.quantile(0.2) == [0.0, 0.0]).all()
    assert np.isinf(d.quantile(0.9)).all()
    assert np.isinf(d.mean()).all()
    np.testing.assert_allclose(d.quantile(0.4)[0], np.arctanh(special.logit(0.4) + 1.0), rtol=1e-10)


def test_many_rows_are_evaluated_in_tiles_without_a_trace():
    code = torch.linspace(-1, 1, 1000, dtype=torch.float64)[:, None]
    d = Continued(Monotone(line, code), 2.0, 0.0)
    grid = np.linspace(0.1, 3.0, 200)
    whole = d.survival(grid)
    np.testing.assert_allclose(whole[[3, 998]], d[[3, 998]].survival(grid), rtol=1e-14)
    own = np.tile(grid, (1000, 1))
    np.testing.assert_allclose(d.survival(own_times=own), whole, rtol=1e-14)


def test_gradients_reach_the_parameters():
    scale = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    d = Weibull(scale, torch.ones(2, dtype=torch.float64))
    d.log_density(own_times=torch.tensor([0.5, 1.0], dtype=torch.float64)).sum().backward()
    np.testing.assert_allclose(scale.grad.numpy(), [-1 + 0.5, -0.5 + 0.25])  # d/ds (-log s - t/s)


def test_hazard_far_out_is_not_a_difference_of_huge_logarithms():
    base = Rescaled(Weibull([2.0, 1.0], [1.0, 0.5]), 4.0)
    for d in (base, Delayed(base, 3.0), Remaining(base, 3.0)):
        np.testing.assert_allclose(d.hazard(1e17), [1 / 8, 0.5 * (1e17 / 4) ** -0.5 / 4], rtol=1e-12)


def test_distributions_of_networks_travel_through_pickle():
    import pickle

    from sumosurv import SumoNet, datasets

    data = datasets.simulate("weibull", 60, random_state=0)
    d = SumoNet(n_members=2, max_epochs=1, random_state=0).fit(data.X, data.y).predict_distribution(data.X)
    again = pickle.loads(pickle.dumps(d))
    np.testing.assert_array_equal(again.survival([0.1, 1.0, 3.0]), d.survival([0.1, 1.0, 3.0]))


def test_a_path_on_which_nobody_is_left_says_nothing_of_the_others():
    """The first subject is dead before its second spell; the path of the second is as if it were alone."""
    survival = [[0.5, 0.0, 0.0], [0.8, 0.5, 0.4], [0.9, 0.7, 0.3], [0.6, 0.5, 0.2]]
    table = Tabulated([1.0, 2.0, 4.0], survival, between="density")
    both = CovariatePath(table, [0.0, 3.0, 0.0, 1.5], [0, 0, 1, 1])
    alone = CovariatePath(table[[2, 3]], [0.0, 1.5], [0, 0])
    t = [0.5, 1.0, 1.7, 3.0, 3.9]
    assert np.isneginf(both.log_density([3.0, 3.9])[0]).all()
    np.testing.assert_allclose(both.log_density(t)[1], alone.log_density(t)[0], rtol=1e-12)
    np.testing.assert_allclose(both.log_survival(t)[1], alone.log_survival(t)[0], rtol=1e-12)


def test_many_paths_are_as_exact_as_one():
    rates = Weibull(np.tile([0.01, 0.5], 5000), np.ones(10_000))
    both = CovariatePath(rates, np.tile([0.0, 1.0], 5000), np.repeat(np.arange(5000), 2))
    expected = -1.0 / 0.01 - 0.5 / 0.5 + np.log(1 / 0.5)
    np.testing.assert_allclose(both[[4999]].log_density(1.5), expected, rtol=1e-12)
    np.testing.assert_allclose(both.log_density(1.5), expected, rtol=1e-12)


def test_a_path_that_begins_late():
    """S is one until the first spell, which counts from its start on: hazards of rows, by hand."""
    rows = Weibull([2.0, 1.0, 0.5], [1.0, 1.0, 1.0])
    late = CovariatePath(rows, [1.5, 0.5, 0.3], [0, 0, 1])
    np.testing.assert_allclose(late.cumulative_hazard([0.2, 0.4, 1.0, 2.5]), [[0, 0, 0.5, 1.5], [0, 0.2, 1.4, 4.4]])
    np.testing.assert_allclose(late.density([0.2, 0.4])[0], [0.0, 0.0])
    np.testing.assert_allclose(late.median()[1], 0.3 + 0.5 * np.log(2))
    np.testing.assert_allclose(late.restricted_mean(1.0), [0.5 + 1 - np.exp(-0.5), 0.3 + 0.5 * (1 - np.exp(-1.4))])


def test_a_subject_whose_time_is_surely_before_zero_has_its_event_at_once():
    d = Remaining(Weibull([1.4e-9, 1.0], [63.8, 1.0]), 0.05)
    assert d.survival([0.0, 1e-6, 1.0])[0].tolist() == [1.0, 0.0, 0.0]
    assert np.isneginf(d.log_density([0.5])[0])
    np.testing.assert_allclose(d.survival([0.3])[1], np.exp(-0.3), rtol=1e-12)


def test_recalibrated_is_the_map_of_the_base():
    base = Weibull([1.0, 2.0], [1.5, 0.8])
    d = Recalibrated(base, [0.3, 0.6], [0.2, 0.7])
    t = np.linspace(0.0, 5.0, 101)
    np.testing.assert_allclose(
        d.survival(t), np.interp(base.survival(t), [0, 0.3, 0.6, 1], [0, 0.2, 0.7, 1]), atol=1e-14
    )
    np.testing.assert_allclose(d.quantile([0.3, 0.8]), base.quantile([0.4, 0.7]), rtol=1e-12)
    for levels, values in (([0.6, 0.3], [0.2, 0.7]), ([0.3], [1.0]), ([0.3, 0.6], [0.5, 0.5]), ([0.3], [0.1, 0.2])):
        with pytest.raises(ValueError, match=r"increasing .* above 0 .* below 1"):
            Recalibrated(base, levels, values)
    with pytest.raises(TypeError, match="base must be a SurvivalDistribution"):
        Recalibrated(3, [0.5], [0.5])


@pytest.mark.parametrize("network_first", [True, False])
@pytest.mark.parametrize("make", [lambda d: d, lambda d: Rescaled(d, 7.0), lambda d: Remaining(d, 0.1)])
def test_a_mixture_of_both_precisions_answers_every_question(network_first, make):
    network = small_networks.network((0,)).requires_grad_(False).distribution(small_networks.inputs(3))
    parts = [network, Weibull([1.0, 2.0, 0.5], 1.2)]
    exact = make(Mixture(parts if network_first else parts[::-1], [0.3, 0.7]))
    single = exact.single()
    asked = {
        "survival": [0.2, 3.0],
        "cdf": [0.2, 3.0],
        "density": [0.2, 3.0],
        "hazard": [0.2, 3.0],
        "quantile": [0.1, 0.5, 0.99],
        "restricted_mean": [0.5, 30.0],
    }
    for name, at in asked.items():
        np.testing.assert_allclose(getattr(single, name)(at), getattr(exact, name)(at), rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(single.mean(), exact.mean(), rtol=1e-5)
    np.testing.assert_allclose(single.conditional(0.2).mean(), exact.conditional(0.2).mean(), rtol=1e-5)


def test_the_solution_of_an_equation_is_flat_after_its_end():
    """Without a tail, what is left at the last training time stays."""

    def exponential(code, steps):
        tau = torch.linspace(0, 1, steps + 1, dtype=code.dtype)
        return torch.exp(code) * tau, code.expand(-1, steps + 1)

    d = Ode(exponential, torch.tensor([[0.0], [1.0]], dtype=torch.float64), offset=None)
    rate = np.exp([0.0, 1.0])
    for end in (0.5, 1.0, 3.0):
        inside = -np.expm1(-rate * min(end, 1.0)) / rate
        np.testing.assert_allclose(d.restricted_mean(end), inside + max(end - 1.0, 0.0) * np.exp(-rate), rtol=1e-7)


@pytest.mark.parametrize("knots", [[], [(0.5, 0.3)], [(0.2, 0.4), (0.7, 0.75)]])
def test_recalibration_is_linear_between_its_knots(knots):
    base = Weibull([2.0], 1.3)
    found = Recalibrated(base, *(zip(*knots) if knots else ([], [])))
    u, v = zip((0.0, 0.0), *knots, (1.0, 1.0))
    np.testing.assert_allclose(found.survival(TIMES), np.interp(base.survival(TIMES), u, v), rtol=1e-12)
    area = integrate.quad(
        lambda t: float(found.density([t])[0, 0]), 0.0, 4.0, points=list(found.quantile([0.3, 0.6])[0])
    )
    assert area[0] == pytest.approx(1.0 - float(found.survival([4.0])[0, 0]), abs=1e-6)
