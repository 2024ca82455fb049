"""Which rows are validation rows, and how many make a batch."""

import math

import numpy as np
import pytest

from sumosurv.outcome import Outcome
from sumosurv.training.batches import batch_rows, split_rows


@pytest.mark.parametrize(("n", "events", "fraction"), [(10, 5, 0.2), (20, 10, 0.2), (60, 15, 0.4)])
def test_validation_rows_have_the_share_of_events(n, events, fraction):
    outcome = Outcome(np.arange(n) < events, np.arange(n) + 1.0)
    for seed in range(8):
        train, valid = split_rows(outcome, seed, fraction)
        assert sorted([*train, *valid]) == list(range(n))
        assert len(valid) == round(n * fraction)
        assert outcome.event[valid].sum() == round(events * fraction)


def test_two_validation_rows_are_an_event_and_a_censored_row():
    """A tenth of 15 rows is one and a half: two are held out, as many as there are kinds of rows."""
    outcome = Outcome(np.arange(15) < 6, np.arange(15) + 1.0)
    for seed in range(20):
        assert sorted(outcome.event[split_rows(outcome, seed, 0.1)[1]]) == [False, True]


@pytest.mark.parametrize("events", [0, 1, 19, 20])
def test_one_event_or_none_is_split_anyhow(events):
    train, valid = split_rows(Outcome(np.arange(20) < events, np.arange(20) + 1.0), 0, 0.2)
    assert sorted([*train, *valid]) == list(range(20))
    assert len(valid) == 4


@pytest.mark.parametrize("n", [1, 3, 4, 17, 100, 2000, 10**6])
def test_an_automatic_batch_is_the_power_of_two_nearest_to_four_roots_of_n(n):
    size = batch_rows("auto", n)
    wanted = max(8.0, 4.0 * math.sqrt(n))
    assert size.bit_count() == 1
    assert all(abs(math.log2(size / wanted)) <= abs(math.log2(other / wanted)) for other in (size / 2, size * 2))
    assert (batch_rows("full", n), batch_rows(5, n)) == (n, 5)
