"""Who trains the trials of a search: this process, or others that it hands populations to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sumosurv.search.grouping import Way, Widths
from sumosurv.search.jobs import Job, TrialMember
from sumosurv.search.population import Population, train_members

__all__ = ["Crew", "LocalCrew", "Order", "Trained"]


@dataclass(frozen=True)
class Order:
    """Members that are to be trained side by side, as populations of their own.

    Attributes
    ----------
    members : sequence of TrialMember
        All networks of some trials.
    max_epochs : int, optional
        In place of the estimator's.
    share : float
        Of a trial's work that this training is, for the progress bar.
    """

    members: Sequence[TrialMember]
    max_epochs: int | None = None
    share: float = 1.0


@dataclass(frozen=True)
class Trained:
    """What became of an order; ``stopped`` if Ctrl-C ended it early."""

    order: Order
    populations: list[Population]
    stopped: bool


class Crew(ABC):
    """Takes orders, up to ``room`` of them at a time, and hands back what was trained, in any order."""

    room: int = 1

    @abstractmethod
    def start(self, order: Order) -> None:
        """Take an order."""

    @property
    @abstractmethod
    def in_work(self) -> int:
        """Orders that were taken and not handed back."""

    @abstractmethod
    def next(self) -> Trained:
        """The next order that is done; waits for it."""

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Give up what is in work."""


class LocalCrew(Crew):
    """This process, which trains an order when its result is asked for.

    Parameters
    ----------
    jobs, way, widest
        As of `train_members`.
    after_epoch : callable
        Given the share of an order, what is called with the members of a population and its epochs after each epoch.
    """

    def __init__(
        self, jobs: Sequence[Job], way: Way, widest: Widths, after_epoch: Callable[[float], Callable[[int, int], None]]
    ) -> None:
        self._jobs, self._way, self._widest, self._after_epoch = jobs, way, widest, after_epoch
        self._orders: deque[Order] = deque()

    def start(self, order: Order) -> None:
        """Note it."""
        self._orders.append(order)

    @property
    def in_work(self) -> int:
        """Orders that were noted."""
        return len(self._orders)

    def next(self) -> Trained:
        """Train the first one."""
        order = self._orders.popleft()
        populations, stopped = train_members(
            order.members,
            self._jobs,
            way=self._way,
            widest=self._widest,
            max_epochs=order.max_epochs,
            after_epoch=self._after_epoch(order.share),
        )
        return Trained(order, populations, stopped)
