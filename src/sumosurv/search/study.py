"""Where trials come from, and where their results go; here, drawn at random and kept in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from sumosurv.search.grouping import Way
from sumosurv.search.space import Space, decode, draw

__all__ = ["Finished", "RandomStudy", "Study"]


@dataclass(frozen=True)
class Finished:
    """A finished trial: its number, its settings and its validation score (minus infinity if it has none)."""

    number: int
    parameters: dict[str, Any]
    score: float


class Study(ABC):
    """A source of trials that learns of their results.

    Trials are numbered from 0, without gaps. A study of n trials has tried the numbers below n, whoever ran them, in
    whatever order, and however often one of them had to be begun again.
    """

    seed: int  # of all trials: with a trial's number it makes the seeds of its networks
    way: Way  # how networks of different shapes train together, the same for all trials

    @abstractmethod
    def ask(self, count: int, below: int) -> list[tuple[int, dict[str, Any]]]:
        """Numbers and settings of new trials, at most so many, with numbers below a bound; none if all are taken."""

    @abstractmethod
    def tell(self, number: int, score: float) -> None:
        """The validation score of a trial (minus infinity if it has none)."""

    @abstractmethod
    def drop(self, number: int) -> None:
        """Give up a trial that was asked for and then interrupted: it can be asked for again."""

    @abstractmethod
    def finished(self) -> list[Finished]:
        """All finished trials, by number."""

    def unfinished(self, below: int) -> bool:
        """Whether some trial with a number below a bound is not finished."""
        return sum(trial.number < below for trial in self.finished()) < below

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Give up what was asked for and not told, and let go of what is held open."""


class RandomStudy(Study):
    """Independent draws from the space, kept in memory."""

    def __init__(self, space: Space, seed: int, way: Way) -> None:
        self.seed, self.way, self._space = seed, way, space
        self._asked: dict[int, dict[str, Any]] = {}
        self._scores: dict[int, float] = {}

    def ask(self, count: int, below: int) -> list[tuple[int, dict[str, Any]]]:
        """Draw new points."""
        numbers = [number for number in range(below) if number not in self._asked][:count]
        new = {number: decode(self._space, draw(self._space, self.seed, number)) for number in numbers}
        self._asked |= new
        return list(new.items())

    def tell(self, number: int, score: float) -> None:
        """Note a score."""
        self._scores[number] = score

    def drop(self, number: int) -> None:
        """Forget it."""
        del self._asked[number]

    def finished(self) -> list[Finished]:
        """What was told."""
        return [Finished(i, self._asked[i], self._scores[i]) for i in sorted(self._scores)]
