"""The score of a resample from what subjects contribute, against the score computed anew from the drawn rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

from scores import direct
from sumosurv import Surv, kaplan_meier
from sumosurv.distributions import Tabulated, Weibull
from sumosurv.outcome import check_outcome
from sumosurv.scores import SCORES, evaluate
from sumosurv.scores import _resampling as resampling
from sumosurv.scores._resampling import Bootstrap, Resamples, WeightedSums

GRID = np.array([0.4, 0.9, 1.0, 2.0])


def _data(rng, n, rounded):
    scale = rng.uniform(0.5, 2.0, n)
    t, c = scale * rng.weibull(1.3, n), rng.exponential(1.5, n)
    time = np.minimum(t, c)
    return Weibull(scale, 1.3), Surv.from_arrays(t <= c, np.ceil(4 * time) / 4 if rounded else time)


def _drawn(rng, n):
    rows = rng.integers(n, size=n)
    return rows, np.bincount(rows, minlength=n).astype(float)[None, :]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 25), st.booleans())
def test_censoring_distribution_of_a_resample(seed, n, rounded):
    rng = np.random.default_rng(seed)
    _, y = _data(rng, n, rounded)
    rows, counts = _drawn(rng, n)
    resamples, g = Resamples(check_outcome(y), counts), kaplan_meier(y[rows], censoring=True)
    at = np.concatenate([y["time"], GRID])
    np.testing.assert_allclose(resamples.censoring(at)[0], g.survival(at)[0], atol=1e-12)
    before = g.survival(np.nextafter(at, 0.0))[0]
    np.testing.assert_allclose(resamples.censoring(at, before=True)[0], before, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"normalize": True}, {"left_limit": False, "max_weight": 3.0}], ids=str)
@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("brier", {"times": 1.0}),
        ("binomial_log_likelihood", {"times": 1.0, "floor": 1e-3}),
        ("integrated_brier", {"times": GRID}),
        ("integrated_binomial_log_likelihood", {"times": GRID, "rule": "simpson"}),
    ],
)
@pytest.mark.parametrize("given", [False, True], ids=["own G", "given G"])
def test_weighted_scores_of_a_resample(name, own, options, given):
    """G is estimated from the drawn rows if it is not given; the score is then exactly that of the drawn rows."""
    rng = np.random.default_rng(0)
    score = SCORES[name]
    for rounded in (False, True):
        d, y = _data(rng, 40, rounded)
        g = Weibull(3.0, 1.0)
        terms = score.terms(d, y, **own, **options, **({"censoring": g} if given else {}))
        for _ in range(5):
            rows, counts = _drawn(rng, 40)
            censoring = g if given else kaplan_meier(y[rows], censoring=True)
            expected = score.function(d[rows], y[rows], censoring=censoring, **own, **options).mean()
            got = terms.resampled(Resamples(check_outcome(y), counts))[0]
            assert got == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["log_likelihood", "survival_crps"])
def test_means_of_a_resample(name):
    rng = np.random.default_rng(1)
    d, y = _data(rng, 40, True)
    rows, counts = _drawn(rng, 40)
    got = SCORES[name].terms(d, y).resampled(Resamples(check_outcome(y), counts))[0]
    assert got == pytest.approx(SCORES[name].function(d[rows], y[rows]).mean(), rel=1e-12)


def _weighted_concordance(risk, y, counts, power):
    """Σ cᵢ cⱼ wᵢ h(i, j) / Σ cᵢ cⱼ wᵢ, w = G(z-)^-power, with G of the weighted rows; pair by pair."""
    order = np.lexsort((~y["event"], y["time"]))
    risk, event, time, c = risk[order], y["event"][order], y["time"][order], counts[order]
    g, left, top, bottom = 1.0, c.sum(), 0.0, 0.0
    for i in range(len(time)):
        for j in range(len(time)) if event[i] else ():
            if time[i] < time[j] or (time[i] == time[j] and not event[j]):
                pair = c[i] * c[j] / g**power
                bottom, top = bottom + pair, top + pair * ((risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j]))
        g, left = g * (1.0 if event[i] else 1.0 - c[i] / left), left - c[i]
    return top / bottom


@pytest.mark.parametrize(("name", "power"), [("harrell_c", 0), ("uno_c", 2)])
@pytest.mark.parametrize("rounded", [False, True])
def test_concordance_of_a_resample_to_first_order(name, power, rounded):
    """As one subject's weight changes a little, the score changes as the weighted pairs say, G included."""
    d, y = _data(np.random.default_rng(2), 25, rounded)
    risk = -d.scale[:, 0].numpy()
    terms, whole = SCORES[name].terms(d, y), np.ones(25)
    assert terms.value == pytest.approx(
        SCORES[name].function(d, y, **({"censoring": kaplan_meier(y, censoring=True)} if power else {}))
    )
    assert terms.value == pytest.approx(_weighted_concordance(risk, y, whole, power))
    step = 1e-5
    for i in range(25):
        up, down = whole.copy(), whole.copy()
        up[i], down[i] = 1 + step, 1 - step
        slope = (_weighted_concordance(risk, y, up, power) - _weighted_concordance(risk, y, down, power)) / (2 * step)
        both = terms.resampled(Resamples(check_outcome(y), np.stack([up, down])))
        assert (both[0] - both[1]) / (2 * step) == pytest.approx(slope, abs=1e-7)


def test_given_censoring_of_unos_c_stays():
    d, y = _data(np.random.default_rng(3), 25, False)
    g = Weibull(3.0, 1.0)
    terms = SCORES["uno_c"].terms(d, y, censoring=g, tau=1.5)
    assert terms.value == pytest.approx(SCORES["uno_c"].function(d, y, censoring=g, tau=1.5))
    _, counts = _drawn(np.random.default_rng(4), 25)
    fixed = direct.concordance_risk(
        -d.scale[:, 0].numpy(), y["event"] & (y["time"] < 1.5), y["time"], np.exp(2 * y["time"] / 3.0)
    )
    assert terms.value == pytest.approx(fixed)
    assert np.isfinite(terms.resampled(Resamples(check_outcome(y), counts))).all()


def _shrunk(deviation, noise, weights):
    return np.sqrt(max(0.0, 1.0 - noise / (weights * deviation**2).sum())) * deviation


@pytest.mark.parametrize("stretch", [1.0, 2.5])
def test_d_calibration_of_a_resample(stretch):
    """The deviations, shrunk by what noise alone makes of them, and the noise of resampling."""
    rng = np.random.default_rng(5)
    d, y = _data(rng, 60, False)
    d = Weibull(stretch * d.scale[:, 0].numpy(), 1.3)
    u, event = d.cdf(own_times=y["time"]), y["event"]
    share = np.stack([direct.d_calibration(u[i : i + 1], event[i : i + 1], 10) for i in range(60)])
    rows, counts = _drawn(rng, 60)
    deviation = share.mean(axis=0) - 0.1
    kept = _shrunk(deviation, share.var(axis=0).sum() / 60, np.ones(10))
    expected = np.square(share[rows].mean(axis=0) - share.mean(axis=0) + kept).sum()
    terms = SCORES["d_calibration"].terms(d, y)
    assert terms.resampled(Resamples(check_outcome(y), counts))[0] == pytest.approx(expected, rel=1e-10)
    assert terms.value == pytest.approx(np.square(deviation).sum(), rel=1e-10)


@pytest.mark.parametrize("stretch", [1.0, 2.5])
def test_group_calibration_of_a_resample(stretch):
    rng = np.random.default_rng(6)
    d, y = _data(rng, 120, True)
    d = Weibull(stretch * d.scale[:, 0].numpy(), 1.3)
    risk = d.cdf(0.8)
    group = np.floor((rankdata(risk) - 0.5) / 120 * 3).astype(int)
    result = SCORES["group_calibration"].function(d, y, 0.8, groups=3)
    rows, counts = _drawn(rng, 120)
    size = np.bincount(group)
    noise = result.std_error**2 - np.array([risk[group == g].var() for g in range(3)]) / size
    deviation = result.predicted - result.observed
    kept = _shrunk(deviation, (size * noise).sum() / 120, size / 120)
    again = []
    for g in range(3):
        part = rows[group[rows] == g]
        observed = kaplan_meier(y[part]).cdf(0.8)[0]
        again.append(len(part) * (risk[part].mean() - observed - deviation[g] + kept[g]) ** 2)
    terms = SCORES["group_calibration"].terms(d, y, time=0.8, groups=3)
    got = terms.resampled(Resamples(check_outcome(y), counts))[0]
    assert got == pytest.approx(sum(again) / 120, rel=1e-10)
    assert terms.value == result.score


def test_infinite_losses_count_only_where_they_are_drawn():
    y = Surv.from_arrays([True, False, True], [1.0, 3.0, 3.5])
    sure = Tabulated([4.0, 5.0], [[0.5, 0.0]] * 3)  # S = 1 before 4: the event at 1 is called impossible
    terms = SCORES["binomial_log_likelihood"].terms(sure, y, times=2.0)
    counts = np.array([[1.0, 1.0, 1.0], [0.0, 2.0, 1.0]])
    np.testing.assert_array_equal(terms.resampled(Resamples(check_outcome(y), counts)), [-np.inf, 0.0])


def test_a_resample_that_needs_a_weight_of_1_over_0_is_left_out():
    """G(z) = 0 at an event that ties with the last censoring, once the later row is not drawn."""
    y = Surv.from_arrays([True, False, True], [1.0, 1.0, 2.0])
    d, counts = Weibull([1.0, 1.0, 1.0], 1.0), np.array([[1.0, 1.0, 1.0], [2.0, 1.0, 0.0]])
    for name, options in (("brier", {"times": 1.5}), ("uno_c", {})):
        resamples = Resamples(check_outcome(y), counts)
        terms = SCORES[name].terms(d, y, left_limit=False, **options)
        np.testing.assert_array_equal(np.isnan(terms.resampled(resamples)), [False, True])
        dropped = SCORES[name].terms(d, y, left_limit=False, on_zero="drop", **options)
        if name == "brier":
            assert dropped.resampled(resamples)[1] == 0.0
    table = evaluate(d, None, y, scores={"brier": {"times": 1.5, "left_limit": False}}, n_bootstrap=50)
    assert table[["low", "high"]].notna().all(axis=None)


def test_resamples_do_not_depend_on_how_many_are_held_at_once(monkeypatch):
    y = check_outcome(_data(np.random.default_rng(7), 30, False)[1])
    counts = []
    for cells in (1, 100, 1 << 20):
        monkeypatch.setattr(resampling, "_CELLS", cells)
        bootstrap = Bootstrap(y, 12, np.random.default_rng(0))
        first, second = (np.concatenate([part.counts for part in bootstrap]) for _ in range(2))
        np.testing.assert_array_equal(first, second)
        assert max(part.counts.size for part in bootstrap) <= max(cells, 30)
        counts.append(first)
    np.testing.assert_array_equal(counts[0], counts[1])
    np.testing.assert_array_equal(counts[0], counts[2])
    np.testing.assert_array_equal(counts[0].sum(axis=1), 30)
    assert len(np.unique(counts[0], axis=0)) == 12


# ------------------------------------------------------------------ against fresh samples

SPAN = (0.1, 1.2)
SPREADS = {
    "uno_c": {"tau": 1.2},
    "brier": {"times": 0.8},
    "binomial_log_likelihood": {"times": 0.8},
    "integrated_brier": {"times": SPAN},
    "integrated_binomial_log_likelihood": {"times": SPAN},
    "d_calibration": {},
    "group_calibration": {"time": 0.5, "groups": 5},
}


def test_standard_errors_are_those_of_fresh_samples():
    """Half of the rows censored: with one G for all resamples those of the losses would be 1.3 to 1.5 times as large.

    Sums of squares that were only resampled would have 1.8 times as large ones.
    """
    values, errors = [], []
    rng = np.random.default_rng(8)
    for i in range(160):
        n = 200
        scale = np.exp(0.5 * rng.normal(size=n))
        t, c = scale * rng.weibull(1.5, n), rng.exponential(1.0, n)
        d, y = Weibull(scale, 1.5), Surv.from_arrays(t <= c, np.minimum(t, c))
        table = evaluate(d, None, y, scores=SPREADS, n_bootstrap=100 if i < 25 else 0)
        values.append(table["value"].to_numpy())
        errors.append(table["std_error"].to_numpy())
    ratios = np.nanmean(errors, axis=0) / np.std(values, axis=0, ddof=1)
    np.testing.assert_allclose(ratios, 1.0, atol=0.25, err_msg=str(dict(zip(SPREADS, ratios))))


def test_infinite_values_stay_in_their_own_column():
    values = np.array([[1.0, 2.0, -np.inf], [3.0, np.inf, 4.0]])
    sums = WeightedSums(values)(np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 2.0]]))
    np.testing.assert_array_equal(sums, [[4.0, np.inf, -np.inf], [2.0, 4.0, -np.inf], [6.0, np.inf, 8.0]])


@pytest.mark.parametrize("name", ["concordance_td", "harrell_c", "uno_c", "cumulative_dynamic_auc", "integrated_auc"])
@pytest.mark.parametrize("own", [True, False])
def test_shares_of_pairs_stay_between_0_and_1(name, own):
    """With three events first-order sums over pairs can be near zero, or negative, in a resample."""
    rng = np.random.default_rng(0)
    time = rng.exponential(1.0, 200)
    event = np.isin(np.arange(200), [3, 50, 120])
    y, d = Surv.from_arrays(event, time), Weibull(rng.exponential(1.0, 200), 1.0)
    score = SCORES[name]
    options = {} if own or not score.needs_censoring else {"censoring": Weibull(5.0, 1.0)}
    if score.times == "single":
        options["times"] = float(np.median(time))
    counts = np.concatenate([_drawn(rng, 200)[1] for _ in range(300)])
    found = score.terms(d, y, **options).resampled(Resamples(check_outcome(y), counts))
    found = found[~np.isnan(found)]
    assert len(found) > 100
    assert found.min() >= 0
    assert found.max() <= 1
