"""How trials are run: in rounds or by halving, the trials of several searches side by side; then the choice."""

from __future__ import annotations

import hashlib
import math
import time
import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from sumosurv.estimators import SurvivalEstimator
from sumosurv.outcome import check_outcome
from sumosurv.search.choice import Choice, choose, rank_trials
from sumosurv.search.crew import Crew, LocalCrew, Order
from sumosurv.search.grouping import Way, Widths, cheaper_way
from sumosurv.search.jobs import Job, TrialMember
from sumosurv.search.optuna_study import OptunaStudy
from sumosurv.search.population import Population
from sumosurv.search.progress import SearchProgress
from sumosurv.search.run import SearchRun, SearchSettings, assemble
from sumosurv.search.space import Space, decode, default_space, draw, widest_layers
from sumosurv.search.study import RandomStudy, Study

__all__ = ["SearchResult", "run_searches"]

_ROUND = {"tpe": 32, "random": 100}  # trials that train together before results are told or stored
_POLL = 1.0  # seconds between two looks at what other processes have finished
_UNUSED = ("verbose", "on_epoch")  # settings of the estimator that a search has no use for
_HALVINGS = 2  # rungs before the last one of successive halving: a ninth and a third of the epochs
_KEPT = 3  # one in so many trials goes on to the next rung
_TRAINED_AGAIN = 64  # best trials that "auto" looks at where some of them were trained by another process


@dataclass
class SearchResult:
    """What became of a search: its run, its choice and what predicts."""

    run: SearchRun
    choice: Choice
    scores: dict[int, float]  # of all trials, those of other processes included
    space: Space
    interrupted: bool
    best_single: SurvivalEstimator
    best_estimator: SurvivalEstimator


class Train(Protocol):
    """Trains members and notes where they are; True if Ctrl-C ended it."""

    def __call__(self, members: Sequence[TrialMember], max_epochs: int | None = None, share: float = 1.0) -> bool:
        """Train."""


def run_searches(settings: SearchSettings, rows: Sequence[tuple[Any, Any, Any]]) -> list[SearchResult]:
    """One search on each of several sets of rows (X, y, validation_data), the trials of all as common populations."""
    seed = int(check_random_state(settings.random_state).randint(0, 2**31 - 1))
    space = _common_space(settings, rows)
    jobs = [Job(settings.estimator, *given) for given in rows]
    way = _way(settings, space, seed, jobs)
    with closing(_open_study(settings, space, seed, way, rows[0])) as study:
        return _run_searches(settings, jobs, space, study)


def _run_searches(settings: SearchSettings, jobs: Sequence[Job], space: Space, study: Study) -> list[SearchResult]:
    runs = [SearchRun.open(settings, job, number, study.seed) for number, job in enumerate(jobs)]
    widest = widest_layers(space, settings.estimator)
    with (
        SearchProgress(settings.n_trials, len(runs) * len(runs[0].splits), shown=bool(settings.verbose)) as progress,
        closing(_crew(settings, jobs, study.way, widest, progress)) as crew,
    ):

        def train(members: Sequence[TrialMember], max_epochs: int | None = None, share: float = 1.0) -> bool:
            populations, stopped = _train_all(crew, members, max_epochs, share)
            for run in runs:
                run.note(populations)
            return stopped

        interrupted = False
        try:
            if settings.method == "halving":
                interrupted = _halve(runs, study, train, progress)
            else:
                interrupted = _rounds(runs, study, crew, progress)
        except KeyboardInterrupt:
            interrupted = True
        if interrupted:
            _check_worth_keeping(runs)
        results = [_choose(run, study, train, space, interrupted) for run in runs]
        if settings.refit and not interrupted:
            _refit(results, crew)
    return results


def _check_worth_keeping(runs: Sequence[SearchRun]) -> None:
    """Let Ctrl-C through at once where no trial can predict yet, and where several searches would be kept or none."""
    if len(runs) > 1 or not any(np.isfinite(runs[0].score(trial)) for trial in runs[0].places):
        raise KeyboardInterrupt
    warnings.warn(
        "The search was interrupted; it is fitted with the trials so far and can be used.", RuntimeWarning, stacklevel=7
    )


def _common_space(settings: SearchSettings, rows: Sequence[tuple[Any, Any, Any]]) -> Space:
    """The space that the training rows of each fold give by themselves, which must be the same for all of them."""
    spaces = [default_space(settings.space, settings.estimator, y) for _, y, _ in rows]
    if any(set(space) != set(spaces[0]) for space in spaces):
        raise ValueError(f"The space {settings.space!r} differs from fold to fold here; give one of your own.")
    return spaces[0]


def _way(settings: SearchSettings, space: Space, seed: int, jobs: Sequence[Job]) -> Way:
    """How networks of different shapes train together, once for the whole study: scores depend on it."""
    if settings.shapes != "auto":
        return settings.shapes
    runs = [SearchRun.open(settings, job, number, seed) for number, job in enumerate(jobs)]
    points = {number: decode(space, draw(space, seed, number)) for number in range(_per_round(settings))}
    members = [m for run in runs for number, point in points.items() for m in run.members(number, point)]
    return cheaper_way(members, jobs, widest_layers(space, settings.estimator))


def _per_round(settings: SearchSettings, room: int = 1) -> int:
    """Trials that train together before results are told or stored, where so many populations are in work at once."""
    waiting = settings.storage is not None or settings.method == "tpe"  # somebody waits for results
    most = settings.trials_per_round or (_ROUND[settings.method] if waiting else settings.n_trials)
    return most if room == 1 else min(most, math.ceil(settings.n_trials / room))


def _train_all(
    crew: Crew, members: Sequence[TrialMember], max_epochs: int | None, share: float
) -> tuple[list[Population], bool]:
    """Have members trained by all who are there; the populations, and whether Ctrl-C ended it."""
    for part in _parts(members, crew.room):
        crew.start(Order(part, max_epochs, share))
    populations: list[Population] = []
    while crew.in_work:
        done = crew.next()
        populations += done.populations
        if done.stopped:
            return populations, True
    return populations, False


def _parts(members: Sequence[TrialMember], count: int) -> list[list[TrialMember]]:
    """So many parts, or fewer, of about as many trials each, the networks of a trial together."""
    trials = list(dict.fromkeys(member.trial for member in members))
    places = {trial: place * min(count, len(trials)) // len(trials) for place, trial in enumerate(trials)}
    parts: dict[int, list[TrialMember]] = {}
    for member in members:
        parts.setdefault(places[member.trial], []).append(member)
    return list(parts.values())


def _crew(settings: SearchSettings, jobs: Sequence[Job], way: Way, widest: Widths, progress: SearchProgress) -> Crew:
    """Who trains: this process, or a Ray cluster where that was asked for and pays."""
    local = LocalCrew(jobs, way, widest, progress.after_epoch)
    if settings.backend == "local":
        return local
    from sumosurv.cluster import Cluster, ray_crew

    cluster = Cluster() if settings.backend == "ray" else settings.backend
    passes = (
        settings.n_trials * sum(len(job.rows({}).outcome) for job in jobs) * settings.estimator.setting("max_epochs")
    )
    if cluster.too_small(passes=passes):
        return local
    return ray_crew(cluster, jobs, way, widest, progress.after_epoch, settings.estimator.device)


def _open_study(settings: SearchSettings, space: Space, seed: int, way: Way, rows: tuple[Any, Any, Any]) -> Study:
    if settings.method != "tpe" and settings.storage is None:
        return RandomStudy(space, seed, way)
    estimator = settings.estimator
    used = {name: value for name, value in estimator.get_params(deep=False).items() if name not in _UNUSED}
    return OptunaStudy(
        space,
        seed,
        sampler="tpe" if settings.method == "tpe" else "random",
        storage=settings.storage,
        name=settings.study_name,
        way=way,
        shapes=settings.shapes,
        rows=_digest(rows),
        model=repr((type(estimator).__name__, used, settings.cv)),
    )


def _rounds(runs: Sequence[SearchRun], study: Study, crew: Crew, progress: SearchProgress) -> bool:
    """Ask for trials, have them trained, tell their scores, until there are enough; True if interrupted."""
    settings = runs[0].settings
    progress.start(len(study.finished()))
    count = _per_round(settings, crew.room)
    while study.unfinished(settings.n_trials):
        while crew.in_work < crew.room and (asked := study.ask(count, settings.n_trials)):
            for run in runs:
                run.forget([number for number, _ in asked])  # one that another process took for abandoned comes twice
            crew.start(Order([m for run in runs for number, point in asked for m in run.members(number, point)]))
        if not crew.in_work:  # other processes are at work on the last ones
            time.sleep(_POLL)
            continue
        done = crew.next()
        for run in runs:
            run.note(done.populations)
        trained = list(dict.fromkeys(member.trial for member in done.order.members))
        # a stored study hears of trials alone that were trained to the end
        ended = [n for n in trained if not done.stopped or all(run.finished(n) for run in runs)]
        scores = {n: float(np.mean([run.score(n) for run in runs])) for n in sorted(ended)}
        for number in trained:
            if number in scores:
                study.tell(number, scores[number])
            else:
                study.drop(number)
        progress.found(max(scores.values(), default=-np.inf))
        if done.stopped:
            return True
        if not any(np.isfinite(trial.score) for trial in study.finished()):
            raise ValueError(
                "Not one trial so far had a finite likelihood; look at the data, or try smaller learning rates."
            )
    return False


def _halve(runs: Sequence[SearchRun], study: Study, train: Train, progress: SearchProgress) -> bool:
    """Successive halving: many trials for few epochs, the best of them anew for more; True if interrupted."""
    (run,) = runs  # folds never run together here: whether a trial goes on depends on its results
    epochs = run.settings.estimator.setting("max_epochs")
    asked = dict(study.ask(run.settings.n_trials, run.settings.n_trials))
    going = list(asked)
    rungs = [max(1, epochs // _KEPT**rung) for rung in range(_HALVINGS, -1, -1)]
    cost = sum(rung / _KEPT**i for i, rung in enumerate(rungs))
    for rung in rungs:
        shorter = run.forget(going)
        if train([m for n in going for m in run.members(n, asked[n])], max_epochs=rung, share=rung / cost):
            run.take_back(shorter)
            return True
        order = sorted(going, key=lambda n: -run.score(n))
        going = order[: max(1, len(order) // _KEPT)]
        progress.found(run.score(going[0]))
    return False


def _choose(run: SearchRun, study: Study, train: Train, space: Space, interrupted: bool) -> SearchResult:
    """Rank the trials and choose the mixture; those of other processes that may be in it are trained again first."""
    scores = {trial: run.score(trial) for trial in run.places}
    foreign = {trial.number: trial for trial in study.finished() if trial.number not in scores and not interrupted}
    scores |= {number: trial.score for number, trial in foreign.items()}
    order = rank_trials(scores)
    mixture = run.settings.mixture
    most = (_TRAINED_AGAIN if foreign else len(order)) if mixture == "auto" else int(mixture)
    missing = [n for n in order[:most] if n in foreign]
    # the same seeds give the same networks again
    if missing and train([m for n in missing for m in run.members(n, foreign[n].parameters)]):
        _check_worth_keeping([run])
        return _choose(run, study, train, space, interrupted=True)
    run.parameters |= {n: trial.parameters for n, trial in foreign.items()}
    values = np.stack([run.values(n) for n in order[:most]])
    reach = [found for n in order[:most] if (found := run.reach(n)) is not None]
    choice = choose(order, values, mixture, run.valid_weight, np.stack(reach) if reach else None)
    single, mixed = run.assemble(order[:1]), run.assemble(choice.mixture)
    return SearchResult(run, choice, scores, space, interrupted, single, mixed)


def _refit(results: Sequence[SearchResult], crew: Crew) -> None:
    """Train the chosen settings again on all rows, validation rows included; Ctrl-C leaves the results as they are."""
    members = [m for result in results for m in result.run.members_on_all_rows(result.choice)]
    populations, stopped = _train_all(crew, members, None, share=0.0)
    if stopped:
        text = "Training on all rows was interrupted; the networks of the search are kept and can be used."
        warnings.warn(text, RuntimeWarning, stacklevel=7)
        for result in results:
            result.interrupted = True
        return
    for result in results:
        found: dict[int, list[tuple[Population, int]]] = {}
        for population in populations:
            for place, member in enumerate(population.members):
                if member.job == result.run.number and not population.history.failed[place]:
                    found.setdefault(member.trial, []).append((population, place))
        if found:
            result.best_estimator = assemble([pair for places in found.values() for pair in places])


def _digest(rows: tuple[Any, Any, Any]) -> str:
    """A fingerprint of the rows, so that a stored study is not gone on with on others."""
    X, y, validation = rows
    text = hashlib.sha256()
    for covariates, outcome, *weight in ((X, y), *(() if validation is None else (validation,))):
        table = (
            covariates
            if hasattr(covariates, "columns")
            else pd.DataFrame(np.reshape(covariates, (len(covariates), -1)))
        )
        text.update(repr([str(name) for name in table.columns]).encode())
        text.update(pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes())
        record = check_outcome(outcome, sample_weight=weight[0] if weight else None)
        text.update(record.array().tobytes())
        for own in (record.weight, record.group):
            text.update(b"" if own is None else own.tobytes())
    return text.hexdigest()
