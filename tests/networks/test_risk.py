"""Partial likelihood and case-control sampling, row by row."""

from __future__ import annotations

import numpy as np
import torch

from sumosurv.networks import Inputs, Observed, Table
from sumosurv.networks.case_control import CaseControl, case_control_terms
from sumosurv.networks.risk import partial_log_likelihood


def rows(members=2, n=30, seed=0):
    rng = np.random.default_rng(seed)
    time = torch.from_numpy(np.ceil(5 * rng.random((members, n))))
    event = torch.from_numpy(rng.random((members, n)) < 0.6)
    present = torch.from_numpy(rng.random((members, n)) < 0.8)
    return torch.from_numpy(rng.normal(size=(members, n))), time, event, present


def literal(g, time, event, present):
    result = np.zeros(g.shape)
    for k in range(len(g)):
        for i in range(g.shape[1]):
            if event[k, i] and present[k, i]:
                at_risk = present[k] & (time[k] >= time[k, i])
                result[k, i] = g[k, i] - np.log(np.exp(g[k][at_risk]).sum())
    return result


def test_the_partial_likelihood_is_that_of_the_formula_with_ties_and_padding():
    g, time, event, present = rows()
    terms = partial_log_likelihood(g, time, event, present)
    np.testing.assert_allclose(terms, literal(*(part.numpy() for part in (g, time, event, present))), rtol=1e-12)
    torch.testing.assert_close(partial_log_likelihood(g + 500.0, time, event, present), terms, rtol=1e-9, atol=1e-9)


def test_its_gradient_is_right_and_padding_has_none():
    g, time, event, present = rows(n=12)
    g.requires_grad_(True)
    assert torch.autograd.gradcheck(lambda x: partial_log_likelihood(x, time, event, present), g)
    (slope,) = torch.autograd.grad(partial_log_likelihood(g, time, event, present).sum(), g)
    assert (slope[~present] == 0).all()


def test_case_control_terms():
    rng = np.random.default_rng(0)
    case, controls = rng.normal(size=(2, 5)), rng.normal(size=(2, 5, 3))
    event = rng.random((2, 5)) < 0.6
    got = case_control_terms(torch.from_numpy(case), torch.from_numpy(controls), torch.from_numpy(event), 0.1)
    loss = np.log(1 + np.exp(controls - case[..., None]).sum(-1)) + 0.1 * (abs(case) + abs(controls).mean(-1))
    np.testing.assert_allclose(got, np.where(event, -loss, 0.0), rtol=1e-12)


def table_of(time, event=None):
    inputs = Inputs(torch.zeros(time.numel(), 1), torch.zeros(time.numel(), 0, dtype=torch.long))
    return Table(inputs, Observed(torch.ones_like(time, dtype=torch.bool) if event is None else event, time))


def batch(time, index, present):
    return table_of(time).batch(index, present)


def test_controls_are_drawn_evenly_from_the_risk_set_of_the_member():
    time = torch.tensor([1.0, 2.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    own = [np.array([0, 1, 2, 3, 4, 5]), np.array([2, 3, 6, 7])]
    controls = CaseControl(torch.tensor([1, 2]), 2000).train()
    controls.take(table_of(time), own)
    cases = batch(time, torch.tensor([[1, 4, 0], [2, 3, 7]]), torch.ones(2, 3, dtype=torch.bool))
    drawn = controls.draw(cases)
    assert drawn.shape == (2, 3, 2000)
    for k in range(2):
        pool = torch.from_numpy(own[k])
        for i in range(3):
            at_risk = pool[time[pool] >= cases.outcome.time[k, i]].tolist()
            found, counts = np.unique(drawn[k, i].numpy(), return_counts=True)
            assert found.tolist() == sorted(at_risk)
            expected = 2000 / len(at_risk)
            assert (abs(counts - expected) < 5 * np.sqrt(expected)).all()


def test_controls_change_with_the_step_but_not_with_the_company():
    time = torch.arange(50.0)
    index = torch.arange(50)[None].expand(2, -1)
    present = torch.ones(2, 50, dtype=torch.bool)
    both, alone = CaseControl(torch.tensor([7, 8]), 3).train(), CaseControl(torch.tensor([8]), 3).train()
    both.take(table_of(time), [np.arange(50)] * 2)
    alone.take(table_of(time), [np.arange(50)])
    first = both.draw(batch(time, index, present))
    torch.testing.assert_close(alone.draw(batch(time, index[:1], present[:1]))[0], first[1])
    both.step += 1
    assert not torch.equal(both.draw(batch(time, index, present)), first)


def test_validation_controls_come_from_the_rows_themselves_and_stay():
    time = torch.arange(50.0)
    index = torch.tensor([[3, 10, 20, 30]])
    present = torch.tensor([[True, True, True, False]])
    controls = CaseControl(torch.tensor([1]), 50).train()
    controls.take(table_of(time), [np.arange(50)])
    controls.eval()
    drawn = controls.draw(batch(time, index, present))
    controls.step += 5
    torch.testing.assert_close(controls.draw(batch(time, index, present)), drawn)
    assert set(drawn[0, 0].tolist()) == {3, 10, 20}
    assert set(drawn[0, 2].tolist()) == {20}


def test_cases_are_the_rows_with_an_event_or_all_where_there_is_none():
    table = table_of(torch.arange(4.0), torch.tensor([True, False, True, False]))
    found = CaseControl(torch.tensor([1, 2]), 1).take(table, [np.array([0, 1, 2]), np.array([1, 3])])
    assert [part.tolist() for part in found] == [[0, 2], [1, 3]]
