"""τ(t): increasing, with the derivative that autograd finds, smooth where it is pieced together."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.interpolate import CubicHermiteSpline

import small_networks
from sumosurv import kaplan_meier
from sumosurv.fitting.prepared import time_features, time_unit
from sumosurv.networks import TimeFeatures
from sumosurv.networks.layers import LOG_OFFSET
from sumosurv.outcome import Surv, check_outcome

KINDS = ("linear", "log", "marginal")
GRID = torch.cat([torch.zeros(1), torch.logspace(-6, 0.5, 300)]).double()[None, None]


def features(kind, seed=0):
    y = small_networks.outcome(seed=seed)
    return time_features(kind, y, time_unit(y)).double()


@pytest.mark.parametrize("kind", KINDS)
def test_derivative_is_that_of_autograd(kind):
    t = GRID.clone().requires_grad_(True)
    value, slope = features(kind)(t)
    assert value.shape == (*GRID.shape, {"linear": 1, "log": 2, "marginal": 3}[kind])
    for j in range(value.shape[-1]):
        (expected,) = torch.autograd.grad(value[..., j].sum(), t, retain_graph=True)
        torch.testing.assert_close(slope[..., j], expected, rtol=1e-10, atol=1e-12)
        assert (slope[..., j] > 0).all()


def test_linear_is_the_paper_s_min_max_scaling():
    y = small_networks.outcome()
    unit = time_unit(y)
    low, high = y.time.min(), y.time.max()
    t = torch.tensor([[[low, high, 0.5 * (low + high)]]]) / unit
    np.testing.assert_allclose(features("linear")(t)[0][0, 0, :, 0].numpy(), [0.0, 1.0, 0.5], atol=1e-6)


def test_marginal_is_half_the_log_odds_of_kaplan_meier_at_its_knots():
    y = small_networks.outcome()
    unit = time_unit(y)
    made = features("marginal")
    x, odds, slopes = made.table[0].numpy()
    t = np.exp(x) - LOG_OFFSET
    value = made(torch.from_numpy(t)[None, None])[0][0, 0, :, 2].numpy()
    np.testing.assert_allclose(value, odds, rtol=1e-9)
    curve = kaplan_meier(y.on_time_scale(unit=unit))
    before, after = curve.cdf(t - 1e-4)[0], curve.cdf(t + 1e-4)[0]
    share = 1 / (1 + np.exp(-2 * odds))
    assert ((share >= before - 1e-6) & (share <= after + 1e-6)).all()
    inside = np.linspace(x[0], x[-1], 200)
    expected = CubicHermiteSpline(x, odds, slopes)(inside)
    got = made(torch.from_numpy(np.exp(inside) - LOG_OFFSET)[None, None])[0][0, 0, :, 2].numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-9)


def test_marginal_takes_ties_at_the_middle_of_their_rise():
    """Four times, eight events at each: F rises from 0 to 1/4 at the first, whose share is 1/8, and so on."""
    y = check_outcome((np.repeat([1.0, 2.0, 3.0, 4.0], 8), np.ones(32)))
    places, odds, _ = time_features("marginal", y, 4.0).table[0].numpy()
    np.testing.assert_allclose(np.exp(places) - LOG_OFFSET, [0.25, 0.5, 0.75, 1.0], rtol=1e-5)
    share = np.array([1, 3, 5, 7]) / 8
    np.testing.assert_allclose(odds, 0.5 * np.log(share / (1 - share)), rtol=1e-5, atol=1e-6)


def test_marginal_with_a_table_per_member_is_each_member_s_own():
    tables = [features("marginal", seed).table for seed in (0, 1, 2)]
    assert len({table.shape for table in tables}) == 1
    together = TimeFeatures("marginal", torch.cat(tables)).double()
    own = torch.rand(3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for t in (GRID, own):
        value, slope = together(t)
        for k, table in enumerate(tables):
            alone = TimeFeatures("marginal", table).double()(t if t is GRID else t[k : k + 1])
            torch.testing.assert_close(value[k], alone[0][0])
            torch.testing.assert_close(slope[k], alone[1][0])


@pytest.mark.parametrize(
    ("event", "time"),
    [
        ([0, 0, 0, 0], [1.0, 2.0, 3.0, 4.0]),
        ([1, 0, 0, 0], [1.0, 2.0, 3.0, 4.0]),
        ([1, 1, 1, 1], [2.0, 2.0, 2.0, 2.0]),
        ([1, 1], [0.0, 0.0]),
    ],
)
def test_marginal_falls_back_without_two_event_times(event, time):
    y = check_outcome((time, event))
    assert time_features("marginal", y, time_unit(y)).kind == "log"


def test_heavy_ties_and_zero_times_give_finite_features():
    rng = np.random.default_rng(0)
    y = check_outcome((rng.integers(0, 4, 300).astype(float), rng.random(300) < 0.8))
    value, slope = time_features("marginal", y, time_unit(y)).double()(GRID)
    assert torch.isfinite(value).all()
    assert torch.isfinite(slope).all()
    assert (torch.diff(value[..., 2]) > 0).all()


def test_time_unit():
    assert time_unit(check_outcome(([1.0, 5.0], [1, 0]))) == 5.0
    assert time_unit(check_outcome(([0.0, 0.0], [1, 0]))) == 1.0
    assert time_unit(check_outcome(Surv.interval([1.0, 2.0], [7.0, np.inf]))) == 7.0
