"""What every kind of distribution must do, in float64, against differentiation, quadrature and counting."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from distribution_kinds import KINDS, Kind, label, one_of_each, quadrature

METHODS = ("survival", "log_survival", "cdf", "density", "log_density", "hazard", "cumulative_hazard")
LEVELS = np.array([0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97])
N = 3


@pytest.fixture(params=list(KINDS), ids=label)
def kind(request) -> Kind:
    return KINDS[request.param]


@pytest.fixture(params=[name for name in KINDS if KINDS[name].smooth], ids=label)
def smooth(request) -> Kind:
    return KINDS[request.param]


@pytest.fixture(params=one_of_each(), ids=label)
def of_each_class(request) -> Kind:
    return KINDS[request.param]


def some_times(kind: Kind) -> np.ndarray:
    """Times spread over the distribution, own for each subject, not at a kink: (n, m)."""
    times = kind().quantile(LEVELS)
    times = np.where(np.isfinite(times), times, 3.0 * kind.scale)
    for place in kind.breaks:
        near = np.abs(times - place) < 1e-3 * place
        times = np.where(near, place * 1.01, times)
    return times


def far_end(kind: Kind) -> float:
    ends = kind().quantile(1 - 1e-14)
    return float(np.where(np.isfinite(ends), ends, 100 * kind.scale).max()) * 1.5


def sampled_times(d, size, seed):
    return d.sample(size, random_state=seed)


# ---------------------------------------------------------------------- S


def test_survival_is_one_at_zero_and_never_increases(kind):
    d = kind()
    assert (d.survival(0.0) == 1.0).all()
    assert np.allclose(d.cdf(0.0), 0.0, atol=1e-15)
    grid = np.concatenate([[0.0], kind.scale * np.logspace(-12, 12, 500)])
    s = d.survival(grid)
    assert s.shape == (N, 501)
    assert ((s >= 0) & (s <= 1)).all()
    assert (np.diff(np.maximum(d.log_survival(grid), -1e300), axis=1) <= 1e-12).all()
    if kind.total:
        assert (s[:, -1] < 1e-9).all()


def test_far_tails_have_no_nan(kind):
    d = kind()
    times = kind.scale * np.array([0.0, 1e-12, 1e12])
    log_s, log_f = d.log_survival(times), d.log_density(times)
    assert not np.isnan(log_s).any()
    assert not np.isnan(log_f).any()
    assert (log_f < np.inf).all() or np.isinf(log_f[:, 0]).any()
    assert np.isfinite(log_s[:, : 2 if kind.bounded or kind.overflows else 3]).all()
    assert not np.isnan(d.log_survival(np.inf)).any()
    assert not np.isnan(d.log_density(np.inf)).any()
    assert not np.isnan(d.cumulative_hazard(times)).any()


# ---------------------------------------------------------------------- f


def test_density_is_minus_the_derivative_of_survival_by_autograd(smooth):
    d = smooth()
    t = torch.from_numpy(some_times(smooth)).requires_grad_(True)
    s = d.survival(own_times=t)
    assert isinstance(s, torch.Tensor)
    (slope,) = torch.autograd.grad(s.sum(), t)
    np.testing.assert_allclose(d.density(own_times=t).detach().numpy(), -slope.numpy(), rtol=1e-6, atol=1e-14)


def test_log_survival_has_the_hazard_as_its_slope_by_autograd(smooth):
    d = smooth()
    t = torch.from_numpy(some_times(smooth)).requires_grad_(True)
    (slope,) = torch.autograd.grad(d.log_survival(own_times=t).sum(), t)
    np.testing.assert_allclose(d.hazard(own_times=t).detach().numpy(), -slope.numpy(), rtol=1e-6, atol=1e-14)


def test_density_agrees_with_central_differences(smooth):
    d, t = smooth(), some_times(smooth)
    step = 1e-5 * t
    numeric = (d.survival(own_times=t - step) - d.survival(own_times=t + step)) / (2 * step)
    np.testing.assert_allclose(d.density(own_times=t), numeric, rtol=1e-6, atol=1e-12)


def test_density_integrates_to_one_minus_survival(smooth):
    d = smooth()
    for horizon in (0.4 * smooth.scale, 3.3 * smooth.scale):
        area = quadrature(d.density, smooth.breaks, horizon)
        np.testing.assert_allclose(area, 1.0 - d.survival(horizon), rtol=1e-7, atol=1e-9)


def test_hazard_and_cumulative_hazard_follow_from_the_two(kind):
    d, t = kind(), some_times(kind)
    survival = d.survival(own_times=t)
    with np.errstate(divide="ignore", invalid="ignore"):
        hazard = d.density(own_times=t) / survival
    alive = survival > 0
    np.testing.assert_allclose(d.hazard(own_times=t)[alive], hazard[alive], rtol=1e-12)
    np.testing.assert_allclose(d.cumulative_hazard(own_times=t), -d.log_survival(own_times=t))
    np.testing.assert_allclose(d.cdf(own_times=t), 1 - survival, atol=1e-15)


# ---------------------------------------------------------------------- quantiles


def test_quantile_inverts_cdf(smooth):
    d = smooth()
    t = d.quantile(LEVELS)
    reached = np.isfinite(t)
    assert reached.all() or not smooth.total
    back = d.cdf(own_times=np.where(reached, t, 0.0))
    np.testing.assert_allclose(back[reached], np.broadcast_to(LEVELS, t.shape)[reached], rtol=1e-10)


def test_cdf_inverts_quantile(smooth):
    d, t = smooth(), some_times(smooth)
    falling = d.density(own_times=t) > 1e-9 / smooth.scale
    back = d.quantile(own_levels=d.cdf(own_times=t))
    np.testing.assert_allclose(back[falling], t[falling], rtol=1e-8)


def test_quantile_is_the_smallest_time_that_reaches_the_level(kind):
    d = kind()
    levels = np.array([1e-6, 0.02, 0.1, 0.2, 0.3, 0.5, 0.55, 0.7, 0.8, 0.9, 0.999])
    t = d.quantile(levels)
    reached = np.isfinite(t)
    at = d.cdf(own_times=np.where(reached, t, 0.0))
    before = d.cdf(own_times=np.where(reached, t * (1 - 1e-9), 0.0))
    wanted = np.broadcast_to(levels, t.shape)
    assert (at[reached] >= wanted[reached] - 1e-14).all()
    assert (before[reached] <= wanted[reached] + 1e-15).all()
    far = d.cdf(own_times=np.where(reached, 0.0, 1e12 * kind.scale))
    assert (far[~reached] < wanted[~reached]).all()


def test_extreme_quantiles(kind):
    d = kind()
    zero, low, high, one = d.quantile([0.0, 1e-12, 1 - 1e-12, 1.0]).T
    assert (zero == 0.0).all()
    assert (low >= kind.start).all()
    assert not np.isnan(high).any()
    assert (one >= high * (1 - 1e-12)).all()  # to the accuracy of a search
    if kind.smooth:
        np.testing.assert_allclose(
            d.cdf(own_times=low), 1e-12, rtol=1e-6, atol=4e-15
        )  # log S near the start has this grain
        reached = np.isfinite(high)
        log_s = d.log_survival(own_times=np.where(reached, high, 0.0))[reached]
        np.testing.assert_allclose(log_s, np.log1p(-(1 - 1e-12)), rtol=1e-6 if not kind.bounded else 1e-3)
        assert reached.all() == kind.total
    assert np.isinf(one).all() == (not kind.bounded)
    assert np.array_equal(d.median(), d.quantile(0.5))


def test_levels_of_quantiles_that_cannot_be(of_each_class):
    d = of_each_class()
    for wrong in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            d.quantile(wrong)
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            d.quantile(own_levels=np.full(N, wrong))


# ---------------------------------------------------------------------- means


def test_restricted_mean_equals_quadrature(kind):
    d = kind()
    for horizon in (0.3 * kind.scale, 4.0 * kind.scale):
        area = quadrature(d.survival, kind.breaks, horizon)
        np.testing.assert_allclose(d.restricted_mean(horizon), area, rtol=1e-9)
    own = kind.scale * np.array([0.2, 1.7, 5.0])
    each = [d[i].restricted_mean(own[i])[0] for i in range(N)]
    np.testing.assert_allclose(d.restricted_mean(own_horizons=own), each, rtol=1e-10)
    assert (d.restricted_mean(0.0) == 0.0).all()


def test_mean_equals_quadrature(kind):
    d = kind()
    if not kind.total:
        assert np.isinf(d.mean()).all()
        return
    end = far_end(kind)
    np.testing.assert_allclose(d.mean(), quadrature(d.survival, kind.breaks, end), rtol=1e-8)
    # E[T] is also the integral of the quantile function: a second reading that needs no tail
    np.testing.assert_allclose(d.restricted_mean(1e30 * kind.scale), d.mean(), rtol=1e-9)


def test_mean_is_the_integral_of_time_times_density(smooth):
    if smooth.total:
        d = smooth()
        mean = quadrature(lambda t: t * d.density(t), smooth.breaks, far_end(smooth))
        np.testing.assert_allclose(d.mean(), mean, rtol=1e-7)


# ---------------------------------------------------------------------- conditional


def test_conditional_follows_its_definition(kind):
    d = kind()
    after = kind.start + kind.scale * np.array([0.1, 0.4, 0.8])
    given = d.conditional(after)
    t = after[:, None] + kind.scale * np.array([[0.0, 0.05, 0.33, 1.1]])
    reach = d.survival(own_times=after)
    for name in ("survival", "density"):
        whole = getattr(d, name)(own_times=t)
        np.testing.assert_allclose(getattr(given, name)(own_times=t), whole / reach[:, None], rtol=1e-12)
    before = after[:, None] * np.array([[0.0, 0.5, 0.999]])
    assert (given.survival(own_times=before) == 1.0).all()
    assert (given.density(own_times=before) == 0.0).all()
    horizon = 50 * kind.scale
    expected = after + (d.restricted_mean(horizon) - d.restricted_mean(own_horizons=after)) / reach
    np.testing.assert_allclose(given.restricted_mean(horizon), expected, rtol=1e-6)  # the difference cancels
    np.testing.assert_allclose(given.restricted_mean(own_horizons=0.5 * after), 0.5 * after, rtol=1e-14)


def test_knowing_of_no_event_before_the_first_possible_one_changes_nothing(kind):
    if kind.start > 0:
        d = kind()
        given = d.conditional(0.5 * kind.start)
        np.testing.assert_allclose(given.restricted_mean(9 * kind.scale), d.restricted_mean(9 * kind.scale), rtol=1e-9)


def test_conditional_mean_equals_quadrature(kind):
    d = kind().conditional(0.9 * kind.scale + kind.start)
    if kind.total:
        breaks = (0.9 * kind.scale + kind.start, *kind.breaks)
        np.testing.assert_allclose(d.mean(), quadrature(d.survival, breaks, far_end(kind)), rtol=1e-8)
    else:
        assert np.isinf(d.mean()).all()


# ---------------------------------------------------------------------- sampling


def test_samples_have_the_distribution(kind):
    d, size = kind(), 1000
    draws = sampled_times(d, size, 7)
    assert draws.shape == (N, size)
    once = sampled_times(d, None, 1)
    assert once.shape == (N,)
    assert np.array_equal(once, sampled_times(d, None, 1))
    for i in range(N):
        row = d[i]
        if kind.smooth and kind.total:
            assert stats.kstest(draws[i], lambda t, row=row: row.cdf(t)[0]).pvalue > 1e-3
            continue
        # jumps, or mass at infinity: the share of draws up to each of many times
        grid = np.unique(np.concatenate([np.array(kind.breaks), kind.scale * np.linspace(0.01, 6, 50)]))
        shares = (draws[i][:, None] <= grid).mean(0)
        assert np.abs(shares - row.cdf(grid)[0]).max() < 1.95 / np.sqrt(size)


def test_samples_of_different_subjects_are_independent(kind):
    draws = sampled_times(kind(), 1000, 3)
    finite = np.isfinite(draws).all(0)
    limit = max(0.11, 3.5 / np.sqrt(finite.sum()))
    assert abs(stats.spearmanr(draws[0][finite], draws[1][finite]).statistic) < limit


# ---------------------------------------------------------------------- doors


def test_an_array_of_times_is_a_grid(kind):
    d, times = kind(), kind.scale * np.array([0.3, 0.9, 1.9, 2.5])
    for name in ("survival", "density"):
        f = getattr(d, name)
        grid = f(times)
        assert grid.shape == (N, 4)
        np.testing.assert_allclose(grid, np.stack([f(float(t)) for t in times], axis=1), rtol=1e-12, err_msg=name)
        np.testing.assert_allclose(f(times[:N]), grid[:, :N], rtol=1e-12, err_msg=name)  # as many as subjects


@pytest.mark.parametrize("n", [1, N])
def test_an_array_of_times_is_a_grid_whatever_its_length(of_each_class, n):
    d, times = of_each_class()[:n], of_each_class.scale * np.array([0.3, 0.9, 1.9, 2.5])
    assert len(d) == n
    for name in METHODS:
        f = getattr(d, name)
        one_by_one = np.stack([f(float(t)) for t in times], axis=1)
        assert one_by_one.shape == (n, 4)
        for m in {0, 1, n, 4}:  # none, one, as many as subjects, more
            grid = f(times[:m])
            assert grid.shape == (n, m), name
            np.testing.assert_allclose(grid, one_by_one[:, :m], rtol=1e-12, err_msg=name)


def test_own_times_are_the_diagonal_of_the_grid(kind):
    d, own = kind(), kind.scale * np.array([0.3, 0.9, 1.9])
    for name in ("survival", "density"):
        f = getattr(d, name)
        at_own = f(own_times=own)
        np.testing.assert_allclose(at_own, np.diagonal(f(own)), rtol=1e-12, err_msg=name)
        several = f(own_times=own[:, None] * np.array([1.0, 2.0]))
        np.testing.assert_allclose(several, np.stack([at_own, f(own_times=2.0 * own)], axis=1), rtol=1e-12)


@pytest.mark.parametrize("n", [1, N])
def test_own_times_have_the_shape_that_they_are_given_in(of_each_class, n):
    d, factors = of_each_class()[:n], np.array([1.0, 0.5, 2.0])
    own = of_each_class.scale * np.array([0.3, 0.9, 1.9])[:n]
    for name in METHODS:
        f = getattr(d, name)
        at_own = f(own_times=own)
        assert at_own.shape == (n,), name
        np.testing.assert_allclose(at_own, np.diagonal(f(own)), rtol=1e-12, err_msg=name)
        each = np.stack([at_own, *(f(own_times=own * factor) for factor in factors[1:])], axis=1)
        for m in {0, 1, n, 3}:
            several = f(own_times=own[:, None] * factors[:m])
            assert several.shape == (n, m), name
            np.testing.assert_allclose(several, each[:, :m], rtol=1e-12, err_msg=name)


def test_levels_and_horizons_follow_the_same_rule(kind):
    d = kind()
    for f, own_name, values in (
        (d.quantile, "own_levels", np.array([0.2, 0.5, 0.05])),
        (d.restricted_mean, "own_horizons", kind.scale * np.array([0.3, 0.9, 1.9])),
    ):
        grid = f(values)  # as many as subjects
        assert grid.shape == (N, 3)
        np.testing.assert_allclose(f(float(values[2])), grid[:, 2], rtol=1e-9)
        own = f(**{own_name: values})
        assert own.shape == (N,)
        np.testing.assert_allclose(own, np.diagonal(grid), rtol=1e-9)


@pytest.mark.parametrize("n", [1, N])
def test_levels_and_horizons_have_the_shape_that_they_are_given_in(of_each_class, n):
    d = of_each_class()[:n]
    for f, own_name, values in (
        (d.quantile, "own_levels", np.array([0.2, 0.5])),
        (d.restricted_mean, "own_horizons", of_each_class.scale * np.array([0.3, 0.9])),
    ):
        grid = f(values)
        assert grid.shape == (n, 2)
        assert f(values[:0]).shape == (n, 0)
        both = f(**{own_name: np.broadcast_to(values, (n, 2))})
        assert both.shape == (n, 2)
        np.testing.assert_allclose(both, grid, rtol=1e-9)


def test_times_that_cannot_be(of_each_class):
    d = of_each_class()
    for wrong in (-1.0, np.nan, [0.5, -1e-9, 2.0], [1.0, np.nan]):
        with pytest.raises(ValueError, match=r"zero or more.* got (-|nan)"):
            d.survival(wrong)
        with pytest.raises(ValueError, match=r"zero or more.* got (-|nan)"):
            d.survival(own_times=[1.0, 1.0, np.min(wrong)])
    with pytest.raises(ValueError, match="horizon must be zero or more"):
        d.restricted_mean(-1.0)
    with pytest.raises(ValueError, match="after must be zero or more"):
        d.conditional(np.nan)


QUESTIONS = [
    *((name, "times", "own_times") for name in METHODS),
    ("quantile", "q", "own_levels"),
    ("restricted_mean", "horizon", "own_horizons"),
]


@pytest.mark.parametrize(("name", "shared", "own"), QUESTIONS)
def test_shapes_that_do_not_fit(name, shared, own):
    d = KINDS["weibull"]()
    f = getattr(d, name)
    for wrong in (np.ones((1, 4)), np.ones((N, 4)), np.ones((N, N)), np.ones((1, 1, 1))):
        with pytest.raises(ValueError, match=rf"{shared} .* pass {own}= with shape \(3,\) or \(3, m\)"):
            f(wrong)
    for wrong in (1.0, np.ones(2), np.ones(4), np.ones((1, N)), np.ones((4, N)), np.ones((N, 1, 1))):
        with pytest.raises(ValueError, match=rf"{own} .* each of the 3 subjects.* as {shared}"):
            f(**{own: wrong})
    with pytest.raises(TypeError, match=f"either {shared} or {own}"):
        f()
    with pytest.raises(TypeError, match=f"either {shared} or {own}"):
        f(0.5, **{own: np.full(N, 0.5)})


def test_a_condition_is_a_number_or_one_per_subject(of_each_class):
    d = of_each_class()
    np.testing.assert_array_equal(d.conditional(0.1).median(), d.conditional(np.full(N, 0.1)).median())
    for wrong in (np.zeros(2), np.zeros((N, 1))):
        with pytest.raises(ValueError, match=r"one time per subject \(3\)"):
            d.conditional(wrong)


def test_tensors_in_tensors_out(of_each_class):
    d = of_each_class()
    t = torch.tensor([0.5, 1.0, 1.5], dtype=torch.float64) * of_each_class.scale
    for name in METHODS:
        for asked in ({"times": t}, {"own_times": t}):
            result = getattr(d, name)(**asked)
            assert isinstance(result, torch.Tensor)
            assert result.dtype == torch.float64
            plain = getattr(d, name)(**{key: value.numpy() for key, value in asked.items()})
            np.testing.assert_array_equal(result.detach().numpy(), plain)
    assert isinstance(d.quantile(torch.tensor(0.5)), torch.Tensor)
    assert isinstance(d.restricted_mean(own_horizons=t), torch.Tensor)
    assert isinstance(d.survival(t.tolist()), np.ndarray)
    assert d.survival([1, 2, 3]).dtype == np.float64


def test_indexing(kind):
    d, grid = kind(), kind.scale * np.array([0.2, 0.8, 1.5, 4.0])
    whole = d.survival(grid)
    for rows, expected in (
        (1, [1]),
        (-1, [2]),
        (slice(1, None), [1, 2]),
        ([2, 0, 2], [2, 0, 2]),
        (np.array([True, False, True]), [0, 2]),
    ):
        part = d[rows]
        assert type(part) is type(d)
        assert len(part) == len(expected)
        np.testing.assert_allclose(part.survival(grid), whole[expected], rtol=1e-13)
    np.testing.assert_allclose(d[[2, 0, 2]].mean(), d.mean()[[2, 0, 2]], rtol=1e-9)
    with pytest.raises(IndexError):
        d[3]
    assert repr(d).startswith("SurvivalDistribution of 3 subjects")
    assert (f"{d.n_causes} causes" in repr(d)) == (d.n_causes > 1)


def test_single_precision_answers_every_question(kind):
    exact, single = kind(), kind().single()
    times = kind.scale * np.array([0.3, 0.8, 2.0, 30.0])
    horizons = times[[0, 3]]
    with torch.no_grad():
        np.testing.assert_allclose(single.cdf(times), exact.cdf(times), rtol=1e-5)
        np.testing.assert_allclose(single.quantile([0.1, 0.5, 0.9]), exact.quantile([0.1, 0.5, 0.9]), rtol=2e-5)
        np.testing.assert_allclose(single.restricted_mean(horizons), exact.restricted_mean(horizons), rtol=1e-5)
        np.testing.assert_allclose(single.mean(), exact.mean(), rtol=1e-5)
