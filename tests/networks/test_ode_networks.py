"""Hazards as right-hand sides of differential equations, against scipy's solver, quadrature and themselves."""

from __future__ import annotations

import builtins
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.special import roots_legendre

import small_networks
from small_networks import terms
from sumosurv.distributions import Mixture
from sumosurv.distributions.ode import Ode, scaled_time, solver_time, solver_time_log_slope
from sumosurv.networks import select_members
from sumosurv.networks.ode import DOPRI5, RK4, CoxHazardOde, GeneralHazardOde, LatentHazardOde, runge_kutta
from sumosurv.training.step import as_cuda_graph

MODELS = ("general", "cox", "latent")
TIMES = np.array([0.0, 0.003, 0.05, 0.3, 0.7, 1.0])


def network(kind="general", seeds=(0,), *, noise=0.3, dropout=0.0, regularisation=0.1, **options):
    """A float64 network in evaluation mode with random weights, biases included."""
    generators = [torch.Generator().manual_seed(100 + s) for s in seeds]
    encoder = small_networks.table_encoder(seeds, dropout)
    if kind == "latent":
        net = LatentHazardOde(generators, encoder, (6, 6), latent=3, regularisation=regularisation, **options)
    else:
        net = {"general": GeneralHazardOde, "cox": CoxHazardOde}[kind](generators, encoder, (6, 6), **options)
    net = net.double().eval()
    with torch.no_grad():
        for p in net.parameters():
            p += noise * torch.stack([torch.randn(p.shape[1:], generator=g).double() for g in generators])
    return net.requires_grad_(True)


def reference(net, code, tau):
    """The states at increasing τ, by scipy at a tolerance of 1e-8: (n, d, m)."""
    first = net.initial(code).detach()

    @torch.no_grad()
    def speed(tau, y):
        state = torch.from_numpy(y).reshape(first.shape)
        return net.speed(torch.full((1, 1, 1), tau).double(), state, code).numpy().ravel()

    solved = solve_ivp(speed, (0.0, 1.0), first.numpy().ravel(), "DOP853", t_eval=tau, rtol=1e-8, atol=1e-10)
    return solved.y.reshape(*first.shape[1:], -1)


def _gradients(loss, net):
    return torch.autograd.grad(loss, list(net.parameters()), allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("offset", [0.01, None])
def test_the_clock_and_its_slope(offset):
    t = torch.linspace(0, 1, 50, dtype=torch.float64, requires_grad=True)
    tau = solver_time(t, offset)
    assert tau[0] == 0
    assert float(tau[-1].detach()) == pytest.approx(1.0)
    (slope,) = torch.autograd.grad(tau.sum(), t)
    torch.testing.assert_close(solver_time_log_slope(t, offset).exp(), slope)
    torch.testing.assert_close(scaled_time(tau, offset), t)


@pytest.mark.parametrize(("tableau", "order"), [(RK4, 4), (DOPRI5, 5)])
def test_the_order_of_the_steps(tableau, order):
    y = torch.ones(1, dtype=torch.float64)
    errors = [
        abs(float(runge_kutta(lambda s, y: y * np.cos(3 * s), y, n, tableau)[-1]) - np.exp(np.sin(3) / 3))
        for n in (16, 32)
    ]
    assert np.log2(errors[0] / errors[1]) > order - 0.5


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("offset", [0.01, None])
def test_predicted_cumulative_hazards_equal_a_reference_solution(kind, offset):
    net, inputs = network(kind, offset=offset), small_networks.inputs(3)
    d = net.distribution(inputs)
    truth = reference(net, net.code(net.encoder(inputs.shared())), solver_time(torch.from_numpy(TIMES), offset).numpy())
    np.testing.assert_allclose(d.cumulative_hazard(TIMES), truth[:, 0], rtol=1e-6, atol=1e-7)
    # and the density is q exp(-Λ), at the reference's own state
    code = net.code(net.encoder(inputs.shared()))
    for j, t in enumerate(TIMES):
        state = torch.from_numpy(truth[None, :, :, j].copy())
        at = torch.full((1, 3, 1), t).double()
        log_q = net.log_hazard(solver_time(at, offset), state, code) + solver_time_log_slope(at, offset)
        exact = (log_q[0, :, 0] - state[0, :, 0]).detach().numpy()
        np.testing.assert_allclose(d.log_density(t), exact, atol=2e-6)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("options", [{"solver": "rk4", "steps": 128}, {"solver": "dopri5", "tolerance": 1e-9}])
def test_both_solvers_equal_a_reference_solution(kind, options):
    if options["solver"] == "dopri5":
        pytest.importorskip("torchdiffeq")
    net, inputs = network(kind, **options), small_networks.inputs(3)
    own = np.array([0.02, 0.4, 1.0])
    code = net.code(net.encoder(inputs.shared()))
    state = net.solve(code, solver_time(torch.from_numpy(own)[None], net.offset))[0].detach().numpy()
    truth = reference(net, code, solver_time(torch.from_numpy(own), net.offset).numpy())
    np.testing.assert_allclose(state, truth[[0, 1, 2], :, [0, 1, 2]], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", MODELS)
def test_the_cumulative_hazard_is_the_integral_of_the_hazard(kind):
    d = network(kind).distribution(small_networks.inputs(3))
    for end in (0.05, 0.6, 1.0):
        nodes, weights = roots_legendre(20)
        edges = np.concatenate([[0.0], end * np.logspace(-3, 0, 60)])
        half = 0.5 * np.diff(edges)[:, None]
        t = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * nodes).ravel()
        area = (d.hazard(t) * (half * weights).ravel()).sum(1)
        np.testing.assert_allclose(d.cumulative_hazard(end), area, rtol=1e-6, atol=1e-8)


def test_the_regulariser_is_the_length_of_the_rates_at_the_end_of_the_clock():
    net, inputs = network("latent", steps=128), small_networks.inputs(3)
    code, own = net.code(net.encoder(inputs.shared())), torch.tensor([[0.0, 0.3, 1.0]]).double()
    states = torch.from_numpy(reference(net, code, [1.0])[None, :, :, 0].copy())
    rates = net.speed(torch.ones(1, 1, 1).double(), states, code).detach().numpy()[0]
    expected = 0.1 * np.sqrt((rates**2).sum(1))
    event = torch.tensor([[True, False, True]])
    judged = terms(net, inputs.shared(), own, event)
    trained = terms(net.train(), inputs.shared(), own, event)
    np.testing.assert_allclose((judged - trained).detach().numpy()[0], expected, rtol=1e-6)


@pytest.mark.parametrize("kind", MODELS)
def test_direct_and_adjoint_gradients_agree(kind):
    pytest.importorskip("torchdiffeq")
    inputs, rng = small_networks.inputs(6), np.random.default_rng(0)
    t, event = torch.from_numpy(rng.random((1, 6))), torch.from_numpy(rng.random((1, 6)) < 0.6)
    found = []
    for options in ({"solver": "rk4", "steps": 64}, {"gradient": "direct"}, {"gradient": "adjoint"}):
        net = network(kind, **({"solver": "dopri5", "tolerance": 1e-9} | options)).train()
        loss = terms(net, inputs.shared(), t, event).sum()
        found.append(torch.cat([g.ravel() for g in _gradients(loss, net)]))
    torch.testing.assert_close(found[1], found[2], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", MODELS)
def test_the_likelihood_of_training_is_that_of_the_distribution(kind):
    net, inputs = network(kind, (0, 1), steps=64), small_networks.inputs(5)
    t = torch.tensor([[0.0, 0.1, 0.9, 1.0, 2.5]]).double()  # the last lies past the horizon
    event = torch.tensor([[True, False, True, False, True]])
    rows = terms(net, inputs.shared(), t, event).detach()
    mixture = net.distribution(inputs)
    assert isinstance(mixture, Mixture)
    for k, part in enumerate(mixture.components):
        log_s, log_f = part.log_survival(own_times=t[0]), part.log_density(own_times=t[0])
        torch.testing.assert_close(rows[k], torch.where(event[0], log_f, log_s), rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("kind", MODELS)
def test_a_member_of_a_population_is_the_same_network_alone(kind):
    net, inputs = network(kind, (0, 1, 2), dropout=0.4), small_networks.inputs(4)
    t, event = torch.tensor([[0.1, 0.2, 0.7, 1.0]]).double(), torch.tensor([[True, False, True, True]])
    alone = select_members(net, slice(1, 2))
    for mode in (True, False):
        together = terms(net.train(mode), inputs.shared(), t, event)[1:2]
        torch.testing.assert_close(terms(alone.train(mode), inputs.shared(), t, event), together.detach())


@pytest.mark.parametrize("kind", MODELS)
def test_gradients_are_finite_at_the_edges(kind):
    net, inputs = network(kind), small_networks.inputs(4)
    t = torch.tensor([[0.0, 0.0, 0.5, 0.5]]).double()
    for event in (torch.tensor([[True, False, True, True]]), torch.zeros(1, 4, dtype=torch.bool)):
        loss = terms(net.train(), inputs.shared(), t, event).sum()
        assert torch.isfinite(loss)
        assert all(bool(torch.isfinite(g).all()) for g in _gradients(loss, net))


@pytest.mark.parametrize("kind", MODELS)
def test_a_subject_s_curve_does_not_depend_on_its_neighbours(kind):
    d = network(kind, noise=0.8).distribution(small_networks.inputs(40))
    grid = np.linspace(0, 3, 50)
    whole = d.log_survival(grid)
    np.testing.assert_allclose(d[[7, 3, 7]].log_survival(grid), whole[[7, 3, 7]], rtol=1e-12, atol=1e-13)
    fresh = network(kind, noise=0.8).distribution(small_networks.inputs(40))[5]
    np.testing.assert_allclose(fresh.log_survival(grid), whole[[5]], rtol=1e-12, atol=1e-13)


def test_the_equation_is_solved_once_whatever_is_asked():
    net = network()
    d = net.distribution(small_networks.inputs(3))
    calls, solution = [], d.base.solution
    d.base.solution = lambda code, steps: calls.append(steps) or solution(code, steps)
    d.survival(np.linspace(0, 2, 1000))
    count = len(calls)
    d.median(), d.mean(), d.density(0.3), d[[1, 1]].quantile(0.2), d.sample(5, random_state=0)
    assert len(calls) == count


def test_steps_that_choose_as_they_go_are_not_captured():
    chooses, step = network(solver="dopri5"), SimpleNamespace()
    step.network = chooses
    assert as_cuda_graph(step) is step
    assert network(solver="rk4").capturable


def test_tiny_and_huge_hazards():
    for rate in (1e-6, 1e4):
        d = network("general", rate=rate).distribution(small_networks.inputs(3))
        assert np.isfinite(d.log_density([0.0, 0.5, 1.0, 5.0])).all()
        assert np.isfinite(d.mean()).all()


def test_risks_past_the_range_of_numbers():
    codes = torch.zeros(1, 1).double()
    d = Ode(exponential, codes, log_risk=torch.tensor([-1e5, 0.0, 1e5]).double())
    survival = d.survival([0.0, 0.5, 1.0])
    np.testing.assert_array_equal(survival[[0, 2]], [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    assert not np.isnan(d.log_density([0.0, 0.5, 1.0])).any()


def exponential(code, steps):
    """dΛ/dτ = 1."""
    tau = torch.linspace(0, 1, steps + 1, dtype=code.dtype).expand(len(code), -1)
    return tau, torch.zeros_like(tau)


def test_without_torchdiffeq_the_error_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def missing(name, *rest, **options):
        if name == "torchdiffeq":
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    net = network(solver="dopri5")
    with pytest.raises(ImportError, match=r"pip install 'sumosurv\[ode\]'"):
        net.solve(net.code(net.encoder(small_networks.inputs(2).shared())), torch.ones(1, 2).double())
