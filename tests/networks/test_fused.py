"""The fast ways to predict give what the plain network gives."""

import importlib.util
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import small_networks
from sumosurv import PaperSumoNet, SumoNet, datasets
from sumosurv.distributions import SurvivalDistribution
from sumosurv.networks import fused

NETWORKS = {
    "paper": {"proper": False, "kind": "linear", "widths": (7,)},
    "paper, deep": {"proper": False, "kind": "linear", "widths": (6, 6, 5)},
    "log time": {"proper": False, "kind": "log", "widths": (5, 5)},
    "default": {"kind": "marginal", "widths": (6, 6)},
    "default, deep": {"kind": "marginal", "widths": (6, 6, 6), "positive": "softplus"},
    "default, unequal": {"kind": "log", "widths": (6, 4), "positive": "abs"},
}
QUANTITIES = ("log_survival", "survival", "density", "log_both")


def made(name, n=9, seeds=(0, 1), noise=0.3, **options):
    net = small_networks.network(seeds, noise=noise, **(NETWORKS[name] | options)).requires_grad_(False)
    return net, net.distribution(small_networks.inputs(n))


def grids(n=9):
    rng = np.random.default_rng(0)
    yield torch.linspace(0.0, 1.0, 13, dtype=torch.float64)[None]
    yield torch.from_numpy(rng.random((n, 4)))
    yield torch.from_numpy(rng.random((n, 1)))


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_fast_way_equals_the_plain_one(name, quantity):
    _, mixture = made(name)
    for part in small_networks.networks_of(mixture):
        for t in grids():
            assert part.fast.supports(quantity, part.code, t)
            wanted = part._tiles(quantity, t, part._log_start())
            got = part.fast.evaluate(quantity, part.code, t, part._log_start())
            for a, b in zip(got, wanted, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_tiles_do_not_show(name, monkeypatch):
    _, mixture = made(name)
    t = next(grids())
    at_once = mixture._log_both(t)
    monkeypatch.setattr(fused, "_CACHE_BYTES", 8 * 7 * 13 * 2)  # two subjects at a time
    for a, b in zip(mixture._log_both(t), at_once, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


def test_no_array_of_subjects_by_times_by_units(monkeypatch):
    _, mixture = made("default", n=60)
    asked = []
    plain = fused.Workspace.__call__
    monkeypatch.setattr(
        fused.Workspace,
        "__call__",
        lambda self, name, *shape: asked.append(np.prod(shape)) or plain(self, name, *shape),
    )
    monkeypatch.setattr(fused, "_CACHE_BYTES", 1 << 14)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    mixture.density(np.linspace(0.0, 1.0, 40))
    assert asked
    assert max(asked) * 8 <= 1 << 14


@pytest.mark.parametrize("steep", [1.0, 60.0])
def test_large_weights(steep):
    """If steep, terms of subjects and times are large and of opposite sign: inf · 0 as a product of exponentials."""
    net, _ = made("paper", seeds=(0,))
    with torch.no_grad():
        net.mixed.time_weight *= steep  # the weight itself is the square
        net.mixed.entry.bias += 400.0
        net.mixed.entry.bias[:, :, ::2] -= 800.0
    part = net.distribution(small_networks.inputs(9))
    t = next(grids())
    for quantity in QUANTITIES[:2]:
        got, wanted = part.fast.evaluate(quantity, part.code, t, None), part._tiles(quantity, t, None)
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_single_precision_is_close_and_a_choice(name):
    _, mixture = made(name)
    t = np.linspace(0.0, 1.4, 30)
    double, single = mixture.survival(t), mixture.single().survival(t)
    assert mixture._like.dtype == torch.float64
    assert mixture.single()._like.dtype == torch.float32
    assert 0 < np.abs(double - single).max() < 2e-6
    np.testing.assert_allclose(mixture.single().density(t), mixture.density(t), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("noise", "bound"), [(0.1, "2e-6"), (0.6, "5e-5"), (1.0, "5e-5")])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_error_of_single_precision_is_what_the_docs_say(name, noise, bound):
    assert bound in SurvivalDistribution.single.__doc__
    t = np.concatenate([np.linspace(0.0, 1.4, 40), np.geomspace(1e-4, 1.0, 30)])
    for seed in range(6):
        _, mixture = made(name, n=20, seeds=(seed,), noise=noise, widths=(32, 32), encoder_widths=(64, 64))
        assert np.abs(mixture.survival(t) - mixture.single().survival(t)).max() < float(bound)


@pytest.mark.parametrize("make", [partial(SumoNet, components="networks"), PaperSumoNet])
def test_the_error_of_single_precision_in_trained_networks(make):
    data = datasets.simulate("weibull", 400, random_state=0)
    model = make(n_members=2, max_epochs=30, random_state=0).fit(data.X, data.y)
    assert "2e-6" in SumoNet.predict_survival_function.__doc__
    t = np.linspace(0.0, 1.5 * data.y["time"].max(), 100)
    double, single = (model.predict_survival_function(data.X, t, precision=p) for p in ("double", "single"))
    assert 0 < np.abs(double - single).max() < 2e-6


def test_single_precision_still_gives_gradients():
    _, mixture = made("default")
    t = torch.full((9, 1), 0.4, requires_grad=True)
    mixture.single().log_survival(own_times=t).sum().backward()
    rate = mixture.hazard(0.4)
    np.testing.assert_allclose(-t.grad[:, 0].numpy(), rate, rtol=1e-3)


def test_who_wants_gradients_gets_the_plain_network():
    net, mixture = made("default")
    part = small_networks.networks_of(mixture)[0]
    t = torch.rand(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert not part.fast.supports("survival", part.code, t.requires_grad_(True))
    with torch.no_grad():
        assert part.fast.supports("survival", part.code, t)
    mixture.log_survival(own_times=t).sum().backward()
    rate = mixture.hazard(own_times=t.detach())
    torch.testing.assert_close(-t.grad, rate, rtol=1e-8, atol=1e-10)
    trained = net.requires_grad_(True).distribution(small_networks.inputs(9))
    part = small_networks.networks_of(trained)[0]
    assert not part.fast.supports("survival", part.code, t.detach())


@pytest.mark.parametrize("derivative", ["autograd", "chain", "difference"])
def test_other_derivatives_are_not_replaced(derivative):
    _, mixture = made("default", derivative=derivative)
    part = small_networks.networks_of(mixture)[0]
    t = torch.rand(9, 2, dtype=torch.float64)
    assert part.fast.supports("log_survival", part.code, t)
    assert not part.fast.supports("log_both", part.code, t)


def test_members_that_share_features_compute_them_once(monkeypatch):
    _, mixture = made("default", seeds=(0, 1, 2))
    calls = []
    times = small_networks.networks_of(mixture)[0].fast.times
    plain = times._features.forward
    monkeypatch.setattr(times._features, "forward", lambda t: calls.append(t.shape) or plain(t))
    mixture._log_both(torch.rand(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    assert len([shape for shape in calls if shape[-1] == 4]) == 1


def test_times_that_are_changed_in_place_are_seen():
    _, mixture = made("default")
    t = torch.full((9, 2), 0.3, dtype=torch.float64)
    mixture._log_both(t)
    t += 0.4
    wanted = mixture._log_both(torch.full((9, 2), 0.3, dtype=torch.float64) + 0.4)
    torch.testing.assert_close(mixture._log_both(t), wanted, rtol=0, atol=0)
    assert not torch.equal(wanted[0], mixture._log_both(t - 0.4)[0])


def test_members_with_features_of_their_own():
    net, _ = made("default")
    table = net.mixed.features.table
    net.mixed.features.table = torch.cat([table, table * torch.tensor([1.0, 1.3, 1.0])[None, :, None]])
    mixture = net.distribution(small_networks.inputs(9))
    t = next(grids())
    parts = small_networks.networks_of(mixture)
    h = net.mixed.value(torch.stack([part.code for part in parts]), t[None])
    for part, wanted in zip(parts, h, strict=True):
        got = part.fast.evaluate("log_survival", part.code, t, None)[0]
        torch.testing.assert_close(got, torch.nn.functional.logsigmoid(-wanted), rtol=1e-10, atol=1e-12)


def test_members_of_different_depth():
    net, _ = made("default, deep")
    net.mixed.active = torch.tensor([[True, True, False], [True, False, True]])
    mixture = net.distribution(small_networks.inputs(9))
    t = next(grids())
    for part in small_networks.networks_of(mixture):
        wanted = part._tiles("log_both", t, part._log_start())
        got = part.fast.evaluate("log_both", part.code, t, part._log_start())
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)


def test_a_kernel_that_fails_is_disabled_with_a_warning(monkeypatch):
    monkeypatch.setattr(fused, "_triton_failed", False)
    with pytest.warns(RuntimeWarning, match="CUDA kernel could not be used"):
        fused._disable_triton(RuntimeError("no compiler"))
    assert fused._triton_kernel() is None


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernel_equals_the_plain_network():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    root = Path(__file__).parents[2]
    paths = [str(root / "tests"), str(root / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    if device == "cpu":
        environment["TRITON_INTERPRET"] = "1"
    script = Path(__file__).with_name("triton_cases.py")
    ran = subprocess.run(
        [sys.executable, str(script), device], capture_output=True, text=True, env=environment, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    differences = json.loads(ran.stdout)
    assert len(differences) == 256
    most = {"float32": 1e-5, "float64": 1e-13}
    assert {case: gap for case, gap in differences.items() if not gap < most[case.rpartition(", ")[2]]} == {}
