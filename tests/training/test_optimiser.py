"""AdamW for a population against torch's own, member by member."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from sumosurv.networks import select_members
from sumosurv.training.step import PopulationAdamW

RATES, DECAYS = [0.1, 0.01, 0.003], [0.0, 0.3, 0.05]


class Population(nn.Module):
    """Three quadratic problems with parameters of several shapes."""

    def __init__(self, members=3, seed=0):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.a = nn.Parameter(torch.randn(members, 4, 5, generator=g, dtype=torch.float64))
        self.b = nn.Parameter(torch.randn(members, 1, 3, generator=g, dtype=torch.float64))
        self.c = nn.Parameter(torch.randn(members, 2, generator=g, dtype=torch.float64))

    def losses(self, step):
        """One per member; the problem moves with the step."""
        wave = math.sin(step)
        return (
            (self.a - wave).pow(2).flatten(1).mean(1)
            + (self.b * self.b).flatten(1).sum(1) * (1 + wave)
            + self.c.cos().sum(1)
        )


@pytest.fixture(params=["of the CPU", "of CUDA"], autouse=True)
def update(request, monkeypatch):
    """Both ways to update weights, on the CPU."""
    if request.param == "of CUDA":
        monkeypatch.setattr(PopulationAdamW, "_update_on_cpu", PopulationAdamW._update)


def down(optimiser, loss, factor=1.0):
    """Take one step."""
    return optimiser.step(optimiser.gradient(loss), factor)


def make(members=3, scale=1.0):
    net = Population(members)
    rates, decays = torch.tensor(RATES[:members]).double(), torch.tensor(DECAYS[:members]).double()
    return net, PopulationAdamW(net, scale * rates, decays)


def test_each_member_follows_torch_adamw_with_its_own_rate_and_decay():
    net, ours = make()
    for k in range(3):
        alone = Population()
        with torch.no_grad():
            for p in alone.parameters():
                p.data = p.data[k : k + 1].clone()
        theirs = torch.optim.AdamW(alone.parameters(), lr=RATES[k], weight_decay=DECAYS[k])
        for step in range(30):
            theirs.zero_grad()
            alone.losses(step).sum().backward()
            theirs.step()
        if k == 0:
            for step in range(30):
                assert down(ours, net.losses(step).sum()).all()
        for mine, other in zip(net.parameters(), alone.parameters()):
            torch.testing.assert_close(mine[k], other[0], rtol=1e-6, atol=1e-9)


def test_the_factor_scales_every_rate():
    net, ours = make()
    twin, theirs = make(scale=0.25)
    for step in range(5):
        down(ours, net.losses(step).sum(), 0.25)
        down(theirs, twin.losses(step).sum())
    torch.testing.assert_close(ours.weights, theirs.weights)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_member_without_a_finite_gradient_stands_still_and_the_others_do_not_notice(bad):
    net, ours = make()
    calm, reference = make()
    before = ours.weights[1].clone()
    spoil = torch.tensor([1.0, bad, 1.0], dtype=torch.float64)
    for step in range(4):
        taken = down(ours, (net.losses(step) * spoil).sum())
        down(reference, calm.losses(step).sum())
        assert taken.tolist() == [True, False, True]
    assert torch.equal(ours.weights[1], before)
    assert torch.equal(ours.weights[[0, 2]], reference.weights[[0, 2]])
    # once it recovers it starts as if nothing had been
    down(ours, net.losses(0).sum())
    fresh, first = make()
    down(first, fresh.losses(0).sum())
    torch.testing.assert_close(ours.weights[1], first.weights[1])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_step_that_is_not_taken_leaves_no_trace(bad):
    """After good steps, whose moments would decay: weights, moments and count are those of who never met it."""
    net, ours = make()
    calm, reference = make()
    for step in range(3):
        down(ours, net.losses(step).sum())
        down(reference, calm.losses(step).sum())
    before = ours.mean[1].clone(), ours.square[1].clone(), ours.weights[1].clone()
    assert all((value != 0).any() for value in before)
    down(ours, (net.losses(7) * torch.tensor([1.0, bad, 1.0], dtype=torch.float64)).sum())
    assert all(torch.equal(a, b) for a, b in zip(before, (ours.mean[1], ours.square[1], ours.weights[1])))
    assert ours.count[:, 0].tolist() == [4, 3, 4]
    down(ours, net.losses(3).sum())
    down(reference, calm.losses(3).sum())
    torch.testing.assert_close(ours.weights[1], reference.weights[1], rtol=1e-12, atol=0)


def test_parameters_are_views_of_one_matrix():
    net, ours = make()
    assert all(torch.equal(p, view) for p, view in zip(net.parameters(), ours.views(ours.weights)))
    # products of matrices round differently if alignments differ, for example if there are fewer members
    assert all((p[k].data_ptr() - ours.weights.data_ptr()) % 64 == 0 for p in net.parameters() for k in range(3))
    with torch.no_grad():
        ours.weights[1] = 7.0
    assert all((p[1] == 7.0).all() for p in net.parameters())
    assert not any((p[0] == 7.0).any() for p in net.parameters())
    part = select_members(net, slice(1, 2))
    assert all((p == 7.0).all() and len(p) == 1 for p in part.parameters())
    np.testing.assert_array_equal(part.a.numpy(), net.a[1:2].detach().numpy())
