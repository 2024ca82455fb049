"""SuMo-net on real data: recurrence-free survival of 686 women in a breast cancer trial (GBSG2, bundled).

Fits the untuned default, evaluates it against a Cox model and Kaplan-Meier on held-out rows, and draws three pictures.

    python examples/demo.py --out demo
"""

import argparse
import time
from pathlib import Path

import matplotlib as mpl
from sklearn.model_selection import train_test_split

from sumosurv import CoxPH, KaplanMeier, SumoNet, Surv, datasets, scores
from sumosurv.plots import plot_risk_groups, plot_survival, plot_training


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the pictures")
    arguments = parser.parse_args()
    mpl.use("agg")
    arguments.out.mkdir(parents=True, exist_ok=True)

    data = datasets.load("gbsg2")
    y = Surv.from_arrays(data.y["event"], data.y["time"] / 365.25)  # in years
    X_train, X_test, y_train, y_test = train_test_split(data.X, y, test_size=0.3, random_state=0, stratify=y["event"])
    print(f"{data.description}\n\n{len(X_train)} rows to train on, {len(X_test)} to test on.\n", flush=True)

    started = time.perf_counter()
    model = SumoNet(random_state=0).fit(X_train, y_train)
    print(f"{model.n_members_} networks in {time.perf_counter() - started:.0f} s. Components and their weights:")
    print(model.components_.round(3).to_string(index=False))

    models = {"Kaplan-Meier": KaplanMeier().fit(X_train, y_train), "Cox": CoxPH().fit(X_train, y_train)}
    chosen = ["log_likelihood", "integrated_brier", "concordance_td"]
    print(f"\n{scores.evaluate(models | {'SumoNet': model}, X_test, y_test, scores=chosen)}\n")

    by_risk = model.predict(X_test).argsort()
    rows = X_test.iloc[by_risk[[len(by_risk) // 10, len(by_risk) // 2, -len(by_risk) // 10]]]
    nodes = ["1 positive node" if n == 1 else f"{n} positive nodes" for n in rows["positive_nodes"]]
    labels = [f"{grade}, {n}" for grade, n in zip(rows["tumour_grade"], nodes)]
    for label, alive, expected in zip(
        labels, model.predict_survival_function(rows, [5.0])[:, 0], model.predict_restricted_mean(rows, 5.0)
    ):
        print(f"grade {label:28s}{alive:6.0%} free of recurrence at 5 years; {expected:.1f} of 5 years expected")

    few = model.predict_distribution(rows)
    labels = [f"grade {label}" for label in labels]
    for name, axes in (
        ("survival_curves", plot_survival(few, labels=labels, unit="years", horizon=1.4 * model.last_time_)),
        ("risk_groups", plot_risk_groups(model.predict_distribution(X_test), y_test, unit="years")),
        ("training", plot_training(model.history_)),
    ):
        path = arguments.out / f"{name}.png"
        axes.figure.savefig(path, dpi=150)
        print(f"picture: {path}")


if __name__ == "__main__":
    main()
