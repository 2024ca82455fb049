"""Recorded steps against automatic differentiation, for every network that they support."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import small_networks
from sumosurv import PaperSumoNet, SumoNet, Surv, WeibullNet
from sumosurv.estimators.parametric import ProportionalHazardsNet
from sumosurv.fitting.plan import FitPlan
from sumosurv.networks import Inputs, Observed, Rows, Table
from sumosurv.networks.layers import MemberStream
from sumosurv.networks.recorded import RecordedNetwork, can_record
from sumosurv.training import loop

ROWS, MEMBERS, BATCH = 60, 3, 16
SMALL = {"covariate_layers": (8, 8), "dropout": 0.3}
NETWORKS = {
    "SumoNet": SumoNet(components="networks", time_layers=(6, 6), **SMALL),
    "of three widths": SumoNet(components="networks", covariate_layers=(5, 8, 8), time_layers=(4, 7, 7)),
    "one layer, no waves": SumoNet(components="networks", covariate_layers=(6,), time_layers=(5,), frequencies=0),
    "no dropout": SumoNet(components="networks", covariate_layers=(6, 6), time_layers=(5, 5), dropout=0.0),
    "paper": PaperSumoNet(time_layers=(6, 6), **SMALL),
    "proportional hazards": ProportionalHazardsNet(**SMALL),
}


def rows(event_share=0.7):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(ROWS, 2)), columns=["a", "b"])
    X["c"], X["d"] = rng.choice(list("xyz"), ROWS), rng.choice(list("uv"), ROWS)
    return X, Surv.from_arrays(rng.random(ROWS) < event_share, 0.5 + rng.weibull(1.3, ROWS))


def build(model, X, y):
    """A population with random weights and its table, in double precision."""
    plan = FitPlan(model._resolved(ROWS))
    prepared = model._read(X, y)
    network = plan.build(plan.learn(prepared), np.arange(MEMBERS)).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in network.parameters():
            p += 0.3 * torch.randn(p.shape, generator=generator)
    numbers, y = prepared.table.inputs, prepared.table.outcome
    return network, Table(Inputs(numbers.numeric.double(), numbers.codes), replace(y, time=y.time.double()))


def batches():
    generator = torch.Generator().manual_seed(3)
    for step in range(2):
        index = torch.stack([torch.randperm(ROWS, generator=generator)[:BATCH] for _ in range(MEMBERS)])
        yield step, index, torch.rand(index.shape, generator=generator).double().clamp_min(0.1) - 0.1


@pytest.mark.parametrize("name", NETWORKS)
def test_terms_and_gradients_are_those_of_automatic_differentiation(name):
    network, table = build(NETWORKS[name], *rows())
    parameters, index = list(network.parameters()), torch.zeros(MEMBERS, BATCH, dtype=torch.long)
    views = {p: torch.full_like(p, torch.nan).detach() for p in parameters}
    assert can_record(network, table, training=True)
    recorded = RecordedNetwork(network.train(), table, index, views)
    for step, now, factor in batches():
        index.copy_(now)
        for module in network.modules():
            if isinstance(module, MemberStream):
                module.step.fill_(step)
        wanted = network.terms(table.batch(index, factor > 0))
        gradients = torch.autograd.grad(-(wanted * factor).sum(), parameters)
        found = recorded.terms_and_gradient(factor)
        torch.testing.assert_close(found, wanted.detach(), rtol=1e-9, atol=1e-9)
        for p, gradient in zip(parameters, gradients):
            torch.testing.assert_close(views[p], gradient, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_terms_of_held_out_rows(name):
    network, table = build(NETWORKS[name], *rows())
    network.eval()
    index = torch.arange(ROWS).expand(MEMBERS, -1).contiguous()
    with torch.no_grad():
        wanted = network.terms(table.batch(index, index >= 0))
    assert can_record(network, table, training=False)
    torch.testing.assert_close(RecordedNetwork(network, table, index).terms(), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["SumoNet", "of three widths"])
@pytest.mark.parametrize("at_once", [7, ROWS, 512])
def test_held_out_rows_are_evaluated_some_at_a_time(name, at_once, monkeypatch):
    """Whether they are recorded or not, and whatever the number of rows at a time."""
    network, table = build(NETWORKS[name], *rows())
    if name == "of three widths":
        table.outcome.time[3] = 1.2
    monkeypatch.setattr(loop, "_ROWS_ON_CPU", at_once)
    assert can_record(network, table, training=False) == (name == "SumoNet")
    held_out = Rows.of([np.arange(ROWS), np.arange(5, 50), np.arange(11)])
    found, means = loop.held_out_terms(network, table, held_out), loop.mean_terms(network, table, held_out)
    with torch.no_grad():
        wanted = network.eval().terms(table.batch(held_out.index, held_out.present))
    assert found.shape == wanted.shape
    torch.testing.assert_close(found[held_out.present], wanted[held_out.present], rtol=1e-9, atol=1e-9)
    sums = torch.where(held_out.present, wanted, 0.0).sum(1)
    torch.testing.assert_close(means, sums / held_out.present.sum(1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("activation", ["silu", "tanh"])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("levels", [(), (4,), (3, 5)])
def test_every_covariate_network(activation, residual, levels):
    settings = {"activation": activation, "residual": residual, "levels": levels, "dropout": 0.4}
    network = small_networks.network((0, 1), encoder_widths=(8, 8, 5), levels=levels).train()
    network.encoder = small_networks.table_encoder((0, 1), widths=(8, 8, 5), **settings).double().train()
    y = small_networks.outcome(9)
    inputs = small_networks.inputs(9, levels=levels)
    table = Table(inputs, Observed.of(y.on_time_scale(unit=y.time.max()), torch.float64))
    index, parameters = torch.arange(9).expand(2, -1).contiguous(), list(network.parameters())
    views = {p: torch.empty_like(p).detach() for p in parameters}
    terms = network.terms(table.batch(index, index >= 0))
    gradients = torch.autograd.grad(-terms.sum(), parameters)
    found = RecordedNetwork(network, table, index, views).terms_and_gradient(torch.ones(2, 9).double())
    torch.testing.assert_close(found, terms.detach(), rtol=1e-10, atol=1e-10)
    for p, gradient in zip(parameters, gradients):
        torch.testing.assert_close(views[p], gradient, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("model", "change"),
    [
        (WeibullNet(), lambda y: y),
        (PaperSumoNet(derivative="autograd"), lambda y: y),
        (PaperSumoNet(positive="softplus"), lambda y: y),
        (SumoNet(components="networks", covariate_layers=()), lambda y: y),
        (SumoNet(components="networks"), lambda y: Surv.from_arrays(y["event"], y["time"], entry=0.5 * y["time"])),
        (SumoNet(components="networks"), lambda y: Surv.interval(y["time"], y["time"] + 0.5)),
        (SumoNet(components="networks"), lambda y: Surv.from_arrays(y["event"] * (1 + np.arange(ROWS) % 2), y["time"])),
    ],
)
def test_what_is_differentiated_automatically(model, change):
    X, y = rows()
    network, table = build(model, X, change(y))
    assert not can_record(network, table, training=True)


def test_extrapolated_rows_are_evaluated_by_the_network():
    network, table = build(NETWORKS["SumoNet"], *rows())
    table.outcome.time[3] = 1.2
    assert can_record(network, table, training=True)
    assert not can_record(network, table, training=False)
