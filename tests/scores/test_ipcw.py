import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad, simpson
from sksurv.metrics import brier_score, integrated_brier_score

from scores import direct
from sumosurv import Surv, kaplan_meier
from sumosurv.distributions import Rescaled, Tabulated, Weibull
from sumosurv.scores import (
    binomial_log_likelihood,
    brier,
    integrated_binomial_log_likelihood,
    integrated_brier,
)

BOTH_AT = (brier, binomial_log_likelihood)
BOTH_OVER = (integrated_brier, integrated_binomial_log_likelihood)


def _flipped(y):
    """What pycox takes for G: events flipped, everyone with z >= t at risk at t."""
    return kaplan_meier(Surv.from_arrays(~y["event"], y["time"]))


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = Surv.from_arrays(rng.random(300) < 0.6, rng.exponential(2.0, 300))
    return y, Weibull(rng.uniform(1.0, 3.0, 300), rng.uniform(0.5, 2.0, 300))


@st.composite
def rounded(draw):
    n = draw(st.integers(1, 25))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    share = draw(st.sampled_from([0.0, 0.5, 1.0]))
    y = Surv.from_arrays(rng.random(n) < share, rng.integers(0, 6, n).astype(float))
    return y, Weibull(rng.uniform(1.0, 3.0, n), rng.uniform(0.5, 2.0, n))


@settings(max_examples=100, deadline=None)
@given(rounded(), st.floats(0.1, 6.0) | st.integers(0, 6).map(float), st.booleans())
def test_against_the_definition(data, t, own_curves):
    """Ties, all censored, none censored, one row; G of one curve or one for each subject."""
    y, d = data
    n, time, event = len(y), y["time"], y["event"]
    g = Weibull(np.linspace(2, 4, n), 1.0) if own_curves else kaplan_meier(y, censoring=True)
    before = np.array(
        [1.0 if z == 0 else (g if own_curves else g.repeat(n)).survival(z - 1e-9)[i] for i, z in enumerate(time)]
    )
    at = (g if own_curves else g.repeat(n)).survival(t)
    s = d.survival(t)
    expected = direct.ipcw(s**2, (1 - s) ** 2, event, time, t, before, at)
    np.testing.assert_allclose(brier(d, y, t, censoring=g), expected, rtol=1e-7, atol=1e-12)
    with np.errstate(divide="ignore"):
        expected = direct.ipcw(np.log(1 - s), np.log(s), event, time, t, before, at)
    np.testing.assert_allclose(binomial_log_likelihood(d, y, t, censoring=g), expected, rtol=1e-7, atol=1e-12)


def test_shapes(data):
    y, d = data
    g = kaplan_meier(y, censoring=True)
    for score in BOTH_AT:
        table = score(d, y, [0.5, 1.0, 2.0], censoring=g)
        assert table.shape == (300, 3)
        np.testing.assert_array_equal(table[:, 1], score(d, y, 1.0, censoring=g))
    for score in BOTH_OVER:
        assert score(d, y, censoring=g).shape == (300,)


@pytest.mark.parametrize(("rounding", "left_limit"), [(8, True), (8, False), (0, False)])
def test_brier_and_ibs_against_scikit_survival(rounding, left_limit):
    """Theirs takes G(z), not G(z-): the same where no event shares its time with a censoring."""
    rng = np.random.default_rng(1)
    time, event = rng.exponential(9.0, 500).round(rounding) + 1, rng.random(500) < 0.5
    train, test = Surv.from_arrays(event[:250], time[:250]), Surv.from_arrays(event[250:], time[250:])
    d = Weibull(rng.uniform(5, 15, 250), rng.uniform(0.5, 2, 250))
    times = np.linspace(2, np.quantile(time, 0.9), 40)
    estimate = d.survival(times)
    options = {"censoring": kaplan_meier(train, censoring=True), "left_limit": left_limit, "on_zero": "drop"}
    expected = brier_score(train, test, estimate, times)[1]
    np.testing.assert_allclose(brier(d, test, times, **options).mean(axis=0), expected, rtol=0, atol=1e-10)
    ibs = integrated_brier(d, test, times=times, **options).mean()
    assert ibs == pytest.approx(integrated_brier_score(train, test, estimate, times), abs=1e-10)


@pytest.mark.parametrize("rounding", [0, 8])
def test_pycox_convention(rounding, lifelines):
    """A reading of pycox's EvalSurv(..., censor_surv='km'): flipped events, G(z-), weights that sum to one, Simpson."""
    rng = np.random.default_rng(2)
    time, event = rng.exponential(9.0, 200).round(rounding) + 1, rng.random(200) < 0.5
    y = Surv.from_arrays(event, time)
    d = Weibull(rng.uniform(5, 15, 200), rng.uniform(0.5, 2, 200))
    grid = np.linspace(time.min(), time.max(), 100)
    flipped = lifelines.KaplanMeierFitter().fit(time, ~event)
    before = flipped.survival_function_at_times(time - 1e-6).to_numpy()
    curves = {"ibs": [], "ibll": []}
    for t in grid:
        s, g = d.survival(t), float(flipped.survival_function_at_times(t).iloc[0])
        weight = np.where(time > t, 1 / max(g, 1e-300), np.where(event, 1 / before, 0.0))
        clipped = np.clip(s, 1e-7, 1 - 1e-7)
        losses = {"ibs": (s - (time > t)) ** 2, "ibll": np.where(time > t, np.log(clipped), np.log(1 - clipped))}
        for name, loss in losses.items():
            curves[name].append((weight * loss).sum() / weight.sum())
    length = grid[-1] - grid[0]
    options = {"censoring": _flipped(y), "normalize": True, "rule": "simpson"}
    ibs = integrated_brier(d, y, times=grid, **options).mean()
    assert ibs == pytest.approx(simpson(curves["ibs"], x=grid) / length, abs=1e-10)
    ibll = integrated_binomial_log_likelihood(d, y, times=grid, floor=1e-7, **options).mean()
    assert ibll == pytest.approx(simpson(curves["ibll"], x=grid) / length, abs=1e-10)


def test_censoring_estimates_differ_only_at_shared_times():
    rng = np.random.default_rng(3)
    event, time = rng.random(100) < 0.5, rng.exponential(5.0, 100)
    for rounding, alike in ((8, True), (0, False)):
        y = Surv.from_arrays(event, time.round(rounding))
        at = np.unique(y["time"])[:-1]
        ours, flipped = kaplan_meier(y, censoring=True).survival(at), _flipped(y).survival(at)
        assert np.allclose(ours, flipped, atol=1e-12) == alike


@pytest.mark.parametrize("score", BOTH_OVER)
def test_integrals_start_at_the_smallest_positive_time(score):
    """At zero S = 1, and an event there would score -inf."""
    y = Surv.from_arrays([True, True, False, True], [0.0, 0.5, 1.0, 2.0])
    d, g = Weibull([1.0, 2.0, 3.0, 4.0], 1.0), kaplan_meier(y, censoring=True)
    expected = score(d, y, times=np.linspace(0.5, np.nextafter(2.0, 0.0), 100), censoring=g)
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(score(d, y, censoring=g), expected)
    whole = score(d, y, times=np.linspace(0.5, 2.0, 100), censoring=g)
    np.testing.assert_array_equal(score(d, y, times=(0.5, 2.0), censoring=g), whole)


@pytest.mark.parametrize("score", BOTH_OVER)
def test_integrals_end_before_the_last_time_beyond_which_nobody_is_followed(score):
    """Half of the rows are censored when the study ends at 1; there only events would be left to be scored."""
    rng = np.random.default_rng(0)
    time = rng.exponential(1.5, 4000)
    y = Surv.from_arrays(time < 1.0, np.minimum(time, 1.0))
    d, g = Weibull(np.full(4000, 1.5), 1.0), kaplan_meier(y, censoring=True)
    low = y["time"].min()
    until = score(d, y, censoring=g, n_times=5).mean()
    just_before = score(d, y, times=np.append(np.linspace(low, 1.0, 5)[:-1], 1.0 - 1e-9), censoring=g).mean()
    assert until == pytest.approx(just_before, abs=1e-6)
    beyond = score(d, y, times=(low, 1.0), n_times=5, on_zero="drop", censoring=g).mean()
    assert abs(beyond - until) > 0.01  # the last time has nobody without an event


def test_closed_form_of_the_integral_without_censoring():
    """For an exponential S and an event at z: ∫₀^z (1-S)² + ∫_z^b S²."""
    z, b = np.array([0.7, 1.9]), 3.0
    y = Surv.from_arrays([True, True], z)
    d = Weibull([2.0, 2.0], 1.0)
    exact = [
        quad(lambda t: (1 - np.exp(-t / 2)) ** 2, 0, zi)[0] / b + quad(lambda t: np.exp(-t / 2) ** 2, zi, b)[0] / b
        for zi in z
    ]
    value = integrated_brier(d, y, times=(0.0, b), n_times=20_001, censoring=kaplan_meier(y, censoring=True))
    np.testing.assert_allclose(value, exact, atol=2e-4)


def test_expected_brier_at_the_truth_is_s_times_1_minus_s():
    """E BS(t) = S(t)(1 - S(t)) whatever the censoring, if G is the true one."""
    rng = np.random.default_rng(4)
    n = 200_000
    t, c = rng.exponential(1.0, n), rng.exponential(2.0, n)
    y = Surv.from_arrays(t <= c, np.minimum(t, c))
    value = brier(Weibull(np.ones(n), 1.0), y, 0.8, censoring=Weibull(2.0, 1.0))
    expected = np.exp(-0.8) * (1 - np.exp(-0.8))
    assert abs(value.mean() - expected) < 4 * value.std() / np.sqrt(n)


@pytest.mark.parametrize("score", BOTH_OVER)
def test_row_order_and_time_unit_do_not_matter(score, data):
    y, d = data
    g, p = kaplan_meier(y, censoring=True), np.random.default_rng(5).permutation(300)
    value = score(d, y, censoring=g)
    np.testing.assert_allclose(score(d[p], y[p], censoring=g), value[p], rtol=1e-12)
    weeks = Surv.from_arrays(y["event"], y["time"] / 7)
    scaled = score(Rescaled(d, 1 / 7), weeks, censoring=kaplan_meier(weeks, censoring=True))
    np.testing.assert_allclose(scaled.mean(), value.mean(), rtol=1e-9)


@pytest.mark.parametrize("normalize", [False, True])
def test_one_curve_for_all_and_one_for_each_agree(data, normalize):
    y, d = data
    g = Weibull(4.0, 1.0)
    each = Weibull(np.full(300, 4.0), 1.0)
    for score in BOTH_OVER:
        np.testing.assert_allclose(
            score(d, y, censoring=g, normalize=normalize), score(d, y, censoring=each, normalize=normalize), rtol=1e-12
        )


def test_step_tables_are_read_as_they_are(data):
    y, d = data
    g, times = kaplan_meier(y, censoring=True), np.linspace(0.0, 4.0, 25)
    step = Tabulated(times, d.survival(times))
    for score in BOTH_OVER:
        np.testing.assert_allclose(
            score(step, y, times=times, censoring=g), score(d, y, times=times, censoring=g), rtol=1e-9
        )


def test_zero_censoring_probability():
    """All rows under G were censored by t = 2; rows that need a later weight raise, are dropped, or are capped."""
    train = Surv.from_arrays([False, False], [1.0, 2.0])
    g = kaplan_meier(train, censoring=True)
    y, d = Surv.from_arrays([True, True, True], [0.5, 2.5, 5.0]), Weibull([1.0, 1.0, 1.0], 1.0)
    with pytest.raises(ValueError, match=r"first at time 2\.5.*on_zero"):
        brier(d, y, 3.0, censoring=g)
    dropped = brier(d, y, 3.0, censoring=g, on_zero="drop")
    np.testing.assert_allclose(dropped, [np.exp(-6.0), 0.0, 0.0])
    capped = brier(d, y, 3.0, censoring=g, max_weight=10.0)
    np.testing.assert_allclose(capped, [np.exp(-6.0), 10 * np.exp(-6.0), 10 * (1 - np.exp(-3.0)) ** 2])
    before = brier(d, y, 1.5, censoring=g)  # nothing needs G past 1.5
    np.testing.assert_allclose(before, [np.exp(-3.0), 2 * (1 - np.exp(-1.5)) ** 2, 2 * (1 - np.exp(-1.5)) ** 2])


def test_g_of_the_same_rows_never_needs_a_weight_that_is_not_there():
    rng = np.random.default_rng(6)
    for _ in range(20):
        y = Surv.from_arrays(rng.random(15) < 0.3, rng.integers(0, 5, 15).astype(float) + rng.random() * 0.1)
        d = Weibull(np.ones(15), 1.0)
        assert np.isfinite(integrated_brier(d, y, censoring=kaplan_meier(y, censoring=True))).all()


def test_g_of_the_same_rows_at_the_time_of_an_event_may_be_zero():
    """Without the left limit: the last event ties with the last censoring, and G(z) = 0 there."""
    y, d = Surv.from_arrays([True, True, False], [1.0, 2.0, 2.0]), Weibull(np.ones(3), 1.0)
    g = kaplan_meier(y, censoring=True)
    assert np.isfinite(brier(d, y, 2.0, censoring=g)).all()
    with pytest.raises(ValueError, match="first at time 2"):
        brier(d, y, 2.0, censoring=g, left_limit=False)


def test_impossible_predictions():
    y = Surv.from_arrays([True, False], [1.0, 3.0])
    sure = Tabulated([4.0, 5.0], [[0.5, 0.0]] * 2)  # S = 1 before 4
    g = kaplan_meier(y, censoring=True)
    np.testing.assert_array_equal(binomial_log_likelihood(sure, y, 2.0, censoring=g), [-np.inf, 0.0])
    floored = binomial_log_likelihood(sure, y, 2.0, censoring=g, floor=1e-7)
    np.testing.assert_allclose(floored, [np.log(1e-7), np.log1p(-1e-7)])


def test_mistakes_are_named(data):
    y, d = data
    g = kaplan_meier(y, censoring=True)
    with pytest.raises(ValueError, match="strictly increasing"):
        brier(d, y, [2.0, 1.0], censoring=g)
    with pytest.raises(ValueError, match="2 curves"):
        brier(d, y, 1.0, censoring=Weibull([1.0, 2.0], 1.0))
    with pytest.raises(ValueError, match="at least two times"):
        integrated_brier(d, y, times=[1.0], censoring=g)
    with pytest.raises(ValueError, match="range is empty"):
        integrated_brier(Weibull([1.0], 1.0), Surv.from_arrays([True], [1.0]), censoring=g)
    with pytest.raises(ValueError, match="'other'"):
        integrated_brier(d, y, censoring=g, rule="other")
    for floor in (-0.1, 0.0, 0.5):
        with pytest.raises(ValueError, match=f"floor.*got {floor}"):
            binomial_log_likelihood(d, y, 1.0, censoring=g, floor=floor)


def test_a_time_at_which_nobody_has_a_weight_adds_nothing():
    """All are censored at 1: at 2 there is nobody to score, and no division by nothing."""
    y = Surv.from_arrays([False, False, False], [1.0, 1.0, 1.0])
    d, g = Weibull([1.0, 2.0, 3.0], 1.0), Weibull(5.0, 1.0)
    score = brier(d, y, [0.5, 2.0], censoring=g, normalize=True)
    np.testing.assert_allclose(score[:, 0], (1 - d.survival(0.5)) ** 2)
    np.testing.assert_array_equal(score[:, 1], 0.0)
