"""Calibration, decisions, groups and uncertainty: the pictures of docs/calibration.md and docs/uncertainty.md.

    python examples/judge.py --out docs/figures     # two minutes on one core

Data: the bundled GBSG2 trial.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from sumosurv import Conformal, CoxPH, SumoNet, Surv, datasets, logrank_test, plots, restricted_mean_test, scores
from sumosurv.calibrate import smooth_calibration


def trial() -> tuple[pd.DataFrame, np.ndarray]:
    """Covariates and outcome, in years."""
    X, y = datasets.load("gbsg2")
    return X, Surv.from_arrays(y["event"], y["time"] / 365.25)


def judge(out: Path) -> None:
    """Calibration and decisions at three years, on held-out rows."""
    X, y = trial()
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y["event"])
    models = {"SumoNet": SumoNet(random_state=0), "CoxPH": CoxPH()}
    predicted = {name: model.fit(X_train, y_train).predict_distribution(X_test) for name, model in models.items()}
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.4, 4.8), layout="constrained", width_ratios=(1.0, 1.35))
    curves = {}
    for name, d in predicted.items():
        smooth = smooth_calibration(d, y_test, 3.0, n_bootstrap=100, random_state=0)
        limits = f"{smooth.ici_interval[0]:.4f} to {smooth.ici_interval[1]:.4f}"
        print(f"{name}: ICI {smooth.ici:.4f} ({limits}), E50 {smooth.e50:.4f}, E90 {smooth.e90:.4f}")
        plots.plot_calibration(smooth, ax=left, label=name)
        curves[name] = scores.decision_curve(d, y_test, 3.0, random_state=0)
        print(curves[name].table.loc[[0.2, 0.3, 0.4]].round(3).to_string())
    plots.plot_decision_curve(curves, ax=right)
    figure.savefig(out / "judge.png", dpi=130)


def groups(out: Path) -> None:
    """Hormone therapy or not; and a Cox model."""
    X, y = trial()
    therapy = X["hormone_therapy"].astype(str).rename("hormone therapy")
    figure, (left, right) = plt.subplots(1, 2, figsize=(12.0, 4.8), layout="constrained")
    plots.plot_kaplan_meier(y, therapy, unit="years", ax=left)
    per = {"age": 10, "tumour_size": 10, "positive_nodes": 5, "progesterone": 100, "oestrogen": 100}
    plots.plot_hazard_ratios(CoxPH().fit(X, y), per=per, ax=right)
    figure.savefig(out / "groups.png", dpi=130)
    test = logrank_test(y, therapy)
    print(f"log-rank {test.statistic:.2f}, p = {test.p_value:.2g}")
    print(restricted_mean_test(y, therapy, 5.0).differences.round(3).to_string())


def uncertainty(out: Path) -> None:
    """A band that shows how much the networks disagree, and a lower bound that 90 % outlive."""
    X, y = trial()
    X_train, X_test, y_train, _ = train_test_split(X, y, random_state=0, stratify=y["event"])
    model = Conformal(estimator=SumoNet(random_state=0), random_state=0).fit(X_train, y_train)
    order = np.argsort(model.predict(X_test))
    some = X_test.iloc[order[[len(order) // 20, len(order) // 2, -len(order) // 20]]]
    labels = ["low risk", "medium risk", "high risk"]
    ax = plots.plot_survival(
        model.predict_distribution(some), band=model.predict_members(some), labels=labels, unit="years"
    )
    bounds = model.lower_bound(some)
    for bound, label, colour in zip(bounds, labels, ("#0072B2", "#D55E00", "#009E73")):
        ax.plot([bound], [0.0], "v", color=colour, ms=9, mec="white", clip_on=False, zorder=5)
        print(f"{label}: nine of ten have no event before {bound:.2f} years")
    ax.figure.savefig(out / "band.png", dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--only", choices=["judge", "groups", "uncertainty"])
    arguments = parser.parse_args()
    for picture in (groups, judge, uncertainty):
        if arguments.only in (None, picture.__name__):
            picture(arguments.out)


if __name__ == "__main__":
    main()
