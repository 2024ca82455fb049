from functools import partial

import numpy as np
import pytest

from paper import lemma1
from paper.fooling import EXPECTED_SCORES, Design, expected_log_likelihood, search
from sumosurv.distributions import Mixture, Weibull
from sumosurv.nonparametric import kaplan_meier
from sumosurv.outcome import Surv
from sumosurv.scores import (
    SCORES,
    calibration,
    concordance_td,
    d_calibration,
    harrell_c,
    integrated_binomial_log_likelihood,
    integrated_brier,
    log_likelihood,
    survival_crps,
    uno_c,
)

DESIGN = Design()


def _sample(design, n, seed):
    rng = np.random.default_rng(seed)
    x = (rng.random(n) < design.share).astype(int)
    scale, shape, mean = (np.array(v)[x] for v in (design.scale, design.shape, design.censoring_mean))
    t, c = scale * rng.weibull(shape), rng.exponential(mean)
    return x, Surv.from_arrays(t <= c, np.minimum(t, c))


def _predict(parameters, x):
    return Weibull(np.exp(parameters[:2])[x], np.exp(parameters[2:])[x])


@pytest.mark.parametrize("case", lemma1.CASES, ids=lambda case: case.name)
def test_the_gap_is_the_two_divergences_and_never_negative(case):
    gap, (shape, bernoulli) = lemma1.gap_by_score(case), lemma1.gap_by_terms(case)
    assert gap == pytest.approx(shape + bernoulli, abs=1e-9)
    assert shape > 0
    assert bernoulli > 0


def test_the_gap_by_monte_carlo():
    case = lemma1.CASES[-2]  # random censoring
    rng = np.random.default_rng(0)
    n = 200_000
    t, c = case.truth.sample(n, rng)[0], case.censoring.sample(n, rng)[0]
    z, d = np.minimum(t, c), t <= c
    gain = np.where(
        d,
        (case.truth.log_density(z) - case.false.log_density(z))[0],
        (case.truth.log_survival(z) - case.false.log_survival(z))[0],
    )
    assert abs(gain.mean() - lemma1.gap_by_score(case)) < 4 * gain.std() / np.sqrt(n)


@pytest.mark.parametrize("name", list(EXPECTED_SCORES))
def test_search_fools_every_improper_score_and_no_proper_one(name):
    finding = search(DESIGN, name, n_starts=60, n_polish=3)
    if finding.proper:
        assert finding.gain <= 1e-9
        assert finding.verdict == "the truth is best"
        np.testing.assert_allclose(finding.scale, DESIGN.scale, rtol=1e-2)
    elif name == "group_calibration":
        assert finding.verdict == "blind"  # right at one time, wrong elsewhere: as good as the truth
    else:
        assert finding.verdict == "fooled"
        assert finding.distance > 0  # and the log-likelihood is not


def test_every_score_of_the_table_is_searched_or_shown_to_be_blind():
    later = {"cumulative_dynamic_auc", "integrated_auc", "mean_absolute_error"}  # not among the paper's scores
    later |= {"scaled_brier", "integrated_scaled_brier"}  # the Brier scores on another scale
    calibration = {"d_calibration", "calibration_intercept", "calibration_slope"}
    assert set(SCORES) - set(EXPECTED_SCORES) == calibration | later


def test_d_calibration_cannot_tell_the_truth_from_the_marginal_curve():
    design = Design(censoring_mean=(2.0, 2.0))
    x, y = _sample(design, 50_000, 1)
    marginal = Mixture([Weibull(np.full(50_000, design.scale[k]), design.shape[k]) for k in (0, 1)])
    truth = _predict(design.truth, x)
    assert d_calibration(truth, y).p_value > 0.01
    assert d_calibration(marginal, y).p_value > 0.01
    assert log_likelihood(truth, y).mean() > log_likelihood(marginal, y).mean() + 0.01


@pytest.mark.parametrize("which", ["truth", "false"])
def test_expected_scores_are_the_limits_of_the_scores(which):
    """The quadrature of the search against the library's scores on a large sample."""
    n = 8_000
    candidate = DESIGN.truth if which == "truth" else DESIGN.truth + np.array([-0.3, 0.2, 0.3, -0.4])
    x, y = _sample(DESIGN, n, 3)
    d, g = _predict(candidate, x), kaplan_meier(y, censoring=True)
    over = {"times": (0.0, DESIGN.horizon), "n_times": 200, "censoring": g}
    values = {
        "log_likelihood": log_likelihood(d, y).mean(),
        "harrell_c": harrell_c(d, y, horizon=DESIGN.horizon),
        "uno_c": uno_c(d, y, horizon=DESIGN.horizon, tau=DESIGN.horizon, censoring=g),
        "integrated_brier": -integrated_brier(d, y, **over).mean(),
        "integrated_binomial_log_likelihood": integrated_binomial_log_likelihood(
            d, y, **over | {"times": np.linspace(1e-6, DESIGN.horizon, 200)}
        ).mean(),
        "survival_crps": -survival_crps(d, y).mean(),
        "calibration": -calibration(d, y).score,
        "concordance_td": concordance_td(d, y, times=np.linspace(0.001, 3, 300)),
    }
    for name, value in values.items():
        assert value == pytest.approx(EXPECTED_SCORES[name][0](DESIGN, candidate), abs=0.02), name


def test_truth_maximises_the_expected_log_likelihood():
    rng = np.random.default_rng(4)
    best = expected_log_likelihood(DESIGN, DESIGN.truth)
    for size in (0.01, 0.1, 1.0):
        others = DESIGN.truth + rng.normal(0, size, (50, 4))
        assert all(expected_log_likelihood(DESIGN, other) < best for other in others)


def test_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(lemma1, "search", partial(search, n_starts=20, n_polish=1))  # the tests above search for longer
    record = lemma1.run(tmp_path)
    assert len(record["results"]["lemma"]) == len(lemma1.CASES)
    for name in ("lemma1.json", "lemma1.png", "lemma1.svg", "which_scores.png", "which_scores.svg"):
        assert (tmp_path / name).exists()
    assert "the truth is best" in capsys.readouterr().out
