"""Distributions built from rows of other distributions: `Joined` and `CovariatePath`."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions._arguments import as_tensor, check_times
from sumosurv.distributions.base import SurvivalDistribution


def _of_parts(name: str) -> Any:
    """Return a method that evaluates each part at its own subjects, with arguments of shape (n or 1, ...)."""

    def method(self: Joined, *arguments: Tensor) -> Tensor:
        results = []
        for part, rows in zip(self.parts, self.rows):
            own = (t if t.shape[0] == 1 and len(self) > 1 else t[rows] for t in arguments)
            results.append(getattr(part, name)(*own))
        return torch.cat(results)[torch.cat(self.rows).argsort()]

    return method


class Joined(SurvivalDistribution):
    """Several distributions with the same causes as one, with the subjects in a given order.

    Parameters
    ----------
    parts : sequence of SurvivalDistribution
    rows : sequence of int arrays
        The row numbers of the subjects of each part; together, every number from 0 to n - 1 once.

    Examples
    --------
    >>> from sumosurv.distributions import Weibull
    >>> d = Joined([Weibull([1.0, 3.0], 1.0), Weibull(2.0, 1.0)], [[0, 2], [1]])
    >>> d.mean().round(6)
    array([1., 2., 3.])
    """

    def __init__(self, parts: Sequence[SurvivalDistribution], rows: Sequence[Any]) -> None:
        places = [np.asarray(part, dtype=np.int64) for part in rows]
        whole = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
        if [len(part) for part in parts] != [len(part) for part in places] or len(parts) == 0:
            raise ValueError("Give at least one part, and as many rows for each part as it has subjects.")
        if not np.array_equal(np.sort(whole), np.arange(len(whole))):
            raise ValueError(f"rows must contain each number from 0 to {len(whole) - 1} exactly once.")
        if len({part.n_causes for part in parts}) > 1:
            raise ValueError(f"The parts must have the same causes; they have {[part.n_causes for part in parts]}.")
        self.parts = tuple(parts)
        self.rows = tuple(torch.from_numpy(part).to(parts[0]._like.device) for part in places)

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    @property
    def n_causes(self) -> int:
        """The number of causes."""
        return self.parts[0].n_causes

    @property
    def _like(self) -> Tensor:
        return self.parts[0]._like

    def _with(self, parts: Sequence[SurvivalDistribution], rows: Sequence[Tensor]) -> Joined:
        """Return a copy with other parts and rows, which are not checked."""
        made = copy.copy(self)
        made.parts, made.rows = tuple(parts), tuple(rows)
        return made

    def _take(self, rows: Tensor) -> Joined:
        number, place = (torch.empty(len(self), dtype=torch.int64, device=rows.device) for _ in range(2))
        for i, which in enumerate(self.rows):
            number[which], place[which] = i, torch.arange(len(which), device=rows.device)
        found = [(number[rows] == i).nonzero()[:, 0] for i in range(len(self.parts))]
        used = [i for i, which in enumerate(found) if len(which)] or [0]
        return self._with([self.parts[i]._take(place[rows[found[i]]]) for i in used], [found[i] for i in used])

    def single(self) -> Joined:
        """Return the distribution with all parts in single precision."""
        return self._with([part.single() for part in self.parts], self.rows)

    _log_survival = _of_parts("_log_survival")
    _survival = _of_parts("_survival")
    _log_cause_density = _of_parts("_log_cause_density")
    _incidence = _of_parts("_incidence")
    _incidence_since = _of_parts("_incidence_since")
    _inverse_log_survival = _of_parts("_inverse_log_survival")
    _restricted_mean = _of_parts("_restricted_mean")
    _remaining_mean = _of_parts("_remaining_mean")


class CovariatePath(SurvivalDistribution):
    r"""The distribution of a subject with time-varying covariates: each spell has the hazard of its row of ``base``.

    .. math:: S(t) = \prod_j \frac{S_j(\min(t, s_{j+1}))}{S_j(s_j)}, \qquad \text{over the spells with } s_j < t,

    where spell j begins at :math:`s_j` and lasts until the next spell begins; the last spell does not end. The subject
    is event-free at the start of its first spell, so S is one until then. Once S is zero, it stays zero.

    Parameters
    ----------
    base : SurvivalDistribution
        One row for each spell.
    starts : array of shape (spells,)
        Start of each spell; two spells of one subject must not start at the same time.
    subjects : array of int of shape (spells,)
        The subject of each spell, from 0 to n - 1, each with at least one.

    Examples
    --------
    >>> from sumosurv.distributions import Weibull
    >>> rates = Weibull([2.0, 1.0], [1.0, 1.0])  # a hazard of 1/2, and from time 1 on of 1
    >>> CovariatePath(rates, [0.0, 1.0], [0, 0]).cumulative_hazard([1.0, 3.0])
    array([[0.5, 2.5]])
    """

    def __init__(self, base: SurvivalDistribution, starts: Any, subjects: Any) -> None:
        begin = check_times(as_tensor(starts, base._like), "starts")
        who = torch.as_tensor(np.asarray(subjects))
        if begin.shape != (len(base),) or tuple(who.shape) != (len(base),):
            raise ValueError(f"Give a start and a subject for each of {len(base)} spells.")
        who = who.to(begin.device, torch.long)
        count = int(who.max()) + 1 if len(who) else 0
        if len(torch.unique(who)) != count or bool((who < 0).any()):
            raise ValueError("Subjects must be numbered from 0, each with at least one spell.")
        order = torch.argsort(begin, stable=True)
        order = order[torch.argsort(who[order], stable=True)]
        begin, who = begin[order], who[order]
        same = who[1:] == who[:-1]
        if bool((same & (begin[1:] == begin[:-1])).any()):
            place = int((same & (begin[1:] == begin[:-1])).nonzero()[0])
            raise ValueError(
                f"Subject {int(who[place])} has two spells that begin at {float(begin[place]):g}; keep one of them."
            )
        self.base, self.subjects, self.count = base._take(order), who, count
        self.starts = begin[:, None]
        last = torch.ones(len(who), dtype=torch.bool, device=who.device)
        last[:-1] = ~same
        follow = torch.cat([begin[1:], begin.new_zeros(1)])
        self.ends = torch.where(last, math.inf, follow)[:, None]
        self.first = torch.ones_like(last)  # which spells are the first of their subject
        self.first[1:] = ~same
        self._log_reach = self.base._log_survival(self.starts)
        impossible = torch.isneginf(self._log_reach) & (self._log_reached() > -math.inf)
        if bool(impossible.any()):
            place = int(impossible[:, 0].nonzero()[0])
            raise ValueError(
                f"Subject {int(who[place])} has survival probability zero at {float(begin[place]):g}, the "
                "start of a spell, under the covariates of that spell, so the distribution after it is "
                "undefined."
            )

    def __len__(self) -> int:
        return self.count

    @property
    def n_causes(self) -> int:
        """The number of causes."""
        return self.base.n_causes

    @property
    def _description(self) -> str:
        return f"{self.base._description}, covariates changing over time"

    @property
    def _like(self) -> Tensor:
        return self.base._like

    def _take(self, rows: Tensor) -> Self:
        size = torch.bincount(self.subjects, minlength=self.count)[rows]
        who = torch.arange(len(rows), device=rows.device).repeat_interleave(size)
        offset = self.first.nonzero()[:, 0][rows] - (torch.cumsum(size, 0) - size)
        spells = torch.arange(len(who), device=rows.device) + offset[who]  # the spells of a subject are adjacent
        return type(self)(self.base._take(spells), self.starts[spells, 0], who.cpu().numpy())

    def step_table(self) -> tuple[Tensor, Tensor] | None:
        """The product at the knots of the base, if the base is a step function."""
        known = self.base.step_table()
        if known is None:
            return None
        return known[0], torch.cummin(self._survival(known[0][None]), dim=1).values  # monotone despite rounding

    def _own(self, t: Tensor) -> Tensor:
        """Each spell's times, (spells, m), no later than its end and no earlier than its start."""
        return torch.minimum(torch.maximum(self._spell_times(t), self.starts), self.ends)

    def _spell_times(self, t: Tensor) -> Tensor:
        return t.expand(self.count, -1)[self.subjects]

    def _since_start(self, t: Tensor) -> Tensor:
        """log S of each spell given survival to its start, (spells, m); zero before it begins."""
        parts = (self.base._log_survival(self._own(t)) - self._log_reach).clamp_max(0.0)
        return torch.where((self._spell_times(t) <= self.starts) | torch.isneginf(self._log_reach), 0.0, parts)

    def _sum(self, parts: Tensor) -> Tensor:
        """Sum values of spells (spells, m, ...) for each subject."""
        return parts.new_zeros(self.count, *parts.shape[1:]).index_add(0, self.subjects, parts)

    def _log_survival(self, t: Tensor) -> Tensor:
        return self._sum(self._since_start(t))

    def _log_reached(self) -> Tensor:
        """log of the probability of reaching each spell, given survival to the first spell, (spells, 1)."""
        spent = (self.base._log_survival(self.ends) - self._log_reach).clamp_max(0.0)[:, 0]
        spent = torch.where(torch.isinf(self.ends[:, 0]) | torch.isneginf(self._log_reach[:, 0]), 0.0, spent)
        ended = torch.isneginf(spent)  # counted separately, because a cumulative sum would stay at -inf
        sums = []
        for values in (torch.where(ended, 0.0, spent), ended.to(spent)):
            before = torch.cumsum(values, 0) - values  # over all earlier spells, including those of other subjects
            sums.append(before - before[self.first][self.subjects])
        return torch.where(sums[1] > 0, -math.inf, sums[0])[:, None]

    def _active(self, t: Tensor) -> Tensor:
        """Whether each time falls into a spell, (start, end] or the start of the first spell; (spells, m)."""
        times = self._spell_times(t)
        begun = (times > self.starts) | (self.first[:, None] & (times == self.starts))
        return begun & (times <= self.ends)

    def _log_cause_density(self, t: Tensor) -> Tensor:
        active = self._active(t)[..., None]
        reached = self._log_reached()[..., None]
        parts = self.base._log_cause_density(self._own(t)) - self._log_reach[..., None] + reached
        found = self._sum(torch.where(active, torch.where(torch.isneginf(reached), -math.inf, parts), 0.0))
        return torch.where(self._sum(active.to(found)) > 0, found, -math.inf)

    def _incidence(self, t: Tensor) -> Tensor:
        rise = self.base._incidence_since(self.starts, self._own(t))
        return self._sum(rise * torch.exp(self._log_reached())[..., None])
