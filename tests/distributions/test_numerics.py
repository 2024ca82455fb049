"""How many evaluations it takes to invert and to integrate a curve, and to what accuracy."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, special

import small_networks
from distribution_kinds import frozen
from sumosurv.distributions import ProportionalHazards, Weibull
from sumosurv.distributions._numerics import invert_log_survival, mean_survival_time, starting_points
from sumosurv.distributions._quadrature import _patterson, integrate_panels


def counted(function, counts):
    def wrapped(rows, t):
        counts.append(len(rows) * (t.shape[1] if t.ndim == 2 else 1))
        return function(rows, t)

    return wrapped


def both_of(distribution):
    def log_both(rows, t):
        log_survival, log_density = distribution._take(rows)._log_both(t[:, None])
        return log_survival[:, 0], log_density[:, 0]

    return log_both


@pytest.mark.parametrize("seeds", [(0,), (3,), (0, 1, 2)])
def test_quantiles_of_networks_take_few_evaluations(seeds):
    distribution = frozen(seeds)
    levels = np.linspace(0.02, 0.98, 25)
    rows = torch.arange(3).repeat_interleave(25)
    target = torch.from_numpy(np.log1p(-np.tile(levels, 3)))
    counts = []
    t = invert_log_survival(counted(both_of(distribution), counts), rows, target)
    reached = distribution._take(rows)._log_survival(t[:, None])[:, 0]
    np.testing.assert_allclose(reached, target, rtol=1e-10)
    assert len(counts) <= 14
    assert sum(counts) / len(rows) <= 10


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_a_first_look_at_the_breaks_shortens_the_search(seeds):
    distribution = frozen(seeds)
    rows = torch.arange(3).repeat_interleave(25)
    target = torch.from_numpy(np.log1p(-np.tile(np.linspace(0.02, 0.98, 25), 3)))
    plain, begun = [], []
    expected = invert_log_survival(counted(both_of(distribution), plain), rows, target)
    start = starting_points(distribution._log_survival, distribution._breaks, target.reshape(3, 25))
    np.testing.assert_array_equal(start[1].reshape(3, 25)[:, 0], distribution.log_survival(torch.tensor(0.0)))
    found = invert_log_survival(counted(both_of(distribution), begun), rows, target, start)
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    assert sum(begun) <= 0.65 * sum(plain)


def test_weibull_quantiles_are_one_newton_step_away():
    distribution = Weibull(scale=[3.0, 40.0], shape=[0.8, 2.5])
    level = torch.log(torch.tensor([0.9, 0.2], dtype=torch.float64))
    counts = []
    t = invert_log_survival(counted(both_of(distribution), counts), torch.arange(2), level)
    np.testing.assert_allclose(t, np.array([3.0, 40.0]) * (-level.numpy()) ** (1 / np.array([0.8, 2.5])), rtol=1e-12)
    assert len(counts) <= 6


def test_a_curve_that_starts_below_the_level_is_there_at_once():
    network = small_networks.network(proper=False, kind="linear").requires_grad_(False)
    distribution = network.distribution(small_networks.inputs(3))
    counts = []
    level = 0.5 * distribution._log_survival(torch.zeros(1, 1, dtype=torch.float64))[:, 0]
    t = invert_log_survival(counted(both_of(distribution), counts), torch.arange(3), level)
    assert (t == 0).all()
    assert len(counts) == 1


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_the_mean_of_a_network_by_an_independent_quadrature(seeds):
    distribution = frozen(seeds)
    edges = sorted({0.0, 1.0, *(b for b in distribution._breaks if b < 1.0), *np.geomspace(1e-4, 1.0, 9)})
    nodes, weights = np.polynomial.legendre.leggauss(40)
    grid = np.concatenate([0.5 * (b - a) * nodes + 0.5 * (a + b) for a, b in pairwise(edges)])
    share = np.concatenate([0.5 * (b - a) * weights for a, b in pairwise(edges)])
    np.testing.assert_allclose(distribution.restricted_mean(1.0), distribution.survival(grid) @ share, rtol=1e-11)


def test_panels_that_all_rows_share_are_evaluated_together():
    counts = []
    rate = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    def function(rows, u):
        return torch.exp(-rate[rows, None] * u)

    edges = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    start, end = torch.zeros(3, dtype=torch.float64), torch.tensor([1.0, 1.0, 0.7], dtype=torch.float64)
    result = integrate_panels(counted(function, counts), start, end, edges, 0.0)
    np.testing.assert_allclose(result, -torch.expm1(-rate * end) / rate, rtol=1e-13)
    assert counts == [3 * 2 * 7, 3 * 2 * 8, 15]  # 7 nodes, 8 more, and the short panel of the last row


def test_a_panel_that_few_rows_find_hard_is_cut_for_these_alone():
    counts, rows = [], 20
    rate = torch.full((rows,), 0.01, dtype=torch.float64)
    rate[7] = 300.0

    def function(who, u):
        return torch.exp(-rate[who, None] * u)

    start, end = torch.zeros(rows, dtype=torch.float64), torch.ones(rows, dtype=torch.float64)
    result = integrate_panels(counted(function, counts), start, end, torch.tensor([0.0, 1.0]).double(), 0.0)
    np.testing.assert_allclose(result, -torch.expm1(-rate) / rate, rtol=1e-10)
    assert counts[0] == rows * 7
    assert set(counts[1:]) == {2 * 15}  # two halves of one row at a time


def test_a_panel_that_most_rows_find_hard_is_cut_for_all():
    counts = []
    rate = torch.linspace(80.0, 120.0, 20, dtype=torch.float64)

    def function(who, u):
        return torch.exp(-rate[who, None] * u)

    start, end = torch.zeros(20, dtype=torch.float64), torch.ones(20, dtype=torch.float64)
    result = integrate_panels(counted(function, counts), start, end, torch.tensor([0.0, 1.0]).double(), 0.0)
    np.testing.assert_allclose(result, -torch.expm1(-rate) / rate, rtol=1e-10)
    assert counts[:3] == [20 * 7, 20 * 8, 20 * 2 * 7]


@pytest.mark.parametrize("precision", [0.0, 1e-8])
def test_the_rules_of_many_rows_are_chosen_on_some_of_them(precision):
    counts, n = [], 5_000
    rate = torch.linspace(0.5, 3.0, n, dtype=torch.float64)
    rate[[1, 2_001, 4_001]] = torch.tensor([300.0, 12.0, torch.nan], dtype=torch.float64)  # not among the pilot rows

    def function(rows, u):
        return torch.exp(-rate[rows, None] * u)

    edges = torch.tensor([0.0, 0.7, 1.0], dtype=torch.float64)  # the first panel needs more nodes than the second
    start, end = torch.zeros(n, dtype=torch.float64), torch.ones(n, dtype=torch.float64)
    result = integrate_panels(counted(function, counts), start, end, edges, precision)
    np.testing.assert_allclose(result, -torch.expm1(-rate) / rate, rtol=max(1e-9, 16 * precision))
    assert sum(counts) / n < 14  # which all rows would need without a pilot


def test_panels_of_many_rows_are_cut_until_a_rule_is_accurate_and_a_missing_row_changes_no_other():
    counts, n = [], 5_000
    rate = torch.linspace(80.0, 120.0, n, dtype=torch.float64)
    rate[0] = torch.nan  # a pilot row

    def function(rows, u):
        return torch.exp(-rate[rows, None] * u)

    start, end = torch.zeros(n, dtype=torch.float64), torch.ones(n, dtype=torch.float64)
    result = integrate_panels(counted(function, counts), start, end, torch.tensor([0.0, 1.0]).double(), 0.0)
    np.testing.assert_allclose(result, -torch.expm1(-rate) / rate, rtol=1e-9)
    assert sum(counts) / n <= 150


@pytest.mark.parametrize(("nodes", "degree"), [(1, 1), (3, 5), (7, 11), (15, 23)])
def test_each_rule_is_exact_to_its_degree(nodes, degree):
    places, *weights = _patterson()
    own = weights[(1, 3, 7, 15).index(nodes)]
    assert (own[nodes:] == 0).all()
    assert (own[:nodes] > 0).all()
    for power in range(degree + 1):
        assert own @ places**power == pytest.approx(0.0 if power % 2 else 2.0 / (power + 1), abs=1e-15)
    assert own @ places ** (degree + 1) != pytest.approx(2.0 / (degree + 2), abs=1e-9)


def test_breaks_spare_evaluations_and_change_nothing_else():
    kink = 0.3

    def survival(rows, t):
        return torch.exp(-t - 5.0 * (t - kink).clamp_min(0.0)).expand(len(rows), -1)

    horizon = torch.full((2,), math.inf, dtype=torch.float64)
    plain, told = [], []
    a = mean_survival_time(counted(survival, plain), horizon)
    b = mean_survival_time(counted(survival, told), horizon, breaks=(kink,))
    exact = -math.expm1(-kink) + math.exp(-kink) / 6.0
    np.testing.assert_allclose(a, exact, rtol=1e-10)
    np.testing.assert_allclose(b, exact, rtol=1e-12)
    assert sum(told) < sum(plain)


@pytest.mark.parametrize("shape", [0.3, 1.0, 4.0])
def test_means_over_wide_ranges_of_scale_in_one_call(shape):
    scale = np.array([1e-9, 1.0, 1e9])
    horizon = torch.full((3,), math.inf, dtype=torch.float64)

    def survival(rows, t):
        return torch.exp(-((t / torch.from_numpy(scale)[rows, None]) ** shape))

    result = mean_survival_time(survival, horizon)
    np.testing.assert_allclose(result, scale * special.gamma(1 + 1 / shape), rtol=1e-9)


def test_a_narrow_bump_is_not_missed():
    def function(rows, u):
        return torch.exp(-(((u - 0.37) / 0.02) ** 2)).expand(len(rows), -1)

    edges = torch.tensor([0.0, 1.0], dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    result = integrate_panels(function, 0 * one, one, edges, 0.0, 0.1 * one)
    exact, _ = integrate.quad(lambda u: math.exp(-(((u - 0.37) / 0.02) ** 2)), 0.0, 1.0, points=[0.37])
    np.testing.assert_allclose(result - 0.1, exact, rtol=1e-7)


def test_mean_and_restricted_mean_of_a_network_are_one_integral(monkeypatch):
    from sumosurv.distributions import monotone

    calls, plain = [], monotone.integrate_panels
    monkeypatch.setattr(monotone, "integrate_panels", lambda *given: calls.append(1) or plain(*given))
    distribution = frozen((0,))
    up_to, mean = distribution.restricted_mean(1.0), distribution.mean()
    assert len(calls) == 1
    tail = distribution.conditional(1.0).mean() - 1.0
    np.testing.assert_allclose(mean, up_to + distribution.survival(1.0) * tail, rtol=1e-9)
    np.testing.assert_array_equal(distribution[1:].restricted_mean(1.0), up_to[1:])
    assert len(calls) == 1


@pytest.mark.parametrize("horizon", [1e-3, 0.4, 1.0, 3.0])
def test_restricted_means_of_proportional_hazards_agree_with_fine_trapezoids(horizon):
    """Of risks so low that nothing happens, and so high that curves fall before any node of a panel."""
    power, log_risk = 1.4, torch.linspace(-8.0, 18.0, 14).double()

    def log_baseline(t):
        return torch.log(t + 0.001), -torch.log(t + 0.001)

    made = ProportionalHazards(log_baseline, log_risk, torch.tensor(math.log(power)).double())
    cumulative = torch.exp(log_risk)[:, None]
    t = torch.cat([torch.zeros(1), torch.logspace(-14, math.log10(horizon), 400_000)]).double()
    t[-1] = horizon
    survival = torch.exp(-cumulative * ((t + 0.001) ** power - 0.001**power))
    expected = torch.trapezoid(survival, t, dim=1).numpy()
    np.testing.assert_allclose(made.restricted_mean(horizon), expected, rtol=1e-7)


def test_the_far_end_is_not_looked_for_if_every_horizon_is_finite():
    places = []

    def survival(rows, t):
        places.append(float(t.max()))
        return torch.exp(-t).expand(len(rows), -1)

    mean = mean_survival_time(survival, torch.tensor([2.0, 0.5]).double())
    np.testing.assert_allclose(mean, -np.expm1([-2.0, -0.5]), rtol=1e-10)
    assert max(places) <= 2.0 + 1e-12
