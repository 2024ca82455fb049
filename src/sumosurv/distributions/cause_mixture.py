"""Competing risks as a mixture over the cause: a share for each cause, and the time given the cause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions.base import SurvivalDistribution
from sumosurv.distributions.competing import CompetingRisksDistribution
from sumosurv.distributions.tabulated import joint_knots

__all__ = ["CauseMixture"]


class CauseMixture(CompetingRisksDistribution):
    r"""Cause k with probability π_k, and then the time from a distribution of its own.

    .. math:: S = \sum_k \pi_k S_k, \qquad F_k = \pi_k (1 - S_k), \qquad f_k = \pi_k f_k^{(k)}

    All closed-form: the likelihood of events, censored times, intervals and delayed entry needs no integral.

    Parameters
    ----------
    log_shares : array of shape (n, K)
        log π_k of each subject, up to a constant of its own: they are normalised here.
    components : sequence of K SurvivalDistribution
        For each cause the distribution of T given that cause, all for the same n subjects.

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
        given = log_shares if isinstance(log_shares, Tensor) else torch.from_numpy(np.array(log_shares, np.float64))
        sizes = {len(part) for part in components}
        if sizes != {len(given)} or given.ndim != 2 or given.shape[1] != len(components):
            raise ValueError(
                f"log_shares has one row per subject and one column per cause; got shape {tuple(given.shape)} for "
                f"{len(components)} components of {sorted(sizes)} subjects."
            )
        self.components = tuple(components)
        self.log_shares = torch.log_softmax(given.to(self._like), dim=1)
        if bool(torch.isnan(self.log_shares).any()):
            raise ValueError("log_shares must be numbers, at least one of each subject above minus infinity.")
        self._shares = torch.exp(self.log_shares)
        self._whole = self._in_order(self._shares[:, k : k + 1] for k in range(self.n_causes))

    def __len__(self) -> int:
        return len(self.components[0])

    @property
    def n_causes(self) -> int:
        """K."""
        return len(self.components)

    @property
    def _like(self) -> Tensor:
        return self.components[0]._like

    @property
    def _breaks(self) -> tuple[float, ...]:
        return tuple(sorted({b for part in self.components for b in part._breaks}))

    def _take(self, rows: Tensor) -> CauseMixture:
        return CauseMixture(self.log_shares[rows], [part._take(rows) for part in self.components])

    def single(self) -> CauseMixture:
        """The mixture of its components in single precision."""
        return CauseMixture(self.log_shares, [part.single() for part in self.components])

    def step_table(self) -> tuple[Tensor, Tensor] | None:
        """The mixture of the tables on all of their knots, where all components are step functions."""
        knots = joint_knots(self.components)
        return None if knots is None else (knots, self._survival(knots[None]))

    # ------------------------------------------------------------------

    @staticmethod
    def _in_order(parts: Iterable[Tensor]) -> Tensor:
        """The sum of tensors, always in the same order: where all S_k are one, S is one to the last bit."""
        total, *rest = parts
        for part in rest:
            total = total + part
        return total

    def _weigh(self, parts: Sequence[Tensor]) -> Tensor:
        weighed = (self._shares[:, k : k + 1] * part for k, part in enumerate(parts))
        return self._in_order(weighed) / self._whole

    def _mix(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.logsumexp(self._with_shares(parts), dim=-1)

    def _with_shares(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(parts), dim=-1) + self.log_shares[:, None]

    def _survival(self, t: Tensor) -> Tensor:
        return self._weigh([part._survival(t) for part in self.components]).clamp_max(1.0)

    def _density(self, t: Tensor) -> Tensor:
        return self._weigh([part._density(t) for part in self.components])

    def _log_survival(self, t: Tensor) -> Tensor:
        return self._mix([part._log_survival(t) for part in self.components]).clamp_max(0.0)

    def _log_density(self, t: Tensor) -> Tensor:
        return self._mix([part._log_density(t) for part in self.components])

    def _log_both(self, t: Tensor) -> tuple[Tensor, Tensor]:
        pairs = [part._log_both(t) for part in self.components]
        return self._mix([pair[0] for pair in pairs]).clamp_max(0.0), self._mix([pair[1] for pair in pairs])

    def _log_cause_density(self, t: Tensor) -> Tensor:
        return self._with_shares([part._log_density(t) for part in self.components])

    def _incidence(self, t: Tensor) -> Tensor:
        reached = torch.stack([-torch.expm1(part._log_survival(t)) for part in self.components], dim=-1)
        return (self._shares / self._whole)[:, None] * reached

    def _posterior(self, start: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Shares of the causes among those event-free at start (n, 1), as (n, K); and log S_k there, each (n, 1)."""
        log_each = [part._log_survival(start) for part in self.components]
        return torch.softmax(self._with_shares(log_each)[:, 0], dim=-1), log_each

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        shares, log_each = self._posterior(start)
        since = [
            torch.where(torch.isinf(log_start), 0.0, -torch.expm1((part._log_survival(t) - log_start).clamp_max(0.0)))
            for part, log_start in zip(self.components, log_each)
        ]
        return shares.nan_to_num(0.0)[:, None] * torch.stack(since, dim=-1)

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        parts = [self._shares[:, k] * part._restricted_mean(horizon) for k, part in enumerate(self.components)]
        return torch.stack(parts).sum(0)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        shares, _ = self._posterior(start[:, None])
        total = torch.zeros_like(start)
        for k, part in enumerate(self.components):
            rows = (shares[:, k] > 0).nonzero()[:, 0]
            total = total.index_add(0, rows, shares[rows, k] * part._take(rows)._remaining_mean(start[rows], end[rows]))
        return total

    def _restricted_time_lost(self, horizon: Tensor) -> Tensor:
        lost = [horizon - part._restricted_mean(horizon) for part in self.components]
        return self._shares * torch.stack(lost, dim=-1)

    def _sample_with_causes(self, size: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        edges = (self._shares / self._whole).cumsum(1)[:, None, :-1]
        uniform = torch.from_numpy(rng.random((len(self), size))).to(edges)
        choice = (uniform[..., None] >= edges).sum(-1)
        draws = self._like.new_empty(len(self), size)
        for k, part in enumerate(self.components):
            rows, columns = (choice == k).nonzero(as_tuple=True)
            if len(rows):
                draws[rows, columns] = part._take(rows)._sample(1, rng)[:, 0]
        return draws, torch.where(torch.isfinite(draws), choice + 1, 0)

    def _sample(self, size: int, rng: np.random.Generator) -> Tensor:
        return self._sample_with_causes(size, rng)[0]
