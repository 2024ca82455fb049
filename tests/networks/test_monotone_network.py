"""The network: monotone in time, its four derivatives, the paper's Figure 2, and the two heads that are one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

import small_networks
from sumosurv import PaperSumoNet, SumoNet, Surv
from sumosurv.distributions.monotone import monotone_log_likelihood_terms
from sumosurv.networks.monotone import DERIVATIVES

TIMES = torch.cat([torch.zeros(1), torch.logspace(-3, 0.3, 60)]).double()[None, None]


def curve(net, derivative="forward", times=TIMES):
    code = net.mixed.code(net.encoder(small_networks.inputs(4).shared()))
    return net.mixed.jet(code, times, derivative)


def test_the_survival_head_is_the_cumulative_hazard_head():
    h = torch.linspace(-40, 40, 401, dtype=torch.float64)
    torch.testing.assert_close(
        torch.exp(-functional.softplus(h, threshold=1e9)), 1 - torch.sigmoid(h), rtol=1e-12, atol=1e-15
    )
    log_s, log_f = monotone_log_likelihood_terms(h, torch.full_like(h, 2.0), None)
    torch.testing.assert_close(log_s, -functional.softplus(h, threshold=1e9))
    # f = λ S with the hazard λ = d softplus(h)/dt = σ(h) h'
    torch.testing.assert_close(log_f, torch.log(2.0 * torch.sigmoid(h)) + log_s)


@pytest.mark.parametrize("positive", ["square", "softplus", "abs"])
@pytest.mark.parametrize("widths", [(1,), (5,), (6, 6), (3, 7, 2), (4, 4, 4, 4, 4)])
@pytest.mark.parametrize("proper", [True, False])
def test_h_never_decreases(positive, widths, proper):
    kind = "marginal" if proper else "linear"
    net = small_networks.network((0, 1), widths=widths, positive=positive, proper=proper, kind=kind, noise=1.0)
    h, slope = curve(net)
    assert h.shape == (2, 4, 61)
    assert (torch.diff(h, dim=2) >= 0).all()
    assert (slope >= 0).all()
    # unrestricted weights would not do: the covariates' own are of both signs
    assert (net.mixed.entry.weight < 0).any()


@pytest.mark.parametrize("widths", [(), (3,), (5, 5, 5), (2, 9)])
@pytest.mark.parametrize("columns", [(3, (4,)), (0, (4, 2)), (2, ())])
def test_any_covariate_network(widths, columns):
    n_numeric, levels = columns
    shape = {"n_numeric": n_numeric, "levels": levels}
    net = small_networks.network((0, 1, 2), **shape, widths=(4,), encoder_widths=widths)
    inputs = small_networks.inputs(5, **shape)
    together = net.distribution(inputs).survival([0.1, 0.5])
    alone = [
        small_networks.network((seed,), **shape, widths=(4,), encoder_widths=widths)
        .distribution(inputs)
        .survival([0.1, 0.5])
        for seed in (0, 1, 2)
    ]
    np.testing.assert_allclose(together, np.mean(alone, axis=0), rtol=1e-12)


# ---------------------------------------------------------------------- derivatives


@pytest.mark.parametrize("kind", ["linear", "log", "marginal"])
@pytest.mark.parametrize("proper", [True, False])
def test_the_exact_derivatives_agree(kind, proper):
    net = small_networks.network((0, 1, 2), kind=kind, proper=proper)
    h, slope = curve(net, "forward")
    h_autograd, slope_autograd = curve(net, "autograd")
    torch.testing.assert_close(h, h_autograd, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(slope, slope_autograd, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("derivative", ["chain", "difference"])
def test_the_difference_quotients_come_close(derivative):
    """With a step of 1e-6 in float64 they are good to 1e-4 away from zero, where log time bends most."""
    net = small_networks.network((0, 1), noise=0.2)
    times = TIMES[:, :, 30:]
    slope, approximate = curve(net, "forward", times)[1], curve(net, derivative, times)[1]
    torch.testing.assert_close(approximate, slope, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_every_derivative_gives_the_likelihood_and_its_gradient(derivative):
    inputs, exact = small_networks.inputs(6), small_networks.network((0, 1), noise=0.1)
    net = small_networks.network((0, 1), noise=0.1, derivative=derivative)
    t = torch.linspace(0.1, 0.9, 6, dtype=torch.float64)[None]
    event = torch.tensor([[True, False, True, True, False, True]])
    results = []
    for network in (exact, net):
        value = small_networks.terms(network, inputs.shared(), t, event)
        assert value.shape == (2, 6)
        gradients = torch.autograd.grad(value.sum(), list(network.parameters()))
        results.append((value.detach(), torch.cat([g.flatten() for g in gradients])))
    tolerance = 1e-9 if derivative in ("forward", "autograd") else 1e-3
    torch.testing.assert_close(results[1][0], results[0][0], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(results[1][1], results[0][1], rtol=tolerance, atol=tolerance)
    with torch.no_grad():
        s = net.distribution(inputs)
        np.testing.assert_allclose(s.density([0.3, 0.6]), exact.distribution(inputs).density([0.3, 0.6]), rtol=1e-3)


def log_start(net, inputs):
    """log(1 - σ(h(0))) of each member and row: what an anchored curve is divided by."""
    code = net.mixed.code(net.encoder(inputs.shared()))
    return functional.logsigmoid(-net.mixed.value(code, torch.zeros(1, 1, 1, dtype=torch.float64)))[:, :, 0]


def test_the_anchor_divides_by_the_survival_at_zero():
    net, inputs = small_networks.network((2, 6)), small_networks.inputs(6)
    start = log_start(net, inputs)
    assert (start < -0.2).any(dim=1).all()  # there is something to divide by
    times = torch.tensor([[[1e-6, 0.05, 0.4, 0.9]]], dtype=torch.float64)
    h, slope = net.mixed.jet(net.mixed.code(net.encoder(inputs.shared())), times, "forward")
    for k, part in enumerate(net.distribution(inputs).components):
        survival = torch.sigmoid(-h[k]) / torch.exp(start[k])[:, None]
        torch.testing.assert_close(part.survival(times[0, 0]), survival)
        torch.testing.assert_close(part.density(times[0, 0]), slope[k] * torch.sigmoid(h[k]) * survival)
        assert (part.survival(torch.zeros(1, dtype=torch.float64)) == 1).all()
        np.testing.assert_allclose(part.survival(1e-9), 1.0, atol=1e-4)  # and it is reached, not put there


def test_log_likelihood_is_that_of_the_distribution():
    net, inputs = small_networks.network((6,)), small_networks.inputs(6)
    assert (log_start(net, inputs) < -0.1).sum() >= 3  # without the anchor it would be another
    t = torch.linspace(0.0, 1.0, 6, dtype=torch.float64)
    event = torch.tensor([True, False, True, True, False, True])
    d = net.distribution(inputs)
    expected = torch.where(event, d.log_density(own_times=t), d.log_survival(own_times=t))
    torch.testing.assert_close(small_networks.terms(net, inputs.shared(), t[None], event[None])[0], expected)


# ---------------------------------------------------------------------- Figure 2


def test_the_paper_variant_is_figure_2():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), Surv.from_arrays(rng.random(80) < 0.7, 2.0 + 10 * rng.random(80))
    model = PaperSumoNet(n_members=1, covariate_layers=(5, 4), time_layers=(6, 3), max_epochs=5, random_state=1)
    model.fit(X, y)
    p = {name: value[0] for name, value in model.stack_.populations[0].network.named_parameters()}
    low, high = y["time"].min(), y["time"].max()

    def survival(x, t):
        u = x
        for i in range(2):
            u = torch.tanh(u @ p[f"encoder.layers.{i}.weight"] + p[f"encoder.layers.{i}.bias"])
        a = torch.tanh(u @ p["mixed.entry.weight"] + p["mixed.entry.bias"] + t[:, None] @ p["mixed.time_weight"] ** 2)
        a = torch.tanh(a @ p["mixed.weights.0"] ** 2 + p["mixed.biases.0"])
        return 1 - torch.sigmoid(a @ p["mixed.out_weight"] ** 2 + p["mixed.out_bias"])[:, 0]

    new = rng.normal(size=(20, 3))
    standard = torch.from_numpy((new - X.mean(0)) / X.std(0)).float().double()  # inputs are kept in single precision
    time = rng.uniform(0.0, 20.0, 20)  # also before the first and past the last training time
    scaled = torch.from_numpy((time - low) / (high - low)).requires_grad_(True)
    s = survival(standard, scaled)
    (slope,) = torch.autograd.grad(s.sum(), scaled)
    d = model.predict_distribution(new)
    np.testing.assert_allclose(d.survival(own_times=time), s.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(d.density(own_times=time), -slope.numpy() / (high - low), rtol=1e-5)
    assert len(p) == 11  # and nothing else has weights


def test_the_paper_variant_loses_mass_and_the_default_does_not():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 2)), Surv.from_arrays(np.ones(60, bool), rng.exponential(size=60))
    options = {"n_members": 1, "covariate_layers": (4,), "time_layers": (4,), "max_epochs": 3, "random_state": 0}
    paper = PaperSumoNet(**options).fit(X, y).predict_distribution(X)
    ours = SumoNet(**options).fit(X, y).predict_distribution(X)
    assert (paper.survival(0.0) < 1).all()
    assert np.isinf(paper.mean()).all()
    assert (ours.survival(0.0) == 1).all()
    assert np.isfinite(ours.mean()).all()


def test_past_the_last_training_time_the_likelihood_has_the_tail_of_the_distribution():
    net, inputs = small_networks.network((2, 3)), small_networks.inputs(6)
    t = torch.tensor([0.2, 0.9, 1.1, 1.0, 3.0, 1.2], dtype=torch.float64)
    event = torch.tensor([True, False, True, True, False, True])
    past = t > 1.0
    assert (log_start(net, inputs)[:, past] < -0.5).any(dim=1).all()  # without the anchor it would be another
    d = net.distribution(inputs)
    value = small_networks.terms(net, inputs.shared(), t[None], event[None])
    for k, part in enumerate(d.components):
        expected = torch.where(event, part.log_density(own_times=t), part.log_survival(own_times=t))
        torch.testing.assert_close(value[k], expected)
