"""The course of a search: open the study, train trials in rounds, choose the best, train them again."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from sumosurv.outcome import check_outcome
from sumosurv.search.executor import Executor, Job, Population, Task, TrialMember, Widths, choose_layout
from sumosurv.search.selection import SearchRun, SearchSettings, assemble, rank_trials
from sumosurv.search.space import Space, decode, default_space, draw, widest_layers
from sumosurv.search.study import Layout, OptunaStudy, Study
from sumosurv.warn import warn_user

_ROUND = {"tpe": 32, "random": 100}  # trials per round if later trials or a storage depend on results
_POLL = 1.0  # seconds between two looks at trials that other processes run
_IGNORED = ("verbose",)  # settings of the estimator that a search ignores
_RUNGS = 2  # of successive halving, before the last one: a ninth and a third of the epochs
_REDUCTION = 3  # one in so many trials is promoted to the next rung
_TRAINED_AGAIN = 64  # best trials considered by mixture="auto" if another process trained some of them


def run_searches(settings: SearchSettings, rows: Sequence[tuple[Any, Any, Any]]) -> list[SearchRun]:
    """Run one search on each of several (X, y, validation_data), the trials of all in common populations."""
    seed = int(check_random_state(settings.random_state).randint(0, 2**31 - 1))
    space = _common_space(settings, rows)
    widest = widest_layers(space, settings.estimator)
    jobs = [Job(settings.estimator, *given) for given in rows]
    layout = _layout(settings, space, seed, jobs, widest)
    with closing(_open_study(settings, space, seed, layout, rows[0])) as study:
        runs = [SearchRun.open(settings, job, number, study.seed) for number, job in enumerate(jobs)]
        with (
            closing(SearchProgress(settings.n_trials, len(runs) * len(runs[0].splits), settings.verbose)) as progress,
            closing(_executor(settings, jobs, widest if study.layout == "padded" else {}, progress)) as executor,
        ):
            try:
                train = _halve if settings.method == "halving" else _train_rounds
                interrupted = train(runs, study, executor, progress)
            except KeyboardInterrupt:
                interrupted = True
            if interrupted:
                _check_usable(runs)
            for run in runs:
                _choose(run, study, executor, interrupted)
            if settings.refit and not interrupted:
                _refit(runs, executor)
    return runs


# ---------------------------------------------------------------------- opening


def _common_space(settings: SearchSettings, rows: Sequence[tuple[Any, Any, Any]]) -> Space:
    """The space that follows from the training rows of each fold, which must be the same for all folds."""
    spaces = [default_space(settings.space, settings.estimator, y) for _, y, _ in rows]
    if any(set(space) != set(spaces[0]) for space in spaces):
        raise ValueError(f"The space {settings.space!r} differs from fold to fold; pass a mapping instead.")
    return spaces[0]


def _layout(settings: SearchSettings, space: Space, seed: int, jobs: Sequence[Job], widest: Widths) -> Layout:
    """The layout of a new study, from the trials of its first round."""
    if settings.layout != "auto":
        return settings.layout
    runs = [SearchRun.open(settings, job, number, seed) for number, job in enumerate(jobs)]
    points = {number: decode(space, draw(space, seed, number)) for number in range(_trials_per_round(settings))}
    members = [m for run in runs for number, point in points.items() for m in run.members(number, point)]
    return choose_layout(members, jobs, widest)


def _trials_per_round(settings: SearchSettings, capacity: int = 1) -> int:
    waiting = settings.storage is not None or settings.method == "tpe"  # results are needed before the end
    most = settings.trials_per_round or (_ROUND[settings.method] if waiting else settings.n_trials)
    return most if capacity == 1 else min(most, math.ceil(settings.n_trials / capacity))


def _open_study(settings: SearchSettings, space: Space, seed: int, layout: Layout, rows: tuple[Any, Any, Any]) -> Study:
    if settings.method != "tpe" and settings.storage is None:
        return Study(space, seed, layout)
    estimator = settings.estimator
    used = {name: value for name, value in estimator.get_params(deep=False).items() if name not in _IGNORED}
    return OptunaStudy(
        space,
        seed,
        sampler="tpe" if settings.method == "tpe" else "random",
        storage=settings.storage,
        name=settings.study_name,
        layout=layout,
        requested_layout=settings.layout,
        rows=_fingerprint(rows),
        model=repr((type(estimator).__name__, used, settings.cv)),
    )


def _fingerprint(rows: tuple[Any, Any, Any]) -> str:
    """A digest of the rows, so that a stored study is not resumed on others."""
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
        for column in (record.weight, record.group):
            text.update(b"" if column is None else column.tobytes())
    return text.hexdigest()


def _executor(settings: SearchSettings, jobs: Sequence[Job], widest: Widths, progress: SearchProgress) -> Executor:
    """The executor of the cluster, if there is one and the search is large enough; otherwise this process."""
    if settings.cluster is not None:
        passes = settings.n_trials * sum(len(job.rows({}).outcome) * job.settings({}).max_epochs for job in jobs)
        executor: Executor | None = settings.cluster.executor(jobs, widest, progress.advance, passes)
        if executor is not None:
            return executor
    return Executor(jobs, widest, progress.advance)


# ---------------------------------------------------------------------- training


def _train_rounds(runs: Sequence[SearchRun], study: Study, executor: Executor, progress: SearchProgress) -> bool:
    """Ask for trials, train them and store their scores until there are enough; True if interrupted."""
    settings = runs[0].settings
    progress.resume(len(study.finished()))
    count = _trials_per_round(settings, executor.capacity)
    while study.unfinished(settings.n_trials):
        while executor.pending < executor.capacity and (asked := study.ask(count, settings.n_trials)):
            for run in runs:
                run.remove([number for number, _ in asked])  # networks of a trial that counted as abandoned
            executor.submit(Task([m for run in runs for number, point in asked for m in run.members(number, point)]))
        if not executor.pending:  # other processes run the last trials
            time.sleep(_POLL)
            continue
        result = executor.next_result()
        for run in runs:
            run.add(result.populations)
        scores = {}
        for number in sorted({member.trial for member in result.task.members}):
            if result.interrupted and not all(run.finished(number) for run in runs):
                study.drop(number)  # only trials that were trained to the end are stored
            else:
                scores[number] = float(np.mean([run.score(number) for run in runs]))
                study.tell(number, scores[number])
        progress.show_best(max(scores.values(), default=-np.inf))
        if result.interrupted:
            return True
        if not any(np.isfinite(trial.score) for trial in study.finished()):
            raise ValueError("No trial so far had a finite likelihood; check the data, or try smaller learning rates.")
    return False


def _halve(runs: Sequence[SearchRun], study: Study, executor: Executor, progress: SearchProgress) -> bool:
    """Successive halving: many trials for few epochs, then the best again for more; True if interrupted."""
    (run,) = runs  # which trials are promoted depends on the results, so folds cannot run together
    epochs = run.job.settings({}).max_epochs
    asked = dict(study.ask(run.settings.n_trials, run.settings.n_trials))
    promoted = list(asked)
    rungs = [max(1, epochs // _REDUCTION**rung) for rung in range(_RUNGS, -1, -1)]
    cost = sum(rung / _REDUCTION**i for i, rung in enumerate(rungs))
    for rung in rungs:
        previous = run.remove(promoted)
        members = [m for n in promoted for m in run.members(n, asked[n])]
        populations, interrupted = _train(executor, members, max_epochs=rung, share=rung / cost)
        run.add(populations)
        if interrupted:
            run.networks |= {n: networks for n, networks in previous.items() if not run.finished(n)}
            return True
        order = sorted(promoted, key=lambda n: -run.score(n))
        promoted = order[: max(1, len(order) // _REDUCTION)]
        progress.show_best(run.score(promoted[0]))
    return False


def _train(
    executor: Executor, members: Sequence[TrialMember], max_epochs: int | None = None, share: float = 1.0
) -> tuple[list[Population], bool]:
    """Train members, as many tasks as the executor has capacity for; the populations, and whether interrupted."""
    for part in _split_by_trial(members, executor.capacity):
        executor.submit(Task(part, max_epochs, share))
    populations: list[Population] = []
    while executor.pending:
        result = executor.next_result()
        populations += result.populations
        if result.interrupted:
            return populations, True
    return populations, False


def _split_by_trial(members: Sequence[TrialMember], count: int) -> list[list[TrialMember]]:
    """At most ``count`` parts with about equally many trials; the networks of a trial stay together."""
    trials = list(dict.fromkeys(member.trial for member in members))
    places = {trial: place * min(count, len(trials)) // len(trials) for place, trial in enumerate(trials)}
    parts: dict[int, list[TrialMember]] = {}
    for member in members:
        parts.setdefault(places[member.trial], []).append(member)
    return list(parts.values())


# ---------------------------------------------------------------------- choosing


def _check_usable(runs: Sequence[SearchRun]) -> None:
    """Raise KeyboardInterrupt unless one search can be kept with the trials so far; otherwise warn."""
    if len(runs) > 1 or not any(np.isfinite(runs[0].score(trial)) for trial in runs[0].networks):
        raise KeyboardInterrupt
    warn_user("The search was interrupted; it is fitted with the trials so far and can be used.", RuntimeWarning)


def _choose(run: SearchRun, study: Study, executor: Executor, interrupted: bool) -> None:
    """Rank the trials and choose the mixture, after training candidates of other processes again."""
    scores = {trial: run.score(trial) for trial in run.networks}
    foreign = {trial.number: trial for trial in study.finished() if trial.number not in scores and not interrupted}
    scores |= {number: trial.score for number, trial in foreign.items()}
    order = rank_trials(scores)
    mixture = run.settings.mixture
    most = (_TRAINED_AGAIN if foreign else len(order)) if mixture == "auto" else int(mixture)
    if missing := [n for n in order[:most] if n in foreign]:
        # equal seeds give equal networks
        members = [m for n in missing for m in run.members(n, foreign[n].parameters)]
        populations, stopped = _train(executor, members)
        run.add(populations)
        if stopped:
            _check_usable([run])
            _choose(run, study, executor, interrupted=True)
            return
    run.parameters |= {n: trial.parameters for n, trial in foreign.items()}
    run.choose(scores, order, most)
    run.interrupted = interrupted


def _refit(runs: Sequence[SearchRun], executor: Executor) -> None:
    """Train the chosen settings again on training and validation rows; Ctrl-C leaves the networks unchanged."""
    members = [member for run in runs for member in run.members_on_all_rows()]
    populations, interrupted = _train(executor, members, share=0.0)
    if interrupted:
        warn_user(
            "Training on all rows was interrupted; the networks of the search are kept and can be used.", RuntimeWarning
        )
    for run in runs:
        run.interrupted = interrupted
        found = run.networks_in(populations).values()
        worked = [(p, i) for networks in found for p, i in networks if not p.history.failed[i]]
        if worked and not interrupted:
            run.best_estimator = assemble(worked)


class SearchProgress:
    """A progress bar in units of trials, which advances with every epoch of every population."""

    def __init__(self, n_trials: int, networks_per_trial: int, shown: bool) -> None:
        from tqdm.auto import tqdm

        self._n_trials, self._networks_per_trial, self._best = n_trials, networks_per_trial, -math.inf
        numbers = "{desc}: {percentage:3.0f}%|{bar}| {n:.0f}/{total:.0f} trials [{elapsed}<{remaining}{postfix}]"
        self._bar: Any = tqdm(total=n_trials, desc="search", bar_format=numbers, disable=not shown)

    def resume(self, trials: int) -> None:
        """Start after some trials that a stored study already has."""
        self.advance(trials * self._networks_per_trial)

    def advance(self, networks: float) -> None:
        """Advance by so many trained networks, a fraction after each epoch."""
        self._bar.update(min(networks / self._networks_per_trial, self._n_trials - self._bar.n))

    def show_best(self, score: float) -> None:
        """Show a score if it is the best so far."""
        if score > self._best:
            self._best = score
            self._bar.set_postfix_str(f", best {score:.4f}")

    def close(self) -> None:
        """End the bar."""
        self._bar.close()
