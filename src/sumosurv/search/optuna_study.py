"""Trials in the storage of Optuna: a study that outlives its processes, and that several may work on.

A trial of ours has a number, from which its networks (and, drawn at random, its settings) follow. Optuna's trials are
attempts at it: each holds that number from the moment it is made, and Optuna numbers them one after the other. The
first attempt that has not failed owns the number. So two processes that attempt the same trial at the same moment
agree on whose it is, and a trial whose process was killed is attempted again under its own number.

The first of Optuna's trials is none of ours: it holds what all processes must agree on (seed, shapes, and what the
study is of). Where two processes begin a study at once, what the first wrote counts.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sumosurv.search.grouping import Shapes, Way
from sumosurv.search.liveness import BEAT, GRACE, Heartbeat, is_gone, this_process
from sumosurv.search.space import Space, decode, draw, trial_seeds
from sumosurv.search.study import Finished, Study

__all__ = ["OptunaStudy"]

_TRIES = 20  # to create a study that another process may be creating at the same moment
_RACES = ("already exists", "locked", "UNIQUE constraint", "duplicate key", "Duplicate entry")  # words of such errors
_WAIT = 60  # seconds for another process to let go of a SQLite file

# attributes of Optuna's trials
_STUDY = "sumosurv_study"  # of the first one: what all agree on
_NUMBER = "sumosurv_number"
_PROCESS = "sumosurv_process"  # that made the attempt
_BEATS = "sumosurv_beats"  # its first sign of life was given

_WHAT = {"space": "space", "rows": "set of rows", "model": "estimator, or of other settings of it"}


class OptunaStudy(Study):
    """Trials kept in Optuna's storage: SQLite in a file, any URL that Optuna knows, or (None) in memory.

    Parameters
    ----------
    space, seed
        What is searched, and the seed of a study that is new.
    sampler : {"tpe", "random"}
        Optuna's proposals, or the draws that belong to the numbers.
    storage : path or URL, optional
    name : str
    way : {"padded", "grouped"}
        How the trials of a study that is new train together.
    shapes : {"auto", "padded", "grouped"}
        What was asked for: "auto" takes what the study has.
    rows, model : str
        Of what it is a study; a stored one of others is refused.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        *,
        sampler: Literal["tpe", "random"],
        storage: str | Path | None,
        name: str,
        way: Way = "padded",
        shapes: Shapes = "auto",
        rows: str = "",
        model: str = "",
    ) -> None:
        self._optuna = _import_optuna()
        self._space, self._sampler = space, sampler
        self._distributions = {key: self._distribution(key, choices) for key, choices in sorted(space.items())}
        self._asked: dict[int, int] = {}  # ids of the attempts at trials that are in work here
        self._quiet_since: dict[int, float] = {}  # attempts of others without any sign of life
        self._storage: Any = None
        self._heartbeat: Heartbeat | None = None
        try:
            self._open(storage, name)
            own = {"seed": seed, "way": way, "space": _description(space), "rows": rows, "model": model}
            agreed = self._agree(own)
            self._check_same(name, own, agreed, shapes)
        except BaseException:
            self.close()
            raise
        self.seed, self.way = int(agreed["seed"]), agreed["way"]

    def ask(self, count: int, below: int) -> list[tuple[int, dict[str, Any]]]:
        """Attempt the lowest numbers that are free, and keep those that nobody attempted before."""
        self._fail_abandoned()
        taken = self._owners()
        free = [number for number in range(below) if number not in taken][:count]
        for number in free:
            self._attempt(number)
        owners = self._owners()
        for number in free:
            if number not in owners or self._id(owners[number]) != self._asked[number]:
                self.drop(number)
        mine = [number for number in free if number in self._asked]
        return [(number, decode(self._space, self._point(number))) for number in mine]

    def tell(self, number: int, score: float) -> None:
        """Store a result. A trial without one counts as pruned, so that TPE takes its settings for poor ones."""
        state = self._optuna.trial.TrialState
        if np.isfinite(score):
            self._end(self._asked[number], state.COMPLETE, score)
        else:
            self._end(self._asked[number], state.PRUNED)
        del self._asked[number]

    def drop(self, number: int) -> None:
        """Leave the attempt as one that failed."""
        self._end(self._asked[number], self._optuna.trial.TrialState.FAIL)
        del self._asked[number]

    def finished(self) -> list[Finished]:
        """All finished trials of the study, whoever ran them."""
        running = self._optuna.trial.TrialState.RUNNING
        return [
            Finished(number, decode(self._space, trial.params), -np.inf if trial.value is None else float(trial.value))
            for number, trial in sorted(self._owners().items())
            if trial.state != running
        ]

    def close(self) -> None:
        """Give up what is in work, end the thread and close the connections to the database."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
        try:
            for number in list(self._asked):
                self.drop(number)
        finally:
            if self._heartbeat is not None:
                self._storage.remove_session()
                self._storage.engine.dispose()

    # ------------------------------------------------------------------ attempts

    def _trials(self) -> list[Any]:
        """All of Optuna's trials, in the order in which they were made."""
        return sorted(self._study.get_trials(deepcopy=False), key=lambda trial: trial.number)

    def _owners(self) -> dict[int, Any]:
        """The attempt that owns each number: the first that has not failed."""
        failed = self._optuna.trial.TrialState.FAIL
        found: dict[int, Any] = {}
        for trial in self._trials():
            if _NUMBER in trial.user_attrs and trial.state != failed:
                found.setdefault(trial.user_attrs[_NUMBER], trial)
        return found

    def _id(self, trial: Any) -> int:
        return int(self._storage.get_trial_id_from_study_id_trial_number(self._study_id, trial.number))

    def _attempt(self, number: int) -> None:
        """Make an attempt at a trial; the number is in it from the start."""
        drawn = draw(self._space, self.seed, number) if self._sampler == "random" else {}
        attempt = self._optuna.trial.create_trial(
            state=self._optuna.trial.TrialState.RUNNING,
            params=drawn,
            distributions=self._distributions if drawn else {},
            user_attrs={_NUMBER: number, _PROCESS: this_process()},
        )
        self._asked[number] = made = self._storage.create_new_trial(self._study_id, attempt)
        if self._heartbeat is not None:
            self._heartbeat.add(made)
            self._storage.set_trial_user_attr(made, _BEATS, True)

    def _point(self, number: int) -> dict[str, Any]:
        """Where an attempt of ours looks."""
        if self._sampler == "random":
            return draw(self._space, self.seed, number)
        with _no_experimental_warnings():
            self._study.sampler = self._optuna.samplers.TPESampler(
                # each trial its own: a study that goes on proposes what it would have proposed
                seed=int(trial_seeds(self.seed, number).generate_state(1)[0]),
                constant_liar=True,
                n_startup_trials=20,
            )
        trial = self._optuna.trial.Trial(self._study, self._asked[number])
        for name, choices in self._distributions.items():
            if isinstance(choices, self._optuna.distributions.CategoricalDistribution):
                trial.suggest_categorical(name, choices.choices)
            elif isinstance(choices, self._optuna.distributions.IntDistribution):
                trial.suggest_int(name, choices.low, choices.high)
            else:
                trial.suggest_float(name, choices.low, choices.high, log=choices.log)
        return dict(trial.params)

    def _end(self, attempt: int, state: Any, score: float | None = None) -> None:
        """Set the last state of an attempt, unless another process took it for abandoned and ended it."""
        if self._heartbeat is not None:
            self._heartbeat.remove(attempt)
        number = self._storage.get_trial_number_from_id(attempt)
        with suppress(RuntimeError):  # ended at this moment; failures of the database are no RuntimeErrors
            # by the study and not by its storage: the sampler then looks at its trials anew
            self._study.tell(number, score, state=state, skip_if_finished=True)

    def _fail_abandoned(self) -> None:
        """End the attempts of processes that are no more, so that their trials can be attempted again."""
        if self._heartbeat is None:
            return
        with _no_experimental_warnings():
            self._optuna.storages.fail_stale_trials(self._study)  # no sign of life for long
        state = self._optuna.trial.TrialState
        for trial in self._trials():
            if trial.state == state.RUNNING and _NUMBER in trial.user_attrs:
                began = self._quiet_since.setdefault(trial.number, time.monotonic())
                quiet = _BEATS not in trial.user_attrs and time.monotonic() - began > GRACE
                if quiet or is_gone(trial.user_attrs[_PROCESS]):
                    self._end(self._id(trial), state.FAIL)

    # ------------------------------------------------------------------ opening

    def _open(self, storage: str | Path | None, name: str) -> None:
        from optuna.exceptions import OptunaError
        from sqlalchemy.exc import SQLAlchemyError

        for attempt in range(_TRIES):  # two processes may create the tables at once
            try:
                if self._storage is None:
                    self._storage = self._make_storage(storage)
                    if storage is not None:
                        self._heartbeat = Heartbeat(self._storage.record_heartbeat, self._storage.remove_session)
                self._study = self._optuna.create_study(
                    storage=self._storage, study_name=name, direction="maximize", load_if_exists=True
                )
                break
            except (OptunaError, SQLAlchemyError) as error:
                causes = f"{error} {error.__cause__ or ''}"
                if attempt == _TRIES - 1 or not any(text in causes for text in _RACES):
                    raise ValueError(
                        f"The study {name!r} in {_without_password(storage)} could not be opened: {error}"
                    ) from error
                time.sleep(0.1 * (attempt + 1))
        self._study_id = self._storage.get_study_id_from_name(name)

    def _make_storage(self, storage: str | Path | None) -> Any:
        if storage is None:
            return self._optuna.storages.InMemoryStorage()
        url = str(storage) if "://" in str(storage) else f"sqlite:///{Path(storage).expanduser()}"
        engine: dict[str, Any] = {"pool_pre_ping": True}  # rounds are long: connections may be gone in between
        if url.startswith("sqlite"):
            engine["connect_args"] = {"timeout": _WAIT}
        try:
            with _no_experimental_warnings():
                return self._optuna.storages.RDBStorage(
                    url, engine_kwargs=engine, heartbeat_interval=BEAT, grace_period=GRACE
                )
        except ImportError as error:
            raise ModuleNotFoundError(
                f"The driver of the database in {_without_password(storage)} is not installed: "
                "pip install 'sumosurv[search-postgres]' for postgresql+psycopg://..., the package that the URL names "
                "for others."
            ) from error

    def _agree(self, own: dict[str, Any]) -> dict[str, Any]:
        """What the first of Optuna's trials holds; ours if there was none."""
        if not self._trials():
            state = self._optuna.trial.TrialState.FAIL
            self._study.add_trial(self._optuna.trial.create_trial(state=state, user_attrs={_STUDY: own}))
        agreed = self._trials()[0].user_attrs.get(_STUDY)
        if agreed is None:
            raise ValueError(
                f"The study {self._study.study_name!r} has trials that another program, or an earlier version of this "
                "one, made; give this search another study_name, or another storage."
            )
        return dict(agreed)

    def _check_same(self, name: str, own: dict[str, Any], agreed: dict[str, Any], shapes: Shapes) -> None:
        """A stored study of another space or other rows cannot be gone on with: its choices are kept by their place."""
        for key, what in _WHAT.items():
            if agreed[key] != own[key]:
                raise ValueError(
                    f"The stored study {name!r} is of another {what}; "
                    "give this search another study_name, or another storage."
                )
        if shapes not in ("auto", agreed["way"]):
            raise ValueError(
                f"The stored study {name!r} has shapes={agreed['way']!r}; with {shapes!r} its trials would have other "
                "scores: take 'auto', which goes on as the study began, or give this search another study_name."
            )

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


def _description(space: Space) -> str:
    """A space in words that can be compared."""
    return repr(
        [
            (name, (choices.dist.name, *map(float, choices.support())) if hasattr(choices, "rvs") else list(choices))
            for name, choices in sorted(space.items())
        ]
    )


def _without_password(storage: str | Path | None) -> str:
    from sqlalchemy.engine import make_url

    return make_url(storage).render_as_string() if isinstance(storage, str) and "://" in storage else str(storage)


@contextmanager
def _no_experimental_warnings() -> Iterator[None]:
    """Optuna calls heartbeats experimental; they are tested here."""
    from optuna.exceptions import ExperimentalWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        yield


def _import_optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "This search needs Optuna: pip install 'sumosurv[search]'; method='random' without storage does not."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
