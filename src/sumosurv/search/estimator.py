"""Hyperparameter search as an estimator: it trains many networks, chooses on validation rows, and predicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from sumosurv.distributions import SurvivalDistribution
from sumosurv.estimators import SumoNet, SurvivalEstimator
from sumosurv.estimators.network import NetworkEstimator
from sumosurv.fitting.prepared import check_validation_data
from sumosurv.fitting.settings import NONE, Allowed, Constraints, instance_of, integer, one_of
from sumosurv.fitting.spread import Members
from sumosurv.outcome import check_outcome
from sumosurv.search.rounds import run_searches
from sumosurv.search.selection import SearchRun, SearchSettings
from sumosurv.sources import as_source


class NetworkSearch(SearchSettings, SurvivalEstimator):
    """Search over the settings of any network estimator, many trials at a time.

    Trials whose networks fit into one batch train as one population, each with its own learning rate, weight decay,
    dropout and rows. They are compared by the log-likelihood of validation rows. The search then predicts with the
    equally weighted mixture of the best M trials.

    Parameters
    ----------
    estimator : network estimator
        The estimator whose settings are searched. Settings that the space does not name keep their values (device,
        epochs, ...). Its ``verbose`` is ignored: the search has its own progress bar.
    space : "paper", "recipe" or mapping, default "paper"
        The search space: "paper" is the space of the paper (layers, nodes, dropout, weight decay, batch size, by the
        size of the data), "recipe" a space around the defaults. Or a mapping from a parameter's name to a list of
        choices or to a frozen distribution of ``scipy.stats``.
    n_trials : int, default 300
        Total number of trials, including those that a stored study already has.
    method : {"random", "tpe", "halving"}, default "random"
        "random": independent draws. "tpe": Optuna's tree-structured Parzen estimator, in rounds of trials. "halving":
        successive halving; all trials are trained for a ninth of the epochs, the best third again for a third of the
        epochs, and the best ninth for all epochs.
    mixture : "auto" or int, default "auto"
        The number M of trials in the mixture; 1 for the best trial alone. "auto" takes the largest of 1, 2, 4, ...
        whose likelihood on validation rows is within one standard error of the best. If other processes trained some of
        the trials, "auto" considers the best 64, because these trials must be trained again to be mixed.
    refit : {False, True, "cross"}, default False
        Whether the chosen trials are trained again. True: on all rows, validation rows included, each for its best
        number of epochs. "cross": ``refit_members`` networks with the chosen settings are trained on all rows, each
        with its own held-out rows for early stopping.
    refit_members : int, default 32
        Number of networks for ``refit="cross"``; the chosen trials take turns.
    cv : int, optional
        Number of folds on which each trial is trained and compared, if ``fit`` gets no ``validation_data``. By default
        one share of the rows, the estimator's ``validation_fraction``, is held out.
    layout : {"auto", "padded", "grouped"}, default "auto"
        How networks of different widths and depths train side by side: padded to the widest, or in groups of equal
        shape. "auto" takes the layout that should be faster. A stored study keeps its layout.
    storage : path or URL, optional
        SQLite file, or URL of a database that Optuna supports, in which the study is stored. A search that was killed
        resumes, and several processes can share a study. Needs Optuna.
    study_name : str, default "sumosurv"
        Name of the study in the storage.
    trials_per_round : int, optional
        Number of trials that are proposed, trained and stored together.
    random_state : int, RandomState or None, default None
        Seed of the trials and their networks.
    verbose : bool, default False
        Whether to show a progress bar with trials done, best score and time left.
    cluster : sumosurv.cluster.Cluster, optional
        Ray cluster whose workers train the trials (extra ``ray``). Trials and scores are the same as without it. A
        search that is too small for a cluster runs in this process, with a warning.

    Attributes
    ----------
    best_estimator_ : estimator
        The mixture of the chosen trials, which predicts and is saved; the other trials are not stored.
    best_single_ : estimator
        The best trial alone.
    best_params_, best_score_, best_index_
        Settings of the best trial, its mean log-likelihood on validation rows, and its place in ``cv_results_``.
    cv_results_ : dict of arrays
        Settings, validation scores, ranks and best epochs of all trials; ``pandas.DataFrame(search.cv_results_)`` is a
        table.
    mixture_ : list of int
        Places of the mixed trials in ``cv_results_``.
    mixture_score_ : float
        Mean log-likelihood of the mixture on validation rows.
    mixture_scores_ : dict
        The same for mixtures of the best 1, 2, 4, ... trials.
    interrupted_ : bool
        Whether Ctrl-C ended the search early; see ``fit``.

    Examples
    --------
    >>> from sumosurv import NetworkSearch, WeibullNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> space = {"dropout": [0.0, 0.2], "covariate_layers": [(8,), (16, 16)]}
    >>> search = NetworkSearch(WeibullNet(max_epochs=5), space=space, n_trials=4, random_state=0).fit(data.X, data.y)
    >>> len(search.cv_results_["params"]), search.predict_median(data.X[:2]).shape
    (4, (2,))
    """

    _parameter_constraints: ClassVar[Constraints] = {
        "n_trials": integer(1),
        "method": one_of("random", "tpe", "halving"),
        "mixture": one_of("auto") | integer(1),
        "refit": instance_of(bool, "False or True") | one_of("cross"),
        "refit_members": integer(1),
        "cv": NONE | integer(2),
        "layout": one_of("auto", "padded", "grouped"),
        "storage": NONE | instance_of((str, Path), "a path or a URL"),
        "trials_per_round": NONE | integer(1),
        "cluster": NONE | Allowed("a sumosurv.cluster.Cluster", lambda value: hasattr(value, "executor")),
    }

    def fit(  # type: ignore[override]  # the base accepts further arguments only to refuse them
        self,
        X: Any,
        y: Any,
        validation_data: tuple[Any, ...] | None = None,
        *,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Self:
        """Run the search and select the trials that predict.

        Parameters
        ----------
        X, y, sample_weight, groups
            As in the estimator's ``fit``.
        validation_data : tuple (X, y) or (X, y, sample_weight), optional
            Rows for early stopping and for comparing trials.

        Raises
        ------
        KeyboardInterrupt
            On Ctrl-C, so that the caller stops too. If any trial can predict, the search is fitted nevertheless, with
            a warning: it has the finished trials and, of trials in training, the best weights so far; an interrupted
            ``refit`` keeps the networks of the search. ``interrupted_`` is then True. Before that, and on a second
            Ctrl-C, the search stays as it was. A stored study keeps finished trials.
        """
        check_validation_data(validation_data)
        return self._fit_copy(as_source(X, y, sample_weight, groups), validation_data)

    def trial(self, place: int) -> SurvivalEstimator:
        """Return the fitted estimator of one trial, by its place in ``cv_results_``.

        Only trials that this process trained are available.
        """
        check_is_fitted(self)
        number = int(self.cv_results_["trial"][place])
        if number not in self._run.networks:
            raise ValueError(f"Trial {place} was not trained by this process; only its score is known.")
        return self._run.assemble([number])

    def trial_log_likelihoods(self, X: Any, y: Any) -> npt.NDArray[np.float64]:
        """Return the log-likelihood of rows under every trial, of shape (trials, rows).

        With ``cv`` a trial is the mixture of its networks. Trials that failed or that another process trained are nan.
        """
        check_is_fitted(self)
        outcome = check_outcome(y)
        found = self._run.log_likelihoods(self._check_covariates(X, reset=False), outcome)
        missing = np.full(len(outcome), np.nan)
        return np.stack([found.get(int(number), missing) for number in self.cv_results_["trial"]])

    def _mixed(self) -> list[tuple[SurvivalEstimator, float]]:
        return self.best_estimator_._mixed()

    def _component_table(self) -> pd.DataFrame:
        return self.best_estimator_._component_table()

    def _parts(self) -> list[SurvivalEstimator]:
        return [self.best_estimator_]

    def _restore_parts(self, parts: Sequence[SurvivalEstimator]) -> None:
        (self.best_estimator_,) = parts
        self.cells_ = self.best_estimator_.cells_

    def _check_settings(self) -> None:
        """Raise an error that names an invalid setting."""
        if not isinstance(self._searched(), NetworkEstimator):
            raise TypeError(
                f"estimator must be a network estimator such as SumoNet(); got {self.estimator!r}. Use scikit-learn's "
                "GridSearchCV for methods without a network."
            )
        super()._check_settings()
        if self.method == "halving" and self.storage is not None:
            raise ValueError("method='halving' cannot be stored; use method='tpe' or 'random' with a storage.")

    def _fit(self, X: Any, y: Any, validation_data: tuple[Any, ...] | None = None) -> None:
        self._set_result(run_searches(self._settings(), [(X, y, validation_data)])[0])

    def _distribution(self, X: Any) -> SurvivalDistribution:
        return self.best_estimator_._distribution(X)

    def _members(self, X: Any) -> Members:
        return self.best_estimator_._members(X)

    def _searched(self) -> NetworkEstimator:
        """The estimator whose settings are searched."""
        return self.estimator

    def _settings(self) -> SearchSettings:
        return SearchSettings(**(self.get_params(deep=False) | {"estimator": clone(self._searched())}))

    def _set_result(self, run: SearchRun) -> None:
        """Set the fitted attributes."""
        numbers = sorted(run.scores)
        places = {number: place for place, number in enumerate(numbers)}
        ranks = {number: rank + 1 for rank, number in enumerate(run.order)}
        self.cv_results_: dict[str, Any] = {
            "trial": np.array(numbers),
            "params": [run.parameters[n] for n in numbers],
            "valid_score": np.array([run.scores[n] for n in numbers]),
            "rank_valid_score": np.array([ranks.get(n, len(numbers)) for n in numbers]),
            "best_epoch": np.array([run.best_epoch(n) for n in numbers]),
        }
        best = run.order[0]
        for name in run.parameters[best]:
            column = np.empty(len(numbers), dtype=object)
            column[:] = [run.parameters[n].get(name) for n in numbers]
            self.cv_results_[f"param_{name}"] = column
        self.best_index_, self.best_params_, self.best_score_ = places[best], run.parameters[best], run.scores[best]
        self.mixture_ = [places[n] for n in run.mixture]
        self.mixture_scores_ = run.mixture_scores
        self.mixture_score_ = run.mixture_scores[len(run.mixture)]
        self.best_single_, self.interrupted_ = run.best_single, run.interrupted
        self.__dict__.update(run.job.known)
        self._restore_parts([run.best_estimator])
        self._run = run


@dataclass(eq=False, repr=False)
class SumoNetSearch(NetworkSearch):
    """`NetworkSearch` over SuMo-net, with the paper's space by default.

    All parameters and attributes are those of `NetworkSearch`; ``estimator`` is ``SumoNet()`` by default.

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
    """Run one search on several folds and train the trials of all folds together.

    Parameters
    ----------
    search : NetworkSearch
        With ``method="random"`` and no storage. It is cloned for each fold; all folds try the same settings.
    folds : sequence of (X, y, validation_data)

    Returns
    -------
    list of NetworkSearch
        One fitted search per fold; each uses the rows of its own fold only.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C; no fold is kept.
    """
    if search.method != "random" or search.storage is not None:
        raise ValueError(
            "Folds can train together only if trials do not depend on results (method='random' without storage): "
            "the validation rows of one fold are test rows of another."
        )
    search._check_settings()
    searches = [clone(search) for _ in folds]
    for fitted, run in zip(searches, run_searches(search._settings(), folds)):
        if run.interrupted:
            raise KeyboardInterrupt
        fitted._set_result(run)
    return searches
