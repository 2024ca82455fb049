"""One example of every kind of distribution: what the contracts are tested on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import special

import small_networks
from sumosurv.distributions import (
    CauseMixture,
    Conditional,
    Continued,
    CovariatePath,
    Delayed,
    GeneralisedGamma,
    Gompertz,
    Joined,
    LogLogistic,
    LogNormal,
    Mixture,
    Normal,
    Ode,
    Recalibrated,
    Rescaled,
    RoystonParmar,
    SurvivalDistribution,
    Tabulated,
    Weibull,
    cause_specific,
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
    overflows: bool = False  # the cumulative hazard leaves the range of floating-point numbers
    breaks: tuple[float, ...] = ()  # kinks or jumps
    start: float = 0.0  # S = 1 up to here

    def __call__(self) -> SurvivalDistribution:
        return self.make()


def label(name: str) -> str:
    return name.replace(" ", "-").replace(",", "")


def quadrature(function, breaks, upper):
    """∫₀^upper of the curves of every subject, in log time: Gauss-Legendre on many panels, cut at the breaks."""
    end = np.log(upper)
    cuts = [np.log(b) for b in breaks if 0 < b < upper]
    edges = np.unique([*np.linspace(end - 70.0, end - 24.0, 40), *np.linspace(end - 24.0, end, 480), *cuts])
    nodes, weights = special.roots_legendre(10)
    half = 0.5 * np.diff(edges)[:, None]
    t = np.exp(0.5 * (edges[1:] + edges[:-1])[:, None] + half * nodes)
    return np.einsum("nt...,t->n...", function(t.reshape(-1)), (half * weights * t).reshape(-1))


def weibull():
    return Weibull(scale=[1.0, 2.0, 30.0], shape=[0.7, 1.0, 3.0])


def log_normal():
    return LogNormal(mu=[0.0, 1.0, -1.0], sigma=[0.3, 1.0, 2.0])


def normal():
    return Normal(mean=[2.0, 0.0, -1.0], sd=[0.5, 1.0, 2.0])


def log_logistic():
    return LogLogistic(scale=[1.0, 2.0, 0.5], shape=[3.0, 4.0, 2.5])


def gompertz():
    return Gompertz(level=[0.1, 1.0, 0.5], rate=[1.0, 1e-9, 0.2])


def falling_gompertz():
    """The event never happens for some."""
    return Gompertz(level=[0.1, 1.0, 0.5], rate=[-0.2, -0.4, -3.0])


def generalised_gamma():
    return GeneralisedGamma(mu=[0.0, 1.0, -1.0], sigma=[0.3, 0.4, 2.0], q=[2.0, -0.6, 1e-3])


def royston_parmar():
    coefficients = [[-1.0, 1.2, 0.1, -0.05], [0.5, 0.4, 0.02, 0.01], [-2.0, 2.0, 0.0, 0.0]]
    knots = torch.tensor([-2.0, -0.5, 0.5, 1.5], dtype=torch.float64)
    return RoystonParmar(torch.tensor(coefficients, dtype=torch.float64), knots)


def ode(log_risk=None, offset=0.01, growth=0.0):
    """Λ(τ) = e^c (τ + τ²) / 2 on the solver's time scale τ, known to the last digits."""

    def solution(code, steps):
        tau = torch.linspace(0, 1, steps + 1, dtype=code.dtype)
        return torch.exp(code) * (tau + tau**2) / 2, code + torch.log(0.5 + tau)

    code = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    if log_risk is None:
        base = Ode(solution, code, offset=offset, tolerance=1e-10)
    else:
        base = Ode(solution, code[:1], log_risk=torch.tensor(log_risk, dtype=torch.float64), offset=offset)
    return Continued(base, 1.0, growth)


def monotone(seeds=(0,), **options):
    return small_networks.network(seeds, **options).distribution(small_networks.inputs(3))


def frozen(seeds=(0,), **options):
    """A network whose weights want no gradient, as after a fit: predicted the fast way."""
    return small_networks.network(seeds, **options).requires_grad_(False).distribution(small_networks.inputs(3))


def proportional():
    return small_networks.proportional((0,)).distribution(small_networks.inputs(3))


def tabulated(between, table=FALLING):
    return Tabulated(KNOTS, table, between=between)


def step_with_an_atom():
    """Some subjects have the event at time zero."""
    return Tabulated([0.0, *KNOTS], np.column_stack([[0.95, 1.0, 0.9], FALLING]))


STARTS = np.array([1.1, 0.0, 0.4, 0.0, 0.0, 0.4])  # in no order
SUBJECTS = np.array([0, 0, 0, 2, 1, 1])
SPELLS = [2, 0, 1, 1, 0, 2]


def spells():
    """Rows for the spells of three subjects."""
    return Weibull([0.9, 1.0, 2.0, 0.5, 1.0, 3.0], [1.3, 1.0, 2.0, 1.5, 1.0, 1.4])


_K = tuple(KNOTS)
_M = (*small_networks.marginal_knots(), 1.0)
KINDS: dict[str, Kind] = {
    "weibull": Kind(weibull, 2.0),
    "log-normal": Kind(log_normal, 1.0),
    "normal": Kind(normal, 1.0),
    "log-logistic": Kind(log_logistic, 1.0),
    "gompertz": Kind(gompertz, 1.0, overflows=True),
    "gompertz, falling": Kind(falling_gompertz, 1.0, overflows=True, total=False),
    "generalised gamma": Kind(generalised_gamma, 1.0),
    "royston-parmar": Kind(royston_parmar, 1.0, breaks=tuple(np.exp([-2.0, -0.5, 0.5, 1.5]))),
    "ode": Kind(ode, 0.5, breaks=(1.0,)),
    "ode, proportional": Kind(
        lambda: ode(log_risk=[-0.5, 0.5, 2.0], offset=None, growth=0.9), 0.5, overflows=True, breaks=(1.0,)
    ),
    "monotone": Kind(monotone, 1.0, overflows=True, breaks=_M),
    "monotone log": Kind(
        lambda: monotone((3,), kind="log", widths=(4,), positive="softplus", growth=0.0), 1.0, breaks=(1.0,)
    ),
    "monotone ensemble": Kind(lambda: monotone((0, 1, 2)), 1.0, overflows=True, breaks=_M),
    "monotone, fast": Kind(frozen, 1.0, overflows=True, breaks=_M),
    "monotone ensemble, fast": Kind(lambda: frozen((0, 1, 2)), 1.0, overflows=True, breaks=_M),
    "tabulated hazard": Kind(lambda: tabulated("hazard"), 2.0, breaks=_K),
    "tabulated density": Kind(lambda: tabulated("density", TO_ZERO), 2.0, bounded=True, breaks=_K),
    "tabulated density, not all": Kind(lambda: tabulated("density"), 2.0, total=False, breaks=_K),
    "tabulated step": Kind(lambda: tabulated("step", TO_ZERO), 2.0, smooth=False, bounded=True, breaks=_K),
    "tabulated step, not all": Kind(lambda: tabulated("step"), 2.0, smooth=False, total=False, breaks=_K),
    "tabulated, proportional hazards": Kind(
        lambda: Tabulated.proportional(KNOTS, [0.1, 0.2, 0.7, 0.9, 1.5, 4.0], [1.0, 0.5, 3.0]),
        2.0,
        smooth=False,
        total=False,
        breaks=_K,
    ),
    "joined": Kind(lambda: Joined([weibull()[:2], log_normal()[2]], [[2, 0], [1]]), 1.0),
    "mixture": Kind(lambda: Mixture([weibull(), log_normal()], [0.3, 0.7]), 1.0),
    "mixture with a table": Kind(lambda: Mixture([weibull(), tabulated("density", TO_ZERO)]), 2.0, breaks=_K),
    "mixture of steps": Kind(
        lambda: Mixture([tabulated("step"), tabulated("step", TO_ZERO)]), 2.0, smooth=False, total=False, breaks=_K
    ),
    "rescaled": Kind(lambda: Rescaled(log_normal(), 365.25), 365.0),
    "rescaled monotone": Kind(
        lambda: Rescaled(monotone(), 40.0), 40.0, overflows=True, breaks=tuple(40.0 * t for t in _M)
    ),
    "rescaled step": Kind(
        lambda: Rescaled(tabulated("step", TO_ZERO), 10.0), 20.0, smooth=False, bounded=True, breaks=tuple(10 * KNOTS)
    ),
    "delayed": Kind(lambda: Delayed(Weibull([1.0, 2.0, 30.0], [1.5, 1.0, 3.0]), 0.25), 2.0, breaks=(0.25,), start=0.25),
    "delayed monotone": Kind(
        lambda: Delayed(monotone(), 0.3), 1.0, overflows=True, breaks=(0.3, *(0.3 + t for t in _M)), start=0.3
    ),
    "delayed step": Kind(
        lambda: Delayed(step_with_an_atom(), 0.75),
        2.0,
        smooth=False,
        total=False,
        breaks=(0.75, *(0.75 + KNOTS)),
        start=0.75,
    ),
    "delayed, in another unit": Kind(
        lambda: Delayed(Rescaled(monotone(), 40.0), 3.0),
        40.0,
        overflows=True,
        breaks=(3.0, *(3.0 + 40.0 * t for t in _M)),
        start=3.0,
    ),
    "conditional": Kind(lambda: Conditional(weibull(), 1.5), 2.0, breaks=(1.5,), start=1.5),
    "conditional monotone": Kind(
        lambda: Conditional(monotone(), 0.3), 1.0, overflows=True, breaks=(0.3, *_M), start=0.3
    ),
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
    "remaining": Kind(lambda: weibull().remaining([0.1, 0.5, 20.0]), 2.0),
    "remaining monotone": Kind(
        lambda: monotone().remaining(0.3), 1.0, overflows=True, breaks=tuple(t - 0.3 for t in _M if t > 0.3)
    ),
    "remaining step": Kind(
        lambda: tabulated("step", TO_ZERO).remaining(2.7),
        3.0,
        smooth=False,
        bounded=True,
        breaks=tuple(t - 2.7 for t in KNOTS if t > 2.7),
    ),
    "remaining steps, own times": Kind(
        lambda: tabulated("step", TO_ZERO).remaining([0.75, 2.7, 1.2]),
        2.0,
        smooth=False,
        bounded=True,
        breaks=tuple(sorted({t - after for t in KNOTS for after in (0.75, 2.7, 1.2) if t > after})),
    ),
    "remaining table": Kind(
        lambda: tabulated("hazard").remaining(0.75), 2.0, breaks=tuple(t - 0.75 for t in KNOTS if t > 0.75)
    ),
    "path": Kind(lambda: CovariatePath(spells(), STARTS, SUBJECTS), 1.0, breaks=(0.4, 1.1)),
    "path of steps": Kind(
        lambda: CovariatePath(tabulated("step", TO_ZERO)[SPELLS], 3 * STARTS, SUBJECTS),
        2.0,
        smooth=False,
        bounded=True,
        breaks=tuple(sorted({*KNOTS, 1.2, 3.3})),
    ),
}


# ---------------------------------------------------------------------- competing risks, of two or three causes

_relabelled = False


@contextmanager
def relabelled() -> Iterator[None]:
    """Within it, distributions are made with their causes renumbered: cause 2 becomes 1, ..., and cause 1 the last."""
    global _relabelled
    _relabelled = True
    try:
        yield
    finally:
        _relabelled = False


def in_order(of_causes: Sequence[Any]) -> list[Any]:
    """What belongs to the causes, one by one, in the order of their numbers."""
    return [*of_causes[1:], of_causes[0]] if _relabelled else list(of_causes)


def cause_of(d: SurvivalDistribution, k: int) -> SurvivalDistribution:
    """The time of an event of the cause that is k outside of `relabelled`."""
    return d.cause((k - 2) % d.n_causes + 1 if _relabelled else k)


def mixture_over_causes(log_shares, components):
    return CauseMixture(np.stack(in_order(list(log_shares.T)), axis=1), in_order(components))


def from_hazards(*components):
    return cause_specific(in_order(components))


SHARES = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.25, 0.7, 0.05]])
LOG_SHARES = np.log(SHARES)


def by_cause():
    """Shares of three causes, and times of a kind of its own given each."""
    return mixture_over_causes(LOG_SHARES, [weibull(), log_normal(), gompertz()])


def hazards():
    """Three cause-specific hazards."""
    return from_hazards(weibull(), log_logistic(), Weibull([3.0, 1.0, 2.0], [2.0, 0.8, 1.3]))


def risk_table(between, survival=FALLING):
    """Two causes, whose shares of each fall are drawn at random; the second has no event at the first time."""
    share = np.random.default_rng(0).uniform(0.1, 0.9, survival.shape)
    share[:, 0] = 1.0
    falls = -np.diff(survival, axis=1, prepend=1.0)
    incidence = np.cumsum(falls[..., None] * np.stack(in_order([share, 1 - share]), axis=-1), axis=1)
    return Tabulated(KNOTS, survival, incidence, between=between)


def steps_by_cause():
    """Shares of two causes, and step curves with different knots given each."""
    other = Tabulated(KNOTS + 0.25, TO_ZERO)
    return mixture_over_causes(LOG_SHARES[:, :2], [tabulated("step", TO_ZERO), other])


def network_by_cause():
    return mixture_over_causes(LOG_SHARES, [monotone((0,)), monotone((1,)), frozen((2,))])


KINDS |= {
    "proportional hazards": Kind(proportional, 0.5, overflows=True, breaks=_M[:-1]),
    "continued Weibull": Kind(lambda: Continued(weibull(), 4.0, 0.3), 2.0, breaks=(4.0,), overflows=True),
    "continued Weibull, least hazard": Kind(lambda: Continued(weibull(), 2.0, 0.0, 0.4), 2.0, breaks=(2.0,)),
    "continued log-normal, constant hazard": Kind(lambda: Continued(log_normal(), 1.5, 0.0), 1.0, breaks=(1.5,)),
}

MAP = {"levels": [0.2, 0.55, 0.8], "values": [0.3, 0.5, 0.85]}


def kinks(base):
    """Where the map of survival probabilities bends, for any of the subjects."""
    return tuple(sorted(base.quantile(1 - np.array(MAP["levels"])).reshape(-1)))


KINDS |= {
    "recalibrated": Kind(lambda: Recalibrated(weibull(), **MAP), 2.0, breaks=kinks(weibull())),
    "recalibrated monotone": Kind(
        lambda: Recalibrated(monotone(), **MAP), 1.0, overflows=True, breaks=tuple(sorted({*_M, *kinks(monotone())}))
    ),
    "recalibrated table": Kind(
        lambda: Recalibrated(tabulated("density", TO_ZERO), **MAP),
        2.0,
        bounded=True,
        breaks=tuple(sorted({*_K, *kinks(tabulated("density", TO_ZERO))})),
    ),
    "recalibrated step": Kind(
        lambda: Recalibrated.of(tabulated("step"), **MAP), 2.0, smooth=False, total=False, breaks=_K
    ),
    "recalibrated rescaled step": Kind(
        lambda: Recalibrated(Rescaled(tabulated("step", TO_ZERO), 10.0), **MAP),
        20.0,
        smooth=False,
        bounded=True,
        breaks=tuple(10 * KNOTS),
    ),
}

KINDS |= {
    "causes": Kind(by_cause, 1.0),
    "causes, continued": Kind(lambda: Continued(by_cause(), 1.5, 0.3), 1.0, breaks=(1.5,), overflows=True),
    "causes, constant hazards": Kind(lambda: Continued(hazards(), 0.8, 0.0), 1.0, breaks=(0.8,)),
    "causes, one": Kind(lambda: CauseMixture(np.zeros((3, 1)), [weibull()]), 2.0),
    "causes, networks": Kind(network_by_cause, 1.0, overflows=True, breaks=_M),
    "causes, steps": Kind(
        steps_by_cause, 2.0, smooth=False, bounded=True, breaks=tuple(sorted({*KNOTS, *(KNOTS + 0.25)}))
    ),
    "cause-specific hazards": Kind(hazards, 1.0),
    "cause-specific steps": Kind(
        lambda: from_hazards(tabulated("step"), tabulated("step", TO_ZERO)),
        2.0,
        smooth=False,
        bounded=True,
        breaks=_K,
    ),
    "table of causes, hazard": Kind(lambda: risk_table("hazard"), 2.0, breaks=_K),
    "table of causes, density": Kind(lambda: risk_table("density", TO_ZERO), 2.0, bounded=True, breaks=_K),
    "table of causes, step": Kind(lambda: risk_table("step"), 2.0, smooth=False, total=False, breaks=_K),
    "table of causes, step to zero": Kind(
        lambda: risk_table("step", TO_ZERO), 2.0, smooth=False, bounded=True, breaks=_K
    ),
    "mixture with causes": Kind(lambda: Mixture([by_cause(), hazards()], [0.3, 0.7]), 1.0),
    "mixture of tables with causes": Kind(
        lambda: Mixture([risk_table("step", TO_ZERO), steps_by_cause()]),
        2.0,
        smooth=False,
        bounded=True,
        breaks=tuple(sorted({*KNOTS, *(KNOTS + 0.25)})),
    ),
    "rescaled causes": Kind(lambda: Rescaled(by_cause(), 365.25), 365.0),
    "delayed causes": Kind(
        lambda: Delayed(from_hazards(Weibull([1.0, 2.0, 9.0], [2.0, 1.0, 3.0]), log_logistic()), 0.25),
        1.0,
        breaks=(0.25,),
        start=0.25,
    ),
    "delayed table of causes": Kind(
        lambda: Delayed(risk_table("step", TO_ZERO), 0.75),
        2.0,
        smooth=False,
        bounded=True,
        breaks=(0.75, *(0.75 + KNOTS)),
        start=0.75,
    ),
    "remaining causes": Kind(lambda: by_cause().remaining([0.1, 0.3, 0.5]), 1.0),
    "remaining causes, hazards": Kind(lambda: hazards().remaining(0.4), 1.0),
    "remaining table of causes": Kind(
        lambda: risk_table("hazard").remaining(0.75), 2.0, breaks=tuple(t - 0.75 for t in KNOTS if t > 0.75)
    ),
    "remaining steps of causes": Kind(
        lambda: risk_table("step", TO_ZERO).remaining(0.75),
        2.0,
        smooth=False,
        bounded=True,
        breaks=tuple(t - 0.75 for t in KNOTS if t > 0.75),
    ),
    "joined causes": Kind(lambda: Joined([by_cause()[:2], hazards()[2]], [[2, 0], [1]]), 1.0),
    "path of causes": Kind(lambda: CovariatePath(by_cause()[SPELLS], STARTS, SUBJECTS), 1.0, breaks=(0.4, 1.1)),
    "path of a table of causes": Kind(
        lambda: CovariatePath(risk_table("step", TO_ZERO)[SPELLS], 3 * STARTS, SUBJECTS),
        2.0,
        smooth=False,
        bounded=True,
        breaks=tuple(sorted({*KNOTS, 1.2, 3.3})),
    ),
    "conditional causes": Kind(lambda: by_cause().conditional(0.3), 1.0, breaks=(0.3,), start=0.3),
    "conditional cause-specific hazards": Kind(lambda: hazards().conditional(0.3), 1.0, breaks=(0.3,), start=0.3),
    "conditional mixture with causes": Kind(
        lambda: Mixture([by_cause(), hazards()]).conditional(0.3), 1.0, breaks=(0.3,), start=0.3
    ),
    "conditional table of causes": Kind(
        lambda: risk_table("step", TO_ZERO).conditional(2.7),
        3.0,
        smooth=False,
        bounded=True,
        breaks=(2.7, *_K),
        start=2.7,
    ),
}
KINDS |= {
    "time of a cause": Kind(lambda: cause_of(by_cause(), 1), 1.0, total=False),
    "time of a cause, by hazards": Kind(lambda: cause_of(hazards(), 2), 1.0, total=False),
    "time of a cause, in cells": Kind(lambda: cause_of(risk_table("hazard"), 1), 2.0, total=False, breaks=_K),
    "time of a cause, steps": Kind(
        lambda: cause_of(steps_by_cause(), 2),
        2.0,
        smooth=False,
        total=False,
        breaks=tuple(sorted({*KNOTS, *(KNOTS + 0.25)})),
    ),
}


def one_of_each() -> list[str]:
    """A kind of each class, with one cause and with several, smooth and not: for rules that the base class keeps."""
    chosen: dict[tuple[object, ...], str] = {}
    for name, kind in KINDS.items():
        distribution = kind()
        chosen.setdefault((type(distribution), distribution.n_causes > 1, kind.smooth), name)
    return [*chosen.values(), "monotone", "monotone, fast"]
