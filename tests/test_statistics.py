"""Contracts of the classical statistics: weights count rows; order, time unit and labels do not matter; groups do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sumosurv import (
    CauseSpecific,
    CoxPH,
    FineGray,
    Surv,
    check_outcome,
    confidence_band,
    kaplan_meier,
    logrank_test,
    restricted_mean_test,
)
from sumosurv.scores import concordance_td, harrell_c, uno_c

N = 90


def rows(seed=0):
    """Covariates, groups to compare, and an outcome with ties, causes and delayed entry."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=N), "b": rng.integers(0, 2, N).astype(float)})
    time = np.ceil(4 * rng.exponential(np.exp(-0.5 * X["a"]))) / 4
    cause = np.where(rng.random(N) < 0.75, rng.integers(1, 3, N), 0)
    entry = np.where(rng.random(N) < 0.3, time * rng.uniform(0.1, 0.6, N), 0.0)
    return X, np.array(["u", "v", "w"])[rng.integers(0, 3, N)], cause, time, entry


def numbers(table, *drop):
    return table.drop(columns=list(drop)).to_numpy(dtype=float)


def outcome(cause, time, entry, kind):
    if kind == "causes":
        return Surv.from_arrays(cause, time)
    return Surv.from_arrays(cause > 0, time, entry=entry if kind == "entry" else None)


def band(of):
    return lambda X, by, y, **o: numbers(confidence_band(y, of, **o))


def cox(**settings):
    def summary(X, by, y, **o):
        model = CoxPH(**settings).fit(X, y, **o)
        found = model.summary()
        parts = (found.coefficients, found.terms, found.tests.drop("robust_score", errors="ignore"), found.fit)
        curves = model.predict_survival_function(rows()[0][:3], [0.5])
        return np.concatenate([*(numbers(part).ravel() for part in parts), curves.ravel()])

    return summary


def by_cause(method):
    return lambda X, by, y, **o: numbers(method().fit(X, y, **o).summary().to_frame())


def proportionality(X, by, y, sample_weight=None):
    found = CoxPH().fit(X, y, sample_weight=sample_weight).test_proportionality(X, y, sample_weight=sample_weight)
    return numbers(found)


def restricted(X, by, y, unit=1.0, **o):
    found = restricted_mean_test(y, by, 1.0 * unit, **o)
    return np.append(numbers(found.groups), found.statistic)


# each with the kind of outcome, whether it has standard errors that groups change, and the columns that are times
STATISTICS = {
    "kaplan_meier": (band("kaplan_meier"), "entry", True),
    "nelson_aalen": (band("nelson_aalen"), "entry", True),
    "aalen_johansen": (band("aalen_johansen"), "causes", True),
    "cox efron": (cox(), "entry", True),
    "cox breslow": (cox(ties="breslow"), "entry", True),
    "cox ridge": (cox(alpha=2.0), "entry", True),
    "cox robust": (cox(robust=True), "entry", False),
    "cox strata": (cox(strata="b"), "entry", True),
    "proportionality": (proportionality, "entry", False),
    "fine_gray": (lambda X, by, y, **o: numbers(FineGray().fit(X, y, **o).summary().to_frame()), "causes", True),
    "cause_specific": (
        lambda X, by, y, **o: numbers(CauseSpecific().fit(X, y, **o).summary().to_frame()),
        "causes",
        True,
    ),
    "logrank": (lambda X, by, y, **o: [logrank_test(y, by, **o).statistic], "entry", True),
    "stratified logrank": (lambda X, by, y, **o: [logrank_test(y, by, strata=X["b"], **o).statistic], "entry", True),
    "restricted mean": (restricted, "plain", True),
    "harrell": (lambda X, by, y, **o: [harrell_c(X["a"].round(), y, **o)], "entry", False),
    "uno": (
        lambda X, by, y, **o: [uno_c(X["a"].round(), y, censoring=kaplan_meier(y, censoring=True, **o), **o)],
        "plain",
        False,
    ),
    "concordance_td": (
        lambda X, by, y, **o: [concordance_td(CoxPH().fit(X, y, **o).predict_distribution(X), y, **o)],
        "entry",
        False,
    ),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_whole_weights_are_repeated_rows(name):
    compute, kind, _ = STATISTICS[name]
    X, by, *observed = rows()
    y, count = outcome(*observed, kind), np.arange(N) % 3 + 1
    again = np.repeat(np.arange(N), count)
    one = compute(X, by, y, sample_weight=count)
    np.testing.assert_allclose(one, compute(X.iloc[again], by[again], y[again]), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", [name for name, (_, _, grouped) in STATISTICS.items() if grouped])
def test_whole_weights_are_repeated_rows_of_a_subject(name):
    compute, kind, _ = STATISTICS[name]
    X, by, *observed = rows()
    y, count, subject = outcome(*observed, kind), np.arange(N) % 3 + 1, np.arange(N) // 2
    again = np.repeat(np.arange(N), count)
    one = compute(X, by, y, sample_weight=count, groups=subject)
    other = compute(X.iloc[again], by[again], y[again], groups=subject[again])
    np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)
    # rows of one subject are dependent: standard errors, and with them limits and statistics, are others
    assert not np.allclose(one, compute(X, by, y, sample_weight=count), rtol=1e-4, equal_nan=True)
    # the labels of the subjects do not matter, nor that each row is a subject of its own
    named = np.array([f"s{(7 * s) % 45}" for s in subject])
    np.testing.assert_allclose(compute(X, by, y, groups=named), compute(X, by, y, groups=subject), rtol=1e-9)
    if name != "cox ridge":
        np.testing.assert_allclose(compute(X, by, y, groups=np.arange(N)), compute(X, by, y), rtol=1e-9)
    alone = compute(X, by, y, sample_weight=count, groups=np.arange(N))
    np.testing.assert_allclose(alone, compute(X.iloc[again], by[again], y[again], groups=again), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", STATISTICS)
def test_the_order_of_rows_does_not_matter(name):
    compute, kind, _ = STATISTICS[name]
    X, by, *observed = rows()
    y, order = outcome(*observed, kind), np.random.default_rng(1).permutation(N)
    weight = np.linspace(0.4, 2.0, N)
    for rows_ in ({}, {"sample_weight": weight}):
        moved = {option: values[order] for option, values in rows_.items()}
        one, other = compute(X, by, y, **rows_), compute(X.iloc[order], by[order], y[order], **moved)
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", sorted(set(STATISTICS) - {"proportionality"}))
def test_the_time_unit_does_not_matter(name):
    compute, kind, _ = STATISTICS[name]
    X, by, cause, time, entry = rows()
    unit = 365.25
    one = np.asarray(compute(X, by, outcome(cause, time, entry, kind)), dtype=float)
    options = {"unit": unit} if name == "restricted mean" else {}
    other = np.asarray(compute(X, by, outcome(cause, unit * time, unit * entry, kind), **options), dtype=float)
    if name in ("kaplan_meier", "nelson_aalen", "aalen_johansen"):  # the first column has the times
        np.testing.assert_allclose(unit * one[:, 0], other[:, 0])
        one, other = one[:, 1:], other[:, 1:]
    if name == "restricted mean":  # rows, then times, then the statistic
        one[:-1] *= np.tile([1.0, unit, unit, unit, unit], 3)
    if name.startswith("cox"):  # less the predictions, which are at one time
        one, other = one[:-3], other[:-3]
    np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["log-log", "log", "plain"])
@pytest.mark.parametrize("of", ["kaplan_meier", "nelson_aalen", "aalen_johansen"])
@pytest.mark.parametrize("weighted", [False, True])
def test_limits_contain_their_estimate(of, kind, weighted):
    _, _, *observed = rows()
    y = outcome(*observed, "causes" if of == "aalen_johansen" else "entry")
    found = confidence_band(y, of, kind=kind, sample_weight=np.linspace(0.4, 2.0, N) if weighted else None).dropna()
    assert (found["lower"] <= found["estimate"]).all()
    assert (found["estimate"] <= found["upper"]).all()
    wide = confidence_band(y, of, kind=kind, level=0.99).dropna()
    narrow = confidence_band(y, of, kind=kind, level=0.5).dropna()
    assert (wide["upper"] - wide["lower"] >= narrow["upper"] - narrow["lower"]).all()


def test_robust_limits_cover_with_sampling_weights():
    """Half of the rows are sampled at a quarter of the rate and count four times."""
    rng = np.random.default_rng(0)
    held = []
    for _ in range(400):
        frail = rng.random(800) < 0.5
        time = rng.exponential(np.where(frail, 0.5, 2.0))
        kept = rng.random(800) < np.where(frail, 0.1, 0.4)
        weight = np.where(frail, 4.0, 1.0)[kept]
        band = confidence_band(Surv.from_arrays(np.ones(kept.sum()), time[kept]), sample_weight=weight / weight.mean())
        row = band[band["time"] <= 0.7].iloc[-1]
        truth = 0.5 * np.exp(-0.7 / 0.5) + 0.5 * np.exp(-0.7 / 2.0)
        held.append(row["lower"] <= truth <= row["upper"])
    assert 0.92 < np.mean(held) < 0.98


def test_groups_given_to_a_function_and_in_the_outcome_are_the_same():
    _, _, *observed = rows()
    y, subject = outcome(*observed, "entry"), np.arange(N) // 2
    one, other = confidence_band(y, groups=subject), confidence_band(check_outcome(y, groups=subject))
    pd.testing.assert_frame_equal(one, other)
