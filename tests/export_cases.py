"""Fitted models that the tests of exports run over, and the rows that they are asked about."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pandas as pd
import torch
from torch import nn

from sumosurv import GompertzNet, LogLogisticNet, LogNormalNet, PaperSumoNet, SumoNet, Surv, SurvivalMixture, WeibullNet
from sumosurv.export import onnx_inputs
from sumosurv.export.program import described

SMALL = {"n_members": 2, "max_epochs": 2, "random_state": 0}
STACKED = SMALL | {"n_members": 3}  # three of each component: time is spent on every network of a graph


def table(n=160, seed=0):
    """Numbers with ties and missing values; text, numbers and truth values as categories; one category missing."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "age": rng.normal(60, 10, n).round(),
            "stage": pd.Categorical(rng.choice(["I", "II", "III"], n)),
            "marker": rng.exponential(1e4, n),
            "smoker": rng.random(n) < 0.3,
            "grade": pd.Categorical(rng.choice([1, 2, 3], n)),
            "binary": rng.integers(0, 2, n),
        }
    )
    X.loc[::9, "marker"] = np.nan
    X.loc[::13, "stage"] = np.nan
    time = rng.weibull(1.4, n) * np.exp(0.03 * (60 - X["age"])) * 100
    end = rng.uniform(50, 200, n)
    cause = np.where(time < end, rng.integers(1, 3, n), 0)
    return X, cause, np.minimum(time, end)


def new_rows(n=40):
    """Rows with values out of range, levels not seen, and missing values everywhere."""
    X = table(n, seed=1)[0]
    X["stage"] = X["stage"].astype(object)
    X.loc[:5, "stage"] = "IV"
    X.loc[6:9, "age"] = [-1000.0, 1e6, np.nan, 60.0]
    return X


@cache
def fitted(name):
    X, cause, time = table()
    y = Surv.from_arrays(cause > 0, time)
    numbers = X[["age", "binary"]].to_numpy(float)
    if name == "default":
        return SumoNet(max_epochs=2, random_state=0).fit(X, y)
    if name == "one kind":
        return SumoNet(**SMALL).fit(X, y)
    if name == "paper":
        return PaperSumoNet(**SMALL).fit(X, y)
    if name == "first time":
        return SumoNet(**STACKED, time_origin="first").fit(X, Surv.from_arrays(cause > 0, time + 30))
    if name == "causes":
        return SumoNet(**STACKED).fit(X, Surv.from_arrays(cause, time))
    if name == "no categories":
        return PaperSumoNet(**SMALL, positive="softplus").fit(numbers, y)
    if name == "only categories":
        return SumoNet(**STACKED).fit(X[["stage", "smoker"]], y)
    if name == "wide":
        wide = pd.DataFrame(np.random.default_rng(0).normal(size=(len(y), 90))).add_prefix("g")
        wide.iloc[::7, 3] = np.nan
        return SumoNet(**STACKED).fit(wide, y)
    if name == "encoder":
        width = 1 + 2 + 5 + 4 + 5 + 1
        return SumoNet(encoder=nn.Sequential(nn.Linear(width, 8), nn.Tanh()), **SMALL).fit(X, y)
    if name == "mixture":
        parts = [WeibullNet(**SMALL), SumoNet(**SMALL)]
        return SurvivalMixture(parts, [1.0, 3.0]).fit(X, y)
    method = {"WeibullNet": WeibullNet, "LogNormalNet": LogNormalNet, "LogLogisticNet": LogLogisticNet}
    return (method | {"GompertzNet": GompertzNet})[name](**SMALL).fit(X, y)


NAMES = ["default", "one kind", "paper", "first time", "causes", "no categories", "only categories", "wide", "encoder"]
NAMES += ["mixture", "WeibullNet", "LogNormalNet", "LogLogisticNet", "GompertzNet"]


def rows_for(name):
    if name == "no categories":
        return new_rows()[["age", "binary"]].to_numpy(float)
    if name == "only categories":
        return new_rows()[["stage", "smoker"]]
    if name == "wide":
        return pd.DataFrame(np.random.default_rng(1).normal(size=(20, 90))).add_prefix("g")
    return new_rows()


def feeds(model, X, times):
    """The inputs of an ONNX file for a table, by the names that its metadata give."""
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X).rename(columns=str)
    return onnx_inputs(described(model), frame, times)


def codes(about, given):
    """The codes of categories that were given as text."""
    known = [own["codes"] for own in about["categories"]]
    n = len(given["categories"] if known else given["numbers"])
    found = [[own.get(v, 0) for own, v in zip(known, row)] for row in given["categories"]] if known else []
    return torch.tensor(found, dtype=torch.long).reshape(n, len(known))


def metadata(session):
    return json.loads(session.get_modelmeta().custom_metadata_map["sumosurv"])
