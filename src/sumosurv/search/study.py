"""Where trials come from, and where their results go: drawn at random, or proposed by Optuna and kept in a database."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sumosurv.search.space import Space, draw

__all__ = ["Finished", "OptunaStudy", "RandomStudy", "Study"]

_TRIES = 20  # to create a study that another process may be creating at the same moment
_RACES = ("already exists", "locked", "UNIQUE constraint")  # what an error says of such a moment
_SEED = "sumosurv_seed"


@dataclass(frozen=True)
class Finished:
    """A finished trial: its number, its settings and its validation score."""

    number: int
    parameters: dict[str, Any]
    score: float


class Study(ABC):
    """A source of trials that learns of their results."""

    seed: int  # of all trials: with a trial's number it makes the seeds of its networks

    @abstractmethod
    def ask(self, count: int) -> list[tuple[int, dict[str, Any]]]:
        """Numbers and settings of new trials."""

    @abstractmethod
    def tell(self, number: int, score: float) -> None:
        """The validation score of a trial (minus infinity if it failed)."""

    @abstractmethod
    def drop(self, number: int) -> None:
        """Forget a trial that was asked for and then interrupted."""

    @abstractmethod
    def finished(self) -> list[Finished]:
        """All finished trials, by number."""

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Let go of what it holds open."""


class RandomStudy(Study):
    """Independent draws from the space, kept in memory."""

    def __init__(self, space: Space, seed: int) -> None:
        self.seed, self._space = seed, space
        self._random = np.random.RandomState(seed)
        self._asked: dict[int, dict[str, Any]] = {}
        self._next = 0
        self._scores: dict[int, float] = {}

    def ask(self, count: int) -> list[tuple[int, dict[str, Any]]]:
        """Draw new points."""
        new = {self._next + i: draw(self._space, self._random) for i in range(count)}
        self._asked |= new
        self._next += count
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


class OptunaStudy(Study):
    """Trials proposed by Optuna and kept in its storage: SQLite in a file, or any URL that Optuna knows.

    Several processes may work on one study: each asks for its own trials and sees the results of all.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        *,
        sampler: Literal["tpe", "random"],
        storage: str | Path | None,
        name: str,
        rows: str = "",
        model: str = "",
    ) -> None:
        self._optuna = _import_optuna()
        self._space = space
        self._asked: dict[int, Any] = {}
        url = (
            None if storage is None else storage if "://" in str(storage) else f"sqlite:///{Path(storage).expanduser()}"
        )
        self._distributions = {key: self._distribution(key, choices) for key, choices in space.items()}
        samplers = self._optuna.samplers
        made = (
            samplers.RandomSampler(seed=seed)
            if sampler == "random"
            else samplers.TPESampler(seed=seed, constant_liar=True, n_startup_trials=20)
        )
        self._storage: Any = None
        try:
            self._study = self._create(None if url is None else str(url), name, made)
            self.seed = int(self._study.user_attrs.get(_SEED, seed))
            if _SEED not in self._study.user_attrs:
                self._study.set_user_attr(_SEED, seed)
            elif self._study.trials:
                # a sampler that starts anew with the same seed would propose the same points again
                made.reseed_rng()
            self._check_same(rows, model)
        except BaseException:
            self.close()
            raise

    def ask(self, count: int) -> list[tuple[int, dict[str, Any]]]:
        """New proposals."""
        new = []
        for _ in range(count):
            trial = self._study.ask(self._distributions)
            self._asked[trial.number] = trial
            new.append((trial.number, self._decode(trial.params)))
        return new

    def tell(self, number: int, score: float) -> None:
        """Hand a result to Optuna; a trial that failed gets no score."""
        state = self._optuna.trial.TrialState
        if np.isfinite(score):
            self._study.tell(self._asked.pop(number), score)
        else:
            self._study.tell(self._asked.pop(number), state=state.FAIL)

    def drop(self, number: int) -> None:
        """Leave it as one that failed, so that nobody waits for it."""
        self.tell(number, -np.inf)

    def finished(self) -> list[Finished]:
        """All completed trials of the study, of every process."""
        complete = self._study.get_trials(deepcopy=False, states=(self._optuna.trial.TrialState.COMPLETE,))
        return [Finished(t.number, self._decode(t.params), float(t.value)) for t in complete if t.value is not None]

    def close(self) -> None:
        """Close the connections to the database."""
        if self._storage is not None:
            self._storage.remove_session()
            self._storage.engine.dispose()

    # ------------------------------------------------------------------

    def _create(self, url: str | None, name: str, sampler: Any) -> Any:
        from optuna.exceptions import OptunaError
        from sqlalchemy.exc import SQLAlchemyError

        for attempt in range(_TRIES):  # two processes may create the tables at once
            try:
                if url is not None and self._storage is None:
                    self._storage = self._optuna.storages.RDBStorage(url)
                return self._optuna.create_study(
                    storage=self._storage, study_name=name, sampler=sampler, direction="maximize", load_if_exists=True
                )
            except (OptunaError, SQLAlchemyError) as error:
                if attempt == _TRIES - 1 or not any(text in str(error) for text in _RACES):
                    raise ValueError(f"The study {name!r} in {url} could not be opened: {error}") from error
                time.sleep(0.1 * (attempt + 1))
        raise AssertionError("unreachable")

    def _distribution(self, name: str, choices: Any) -> Any:
        kinds = self._optuna.distributions
        if not hasattr(choices, "rvs"):
            return kinds.CategoricalDistribution(tuple(range(len(choices))))
        family, low, high = choices.dist.name, *(float(v) for v in choices.support())
        if family == "uniform":
            return kinds.FloatDistribution(low, high)
        if family in ("loguniform", "reciprocal"):
            return kinds.FloatDistribution(low, high, log=True)
        if family == "randint":
            return kinds.IntDistribution(int(low), int(high))
        raise ValueError(
            f"{name!r} has a {family} distribution; Optuna needs a list of choices, uniform, loguniform or randint."
        )

    def _decode(self, values: dict[str, Any]) -> dict[str, Any]:
        return {
            name: value if hasattr(self._space[name], "rvs") else list(self._space[name])[value]
            for name, value in values.items()
        }

    def _check_same(self, rows: str, model: str) -> None:
        """A stored study of another space or other rows cannot be gone on with: its choices are kept by their place."""
        points = [
            (name, (choices.dist.name, choices.support()) if hasattr(choices, "rvs") else list(choices))
            for name, choices in sorted(self._space.items())
        ]
        for key, text, what in (
            ("sumosurv_space", repr(points), "space"),
            ("sumosurv_rows", rows, "set of rows"),
            ("sumosurv_model", model, "estimator, or of other settings of it"),
        ):
            stored = self._study.user_attrs.get(key)
            if stored is None:
                self._study.set_user_attr(key, text)
            elif stored != text:
                raise ValueError(
                    f"The stored study {self._study.study_name!r} is of another {what}; "
                    "give this search another study_name, or another storage."
                )


def _import_optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "This search needs Optuna: pip install 'sumosurv[search]'; method='random' without storage does not."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
