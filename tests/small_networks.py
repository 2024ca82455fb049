"""Small networks with random weights, and a small outcome to fit them to."""

from __future__ import annotations

import numpy as np
import torch

from sumosurv.distributions import Continued
from sumosurv.fitting.prepared import time_features, time_unit
from sumosurv.networks import Batch, Inputs, MixedNetwork, MonotoneNetwork, Observed, Table, TableEncoder
from sumosurv.networks.layers import LOG_OFFSET
from sumosurv.networks.parametric import ProportionalHazardsNetwork
from sumosurv.outcome import Outcome
from sumosurv.training.batches import Member
from sumosurv.training.loop import Schedule, train


def outcome(n=200, seed=0, event_share=0.7):
    rng = np.random.default_rng(seed)
    return Outcome(rng.random(n) < event_share, 3.0 * rng.weibull(1.3, n))


def marginal_knots():
    """Scaled times at which the cubic of the time features has its knots: the density has kinks there."""
    y = outcome()
    table = time_features("marginal", y, time_unit(y)).table
    return tuple(float(place) for place in torch.exp(table[0, 0].double()) - LOG_OFFSET)


def inputs(n=5, n_numeric=3, levels=(4,), seed=1):
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, level, n) for level in levels]
    return Inputs(
        torch.from_numpy(rng.normal(size=(n, n_numeric))),
        torch.from_numpy(np.stack(codes, 1)) if codes else torch.zeros(n, 0, dtype=torch.long),
    )


def table_encoder(seeds=(0,), dropout=0.0, n_numeric=3, levels=(4,), widths=(8, 8), **options):
    settings = {"activation": "silu", "residual": True, "frequencies": 2} | options
    return TableEncoder(
        [torch.Generator().manual_seed(s) for s in seeds],
        torch.tensor(seeds),
        torch.full((len(seeds),), dropout),
        n_numeric=n_numeric,
        levels=levels,
        widths=widths,
        **settings,
    )


def proportional(seeds=(0,), kind="marginal"):
    """Proportional hazards with random weights, in double precision."""
    y = outcome()
    generators = [torch.Generator().manual_seed(s) for s in seeds]
    made = ProportionalHazardsNetwork(generators, table_encoder(seeds), time_features(kind, y, time_unit(y))).double()
    with torch.no_grad():
        made.head.weight.mul_(20.0)
        made.log_power.copy_(torch.linspace(0.3, -0.2, len(seeds), dtype=torch.float64)[:, None])
    return made.eval()


def network(
    seeds=(0,),
    *,
    kind="marginal",
    widths=(6, 6),
    positive="square",
    proper=True,
    derivative="forward",
    noise=0.5,
    encoder_widths=(8, 8),
    growth=0.7,
    **encoder,
):
    """A float64 network in evaluation mode; ``noise`` makes all of its weights random, biases included.

    ``growth`` is that of the hazard past the last training time.
    """
    generators = [torch.Generator().manual_seed(1000 + s) for s in seeds]
    made = table_encoder(seeds, residual=proper, widths=encoder_widths, **encoder)
    y = outcome()
    features = time_features(kind, y, time_unit(y))
    mixed = MixedNetwork(
        generators,
        features,
        n_code=made.width,
        widths=widths,
        positive=positive,
        residual=proper,
        gate=proper,
        skip=proper,
    )
    net = MonotoneNetwork(made, mixed, anchored=proper, tail=proper, derivative=derivative).double().eval()
    net.growth.fill_(growth)
    with torch.no_grad():
        for p in net.parameters():
            p += noise * torch.stack([torch.randn(p.shape[1:], generator=g).double() for g in generators])
    return net


def networks_of(distribution):
    """The distribution of each member up to the last training time, without the extrapolation."""
    parts = getattr(distribution, "components", [distribution])
    return [part.base if isinstance(part, Continued) else part for part in parts]


def terms(net, inputs, time, event):
    """What a network makes of rows with a member axis (K or 1, n), all of them present."""
    members, n = time.shape
    table = Table(inputs[0], Observed(event[0], time[0]))
    index = torch.arange(n).expand(members, -1)
    return net.terms(Batch(inputs, Observed(event, time), torch.ones(members, n, dtype=torch.bool), index, table))


def trained(
    net,
    table,
    fit,
    valid,
    *,
    seeds,
    learning_rate=0.02,
    weight_decay=0.1,
    stop_after=None,
    stops_together=False,
    **schedule,
):
    """Train a population: one array of rows per member, and settings that are one for all or one for each."""
    count = len(seeds)
    rates, decays = np.broadcast_to(learning_rate, count), np.broadcast_to(weight_decay, count)
    stops = [None] * count if stop_after is None else [int(epoch) for epoch in stop_after]
    held_out = [None] * count if valid is None else valid
    rows = zip(seeds, fit, held_out, rates, decays, stops, strict=True)
    members = [
        Member(int(seed), train_rows, valid_rows, float(rate), float(decay), stop, stops_together)
        for seed, train_rows, valid_rows, rate, decay, stop in rows
    ]
    return train(net, table, members, Schedule(**({"max_epochs": 8, "batch_size": 16} | schedule)))
