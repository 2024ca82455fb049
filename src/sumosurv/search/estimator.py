"""A search as an estimator: it fits many networks, chooses on validation rows, and predicts with the best of them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from sumosurv.distributions import SurvivalDistribution
from sumosurv.estimators import SumoNet, SurvivalEstimator
from sumosurv.estimators.given import check_validation_data, with_rows
from sumosurv.estimators.members import Members
from sumosurv.estimators.network import NetworkEstimator
from sumosurv.outcome import check_outcome
from sumosurv.search.choice import log_mixture
from sumosurv.search.grouping import Shapes
from sumosurv.search.population import before_entry
from sumosurv.search.rounds import SearchResult, run_searches
from sumosurv.search.run import SearchRun, SearchSettings
from sumosurv.search.space import Space

__all__ = ["NetworkSearch", "SumoNetSearch", "fit_folds"]


class _FittedSearch(SurvivalEstimator):
    """What a fit leaves behind; apart from the dataclass below, whose annotations are constructor arguments."""

    best_estimator_: SurvivalEstimator
    best_single_: SurvivalEstimator
    cv_results_: dict[str, Any]
    _run: SearchRun


@dataclass(eq=False, repr=False)
class NetworkSearch(_FittedSearch):
    """Search over the settings of any network estimator, many trials at a time.

    Trials whose networks fit into one batch train as one population, each with its own learning rate, weight
    decay, dropout and rows. They are compared by the log-likelihood of validation rows, and by nothing else.
    The search then predicts as the equal mixture of the best M trials.

    Parameters
    ----------
    estimator : network estimator
        Whose settings are searched over; what the space does not name stays as it is there (device, epochs, ...).
        Its ``verbose`` and ``on_epoch`` are not used: the search has a progress bar of its own.
    space : "paper", "recipe" or mapping
        The paper's space (layers, nodes, dropout, weight decay, batch size, by the size of the data), one around
        our defaults, or your own: a parameter's name to a list of choices or to a frozen distribution of
        ``scipy.stats``.
    n_trials : int
        In all, those that a stored study has already included.
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
        equal shape. "auto" takes what should be faster, by prices that were measured on a CPU and on an H200; it is
        settled once for all trials of a study, and a stored study keeps it.
    storage : path or URL, optional
        Keep the study in a SQLite file, or in a database by its URL (any that Optuna knows): a search that was killed
        goes on as if it had not been, and several processes can share one. Needs Optuna.
    study_name : str
        Of the study in the storage.
    trials_per_round : int, optional
        Trials that are proposed, trained and stored together.
    random_state : int, RandomState or None
    verbose : bool
        Show a progress bar: trials done, the best so far, time left.
    backend : "local", "ray" or Cluster
        Who trains: this process, or the workers of a Ray cluster, a population of trials at a time (extra ``ray``; the
        address is that of $RAY_ADDRESS, or of a `sumosurv.cluster.Cluster`). Trials and scores are the same. A search
        too small for a cluster is run here, and a warning says so.

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
        Ctrl-C ended the search early; see ``fit``.

    Examples
    --------
    >>> from sumosurv import NetworkSearch, WeibullNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> space = {"dropout": [0.0, 0.2], "covariate_layers": [(8,), (16, 16)]}
    >>> search = NetworkSearch(WeibullNet(max_epochs=5), space=space, n_trials=4, random_state=0).fit(data.X, data.y)
    >>> len(search.cv_results_["params"]), search.predict_median(data.X[:2]).shape
    (4, (2,))
    """

    estimator: NetworkEstimator
    _: KW_ONLY
    space: Space | Literal["paper", "recipe"] = "paper"
    n_trials: int = 300
    method: Literal["random", "tpe", "halving"] = "random"
    mixture: int | Literal["auto"] = "auto"
    refit: bool | Literal["cross"] = False
    refit_members: int = 32
    cv: int | None = None
    shapes: Shapes = "auto"
    storage: str | Path | None = None
    study_name: str = "sumosurv"
    trials_per_round: int | None = None
    random_state: Any = None
    verbose: bool = False
    backend: Any = "local"

    def fit(  # type: ignore[override]  # the base takes further arguments only to say that there are none
        self,
        X: Any,
        y: Any,
        validation_data: tuple[Any, ...] | None = None,
        *,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Self:
        """Search, choose, and keep what was chosen.

        Parameters
        ----------
        X, y, sample_weight, groups
            As in the estimator's ``fit``.
        validation_data : tuple (X, y) or (X, y, sample_weight), optional
            Rows on which trials are stopped early and compared.

        Raises
        ------
        KeyboardInterrupt
            On Ctrl-C, so that the caller stops too. Once a trial can predict, the search is fitted
            nevertheless, and a warning says so: with the trials finished by then and, of those in training, the best
            weights so far; an interrupted ``refit`` leaves the networks of the search. ``interrupted_`` is then
            True. Before that, and on a second Ctrl-C, the search stays as it was. A stored study keeps finished trials.
        """
        check_validation_data(validation_data)
        return self._fit_anew(X, with_rows(y, sample_weight, groups), validation_data)

    def trial(self, place: int) -> SurvivalEstimator:
        """The fitted estimator of one trial, by its place in ``cv_results_`` (only in the process that trained it)."""
        check_is_fitted(self)
        number = int(self.cv_results_["trial"][place])
        if number not in self._run.places:
            raise ValueError(f"Trial {place} was not trained by this process; only its score is known.")
        return self._run.assemble([number])

    def trial_log_likelihoods(self, X: Any, y: Any) -> npt.NDArray[np.float64]:
        """The log-likelihood of rows under every trial, (trials, rows): those of a whole population in one pass.

        With ``cv`` a trial is the mixture of its networks. Trials that failed, or that another process trained, have
        nan.
        """
        check_is_fitted(self)
        outcome = check_outcome(y)
        X = self._check_covariates(X, reset=False)
        places = self._run.places
        found: dict[tuple[int, int], npt.NDArray[np.float64]] = {}
        reach: dict[tuple[int, int], npt.NDArray[np.float64]] = {}
        late = outcome.entry is not None and self.cv is not None
        for population in {id(p): p for pairs in places.values() for p, _ in pairs}.values():
            values = population.log_likelihood(self._run.number, X, outcome)
            found |= {(id(population), i): value for i, value in values.items()}
            before = population.log_likelihood(self._run.number, X, before_entry(outcome)) if late else {}
            reach |= {(id(population), i): value for i, value in before.items()}
        trials = self.cv_results_["trial"]
        result = np.full((len(trials), len(outcome)), np.nan)
        for row, number in enumerate(trials):
            own = [found.get((id(p), i)) for p, i in places.get(int(number), [])]
            parts = [value for value in own if value is not None]
            if own and len(parts) == len(own):
                reached = np.stack([reach[id(p), i] for p, i in places[int(number)]]) if late else None
                result[row] = log_mixture(np.stack(parts), reached)
        return result

    def save(self, path: str | Path) -> None:
        """Write ``best_estimator_`` to a file; `sumosurv.load` gives it back (the trials are not kept)."""
        check_is_fitted(self)
        self.best_estimator_.save(path)

    def export_onnx(self, path: str | Path, *, precision: Literal["double", "single"] = "double") -> None:
        """Write ``best_estimator_`` as an ONNX file; see `SurvivalEstimator.export_onnx`."""
        check_is_fitted(self)
        self.best_estimator_.export_onnx(path, precision=precision)

    def export_torch(self, path: str | Path, *, precision: Literal["double", "single"] = "double") -> None:
        """Write ``best_estimator_`` as a torch.export program; see `SurvivalEstimator.export_torch`."""
        check_is_fitted(self)
        self.best_estimator_.export_torch(path, precision=precision)

    # ------------------------------------------------------------------ what the base class asks for

    def _fit(self, X: Any, y: Any, validation_data: tuple[Any, ...] | None = None) -> None:
        self._keep(run_searches(self._asked(), [(X, y, validation_data)])[0])

    @property
    def _device(self) -> torch.device:
        """Where ``best_estimator_`` is."""
        return self.best_estimator_._device

    def _on_cpu(self) -> Self:
        """A copy with ``best_estimator_`` on the CPU."""
        made = copy.copy(self)
        made.best_estimator_ = self.best_estimator_._on_cpu()
        return made

    def _distribution(self, X: Any) -> SurvivalDistribution:
        return self.best_estimator_.predict_distribution(X)

    def _members(self, X: Any) -> Members:
        return self.best_estimator_.predict_members(X)

    def _check_settings(self) -> None:
        """Raise an error that names a setting which cannot be."""
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
        if self.backend not in ("local", "ray") and not hasattr(self.backend, "too_small"):
            raise ValueError(f"backend is 'local', 'ray' or a sumosurv.cluster.Cluster; got {self.backend!r}.")
        if self.method == "halving" and self.storage is not None:
            raise ValueError(
                "Successive halving compares trials within one run; use method='tpe' or 'random' to store."
            )

    # ------------------------------------------------------------------ from what was asked to what was chosen

    def _searched(self) -> NetworkEstimator:
        """The estimator whose settings are searched over."""
        return self.estimator

    def _asked(self) -> SearchSettings:
        """What was asked for, as one value."""
        return SearchSettings(**(self.get_params(deep=False) | {"estimator": clone(self._searched())}))

    def _keep(self, result: SearchResult) -> None:
        """Set the fitted attributes."""
        run, choice = result.run, result.choice
        numbers = sorted(result.scores)
        places = {number: place for place, number in enumerate(numbers)}
        ranks = {number: rank + 1 for rank, number in enumerate(choice.order)}
        self.cv_results_ = {
            "trial": np.array(numbers),
            "params": [run.parameters[n] for n in numbers],
            "valid_score": np.array([result.scores[n] for n in numbers]),
            "rank_valid_score": np.array([ranks.get(n, len(numbers)) for n in numbers]),
            "best_epoch": np.array([run.best_epoch(n) for n in numbers]),
        }
        for name in result.space:
            column = np.empty(len(numbers), dtype=object)
            column[:] = [run.parameters[n].get(name) for n in numbers]
            self.cv_results_[f"param_{name}"] = column
        best = choice.order[0]
        self.best_index_, self.best_params_, self.best_score_ = places[best], run.parameters[best], result.scores[best]
        self.mixture_ = [places[n] for n in choice.mixture]
        self.mixture_scores_ = choice.mixture_scores
        self.mixture_score_ = choice.mixture_scores[len(choice.mixture)]
        self.best_single_, self.best_estimator_ = result.best_single, result.best_estimator
        self.interrupted_ = result.interrupted
        self.__dict__.update(run.job.rows({}).known)
        self._run = run


@dataclass(eq=False, repr=False)
class SumoNetSearch(NetworkSearch):
    """`NetworkSearch` over SuMo-net: the paper's space by default, trials side by side, the best M mixed.

    All parameters and attributes are those of `NetworkSearch`; ``estimator`` is ``SumoNet()`` unless given.

    Examples
    --------
    >>> from sumosurv import SumoNetSearch, SumoNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> space = {"dropout": [0.1, 0.3], "time_layers": [(8,), (16, 16)]}
    >>> search = SumoNetSearch(SumoNet(max_epochs=5), space=space, n_trials=4, random_state=0).fit(data.X, data.y)
    >>> sorted(search.best_params_)
    ['dropout', 'time_layers']
    """

    estimator: SumoNet | None = None  # type: ignore[assignment]

    def _searched(self) -> NetworkEstimator:
        return SumoNet() if self.estimator is None else self.estimator


def fit_folds(search: NetworkSearch, folds: Sequence[tuple[Any, Any, tuple[Any, Any]]]) -> list[NetworkSearch]:
    """Fit one search on each of several folds, the trials of all folds side by side.

    Parameters
    ----------
    search : NetworkSearch
        With ``method="random"`` and no storage. It is cloned for each fold; all folds try the same settings.
    folds : sequence of (X, y, validation_data)

    Returns
    -------
    list of fitted searches, one per fold; each knows the rows of its own fold alone. Ctrl-C ends them all: nothing is
    kept.
    """
    if search.method != "random" or search.storage is not None:
        raise ValueError(
            "Folds train together only where trials do not depend on results (method='random' without storage): "
            "the validation rows of one fold are test rows of another."
        )
    search._check_settings()
    searches = [clone(search) for _ in folds]
    for fitted, result in zip(searches, run_searches(search._asked(), folds)):
        if result.interrupted:
            raise KeyboardInterrupt
        fitted._keep(result)
    return searches
