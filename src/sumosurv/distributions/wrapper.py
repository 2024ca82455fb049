"""`Wrapper`: what distributions made of another one have in common."""

from __future__ import annotations

import copy
from typing import Self

from torch import Tensor

from sumosurv.distributions.base import SurvivalDistribution

__all__ = ["Wrapper"]


class Wrapper(SurvivalDistribution):
    """A distribution of the subjects and causes of its ``base``."""

    base: SurvivalDistribution

    def __len__(self) -> int:
        return len(self.base)

    @property
    def n_causes(self) -> int:
        """The number of causes."""
        return self.base.n_causes

    @property
    def _like(self) -> Tensor:
        return self.base._like

    @property
    def _breaks(self) -> tuple[float, ...]:
        return self.base._breaks

    @property
    def _description(self) -> str:
        return self.base._description

    def _with(self, base: SurvivalDistribution) -> Self:
        """The same of another base."""
        made = copy.copy(self)
        made.base = base
        return made

    def _take(self, rows: Tensor) -> Self:
        return self._with(self.base._take(rows))

    def single(self) -> Self:
        """The same, with the base in single precision."""
        return self._with(self.base.single())
