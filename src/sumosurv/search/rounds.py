"""How trials are run: in rounds or by halving, the trials of several searches side by side, and the second training."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils import check_random_state

from sumosurv.outcome import check_outcome
from sumosurv.search.estimator import NetworkSearch
from sumosurv.search.population import Job, Member, Train, train_members
from sumosurv.search.progress import SearchProgress
from sumosurv.search.space import Space, default_space, widest_layers
from sumosurv.search.study import OptunaStudy, RandomStudy, Study

__all__ = ["fit_folds", "fit_together"]

_ROUND = {"tpe": 32, "random": 100}  # trials that train together before results are told or stored
_HALVINGS = 2  # rungs before the last one of successive halving: a ninth and a third of the epochs
_KEPT = 3  # one in so many trials goes on to the next rung


def fit_folds(search: NetworkSearch, folds: Sequence[tuple[Any, Any, tuple[Any, Any]]]) -> list[NetworkSearch]:
    """Fit one search on each of several folds, the trials of all folds side by side.

    Parameters
    ----------
    search : NetworkSearch
        With ``method="random"`` and no storage. It is cloned for each fold; all folds try the same settings.
    folds : sequence of (X, y, validation_data)

    Returns
    -------
    list of fitted searches, one per fold; each knows the rows of its own fold alone
    """
    if search.method != "random" or search.storage is not None:
        raise ValueError(
            "Folds train together only where trials do not depend on results (method='random' without storage): "
            "the validation rows of one fold are test rows of another."
        )
    return fit_together([clone(search) for _ in folds], folds)


def fit_together(searches: Sequence[NetworkSearch], rows: Sequence[tuple[Any, Any, Any]]) -> list[NetworkSearch]:
    """Train the trials of all searches as common populations; everything else is each search's own."""
    lead = searches[0]
    lead._check_parameters()
    seed = int(check_random_state(lead.random_state).randint(0, 2**31 - 1))
    space = _common_space(lead, rows)
    study = _open_study(lead, space, seed, rows[0])
    jobs = []
    for i, (search, (X, y, validation_data)) in enumerate(zip(searches, rows, strict=True)):
        search._space, search._widest = space, widest_layers(space, search._searched())
        jobs.append(search._open(X, y, validation_data, i, study.seed))
    with SearchProgress(lead.n_trials, len(jobs) * len(lead._splits), shown=lead.verbose) as progress:

        def train(members: Sequence[Member], max_epochs: int | None = None, share: float = 1.0) -> bool:
            populations, stopped = train_members(
                members,
                jobs,
                shapes=lead.shapes,
                widest=lead._widest,
                max_epochs=max_epochs,
                after_epoch=progress.after_epoch(share),
            )
            for search in searches:
                search._note(populations)
            return stopped

        interrupted = False
        try:
            if lead.method == "halving":
                interrupted = _halve(lead, study, train, progress)  # `fit_folds` has none
            else:
                interrupted = _rounds(searches, study, train, progress)
        except KeyboardInterrupt:
            if not any(search._places for search in searches):
                raise
            interrupted = True
        if interrupted:
            warnings.warn("The search was interrupted; it goes on with the trials that are finished.", stacklevel=3)
        for search in searches:
            search.interrupted_ = interrupted
            search._choose(study, train)
        if lead.refit and not interrupted:
            _refit(searches, jobs)
    return list(searches)


def _common_space(search: NetworkSearch, rows: Sequence[tuple[Any, Any, Any]]) -> Space:
    """The space that the training rows of each fold give by themselves, which must be the same for all of them."""
    spaces = [default_space(search.space, search._searched(), check_outcome(y)) for _, y, _ in rows]
    if any(set(space) != set(spaces[0]) for space in spaces):
        raise ValueError(f"The space {search.space!r} differs from fold to fold here; give one of your own.")
    return spaces[0]


def _open_study(search: NetworkSearch, space: Space, seed: int, rows: tuple[Any, Any, Any]) -> Study:
    if search.method != "tpe" and search.storage is None:
        return RandomStudy(space, seed)
    return OptunaStudy(
        space,
        seed,
        sampler="tpe" if search.method == "tpe" else "random",
        storage=search.storage,
        name=search.study_name,
        rows=_digest(rows),
        model=repr((type(search._searched()).__name__, search._searched().get_params(deep=False), search.cv)),
    )


def _rounds(searches: Sequence[NetworkSearch], study: Study, train: Train, progress: SearchProgress) -> bool:
    """Ask for trials, train them, tell their scores, until there are enough; True if interrupted."""
    lead = searches[0]
    everything = lead.n_trials if lead.storage is None and lead.method == "random" else _ROUND[lead.method]
    per_round = lead.trials_per_round or everything
    progress.start(len(study.finished()))
    while (left := lead.n_trials - len(study.finished())) > 0:
        asked = study.ask(min(per_round, left))
        stopped = train([m for search in searches for number, point in asked for m in search._members(number, point)])
        begun = {n for n, _ in asked if not stopped or all(n in search._places for search in searches)}
        scores = {n: float(np.mean([search._score(n) for search in searches])) for n in sorted(begun)}
        for number, _ in asked:
            if number in scores:
                study.tell(number, scores[number])
            else:
                study.drop(number)
        progress.found(max(scores.values(), default=-np.inf))
        if stopped:
            return True
        if not any(np.isfinite(list(scores.values()))):
            raise ValueError(
                "Not one trial of a round had a finite likelihood; look at the data, or try smaller learning rates."
            )
    return False


def _halve(search: NetworkSearch, study: Study, train: Train, progress: SearchProgress) -> bool:
    """Successive halving: many trials for few epochs, the best of them anew for more; True if interrupted."""
    epochs = search._searched().max_epochs
    asked = dict(study.ask(search.n_trials))
    going = list(asked)
    rungs = [max(1, epochs // _KEPT**rung) for rung in range(_HALVINGS, -1, -1)]
    cost = sum(rung / _KEPT**i for i, rung in enumerate(rungs))
    for rung in rungs:
        # the networks of earlier rungs have done their part
        search._places = {n: places for n, places in search._places.items() if n not in going}
        stopped = train([m for n in going for m in search._members(n, asked[n])], max_epochs=rung, share=rung / cost)
        order = sorted(going, key=lambda n: -search._score(n))
        going = order[: max(1, len(order) // _KEPT)]
        progress.found(search._score(going[0]))
        if stopped:
            return True
    return False


def _refit(searches: Sequence[NetworkSearch], jobs: Sequence[Job]) -> None:
    """Train the chosen settings again on all rows, validation rows included."""
    members = [m for search, job in zip(searches, jobs) for m in search._refit_members(job)]
    try:
        populations, stopped = train_members(members, jobs, shapes=searches[0].shapes, widest=searches[0]._widest)
    except KeyboardInterrupt:
        populations, stopped = [], True
    if stopped:
        warnings.warn("Training on all rows was interrupted; the networks of the search are kept.", stacklevel=4)
        return
    for search in searches:
        kept, search._places = search._places, {}
        search._note(populations)
        again = {n: [(p, i) for p, i in places if not p.history.failed[i]] for n, places in search._places.items()}
        search._places = {n: places for n, places in again.items() if places}
        if search._places:
            search.best_estimator_ = search._assemble(list(search._places), own_shape=True)
        search._places = kept


def _digest(rows: tuple[Any, Any, Any]) -> str:
    """A fingerprint of the rows, so that a stored study is not gone on with on others."""
    X, y, validation = rows
    text = hashlib.sha256()
    for covariates, outcome in ((X, y), *(() if validation is None else (validation,))):
        table = (
            covariates
            if hasattr(covariates, "columns")
            else pd.DataFrame(np.reshape(covariates, (len(covariates), -1)))
        )
        text.update(pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes())
        text.update(check_outcome(outcome).array().tobytes())
    return text.hexdigest()
