import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from scipy.integrate import quad

from sumosurv import Surv, kaplan_meier
from sumosurv.distributions import Continued, LogNormal, Mixture, Monotone, Normal, Rescaled, Tabulated, Weibull
from sumosurv.scores import survival_crps
from sumosurv.scores.crps import crps_integrals

KNOTS = np.array([0.5, 1.0, 2.0, 4.0])


def _by_quad(d, z):
    """(∫₀^z F², ∫_z^∞ S²) of a single subject by SciPy."""
    ends = [*KNOTS, 8.0, 50.0, 400.0]
    below = sum(quad(lambda t: d.cdf(t)[0] ** 2, a, b, epsabs=1e-12)[0] for a, b in _pieces(0.0, z, ends))
    above = sum(quad(lambda t: d.survival(t)[0] ** 2, a, b, epsabs=1e-12)[0] for a, b in _pieces(z, 4000.0, ends))
    return below, above


def _pieces(low, high, ends):
    cuts = [low, *[e for e in ends if low < e < high], high]
    return list(itertools.pairwise(cuts))


def _distributions():
    table = np.array([0.9, 0.6, 0.3, 0.1])
    return {
        "exponential": Weibull([1.3], 1.0),
        "weibull": Weibull([1.3], 2.2),
        "weibull, heavy": Weibull([1.3], 0.7),
        "lognormal": LogNormal([0.2], 0.6),
        "lognormal, wide": LogNormal([-0.5], 1.1),
        "normal": Normal([1.0], 0.8),
        "normal, cut hard": Normal([-0.5], 1.0),
        "step": Tabulated(KNOTS, [*table[:-1], 0.0]),
        "density": Tabulated(KNOTS, [*table[:-1], 0.0], between="density"),
        "hazard": Tabulated(KNOTS, table, between="hazard"),
        "rescaled": Rescaled(Weibull([1.3], 2.2), 0.4),
    }


@pytest.mark.parametrize("name", _distributions())
@pytest.mark.parametrize("z", [0.0, 0.01, 0.75, 1.0, 3.0, 6.0])
def test_integrals_against_scipy(name, z):
    d = _distributions()[name]
    below, above = crps_integrals(d, np.array([z]))
    expected = _by_quad(d, z)
    assert below[0] == pytest.approx(expected[0], abs=2e-9)
    assert above[0] == pytest.approx(expected[1], abs=2e-8)


def _of_weibull(scale, shape, z):
    """∫₀^z exp(-c (t/λ)^k) dt = λ c^(-1/k) Γ(1 + 1/k) P(1/k, c (z/λ)^k), P the regularised gamma function."""
    power, life = (z / scale) ** shape, scale * special.gamma(1.0 + 1.0 / shape)
    half = life * 2.0 ** (-1.0 / shape)
    below = z - 2.0 * life * special.gammainc(1.0 / shape, power) + half * special.gammainc(1.0 / shape, 2.0 * power)
    return below, half * special.gammaincc(1.0 / shape, 2.0 * power)


@pytest.mark.parametrize("z", [0.0, 0.3, 1.1, 4.0])
def test_quadrature_has_the_stated_error(z):
    for scale, shape in ((1.3, 2.2), (0.02, 0.6), (1.3, 1.0)):
        value = crps_integrals(Weibull([scale], shape), np.array([z]))
        whole = _of_weibull(scale, shape, 0.0)[1]
        np.testing.assert_allclose(np.ravel(value), _of_weibull(scale, shape, z), atol=1e-9 * max(whole, 1.0))


def test_exponential_by_hand():
    """mean 1, event at z: z - 2(1 - e^-z) + (1 - e^-2z)/2 + e^-2z/2."""
    z = np.array([0.2, 1.0, 2.5])
    d, y = Weibull(np.ones(3), 1.0), Surv.from_arrays([True, True, False], z)
    below = z - 2 * (1 - np.exp(-z)) + (1 - np.exp(-2 * z)) / 2
    expected = below + np.array([1, 1, 0]) * np.exp(-2 * z) / 2
    np.testing.assert_allclose(survival_crps(d, y), expected, rtol=1e-12)


def test_uncensored_crps_by_monte_carlo():
    """CRPS = E|T - z| - E|T - T'| / 2 without censoring."""
    rng = np.random.default_rng(0)
    d, z = Mixture([Weibull([1.0], 2.0), LogNormal([1.0], 0.5)]), 1.7
    a, b = d.sample(100_000, rng)[0], d.sample(100_000, rng)[0]
    draws = np.abs(a - z) - 0.5 * np.abs(a - b)
    value = survival_crps(d, Surv.from_arrays([True], [z]))[0]
    assert abs(value - draws.mean()) < 4 * draws.std() / np.sqrt(len(draws))


def test_single_precision_network():
    def curve(code, t):
        slope = torch.nn.functional.softplus(code[:, :1])
        return slope * t + torch.log(t + 1e-3) + code[:, 1:], slope + 1 / (t + 1e-3)

    code = torch.from_numpy(np.random.default_rng(1).normal(size=(20, 2)))
    y = Surv.from_arrays(np.arange(20) % 2 == 0, np.linspace(0.01, 2.0, 20))
    networks = [Continued(Monotone(curve, code.to(kind)), 1.0, 0.0) for kind in (torch.float64, torch.float32)]
    double, single = (survival_crps(network, y) for network in networks)
    np.testing.assert_allclose(single, double, rtol=1e-4, atol=1e-5)


def test_no_finite_integral_is_infinite_on_events():
    d = Tabulated([1.0], [[0.5]] * 2)
    np.testing.assert_allclose(survival_crps(d, Surv.from_arrays([True, False], [2.0, 2.0])), [np.inf, 0.25])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.5, 1.0]), st.integers(1, 20))
def test_row_order_and_time_unit(seed, share, n):
    """CRPS is in the unit of time."""
    rng = np.random.default_rng(seed)
    y = Surv.from_arrays(rng.random(n) < share, rng.exponential(1.0, n).round(1))
    d, p = Weibull(rng.uniform(0.5, 2, n), rng.uniform(0.5, 2, n)), rng.permutation(n)
    value = survival_crps(d, y)
    np.testing.assert_allclose(survival_crps(d[p], y[p]), value[p], rtol=1e-13)
    scaled = survival_crps(Rescaled(d, 30.0), Surv.from_arrays(y["event"], 30.0 * y["time"]))
    np.testing.assert_allclose(scaled, 30.0 * value, rtol=1e-8, atol=1e-10)


def test_a_row_of_weight_zero_does_not_count_if_its_score_is_infinite():
    y = Surv.from_arrays([1, 0, 1], [1.0, 2.0, 3.0])
    curve = kaplan_meier(Surv.from_arrays([1, 1, 0], [1.0, 2.0, 3.0])).repeat(3)
    scored = survival_crps(curve, y)
    infinite = np.isinf(scored)
    assert infinite.any()
    assert np.isfinite(survival_crps(curve, y, sample_weight=(~infinite).astype(float))).all()
