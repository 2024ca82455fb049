"""Scores over time: lines and bands are the figures of evaluate."""

from __future__ import annotations

import numpy as np
import pytest

from sumosurv import CoxPH, Surv, kaplan_meier
from sumosurv.distributions import CauseMixture, Weibull
from sumosurv.plots import plot_score
from sumosurv.scores import brier, cumulative_dynamic_auc

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 1))
T, C = np.exp(X[:, 0]) * RNG.exponential(1.0, 150), RNG.exponential(2.0, 150)
Y = Surv.from_arrays(T <= C, np.minimum(T, C))
MODELS = {"good": Weibull(np.exp(X[:, 0]), 1.0), "flat": Weibull(np.ones(150), 1.0)}
G = kaplan_meier(Y, censoring=True)


@pytest.mark.parametrize("score", ["brier", "cumulative_dynamic_auc"])
def test_lines_are_the_scores(score, tmp_path):
    times = np.array([0.3, 0.6, 1.2])
    ax = plot_score(MODELS, Y, score, times=times, n_bootstrap=20, unit="years")
    lines = {line.get_label(): line for line in ax.get_lines() if not line.get_label().startswith("_")}
    assert list(lines) == ["good", "flat"]
    for name, d in MODELS.items():
        expected = brier(d, Y, times, censoring=G).mean(axis=0)
        if score != "brier":
            expected = cumulative_dynamic_auc(d, Y, times, censoring=G)
        np.testing.assert_allclose(lines[name].get_ydata(), expected, rtol=1e-12)
    assert ax.get_ylim()[0] == (0.0 if score == "brier" else 0.45)
    assert len(ax.collections) == 2  # bands
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["good", "flat"]
    assert ax.get_xlabel() == "time (years)"
    plt.savefig(tmp_path / "a.png")
    assert plt.imread(tmp_path / "a.png")[..., :3].std() > 0.01
    plain = plot_score(MODELS["good"], Y, score, times=times, n_bootstrap=0)
    assert len(plain.collections) == 0
    assert plain.get_legend() is None


def test_the_range_is_that_of_the_follow_up_and_beyond_is_shaded():
    d = CoxPH().fit(X, Y).predict_distribution(X)
    ax = plot_score(d, Y, n_bootstrap=0)
    end = ax.get_xlim()[1]
    assert (Y["time"] > end).mean() == pytest.approx(0.05, abs=0.01)
    assert not ax.texts
    longer = plot_score(d, Y, times=np.linspace(0.1, 2 * Y["time"].max(), 50), n_bootstrap=0, last_time=0.5)
    assert [text.get_text() for text in longer.texts] == ["extrapolated"]
    drawn = longer.lines[0].get_xdata()
    assert 0.9 * Y["time"].max() < drawn[-1] < Y["time"].max()  # later nobody is followed, and there is no score
    own = plt.subplots()[1]
    assert plot_score(d, Y, "cumulative_dynamic_auc", n_bootstrap=0, ax=own) is own
    assert [text.get_text() for text in own.texts] == ["chance"]


def test_what_cannot_be_drawn_is_refused():
    late = Surv.from_arrays(Y["event"], Y["time"], 0.1 * Y["time"])
    with pytest.raises(ValueError, match="left truncation"):
        plot_score(MODELS, late)
    with pytest.raises(ValueError, match="mapping is empty"):
        plot_score({}, Y)
    for name in ("crps", "log_likelihood"):
        with pytest.raises(ValueError, match=name):
            plot_score(MODELS, Y, name)


def test_of_several_causes_one_is_drawn():
    d = CauseMixture(np.zeros((40, 2)), [Weibull(np.linspace(1, 3, 40), 1.0)] * 2)
    time, cause = d.sample(random_state=0, return_causes=True)
    y = Surv.from_arrays(cause, time, causes=2)
    never_censored = kaplan_meier(y, censoring=True)
    expected = brier(d, y, [0.5, 1.0], censoring=never_censored, cause=2).mean(axis=0)
    (line,) = plot_score(d, y, times=[0.5, 1.0], cause=2, n_bootstrap=0).lines
    np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-12)
    with pytest.raises(ValueError, match=r"2 causes.*cause=1"):
        plot_score(d, y, times=[0.5, 1.0])


def test_scores_end_where_a_twentieth_is_still_followed():
    """Half of the rows end with the study, at time 10: past it nobody is followed, and scores there rest on nobody."""
    time = np.append(np.linspace(0.1, 9.9, 50), np.full(50, 10.0))
    time[-3:] = [10.5, 11.0, 12.0]
    y = Surv.from_arrays(time < 8.0, time)
    ax = plot_score(Weibull(np.full(100, 8.0), 1.0), y, n_bootstrap=0)
    assert ax.get_lines()[0].get_xdata()[-1] == 9.9
