r"""Simulated data like KKBOX: the same size, columns and share of censoring, with a known distribution.

Given the columns, T is a mixture of two Weibull distributions: some customers leave around the end of their first
plans, the others stay for a long time. Scale *and* shape of both depend on the covariates, with interactions, so that
hazards are far from proportional. Customers start at a uniformly distributed date in a window of 790 days, and
follow-up ends with the window.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.distributions import Mixture, Weibull

Floats = npt.NDArray[np.float64]

ROWS = 2_646_746  # of KKBOX
COLUMNS = (
    "n_prev_churns",
    "log_days_between_subs",
    "log_days_since_reg_init",
    "log_payment_plan_days",
    "log_plan_list_price",
    "log_actual_amount_paid",
    "is_auto_renew",
    "is_cancel",
    "city",
    "gender",
    "registered_via",
    "age_at_start",
    "strange_age",
    "nan_days_since_reg_init",
    "no_prev_churns",
)
_CATEGORICAL = ("city", "gender", "registered_via")
_WINDOW = 790.0  # days from the first to the last possible start
_SHARES = (0.4, 0.6)  # of customers who leave early, and of those who stay
_RETURN = 0.4  # share of customers who return after leaving
_ROWS_PER_CUSTOMER = 1.3  # slightly below the mean, so that one round usually suffices
_CITIES = np.array([1, *range(3, 23)])
_CITY_SHARES = np.append(0.5, 0.5 * (w := 1.0 / np.arange(2, 22)) / w.sum())
_WAYS, _WAY_SHARES = np.array([3, 4, 7, 9, 13]), np.array([0.14, 0.2, 0.42, 0.23, 0.01])
_PLANS, _PLAN_SHARES = np.array([7, 30, 90, 180, 410]), np.array([0.05, 0.85, 0.04, 0.02, 0.04])
_PRICES, _PRICE_SHARES = np.array([99.0, 129.0, 149.0, 180.0]), np.array([0.35, 0.08, 0.47, 0.10])  # for 30 days


def draw(n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, npt.NDArray[np.int64], Floats, Floats]:
    """Covariates, customer, event time and censoring time of n rows; the rows of a customer are adjacent."""
    parts: list[tuple[pd.DataFrame, npt.NDArray[np.int64], Floats, Floats]] = []
    rows = customers = 0
    while rows < n:
        wanted = int((n - rows) / _ROWS_PER_CUSTOMER) + 1
        parts.append(_customers(wanted, customers, rng))
        rows, customers = rows + len(parts[-1][0]), customers + wanted
    frames, *arrays = zip(*parts)
    X = frames[0] if len(parts) == 1 else pd.concat(frames, ignore_index=True)
    customer, event, censoring = (np.concatenate(part)[:n] for part in arrays)
    return X.iloc[:n].reset_index(drop=True), customer, event, censoring


def distribution(X: Any) -> Mixture:
    """The true distribution of T given the covariates."""
    _check(X)
    (scale_1, shape_1), (scale_2, shape_2) = _parameters(X)
    return Mixture([Weibull(scale_1, shape_1), Weibull(scale_2, shape_2)], _SHARES)


# ------------------------------------------------------------------ covariates


def _customers(m: int, first: int, rng: np.random.Generator) -> tuple[Any, Any, Floats, Floats]:
    """All spells of m customers. Whether a later spell exists depends only on the earlier ones."""
    person = _person(m, rng)
    who = np.arange(m)
    follow_up = _WINDOW * rng.random(m)  # from the start of the spell to the end of the window
    gap = np.zeros(m)
    spells = []
    for j in range(100):
        X = _spell(person.take(who), j, gap, rng)
        (scale_1, shape_1), (scale_2, shape_2) = _parameters(X)
        soon = rng.random(len(X)) < _SHARES[0]
        event = rng.weibull(np.where(soon, shape_1, shape_2)) * np.where(soon, scale_1, scale_2)
        censoring = follow_up
        spells.append((X, who, event, censoring))
        gap = 31.0 + rng.exponential(120.0, len(who))
        back = (event <= censoring) & (rng.random(len(who)) < _RETURN)
        left = follow_up - event - gap
        back &= left > 1.0
        passed = (event + gap)[back]
        follow_up, gap, who = left[back], gap[back], who[back]
        if len(who) == 0:
            break
        person["since"] = person["since"] + np.bincount(who, weights=passed, minlength=m)
    frames, *arrays = zip(*spells)
    who, event, censoring = (np.concatenate(part) for part in arrays)
    order = np.argsort(who, kind="stable")
    X = pd.concat(frames, ignore_index=True).take(order).reset_index(drop=True)
    return X, who[order] + first, event[order], censoring[order]


def _person(m: int, rng: np.random.Generator) -> pd.DataFrame:
    """Covariates of customers. A tenth have no entry in the member table, and most did not state age and gender."""
    known = rng.random(m) > 0.1
    stated = known & (rng.random(m) < 0.45)
    age = np.clip(np.round(14 + rng.gamma(3.0, 5.5, m)), 12, 99)
    return pd.DataFrame(
        {
            "city": _codes(rng, _CITY_SHARES, known),
            "via": _codes(rng, _WAY_SHARES, known),
            "gender": np.where(stated, rng.integers(0, 2, m), -1).astype(np.int8),
            "age": np.where(stated, age, np.where(known, 0.0, -1.0)).astype(np.float32),
            "since": np.where(known, np.floor(rng.exponential(900.0, m) * (rng.random(m) < 0.7)), np.nan),
            "auto": rng.random(m).astype(np.float32),
        }
    )


def _codes(rng: np.random.Generator, shares: Floats, known: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    drawn = np.searchsorted(np.cumsum(shares), rng.random(len(known)), side="right")
    return np.where(known, np.minimum(drawn, len(shares) - 1), -1).astype(np.int8)


def _spell(person: pd.DataFrame, place: int, gap: Floats, rng: np.random.Generator) -> pd.DataFrame:
    m = len(person)
    plan = _PLANS[_codes(rng, _PLAN_SHARES, np.ones(m, bool))].astype(np.float64)
    per_month = _PRICES[_codes(rng, _PRICE_SHARES, np.ones(m, bool))]
    price = np.round(per_month * plan / 30 * np.where(plan > 30, 0.9, 1.0))
    u = rng.random(m)
    paid = np.where(u < 0.88, price, np.where(u < 0.95, 0.0, np.round(0.8 * price)))
    auto = (plan <= 30) & (person["auto"].to_numpy() < 0.85 - 0.1 * min(place, 3))
    since = person["since"].to_numpy()
    unknown = np.isnan(since)
    age = person["age"].to_numpy()
    columns: dict[str, Any] = {
        "n_prev_churns": np.full(m, place),
        "log_days_between_subs": np.log1p(np.floor(gap)),
        "log_days_since_reg_init": np.log(np.where(unknown, -1.0, np.floor(np.nan_to_num(since))) + 2.0),
        "log_payment_plan_days": np.log1p(plan),
        "log_plan_list_price": np.log1p(price),
        "log_actual_amount_paid": np.log1p(paid),
        "is_auto_renew": auto,
        "is_cancel": rng.random(m) < 0.03,
        "city": pd.Categorical.from_codes(person["city"].to_numpy(), categories=_CITIES),
        "gender": pd.Categorical.from_codes(person["gender"].to_numpy(), categories=["female", "male"]),
        "registered_via": pd.Categorical.from_codes(person["via"].to_numpy(), categories=_WAYS),
        "age_at_start": age,
        "strange_age": age == 0,
        "nan_days_since_reg_init": unknown,
        "no_prev_churns": np.full(m, place == 0),
    }
    return pd.DataFrame({k: v if isinstance(v, pd.Categorical) else v.astype(np.float32) for k, v in columns.items()})


# ------------------------------------------------------------------ the distribution of T


def _parameters(X: pd.DataFrame) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Scale and shape of the two components, from the columns as they are stored."""
    x = {name: X[name].to_numpy(dtype=np.float64) for name in COLUMNS if name not in _CATEGORICAL}
    age = np.where(x["age_at_start"] > 0, (x["age_at_start"] - 30.0) / 12.0, 0.0)
    female = (X["gender"] == "female").to_numpy(dtype=np.float64)
    city, via = _level(X["city"]), _level(X["registered_via"])
    auto, cancel = x["is_auto_renew"], x["is_cancel"]
    since = x["log_days_since_reg_init"] / 8.0
    plan = np.expm1(x["log_payment_plan_days"])
    free = (x["log_actual_amount_paid"] == 0) * 1.0
    again = np.log1p(x["n_prev_churns"])
    # early leavers: sooner after a free start, later and more regularly with automatic renewal
    scale_1 = plan * np.exp(0.25 + 0.45 * auto - 0.35 * free + 0.1 * np.sin(1.9 * via))
    shape_1 = 1.6 + 2.2 * auto + 0.8 * (plan > 30) + 0.6 * free
    # others: age and gender interact, cities and ways of registration differ, and the hazard falls or rises
    eta = 0.9 * auto - 1.4 * cancel + 0.35 * age * (1.0 - 0.8 * female) - 0.3 * np.maximum(age - 1.0, 0.0) ** 2
    eta = eta + 0.3 * np.sin(1.7 * city) + 0.35 * np.cos(2.3 * via) + 0.7 * since * auto - 0.35 * again
    scale_2 = 107.0 * np.exp(np.clip(eta, -3.0, 2.5)) + plan
    shape_2 = np.exp(-0.15 + 0.3 * auto - 0.25 * since + 0.15 * np.tanh(age) - 0.2 * cancel + 0.25 * (plan > 60))
    return (scale_1, shape_1), (scale_2, shape_2)


def _level(values: pd.Series) -> Floats:
    """The number that names a category; 0 if it is missing."""
    levels = np.append(values.cat.categories.to_numpy(dtype=np.float64), 0.0)  # code -1 takes the last
    taken: Floats = levels[values.cat.codes.to_numpy()]
    return taken


def _check(X: Any) -> None:
    missing = list(COLUMNS) if not isinstance(X, pd.DataFrame) else [name for name in COLUMNS if name not in X.columns]
    if missing or len(X) == 0:
        raise ValueError(
            "X must be a DataFrame with the columns of simulate('kkbox') and at least one row; "
            + (f"{', '.join(missing)} are missing." if missing else "got none.")
        )
    for name in ("city", "registered_via"):
        if not isinstance(X[name].dtype, pd.CategoricalDtype):
            raise ValueError(f"Column {name!r} is a category in simulate('kkbox'); got {X[name].dtype}.")
