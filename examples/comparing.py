"""Censoring that depends on x, and what it does to the Brier score: the example of docs/comparing.md.

    python examples/comparing.py [--figures docs/figures]

Two kinds of patients with the same hazard. Those of the second kind came late to the study, and most of them are
followed for a year at most. The false model knows the truth for the first kind, and lets the curve of the second kind
fall to zero where their follow-up ends.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from sumosurv import CoxPH, Surv, plots, scores
from sumosurv.distributions import Tabulated, Weibull


def study(n, seed=0):
    """Covariates, outcome, the true curves and the false ones."""
    rng = np.random.default_rng(seed)
    late = rng.random(n) < 0.5
    event = 4.0 * rng.exponential(size=n)
    censored = np.where(late, np.where(rng.random(n) < 0.95, rng.uniform(0.7, 1.1, n), 6.0), rng.uniform(4.0, 8.0, n))
    y = Surv.from_arrays(event <= censored, np.minimum(event, censored))
    X = pd.DataFrame({"late": late.astype(float)})
    grid = np.linspace(0.0, 8.0, 161)
    truth = np.exp(-grid / 4.0)
    falling = truth * np.clip(1.0 - (grid - 1.0) / 0.3, 0.002, 1.0)
    return X, y, Weibull(np.full(n, 4.0), 1.0), Tabulated(grid, np.where(late[:, None], falling, truth))


def main():
    """Print both scores, and draw them over time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, default=None)
    options = parser.parse_args()
    X, y, truth, false = study(4000)
    models = {"truth": truth, "false": false}
    table = scores.evaluate(models, X, y, scores={"log_likelihood": {}, "integrated_brier": {"times": (0.1, 3.9)}})
    print(table)
    if options.figures is not None:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        given = scores.censoring_given_x(CoxPH(alpha=1.0), X, y)
        grid = np.linspace(0.1, 3.9, 40)
        figure, both = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True, layout="constrained")
        for ax, g, title in zip(both, ("marginal", given), ("one G for all rows", "G given x")):
            plots.plot_score(models, y, times=grid, censoring=g, unit="years", ax=ax)
            ax.set_title(title)
        both[1].set_ylabel("")
        figure.savefig(options.figures / "censoring_given_x.png", dpi=130)


if __name__ == "__main__":
    main()
