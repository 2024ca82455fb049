"""Distributions made of others: mixtures, and what is left given survival so far."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions.base import SurvivalDistribution

__all__ = ["Conditional", "Mixture", "Remaining"]


class Mixture(SurvivalDistribution):
    r"""S(t) = Σ wᵢ Sᵢ(t), and likewise the density: an ensemble whose likelihood stays exact.

    Parameters
    ----------
    components : sequence of SurvivalDistribution
        All for the same n subjects.
    weights : sequence of float, optional
        Positive, summing to one; equal by default.
    """

    def __init__(self, components: Sequence[SurvivalDistribution], weights: Any = None) -> None:
        if not components:
            raise ValueError("A mixture needs at least one component.")
        if len({len(part) for part in components}) != 1:
            raise ValueError(
                f"Components must be for the same subjects; they have {[len(part) for part in components]}."
            )
        k = len(components)
        shares = np.full(k, 1.0 / k) if weights is None else np.asarray(weights, dtype=np.float64)
        if shares.shape != (k,) or not (shares > 0).all() or abs(shares.sum() - 1.0) > 1e-9:
            raise ValueError(f"Give {k} positive weights that sum to one; got {shares}.")
        self.components = tuple(components)
        self.weights = shares

    def __len__(self) -> int:
        return len(self.components[0])

    @property
    def _like(self) -> Tensor:
        return self.components[0]._like

    @property
    def _breaks(self) -> tuple[float, ...]:
        return tuple(sorted({b for part in self.components for b in part._breaks}))

    def _take(self, rows: Tensor) -> Self:
        return type(self)([part._take(rows) for part in self.components], self.weights)

    def single(self) -> Self:
        """The mixture of its components in single precision."""
        return type(self)([part.single() for part in self.components], self.weights)

    def step_table(self) -> tuple[Tensor, Tensor] | None:
        """The mixture of the tables, where all components are step functions with the same knots."""
        tables = [part.step_table() for part in self.components]
        known = [table for table in tables if table is not None]
        if len(known) < len(tables) or any(not torch.equal(known[0][0], knots) for knots, _ in known[1:]):
            return None
        return known[0][0], self._sum(survival for _, survival in known).clamp_max(1.0)

    def _sum(self, parts: Iterable[Tensor]) -> Tensor:
        """Σ wᵢ partᵢ over Σ wᵢ, the two summed in the same way: where all parts are 1, so is the result."""
        shares = torch.from_numpy(self.weights).to(self._like.dtype)
        total, whole = torch.zeros((), dtype=shares.dtype, device=self._like.device), shares.new_zeros(())
        for part, share in zip(parts, shares):
            total, whole = total + part.to(shares.dtype) * float(share), whole + share
        return total if float(whole) == 1.0 else total / float(whole)

    def _survival(self, t: Tensor) -> Tensor:
        return self._sum(part._survival(t) for part in self.components).clamp_max(1.0)

    def _density(self, t: Tensor) -> Tensor:
        return self._sum(part._density(t) for part in self.components)

    def _mix(self, parts: Sequence[Tensor]) -> Tensor:
        weighted = [(part + math.log(w)).to(self._like.dtype) for part, w in zip(parts, self.weights)]
        return torch.logsumexp(torch.stack(weighted), dim=0)

    def _log_survival(self, t: Tensor) -> Tensor:
        return self._mix([part._log_survival(t) for part in self.components]).clamp_max(0.0)

    def _log_density(self, t: Tensor) -> Tensor:
        return self._mix([part._log_density(t) for part in self.components])

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        pairs = [part._log_both(t) for part in self.components]
        return self._mix([pair[0] for pair in pairs]).clamp_max(0.0), self._mix([pair[1] for pair in pairs])

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        parts = [w * part._restricted_mean(horizon).to(horizon) for part, w in zip(self.components, self.weights)]
        return torch.stack(parts).sum(0)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        log_each = torch.stack([part._log_survival(start[:, None])[:, 0] for part in self.components])
        log_weights = torch.as_tensor(np.log(self.weights)).to(log_each)[:, None]
        shares = torch.softmax(log_each + log_weights, dim=0)  # of the components among those who got as far as start
        total = torch.zeros_like(start)
        for part, share in zip(self.components, shares):
            reach = share > 0
            rows = reach.nonzero()[:, 0]
            rest = part._take(rows)._remaining_mean(start[rows], end[rows])
            total = total.index_add(0, rows, (share[rows] * rest).to(total))
        return total

    def _sample(self, size: int, rng: np.random.Generator) -> Tensor:
        choice = torch.from_numpy(rng.choice(len(self.components), size=(len(self), size), p=self.weights))
        draws = self._like.new_empty(len(self), size)
        for k, part in enumerate(self.components):
            rows, columns = (index.to(draws.device) for index in (choice == k).nonzero(as_tuple=True))
            if len(rows):
                draws[rows, columns] = part._take(rows)._sample(1, rng)[:, 0]
        return draws


class Conditional(SurvivalDistribution):
    r"""T given T > after: S(t | T > s) = S(t) / S(s) for t >= s, and 1 before.

    Parameters
    ----------
    base : SurvivalDistribution
    after : float or array of shape (n,)
        Time up to which each subject is known to be event-free.
    """

    def __init__(self, base: SurvivalDistribution, after: Any) -> None:
        start = base._check_times(base._tensor(after), "after")
        if start.ndim == 0:
            start = start.expand(len(base))
        if start.shape != (len(base),):
            raise ValueError(
                f"after is a number or one time per subject ({len(base)}); got shape {tuple(start.shape)}."
            )
        self.base, self.after, self.last_time = base, start[:, None], base.last_time
        self._log_reach = base._log_survival(self.after)
        if bool(torch.isinf(self._log_reach).any()):
            row = int(torch.isinf(self._log_reach[:, 0]).nonzero()[0])
            raise ValueError(
                f"Subject {row} has survival probability zero at after = {float(start[row]):g}; "
                "nothing can be said given that it is survived."
            )

    def __len__(self) -> int:
        return len(self.base)

    @property
    def _like(self) -> Tensor:
        return self.base._like

    def _take(self, rows: Tensor) -> Self:
        return type(self)(self.base._take(rows), self.after[rows, 0])

    def _log_survival(self, t: Tensor) -> Tensor:
        log_survival = self.base._log_survival(torch.maximum(t, self.after)) - self._log_reach
        return torch.where(t <= self.after, 0.0, log_survival.clamp_max(0.0))  # rounding may not put S above one

    def _log_density(self, t: Tensor) -> Tensor:
        log_density = self.base._log_density(torch.maximum(t, self.after)) - self._log_reach
        return torch.where(t < self.after, -math.inf, log_density)

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        t = torch.maximum(self.base._inverse_log_survival(level + self._log_reach), self.after)
        return torch.where(level >= 0, torch.zeros_like(t), t)

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        return self._remaining_mean(torch.zeros_like(horizon), horizon)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        first = torch.maximum(start, self.after[:, 0])
        certain = torch.minimum(first, end) - start
        return certain + self.base._remaining_mean(first, torch.maximum(end, first))


class Remaining(SurvivalDistribution):
    r"""T - after given T > after, each subject on a clock of its own: S(t) = S₀(after + t) / S₀(after).

    Parameters
    ----------
    base : SurvivalDistribution
    after : float or array of shape (n,)
        Time up to which each subject is known to be event-free.
    """

    def __init__(self, base: SurvivalDistribution, after: Any) -> None:
        given = base.conditional(after)
        if not isinstance(given, Conditional):
            raise TypeError(f"A conditional distribution was expected; got {type(given).__name__}.")
        self.given: Conditional = given
        first = given.after[:1]
        if base.last_time is not None and bool((given.after == first).all()):  # else each subject has its own
            self.last_time = max(base.last_time - float(first.sum()), 0.0)

    @property
    def after(self) -> Tensor:
        """When each subject's clock starts, (n, 1)."""
        return self.given.after

    def __len__(self) -> int:
        return len(self.given)

    @property
    def _like(self) -> Tensor:
        return self.given._like

    def _take(self, rows: Tensor) -> Self:
        made = copy.copy(self)
        made.given = self.given._take(rows)
        return made

    def _log_survival(self, t: Tensor) -> Tensor:
        return torch.where(t <= 0, 0.0, self.given._log_survival(t + self.after))

    def _log_density(self, t: Tensor) -> Tensor:
        return self.given._log_density(t + self.after)

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        later = self.given._inverse_log_survival(level) - self.after
        return torch.where(level >= 0, 0.0, later.clamp_min(0.0))

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        first = self.after[:, 0]
        return self.given._remaining_mean(first, first + horizon)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        return self.given._remaining_mean(start + self.after[:, 0], end + self.after[:, 0])
