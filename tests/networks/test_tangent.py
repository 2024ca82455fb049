"""The fast way through the layers, with gradients by hand, is the plain way; what is remembered of a table is true."""

from __future__ import annotations

import pytest
import torch

import small_networks
from sumosurv.networks import Batch, MixedNetwork, Observed, Table
from sumosurv.networks.layers import tangent_layer, weighted_sum


def batch(members, n=7):
    """Rows of a table in another order for each member, in double precision."""
    y = small_networks.outcome(n)
    table = Table(small_networks.inputs(n), Observed.of(y.on_clock(unit=y.time.max()), torch.float64))
    index = torch.stack([torch.randperm(n, generator=torch.Generator().manual_seed(k)) for k in range(members)])
    return table.batch(index, torch.ones_like(index, dtype=torch.bool))


def terms_and_gradients(net, rows):
    terms = net.terms(rows)
    weights = torch.linspace(0.5, 2.0, terms.numel(), dtype=terms.dtype).reshape(terms.shape)
    return terms, *torch.autograd.grad((terms * weights).sum(), list(net.parameters()), materialize_grads=True)


@pytest.mark.parametrize("widths", [(5,), (6, 6), (3, 7, 7)])
@pytest.mark.parametrize("proper", [True, False])
def test_likelihood_and_gradients_are_those_of_the_plain_path(monkeypatch, widths, proper):
    kind = "marginal" if proper else "linear"
    net = small_networks.network((0, 1, 2), widths=widths, proper=proper, kind=kind, noise=0.3)
    for p in net.parameters():
        p.requires_grad_(True)
    rows = batch(3)
    for training in (True, False):
        net.train(training)
        fast = terms_and_gradients(net, rows)
        with monkeypatch.context() as patch:
            patch.setattr(MixedNetwork, "has_fast_slopes", False)
            plain = terms_and_gradients(net, rows)
        torch.testing.assert_close(fast, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("residual", [True, False])
def test_gradients_of_a_layer_are_those_of_differences(blocks, shared, residual):
    torch.manual_seed(0)
    n, width = 3, 4
    rows = torch.randn(2, (blocks + 1) * n, width, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, width, width, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(2, 1 if shared else n, width, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *x: tangent_layer(*x, blocks, residual=residual), (rows, weight, bias))
    assert torch.autograd.gradcheck(weighted_sum, (rows, weight[:, :, :1]))


def test_proportional_hazards_look_up_their_baseline():
    net, rows = small_networks.proportional((0, 1)), batch(2)
    found = net.terms(rows)
    curves, outcome = net.curves(net.encoder(rows.inputs)), rows.outcome[..., None]
    torch.testing.assert_close(found[..., None], curves.observed(outcome.time, outcome.event), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("make", [small_networks.network, small_networks.proportional])
def test_times_that_change_in_place_are_looked_at_again(make):
    net, rows = make((0, 1)), batch(2)
    before = net.terms(rows)
    rows.table.outcome.time.mul_(0.5)
    again = rows.table.batch(rows.index, rows.present)
    fresh = Table(rows.table.inputs, rows.table.outcome)
    expected = net.terms(Batch(again.inputs, again.outcome, again.present, again.index, fresh))
    torch.testing.assert_close(net.terms(again), expected, rtol=0, atol=0)
    assert not torch.equal(expected, before)


def test_what_is_remembered_is_computed_once():
    rows, calls = batch(1), []
    for _ in range(3):
        rows.table.remembered("owner", lambda times: calls.append(1) or times + 1.0)
    assert len(calls) == 1
