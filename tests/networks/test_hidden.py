"""A hidden layer with its gradient by hand is the plain layer, and so is a covariate network made of them."""

from __future__ import annotations

import pytest
import torch

from sumosurv.networks import Inputs
from sumosurv.networks.encoders import TableEncoder
from sumosurv.networks.hand_gradients import WITH_SLOPE, hidden_layer
from sumosurv.networks.layers import ACTIVATIONS


@pytest.mark.parametrize("activation", WITH_SLOPE)
@pytest.mark.parametrize("dropped", [True, False])
@pytest.mark.parametrize("residual", [True, False])
def test_value_and_gradients_are_those_of_the_plain_layer(activation, dropped, residual):
    torch.manual_seed(0)
    rows, weight, bias = (
        torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 5, 4), (2, 4, 4), (2, 1, 4))
    )
    mask = (torch.rand(2, 5, 4) > 0.4).double() / 0.6 if dropped else None

    def layer(*x):
        return hidden_layer(*x, mask, activation, residual=residual)

    value = ACTIVATIONS[activation](rows @ weight + bias)
    plain = (value if mask is None else value * mask) + (rows if residual else 0.0)
    torch.testing.assert_close(layer(rows, weight, bias), plain)
    assert torch.autograd.gradcheck(layer, (rows, weight, bias))


@pytest.mark.parametrize("activation", ["silu", "tanh", "relu"])
@pytest.mark.parametrize(("levels", "frequencies"), [((3,), 2), ((), 0)])
def test_the_covariate_network_is_the_plain_one(monkeypatch, activation, levels, frequencies):
    seeds = torch.tensor([4, 5, 6])
    net = TableEncoder(
        [torch.Generator().manual_seed(int(seed)) for seed in seeds],
        seeds,
        torch.tensor([0.0, 0.3, 0.6]),
        n_numeric=2,
        levels=levels,
        widths=(6, 6, 3),
        activation=activation,
        residual=True,
        frequencies=frequencies,
    ).double()
    torch.manual_seed(0)
    inputs = Inputs(torch.randn(9, 2, dtype=torch.float64), torch.randint(0, 3, (9, len(levels)))).shared()

    def found():
        code = net(inputs)
        weights = torch.linspace(-1.0, 1.0, code.numel(), dtype=code.dtype).reshape(code.shape)
        return code, *torch.autograd.grad((code * weights).sum(), list(net.parameters()))

    fast = found()
    monkeypatch.setattr(TableEncoder, "_has_fast_gradients", False)
    torch.testing.assert_close(fast, found(), rtol=1e-12, atol=1e-12)
    assert not torch.equal(fast[0][1], net.eval()(inputs)[1])  # there was dropout
