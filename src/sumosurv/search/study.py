"""Studies, which propose trials and store their scores: at random and in memory, or by Optuna."""

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
        """Release trials and connections."""


# ---------------------------------------------------------------------- studies in the storage of Optuna

HEARTBEAT = 20.0  # seconds between two heartbeats of a running trial
GRACE = 90.0  # seconds without a heartbeat after which a trial counts as abandoned
_OPEN_ATTEMPTS = 20
_CONCURRENT_CREATION = ("already exists", "locked", "UNIQUE constraint", "duplicate key", "Duplicate entry")
_SQLITE_TIMEOUT = 60  # seconds to wait for another process's write to a SQLite file

# user attributes of Optuna's trials
_STUDY = "sumosurv_study_2"  # renamed if the format changes, so that older studies are refused
_HEARTBEAT = "sumosurv_heartbeat"

_MUST_AGREE = {"space": "space", "rows": "set of rows", "model": "estimator, or for other settings of it"}


class OptunaStudy(Study):
    """Trials in Optuna's storage, shared by any number of processes.

    Optuna's trial 0 holds the values that all processes share (seed, layout and what the study is about); if two
    processes create a study at the same time, the first insertion counts. Our trial ``n`` is Optuna's trial ``n + 1``.
    The process that inserts a trial runs it and renews its heartbeat. A trial that is released, or has had no heartbeat
    for ``GRACE`` seconds, keeps its number and settings and waits for any process. Only the first result of a trial
    counts.

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
        _check_families(space)
        self._running: dict[int, int] = {}  # trials that this process runs: their numbers, and their ids in the storage
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
        """Take over waiting trials and insert new ones."""
        self._release_abandoned()
        trials = self._trials()
        free = max(0, below - len(trials)) + sum(trial.state == self._states.WAITING for trial in trials[:below])
        asked = []
        for _ in range(min(count, free)):
            trial = self._study.ask()
            number = trial.number - 1
            self._running[number] = self._id(number)
            if number >= below:  # another process inserted the last one at the same time
                self.drop(number)
                break
            self._storage.set_trial_user_attr(self._running[number], _HEARTBEAT, time.time())
            asked.append((number, trial))
        return [(number, decode(self._space, self._suggest(number, trial))) for number, trial in asked]

    def tell(self, number: int, score: float) -> None:
        """Store a score. A failed trial is stored as pruned, so that TPE avoids its settings."""
        value = score if np.isfinite(score) else None
        state = self._states.PRUNED if value is None else self._states.COMPLETE
        own = self._running.pop(number)
        with suppress(RuntimeError):  # another process has stored it; errors of the database are not RuntimeErrors
            self._storage.set_trial_state_values(own, self._states.RUNNING)  # if another process has released it
            # through the study, not its storage: the sampler then reads the trials again
            self._study.tell(number + 1, value, state=state, skip_if_finished=True)

    def drop(self, number: int) -> None:
        """Release a trial that this process runs."""
        self._release(self._running.pop(number))

    def finished(self) -> list[FinishedTrial]:
        """Return all finished trials of the study, including those of other processes."""
        return [
            FinishedTrial(n, decode(self._space, trial.params), -np.inf if trial.value is None else float(trial.value))
            for n, trial in enumerate(self._trials())
            if trial.state.is_finished()
        ]

    def close(self) -> None:
        """Release running trials, end the heartbeat and close the connections."""
        self._closed.set()
        if self._heartbeat.is_alive():
            self._heartbeat.join()
        try:
            for number in list(self._running):
                self.drop(number)
        finally:
            if self._stored and self._storage is not None:
                self._storage.remove_session()
                self._storage.engine.dispose()

    # ------------------------------------------------------------------ trials

    def _trials(self) -> list[Any]:
        """Optuna's trials by our numbers."""
        return sorted(self._study.get_trials(deepcopy=False), key=lambda trial: trial.number)[1:]

    def _id(self, number: int) -> int:
        return int(self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number + 1))

    def _suggest(self, number: int, trial: Any) -> dict[str, Any]:
        """The point of the space that a trial tries; a trial that another process began keeps its point."""
        samplers = self._optuna.samplers
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            # one sampler per trial: a resumed study proposes what an uninterrupted one would have proposed
            seed = int(trial_seeds(self.seed, number).generate_state(1)[0])
            sampler = samplers.TPESampler(seed=seed, constant_liar=True, n_startup_trials=20)
            if self._sampler == "random":
                sampler = samplers.PartialFixedSampler(draw(self._space, self.seed, number), sampler)
        self._study.sampler = sampler
        for name, choices in sorted(self._space.items()):
            if not hasattr(choices, "rvs"):
                trial.suggest_categorical(name, range(len(choices)))
            elif choices.dist.name == "randint":
                trial.suggest_int(name, *(int(end) for end in choices.support()))
            else:
                low, high = (float(end) for end in choices.support())
                trial.suggest_float(name, low, high, log=choices.dist.name != "uniform")
        return dict(trial.params)

    def _release(self, own: int) -> None:
        """Let a trial wait for any process, unless it is finished."""
        with suppress(RuntimeError):
            self._storage.set_trial_user_attr(own, _HEARTBEAT, None)
            self._storage.set_trial_state_values(own, self._states.WAITING)

    def _release_abandoned(self) -> None:
        """Release trials of other processes without a recent heartbeat."""
        for number, trial in enumerate(self._trials()):
            if trial.state != self._states.RUNNING or number in self._running:
                continue
            seen = trial.user_attrs.get(_HEARTBEAT) or trial.datetime_start.timestamp()  # before its first heartbeat
            if seen < time.time() - GRACE:
                self._release(self._id(number))

    def _send_heartbeats(self) -> None:
        while not self._closed.wait(HEARTBEAT):
            for own in list(self._running.values()):
                with suppress(Exception):  # finished meanwhile, or the database is unreachable: try again next time
                    self._storage.set_trial_user_attr(own, _HEARTBEAT, time.time())
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
        if not self._study.get_trials(deepcopy=False):
            first = self._optuna.trial.create_trial(state=self._states.FAIL, user_attrs={_STUDY: own})
            self._study.add_trial(first)
        shared = min(self._study.get_trials(deepcopy=False), key=lambda trial: trial.number).user_attrs.get(_STUDY)
        if shared is None:
            raise ValueError(
                f"The study {self._study.study_name!r} was created by another program or an older version; choose "
                "another study_name or storage."
            )
        return dict(shared)


def _check_families(space: Space) -> None:
    """Raise ValueError for a distribution that Optuna does not have."""
    for name, choices in space.items():
        if hasattr(choices, "rvs") and choices.dist.name not in ("uniform", "loguniform", "reciprocal", "randint"):
            raise ValueError(
                f"{name!r} has a {choices.dist.name} distribution; Optuna supports a list of choices, uniform, "
                "loguniform or randint."
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
