"""The terms of training, several times in one pass, are those of the curves; what is remembered of a table is true."""

from __future__ import annotations

import pytest
import torch

import small_networks
from sumosurv.networks import Batch, Observed, Table


def batch(members, n=7):
    """Rows of a table in another order for each member, in double precision."""
    y = small_networks.outcome(n)
    table = Table(small_networks.inputs(n), Observed.of(y.on_time_scale(unit=y.time.max()), torch.float64))
    index = torch.stack([torch.randperm(n, generator=torch.Generator().manual_seed(k)) for k in range(members)])
    return table.batch(index, torch.ones_like(index, dtype=torch.bool))


@pytest.mark.parametrize("widths", [(5,), (6, 6), (3, 7, 7)])
@pytest.mark.parametrize("proper", [True, False])
def test_likelihood_is_that_of_the_curves(widths, proper):
    kind = "marginal" if proper else "linear"
    net = small_networks.network((0, 1, 2), widths=widths, proper=proper, kind=kind, noise=0.3)
    rows = batch(3)
    curves, outcome = net.curves(net.encoder(rows.inputs)), rows.outcome[..., None]
    log_survival, log_density = curves.log_terms(outcome.time)
    wanted = torch.where(outcome.event, log_density, log_survival)[..., 0]
    torch.testing.assert_close(net.terms(rows), wanted, rtol=1e-12, atol=1e-12)


def test_several_times_in_one_pass():
    mixed = small_networks.network((0, 1), widths=(6, 6), noise=0.3).mixed
    mixed.active = torch.tensor([[True, True], [True, False]])
    rng = torch.Generator().manual_seed(0)
    code = torch.rand(2, 5, mixed.entry.bias.shape[2], dtype=torch.float64, generator=rng)
    t = torch.rand(2, 5, 3, dtype=torch.float64, generator=rng)
    value, slope = mixed.features(t)
    later = mixed.features(t + 0.5)[0]
    found = mixed.from_features(code, torch.stack([value, later, slope], dim=1), with_slope=True)
    wanted = mixed.value(code, t), mixed.value(code, t + 0.5), mixed.value_and_slope(code, t)[1]
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    by_differences = (mixed.value(code, t + 1e-6) - mixed.value(code, t - 1e-6)) / 2e-6
    torch.testing.assert_close(found[2], by_differences, rtol=1e-6, atol=1e-8)


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


def test_what_is_remembered_is_computed_once_and_for_one_owner_at_a_time():
    table, calls = batch(1).table, []
    for owner in ("a", "a", "b", "b", "a"):
        table.remembered(owner, lambda times: calls.append(1) or times + 1.0)
    assert len(calls) == 3  # the features of a component are as large as the table; the next one needs others
