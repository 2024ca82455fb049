import numpy as np
from matplotlib.figure import Figure

from sumosurv import Surv
from sumosurv.distributions import Weibull
from sumosurv.plots.calibration import plot_calibration, plot_d_calibration, plot_km_calibration
from sumosurv.scores import calibration, d_calibration, km_calibration


def test_plots_show_what_was_computed(tmp_path):
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.5, 2.0, 500)
    t, c = scale * rng.exponential(1.0, 500), rng.exponential(2.0, 500)
    y, d = Surv.from_arrays(t <= c, np.minimum(t, c)), Weibull(scale, 1.0)
    figure = Figure(figsize=(12, 4), layout="constrained")
    axes = figure.subplots(1, 3)
    result = calibration(d, y)
    assert plot_calibration(result, ax=axes[0], label="Weibull") is axes[0]
    np.testing.assert_array_equal(axes[0].lines[1].get_ydata(), result.observed)
    bars = plot_d_calibration(d_calibration(d, y), ax=axes[1]).patches
    np.testing.assert_allclose([bar.get_height() for bar in bars], d_calibration(d, y).shares)
    plot_km_calibration(km_calibration(d, y, 0.7), ax=axes[2])
    figure.savefig(tmp_path / "calibration.png")
