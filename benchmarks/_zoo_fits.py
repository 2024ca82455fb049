"""What `zoo.py` runs: the tables and their folds, the methods, and the scores of a fit on one fold."""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sumosurv import CoxTime, DeepHit, KaplanMeier, RandomSurvivalForest, SumoNet, Surv, WeibullNet, kaplan_meier
from sumosurv.distributions import SurvivalDistribution, Tabulated
from sumosurv.scores import concordance_td, d_calibration, integrated_brier, log_likelihood

N_FOLDS = 5
CELLS, EVENTS_PER_CELL = 30, 4
MIXED = 0.01  # weight of the marginal curve in the cell likelihood of methods without a density
Predict = Callable[[pd.DataFrame], SurvivalDistribution]


# ------------------------------------------------------------------ tables


def folder() -> Path:
    """The folder of the tables: ``zoo`` in ``$SUMOSURV_DATA``, else in ../shared/data beside the repository."""
    named = os.environ.get("SUMOSURV_DATA")
    return (Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data") / "zoo"


def load(path: Path) -> tuple[pd.DataFrame, Any]:
    """Covariates and outcome of a table."""
    frame = pd.read_parquet(path)
    return frame.drop(columns=["time", "event"]), Surv.from_arrays(frame["event"].astype(bool), frame["time"])


def split(X: pd.DataFrame, y: Any, fold: int) -> tuple[Any, Any]:
    """Training and test rows of a fold."""
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0).split(X, y["event"].astype(int))
    return list(folds)[fold]


def encoder(X: pd.DataFrame) -> ColumnTransformer:
    """Numbers of training rows, for methods that need them: one transformer, fitted on these rows alone.

    Numeric columns get the median where they are missing and are standardised. Categories become indicators, the
    first level dropped from those with two; a missing value is a level, one that is not in training has all zeros.
    """
    numeric = [c for c in X if pd.api.types.is_numeric_dtype(X[c])]
    numbers = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    levels = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="missing"),
        OneHotEncoder(drop="if_binary", handle_unknown="ignore", sparse_output=False),
    )
    parts = [("numbers", numbers, numeric), ("levels", levels, [c for c in X if c not in numeric])]
    return ColumnTransformer(parts).fit(plain(X))


def plain(X: pd.DataFrame) -> pd.DataFrame:
    """Categories as text, with NaN where they are missing."""
    return X.assign(**{c: X[c].astype(object) for c in X if not pd.api.types.is_numeric_dtype(X[c])})


# ------------------------------------------------------------------ methods


@dataclass(frozen=True)
class Method:
    """A named entry of the comparison.

    ``make`` gives an estimator, and ``fit`` fits it to training rows and returns a function that predicts; ``density``
    says whether the method has a density, so that S_L is defined.
    """

    make: Callable[[], Any]
    density: bool
    fit: Callable[[Any, pd.DataFrame, Any], Predict]

    def describe(self) -> str:
        """The estimator with what differs from its defaults, on one line."""
        return " ".join(repr(self.make()).split())

    def settings(self) -> str:
        """A short digest of all settings: a result under another digest is out of date."""
        estimator = self.make()
        text = repr((type(estimator).__name__, sorted(estimator.get_params().items())))
        return hashlib.sha256(text.encode()).hexdigest()[:8]


def fit_ours(model: Any, X: pd.DataFrame, y: Any) -> Predict:
    """Estimators of this library read tables as they are."""
    return model.fit(X, y).predict_distribution


def fit_boosting(model: Any, X: pd.DataFrame, y: Any) -> Predict:
    """A scikit-survival estimator with step curves."""
    numbers = encoder(X)
    model.fit(numbers.transform(plain(X)), y)
    return lambda rows: steps(
        model.unique_times_, model.predict_survival_function(numbers.transform(plain(rows)), return_array=True)
    )


def fit_hazardous(model: Any, X: pd.DataFrame, y: Any) -> Predict:
    """SurvivalBoost: curves on its own grid of times, joined by lines."""
    numbers = encoder(X)
    model.fit(numbers.transform(plain(X)), pd.DataFrame({"event": y["event"].astype(int), "duration": y["time"]}))
    grid = np.unique(model.time_grid_)  # it repeats times that are tied
    return lambda rows: steps(
        grid, model.predict_survival_function(numbers.transform(plain(rows)), times=grid), between="density"
    )


def fit_coxnet(model: Any, X: pd.DataFrame, y: Any) -> Predict:
    """Elastic-net Cox regression with the penalty of the largest cross-validated partial likelihood.

    The path of penalties is that of all training rows. Five inner folds, stratified by event, are each left out once;
    a penalty scores the partial likelihood of all rows less that of the rows it was fitted on, at those coefficients
    (Verweij and van Houwelingen 1993), added up over the folds. The null model is on the path.
    """
    numbers = encoder(X)
    Z = numbers.transform(plain(X))
    alphas = _path(model, Z, y)
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0)
    total = np.zeros(len(alphas))
    for kept, _ in folds.split(Z, y["event"].astype(int)):
        path = _path(model, Z[kept], y[kept], alphas)
        part = model.set_params(alphas=path).fit(Z[kept], y[kept])
        with np.errstate(all="ignore"):
            gain = partial_likelihood(Z @ part.coef_, y) - partial_likelihood(Z[kept] @ part.coef_, y[kept])
        gain = np.where(np.isfinite(gain), gain, -np.inf)
        total[: len(gain)] += gain
        total[len(gain) :] = -np.inf  # penalties too small to be fitted
    best = int(total.argmax())
    model.set_params(alphas=alphas[: best + 1], fit_baseline_model=True).fit(Z, y)
    chosen = model.alphas_[-1]
    return lambda rows: steps(
        model.unique_times_,
        model.predict_survival_function(numbers.transform(plain(rows)), alpha=chosen, return_array=True),
    )


def _path(model: Any, Z: Any, y: Any, alphas: Any = None) -> Any:
    """Penalties that can be fitted, largest first; the smallest are given up where the fit diverges."""
    while True:
        try:
            return model.set_params(alphas=alphas, fit_baseline_model=False).fit(Z, y).alphas_
        except ArithmeticError:
            if alphas is None:
                model.set_params(alpha_min_ratio=0.05)
                alphas = model.fit(Z, y).alphas_
                model.set_params(alpha_min_ratio="auto")
                continue
            if len(alphas) == 1:
                raise
            alphas = alphas[: max(1, int(0.8 * len(alphas)))]


def partial_likelihood(scores: Any, y: Any) -> Any:
    """Cox's log partial likelihood (Breslow's for ties) of linear predictors of shape (n, m), for each column."""
    order = np.argsort(y["time"], kind="stable")
    time, event, scores = y["time"][order], y["event"][order], scores[order]
    at_risk = np.logaddexp.accumulate(scores[::-1])[::-1]
    first = np.searchsorted(time, time)  # everyone with the same time is at risk
    return (scores - at_risk[first])[event].sum(axis=0)


def steps(times: Any, survival: Any, between: str = "step") -> Tabulated:
    """Curves at given times, with rounding taken off."""
    curves = np.minimum.accumulate(np.clip(np.asarray(survival, dtype=np.float64), 0.0, 1.0), axis=1)
    return Tabulated(np.asarray(times, dtype=np.float64), curves, between=between)  # type: ignore[arg-type]


def _boosting() -> Any:
    from sksurv.ensemble import GradientBoostingSurvivalAnalysis

    return GradientBoostingSurvivalAnalysis(random_state=0)


def _coxnet() -> Any:
    from sksurv.linear_model import CoxnetSurvivalAnalysis

    return CoxnetSurvivalAnalysis(l1_ratio=0.5, max_iter=100_000)


def _survival_boost() -> Any:
    from hazardous import SurvivalBoost

    return SurvivalBoost(random_state=0, show_progressbar=False)


def _ours(make: Callable[[], Any], density: bool = True) -> Method:
    return Method(make, density, fit_ours)


METHODS = {
    "SumoNet": _ours(lambda: SumoNet(random_state=0)),
    "Weibull regression": _ours(lambda: WeibullNet(covariate_layers=(), frequencies=0, random_state=0)),
    "Kaplan-Meier": _ours(KaplanMeier, density=False),
    "penalised Cox": Method(_coxnet, False, fit_coxnet),
    "random forest": _ours(lambda: RandomSurvivalForest(random_state=0), density=False),
    "gradient boosting": Method(_boosting, False, fit_boosting),
    "SurvivalBoost": Method(_survival_boost, False, fit_hazardous),
    "Cox-Time": _ours(lambda: CoxTime(random_state=0), density=False),
    "DeepHit": _ours(lambda: DeepHit(random_state=0)),
}


# ------------------------------------------------------------------ scores


def cell_edges(y: Any) -> Any:
    """Edges e₁ < ... < e_{K-1} of K cells [0, e₁], (e₁, e₂], ..., (e_{K-1}, ∞) at quantiles of the event times.

    K is 30, or a quarter of the events where these are fewer than 120, and two at least. Every edge is an event time
    and events follow after the last, so that the Kaplan-Meier curve of these rows has mass in every cell.
    """
    events = np.sort(y["time"][y["event"]])
    cells = max(2, min(CELLS, len(events) // EVENTS_PER_CELL))
    edges = np.unique(np.quantile(events, np.arange(1, cells) / cells, method="inverted_cdf"))
    return edges[(edges > 0) & (edges < events[-1])]


def cell_likelihood(distribution: SurvivalDistribution, y: Any, edges: Any, marginal: Any = None) -> Any:
    """Log-likelihood of each row when all that is read of a curve is the probability of each cell, shape (n,).

    Follow-up ends at the last edge: later rows, with an event or without, score log S there. An event scores the log
    of the probability of its cell, a censored row the log of S at its time, on the line between S at the two edges of
    its cell, for every kind of curve alike. This is the log-likelihood of the histogram with these cells but for the
    widths of the cells, which all methods share.

    Parameters
    ----------
    distribution : SurvivalDistribution
    y : outcome
    edges : array of shape (K - 1,)
    marginal : SurvivalDistribution of one curve, optional
        Mixed in with weight 0.01, so that no cell has probability zero.
    """
    with torch.no_grad():
        log_s = np.asarray(distribution.log_survival(edges), dtype=np.float64)
        if marginal is not None:
            shared = np.asarray(marginal.log_survival(edges), dtype=np.float64)
            log_s = np.logaddexp(np.log1p(-MIXED) + log_s, np.log(MIXED) + shared)
    log_s = np.column_stack([np.zeros(len(log_s)), log_s])
    knots = np.concatenate([[0.0], edges])
    rows, time = np.arange(len(log_s)), y["time"]
    cell = np.searchsorted(edges, time)  # zero for [0, e₁]
    late, inside = cell == len(edges), np.minimum(cell, len(edges) - 1)
    start, stop = log_s[rows, inside], log_s[rows, inside + 1]
    share = np.where(y["event"], 1.0, (time - knots[inside]) / (knots[inside + 1] - knots[inside]))
    share = np.minimum(share, 1.0)  # of late rows, which are scored below
    with np.errstate(divide="ignore", invalid="ignore"):
        fall = -np.expm1(np.minimum(stop - start, 0.0))  # 1 - S(stop) / S(start)
        scored = np.where(y["event"], np.log(fall), np.log1p(-share * fall))
        return np.where(late, log_s[:, -1], np.where(np.isneginf(start), -np.inf, start + scored))


def score(distribution: SurvivalDistribution, y_train: Any, y_test: Any, density: bool) -> dict[str, float | None]:
    """The scores of a fold, as described in `zoo.py`."""
    with torch.no_grad():
        unknown = np.isnan(distribution.survival(own_times=y_test["time"]))
    if unknown.any():
        raise ValueError(f"S is not a number for {unknown.sum()} of {len(unknown)} test rows")
    edges, marginal = cell_edges(y_train), None if density else kaplan_meier(y_train)
    width = y_train["time"].max() - y_train["time"].min()
    grid = np.linspace(0.0, np.quantile(y_train["time"], 0.95), 101)
    censoring = kaplan_meier(y_train, censoring=True)
    found: dict[str, float | None] = {
        "S_L": float(log_likelihood(distribution, y_test).mean() + y_test["event"].mean() * np.log(width))
        if density
        else None,
        "cells": float(cell_likelihood(distribution, y_test, edges, marginal).mean()),
        "IBS": float(integrated_brier(distribution, y_test, censoring=censoring, times=grid).mean()),
        "Ctd": float(concordance_td(distribution, y_test, method="adj_antolini")),
        "D_calibration_p": float(d_calibration(distribution, y_test).p_value),
    }
    return {name: value if value is None else round(value, 6) for name, value in found.items()}


def run_unit(path: Path, name: str, fold: int) -> dict[str, Any]:
    """Fit one method on the training rows of one fold and score it on the test rows; an error is part of the result."""
    torch.set_num_threads(1)
    method = METHODS[name]
    unit = {"table": path.stem, "method": name, "fold": fold, "settings": method.settings()}
    X, y = load(path)
    train, test = split(X, y, fold)
    model = method.make()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            started = time.process_time()
            predict = method.fit(model, X.iloc[train], y[train])
            seconds = time.process_time() - started
            found = score(predict(X.iloc[test]), y[train], y[test], method.density)
    except Exception as error:  # whatever a peer raises is a result of the comparison
        first = (str(error).splitlines() or [""])[0]
        return unit | {"error": f"{type(error).__name__}: {first}"[:200]}
    return unit | found | {"fit_seconds": round(seconds, 3)}
