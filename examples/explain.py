"""What a model makes of its columns: the pictures of docs/explanations.md, from FLCHAIN.

python examples/explain.py --out docs/figures
"""

import argparse
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

from sumosurv import SumoNet, Surv, datasets, explain, plots

YEAR = 365.25


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("explained"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    X, y = datasets.load("flchain")
    X = X.assign(sex=X["sex"].map({0.0: "woman", 1.0: "man"}).astype("category"))
    y = Surv.from_arrays(y["event"], y["time"] / YEAR)
    train, _, test = datasets.fold("flchain", 0)
    model = SumoNet(random_state=0).fit(X.iloc[train], y[train])
    X_test, y_test = X.iloc[test], y[test]

    effects(model, X_test, out)
    importance(model, X_test, y_test, out)
    shapley(model, X_test, X.iloc[train], out)
    contrasts(model, X_test, out)


def effects(model, X, out):
    figure, axes = plt.subplots(2, 2, figsize=(12.5, 8.4), layout="constrained")
    ages = explain.partial_dependence(model, X, "age", times=[2.0, 5.0, 10.0])
    print(ages, "\n")
    plots.plot_effect(ages, times=10.0, unit="years", ax=axes[0, 0])
    axes[0, 0].set_title("partial dependence, single rows")
    plots.plot_effect(ages, unit="years", ax=axes[0, 1])
    axes[0, 1].set_title("partial dependence")
    chains = explain.accumulated_local_effects(model, X, "lambda", times=[2.0, 5.0, 10.0], max_rows=None)
    plots.plot_effect(chains, unit="years", ax=axes[1, 0])
    axes[1, 0].set_title("accumulated local effects")
    years = explain.partial_dependence(model, X, "flc.grp", quantity="restricted_mean", times=10.0)
    plots.plot_effect(years, unit="years", individual=False, ax=axes[1, 1])
    axes[1, 1].set_title("partial dependence of the restricted mean")
    save(figure, out / "explain_effects.png")
    both = explain.partial_dependence(model, X, ["age", "lambda"], times=10.0, max_rows=300)
    save(plots.plot_effect(both, unit="years").figure, out / "explain_two_way.png")


def importance(model, X, y, out):
    figure, axes = plt.subplots(1, 2, figsize=(12.5, 4.2), layout="constrained")
    together = {name: [name] for name in X if name not in ("kappa", "lambda", "flc.grp")}
    together["light chains"] = ["kappa", "lambda", "flc.grp"]
    found = explain.permutation_importance(model, X, y, columns=together)
    print(found, "\n")
    plots.plot_importance(found, ax=axes[0])
    over_time = explain.permutation_importance(
        model, X, y, scores="brier", times=[1, 2, 4, 6, 8, 10, 12], columns=together, n_repeats=5
    )
    plots.plot_importance(over_time, unit="years", max_columns=4, ax=axes[1])
    save(figure, out / "explain_importance.png")


def shapley(model, X, background, out):
    subjects = X.iloc[:: len(X) // 100][:100]
    shap = explain.survshap(model, subjects, background)
    print(shap, "\n")
    figure, axes = plt.subplots(1, 2, figsize=(13.5, 4.4), layout="constrained")
    oldest = int(subjects["age"].to_numpy().argmax())
    plots.plot_survshap(shap, oldest, unit="years", ax=axes[0])
    axes[0].set_title("one subject")
    plots.plot_survshap(shap, time=shap.quantity.times[34], unit="years", ax=axes[1])
    axes[1].set_title("100 subjects")
    save(figure, out / "explain_shap.png")


def contrasts(model, X, out):
    found = explain.standardised_contrast(model, X, "sex", ("man", "woman"), horizons=[5.0, 10.0])
    print(found)
    figure, axes = plt.subplots(1, 2, figsize=(12.5, 4.2), layout="constrained")
    plots.plot_contrast(found, difference=False, unit="years", ax=axes[0])
    plots.plot_contrast(found, unit="years", ax=axes[1])
    save(figure, out / "explain_contrast.png")


def save(figure, path):
    figure.savefig(path, dpi=110)
    plt.close(figure)
    print(f"picture: {path}\n", flush=True)


if __name__ == "__main__":
    main()
