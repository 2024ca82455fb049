"""Many scores of one model at once, with confidence intervals; and scorers for scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.distributions import SurvivalDistribution
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import check_outcome
from sumosurv.scores._inputs import Array
from sumosurv.scores._pairs import Pairs, SortedOutcome
from sumosurv.scores.calibration import PAPER_LEVELS, bin_shares, check_levels, reached
from sumosurv.scores.concordance import risk_pairs, td_pairs
from sumosurv.scores.table import SCORES

__all__ = ["DEFAULT_SCORES", "SurvivalScorer", "evaluate", "make_survival_scorer"]

DEFAULT_SCORES = (
    "log_likelihood",
    "concordance_td",
    "integrated_brier",
    "integrated_binomial_log_likelihood",
    "d_calibration",
)
_WEIGHTED = {"uno_c", "brier", "binomial_log_likelihood", "integrated_brier", "integrated_binomial_log_likelihood"}
_AT_A_TIME = {"brier": "times", "binomial_log_likelihood": "times", "km_calibration": "time"}
_OVER_TIME = {"integrated_brier", "integrated_binomial_log_likelihood"}

# The mean over subjects of some quantities, one row per resample, to the score
Combine = Callable[[Array], Array]


def evaluate(
    model_or_distribution: Any,
    X: Any,
    y: Any,
    *,
    scores: str | Sequence[str] | Mapping[str, Mapping[str, Any]] = DEFAULT_SCORES,
    censoring: SurvivalDistribution | None = None,
    times: Any = None,
    n_bootstrap: int = 200,
    confidence: float = 0.95,
    random_state: Any = 0,
) -> pd.DataFrame:
    """Scores of a model on given rows, with bootstrap confidence intervals.

    Subjects are resampled with replacement, the same resamples for every score; the model is not fitted again, so
    that the intervals speak of the rows it was tested on. What a score needs of each subject is computed once and
    averaged anew in each resample. That is exact for scores that are means and for calibration scores. A concordance is
    a mean over pairs: each subject's share of the pairs is resampled, to first order in the resampling weights.
    `km_calibration` is computed anew in each resample. Calibration scores are sums of squares, which resampling noise
    can only raise: their intervals lie high.

    Parameters
    ----------
    model_or_distribution : object with ``predict_distribution(X)``, or SurvivalDistribution
        Pipelines and searches of scikit-learn around such a model work too.
    X : table of covariates
        Not used with a distribution; pass None.
    y : outcome
    scores : str, sequence of str, or mapping of str to options
        Names in `SCORES`; a mapping gives the options of each, ``{"log_likelihood": {"resolution": 1.0}}``.
        The exact `concordance_td` of a continuous model grows as n²: past some tens of thousands of rows give it a
        grid, ``{"concordance_td": {"times": grid}}``.
    censoring : SurvivalDistribution, optional
        G of the weighted scores: Kaplan-Meier of the censoring in y itself by default. Pass
        ``kaplan_meier(y_train, censoring=True)`` for that of the training rows.
    times : array or tuple (low, high), optional
        Grid or range of the integrated scores; from the smallest positive to the largest time of y by default. Scores
        at one time (`brier`, `binomial_log_likelihood`, `km_calibration`) are taken at the median time of y unless
        their options say otherwise.
    n_bootstrap : int
        0 for no intervals.
    confidence : float
        Share of the resamples inside the interval (between quantiles).
    random_state : seed or numpy.random.Generator

    Returns
    -------
    DataFrame
        Columns score, value, low, high, std_error, greater_is_better, proper; one row per score.

    Examples
    --------
    >>> from sumosurv import Surv
    >>> from sumosurv.distributions import Weibull
    >>> y = Surv.from_arrays(event=[True, False, True, True], time=[1.0, 2.0, 3.0, 4.0])
    >>> table = evaluate(Weibull([1.0, 2.0, 3.0, 4.0], 1.0), None, y, scores=["log_likelihood", "concordance_td"])
    >>> table[["score", "value", "greater_is_better", "proper"]].round(3)
                score  value  greater_is_better  proper
    0  log_likelihood -1.621               True    True
    1  concordance_td  1.000               True   False
    """
    outcome = check_outcome(y)
    distribution = _predict(model_or_distribution, X)
    wanted = _options(scores, outcome, censoring, times)
    if n_bootstrap < 0 or not 0 < confidence < 1:
        raise ValueError(f"n_bootstrap is 0 or more and confidence lies in (0, 1); got {n_bootstrap} and {confidence}.")
    parts = {name: _parts(name, distribution, outcome, options) for name, options in wanted.items()}
    value = {
        name: part[1](part[0].mean(axis=0, keepdims=True))[0]
        if part
        else _value(name, distribution, outcome, wanted[name])
        for name, part in parts.items()
    }
    draws = _bootstrap(distribution, outcome, wanted, parts, n_bootstrap, np.random.default_rng(random_state))
    rows = []
    for name, number in value.items():
        low, high, error = _interval(draws[name], confidence)
        score = SCORES[name]
        rows.append((name, float(number), low, high, error, score.greater_is_better, score.proper))
    return pd.DataFrame(rows, columns=["score", "value", "low", "high", "std_error", "greater_is_better", "proper"])


def make_survival_scorer(score: str, **options: Any) -> SurvivalScorer:
    """A scorer for ``cross_val_score``, ``GridSearchCV`` and the like.

    Scores of which less is better come with a minus sign, as scikit-learn wants it. The weighted scores take
    Kaplan-Meier of the censoring in the scored rows unless ``censoring=`` is given.

    Parameters
    ----------
    score : str
        A name in `SCORES`.
    **options
        Passed on to the score.

    Examples
    --------
    >>> make_survival_scorer("integrated_brier", times=(0.0, 5.0))
    make_survival_scorer('integrated_brier', times=(0.0, 5.0))
    """
    _known(score)
    return SurvivalScorer(score, dict(options))


@dataclass(frozen=True)
class SurvivalScorer:
    """What `make_survival_scorer` returns: (estimator, X, y) to a number of which more is better."""

    score: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Score a fitted estimator that has ``predict_distribution``."""
        outcome = check_outcome(y)
        options = _options({self.score: self.options}, outcome, None, None)[self.score]
        value = _value(self.score, _predict(estimator, X), outcome, options)
        return value if SCORES[self.score].greater_is_better else -value

    def __repr__(self) -> str:
        parts = [repr(self.score)] + [f"{name}={value!r}" for name, value in self.options.items()]
        return f"make_survival_scorer({', '.join(parts)})"


# ------------------------------------------------------------------ inputs


def _predict(model: Any, X: Any) -> SurvivalDistribution:
    if isinstance(model, SurvivalDistribution):
        return model
    if hasattr(model, "predict_distribution"):
        distribution = model.predict_distribution(X)
    elif hasattr(model, "best_estimator_"):
        return _predict(model.best_estimator_, X)
    elif hasattr(model, "steps"):  # a Pipeline passes on only the methods that scikit-learn knows
        return _predict(model.steps[-1][1], model[:-1].transform(X) if len(model.steps) > 1 else X)
    else:
        raise TypeError(
            f"{type(model).__name__} has no predict_distribution(X) and is no SurvivalDistribution; "
            "for other libraries' curves pass Tabulated(times, survival)."
        )
    if not isinstance(distribution, SurvivalDistribution):
        raise TypeError(f"predict_distribution gave {type(distribution).__name__}, not a SurvivalDistribution.")
    return distribution


def _known(name: str) -> None:
    if name not in SCORES:
        raise ValueError(f"There is no score {name!r}; the scores are {', '.join(SCORES)}.")


def _options(
    scores: str | Sequence[str] | Mapping[str, Mapping[str, Any]],
    outcome: Any,
    censoring: SurvivalDistribution | None,
    times: Any,
) -> dict[str, dict[str, Any]]:
    """The options of each score, with the defaults that depend on the data."""
    names = [scores] if isinstance(scores, str) else list(scores)
    given: Mapping[str, Mapping[str, Any]] = scores if isinstance(scores, Mapping) else {}
    of_rows = None
    result = {}
    for name in names:
        _known(name)
        options = dict(given.get(name, {}))
        if name in _WEIGHTED and options.get("censoring") is None:
            if censoring is None and of_rows is None:
                of_rows = kaplan_meier(outcome, censoring=True)
            options["censoring"] = of_rows if censoring is None else censoring
        if name in _AT_A_TIME:
            at = options.setdefault(_AT_A_TIME[name], float(np.median(outcome.time)))
            if np.ndim(at) != 0:
                raise ValueError(f"{name} is evaluated at one time; got {np.size(at)}. Call scores.{name} for several.")
        if name in _OVER_TIME and times is not None:
            options.setdefault("times", times)
        result[name] = options
    return result


def _value(name: str, distribution: SurvivalDistribution, outcome: Any, options: Mapping[str, Any]) -> float:
    result = SCORES[name].function(distribution, outcome, **options)
    if isinstance(result, np.ndarray):
        return float(result.mean())
    return float(getattr(result, "score", result))


# ------------------------------------------------------------------ what is resampled


def _parts(
    name: str, distribution: SurvivalDistribution, outcome: Any, options: Mapping[str, Any]
) -> tuple[Array, Combine] | None:
    """What each subject contributes, shape (n, k), and how the means make up the score; None if not of that form."""
    if name == "concordance_td":
        return _pair_parts(*td_pairs(distribution, outcome, **options))
    if name in ("harrell_c", "uno_c"):
        return _pair_parts(*risk_pairs(distribution, outcome, **options))
    if name == "calibration":
        levels = check_levels(options.get("levels", PAPER_LEVELS))
        return reached(distribution, outcome, levels), lambda means: np.square(means - levels).sum(axis=1)
    if name == "d_calibration":
        bins = int(options.get("bins", 10))
        return bin_shares(distribution, outcome, bins), lambda means: np.square(means - 1.0 / bins).sum(axis=1)
    if name == "km_calibration":
        return None
    values: Array = SCORES[name].function(distribution, outcome, **options)[:, None]
    return values, lambda means: means[:, 0]


def _pair_parts(pairs: Pairs, y: SortedOutcome) -> tuple[Array, Combine]:
    n = len(y.order)
    values = np.empty((n, 2))
    values[y.order] = np.column_stack([pairs.concordant, pairs.comparable])
    whole = values.mean(axis=0)

    def combine(means: Array) -> Array:
        # Σᵢⱼ cᵢ cⱼ h(i, j) to first order in c - 1: a subject's pairs change with it and with its partners
        both = 2.0 * means - whole
        ratio: Array = np.divide(both[:, 0], both[:, 1], out=np.full(len(both), np.nan), where=both[:, 1] > 0)
        return ratio

    return values, combine


def _bootstrap(
    distribution: SurvivalDistribution,
    outcome: Any,
    wanted: Mapping[str, Mapping[str, Any]],
    parts: Mapping[str, tuple[Array, Combine] | None],
    n_bootstrap: int,
    rng: np.random.Generator,
) -> dict[str, Array]:
    """The resampled values of each score, shape (n_bootstrap,)."""
    n = len(outcome)
    draws = {name: np.empty(n_bootstrap) for name in wanted}
    chunk = max(1, (1 << 22) // n)
    for start in range(0, n_bootstrap, chunk):
        stop = min(start + chunk, n_bootstrap)
        rows = [rng.integers(n, size=n) for _ in range(start, stop)]
        counts = np.stack([np.bincount(drawn, minlength=n) for drawn in rows]).astype(np.float64)
        for name, part in parts.items():
            if part is None:
                resampled = [_value(name, distribution[drawn], outcome[drawn], wanted[name]) for drawn in rows]
                draws[name][start:stop] = resampled
            else:
                draws[name][start:stop] = part[1](_resampled_means(counts, part[0]))
    return draws


def _resampled_means(counts: Array, values: Array) -> Array:
    infinite: npt.NDArray[np.bool_] = ~np.isfinite(values)
    if not infinite.any():
        return np.asarray(counts @ values / len(values))
    means = counts @ np.where(infinite, 0.0, values) / len(values)
    for column in np.flatnonzero(infinite.any(axis=0)):
        drawn = counts[:, infinite[:, column]].any(axis=1)
        means[drawn, column] = values[infinite[:, column], column].sum()
    return np.asarray(means)


def _interval(draws: Array, confidence: float) -> tuple[float, float, float]:
    if len(draws) == 0 or np.isnan(draws).all():
        return np.nan, np.nan, np.nan
    known = draws[~np.isnan(draws)]
    tail = 0.5 * (1.0 - confidence)
    # an interval may reach to -inf: take order statistics, no interpolation between infinite values
    low, high = np.quantile(known, [tail, 1.0 - tail], method="inverted_cdf")
    error = float(known.std(ddof=1)) if len(known) > 1 and np.isfinite(known).all() else np.nan
    return float(low), float(high), error
