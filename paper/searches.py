"""One search per method and dataset on the fixed folds: the records from which the paper's tables are made.

A method is tuned on the validation rows of each fold, and its choice is scored once on the test rows. The test
scores of all trials are also stored, for the best single trial on test rows (the paper's protocol) and for Table 5.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from paper.record import make_record
from paper.scoring import Fold, scored, short_scores, step_scores
from sumosurv import datasets, estimators
from sumosurv.search import NetworkSearch, fit_folds

__all__ = [
    "BASELINES",
    "DATASETS",
    "FULL",
    "METHODS",
    "QUICK",
    "SIMULATED",
    "Method",
    "Size",
    "full_size",
    "record_name",
    "run_search",
]

DATASETS = ("metabric", "gbsg", "flchain", "support")
SPACE: Literal["recipe"] = "recipe"  # of settings: around our defaults
SIMULATED = "kkbox"  # a stand-in of its form, with a known distribution; its records say so


@dataclass(frozen=True)
class Method:
    """How a method takes part: by a search over its networks, or as it is."""

    label: str
    density: str  # "exact", or "k" where the density is interpolated
    searched: bool = True
    slow: bool = False  # an equation is solved in every step: fewer trials


METHODS: dict[str, Method] = {
    "SumoNet": Method("SuMo-net", "exact"),
    "WeibullNet": Method("Weibull", "exact"),
    "LogNormalNet": Method("Log-normal", "exact"),
    "Soden": Method("SODEN", "exact", slow=True),
    "SurvNode": Method("SurvNODE", "exact", slow=True),
    "DeepHit": Method("DeepHit", "exact"),
    "CoxTime": Method("Cox-Time", "k"),
    "CoxCC": Method("CoxCC", "k"),
    "DeepSurv": Method("DeepSurv", "k"),
    "CoxPH": Method("Cox-Linear", "k", searched=False),
    "RandomSurvivalForest": Method("Random survival forest", "k", searched=False),
    "KaplanMeier": Method("Kaplan-Meier", "k", searched=False),
}


@dataclass(frozen=True)
class Size:
    """How much is run."""

    trials: int
    slow_trials: int
    folds: tuple[int, ...]
    scored_trials: int  # trials whose every score on test rows is taken, for Table 5
    max_epochs: int | None = None
    refit_members: int = 32  # networks of the refit; none where it is 0
    simulated_rows: int = 25_000  # of the stand-in for KKBOX

    def for_method(self, method: str) -> int:
        """Trials of a method."""
        if not METHODS[method].searched:
            return 1
        return self.slow_trials if METHODS[method].slow else self.trials


QUICK = Size(trials=5, slow_trials=1, folds=(0,), scored_trials=5, max_epochs=10, refit_members=4)
FULL = Size(trials=300, slow_trials=6, folds=(0, 1, 2, 3, 4), scored_trials=30, refit_members=64)
BASELINES = 50  # trials of a baseline in the full size
_SIMULATED_TRIALS = (10, 5)  # of SuMo-net and of a baseline on millions of rows
_SIMULATED_EPOCHS = 20
_SIMULATED_ROWS = 2_646_746  # as many as KKBOX has


def full_size(method: str, dataset: str) -> Size:
    """The full size: 300 trials of SuMo-net, 50 of a baseline, as many as fit of the slow ones; few on KKBOX's rows."""
    if dataset == SIMULATED:
        trials = _SIMULATED_TRIALS[0 if method == "SumoNet" else 1]
        return Size(trials, 1, (0,), 0, _SIMULATED_EPOCHS, refit_members=0, simulated_rows=_SIMULATED_ROWS)
    if method == "SumoNet":
        return FULL
    return Size(BASELINES, FULL.slow_trials, FULL.folds, 0, refit_members=32)


def record_name(dataset: str, method: str) -> str:
    """The name of the record of one search."""
    return f"search_{dataset}_{method.lower()}"


def run_search(dataset: str, method: str, *, size: Size, seed: int = 0, device: str = "auto") -> dict[str, Any]:
    """Search one method on the folds of one dataset and score what it chose."""
    if dataset == SIMULATED:
        folds = [Fold.simulated(size.simulated_rows, i) for i in size.folds]
    else:
        data = datasets.load(dataset)
        folds = [Fold.of(data, dataset, i) for i in size.folds]
    trials = size.for_method(method)
    started = time.perf_counter()
    if METHODS[method].searched:
        search = _search(method, trials, size, seed, device)
        fitted: Sequence[Any] = fit_folds(search, [fold.rows for fold in folds])
        parameters = search.get_params(deep=False) | {"estimator": repr(search.estimator)}
    else:
        fitted = [_plain_fit(method, fold, seed) for fold in folds]
        parameters = {}
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    results = [_score_fold(method, made, fold, size) for made, fold in zip(fitted, folds)]
    if dataset == SIMULATED:
        results = [result | {"truth": fold.truth()} for result, fold in zip(results, folds)]
    configuration = {
        "dataset": dataset,
        "method": method,
        "trials": trials,
        "folds": list(size.folds),
        "split": folds[0].split,
        "simulated": dataset == SIMULATED,
        "rows": len(folds[0].y),
        "space": SPACE if METHODS[method].searched else None,
        "search": {name: str(value) for name, value in parameters.items()},
        "seed": seed,
        "scored_trials": size.scored_trials,
        "max_epochs": size.max_epochs,
        "device": torch.cuda.get_device_name() if _on_cuda(device) else "cpu",
        "threads": torch.get_num_threads(),
    }
    figures = {
        "search_seconds": seconds,
        "scoring_seconds": time.perf_counter() - started,
        "peak_device_bytes": torch.cuda.max_memory_allocated() if _on_cuda(device) else None,
        "folds": results,
    }
    return make_record(record_name(dataset, method), configuration, figures)


# ---------------------------------------------------------------------- one search


def _search(method: str, trials: int, size: Size, seed: int, device: str) -> NetworkSearch:
    options: dict[str, Any] = {"device": device}
    if size.max_epochs is not None:
        options["max_epochs"] = size.max_epochs
    return NetworkSearch(
        getattr(estimators, method)(**options),
        space=SPACE,
        n_trials=trials,
        refit="cross" if size.refit_members else False,
        refit_members=max(size.refit_members, 1),
        random_state=seed,
    )


def _plain_fit(method: str, fold: Fold, seed: int) -> Any:
    """Methods without a search fit on training and validation rows: they have nothing to choose."""
    options: dict[str, dict[str, Any]] = {
        "RandomSurvivalForest": {"random_state": seed},
        "CoxPH": {"missing": "indicator"},  # all rows, as the other methods
    }
    X, y = fold.all_rows()
    return getattr(estimators, method)(**options.get(method, {})).fit(X, y)


def _score_fold(method: str, fitted: Any, fold: Fold, size: Size) -> dict[str, Any]:
    if not isinstance(fitted, NetworkSearch):
        return {"fold": fold.number, "honest": _all_scores(method, fitted, fold)}
    own = fitted.cv_results_
    test = np.full(len(own["trial"]), np.nan)
    if METHODS[method].density == "exact":
        test = fitted.trial_log_likelihoods(fold.X_test, fold.y_test).mean(axis=1) + fold.shift_test
    scored_places = [p for p in range(min(size.scored_trials, len(test))) if np.isfinite(own["valid_score"][p])]
    known = np.where(np.isfinite(test), test, -np.inf)
    return {
        "fold": fold.number,
        "honest": _all_scores(method, fitted.best_estimator_, fold),
        "single": short_scores(fitted.best_single_.predict_distribution(fold.X_test), fold),
        "oracle": {"trial": int(np.argmax(known)), "S_L": float(known.max())} if np.isfinite(known).any() else None,
        **({"before_refit": _before_refit(fitted, fold)} if size.refit_members else {}),
        "mixture_size": len(fitted.mixture_),
        "mixture_scores": {str(k): v + fold.shift_valid for k, v in fitted.mixture_scores_.items()},
        "best_params": {name: str(value) for name, value in fitted.best_params_.items()},
        "valid_S_L": {
            "mixture": fitted.mixture_score_ + fold.shift_valid,
            "single": fitted.best_score_ + fold.shift_valid,
        },
        "trials": {
            "valid_S_L": np.round(own["valid_score"] + fold.shift_valid, 5),
            "test_S_L": np.round(test, 5),
            "scores": [
                short_scores(fitted.trial(place).predict_distribution(fold.X_test), fold) for place in scored_places
            ],
        },
    }


def _all_scores(method: str, estimator: Any, fold: Fold) -> dict[str, Any]:
    distribution = estimator.predict_distribution(fold.X_test)
    result = scored(distribution, fold)
    if METHODS[method].density == "k":
        result |= step_scores(distribution, fold)
    return result


def _before_refit(search: NetworkSearch, fold: Fold) -> dict[str, float]:
    """Scores of the mixture of the chosen trials as they came out of the search."""
    mixture = estimators.SurvivalMixture.of([search.trial(place) for place in search.mixture_])
    return short_scores(mixture.predict_distribution(fold.X_test), fold)


def _on_cuda(device: str) -> bool:
    return torch.cuda.is_available() and device != "cpu"
