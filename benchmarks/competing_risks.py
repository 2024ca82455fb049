"""Competing risks on real tables, and age as the time scale: SumoNet and the usual methods.

On mgus2, pbc and melanoma, the scores are the mean log-likelihood of the test rows (step curves: by the interpolated
density) and the integrated Brier score of each cause from the 2 % to the 90 % quantile of the test times, with G by
Kaplan-Meier of the test rows. There are five stratified folds (seed 0). SurvivalBoost is included if the package
hazardous is installed. In nafld_age every row has delayed entry; the scores are the log-likelihood and scores of the
time since entry.

    python benchmarks/competing_risks.py --data ../shared/data/outcomes --out results
    python benchmarks/competing_risks.py --data ... --datasets melanoma --methods SumoNet "Cox per cause"

Each fit uses one thread; --jobs sets the number of processes. Rows of a record in --out that are not made again stay.
"""

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from _record import current_commit, make_record, save_record
from sklearn.model_selection import StratifiedKFold

from sumosurv import AalenJohansen, CauseSpecific, CoxPH, DeepHit, FineGray, KaplanMeier, SumoNet, Surv, kaplan_meier
from sumosurv.distributions import Tabulated
from sumosurv.scores import evaluate, integrated_brier, log_likelihood

CAUSES = ("mgus2", "pbc", "melanoma")
METHODS = {
    "Aalen-Johansen": AalenJohansen,
    "Cox per cause": lambda: CauseSpecific(CoxPH(missing="indicator")),
    "Fine-Gray": lambda: FineGray(missing="indicator"),
    "DeepHit": lambda: DeepHit(random_state=0),
    "SurvivalBoost": None,
    "SumoNet": lambda: SumoNet(random_state=0),
}
AGE_METHODS = {
    "Kaplan-Meier": KaplanMeier,
    "CoxPH": lambda: CoxPH(missing="indicator"),
    "SumoNet": lambda: SumoNet(random_state=0),
}
AGE_SCORES = ("log_likelihood", "concordance_td", "integrated_brier", "d_calibration")


def numbers(X):
    """Categories as codes, for a method that reads numbers."""
    coded = {c: pd.Categorical(X[c]).codes for c in X if not pd.api.types.is_numeric_dtype(X[c])}
    return X.assign(**coded).astype(float)


def boost(X, y, train, test, grid):
    """The curves of SurvivalBoost, on the grid."""
    from hazardous import SurvivalBoost

    target = pd.DataFrame({"event": y["event"][train], "duration": y["time"][train]})
    model = SurvivalBoost(random_state=0, show_progressbar=False).fit(numbers(X).iloc[train], target)
    curves = model.predict_cumulative_incidence(numbers(X).iloc[test], times=grid)
    incidence = np.maximum.accumulate(np.clip(np.moveaxis(curves[:, 1:], 1, 2), 0.0, 1.0), axis=1)
    total = incidence.sum(-1, keepdims=True)[:, -1:]  # rounding may put it above one
    return Tabulated(grid, incidence=incidence / np.maximum(total, 1.0))


def one_fold(task):
    """Fit one method on one fold and score it."""
    folder, dataset, name, fold = task
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    frame = pd.read_parquet(Path(folder) / f"{dataset}.parquet")
    started = time.process_time()
    if dataset in CAUSES:
        X, y = frame.drop(columns=["time", "event"]), Surv.from_arrays(frame["event"], frame["time"])
    else:
        X = frame.drop(columns=["entry", "time", "event"])
        y = Surv.from_arrays(frame["event"], frame["time"], frame["entry"])
    splits = StratifiedKFold(5, shuffle=True, random_state=0).split(X, frame["event"])
    train, test = list(splits)[fold]
    row = {"dataset": dataset, "method": name, "fold": fold}
    if dataset not in CAUSES:
        model = AGE_METHODS[name]().fit(X.iloc[train], y[train])
        table = evaluate(model, X.iloc[test], y[test], scores=AGE_SCORES, n_bootstrap=0).set_index("score")
        return (
            row
            | {score: float(table.loc[score, "value"]) for score in AGE_SCORES}
            | {"seconds": time.process_time() - started}
        )
    grid = np.linspace(*np.quantile(y["time"][test], [0.02, 0.9]), 100)
    if METHODS[name] is None:
        curves, likelihood = boost(X, y, train, test, grid), np.nan
    else:
        curves = METHODS[name]().fit(X.iloc[train], y[train]).predict_distribution(X.iloc[test])
        likelihood = float(log_likelihood(curves, y[test]).mean())
    g = kaplan_meier(Surv.from_arrays(y["event"][test] > 0, y["time"][test]), censoring=True)
    briers = [float(integrated_brier(curves, y[test], censoring=g, times=grid, cause=k).mean()) for k in (1, 2)]
    return row | {
        "log_likelihood": likelihood,
        "ibs_1": briers[0],
        "ibs_2": briers[1],
        "seconds": time.process_time() - started,
    }


def draw(folder, out):
    """mgus2, first fold: two subjects' incidences, and groups of predicted risk against Aalen-Johansen."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from sumosurv.plots import plot_incidences, plot_risk_groups

    frame = pd.read_parquet(Path(folder) / "mgus2.parquet")
    X, y = frame.drop(columns=["time", "event"]), Surv.from_arrays(frame["event"], frame["time"])
    train, test = next(StratifiedKFold(5, shuffle=True, random_state=0).split(X, frame["event"]))
    model = SumoNet(random_state=0).fit(X.iloc[train], y[train])
    curves, names = model.predict_distribution(X.iloc[test]), ["malignancy", "death"]
    risk = curves.cumulative_incidence(120.0)[:, 0]
    figure, axes = plt.subplots(1, 3, figsize=(16, 4.6), layout="constrained", width_ratios=(1, 1, 1.5))
    for ax, subject, who in ((axes[0], int(risk.argmin()), "lowest"), (axes[1], int(risk.argmax()), "highest")):
        plot_incidences(curves, subject=subject, horizon=300.0, labels=names, unit="months", ax=ax)
        ax.set_title(f"the {who} predicted risk of malignancy", fontsize=10)
    axes[0].get_legend().remove()  # the same as beside it
    plot_risk_groups(curves, y[test], cause=1, groups=3, label="malignancy", unit="months", ax=axes[2])
    figure.savefig(Path(out) / "incidences.png", dpi=120)


def stored(path, made):
    """The rows of a record that were not made again."""
    again = {(row["dataset"], row["method"], row["fold"]) for row in made}
    rows = json.loads(path.read_text(encoding="utf-8"))["results"]["folds"] if path.is_file() else []
    return [row for row in rows if (row["dataset"], row["method"], row["fold"]) not in again]


def main():
    """Run all folds and print the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the tables")
    parser.add_argument("--datasets", nargs="+", default=[*CAUSES, "nafld_age"])
    parser.add_argument("--methods", nargs="+", help="names of the table; all by default")
    parser.add_argument("--folds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder for the record")
    parser.add_argument("--figures", type=Path, help="draw the picture of mgus2 into this folder, and nothing else")
    options = parser.parse_args()
    if options.figures is not None:
        draw(options.data, options.figures)
        return
    tasks = [
        (str(options.data), dataset, name, fold)
        for dataset in options.datasets
        for name in (METHODS if dataset in CAUSES else AGE_METHODS)
        for fold in options.folds
        if options.methods is None or name in options.methods
    ]
    rows = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for row in pool.map(one_fold, tasks[::-1]):
            rows.append(row)
            print(row, flush=True)
    table = pd.DataFrame(rows)
    for dataset in options.datasets:
        part = table[table["dataset"] == dataset].dropna(axis=1, how="all")
        print(f"\n{dataset}, means over folds")
        print(part.groupby("method").mean(numeric_only=True).drop(columns="fold").round(4).to_string())
    if options.out is not None:
        settings = {"folds": options.folds, "jobs": options.jobs, "threads": 1}
        for name, own in (("competing_risks", CAUSES), ("age_scale", ("nafld_age",))):
            if made := [row | {"commit": current_commit()} for row in rows if row["dataset"] in own]:
                kept = made + stored(options.out / f"{name}.json", made)
                record = make_record(name, settings, {"folds": kept})
                if len({row.get("commit") for row in kept}) > 1:
                    del record["commit"]  # each row names its own
                save_record(record, options.out)


if __name__ == "__main__":
    main()
