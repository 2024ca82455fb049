"""One example of every kind of distribution: what the contracts are tested on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import small_networks
from sumosurv.distributions import (
    Conditional,
    Delayed,
    LogNormal,
    Mixture,
    Normal,
    Rescaled,
    SurvivalDistribution,
    Tabulated,
    Weibull,
)

KNOTS = np.array([0.5, 1.0, 2.5, 3.0, 5.0, 8.0])
FALLING = np.array(
    [[0.9, 0.7, 0.5, 0.45, 0.2, 0.1], [0.99, 0.6, 0.55, 0.3, 0.25, 0.02], [0.8, 0.8, 0.4, 0.3, 0.3, 0.2]]
)
TO_ZERO = np.array([[0.9, 0.7, 0.5, 0.45, 0.2, 0.0], [0.99, 0.6, 0.55, 0.3, 0.25, 0.0], [0.8, 0.7, 0.4, 0.3, 0.1, 0.0]])


@dataclass(frozen=True)
class Kind:
    """A distribution of three subjects and what is special about it."""

    make: object
    scale: float
    smooth: bool = True  # has a density of its own
    bounded: bool = False  # S reaches 0 at a finite time
    total: bool = True  # S goes to 0
    breaks: tuple[float, ...] = ()  # kinks or jumps
    start: float = 0.0  # S = 1 up to here

    def __call__(self) -> SurvivalDistribution:
        return self.make()


def weibull():
    return Weibull(scale=[1.0, 2.0, 30.0], shape=[0.7, 1.0, 3.0])


def log_normal():
    return LogNormal(mu=[0.0, 1.0, -1.0], sigma=[0.3, 1.0, 2.0])


def normal():
    return Normal(mean=[2.0, 0.0, -1.0], sd=[0.5, 1.0, 2.0])


def monotone(seeds=(0,), **options):
    return small_networks.network(seeds, **options).distribution(small_networks.inputs(3))


def frozen(seeds=(0,), **options):
    """A network whose weights want no gradient, as after a fit: predicted the fast way."""
    return small_networks.network(seeds, **options).requires_grad_(False).distribution(small_networks.inputs(3))


def tabulated(between, table=FALLING):
    return Tabulated(KNOTS, table, between=between)


_K = tuple(KNOTS)
_M = (*small_networks.marginal_knots(), 1.0)
KINDS: dict[str, Kind] = {
    "weibull": Kind(weibull, 2.0),
    "log-normal": Kind(log_normal, 1.0),
    "normal": Kind(normal, 1.0),
    "monotone": Kind(monotone, 1.0, breaks=_M),
    "monotone log": Kind(lambda: monotone((3,), kind="log", widths=(4,), positive="softplus"), 1.0, breaks=(1.0,)),
    "monotone ensemble": Kind(lambda: monotone((0, 1, 2)), 1.0, breaks=_M),
    "monotone, fast": Kind(frozen, 1.0, breaks=_M),
    "monotone ensemble, fast": Kind(lambda: frozen((0, 1, 2)), 1.0, breaks=_M),
    "tabulated hazard": Kind(lambda: tabulated("hazard"), 2.0, breaks=_K),
    "tabulated density": Kind(lambda: tabulated("density", TO_ZERO), 2.0, bounded=True, breaks=_K),
    "tabulated density, not all": Kind(lambda: tabulated("density"), 2.0, total=False, breaks=_K),
    "tabulated step": Kind(lambda: tabulated("step", TO_ZERO), 2.0, smooth=False, bounded=True, breaks=_K),
    "tabulated step, not all": Kind(lambda: tabulated("step"), 2.0, smooth=False, total=False, breaks=_K),
    "mixture": Kind(lambda: Mixture([weibull(), log_normal()], [0.3, 0.7]), 1.0),
    "mixture with a table": Kind(lambda: Mixture([weibull(), tabulated("density", TO_ZERO)]), 2.0, breaks=_K),
    "mixture of steps": Kind(
        lambda: Mixture([tabulated("step"), tabulated("step", TO_ZERO)]), 2.0, smooth=False, total=False, breaks=_K
    ),
    "rescaled": Kind(lambda: Rescaled(log_normal(), 365.25), 365.0),
    "rescaled monotone": Kind(lambda: Rescaled(monotone(), 40.0), 40.0, breaks=tuple(40.0 * t for t in _M)),
    "rescaled step": Kind(
        lambda: Rescaled(tabulated("step", TO_ZERO), 10.0), 20.0, smooth=False, bounded=True, breaks=tuple(10 * KNOTS)
    ),
    "delayed": Kind(lambda: Delayed(Weibull([1.0, 2.0, 30.0], [1.5, 1.0, 3.0]), 0.25), 2.0, breaks=(0.25,), start=0.25),
    "delayed monotone": Kind(lambda: Delayed(monotone(), 0.3), 1.0, breaks=(0.3, *(0.3 + t for t in _M)), start=0.3),
    "conditional": Kind(lambda: Conditional(weibull(), 1.5), 2.0, breaks=(1.5,), start=1.5),
    "conditional monotone": Kind(lambda: Conditional(monotone(), 0.3), 1.0, breaks=(0.3, *_M), start=0.3),
    "conditional mixture": Kind(
        lambda: Conditional(Mixture([weibull(), log_normal()]), 0.7), 2.0, breaks=(0.7,), start=0.7
    ),
    "conditional table": Kind(lambda: Conditional(tabulated("hazard"), 2.7), 3.0, breaks=(2.7, *_K), start=2.7),
    "conditional step": Kind(
        lambda: Conditional(tabulated("step", TO_ZERO), 2.7),
        3.0,
        smooth=False,
        bounded=True,
        breaks=(2.7, *_K),
        start=2.7,
    ),
}
