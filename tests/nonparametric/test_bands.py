"""Confidence bands against lifelines, the formulas and their coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from sumosurv import Surv, kaplan_meier
from sumosurv.nonparametric import aalen_johansen, confidence_band, turnbull


def sample(n=150, seed=0, *, ties=True, late=True):
    rng = np.random.default_rng(seed)
    time = np.ceil(rng.exponential(9.0, n)) if ties else rng.exponential(9.0, n)
    entry = np.where(rng.random(n) < 0.5, np.floor(0.5 * time) if ties else 0.5 * time, 0.0) if late else None
    return rng.integers(0, 3, n), time, entry


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_kaplan_meier_against_lifelines(level, lifelines):
    cause, time, entry = sample()
    weight = np.random.default_rng(1).integers(1, 4, len(time))
    band = confidence_band(Surv.from_arrays(cause > 0, time, entry), level=level, sample_weight=weight)
    after = np.where(entry > 0, entry + 1e-6, 0.0)
    fitter = lifelines.KaplanMeierFitter(alpha=1 - level).fit(time, cause > 0, entry=after, weights=weight)
    theirs = fitter.confidence_interval_.loc[band["time"]].to_numpy()
    inner = band["estimate"] > 0
    np.testing.assert_allclose(band.loc[inner, ["lower", "upper"]], theirs[inner], atol=1e-9)
    assert band.loc[~inner, ["lower", "upper"]].isna().all(axis=None)


def test_kaplan_meier_plain_is_greenwood():
    cause, time, entry = sample(seed=2)
    y = Surv.from_arrays(cause > 0, time, entry)
    band = confidence_band(y, kind="plain", level=0.8)
    total, survival = 0.0, 1.0
    for i, t in enumerate(np.unique(time[cause > 0])):
        n, d = (((entry < t) | (entry == 0)) & (time >= t)).sum(), ((cause > 0) & (time == t)).sum()
        total, survival = total + (d / (n * (n - d)) if n > d else np.inf), survival * (1 - d / n)
        if survival > 0:
            half = norm.ppf(0.9) * survival * np.sqrt(total)
            assert band["estimate"][i] == pytest.approx(survival, abs=1e-12)
            assert band["lower"][i] == pytest.approx(max(survival - half, 0.0), abs=1e-12)
            assert band["upper"][i] == pytest.approx(min(survival + half, 1.0), abs=1e-12)


def test_nelson_aalen_against_lifelines_without_ties_and_the_formula_with_them(lifelines):
    cause, time, _ = sample(ties=False, late=False)
    band = confidence_band(Surv.from_arrays(cause > 0, time), "nelson_aalen")
    fitter = lifelines.NelsonAalenFitter().fit(time, cause > 0)
    np.testing.assert_allclose(
        band[["lower", "upper"]], fitter.confidence_interval_.loc[band["time"]].to_numpy(), atol=1e-9
    )
    cause, time, entry = sample()
    band = confidence_band(Surv.from_arrays(cause > 0, time, entry), "nelson_aalen", kind="plain")
    variance = 0.0
    for i, t in enumerate(np.unique(time[cause > 0])):
        n, d = (((entry < t) | (entry == 0)) & (time >= t)).sum(), ((cause > 0) & (time == t)).sum()
        variance += d / n**2
        assert band["upper"][i] - band["estimate"][i] == pytest.approx(norm.ppf(0.975) * np.sqrt(variance))


@pytest.mark.filterwarnings("ignore")
def test_aalen_johansen_against_lifelines(lifelines):
    cause, time, entry = sample(ties=False)
    weight = np.random.default_rng(1).integers(1, 4, len(time))
    band = confidence_band(Surv.from_arrays(cause, time, entry), "aalen_johansen", sample_weight=weight)
    for k in (1, 2):
        fitter = lifelines.AalenJohansenFitter().fit(time, cause, k, entry=entry, weights=weight)
        own = band[(band["cause"] == k) & band["time"].isin(time[cause == k])]
        own = own[(own["estimate"] > 0) & (own["estimate"] < 1)]
        theirs = fitter.confidence_interval_.loc[own["time"]].to_numpy()
        np.testing.assert_allclose(own[["lower", "upper"]], theirs, atol=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_aalen_johansen_s_variance_with_few_rows_and_ties(seed):
    cause, time, _ = sample(9, seed, late=False)
    time = np.ceil(0.5 * time)
    y = Surv.from_arrays(cause, time, causes=2)
    band, curves = confidence_band(y, "aalen_johansen", kind="plain", level=0.05), aalen_johansen(y, causes=2)
    times, incidence = curves.times.numpy()[1:], curves.incidence[0, 1:].numpy()
    before = curves.table[0].numpy()
    for row in band.itertuples():
        variance, k = 0.0, row.cause
        for i, t in enumerate(times[times <= row.time]):
            n, d, own = (time >= t).sum(), ((time == t) & (cause > 0)).sum(), ((time == t) & (cause == k)).sum()
            rest = row.estimate - incidence[i, k - 1]
            variance += rest**2 * d / (n * (n - d)) if n > d else 0.0
            variance += before[i] ** 2 * own * (n - own) / n**3 - 2 * rest * before[i] * own / n**2
        half = norm.ppf(0.525) * np.sqrt(max(variance, 0.0))
        assert row.upper == pytest.approx(min(row.estimate + half, 1.0), abs=1e-8)


def test_rows_of_weight_zero_are_never_drawn():
    y = Surv.interval([0.0, 1.0, 2.0] * 10 + [50.0] * 20, [1.0, 2.0, 3.0] * 10 + [60.0] * 20)
    band = confidence_band(y, "turnbull", sample_weight=[1.0] * 30 + [0.0] * 20, n_bootstrap=20, random_state=0)
    assert (band["upper"].iloc[-1], band["time"].iloc[-1]) == (0.0, 3.0)


def test_aalen_johansen_s_variance_of_of_one_cause_is_greenwood_s():
    cause, time, entry = sample(seed=4)
    y = Surv.from_arrays(cause > 0, time, entry)
    one, other = (confidence_band(y, of, kind="plain") for of in ("aalen_johansen", "kaplan_meier"))
    inner = (other["estimate"] > 0.05) & (other["estimate"] < 0.95)
    np.testing.assert_allclose(
        (one["upper"] - one["lower"])[inner], (other["upper"] - other["lower"])[inner], atol=1e-9
    )


@pytest.mark.parametrize("of", ["kaplan_meier", "aalen_johansen"])
def test_limits_hold_the_truth_about_as_often_as_they_say(of):
    rng = np.random.default_rng(0)
    held = []
    for _ in range(300):
        time, censoring, entry = rng.exponential(5.0, 200), rng.exponential(9.0, 200), rng.exponential(1.0, 200)
        seen = np.minimum(time, censoring) > entry
        cause = np.where(time <= censoring, 1 + (rng.random(200) < 0.4), 0)[seen]
        y = Surv.from_arrays(cause, np.minimum(time, censoring)[seen], entry[seen])
        y = y[y["time"] > 1.0]  # of those who have lived to 1, where risk sets are large
        y = Surv.from_arrays(y["event"], y["time"] - 1.0, np.maximum(y["entry"] - 1.0, 0.0), causes=2)
        band, truth = confidence_band(y, of), np.exp(-0.8)
        if of == "aalen_johansen":
            band, truth = band[band["cause"] == 2], 0.4 * (1 - np.exp(-0.8))
        row = band[band["time"] <= 4.0].iloc[-1]
        held.append(row["lower"] <= truth <= row["upper"])
    assert 0.91 < np.mean(held) < 0.985


def test_turnbull_s_limits_are_quantiles_over_samples():
    rng = np.random.default_rng(0)
    event = rng.exponential(5.0, 120)
    lower = np.floor(event)
    y = Surv.interval(lower, np.where(lower > 8, np.inf, lower + 1.0))
    band = confidence_band(y, "turnbull", n_bootstrap=100, random_state=1)
    np.testing.assert_allclose(band["estimate"], turnbull(y).survival(band["time"])[0])
    # visits at whole numbers: the estimate is a share of the rows
    share = band["estimate"].to_numpy()
    error = np.sqrt(share * (1 - share) / 120)
    np.testing.assert_allclose((band["upper"] - band["lower"]) / (2 * 1.96), error, rtol=0.35)
    again = confidence_band(y, "turnbull", n_bootstrap=100, random_state=1)
    np.testing.assert_array_equal(again, band)
    narrow = confidence_band(y, "turnbull", n_bootstrap=100, random_state=1, level=0.5)
    assert ((narrow["upper"] - narrow["lower"]) < (band["upper"] - band["lower"])).all()


def test_before_the_first_event_and_without_any():
    band = confidence_band(Surv.from_arrays([0, 0], [1.0, 2.0]))
    assert band.to_numpy().tolist() == [[1.0, 1.0, 1.0, 1.0]]
    y = Surv.from_arrays([1, 2, 0], [1.0, 2.0, 3.0])
    first = confidence_band(y, "aalen_johansen").query("cause == 2 and time == 1.0")
    assert first[["estimate", "lower", "upper"]].to_numpy().tolist() == [[0.0, 0.0, 0.0]]
    assert (aalen_johansen(y).survival([1.0, 2.0]) == kaplan_meier(y).survival([1.0, 2.0])).all()


def test_errors():
    y = Surv.from_arrays([1, 0], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"level.*95"):
        confidence_band(y, level=95)
    with pytest.raises(ValueError, match=r"kind.*'logit'"):
        confidence_band(y, kind="logit")
    with pytest.raises(ValueError, match=r"kaplan_meier.*'km'"):
        confidence_band(y, "km")
    with pytest.raises(ValueError, match="n_bootstrap must be a whole number"):
        confidence_band(y, "turnbull", n_bootstrap=0)
