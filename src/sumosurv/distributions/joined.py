"""Subjects of several distributions as one distribution: what cross-fitting predicts, fold by fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sumosurv.distributions.base import SurvivalDistribution

__all__ = ["Joined"]


class Joined(SurvivalDistribution):
    """The subjects of several distributions, in an order of their own.

    Parameters
    ----------
    parts : sequence of SurvivalDistribution
    rows : sequence of int arrays
        Which rows of the whole the subjects of each part are: together every number from 0 to n - 1 once.

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
            raise ValueError(f"The rows of the parts are each of the numbers from 0 to {len(whole) - 1} once.")
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

    def _take(self, rows: Tensor) -> Joined:
        own, place = (torch.empty(len(self), dtype=torch.int64, device=rows.device) for _ in range(2))
        for number, which in enumerate(self.rows):
            own[which], place[which] = number, torch.arange(len(which), device=rows.device)
        made = object.__new__(Joined)
        found = [(own[rows] == number).nonzero()[:, 0] for number in range(len(self.parts))]
        kept = [number for number, which in enumerate(found) if len(which)] or [0]
        made.parts = tuple(self.parts[number]._take(place[rows[found[number]]]) for number in kept)
        made.rows = tuple(found[number] for number in kept)
        return made

    def _by_part(self, ask: Callable[[SurvivalDistribution, Tensor], Tensor], t: Tensor) -> Tensor:
        """Answers of the parts to questions of shape (n or 1, ...), each in its rows."""
        made: Tensor | None = None
        for part, rows in zip(self.parts, self.rows):
            answer = ask(part, t if t.shape[0] == 1 and len(self) > 1 else t[rows])
            made = answer.new_empty(len(self), *answer.shape[1:]) if made is None else made
            made[rows] = answer
        assert made is not None
        return made

    def _log_survival(self, t: Tensor) -> Tensor:
        return self._by_part(lambda part, own: part._log_survival(own), t)

    def _survival(self, t: Tensor) -> Tensor:
        return self._by_part(lambda part, own: part._survival(own), t)

    def _log_cause_density(self, t: Tensor) -> Tensor:
        return self._by_part(lambda part, own: part._log_cause_density(own), t)

    def _incidence(self, t: Tensor) -> Tensor:
        return self._by_part(lambda part, own: part._incidence(own), t)

    def _incidence_since(self, start: Tensor, t: Tensor) -> Tensor:
        both = torch.cat([start, t.expand(len(self), -1)], dim=1)
        return self._by_part(lambda part, own: part._incidence_since(own[:, :1], own[:, 1:]), both)

    def _inverse_log_survival(self, level: Tensor) -> Tensor:
        return self._by_part(lambda part, own: part._inverse_log_survival(own), level)

    def _restricted_mean(self, horizon: Tensor) -> Tensor:
        return self._by_part(lambda part, own: part._restricted_mean(own), horizon)

    def _remaining_mean(self, start: Tensor, end: Tensor) -> Tensor:
        both = torch.stack([start, end], dim=1)
        return self._by_part(lambda part, own: part._remaining_mean(own[:, 0], own[:, 1]), both)

    def single(self) -> Joined:
        """The parts in single precision."""
        made = object.__new__(Joined)
        made.parts, made.rows = tuple(part.single() for part in self.parts), self.rows
        return made
