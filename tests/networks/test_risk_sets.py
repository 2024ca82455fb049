"""Risk sets of rows that enter late and rows that count more than once: likelihood, controls, baselines."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sumosurv.networks import Inputs, Observed, Table
from sumosurv.networks.case_control import CaseControl, case_control_terms
from sumosurv.networks.risk import partial_log_likelihood


def rows(members=2, n=30, seed=0):
    rng = np.random.default_rng(seed)
    time = np.ceil(5 * rng.random((members, n)))
    time[:, :3] = 0.0
    entry = np.where(rng.random((members, n)) < 0.6, np.floor(0.8 * time), 0.0)
    event, present = rng.random((members, n)) < 0.6, rng.random((members, n)) < 0.8
    weight = rng.integers(1, 4, (members, n)).astype(float)
    return [torch.from_numpy(part) for part in (rng.normal(size=(members, n)), time, event, present, entry, weight)]


def literal(g, time, event, present, entry, weight):
    """Row by row, every other row looked at."""
    result = np.zeros(g.shape)
    for k in range(len(g)):
        for i in range(g.shape[1]):
            if event[k, i] and present[k, i]:
                entered = (entry[k] < time[k, i]) | (entry[k] == 0)
                at_risk = present[k] & (time[k] >= time[k, i]) & entered
                result[k, i] = g[k, i] - np.log((weight[k] * np.exp(g[k]))[at_risk].sum())
    return result


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_partial_likelihood_is_that_of_the_formula(weighted, late):
    g, time, event, present, entry, weight = rows()
    options = {"entry": entry if late else None, "weight": weight if weighted else None}
    terms = partial_log_likelihood(g, time, event, present, **options)
    whole = [g, time, event, present, entry if late else 0 * entry, weight if weighted else torch.ones_like(weight)]
    np.testing.assert_allclose(terms, literal(*(part.numpy() for part in whole)), rtol=1e-12, atol=1e-12)
    shifted = partial_log_likelihood(g + 900.0, time, event, present, **options)
    torch.testing.assert_close(shifted, terms, rtol=1e-9, atol=1e-9)


def test_its_gradient_is_right_and_padding_has_none():
    g, time, event, present, entry, weight = rows(n=12)
    present[1] = False  # a member that has no rows left in a batch
    g.requires_grad_(True)

    def terms(x):
        return partial_log_likelihood(x, time, event, present, entry=entry, weight=weight)

    assert torch.autograd.gradcheck(terms, g)
    (slope,) = torch.autograd.grad(terms(g).sum(), g)
    assert torch.isfinite(slope).all()
    assert (slope[~present] == 0).all()


def test_entry_zero_is_no_entry():
    g, time, event, present, entry, weight = rows()
    zero = partial_log_likelihood(g, time, event, present, entry=0 * entry, weight=weight)
    torch.testing.assert_close(zero, partial_log_likelihood(g, time, event, present, weight=weight), rtol=1e-12, atol=0)


def test_risks_far_larger_that_enter_later_do_not_swallow_a_case():
    g = torch.tensor([[-60.0, 0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    time, entry = torch.tensor([[1.0, 4.0, 5.0]]).double(), torch.tensor([[0.0, 2.0, 3.0]]).double()
    event = torch.tensor([[True, True, False]])
    terms = partial_log_likelihood(g, time, event, torch.ones(1, 3, dtype=torch.bool), entry=entry)
    np.testing.assert_allclose(terms.detach()[0], [0.0, -np.log(1 + np.e), 0.0], atol=1e-12)
    (slope,) = torch.autograd.grad(terms.sum(), g)
    assert torch.isfinite(slope).all()


def test_single_precision_holds_for_many_rows():
    rng = np.random.default_rng(0)
    n = 20_000
    time = rng.exponential(size=n)
    entry = time * rng.random(n)
    full = [torch.from_numpy(part)[None] for part in (rng.normal(size=n), time, rng.random(n) < 0.5, np.ones(n, bool))]
    exact = partial_log_likelihood(*full, entry=torch.from_numpy(entry)[None])
    half = [part.float() if part.is_floating_point() else part for part in full]
    rough = partial_log_likelihood(*half, entry=torch.from_numpy(entry)[None].float())
    assert rough.dtype == torch.float32
    assert (rough - exact).abs().mean() < 1e-5


def test_whole_weights_are_repeated_rows():
    g, time, event, _, entry, weight = rows(members=1)
    whole = torch.ones(1, 30, dtype=torch.bool)
    again = torch.repeat_interleave(torch.arange(30), weight[0].long())
    repeated = [part[:, again] for part in (g, time, event, whole)]
    terms = partial_log_likelihood(g, time, event, whole, entry=entry, weight=weight)
    torch.testing.assert_close(terms[:, again], partial_log_likelihood(*repeated, entry=entry[:, again]))


# ---------------------------------------------------------------------- controls


def table_of(time, entry=None, weight=None):
    inputs = Inputs(torch.zeros(len(time), 1), torch.zeros(len(time), 0, dtype=torch.long))
    return Table(inputs, Observed(torch.ones_like(time, dtype=torch.bool), time, entry=entry, weight=weight))


TIME = torch.tensor([1.0, 2.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 0.0])
ENTRY = torch.tensor([0.0, 0.0, 1.0, 2.0, 1.0, 3.0, 2.5, 1.5, 0.0])
WEIGHT = torch.tensor([1.0, 2.0, 1.0, 3.0, 1.0, 0.5, 2.0, 4.0, 1.0])


@pytest.mark.parametrize("entry", [None, ENTRY])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_controls_are_drawn_from_the_risk_set_as_often_as_they_weigh(weight, entry):
    own = [np.array([0, 1, 2, 3, 4, 5, 8]), np.array([2, 3, 6, 7, 4])]
    table = table_of(TIME, entry, weight)
    controls = CaseControl(torch.tensor([1, 2]), 4000).train()
    controls.take(table, own)
    cases = table.batch(torch.tensor([[1, 4, 0, 8], [2, 3, 7, 4]]), torch.ones(2, 4, dtype=torch.bool))
    drawn = controls.draw(cases)
    assert drawn.shape == (2, 4, 4000)
    each, start = torch.ones(9) if weight is None else weight, torch.zeros(9) if entry is None else entry
    for k in range(2):
        pool = torch.from_numpy(own[k])
        for i in range(4):
            t = cases.outcome.time[k, i]
            at_risk = pool[(TIME[pool] >= t) & ((start[pool] < t) | (start[pool] == 0))]
            found, counts = np.unique(drawn[k, i].numpy(), return_counts=True)
            assert found.tolist() == sorted(at_risk.tolist())
            share = each[torch.from_numpy(found)] / each[at_risk].sum()
            expected = 4000 * share.numpy()
            assert (abs(counts - expected) < 5 * np.sqrt(expected)).all()


def test_where_nobody_is_at_risk_no_control_is_found():
    # the row that comes at 3 sees nobody: the others have gone, or have not come
    table = table_of(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([0.0, 2.0, 4.0]))
    controls = CaseControl(torch.tensor([1]), 5).train()
    controls.take(table, [np.array([0, 2])])
    batch = table.batch(torch.tensor([[1, 2]]), torch.ones(1, 2, dtype=torch.bool))
    assert controls.draw(batch).tolist() == [[[-1] * 5, [2] * 5]]


@pytest.mark.parametrize("early", [True, False])
def test_controls_are_found_where_few_of_those_still_there_have_entered_or_the_other_way_round(early):
    # at 2.0, 3 of 5000 rows are at risk: the others come later, or have left
    few = torch.arange(5000) < 3
    time = torch.where(few, 3.0, 9.0) if early else torch.where(few, 3.0, 1.0)
    entry = torch.where(few, 0.5, 5.0) if early else torch.full((5000,), 0.5)
    table = table_of(time, entry)
    controls = CaseControl(torch.tensor([1]), 50).train()
    controls.take(table, [np.arange(5000)])
    at = table_of(torch.full((5000,), 2.0), entry)
    drawn = controls.draw(at.batch(torch.tensor([[0]]), torch.ones(1, 1, dtype=torch.bool)))
    assert set(drawn.flatten().tolist()) == {0, 1, 2}


def test_validation_controls_come_from_the_rows_themselves_and_stay():
    table = table_of(torch.arange(50.0) + 1.0, torch.arange(50.0) - torch.clamp(torch.arange(50.0), max=20.0))
    index, present = torch.tensor([[3, 10, 20, 30, 45]]), torch.tensor([[True, True, True, False, True]])
    controls = CaseControl(torch.tensor([1]), 60).eval()
    drawn = controls.draw(table.batch(index, present))
    torch.testing.assert_close(controls.draw(table.batch(index, present)), drawn)
    assert set(drawn[0, 0].tolist()) == {3, 10, 20}
    assert set(drawn[0, 4].tolist()) == {45}


def test_controls_that_were_not_found_add_nothing():
    rng = np.random.default_rng(0)
    case, controls = torch.from_numpy(rng.normal(size=(1, 4))), torch.from_numpy(rng.normal(size=(1, 4, 3)))
    found = torch.tensor([[[True, True, True], [True, False, True], [False, False, True], [False, False, False]]])
    event = torch.ones(1, 4, dtype=torch.bool)
    controls.requires_grad_(True)
    got = case_control_terms(case, controls, event, 0.1, found)
    for i in range(4):
        own = controls[0, i][found[0, i]].detach().numpy()
        g = case[0, i].item()
        mean = abs(own).mean() if len(own) else 0.0
        expected = -np.log(1 + np.exp(own - g).sum()) - 0.1 * (abs(g) + mean)
        assert got[0, i].item() == pytest.approx(expected, rel=1e-12)
    (slope,) = torch.autograd.grad(got.sum(), controls)
    assert (slope[~found] == 0).all()
    assert torch.isfinite(slope).all()
