"""Which rows are validation rows, and how many make a batch."""

import math

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from sumosurv.outcome import Outcome
from sumosurv.training.batches import batch_rows, fold_rows, split_rows


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


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.3, 0.34, 0.5])
@pytest.mark.parametrize("counts", [(1, 9), (2, 8), (9, 1), (5, 5), (2, 2, 6), (1, 4, 5), (3, 3, 4), (4, 16), (2, 18)])
def test_rows_are_stratified_by_cause_or_event_if_scikit_learn_can(counts, fraction):
    """By cause if every cause can be in both parts, else by event, else not at all."""
    cause = np.repeat(np.arange(len(counts)), counts)
    n = len(cause)
    split = None
    for labels in (cause, cause > 0):
        try:
            split = train_test_split(np.arange(n), test_size=fraction, random_state=3, stratify=labels)
            break
        except ValueError:  # too few of some label
            continue
    if split is None:
        split = train_test_split(np.arange(n), test_size=fraction, random_state=3)
    found = split_rows(Outcome(cause > 0, np.arange(1.0, n + 1), cause=cause), 3, fraction)
    for own, expected in zip(found, split):
        np.testing.assert_array_equal(own, np.sort(expected))


def test_very_few_subjects_are_not_split():
    for n, is_split in ((9, False), (10, True)):
        outcome = Outcome(np.arange(n) % 2 > 0, np.arange(1.0, n + 1))
        assert (split_rows(outcome, 0, 0.2)[1] is not None) == is_split
        assert all((valid is not None) == is_split for _, valid in fold_rows(outcome, 0, 5))
        doubled = Outcome(np.ones(2 * n, bool), np.arange(1.0, 2 * n + 1), group=np.repeat(np.arange(n), 2))
        assert (split_rows(doubled, 0, 0.2)[1] is not None) == is_split
    assert split_rows(outcome, 0, 0.0)[1] is None


@pytest.mark.parametrize("counts", [(4, 16), (5, 15), (3, 17), (3, 2, 15), (5, 5, 10)])
def test_folds_have_equal_shares_of_events_and_hold_out_each_row_once(counts):
    cause = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    folds = fold_rows(Outcome(cause > 0, np.arange(1.0, 21.0), cause=cause), 0, 5)
    held_out = [valid for _, valid in folds]
    np.testing.assert_array_equal(np.sort(np.concatenate(held_out)), np.arange(20))
    for train, valid in folds:
        np.testing.assert_array_equal(np.sort(np.concatenate([train, valid])), np.arange(20))
    by = cause if min(counts) >= 5 else cause > 0 if min(counts[0], 20 - counts[0]) >= 5 else None
    if by is not None:
        for label in np.unique(by):
            share = [np.sum(by[valid] == label) for valid in held_out]
            assert max(share) - min(share) <= 1
