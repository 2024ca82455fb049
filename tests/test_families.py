"""The formulas of the families: any shape, every time, two derivatives. Values are tested in tests/distributions."""

from __future__ import annotations

import math

import pytest
import torch

from sumosurv import families

KNOTS = torch.tensor([-1.0, -0.2, 0.4, 1.0], dtype=torch.float64)


def generalised_gamma(a, b, t):
    return families.generalised_gamma(a, b, 2.0 * a - 0.3, t)


def spline(a, b, t):
    return families.spline([a, b.exp(), 0.1 * b.exp(), -0.05 * a], KNOTS, t)


FORMULAS = [families.weibull, families.log_normal, families.log_logistic, families.normal, families.gompertz]
FORMULAS += [generalised_gamma, spline]


@pytest.fixture(params=FORMULAS, ids=lambda formula: formula.__name__)
def formula(request):
    return request.param


def parameters(formula, *shape):
    """Two parameters of the formula; the rate of a Gompertz hazard is positive, the others are unrestricted."""
    generator = torch.Generator().manual_seed(0)
    a, b = (0.5 * torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    return a, b.exp() if formula is families.gompertz else b


def test_shapes_broadcast(formula):
    a, b = parameters(formula, 2, 3)
    t = torch.tensor([0.0, 0.3, 1.7, 5.0], dtype=torch.float64)
    whole = formula(a[..., None], b[..., None], t)
    for place, one in enumerate(t):
        for grid, single in zip(whole, formula(a, b, one)):
            assert grid.shape == (2, 3, 4)
            torch.testing.assert_close(grid[..., place], single, rtol=1e-13, atol=1e-13)


def test_curves_begin_at_one_and_end_at_zero(formula):
    a, b = parameters(formula, 5)
    start, end = (formula(a, b, torch.tensor(t, dtype=torch.float64)) for t in (0.0, math.inf))
    assert (start.survival == 0).all()
    assert (end.survival == -math.inf).all()
    assert (end.density == -math.inf).all()
    assert not torch.isnan(start.density).any()


def test_gradients_are_finite_at_time_zero(formula):
    a, b = (part.requires_grad_() for part in parameters(formula, 5))
    formula(a, b, torch.zeros((), dtype=torch.float64)).survival.sum().backward()
    assert (a.grad.abs() < 1e-12).all()
    assert (b.grad.abs() < 1e-12).all()


def test_the_hessian_of_the_likelihood_is_that_of_finite_differences(formula):
    """Newton's method needs second derivatives."""
    t, event = torch.tensor([0.2, 0.9, 1.4, 2.2], dtype=torch.float64), torch.tensor([True, False, True, False])

    def log_likelihood(both):
        terms = formula(both[0], both[1], t)
        return torch.where(event, terms.density, terms.survival).sum()

    both = torch.tensor([0.3, 0.4], dtype=torch.float64)
    step, slope = 1e-5, torch.func.grad(log_likelihood)
    steps = step * torch.eye(2, dtype=torch.float64)
    numeric = torch.stack([(slope(both + one) - slope(both - one)) / (2 * step) for one in steps])
    torch.testing.assert_close(torch.autograd.functional.hessian(log_likelihood, both), numeric, rtol=1e-6, atol=1e-7)
