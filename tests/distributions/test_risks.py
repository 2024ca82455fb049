"""What every kind of competing risks must do beyond what holds for the time of the first event."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from distribution_kinds import (
    KNOTS,
    LOG_SHARES,
    RISKS,
    SHARES,
    TO_ZERO,
    Kind,
    by_cause,
    gompertz,
    hazards,
    label,
    log_logistic,
    log_normal,
    quadrature,
    risk_table,
    steps_by_cause,
    tabulated,
    weibull,
)
from sumosurv.distributions import (
    CauseMixture,
    CompetingRisksDistribution,
    Delayed,
    Mixture,
    MixtureRisks,
    Rescaled,
    Tabulated,
    TabulatedRisks,
    Weibull,
    cause_specific,
    continued,
    delayed,
    mixture,
    rescaled,
)

N = 3
WITH_CAUSES = ("cumulative_incidence", "cause_density", "log_cause_density", "cause_specific_hazard")


@pytest.fixture(params=list(RISKS), ids=label)
def kind(request) -> Kind:
    return RISKS[request.param]


@pytest.fixture(params=[name for name in RISKS if RISKS[name].smooth], ids=label)
def smooth(request) -> Kind:
    return RISKS[request.param]


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
def test_causes_are_the_last_axis_whatever_the_times(kind, name):
    d, own = kind(), kind.scale * np.array([0.3, 0.9, 1.9])
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
    with pytest.raises(ValueError, match="zero or more and not missing"):
        f(-1.0)


def test_rows_keep_their_causes(kind):
    d, grid = kind(), kind.scale * np.array([0.2, 0.8, 1.5, 4.0])
    part = d[[2, 0, 2]]
    assert isinstance(part, CompetingRisksDistribution)
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


def test_one_minus_an_incidence_near_one_has_its_digits():
    d = CauseMixture(np.log([[1.0, 1e-30]]), [Weibull([1.0], [1.0]), Weibull([1.0], [1.0])])
    np.testing.assert_allclose(d.cause(1).log_survival([0.5, 40.0]), [[-0.5, -40.0]], rtol=1e-10)
    np.testing.assert_allclose(d.cause(2).cdf(1.0), -1e-30 * np.expm1(-1.0), rtol=1e-10)


# ---------------------------------------------------------------------- time lost


def test_time_lost_equals_quadrature(kind):
    d = kind()
    for horizon in (0.5 * kind.scale + kind.start, 4.0 * kind.scale):
        lost = d.restricted_time_lost(horizon)
        assert lost.shape == (N, d.n_causes)
        for k in range(d.n_causes):
            area = quadrature(lambda t, k=k: d.cumulative_incidence(t)[..., k], kind.breaks, horizon)
            np.testing.assert_allclose(lost[:, k], area, rtol=1e-8, atol=1e-10 * horizon)
        np.testing.assert_allclose(lost.sum(-1) + d.restricted_mean(horizon), horizon, rtol=1e-10)


def test_horizons_of_time_lost(kind):
    d, own = kind(), kind.scale * np.array([0.3, 0.9, 1.9])
    grid = d.restricted_time_lost(own)
    assert grid.shape == (N, 3, d.n_causes)
    at_own = d.restricted_time_lost(own_horizons=own)
    np.testing.assert_allclose(at_own, grid[np.arange(N), np.arange(N)], rtol=1e-9, atol=1e-12 * kind.scale)
    assert d.restricted_time_lost(own[:0]).shape == (N, 0, d.n_causes)
    ends = d.restricted_time_lost([0.0, own[0], np.inf])
    assert (ends[:, 0] == 0.0).all()
    np.testing.assert_allclose(ends[:, 1], grid[:, 0], rtol=1e-9, atol=1e-12 * kind.scale)
    assert (np.isinf(ends[:, 2]) == (d.cumulative_incidence(np.inf) > 0)).all()


# ---------------------------------------------------------------------- given survival so far


def test_conditional_incidence_follows_its_definition(kind):
    d = kind()
    after = kind.start + kind.scale * np.array([0.1, 0.4, 0.8])
    given = d.conditional(after)
    assert isinstance(given, CompetingRisksDistribution)
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


@pytest.mark.parametrize("make", [by_cause, lambda: mixture([by_cause(), by_cause()]), lambda: rescaled(by_cause(), 2)])
def test_conditional_incidence_keeps_its_digits_where_survival_is_tiny(make):
    d = make()
    after = d.quantile(own_levels=np.full(N, 1 - 1e-15)) * 3
    assert (d.survival(own_times=after) < 1e-14).all()
    given = d.conditional(after)
    for factor in (1.01, 1.3):
        incidence = given.cumulative_incidence(own_times=factor * after)
        assert (incidence.sum(-1) > 0).all()
        np.testing.assert_allclose(incidence.sum(-1), 1 - given.survival(own_times=factor * after), rtol=1e-9)


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
    with pytest.raises(ValueError, match="lower is at most upper; row 1"):
        d.log_incidence_between([0.0, 2.0, 0.0], [1.0, 1.0, 1.0])


# ---------------------------------------------------------------------- sampling


def test_sampled_causes_have_their_incidences(kind):
    d, size = kind(), 4000
    times, causes = d.sample(size, random_state=11)
    assert times.shape == causes.shape == (N, size)
    assert np.issubdtype(causes.dtype, np.integer)
    again = d.sample(size, random_state=11)
    assert np.array_equal(times, again[0])
    assert np.array_equal(causes, again[1])
    assert ((causes == 0) == np.isinf(times)).all()
    assert causes.max() <= d.n_causes
    one_time, one_cause = d.sample(random_state=1)
    assert one_time.shape == one_cause.shape == (N,)
    grid = np.unique(np.concatenate([np.array(kind.breaks), kind.scale * np.linspace(0.01, 6, 50)]))
    incidence = d.cumulative_incidence(grid)
    for i in range(N):
        for k in range(d.n_causes):
            shares = ((times[i][:, None] <= grid) & (causes[i][:, None] == k + 1)).mean(0)
            assert np.abs(shares - incidence[i, :, k]).max() < 1.95 / np.sqrt(size)


def test_causes_of_a_mixture_are_drawn_with_their_times():
    d = CauseMixture(np.log([[0.5, 0.5]]), [Weibull([1.0], [1.0]), Weibull([5.0], [3.0])])
    times, causes = d.sample(4000, random_state=0)
    for k, shape, scale in ((1, 1.0, 1.0), (2, 3.0, 5.0)):
        own = times[causes == k]
        assert stats.kstest(own, stats.weibull_min(shape, scale=scale).cdf).pvalue > 1e-3


# ---------------------------------------------------------------------- the kinds


def permuted(order):
    parts = [weibull(), log_normal(), gompertz()]
    other = [weibull(), log_logistic(), Weibull([3.0, 1.0, 2.0], [2.0, 0.8, 1.3])]
    table = risk_table("step")
    yield by_cause(), CauseMixture(LOG_SHARES[:, order], [parts[k] for k in order])
    yield hazards(), cause_specific([other[k] for k in order])
    three = np.stack([table.table[..., 0], 0.25 * table.table[..., 1], 0.75 * table.table[..., 1]], axis=-1)
    for between in ("step", "density"):
        yield (
            TabulatedRisks(table.times, three, between=between),
            TabulatedRisks(table.times, three[..., order], between=between),
        )


@pytest.mark.parametrize("order", [[2, 0, 1], [1, 0, 2]])
def test_permuting_causes_permutes_incidences(order):
    times = np.array([0.1, 0.6, 1.7, 6.0])
    for d, other in permuted(order):
        for name in ("cumulative_incidence", "cause_density", "cause_specific_hazard"):
            np.testing.assert_allclose(
                getattr(other, name)(times), getattr(d, name)(times)[..., order], rtol=1e-10, atol=1e-15
            )
        np.testing.assert_allclose(other.survival(times), d.survival(times), rtol=1e-13)


def test_a_mixture_over_causes_follows_its_definition():
    d, parts = by_cause(), [weibull(), log_normal(), gompertz()]
    t = np.array([0.2, 1.1, 3.0])
    for k, part in enumerate(parts):
        np.testing.assert_allclose(d.cumulative_incidence(t)[..., k], SHARES[:, [k]] * part.cdf(t), rtol=1e-12)
        np.testing.assert_allclose(d.cause_density(t)[..., k], SHARES[:, [k]] * part.density(t), rtol=1e-12)
    np.testing.assert_allclose(d.survival(t), sum(SHARES[:, [k]] * p.survival(t) for k, p in enumerate(parts)))
    one = CauseMixture(np.array([[5.0]] * 3), [weibull()])  # whatever the constant
    np.testing.assert_array_equal(one.survival(t), weibull().survival(t))
    np.testing.assert_allclose(one.log_density(t), weibull().log_density(t), rtol=1e-14)


def test_gradients_of_shares_and_components():
    logits = torch.zeros((1, 2), dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    one = torch.ones(1, dtype=torch.float64)
    t = torch.tensor([0.7], dtype=torch.float64)

    def term(logits, scale):
        d = CauseMixture(logits, [Weibull(scale, one), Weibull(one, one)])
        return d.log_cause_density(own_times=t)[:, 0] + d.log_survival(own_times=t)

    assert torch.autograd.gradcheck(term, (logits, scale))
    through = mixture([CauseMixture(logits, [Weibull(scale, one), Weibull(one, one)])] * 2)
    rescaled(through, 2.0).cumulative_incidence(own_times=t)[0, 0].backward()
    assert float(logits.grad.abs().min()) > 0
    assert float(scale.grad.abs()) > 0


def test_shares_that_do_not_fit():
    with pytest.raises(ValueError, match=r"per cause; got shape \(3, 2\) for 3 components of \[3\] subjects"):
        CauseMixture(np.zeros((3, 2)), [weibull()] * 3)
    with pytest.raises(ValueError, match=r"got shape \(2, 1\) for 1 components"):
        CauseMixture(np.zeros((2, 1)), [weibull()])
    with pytest.raises(ValueError, match="at least one of each subject"):
        CauseMixture(np.full((3, 1), -np.inf), [weibull()])
    with pytest.raises(ValueError, match="at least one component"):
        CauseMixture(np.zeros((3, 0)), [])


def test_past_the_horizon_all_hazards_grow_from_their_own_values():
    base, later = by_cause(), np.array([1.6, 2.0, 4.0])
    at_horizon = base.cause_specific_hazard([1.5])
    expected = at_horizon * np.exp(0.3 * (later - 1.5))[None, :, None]
    assert np.ptp(at_horizon / at_horizon.sum(-1, keepdims=True)) > 0.1  # causes that differ
    np.testing.assert_allclose(continued(base, 1.5, 0.3).cause_specific_hazard(later), expected, rtol=1e-10)


def test_incidences_of_hazards_equal_adaptive_quadrature():
    d = cause_specific([weibull(), log_normal(), gompertz()])
    times = np.array([0.03, 1.0, 20.0])
    incidence = d.cumulative_incidence(times)
    for i in range(N):
        row = d[i]
        for j, t in enumerate(times):
            area, _ = integrate.quad_vec(
                lambda u, row=row: math.exp(u) * row.cause_density(math.exp(u))[0],
                -35.0,
                math.log(t),
                limit=400,
                epsabs=1e-12,
                epsrel=1e-11,
            )
            np.testing.assert_allclose(area, incidence[i, j], rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        d.cause_specific_hazard(times),
        np.stack([part.hazard(times) for part in (weibull(), log_normal(), gompertz())], axis=-1),
        rtol=1e-8,
    )
    product = weibull().survival(times) * log_normal().survival(times) * gompertz().survival(times)
    np.testing.assert_allclose(d.survival(times), product, rtol=1e-12)


def test_incidences_of_constant_hazards_have_a_formula():
    d = cause_specific([Weibull([1.0], [1.0]), Weibull([0.5], [1.0])])
    t = np.array([1e-12, 1e-3, 0.2, 1.0, 30.0, 1e4])
    expected = -np.expm1(-3 * t)[:, None] * np.array([1 / 3, 2 / 3])
    np.testing.assert_allclose(d.cumulative_incidence(t)[0], expected, rtol=1e-9)


def test_step_hazards_share_the_fall_at_their_knots():
    d = cause_specific([tabulated("step"), Tabulated(KNOTS + 0.25, TO_ZERO)])
    assert isinstance(d, TabulatedRisks)
    first, second = tabulated("step"), Tabulated(KNOTS + 0.25, TO_ZERO)
    knots = np.sort([*KNOTS, *(KNOTS + 0.25)])
    survival = np.column_stack([np.ones(N), first.survival(knots) * second.survival(knots)])
    fall = -np.diff(survival, axis=1)
    expected = np.cumsum(np.where(np.isin(knots, KNOTS), fall, 0.0), axis=1)  # no knot is of both
    np.testing.assert_allclose(d.cumulative_incidence(knots)[..., 0], expected, rtol=1e-12)
    together = cause_specific([tabulated("step")] * 2)
    np.testing.assert_allclose(together.survival(KNOTS), tabulated("step").survival(KNOTS) ** 2, rtol=1e-12)
    halves = together.cumulative_incidence(KNOTS)
    np.testing.assert_allclose(halves[..., 0], halves[..., 1], rtol=1e-12)
    ends = cause_specific([tabulated("step", TO_ZERO), tabulated("step")])  # the last fall is all of the first's
    assert (ends.survival(8.0) == 0).all()
    rise = np.diff(ends.cumulative_incidence([5.0, 8.0]), axis=1)[:, 0]
    np.testing.assert_allclose(rise, np.column_stack([ends.survival(5.0), np.zeros(N)]), atol=1e-15)


def test_a_step_curve_among_smooth_hazards_keeps_the_sums():
    d = cause_specific([weibull(), tabulated("step")])
    t = np.array([0.1, 0.5, 1.3, 9.0])
    np.testing.assert_allclose(d.survival(t), weibull().survival(t) * tabulated("step").survival(t), rtol=1e-12)
    np.testing.assert_allclose(d.cumulative_incidence(t).sum(-1) + d.survival(t), 1.0, atol=1e-15)
    np.testing.assert_allclose(d.cumulative_incidence(0.49)[:, 1], 0.0, atol=1e-15)


def test_densities_of_steps_are_those_of_each_causes_own_times():
    times = [1.0, 2.0, 3.0, 4.0, 5.0]
    first = np.array([0.1, 0.1, 0.2, 0.2, 0.4])
    second = np.array([0.0, 0.3, 0.3, 0.5, 0.5])
    d = TabulatedRisks(times, np.stack([first, second], axis=-1))
    t = np.array([0.5, 1.0, 1.5, 2.2, 3.7, 4.5, 7.0])
    alone = [Tabulated([1.0, 3.0, 5.0], 1 - first[[0, 2, 4]]), Tabulated([2.0, 4.0], 1 - second[[1, 3]])]
    for k, curve in enumerate(alone):
        np.testing.assert_allclose(d.cause_density(t)[..., k], curve.density(t), rtol=1e-12)
    assert np.isfinite(d.log_cause_density(t)).all()
    narrow = TabulatedRisks(times, np.stack([first, second], axis=-1), half_width=1)
    np.testing.assert_allclose(narrow.cause_density(2.5), [[0.05, 0.1]], rtol=1e-12)
    # rows keep the times of all: density zero where a subject's own curve is flat, unless windows widen
    two = np.stack([np.stack([first, second], -1), np.stack([first * [1, 1, 0.5, 0.5, 0.25], second], -1)])
    flat = TabulatedRisks(times, two, half_width=1)[[1]]
    assert flat.cause_density(2.0)[0, 0] == 0.0
    wide = TabulatedRisks(times, two, half_width=1, widen=True)[[1]]
    assert wide.cause_density(2.0)[0, 0] > 0.0


def test_tables_that_cannot_be():
    fine = np.array([[0.1, 0.2], [0.3, 0.2]])
    with pytest.raises(ValueError, match=r"sum to one at most; got 1\.1"):
        TabulatedRisks([1.0, 2.0], [[0.1, 0.2], [0.9, 0.2]])
    with pytest.raises(ValueError, match="never decrease"):
        TabulatedRisks([1.0, 2.0], fine[::-1])
    with pytest.raises(ValueError, match=r"times \(3,\), incidence \(1, 2, 2\)"):
        TabulatedRisks([1.0, 2.0, 3.0], fine)
    with pytest.raises(ValueError, match="must sum to one"):
        TabulatedRisks([1.0, 2.0], fine, [0.7, 0.4])
    with pytest.raises(ValueError, match="strictly increasing"):
        TabulatedRisks([2.0, 1.0], fine)
    repeated = TabulatedRisks([1.0, 2.0], fine).repeat(4)
    assert repeated.cumulative_incidence(2.0).shape == (4, 2)


def test_functions_pick_the_kind():
    plain, risks = weibull(), by_cause()
    assert mixture([plain]) is plain
    assert mixture([risks]) is risks
    assert type(mixture([plain, plain])) is Mixture
    assert type(mixture([risks, risks], [0.2, 0.8])) is MixtureRisks
    for function, base, argument in ((rescaled, Rescaled, 2.0), (delayed, Delayed, 1.0)):
        assert type(function(plain, argument)) is base
        made = function(risks, argument)
        assert isinstance(made, base)
        assert isinstance(made, CompetingRisksDistribution)
    with pytest.raises(ValueError, match="1 of 2 components have causes"):
        mixture([plain, risks])
    with pytest.raises(ValueError, match=r"same causes; they have \[3, 2\]"):
        mixture([risks, steps_by_cause()])


def test_a_mixture_with_causes_weighs_incidences():
    d, t = mixture([by_cause(), hazards()], [0.3, 0.7]), np.array([0.3, 2.0])
    for name in ("cumulative_incidence", "cause_density", "restricted_time_lost"):
        expected = 0.3 * getattr(by_cause(), name)(t) + 0.7 * getattr(hazards(), name)(t)
        np.testing.assert_allclose(getattr(d, name)(t), expected, rtol=1e-12)
