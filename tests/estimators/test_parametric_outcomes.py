"""Linear Weibull, log-normal and log-logistic networks against lifelines, with late entry and with intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar

from sumosurv import LogLogisticNet, LogNormalNet, Surv, WeibullNet
from sumosurv.distributions import LogLogistic, LogNormal, Weibull
from sumosurv.scores import log_likelihood

LINEAR = {
    "covariate_layers": (),
    "frequencies": 0,
    "dropout": 0.0,
    "numeric_scaling": "standard",
    "weight_decay": 0.0,
    "n_members": 1,
    "validation_fraction": 0.0,
    "batch_size": "full",
    "offset": 0.0,
    "learning_rate": 0.05,
    "max_epochs": 400,
    "random_state": 0,
}
FAMILIES = {
    "Weibull": (WeibullNet, "WeibullAFTFitter"),
    "log-normal": (LogNormalNet, "LogNormalAFTFitter"),
    "log-logistic": (LogLogisticNet, "LogLogisticAFTFitter"),
}
# two tables with entry and two with intervals; the families differ in their curves alone
CASES = [("Weibull", "insulator_string"), ("Weibull", "diabetes_interval")]
CASES += [("log-normal", "channing")]
# lifelines' log-logistic stops short of the maximum where rows enter late, and a little with intervals
CASES += [("log-logistic", "mice")]


def read(outcome_data, name):
    """Standardised covariates, the outcome, and the table as it came."""
    table = outcome_data(name)
    if len(table) > 500:
        table = table.sample(500, random_state=0).reset_index(drop=True)
    X = table.drop(columns=["time", "event", "entry", "lower", "upper"], errors="ignore")
    X = pd.get_dummies(X, drop_first=True, dtype=float)
    X = (X - X.mean()) / X.std()
    if "lower" in table:
        return X, Surv.interval(table["lower"], table["upper"]), table
    return X, Surv.from_columns(table, event="event", time="time", entry="entry"), table


def fit_lifelines(lifelines, family, X, table):
    """Both parameters linear in the covariates."""
    other, ancillary = getattr(lifelines, FAMILIES[family][1])(), X
    if "lower" in table:
        seen = table["lower"] == table["upper"]
        # its log-normal has no gradient at zero and at infinity
        limits = {"lower_": table["lower"].clip(lower=1e-6), "upper_": table["upper"].clip(upper=1e12)}
        frame = X.assign(**limits, event_=seen)
        return other.fit_interval_censoring(frame, "lower_", "upper_", "event_", ancillary=ancillary)
    frame = X.assign(time_=table["time"], event_=table["event"], entry_=table["entry"])
    return other.fit(frame, "time_", "event_", ancillary=ancillary, entry_col="entry_")


def with_their_parameters(other, family, X):
    """Our distribution with lifelines' parameters."""
    linear = {
        name: X.to_numpy() @ part.drop("Intercept").loc[X.columns].to_numpy() + part["Intercept"]
        for name, part in ((name, other.params_.loc[name]) for name in other.params_.index.unique(0))
    }
    if family == "Weibull":
        return Weibull(np.exp(linear["lambda_"]), np.exp(linear["rho_"]))
    if family == "log-normal":
        return LogNormal(linear["mu_"], np.exp(linear["sigma_"]))
    return LogLogistic(np.exp(linear["alpha_"]), np.exp(linear["beta_"]))


@pytest.mark.real_data
@pytest.mark.filterwarnings("ignore")  # those of lifelines, on its way
@pytest.mark.parametrize(("family", "name"), CASES)
def test_linear_versions_are_lifelines_models(family, name, outcome_data, lifelines):
    X, y, table = read(outcome_data, name)
    other = fit_lifelines(lifelines, family, X, table)
    theirs = with_their_parameters(other, family, X)
    assert log_likelihood(theirs, y).sum() == pytest.approx(other.log_likelihood_, rel=1e-8)
    model = FAMILIES[family][0](**LINEAR).fit(X, y)
    assert model.score(X, y) == pytest.approx(other.log_likelihood_ / len(y), abs=1e-5)
    times = np.quantile(table["lower" if "lower" in table else "time"], [0.2, 0.4, 0.6, 0.8, 0.95])
    tolerance = 1e-3 if family == "log-logistic" else 1e-4
    np.testing.assert_allclose(model.predict_survival_function(X, times), theirs.survival(times), atol=tolerance)


@pytest.mark.parametrize(("method", "of_the_mean"), [(WeibullNet, 1.0), (LogLogisticNet, np.log(2.0))])
def test_training_starts_at_the_most_likely_constant_hazard(method, of_the_mean):
    """Of rows with entry and weights: the Weibull scale is its mean, the log-logistic one its median."""
    rng = np.random.default_rng(0)
    time, event, weight = rng.exponential(3.0, 80), rng.random(80) < 0.6, rng.integers(1, 4, 80)
    entry = np.where(rng.random(80) < 0.5, 0.4 * time, 0.0)
    y = Surv.from_arrays(event, time, entry)
    settings = {"max_epochs": 1, "n_members": 1, "offset": 0.0, "random_state": 0}
    model = method(**settings).fit(rng.normal(size=(80, 1)), y, sample_weight=weight)

    def loss(log_mean):
        return -weight @ log_likelihood(Weibull(np.full(80, np.exp(log_mean)), 1.0), y)

    mean = np.exp(minimize_scalar(loss, bounds=(-3.0, 5.0), method="bounded", options={"xatol": 1e-8}).x)
    log_scale, log_shape = model.stack_.learned.start["values"]
    assert np.exp(log_scale) * model.time_unit_ == pytest.approx(of_the_mean * mean, rel=1e-6)
    assert log_shape == 0.0
