"""A distribution is the weighted mean of its members."""

import numpy as np
import pytest

from distribution_kinds import KINDS
from sumosurv.distributions import CompetingRisksDistribution, Continued, Mixture, Weibull, mixture, rescaled


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_the_mean_of_its_members(name):
    kind = KINDS[name]
    d = kind()
    times = kind.scale * np.array([0.0, 0.1, 0.4, 0.7, 1.0])
    members = d.members()
    assert sum(weight for weight, _ in members) == pytest.approx(1.0)
    assert {len(one) for _, one in members} == {len(d)}
    if isinstance(d, Continued):
        times = times[times <= d.horizon]
    mean = sum(weight * one.survival(times) for weight, one in members)
    np.testing.assert_allclose(mean, d.survival(times), atol=1e-10)
    if isinstance(d, CompetingRisksDistribution):
        mean = sum(weight * one.cumulative_incidence(times) for weight, one in members)
        np.testing.assert_allclose(mean, d.cumulative_incidence(times), atol=1e-10)


def test_members_of_mixtures_in_mixtures():
    inner = Mixture([Weibull([1.0], 1.0), Weibull([2.0], 1.0)], [0.4, 0.6])
    d = Continued(rescaled(mixture([inner, Weibull([3.0], 1.0)], [0.5, 0.5]), 10.0), 50.0, 0.01)
    d.last_time = 50.0
    members = d.members()
    np.testing.assert_allclose([weight for weight, _ in members], [0.2, 0.3, 0.5])
    assert [one.last_time for _, one in members] == [50.0] * 3
    np.testing.assert_allclose([one.survival(10.0)[0] for _, one in members], np.exp([-1.0, -0.5, -1 / 3]))
