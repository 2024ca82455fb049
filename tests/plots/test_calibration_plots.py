import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

from sumosurv import Surv
from sumosurv.distributions import Weibull
from sumosurv.plots import plot_calibration
from sumosurv.scores import calibration, d_calibration, group_calibration

mpl.use("Agg")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.5, 2.0, 500)
    t, c = scale * rng.exponential(1.0, 500), rng.exponential(2.0, 500)
    return Weibull(scale, 1.0), Surv.from_arrays(t <= c, np.minimum(t, c))


def test_calibration(data):
    result, ax = calibration(*data), Figure().subplots()
    assert plot_calibration(result, ax=ax, label="Weibull") is ax
    diagonal, curve = ax.lines
    np.testing.assert_array_equal(diagonal.get_xydata(), [[0, 0], [1, 1]])
    np.testing.assert_array_equal(curve.get_xdata(), result.expected)
    np.testing.assert_array_equal(curve.get_ydata(), result.observed)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [f"Weibull, score {result.score:.3g}"]


def test_d_calibration(data):
    result, ax = d_calibration(*data, bins=5), Figure().subplots()
    bars = plot_calibration(result, ax=ax).patches
    np.testing.assert_allclose([bar.get_height() for bar in bars], result.shares)
    np.testing.assert_allclose([bar.get_x() for bar in bars], result.edges[:-1])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), 0.2)


def test_group_calibration(data):
    result, ax = group_calibration(*data, 0.7), Figure().subplots()
    plot_calibration(result, ax=ax)
    points = ax.containers[0]
    np.testing.assert_array_equal(points[0].get_xdata(), result.predicted)
    np.testing.assert_array_equal(points[0].get_ydata(), result.observed)
    low, high = np.array([segment[:, 1] for segment in points[2][0].get_segments()]).T
    np.testing.assert_allclose(low, np.maximum(result.observed - 1.96 * result.std_error, 0.0), atol=1e-12)
    np.testing.assert_allclose(high, np.minimum(result.observed + 1.96 * result.std_error, 1.0), atol=1e-12)


@pytest.mark.parametrize(
    ("score", "plot"),
    [(calibration, plot_calibration), (d_calibration, plot_calibration), (group_calibration, plot_calibration)],
)
def test_pyplot_saves_what_was_drawn(score, plot, data, tmp_path):
    ax = plot(score(*data))
    plt.savefig(tmp_path / "picture.png")
    plt.close(ax.figure)
    pixels = plt.imread(tmp_path / "picture.png")[..., :3]
    assert (pixels < 0.9).any(axis=2).mean() > 0.01  # lines and text, not a blank page
