"""Subjects of several distributions as one distribution, as cross-fitting predicts them fold by fold."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions.base import SurvivalDistribution

__all__ = ["Joined"]


class Joined(SurvivalDistribution):
    """The subjects of several distributions with the same causes, in a given order.

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
        """Other parts and rows, which need no check."""
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
        """The same, with all parts in single precision."""
        return self._with([part.single() for part in self.parts], self.rows)

    def _by_part(self, method: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
        """Results of a method of each part, for arguments of shape (n or 1, ...), put into the rows of the part."""
        results = []
        for part, rows in zip(self.parts, self.rows):
            own = (t if t.shape[0] == 1 and len(self) > 1 else t[rows] for t in arguments)
            results.append(method(part, *own))
        return torch.cat(results)[torch.cat(self.rows).argsort()]

    def _log_survival(self, t: Tensor) -> Tensor:
        return self._by_part(lambda part, *own: part._log_survival(*own), t)

    def _survival(self, t: Tensor) -> Tensor:
        return self._by_part(lambda part, *own: part._survival(*own), t)

    def _log_cause_density(self, t: Tensor) -> Tensor:
        return self._by_part(lambda part, *own: part._log_cause_density(*own), t)

    def _incidence(self, t: Tensor) -> Tensor:
        return self._by_part(lambda part, *own: part._incidence(*own), t)

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        return self._by_part(lambda part, *own: part._incidence_since(*own), start, t)

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        return self._by_part(lambda part, *own: part._inverse_log_survival(*own), level)

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        return self._by_part(lambda part, *own: part._restricted_mean(*own), horizon)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        return self._by_part(lambda part, *own: part._remaining_mean(*own), start, end)
