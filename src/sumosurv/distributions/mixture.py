"""Mixtures: of distributions with the same causes (`Mixture`), and over the cause of the event (`CauseMixture`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions._arguments import as_tensor, is_traced
from sumosurv.distributions.base import SurvivalDistribution
from sumosurv.distributions.wrapper import Combination


class _Weighted(Combination):
    """Σ wᵢ Sᵢ(t) with weights that may differ by subject; methods that do not involve the cause."""

    _log_weights: Tensor  # (n, components), or (1, components) if all subjects share them
    _weights: Tensor
    _whole: Tensor  # the sum of the weights, (n,) or (1,): one up to rounding

    def _set(self, components: Sequence[SurvivalDistribution], weights: Tensor, log_weights: Tensor) -> None:
        self.components, self._weights, self._log_weights = tuple(components), weights, log_weights
        self._whole = reduce(add, weights.unbind(1))  # in the order of `_sum`, so that the mean of ones is exactly one

    def step_table(self) -> tuple[Tensor, Tensor] | None:
        """The mixture of the tables on all of their knots, if all components are step functions."""
        tables = [table for part in self.components if (table := part.step_table()) is not None]
        if len(tables) < len(self.components):
            return None
        knots = torch.unique(torch.cat([own for own, _ in tables]))
        places = (torch.searchsorted(own, knots, right=True) - 1 for own, _ in tables)
        return knots, self._sum(table[:, place] for (_, table), place in zip(tables, places)).clamp_max(1.0)

    def _steps(self) -> None:
        """None: a search for quantiles costs less than the table of all components, and means have closed forms."""

    def _sum(self, parts: Iterable[Tensor]) -> Tensor:
        """Σ wᵢ partᵢ for parts of shape (n, ...)."""
        weights = self._weights.unbind(1)
        terms = (part.to(w.dtype) * _across(w, part) for part, w in zip(parts, weights))
        total = reduce(add, terms, self._weights.new_zeros(()))
        return total / _across(self._whole, total)

    def _mix(self, parts: Sequence[Tensor]) -> Tensor:
        """log Σ wᵢ exp(partᵢ) for parts of shape (n, ...)."""
        return torch.logsumexp(self._weighted(parts), dim=0)

    def _weighted(self, parts: Sequence[Tensor]) -> Tensor:
        """log wᵢ + partᵢ for parts of shape (n, ...), on a new first axis."""
        stacked = torch.stack([part.to(self._log_weights.dtype) for part in parts])
        return stacked + self._log_weights.T.reshape(len(parts), -1, *[1] * (stacked.ndim - 2))

    def _survival(self, t: Tensor) -> Tensor:
        return self._sum(part._survival(t) for part in self.components).clamp_max(1.0)

    def _density(self, t: Tensor) -> Tensor:
        return self._sum(part._density(t) for part in self.components)

    def _log_survival(self, t: Tensor) -> Tensor:
        return self._mix([part._log_survival(t) for part in self.components]).clamp_max(0.0)

    def _log_density(self, t: Tensor) -> Tensor:
        return self._mix([part._log_density(t) for part in self.components])

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        pairs = [part._log_both(t) for part in self.components]
        return self._mix([pair[0] for pair in pairs]).clamp_max(0.0), self._mix([pair[1] for pair in pairs])

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        t, end = super()._inverse_log_survival(level), torch.isneginf(level)
        if bool(end.any()):  # S = 0 is reached when the last component reaches it, which no search would find
            each = (part._inverse_log_survival(level) for part in self.components)
            last = [torch.where(w[:, None] > 0, own, 0.0) for own, w in zip(each, self._weights.unbind(1))]
            t = torch.where(end, torch.stack(last).amax(0), t)
        return t

    def _posterior(self, log_survival: Sequence[Tensor]) -> Tensor:
        """Weights of the components given survival, (n, components), from log Sᵢ (n, 1)."""
        return torch.softmax(self._weighted(log_survival)[..., 0], dim=0).T

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        return self._sum(part._restricted_mean(horizon).to(horizon) for part in self.components)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        weights = self._posterior([part._log_survival(start[:, None]) for part in self.components])
        total = torch.zeros_like(start)
        for part, weight in zip(self.components, weights.unbind(1)):
            rows = (weight > 0).nonzero()[:, 0]
            rest = part._take(rows)._remaining_mean(start[rows], end[rows])
            total = total.index_add(0, rows, (weight[rows] * rest).to(total))
        return total

    def _draw(self, size: int, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return the component of each draw (from zero), its time and its cause within the component, all (n, size)."""
        edges = (self._weights / self._whole[:, None]).cumsum(1)[:, None, :-1]
        uniform = torch.from_numpy(rng.random((len(self), size))).to(edges)
        choice = (uniform[..., None] >= edges).sum(-1)
        times, causes = self._like.new_empty(len(self), size), torch.zeros_like(choice)
        for i, part in enumerate(self.components):
            rows, columns = (choice == i).nonzero(as_tuple=True)
            if len(rows):
                drawn, cause = part._take(rows)._sample(1, rng)
                times[rows, columns], causes[rows, columns] = drawn[:, 0], cause[:, 0]
        return choice, times, causes


def _across(weight: Tensor, part: Tensor) -> Tensor:
    """Reshape weights (n,) or (1,) to broadcast against a part (n, ...)."""
    return weight.reshape(-1, *[1] * (part.ndim - 1))


class Mixture(_Weighted):
    r"""Mixture of distributions, S(t) = Σ wᵢ Sᵢ(t): combines the members of an ensemble, with an exact likelihood.

    Parameters
    ----------
    components : sequence of SurvivalDistribution
        All for the same n subjects and the same causes.
    weights : sequence of float, optional
        Positive, summing to one; equal by default.
    """

    def __init__(self, components: Sequence[SurvivalDistribution], weights: Any = None) -> None:
        if not components:
            raise ValueError("A mixture needs at least one component.")
        for name, numbers in (("subjects", map(len, components)), ("causes", (part.n_causes for part in components))):
            if len(set(found := list(numbers))) != 1:
                raise ValueError(f"The components of a mixture must have the same {name}; they have {found}.")
        k = len(components)
        self.weights = np.full(k, 1.0 / k) if weights is None else np.asarray(weights, dtype=np.float64)
        if self.weights.shape != (k,) or not (self.weights > 0).all() or abs(self.weights.sum() - 1.0) > 1e-9:
            raise ValueError(f"Give {k} positive weights that sum to one; got {self.weights}.")
        like = components[0]._like
        self._set(components, *(torch.from_numpy(w)[None].to(like) for w in (self.weights, np.log(self.weights))))

    @classmethod
    def of(cls, components: Sequence[SurvivalDistribution], weights: Any = None) -> SurvivalDistribution:
        """The mixture, or the component itself if there is only one."""
        return components[0] if len(components) == 1 else cls(components, weights)

    @property
    def n_causes(self) -> int:
        """The number of causes."""
        return self.components[0].n_causes

    @property
    def _description(self) -> str:
        return f"mixture of {len(self.components)} components"

    def _with(self, components: Sequence[SurvivalDistribution], rows: Tensor | None = None) -> Self:
        return type(self)(components, self.weights)

    def _incidence(self, t: Tensor) -> Tensor:
        return self._sum(part._incidence(t) for part in self.components)

    def _log_cause_density(self, t: Tensor) -> Tensor:
        return self._mix([part._log_cause_density(t) for part in self.components])

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        weights = self._posterior([part._log_survival(start) for part in self.components]).nan_to_num(0.0)
        since = [part._incidence_since(start, t) for part in self.components]
        return torch.stack([w[:, None, None] * part for w, part in zip(weights.unbind(1), since)]).sum(0)

    def _restricted_time_lost(self, horizon: Tensor) -> Tensor:
        return self._sum(part._restricted_time_lost(horizon) for part in self.components)

    def _sample(self, size: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        return self._draw(size, rng)[1:]


class CauseMixture(_Weighted):
    r"""Competing risks as a mixture: cause k has probability π_k, and its times have the distribution of component k.

    .. math:: S = \sum_k \pi_k S_k, \qquad F_k = \pi_k (1 - S_k), \qquad f_k = \pi_k f_k^{(k)}

    All are closed-form: the likelihood of events, censored times, intervals and delayed entry needs no integral.

    Parameters
    ----------
    log_shares : array of shape (n, K)
        log π_k of each subject, up to a constant per subject; the shares are normalised.
    components : sequence of K SurvivalDistribution
        For each cause, the distribution of T given that cause; all for the same n subjects.

    Examples
    --------
    >>> from sumosurv.distributions import Weibull
    >>> d = CauseMixture(np.log([[0.75, 0.25]]), [Weibull([1.0], [1.0]), Weibull([2.0], [1.0])])
    >>> d.cumulative_incidence([1.0, np.inf]).round(3)
    array([[[0.474, 0.098],
            [0.75 , 0.25 ]]])
    """

    def __init__(self, log_shares: Any, components: Sequence[SurvivalDistribution]) -> None:
        if not components:
            raise ValueError("A mixture over causes needs at least one component.")
        given, sizes = as_tensor(log_shares), {len(part) for part in components}
        checked = not is_traced(given)
        if checked and (sizes != {len(given)} or given.ndim != 2 or given.shape[1] != len(components)):
            raise ValueError(
                f"log_shares must have one row per subject and one column per cause; got shape {tuple(given.shape)} "
                f"for {len(components)} components of {sorted(sizes)} subjects."
            )
        log_shares = torch.log_softmax(given.to(components[0]._like), dim=1)
        if checked and bool(torch.isnan(log_shares).any()):
            raise ValueError("log_shares must be numbers, and each subject needs one above minus infinity.")
        self._set(components, torch.exp(log_shares), log_shares)

    @property
    def n_causes(self) -> int:
        """The number of causes."""
        return len(self.components)

    @property
    def _description(self) -> str:
        return f"mixture over causes of {self.components[0]._description}"

    def _with(self, components: Sequence[SurvivalDistribution], rows: Tensor | None = None) -> Self:
        return type(self)(self._log_weights if rows is None else self._log_weights[rows], components)

    def _log_cause_density(self, t: Tensor) -> Tensor:
        return self._weighted([part._log_density(t) for part in self.components]).movedim(0, -1)

    def _incidence(self, t: Tensor) -> Tensor:
        reached = torch.stack([-torch.expm1(part._log_survival(t)) for part in self.components], dim=-1)
        return (self._weights / self._whole[:, None])[:, None] * reached

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        log_each = [part._log_survival(start) for part in self.components]
        since = [
            torch.where(torch.isinf(log_start), 0.0, -torch.expm1((part._log_survival(t) - log_start).clamp_max(0.0)))
            for part, log_start in zip(self.components, log_each)
        ]
        return self._posterior(log_each).nan_to_num(0.0)[:, None] * torch.stack(since, dim=-1)

    def _restricted_time_lost(self, horizon: Tensor) -> Tensor:
        lost = [horizon - part._restricted_mean(horizon) for part in self.components]
        return self._weights * torch.stack(lost, dim=-1)

    def _sample(self, size: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        choice, times, _ = self._draw(size, rng)
        return times, torch.where(torch.isfinite(times), choice + 1, 0)
