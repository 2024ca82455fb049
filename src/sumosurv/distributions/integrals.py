"""Areas under squared survival curves and distribution functions, by quadrature: the CRPS of any distribution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sumosurv.distributions import _quadrature
from sumosurv.distributions._numerics import mean_survival_time
from sumosurv.distributions.base import SurvivalDistribution


def squared_areas(distribution: SurvivalDistribution, at: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return (∫₀^at F(t)² dt, ∫_at^∞ S(t)² dt) of each subject; ``at`` is a float64 tensor of shape (n,).

    The error is about 1e-10 times ∫ S². Curves that are smooth up to a known time (networks, and mixtures with them)
    are evaluated up to that time on panels that all subjects share.
    """
    breaks = [b for b in distribution._breaks if b > 0]
    far = at > max(breaks, default=-math.inf)
    below, above = torch.empty_like(at), torch.empty_like(at)
    for rows, by_panels in ((far.nonzero()[:, 0], False), ((~far).nonzero()[:, 0], True)):
        if len(rows):
            part = distribution if len(rows) == len(at) else distribution._take(rows)
            below[rows], above[rows] = _by_panels(part, at[rows], breaks) if by_panels else _adaptive(part, at[rows])
    return below, above


def _adaptive(distribution: SurvivalDistribution, at: Tensor) -> tuple[Tensor, Tensor]:
    whole = _integral(distribution, torch.square, torch.full_like(at, math.inf))
    below = _integral(distribution, lambda survival: (1.0 - survival).square(), at)
    return below, (whole - _integral(distribution, torch.square, at)).clamp_min(0.0)


def _integral(distribution: SurvivalDistribution, function: Callable[[Tensor], Tensor], horizon: Tensor) -> Tensor:
    """∫₀^horizon g(S(t)) dt of each subject, for a function g of survival probabilities."""
    return mean_survival_time(
        lambda rows, t: function(distribution._survival_of_rows(rows, t)),
        horizon,
        distribution._precision,
        distribution._breaks,
    )


def _by_panels(distribution: SurvivalDistribution, at: Tensor, breaks: Sequence[float]) -> tuple[Tensor, Tensor]:
    """`squared_areas` for times up to the last break: panels up to that break, and an open interval after it."""
    below, above = _quadrature.squared_areas(distribution._survival_of_rows, at, list(breaks), distribution._precision)
    like, last = distribution._like, max(breaks)
    reached = distribution._log_survival(like.new_full((1, 1), last))[:, 0].double()
    alive = torch.isfinite(reached).nonzero()[:, 0]
    if len(alive):
        part, limit = distribution._take(alive), torch.full_like(at[alive], math.inf)

        def rest(rows: Tensor, t: Tensor) -> Tensor:
            some = part if t.shape[0] == 1 and len(rows) == len(part) else part._take(rows)
            later = (last + t).clamp(math.nextafter(last, math.inf), torch.finfo(like.dtype).max).to(like)
            return torch.exp(some._log_survival(later).to(t) - reached[alive[rows], None]).square()

        area = mean_survival_time(rest, limit, distribution._precision)
        above = above.index_add(0, alive, torch.exp(2.0 * reached[alive]) * area)
    return below, above
