"""How predictions depend on the columns: the pictures of docs/explanations.md, from the bundled GBSG2 trial.

python examples/explain.py --out docs/figures
"""

import argparse
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from sklearn.model_selection import train_test_split

from sumosurv import SumoNet, Surv, datasets, explain, plots

YEAR = 365.25


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("explained"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    X, y = datasets.load("gbsg2")
    y = Surv.from_arrays(y["event"], y["time"] / YEAR)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y["event"])
    model = SumoNet(random_state=0).fit(X_train, y_train)

    effects(model, X_test, out)
    importance(model, X_test, y_test, out)
    shapley(model, X_test, X_train, out)
    contrasts(model, X_test, out)


def effects(model, X, out):
    figure, axes = plt.subplots(2, 2, figsize=(12.5, 8.4), layout="constrained")
    nodes = explain.partial_dependence(model, X, "positive_nodes", times=[1.0, 3.0, 5.0])
    print(nodes, "\n")
    plots.plot_effect(nodes, times=5.0, unit="years", ax=axes[0, 0])
    axes[0, 0].set_title("partial dependence, single rows")
    plots.plot_effect(nodes, unit="years", ax=axes[0, 1])
    axes[0, 1].set_title("partial dependence")
    receptors = explain.accumulated_local_effects(model, X, "progesterone", times=[1.0, 3.0, 5.0], max_rows=None)
    plots.plot_effect(receptors, unit="years", ax=axes[1, 0])
    axes[1, 0].set_title("accumulated local effects")
    years = explain.partial_dependence(model, X, "tumour_grade", quantity="restricted_mean", times=5.0)
    plots.plot_effect(years, unit="years", individual=False, ax=axes[1, 1])
    axes[1, 1].set_title("partial dependence of the restricted mean")
    save(figure, out / "explain_effects.png")
    both = explain.partial_dependence(model, X, ["positive_nodes", "progesterone"], times=5.0, max_rows=300)
    save(plots.plot_effect(both, unit="years").figure, out / "explain_two_way.png")


def importance(model, X, y, out):
    figure, axes = plt.subplots(1, 2, figsize=(12.5, 4.2), layout="constrained")
    together = {name: [name] for name in X if name not in ("progesterone", "oestrogen")}
    together["receptors"] = ["progesterone", "oestrogen"]
    found = explain.permutation_importance(model, X, y, columns=together)
    print(found, "\n")
    plots.plot_importance(found, ax=axes[0])
    over_time = explain.permutation_importance(
        model, X, y, scores="brier", times=[1, 2, 3, 4, 5, 6], columns=together, n_repeats=5
    )
    plots.plot_importance(over_time, unit="years", max_columns=4, ax=axes[1])
    save(figure, out / "explain_importance.png")


def shapley(model, X, background, out):
    subjects = X.iloc[:: len(X) // 100][:100]
    shap = explain.survshap(model, subjects, background)
    print(shap, "\n")
    figure, axes = plt.subplots(1, 2, figsize=(13.5, 4.4), layout="constrained")
    most = int(subjects["positive_nodes"].to_numpy().argmax())
    plots.plot_survshap(shap, most, unit="years", ax=axes[0])
    axes[0].set_title("one subject")
    plots.plot_survshap(shap, time=shap.quantity.times[34], unit="years", ax=axes[1])
    axes[1].set_title("100 subjects")
    save(figure, out / "explain_shap.png")


def contrasts(model, X, out):
    found = explain.standardised_contrast(model, X, "hormone_therapy", ("yes", "no"), horizons=[3.0, 5.0])
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
