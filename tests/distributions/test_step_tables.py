"""Step curves stay known as such through time scales and mixtures, to the last bit of every knot."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from distribution_kinds import FALLING, KINDS, KNOTS, TO_ZERO, step_with_an_atom
from sumosurv.distributions import Delayed, Mixture, Remaining, Rescaled, Tabulated

STEPS = {
    "tabulated step",
    "tabulated step, not all",
    "tabulated, proportional hazards",
    "recalibrated step",
    "recalibrated rescaled step",
    "mixture of steps",
    "rescaled step",
    "delayed step",
    "remaining step",
    "causes, steps",
    "cause-specific steps",
    "table of causes, step",
    "table of causes, step to zero",
    "mixture of tables with causes",
    "delayed table of causes",
    "conditional table of causes",
    "conditional step",
    "path of steps",
    "remaining steps of causes",
    "path of a table of causes",
    "time of a cause, steps",
}


@pytest.mark.parametrize("name", KINDS)
def test_who_has_a_table(name):
    assert (KINDS[name]().step_table() is not None) == (name in STEPS)


def recorded_times(n=400, seed=0):
    """Times as they are recorded, with ties: whole days, and days in years."""
    days = np.floor(np.random.default_rng(seed).exponential(700.0, n)) + 1.0
    return np.unique(days), np.unique(days / 365.25)


def random_table(times, n=3, seed=1):
    rng = np.random.default_rng(seed)
    return np.cumprod(rng.uniform(0.9, 0.999, size=(n, len(times))), axis=1)


DAYS, YEARS = recorded_times()
UNIT = float(DAYS.max())


def on_the_time_scale_of_a_network(times=DAYS, unit=UNIT, seed=1):
    """A table at the training times in the unit that a network trains in."""
    return Rescaled(Tabulated(times / unit, random_table(times, seed=seed)), unit)


CASES = {
    "plain": Tabulated(YEARS, random_table(YEARS)),
    "rescaled": on_the_time_scale_of_a_network(),
    "rescaled years": on_the_time_scale_of_a_network(YEARS, float(YEARS.max())),
    "rescaled twice": Rescaled(on_the_time_scale_of_a_network(), 1 / 365.25),
    "delayed": Delayed(on_the_time_scale_of_a_network(), 17.3),
    "delayed, atom": Delayed(step_with_an_atom(), 0.1),
    "remaining": Remaining(on_the_time_scale_of_a_network(), 100.7),
    "remaining by a knot": Remaining(on_the_time_scale_of_a_network(), float(DAYS[5])),
    "remaining next to a knot": Remaining(Tabulated([1.0, 1.0 + 1e-9, 3.0], [0.7, 0.5, 0.1]), 1.0),
    "remaining before all knots": Remaining(Tabulated(KNOTS, FALLING), 0.1),
    "knots that fall together": Delayed(Tabulated([1e-12, 2e-12, 3.0], [0.7, 0.5, 0.1]), 1e6),
    "mixture": Rescaled(Mixture([Tabulated(KNOTS, FALLING), Tabulated(KNOTS, TO_ZERO)], [0.3, 0.7]), 1 / 3),
    "mixture on different knots": Mixture([Tabulated(KNOTS, FALLING), Tabulated(1.1 * KNOTS, TO_ZERO)]),
    "mixture of time scales": Mixture([on_the_time_scale_of_a_network(seed=s) for s in (1, 2, 3)]),
    "single precision": Rescaled(
        Tabulated(torch.from_numpy(DAYS / UNIT).float(), torch.from_numpy(random_table(DAYS)).float()), UNIT
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_table_says_what_the_curves_say_at_and_beside_every_knot(name):
    d = CASES[name]
    knots, table = d.step_table()
    assert knots[0] == 0.0
    assert bool((torch.diff(knots) > 0).all())
    beside = [torch.nextafter(knots, torch.full_like(knots, end)).clamp_min(0.0) for end in (-np.inf, np.inf)]
    recorded = torch.from_numpy(np.concatenate([DAYS, YEARS, [0.0, np.inf]])).to(knots)
    between = torch.rand(500, generator=torch.Generator().manual_seed(0)).to(knots) * 1.1 * knots[-1]
    times = torch.cat([knots, *beside, recorded, between])
    columns = torch.searchsorted(knots, times, right=True) - 1
    tolerance = 1e-12 if knots.dtype == torch.float64 else 1e-5
    torch.testing.assert_close(table[:, columns], d.survival(times), rtol=tolerance, atol=0.0)


def test_times_on_knots_need_more_than_scaled_knots():
    """Otherwise the test above would prove nothing: some products miss the recorded time by a bit."""
    d = CASES["rescaled"]
    knots = d.step_table()[0].numpy()[1:]
    np.testing.assert_array_equal(np.searchsorted(knots, DAYS, side="right"), np.arange(1, len(DAYS) + 1))
    assert (d.base.times.numpy()[1:] * UNIT > DAYS).any()


def test_a_table_that_is_not_of_steps_leaves_a_mixture_without_one():
    assert Mixture([Tabulated(KNOTS, FALLING), Tabulated(KNOTS, FALLING, between="density")]).step_table() is None
