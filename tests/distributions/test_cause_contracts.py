"""What holds by cause for every distribution, with one cause or several."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from distribution_kinds import KINDS, Kind, label, one_of_each, quadrature, relabelled

N = 3
WITH_CAUSES = ("cumulative_incidence", "cause_density", "log_cause_density", "cause_specific_hazard")


@pytest.fixture(params=list(KINDS), ids=label)
def kind(request) -> Kind:
    return KINDS[request.param]


@pytest.fixture(params=[name for name in KINDS if KINDS[name].smooth], ids=label)
def smooth(request) -> Kind:
    return KINDS[request.param]


@pytest.fixture(params=one_of_each(), ids=label)
def of_each_class(request) -> Kind:
    return KINDS[request.param]


def some_grid(kind: Kind) -> np.ndarray:
    return np.unique([0.0, *kind.breaks, *(kind.scale * np.logspace(-9, 6, 120)), np.inf])


# ---------------------------------------------------------------------- incidences


def test_survival_and_incidences_sum_to_one_at_all_times(kind):
    d, grid = kind(), some_grid(kind)
    incidence = d.cumulative_incidence(grid)
    assert incidence.shape == (N, len(grid), d.n_causes)
    np.testing.assert_allclose(d.survival(grid) + incidence.sum(-1), 1.0, rtol=0, atol=1e-15)
    assert (incidence >= 0).all()
    assert (np.diff(incidence, axis=1) >= -1e-15).all()
    assert (incidence[:, 0] == 0.0).all()


def test_incidence_is_the_integral_of_the_density_of_the_cause(smooth):
    d = smooth()
    for horizon in (0.4 * smooth.scale, 3.3 * smooth.scale):
        incidence = d.cumulative_incidence(horizon)
        for k in range(d.n_causes):
            area = quadrature(lambda t, k=k: d.cause_density(t)[..., k], smooth.breaks, horizon)
            np.testing.assert_allclose(area, incidence[:, k], rtol=1e-7, atol=1e-9)


def test_densities_of_the_causes_sum_to_the_density(kind):
    d, grid = kind(), kind.scale * np.array([0.3, 0.9, 1.9, 2.5])
    np.testing.assert_allclose(d.cause_density(grid).sum(-1), d.density(grid), rtol=1e-12)
    np.testing.assert_allclose(np.exp(d.log_cause_density(grid)), d.cause_density(grid), rtol=1e-14)
    hazard = d.cause_specific_hazard(grid)
    alive = d.survival(grid) > 0
    np.testing.assert_allclose(hazard.sum(-1)[alive], d.hazard(grid)[alive], rtol=1e-12)
    np.testing.assert_allclose(
        hazard[alive], d.cause_density(grid)[alive] / d.survival(grid)[alive][:, None], rtol=1e-12
    )


def test_far_tails_have_no_nan(kind):
    d = kind()
    times = kind.scale * np.array([0.0, 1e-12, 1e12, np.inf])
    assert not np.isnan(d.cumulative_incidence(times)).any()
    assert not np.isnan(d.log_cause_density(times)).any()
    if kind.total:
        np.testing.assert_allclose(d.cumulative_incidence(np.inf).sum(-1), 1.0, atol=1e-12)


@pytest.mark.parametrize("name", WITH_CAUSES)
def test_causes_are_the_last_axis_whatever_the_times(of_each_class, name):
    d, own = of_each_class(), of_each_class.scale * np.array([0.3, 0.9, 1.9])
    f = getattr(d, name)
    grid = f(own)
    assert grid.shape == (N, 3, d.n_causes)
    assert f(float(own[1])).shape == (N, d.n_causes)
    np.testing.assert_allclose(f(float(own[1])), grid[:, 1], rtol=1e-12)
    assert f(own[:0]).shape == (N, 0, d.n_causes)
    at_own = f(own_times=own)
    assert at_own.shape == (N, d.n_causes)
    np.testing.assert_allclose(at_own, grid[np.arange(N), np.arange(N)], rtol=1e-12)
    np.testing.assert_allclose(f(own_times=np.broadcast_to(own, (N, 3))), grid, rtol=1e-12)
    tensor = f(torch.from_numpy(own))
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_array_equal(tensor.detach().numpy(), grid)
    with pytest.raises(ValueError, match="zero or more"):
        f(-1.0)


def test_rows_keep_their_causes(kind):
    d, grid = kind(), kind.scale * np.array([0.2, 0.8, 1.5, 4.0])
    part = d[[2, 0, 2]]
    assert part.n_causes == d.n_causes
    np.testing.assert_allclose(part.cumulative_incidence(grid), d.cumulative_incidence(grid)[[2, 0, 2]], rtol=1e-12)
    np.testing.assert_allclose(part.cause_density(grid), d.cause_density(grid)[[2, 0, 2]], rtol=1e-12)
    assert d.single().n_causes == d.n_causes


# ---------------------------------------------------------------------- one cause


def test_the_time_of_a_cause_has_its_incidence(kind):
    d, grid = kind(), some_grid(kind)
    for k in range(1, d.n_causes + 1):
        own = d.cause(k)
        assert len(own) == N
        np.testing.assert_allclose(own.cdf(grid), d.cumulative_incidence(grid)[..., k - 1], rtol=1e-12, atol=1e-15)
        inner = kind.scale * np.array([0.3, 0.9, 1.9])
        np.testing.assert_allclose(own.density(inner), d.cause_density(inner)[..., k - 1], rtol=1e-12)
        ever = d.cumulative_incidence(np.inf)[:, k - 1]
        never = ever + 0.5 * (1 - ever)
        assert (np.isinf(own.quantile(own_levels=never)) | (ever > 1 - 1e-9)).all()
    for wrong in (0, d.n_causes + 1, -1, 1.5):
        with pytest.raises(ValueError, match=rf"from 1 to {d.n_causes}"):
            d.cause(wrong)


# ---------------------------------------------------------------------- time lost


def test_time_lost_equals_quadrature(kind):
    d = kind()
    for horizon in (0.5 * kind.scale + kind.start, 4.0 * kind.scale):
        lost = d.restricted_time_lost(horizon)
        assert lost.shape == (N, d.n_causes)
        area = quadrature(d.cumulative_incidence, kind.breaks, horizon)
        np.testing.assert_allclose(lost, area, rtol=1e-8, atol=1e-10 * horizon)
        np.testing.assert_allclose(lost.sum(-1) + d.restricted_mean(horizon), horizon, rtol=1e-10)


def test_horizons_of_time_lost(kind):
    d, own = kind(), kind.scale * np.array([0.3, 0.9, 1.9])
    grid = d.restricted_time_lost([0.0, own[0], np.inf])
    assert grid.shape == (N, 3, d.n_causes)
    at_own = d.restricted_time_lost(own_horizons=own)
    np.testing.assert_allclose(at_own[0], grid[0, 1], rtol=1e-9, atol=1e-12 * kind.scale)
    alone = d[2].restricted_time_lost(float(own[2]))
    np.testing.assert_allclose(at_own[2], alone[0], rtol=1e-9, atol=1e-12 * kind.scale)
    assert d.restricted_time_lost(own[:0]).shape == (N, 0, d.n_causes)
    assert (grid[:, 0] == 0.0).all()
    assert (np.isinf(grid[:, 2]) == (d.cumulative_incidence(np.inf) > 0)).all()


# ---------------------------------------------------------------------- given survival so far


def test_conditional_incidence_follows_its_definition(kind):
    d = kind()
    after = kind.start + kind.scale * np.array([0.1, 0.4, 0.8])
    given = d.conditional(after)
    t = after[:, None] + kind.scale * np.array([[0.0, 0.05, 0.33, 1.1]])
    rise = d.cumulative_incidence(own_times=t) - d.cumulative_incidence(own_times=after)[:, None]
    reach = d.survival(own_times=after)[:, None, None]
    np.testing.assert_allclose(given.cumulative_incidence(own_times=t), rise / reach, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(given.cause_density(own_times=t), d.cause_density(own_times=t) / reach, rtol=1e-11)
    before = after[:, None] * np.array([[0.0, 0.5, 0.999]])
    assert (given.cumulative_incidence(own_times=before) == 0.0).all()
    assert (given.cause_density(own_times=before) == 0.0).all()
    twice, once = given.conditional(after + kind.scale * 0.2), d.conditional(after + kind.scale * 0.2)
    far = 2.5 * kind.scale
    np.testing.assert_allclose(twice.cumulative_incidence(far), once.cumulative_incidence(far), rtol=1e-9, atol=1e-13)


def test_intervals_have_the_probability_of_their_ends(kind):
    d = kind()
    lower = kind.start + kind.scale * np.array([0.0, 0.4, 0.8])
    upper = lower + kind.scale * np.array([2.0, 0.3, np.inf])
    rise = d.cumulative_incidence(own_times=upper) - d.cumulative_incidence(own_times=lower)
    between = d.log_incidence_between(lower, upper)
    assert between.shape == (N, d.n_causes)
    np.testing.assert_allclose(np.exp(between), rise, rtol=1e-9, atol=1e-14)
    as_tensors = d.log_incidence_between(torch.from_numpy(lower), torch.from_numpy(upper))
    np.testing.assert_array_equal(as_tensors.detach().numpy(), between)
    with pytest.raises(ValueError, match="lower must not exceed upper; row 1"):
        d.log_incidence_between([0.0, 2.0, 0.0], [1.0, 1.0, 1.0])


# ---------------------------------------------------------------------- sampling


def test_sampled_causes_have_their_incidences(kind):
    d, size = kind(), 1000
    times, causes = d.sample(size, random_state=11, return_causes=True)
    assert times.shape == causes.shape == (N, size)
    assert np.issubdtype(causes.dtype, np.integer)
    assert ((causes == 0) == np.isinf(times)).all()
    assert causes.max() <= d.n_causes
    one_time, one_cause = d.sample(random_state=1, return_causes=True)
    assert one_time.shape == one_cause.shape == (N,)
    again = d.sample(random_state=1, return_causes=True)
    assert np.array_equal(one_time, again[0])
    assert np.array_equal(one_cause, again[1])
    grid = np.unique(np.concatenate([np.array(kind.breaks), kind.scale * np.linspace(0.01, 6, 50)]))
    incidence = d.cumulative_incidence(grid)
    for i in range(N):
        for k in range(d.n_causes):
            shares = ((times[i][:, None] <= grid) & (causes[i][:, None] == k + 1)).mean(0)
            assert np.abs(shares - incidence[i, :, k]).max() < 1.95 / np.sqrt(size)


# ---------------------------------------------------------------------- numbering


def test_renumbering_the_causes_renumbers_the_incidences_and_nothing_else(kind):
    d, times = kind(), kind.scale * np.array([0.1, 0.6, 1.7, 6.0])
    with relabelled():
        other = kind()
    order = [*range(1, d.n_causes), 0]
    for name in ("cumulative_incidence", "cause_density", "cause_specific_hazard"):
        expected = getattr(d, name)(times)[..., order]
        np.testing.assert_allclose(getattr(other, name)(times), expected, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(other.survival(times), d.survival(times), rtol=1e-12)
    np.testing.assert_allclose(other.median(), d.median(), rtol=1e-9)
