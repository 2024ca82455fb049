"""Where trials come from and where their scores go: drawn at random in memory, or stored by Optuna."""

from __future__ import annotations

import threading
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sumosurv.search.space import Space, decode, draw, trial_seeds

__all__ = ["FinishedTrial", "Layout", "OptunaStudy", "Study"]

Layout = Literal["padded", "grouped"]  # how networks of different shapes train together


@dataclass(frozen=True)
class FinishedTrial:
    """A finished trial: its number, settings and validation score (minus infinity if training failed)."""

    number: int
    parameters: dict[str, Any]
    score: float


class Study:
    """Numbered trials (0, 1, ...) and their scores: independent draws, kept in memory.

    A study of n trials is complete when the numbers below n are finished, regardless of which process ran them, in
    which order, and how many attempts each of them took.
    """

    def __init__(self, space: Space, seed: int, layout: Layout) -> None:
        self.seed = seed  # with a trial's number it determines the trial's settings and the seeds of its networks
        self.layout = layout  # the same for all trials, because scores depend on it
        self._space = space
        self._asked: dict[int, dict[str, Any]] = {}
        self._scores: dict[int, float] = {}

    def ask(self, count: int, below: int) -> list[tuple[int, dict[str, Any]]]:
        """Return at most ``count`` free trials with numbers below ``below``, as (number, settings)."""
        numbers = [number for number in range(below) if number not in self._asked][:count]
        new = {number: decode(self._space, draw(self._space, self.seed, number)) for number in numbers}
        self._asked |= new
        return list(new.items())

    def tell(self, number: int, score: float) -> None:
        """Store the validation score of a trial (minus infinity if training failed)."""
        self._scores[number] = score

    def drop(self, number: int) -> None:
        """Release an interrupted trial, so that it can be asked for again."""
        del self._asked[number]

    def finished(self) -> list[FinishedTrial]:
        """Return all finished trials, sorted by number."""
        return [FinishedTrial(i, self._asked[i], self._scores[i]) for i in sorted(self._scores)]

    def unfinished(self, below: int) -> bool:
        """Return whether any trial with a number below ``below`` is not finished."""
        return sum(trial.number < below for trial in self.finished()) < below

    def close(self) -> None:
        """Release what the study holds."""


# ---------------------------------------------------------------------- studies in the storage of Optuna

HEARTBEAT = 20.0  # seconds between two heartbeats of a running trial
GRACE = 90.0  # seconds without a heartbeat after which a trial counts as abandoned
_OPEN_ATTEMPTS = 20
_CONCURRENT_CREATION = ("already exists", "locked", "UNIQUE constraint", "duplicate key", "Duplicate entry")
_SQLITE_TIMEOUT = 60  # seconds to wait for another process's write to a SQLite file

# user attributes of Optuna's trials
_STUDY = "sumosurv_study"
_NUMBER = "sumosurv_number"
_HEARTBEAT = "sumosurv_heartbeat"

_MUST_AGREE = {"space": "space", "rows": "set of rows", "model": "estimator, or for other settings of it"}


class OptunaStudy(Study):
    """Trials in Optuna's storage, shared by any number of processes.

    Each of Optuna's trials is one attempt at one of our trials; it holds our number and the time of its last heartbeat
    from the moment it is inserted. The first attempt at a number that has not failed owns the number. Optuna numbers
    attempts in the order of insertion, so two processes that attempt the same number at the same time agree on the
    owner. An attempt without a heartbeat for ``GRACE`` seconds is marked as failed by whichever process notices, and
    its number is free again. Results cannot be stored twice: only the owner of a number is read.

    Optuna's first trial belongs to no number. It holds the values that all processes share (seed, layout and what the
    study is about). If two processes create a study at the same time, the first insertion counts.

    ``sampler`` "random" draws by seed and number alone; "tpe" asks Optuna. ``seed`` and ``layout`` are those of a new
    study; a stored one keeps its own, and is refused if ``requested_layout`` names another layout, or if it has another
    space or other fingerprints ``rows`` and ``model``.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        *,
        sampler: Literal["tpe", "random"],
        storage: str | Path | None,
        name: str,
        layout: Layout = "padded",
        requested_layout: Literal["auto"] | Layout = "auto",
        rows: str = "",
        model: str = "",
    ) -> None:
        self._optuna = _import_optuna()
        self._states = self._optuna.trial.TrialState
        self._space, self._sampler, self._stored = space, sampler, storage is not None
        self._distributions = {key: self._distribution(key, choices) for key, choices in sorted(space.items())}
        self._attempts: dict[int, int] = {}  # trials that run in this process: our number to Optuna's
        self._storage: Any = None
        self._closed = threading.Event()
        self._heartbeat = threading.Thread(target=self._send_heartbeats, name="sumosurv heartbeat", daemon=True)
        try:
            own = {"seed": seed, "layout": layout, "space": _description(space), "rows": rows, "model": model}
            shared = self._open(storage, name, own)
            _check_same(name, own, shared, requested_layout)
        except BaseException:
            self.close()
            raise
        self.seed, self.layout = int(shared["seed"]), shared["layout"]
        if self._stored:
            self._heartbeat.start()

    def ask(self, count: int, below: int) -> list[tuple[int, dict[str, Any]]]:
        """Attempt the lowest free numbers and keep those that no other process attempted first."""
        self._fail_abandoned()
        taken = self._owners()
        free = [number for number in range(below) if number not in taken][:count]
        for number in free:
            self._attempt(number)
        owners = self._owners()
        for number in free:
            if number not in owners or owners[number].number != self._attempts[number]:
                self.drop(number)
        return [(n, decode(self._space, self._point(n))) for n in free if n in self._attempts]

    def tell(self, number: int, score: float) -> None:
        """Store a score. A failed trial is stored as pruned, so that TPE avoids its settings."""
        if np.isfinite(score):
            self._end(self._attempts.pop(number), self._states.COMPLETE, score)
        else:
            self._end(self._attempts.pop(number), self._states.PRUNED)

    def drop(self, number: int) -> None:
        """Mark this process's attempt as failed."""
        self._end(self._attempts.pop(number), self._states.FAIL)

    def finished(self) -> list[FinishedTrial]:
        """Return all finished trials of the study, including those of other processes."""
        return [
            FinishedTrial(n, decode(self._space, trial.params), -np.inf if trial.value is None else float(trial.value))
            for n, trial in sorted(self._owners().items())
            if trial.state != self._states.RUNNING
        ]

    def close(self) -> None:
        """Release running trials, end the heartbeat and close the connections."""
        self._closed.set()
        if self._heartbeat.is_alive():
            self._heartbeat.join()
        try:
            for number in list(self._attempts):
                self.drop(number)
        finally:
            if self._stored and self._storage is not None:
                self._storage.remove_session()
                self._storage.engine.dispose()

    # ------------------------------------------------------------------ attempts

    def _trials(self) -> list[Any]:
        """All of Optuna's trials, in the order of insertion."""
        return sorted(self._study.get_trials(deepcopy=False), key=lambda trial: trial.number)

    def _owners(self) -> dict[int, Any]:
        """The first attempt at each number that has not failed."""
        found: dict[int, Any] = {}
        for trial in self._trials():
            if _NUMBER in trial.user_attrs and trial.state != self._states.FAIL:
                found.setdefault(trial.user_attrs[_NUMBER], trial)
        return found

    def _id(self, attempt: int) -> int:
        return int(self._storage.get_trial_id_from_study_id_trial_number(self._study_id, attempt))

    def _attempt(self, number: int) -> None:
        """Insert an attempt at a number."""
        drawn = draw(self._space, self.seed, number) if self._sampler == "random" else {}
        trial = self._optuna.trial.create_trial(
            state=self._states.RUNNING,
            params=drawn,
            distributions=self._distributions if drawn else {},
            user_attrs={_NUMBER: number, _HEARTBEAT: time.time()},
        )
        inserted = self._storage.create_new_trial(self._study_id, trial)
        self._attempts[number] = int(self._storage.get_trial_number_from_id(inserted))

    def _point(self, number: int) -> dict[str, Any]:
        """The point of the space that this process's attempt at a number tries."""
        if self._sampler == "random":
            return draw(self._space, self.seed, number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            self._study.sampler = self._optuna.samplers.TPESampler(
                # one sampler per trial: a resumed study proposes what an uninterrupted one would have proposed
                seed=int(trial_seeds(self.seed, number).generate_state(1)[0]),
                constant_liar=True,
                n_startup_trials=20,
            )
        trial = self._optuna.trial.Trial(self._study, self._id(self._attempts[number]))
        for name, choices in self._distributions.items():
            if isinstance(choices, self._optuna.distributions.CategoricalDistribution):
                trial.suggest_categorical(name, choices.choices)
            elif isinstance(choices, self._optuna.distributions.IntDistribution):
                trial.suggest_int(name, choices.low, choices.high)
            else:
                trial.suggest_float(name, choices.low, choices.high, log=choices.log)
        return dict(trial.params)

    def _end(self, attempt: int, state: Any, score: float | None = None) -> None:
        """Set the final state of an attempt, unless another process marked it as failed."""
        with suppress(RuntimeError):  # finished at this very moment; errors of the database are not RuntimeErrors
            # through the study, not its storage: the sampler then reads the trials again
            self._study.tell(attempt, score, state=state, skip_if_finished=True)

    def _fail_abandoned(self) -> None:
        """Mark attempts of other processes without a recent heartbeat as failed."""
        oldest, own = time.time() - GRACE, set(self._attempts.values())
        for trial in self._trials():
            stale = trial.user_attrs.get(_HEARTBEAT, oldest) < oldest
            if stale and trial.state == self._states.RUNNING and trial.number not in own:
                self._end(trial.number, self._states.FAIL)

    def _send_heartbeats(self) -> None:
        while not self._closed.wait(HEARTBEAT):
            for attempt in list(self._attempts.values()):
                with suppress(Exception):  # finished meanwhile, or the database is unreachable: try again next time
                    self._storage.set_trial_user_attr(self._id(attempt), _HEARTBEAT, time.time())
            self._storage.remove_session()

    # ------------------------------------------------------------------ opening

    def _open(self, storage: str | Path | None, name: str, own: dict[str, Any]) -> dict[str, Any]:
        """Open or create the study and return the values that all of its processes share."""
        from sqlalchemy.exc import SQLAlchemyError

        for attempt in range(_OPEN_ATTEMPTS):  # two processes may create the tables at the same time
            try:
                if self._storage is None:
                    self._storage = self._make_storage(storage)
                self._study = self._optuna.create_study(
                    storage=self._storage, study_name=name, direction="maximize", load_if_exists=True
                )
                self._study_id = self._storage.get_study_id_from_name(name)
                return self._shared_values(own)
            except (self._optuna.exceptions.OptunaError, SQLAlchemyError) as error:
                text = f"{error} {error.__cause__ or ''}"
                if attempt == _OPEN_ATTEMPTS - 1 or not any(words in text for words in _CONCURRENT_CREATION):
                    reason = getattr(error, "orig", None) or getattr(error.__cause__, "orig", None) or error
                    raise ValueError(
                        f"The study {name!r} in {_without_password(storage)} could not be opened: {reason}. Give the "
                        "path of a new file or of an earlier study, or the URL of an existing database."
                    ) from error
                time.sleep(0.1 * (attempt + 1))
        raise AssertionError  # the last attempt returns or raises

    def _make_storage(self, storage: str | Path | None) -> Any:
        if storage is None:
            return self._optuna.storages.InMemoryStorage()
        url = str(storage) if "://" in str(storage) else f"sqlite:///{Path(storage).expanduser()}"
        engine: dict[str, Any] = {"pool_pre_ping": True}  # connections may time out during a long round
        if url.startswith("sqlite"):
            engine["connect_args"] = {"timeout": _SQLITE_TIMEOUT}
        try:
            return self._optuna.storages.RDBStorage(url, engine_kwargs=engine)
        except ImportError as error:
            raise ModuleNotFoundError(
                f"The driver for the database {_without_password(storage)} is not installed: "
                "pip install 'sumosurv[search-postgres]' for postgresql+psycopg://..., or the package that the URL "
                "names."
            ) from error

    def _shared_values(self, own: dict[str, Any]) -> dict[str, Any]:
        """What Optuna's first trial holds; it is inserted if the study is new."""
        if not self._trials():
            first = self._optuna.trial.create_trial(state=self._states.FAIL, user_attrs={_STUDY: own})
            self._study.add_trial(first)
        shared = self._trials()[0].user_attrs.get(_STUDY)
        if shared is None:
            raise ValueError(
                f"The study {self._study.study_name!r} was created by another program; choose another study_name or "
                "storage."
            )
        return dict(shared)

    def _distribution(self, name: str, choices: Any) -> Any:
        distributions = self._optuna.distributions
        if not hasattr(choices, "rvs"):
            return distributions.CategoricalDistribution(tuple(range(len(choices))))
        family, low, high = choices.dist.name, *(float(v) for v in choices.support())
        if family == "uniform":
            return distributions.FloatDistribution(low, high)
        if family in ("loguniform", "reciprocal"):
            return distributions.FloatDistribution(low, high, log=True)
        if family == "randint":
            return distributions.IntDistribution(int(low), int(high))
        raise ValueError(
            f"{name!r} has a {family} distribution; Optuna supports a list of choices, uniform, loguniform or randint."
        )


def _check_same(name: str, own: dict[str, Any], shared: dict[str, Any], requested_layout: str) -> None:
    """Raise ValueError if a stored study is about something else: its scores would not be comparable."""
    for key, what in _MUST_AGREE.items():
        if shared[key] != own[key]:
            raise ValueError(f"The stored study {name!r} is for another {what}; choose another study_name or storage.")
    if requested_layout not in ("auto", shared["layout"]):
        raise ValueError(
            f"The stored study {name!r} has layout={shared['layout']!r}, and scores with {requested_layout!r} would "
            "differ; use layout='auto' to resume it, or choose another study_name."
        )


def _description(space: Space) -> str:
    """A text that is equal for equal spaces."""
    return repr(
        [
            (name, (choices.dist.name, *map(float, choices.support())) if hasattr(choices, "rvs") else list(choices))
            for name, choices in sorted(space.items())
        ]
    )


def _without_password(storage: str | Path | None) -> str:
    from sqlalchemy.engine import make_url

    return make_url(storage).render_as_string() if isinstance(storage, str) and "://" in storage else str(storage)


def _import_optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "This search needs Optuna: pip install 'sumosurv[search]'; method='random' without storage does not."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
