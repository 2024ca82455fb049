"""The progress of a search: trials done, the best so far, time left."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import TracebackType
from typing import Any

__all__ = ["SearchProgress"]

_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {n:.0f}/{total:.0f} trials [{elapsed}<{remaining}{postfix}]"


class SearchProgress:
    """A bar that moves on with every epoch of every population.

    Parameters
    ----------
    n_trials : int
    networks_per_trial : int
        Splits times jobs.
    shown : bool
    """

    def __init__(self, n_trials: int, networks_per_trial: int, *, shown: bool) -> None:
        self._trials, self._per_trial, self._shown = n_trials, networks_per_trial, shown
        self._bar: Any = None
        self._best = -math.inf

    def __enter__(self) -> SearchProgress:
        if self._shown:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=self._trials, desc="search", bar_format=_FORMAT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def start(self, already: int) -> None:
        """Trials that were finished before, in a stored study."""
        if self._bar is not None and already:
            self._bar.update(already)

    def after_epoch(self, share: float) -> Callable[[int, int], None]:
        """What a population calls after each epoch; ``share`` of a trial's work is in this training."""

        def moved(members: int, epochs: int) -> None:
            if self._bar is not None:
                step = share * members / (epochs * self._per_trial)
                self._bar.update(min(step, self._trials - self._bar.n))

        return moved

    def found(self, score: float) -> None:
        """The best score of the trials that were just finished."""
        if score > self._best:
            self._best = score
            if self._bar is not None:
                self._bar.set_postfix_str(f", best {score:.4f}")
