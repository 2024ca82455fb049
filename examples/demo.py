"""SuMo-net on real data: who outlives whom among 6,524 residents of Olmsted County (FLCHAIN).

Fits the untuned default, prints its likelihood against Kaplan-Meier on rows it has not seen, and writes
three pictures.

    python examples/demo.py --out demo
"""

import argparse
import time
from pathlib import Path

import numpy as np

from sumosurv import SumoNet, Surv, datasets, kaplan_meier
from sumosurv.distributions import Rescaled
from sumosurv.plots import plot_risk_groups, plot_survival, plot_training
from sumosurv.scores import concordance_td, integrated_brier, log_likelihood


def contrasting_rows(X):
    """Women and men of different ages with low and high free light chains, as they occur in the data."""
    frame = X.reset_index(drop=True)
    light_chains = frame["kappa"] + frame["lambda"]
    low, high = light_chains.quantile(0.2), light_chains.quantile(0.95)
    wanted = [
        ("woman, about 70, low light chains", 0, 70, light_chains <= low),
        ("man, about 75, low light chains", 1, 75, light_chains <= low),
        ("man, about 70, high light chains", 1, 70, light_chains >= high),
        ("woman, about 85, high light chains", 0, 85, light_chains >= high),
    ]
    rows, labels = [], []
    for label, sex, age, group in wanted:
        candidates = frame[(frame["sex"] == sex) & group]
        rows.append(int((candidates["age"] - age).abs().idxmin()))
        labels.append(label)
    return rows, labels


def in_years(y, year):
    return Surv.from_arrays(event=y["event"], time=y["time"] / year)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the pictures")
    arguments = parser.parse_args()
    import matplotlib as mpl

    mpl.use("agg")
    arguments.out.mkdir(parents=True, exist_ok=True)

    data = datasets.load("flchain")
    train, valid, test = datasets.fold("flchain", 0)
    X, y = data.X, data.y
    print(data.description)
    print(
        f"{len(train):,} rows to train on, {len(valid):,} for early stopping, {len(test):,} to test on.\n", flush=True
    )

    started = time.perf_counter()
    model = SumoNet(random_state=0, verbose=True)
    model.fit(X.iloc[train], y[train], validation_data=(X.iloc[valid], y[valid]))
    fit_seconds = time.perf_counter() - started

    predicted = model.predict_distribution(X.iloc[test])
    marginal = kaplan_meier(y[train]).repeat(len(test))
    span = y["time"][train].max() - y["time"][train].min()
    to_paper = y["event"][test].mean() * np.log(span)  # log-likelihood per (max - min) instead of per day
    censoring = kaplan_meier(y[test], censoring=True)
    print(f"\n{model.n_members_} networks in {fit_seconds:.0f} s. On the {len(test):,} test rows:\n")
    print(f"{'':26s}{'SuMo-net':>12s}{'Kaplan-Meier':>15s}{'gain':>10s}")
    likelihoods = [float(log_likelihood(d, y[test]).mean()) for d in (predicted, marginal)]
    briers = [float(integrated_brier(d, y[test], censoring=censoring).mean()) for d in (predicted, marginal)]
    for label, values, digits in (
        ("S_L per day (nats)", likelihoods, 4),
        ("S_L, the paper's scale", [value + to_paper for value in likelihoods], 4),
        ("integrated Brier score", briers, 4),
    ):
        gain = values[0] - values[1] if "Brier" not in label else values[1] - values[0]
        print(f"{label:26s}{values[0]:12.{digits}f}{values[1]:15.{digits}f}{gain:+10.{digits}f}")
    concordances = [concordance_td(d, y[test]) for d in (predicted, marginal)]
    print(f"{'concordance (Antolini)':26s}{concordances[0]:12.4f}{concordances[1]:15.4f}")
    print("\nS_L is the mean right-censored log-likelihood, higher is better; Kaplan-Meier's density is taken by")
    print("differences over four event times (half-width 2), which flatters it.")

    rows, labels = contrasting_rows(X.iloc[test])
    year = 365.25
    few = Rescaled(predicted[rows], 1 / year)  # the same distributions in years
    seen = float(y["time"][train].max()) / year
    print(f"\n{'':36s}{'median':>10s}{'life expectancy':>18s}{'alive after 10 years':>23s}")
    for label, median, mean, alive in zip(labels, few.median(), few.mean(), few.survival(10.0)):
        print(f"{label:36s}{median:8.1f} y{mean:16.1f} y{alive:22.0%}")
    print(f"What lies beyond {seen:.1f} years, the longest follow-up, is extrapolated.\n")

    names = [f"{label}: {m:.1f} y, {e:.1f} y" for label, m, e in zip(labels, few.median(), few.mean())]
    for name, axes in (
        ("survival_curves", plot_survival(few, labels=names, unit="years", last_time=seen, horizon=2.5 * seen)),
        ("risk_groups", plot_risk_groups(Rescaled(predicted, 1 / year), in_years(y[test], year), unit="years")),
        ("training", plot_training(model.history_)),
    ):
        path = arguments.out / f"{name}.png"
        axes.figure.savefig(path, dpi=150)
        print(f"picture: {path}")


if __name__ == "__main__":
    main()
