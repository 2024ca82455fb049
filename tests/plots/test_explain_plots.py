"""Pictures of explanations show the figures they are made of."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from explain.formulas import Formula, data
from sumosurv import WeibullNet
from sumosurv.explain import (
    accumulated_local_effects,
    contrast,
    partial_dependence,
    permutation_importance,
    standardised_contrast,
    survshap,
)
from sumosurv.plots import (
    plot_contrast,
    plot_effect,
    plot_importance,
    plot_survshap,
)

mpl.use("Agg")


@pytest.fixture(scope="module")
def fitted():
    X, y = data()
    return WeibullNet(n_members=3, max_epochs=5, covariate_layers=(8,), random_state=0).fit(X, y), X, y


def lines(ax):
    return {line.get_label(): line for line in ax.lines}


def test_effects_of_a_number(fitted):
    model, X, _ = fitted
    effect = partial_dependence(model, X, "a", times=[0.5, 1.0], n_values=6)
    ax = plot_effect(effect, unit="years")
    assert plt.gcf() is ax.figure  # what plt.savefig would write
    for place, name in enumerate(["t = 0.5 years", "t = 1 years"]):
        np.testing.assert_array_equal(lines(ax)[name].get_xdata(), effect.grid[0])
        np.testing.assert_array_equal(lines(ax)[name].get_ydata(), effect.mean[:, place])
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["t = 0.5 years", "t = 1 years", "95% of the networks", "deciles"]
    one = plot_effect(effect, times=1.0)
    assert len(one.lines) == 60 + 1 + 1  # single rows, the mean, deciles
    own = plt.subplots()[1]
    assert plot_effect(effect, ax=own) is own
    local = plot_effect(accumulated_local_effects(model, X, "a", times=1.0))
    assert "difference from its mean" in local.get_ylabel()


def test_effects_of_a_category_and_of_a_median(fitted):
    model, X, _ = fitted
    effect = partial_dependence(model, X, "c", quantity="median")
    ax = plot_effect(effect, unit="years", individual=False)
    assert ax.get_ylabel() == "median time (years)"
    np.testing.assert_array_equal(lines(ax)["partial dependence"].get_ydata(), effect.mean[:, 0])
    shares = [f"{level}\n{(X['c'] == level).mean():.0%}" for level in "uvw"]
    assert [text.get_text() for text in ax.get_xticklabels()] == shares


def test_two_columns(fitted):
    model, X, _ = fitted
    numbers = partial_dependence(model, X, ["a", "b"], times=1.0, n_values=4, max_rows=20)
    ax = plot_effect(numbers)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "b")
    mixed = partial_dependence(model, X, ["a", "c"], times=1.0, n_values=3, max_rows=20)
    ax = plot_effect(mixed, unit="years")
    written = [text.get_text() for text in ax.texts]
    assert written == [f"{value:.2g}" for value in mixed.mean[..., 0].T.ravel()]
    assert "t = 1 years" in ax.figure.axes[1].get_ylabel()
    with pytest.raises(ValueError, match="one time; got 2 times"):
        plot_effect(partial_dependence(model, X, ["a", "c"], times=[0.5, 1.0], n_values=2), times=[0.5, 1.0])


def test_importance(fitted):
    model, X, y = fitted
    found = permutation_importance(model, X, y, n_repeats=2, n_bootstrap=10)
    ax = plot_importance(found, max_columns=3)
    assert [bar.get_width() for bar in ax.patches] == list(found.table["value"][:3])
    assert [text.get_text() for text in ax.get_yticklabels()] == list(found.table["column"][:3])
    assert ax.patches[0].get_y() > ax.patches[2].get_y()  # the most important column on top
    assert ax.get_xlabel() == "loss of log-likelihood (nats per row)"
    over = permutation_importance(model, X, y, scores=["brier"], times=[0.5, 1.0], n_repeats=2, n_bootstrap=10)
    ax = plot_importance(over, unit="years")
    first = over.table["column"].iloc[0]
    own = over.table[over.table["column"] == first]
    np.testing.assert_array_equal(lines(ax)[first].get_ydata(), own["value"])
    assert ax.get_ylabel() == "rise of Brier score"
    with pytest.raises(ValueError, match="has the scores brier; got 'crps'"):
        plot_importance(over, score="crps")


def test_shapley_values(fitted):
    model, X, _ = fitted
    shap = survshap(model, X[:6], X[:20], times=np.linspace(0, 2, 9))
    ax = plot_survshap(shap, 2, max_columns=2)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert len(names) == 4
    assert names[0].startswith("a = ")
    drawn = lines(ax)
    parts = sum(drawn[name].get_ydata() for name in names[:3])
    np.testing.assert_allclose(parts, drawn["sum: prediction less mean"].get_ydata(), atol=1e-7)
    assert [drawn[name].get_linestyle() == ":" for name in names[:3]] == [False, False, True]  # the other columns
    ax = plot_survshap(shap)
    np.testing.assert_allclose(lines(ax)["a"].get_ydata(), np.abs(shap.values[:, 0]).mean(axis=0))
    ax = plot_survshap(shap, time=1.0)
    found = np.sort(np.concatenate([points.get_offsets()[:, 0] for points in ax.collections]))
    np.testing.assert_allclose(found, np.sort(shap.values[:, :, 4].ravel()))
    with pytest.raises(ValueError, match=r"no time 1\.1; the nearest is 1"):
        plot_survshap(shap, time=1.1)
    with pytest.raises(ValueError, match="There are 6 subjects"):
        plot_survshap(shap, 6)
    median = survshap(model, X[:3], X[:9], quantity="median")
    ax = plot_survshap(median, 1, unit="years")
    assert sum(bar.get_width() for bar in ax.patches) == pytest.approx((median.predicted[1] - median.base).item())


def test_contrasts(fitted):
    model, X, _ = fitted
    found = contrast(model, X[:1], X[1:2], times=np.linspace(0, 2 * model.last_time_, 8), labels=("one", "other"))
    ax = plot_contrast(found, unit="years")
    np.testing.assert_array_equal(lines(ax)["one  less  other"].get_ydata(), found.difference)
    assert "extrapolated" in [text.get_text() for text in ax.texts]
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["one  less  other", "95% of the networks"]
    ax = plot_contrast(found, difference=False)
    np.testing.assert_array_equal(lines(ax)["other"].get_ydata(), found.curves[1])
    alone = standardised_contrast(Formula(lambda X: np.exp(X[:, 0])), np.eye(4), 0, times=[0.5, 1.0])
    assert len(plot_contrast(alone).collections) == 0
    both = lines(plot_contrast(alone, difference=False))
    np.testing.assert_array_equal([both[name].get_ydata() for name in alone.labels], alone.curves)


def test_a_column_with_one_value_narrow_cells_and_the_legend_of_contrasts(fitted):
    model, X, _ = fitted
    one = plot_effect(partial_dependence(model, X, "a", times=1.0, values=[0.5], max_rows=20))
    assert lines(one)["t = 1"].get_marker() == "o"
    wide = partial_dependence(model, X, ["a", "c"], times=1.0, values=([0.0, 0.01, 0.02, 5.0], ["u", "v"]), max_rows=20)
    assert len(plot_effect(wide).texts) < wide.mean.size
    ax = plot_contrast(contrast(model, X.iloc[[0]], X.iloc[[5]], times=[0.5, 1.0], horizons=1.0))
    ax.figure.draw_without_rendering()
    assert ax.get_legend().get_window_extent().y1 <= ax.get_window_extent().y0
