"""Distributions with several causes, against formulas, quadrature and their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from distribution_kinds import (
    KNOTS,
    SHARES,
    TO_ZERO,
    by_cause,
    gompertz,
    hazards,
    log_normal,
    steps_by_cause,
    tabulated,
    weibull,
)
from sumosurv.distributions import CauseMixture, Continued, Mixture, Rescaled, Tabulated, Weibull, cause_specific
from sumosurv.distributions.causes import log_event_free

N = 3


def test_a_distribution_says_what_it_is():
    d = Rescaled(Mixture([by_cause(), by_cause()]), 2.0)
    d.last_time = 12.345678
    assert repr(d) == (
        "SurvivalDistribution of 3 subjects and 3 causes (mixture of 2 components), extrapolated beyond 12.35"
    )


def test_one_minus_an_incidence_near_one_has_its_digits():
    d = CauseMixture(np.log([[1.0, 1e-30]]), [Weibull([1.0], [1.0]), Weibull([1.0], [1.0])])
    np.testing.assert_allclose(d.cause(1).log_survival([0.5, 40.0]), [[-0.5, -40.0]], rtol=1e-10)
    np.testing.assert_allclose(d.cause(2).cdf(1.0), -1e-30 * np.expm1(-1.0), rtol=1e-10)


@pytest.mark.parametrize("make", [by_cause, lambda: Mixture([by_cause(), by_cause()]), lambda: Rescaled(by_cause(), 2)])
def test_conditional_incidence_keeps_its_digits_where_survival_is_tiny(make):
    d = make()
    after = d.quantile(own_levels=np.full(N, 1 - 1e-15)) * 3
    assert (d.survival(own_times=after) < 1e-14).all()
    given = d.conditional(after)
    for factor in (1.01, 1.3):
        incidence = given.cumulative_incidence(own_times=factor * after)
        assert (incidence.sum(-1) > 0).all()
        np.testing.assert_allclose(incidence.sum(-1), 1 - given.survival(own_times=factor * after), rtol=1e-9)


def test_causes_of_a_mixture_are_drawn_with_their_times():
    d = CauseMixture(np.log([[0.5, 0.5]]), [Weibull([1.0], [1.0]), Weibull([5.0], [3.0])])
    times, causes = d.sample(4000, random_state=0, return_causes=True)
    for k, shape, scale in ((1, 1.0, 1.0), (2, 3.0, 5.0)):
        own = times[causes == k]
        assert stats.kstest(own, stats.weibull_min(shape, scale=scale).cdf).pvalue > 1e-3


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
    through = Mixture([CauseMixture(logits, [Weibull(scale, one), Weibull(one, one)])] * 2)
    Rescaled(through, 2.0).cumulative_incidence(own_times=t)[0, 0].backward()
    assert float(logits.grad.abs().min()) > 0
    assert float(scale.grad.abs()) > 0


def test_shares_that_do_not_fit():
    with pytest.raises(ValueError, match=r"shape \(3, 2\) for 3 .* \[3\]"):
        CauseMixture(np.zeros((3, 2)), [weibull()] * 3)
    with pytest.raises(ValueError, match=r"got shape \(2, 1\) for 1 components"):
        CauseMixture(np.zeros((2, 1)), [weibull()])
    with pytest.raises(ValueError, match="log_shares"):
        CauseMixture(np.full((3, 1), -np.inf), [weibull()])
    with pytest.raises(ValueError, match="at least one component"):
        CauseMixture(np.zeros((3, 0)), [])


def test_past_the_horizon_all_hazards_grow_from_their_own_values():
    base, later = by_cause(), np.array([1.6, 2.0, 4.0])
    at_horizon = base.cause_specific_hazard([1.5])
    expected = at_horizon * np.exp(0.3 * (later - 1.5))[None, :, None]
    assert np.ptp(at_horizon / at_horizon.sum(-1, keepdims=True)) > 0.1  # causes that differ
    np.testing.assert_allclose(Continued(base, 1.5, 0.3).cause_specific_hazard(later), expected, rtol=1e-10)


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
    assert isinstance(d, Tabulated)
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
    d = Tabulated(times, incidence=np.stack([first, second], axis=-1))
    t = np.array([0.5, 1.0, 1.5, 2.2, 3.7, 4.5, 7.0])
    alone = [Tabulated([1.0, 3.0, 5.0], 1 - first[[0, 2, 4]]), Tabulated([2.0, 4.0], 1 - second[[1, 3]])]
    for k, curve in enumerate(alone):
        np.testing.assert_allclose(d.cause_density(t)[..., k], curve.density(t), rtol=1e-12)
    assert np.isfinite(d.log_cause_density(t)).all()
    narrow = Tabulated(times, incidence=np.stack([first, second], axis=-1), half_width=1)
    np.testing.assert_allclose(narrow.cause_density(2.5), [[0.05, 0.1]], rtol=1e-12)
    # rows keep the times of all: density zero where a subject's own curve is flat, unless windows widen
    two = np.stack([np.stack([first, second], -1), np.stack([first * [1, 1, 0.5, 0.5, 0.25], second], -1)])
    flat = Tabulated(times, incidence=two, half_width=1)[[1]]
    assert flat.cause_density(2.0)[0, 0] == 0.0
    wide = Tabulated(times, incidence=two, half_width=1, widen=True)[[1]]
    assert wide.cause_density(2.0)[0, 0] > 0.0


def test_tables_that_cannot_be():
    fine = np.array([[0.1, 0.2], [0.3, 0.2]])
    with pytest.raises(ValueError, match=r"sum to at most one; got 1\.1"):
        Tabulated([1.0, 2.0], incidence=[[0.1, 0.2], [0.9, 0.2]])
    with pytest.raises(ValueError, match="never decrease"):
        Tabulated([1.0, 2.0], incidence=fine[::-1])
    with pytest.raises(ValueError, match=r"times \(3,\).*\(1, 2\)"):
        Tabulated([1.0, 2.0, 3.0], incidence=fine)
    with pytest.raises(ValueError, match="must sum to one"):
        Tabulated([1.0, 2.0], [0.7, 0.4], fine)
    with pytest.raises(ValueError, match="strictly increasing"):
        Tabulated([2.0, 1.0], incidence=fine)
    repeated = Tabulated([1.0, 2.0], incidence=fine).repeat(4)
    assert repeated.cumulative_incidence(2.0).shape == (4, 2)


def test_components_of_a_mixture_have_the_same_causes():
    assert Mixture.of([by_cause()]).n_causes == 3
    for wrong in (weibull(), steps_by_cause()):
        with pytest.raises(ValueError, match=rf"causes.*\[3, {wrong.n_causes}\]"):
            Mixture([by_cause(), wrong])


def test_a_mixture_with_causes_weighs_incidences():
    d, t = Mixture([by_cause(), hazards()], [0.3, 0.7]), np.array([0.3, 2.0])
    for name in ("cumulative_incidence", "cause_density", "restricted_time_lost"):
        expected = 0.3 * getattr(by_cause(), name)(t) + 0.7 * getattr(hazards(), name)(t)
        np.testing.assert_allclose(getattr(d, name)(t), expected, rtol=1e-12)


@pytest.mark.parametrize("late", [0.5, 60.0])
def test_all_causes_at_once_are_each_cause(late):
    """Early, 1 - F_k is taken from F_k; late, from S and the other causes, without cancellation."""
    d = CauseMixture(np.log([[1 - 1e-12, 1e-12]]), [Weibull([1.0], [1.0]), Weibull([5.0], [1.0])])
    rest = [np.log(1e-12 + (1 - 1e-12) * np.exp(-late)), np.log1p(1e-12 * np.expm1(-late / 5))]
    np.testing.assert_allclose(log_event_free(d, [late])[0, 0], rest, rtol=1e-9)
    np.testing.assert_array_equal(log_event_free(d, [late])[0, 0, 0], d.cause(1).log_survival([late])[0, 0])
