"""A search as an estimator: it fits many networks, chooses on validation rows, and predicts with the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.validation import check_is_fitted

from sumosurv.distributions import SurvivalDistribution
from sumosurv.estimators import SumoNet, SurvivalMixture
from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.estimators.network import NetworkEstimator
from sumosurv.outcome import check_outcome
from sumosurv.search.choice import choose_size, mixture_scores
from sumosurv.search.population import Job, Member, Population, Shapes, Train
from sumosurv.search.space import Space
from sumosurv.search.study import Study

__all__ = ["NetworkSearch", "SumoNetSearch"]

_TRAINED_AGAIN = 64  # best trials that "auto" looks at where some of them were trained by another process


class NetworkSearch(SurvivalEstimator):
    """Search over the settings of any network estimator, many trials at a time.

    Trials whose networks fit into one batch train as one population, each with its own learning rate, weight
    decay, dropout and rows. They are compared by the log-likelihood of validation rows, and by nothing else.
    The search then predicts as the equal mixture of the best M trials.

    Parameters
    ----------
    estimator : network estimator
        Whose settings are searched over; what the space does not name stays as it is there (device, epochs, ...).
    space : "paper", "recipe" or mapping
        The paper's space (layers, nodes, dropout, weight decay, batch size, by the size of the data), one around
        our defaults, or your own: a parameter's name to a list of choices or to a frozen distribution of
        ``scipy.stats``.
    n_trials : int
    method : {"random", "tpe", "halving"}
        Independent draws; Optuna's tree-structured Parzen estimator, asked for a batch of trials at a time;
        or successive halving: all trials for a ninth of the epochs, the best third anew for a third of
        them, and the best third of those for all.
    mixture : "auto" or int
        M, the number of trials in the mixture; 1 for the best trial alone. "auto" takes the largest of 1, 2, 4, ...
        whose likelihood on validation rows is within one standard error of the best (of at most 64 where
        a stored study has trials of other processes, which must be trained again to be mixed).
    refit : {False, True, "cross"}
        What happens to the chosen trials: they stay as they are; they train again on all rows, validation rows
        included, each for its best number of epochs; or ("cross") ``refit_members`` networks with their settings
        train again, each holding out a share of all rows of its own for early stopping.
    refit_members : int
        Networks of "cross"; the chosen trials take turns.
    cv : int, optional
        Folds on which each trial is trained and compared where ``fit`` gets no ``validation_data``. Without it one
        share of the rows, the estimator's ``validation_fraction``, is held out.
    shapes : {"auto", "padded", "grouped"}
        How networks of different widths and depths run side by side: padded to the widest, or in groups of
        equal shape. "auto" takes what should be faster, by prices that were measured on a CPU and on an H200.
    storage : path or URL, optional
        Keep the study in a SQLite file (or any storage of Optuna's): a search that was killed goes on from its
        finished trials, and several processes can share one. Needs Optuna.
    study_name : str
        Of the study in the storage.
    trials_per_round : int, optional
        Trials that are proposed, trained and stored together.
    random_state : int, RandomState or None
    verbose : bool
        Show a progress bar: trials done, the best so far, time left.

    Attributes
    ----------
    best_estimator_ : estimator
        What predicts: the mixture of the chosen trials.
    best_single_ : estimator
        The best trial alone.
    best_params_, best_score_, best_index_
        Of the best trial; the score is its mean log-likelihood on validation rows.
    cv_results_ : dict of arrays
        All trials: settings, validation scores, ranks, best epochs. ``pandas.DataFrame(search.cv_results_)`` shows it.
    mixture_ : list of int
        Places, in ``cv_results_``, of the trials in the mixture.
    mixture_score_ : float
        Mean log-likelihood of the mixture on validation rows.
    mixture_scores_ : dict
        The same by the number of best trials in a mixture.
    interrupted_ : bool
        Ctrl-C ended the search early; it was fitted with the trials finished by then.

    Examples
    --------
    >>> from sumosurv import NetworkSearch, WeibullNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> space = {"dropout": [0.0, 0.2], "covariate_layers": [(8,), (16, 16)]}
    >>> search = NetworkSearch(WeibullNet(max_epochs=5), space=space, n_trials=4, random_state=0).fit(data.X, data.y)
    >>> len(search.cv_results_["params"]), search.predict_median(data.X[:2]).shape
    (4, (2,))
    """

    def __init__(
        self,
        estimator: NetworkEstimator,
        *,
        space: Space | Literal["paper", "recipe"] = "paper",
        n_trials: int = 300,
        method: Literal["random", "tpe", "halving"] = "random",
        mixture: int | Literal["auto"] = "auto",
        refit: bool | Literal["cross"] = False,
        refit_members: int = 32,
        cv: int | None = None,
        shapes: Shapes = "auto",
        storage: str | Path | None = None,
        study_name: str = "sumosurv",
        trials_per_round: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.space = space
        self.n_trials = n_trials
        self.method = method
        self.mixture = mixture
        self.refit = refit
        self.refit_members = refit_members
        self.cv = cv
        self.shapes = shapes
        self.storage = storage
        self.study_name = study_name
        self.trials_per_round = trials_per_round
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, validation_data: tuple[Any, Any] | None = None) -> NetworkSearch:
        """Search, choose, and keep what was chosen.

        Parameters
        ----------
        X, y
            As in the estimator's ``fit``.
        validation_data : tuple (X, y), optional
            Rows on which trials are stopped early and compared.
        """
        from sumosurv.search.rounds import fit_together  # it runs searches, and so knows this class

        return fit_together([self], [(X, y, validation_data)])[0]

    def trial(self, place: int) -> SurvivalEstimator:
        """The fitted estimator of one trial, by its place in ``cv_results_`` (only in the process that trained it)."""
        check_is_fitted(self)
        number = self._numbers[place]
        if number not in self._places:
            raise ValueError(f"Trial {place} was not trained by this process; only its score is known.")
        return self._assemble([number], own_shape=True)

    def trial_log_likelihoods(self, X: Any, y: Any) -> npt.NDArray[np.float64]:
        """The log-likelihood of rows under every trial, (trials, rows): those of a whole population in one pass.

        With ``cv`` a trial is the mixture of its networks. Trials that failed, or that another process trained, have
        nan.
        """
        check_is_fitted(self)
        outcome = check_outcome(y)
        X = self._check_covariates(X, reset=False)
        found: dict[tuple[int, int], npt.NDArray[np.float64]] = {}
        for population in {id(p): p for places in self._places.values() for p, _ in places}.values():
            found |= {(id(population), i): v for i, v in population.log_likelihood(self._job, X, outcome).items()}
        result = np.full((len(self._numbers), len(outcome)), np.nan)
        for row, number in enumerate(self._numbers):
            own = [found.get((id(p), i)) for p, i in self._places.get(number, [])]
            parts = [value for value in own if value is not None]
            if own and len(parts) == len(own):
                result[row] = np.logaddexp.reduce(np.stack(parts), axis=0) - np.log(len(parts))
        return result

    def save(self, path: str | Path) -> None:
        """Write ``best_estimator_`` to a file; `sumosurv.load` gives it back (the trials are not kept)."""
        check_is_fitted(self)
        self.best_estimator_.save(path)

    # ------------------------------------------------------------------ what the base class asks for

    def _distribution(self, X: Any) -> SurvivalDistribution:
        return self.best_estimator_._distribution(X)

    def _check_parameters(self) -> None:
        if not isinstance(self._searched(), NetworkEstimator):
            raise TypeError(
                f"estimator is a network estimator such as SumoNet(); got {self.estimator!r}. Methods without a "
                "network can be searched with scikit-learn's GridSearchCV."
            )
        for name, least in (("n_trials", 1), ("refit_members", 1)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < least:
                raise ValueError(f"{name} is a whole number of at least {least}; got {value!r}.")
        if self.method not in ("random", "tpe", "halving"):
            raise ValueError(f"method is 'random', 'tpe' or 'halving'; got {self.method!r}.")
        if self.mixture != "auto" and not (isinstance(self.mixture, (int, np.integer)) and self.mixture >= 1):
            raise ValueError(f"mixture is 'auto' or a whole number of at least 1; got {self.mixture!r}.")
        if self.refit not in (False, True, "cross"):
            raise ValueError(f"refit is False, True or 'cross'; got {self.refit!r}.")
        if self.cv is not None and not (isinstance(self.cv, (int, np.integer)) and self.cv >= 2):
            raise ValueError(f"cv is None or a whole number of at least 2; got {self.cv!r}.")
        if self.shapes not in ("auto", "padded", "grouped"):
            raise ValueError(f"shapes is 'auto', 'padded' or 'grouped'; got {self.shapes!r}.")
        size = self.trials_per_round
        if size is not None and not (isinstance(size, (int, np.integer)) and size >= 1):
            raise ValueError(f"trials_per_round is None or a whole number of at least 1; got {size!r}.")
        if self.method == "halving" and self.storage is not None:
            raise ValueError(
                "Successive halving compares trials within one run; use method='tpe' or 'random' to store."
            )

    # ------------------------------------------------------------------ one search of the jobs that run together

    def _searched(self) -> NetworkEstimator:
        """The estimator whose settings are searched over."""
        return self.estimator

    def _open(self, X: Any, y: Any, validation_data: tuple[Any, Any] | None, job: int, seed: int) -> Job:
        X, outcome = self._start(X, y)
        if validation_data is not None and not (
            isinstance(validation_data, (tuple, list)) and len(validation_data) == 2
        ):
            raise ValueError("validation_data is a pair (X, y) of rows that trials are compared on.")
        self._job, self._base = job, seed
        made = Job(self._searched(), X, outcome, validation_data)
        first, prepared = made.read({})
        if validation_data is not None:
            self._splits = [(np.arange(prepared.n_train), np.arange(prepared.n_train, len(prepared.outcome)))]
        elif self.cv is not None:
            folds = StratifiedKFold(self.cv, shuffle=True, random_state=seed % (2**31))
            rows = np.arange(len(outcome))
            self._splits = [(train, valid) for train, valid in folds.split(rows, outcome.event)]
        else:
            train, valid = first._split(outcome, np.array([seed % (2**31)]))
            if valid is None:
                raise ValueError(
                    "Trials are compared on validation rows and there are none: give validation_data or cv, or an "
                    "estimator with validation_fraction > 0 and more rows."
                )
            self._splits = [(train[0], valid[0])]
        self._parameters: dict[int, dict[str, Any]] = {}
        self._places: dict[int, list[tuple[Population, int]]] = {}
        self.interrupted_ = False
        return made

    def _members(self, number: int, parameters: dict[str, Any]) -> list[Member]:
        """The networks of a trial: one for each split."""
        return [
            Member(number, parameters, self._job, _seed(self._base, number, split), train, valid)
            for split, (train, valid) in enumerate(self._splits)
        ]

    def _note(self, populations: Sequence[Population]) -> None:
        """Remember where the networks of this search's trials are."""
        for population in populations:
            for place, member in enumerate(population.members):
                if member.job == self._job:
                    self._parameters[member.trial] = dict(member.parameters)
                    self._places.setdefault(member.trial, []).append((population, place))

    def _score(self, number: int) -> float:
        """Mean log-likelihood of a trial on its validation rows; minus infinity if one of its networks failed."""
        places = self._places.get(number, [])
        if len(places) < len(self._splits) or any(p.history.failed[i] for p, i in places):
            return -np.inf
        value = float(np.concatenate([p.scores[i] for p, i in places]).mean())
        return value if np.isfinite(value) else -np.inf

    def _rows(self, number: int) -> npt.NDArray[np.float64]:
        return np.concatenate([population.scores[place] for population, place in self._places[number]])

    def _assemble(self, numbers: Sequence[int], *, own_shape: bool = False) -> SurvivalEstimator:
        """One estimator of all networks of some trials."""
        found = [pair for number in numbers for pair in self._places[number]]
        if own_shape and len(found) == 1:
            return found[0][0].own(found[0][1])
        by_population: dict[int, tuple[Population, list[int]]] = {}
        for population, place in found:
            by_population.setdefault(id(population), (population, []))[1].append(place)
        parts = [population.mixture(places) for population, places in by_population.values()]
        if len(parts) == 1:
            return parts[0]
        return SurvivalMixture.of(parts, weights=[part.n_members_ for part in parts])

    def _choose(self, study: Study, train: Train) -> None:
        """Rank the trials, choose the mixture and keep what predicts."""
        finished = {number: self._score(number) for number in self._places}
        foreign = {f.number: f for f in study.finished() if f.number not in finished}
        scores = finished | {number: trial.score for number, trial in foreign.items()}
        order = sorted((n for n in scores if np.isfinite(scores[n])), key=lambda n: (-scores[n], n))
        if not order:
            raise ValueError("No trial had a finite likelihood on the validation rows.")
        most = (_TRAINED_AGAIN if foreign else len(order)) if self.mixture == "auto" else int(self.mixture)
        top = order[:most]
        missing = [n for n in top if n in foreign]
        if missing:  # trained by another process: the same seeds give the same networks again
            train([m for n in missing for m in self._members(n, foreign[n].parameters)])
        self._parameters |= {n: f.parameters for n, f in foreign.items()}
        values = np.stack([self._rows(n) for n in top])
        self.mixture_scores_ = mixture_scores(values)
        size = choose_size(values) if self.mixture == "auto" else len(top)
        self._keep_results(scores, order)
        places = {number: place for place, number in enumerate(self._numbers)}
        self.best_index_ = places[order[0]]
        self.best_params_, self.best_score_ = self._parameters[order[0]], scores[order[0]]
        self.mixture_ = [places[n] for n in top[:size]]
        self.mixture_score_ = self.mixture_scores_[size]
        self.best_single_ = self._assemble(order[:1], own_shape=True)
        self.best_estimator_ = self._assemble(top[:size], own_shape=True)

    def _keep_results(self, scores: dict[int, float], order: list[int]) -> None:
        numbers = sorted(scores)
        self._numbers = numbers
        ranks = {n: i + 1 for i, n in enumerate(order)}
        results: dict[str, Any] = {
            "trial": np.array(numbers),
            "params": [self._parameters[n] for n in numbers],
            "valid_score": np.array([scores[n] for n in numbers]),
            "rank_valid_score": np.array([ranks.get(n, len(numbers)) for n in numbers]),
            "best_epoch": np.array(
                [np.mean([p.history.best_epoch[i] for p, i in self._places.get(n, [])] or [np.nan]) for n in numbers]
            ),
        }
        for name in self._space:
            column = np.empty(len(numbers), dtype=object)
            column[:] = [self._parameters[n].get(name) for n in numbers]
            results[f"param_{name}"] = column
        self.cv_results_ = results

    def _refit_members(self, job: Job) -> list[Member]:
        """The networks that train again on all rows."""
        numbers = [self._numbers[place] for place in self.mixture_]
        members = []
        if self.refit == "cross":
            for i in range(max(self.refit_members, len(numbers))):
                number = numbers[i % len(numbers)]
                seed = _seed(self._base, number, len(self._splits) + 1 + i // len(numbers))
                estimator, prepared = job.read(self._parameters[number])
                train, valid = estimator._split(prepared.outcome, np.array([seed]))
                held = None if valid is None else valid[0]
                members.append(Member(number, self._parameters[number], self._job, seed, train[0], held, 10**9, True))
            return members
        for number in numbers:
            _, prepared = job.read(self._parameters[number])
            for population, place in self._places[number]:
                member = population.members[place]
                stop = int(population.history.best_epoch[place])
                rows = np.arange(len(prepared.outcome))
                members.append(Member(number, member.parameters, self._job, member.seed, rows, None, stop, True))
        return members


class SumoNetSearch(NetworkSearch):
    """`NetworkSearch` over SuMo-net: the paper's space by default, trials side by side, the best M mixed.

    All parameters and attributes are those of `NetworkSearch`; ``estimator`` is ``SumoNet()`` unless given.

    Examples
    --------
    >>> from sumosurv import SumoNetSearch, SumoNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> space = {"dropout": [0.1, 0.3], "mixed_layers": [(8,), (16, 16)]}
    >>> search = SumoNetSearch(SumoNet(max_epochs=5), space=space, n_trials=4, random_state=0).fit(data.X, data.y)
    >>> sorted(search.best_params_)
    ['dropout', 'mixed_layers']
    """

    def __init__(
        self,
        estimator: SumoNet | None = None,
        *,
        space: Space | Literal["paper", "recipe"] = "paper",
        n_trials: int = 300,
        method: Literal["random", "tpe", "halving"] = "random",
        mixture: int | Literal["auto"] = "auto",
        refit: bool | Literal["cross"] = False,
        refit_members: int = 32,
        cv: int | None = None,
        shapes: Shapes = "auto",
        storage: str | Path | None = None,
        study_name: str = "sumosurv",
        trials_per_round: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            estimator,  # type: ignore[arg-type]
            space=space,
            n_trials=n_trials,
            method=method,
            mixture=mixture,
            refit=refit,
            refit_members=refit_members,
            cv=cv,
            shapes=shapes,
            storage=storage,
            study_name=study_name,
            trials_per_round=trials_per_round,
            random_state=random_state,
            verbose=verbose,
        )

    def _searched(self) -> NetworkEstimator:
        return SumoNet() if self.estimator is None else self.estimator


def _seed(base: int, number: int, split: int) -> int:
    """The seed of a network, from the study's, the trial's number and its split alone."""
    return int(np.random.SeedSequence([base, number, split]).generate_state(1)[0] >> 1)
