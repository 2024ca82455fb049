"""Every method with its default setting on the fixed folds of the four real datasets.

Trains on the training rows of each fold, stops early on its validation rows where the method has any use for
them, scores on its test rows; nothing is chosen on test rows. S_L is on the paper's scale (durations min-max scaled
on the training rows); a star marks methods without a density of their own, whose S_L comes from the interpolated
density of half-width 2 (of a forest with its own default). IBS and IBLL in pycox's convention: Kaplan-Meier of the
test fold's censoring, weights normalised, 100 times from the smallest to the largest test duration. The last
lines say which bars hold.

    python benchmarks/methods.py --out results
    python benchmarks/methods.py --methods CoxPH DeepSurv --datasets gbsg --folds 0 1
"""

import argparse
import inspect
import json
import time
from pathlib import Path

import numpy as np
import torch

import sumosurv
from sumosurv import Surv, datasets, kaplan_meier
from sumosurv.experiments._record import make_record, save_record
from sumosurv.scores import (
    concordance_td,
    d_calibration,
    integrated_binomial_log_likelihood,
    integrated_brier,
    log_likelihood,
)

DATASETS = ("metabric", "gbsg", "flchain", "support")
METHODS = (
    "KaplanMeier",
    "CoxPH",
    "DeepSurv",
    "CoxCC",
    "CoxTime",
    "DeepHit",
    "WeibullNet",
    "LogNormalNet",
    "RandomSurvivalForest",
    "Soden",
    "SurvNode",
    "SumoNet",
)
INTERPOLATED = {"KaplanMeier", "CoxPH", "DeepSurv", "CoxCC", "CoxTime", "RandomSurvivalForest"}
# the paper's table of the time-dependent concordance
PAPER_CTD = {
    "CoxPH": {"metabric": 0.633, "gbsg": 0.660, "flchain": 0.792, "support": 0.596},
    "DeepSurv": {"metabric": 0.645, "gbsg": 0.671, "flchain": 0.791, "support": 0.609},
    "CoxTime": {"metabric": 0.649, "gbsg": 0.678, "flchain": 0.792, "support": 0.613},
    "DeepHit": {"metabric": 0.692, "gbsg": 0.683, "flchain": 0.796, "support": 0.642},
}
COLUMNS = ("S_L", "IBLL", "IBS", "Ctd", "D_calibration_p", "fit_seconds", "predict_seconds")


def score_fold(method, options, data, fold, seed):
    """One method on one fold."""
    train, valid, test = fold
    estimator = getattr(sumosurv, method)
    y_train, y_test = data.y[train], data.y[test]
    accepted = inspect.signature(estimator).parameters
    settings = ({"random_state": seed} if "random_state" in accepted else {}) | options
    model = estimator(**{name: value for name, value in settings.items() if name in accepted})
    started = time.perf_counter()
    if "validation_data" in inspect.signature(model.fit).parameters:
        model.fit(data.X.iloc[train], y_train, validation_data=(data.X.iloc[valid], data.y[valid]))
    else:
        model.fit(data.X.iloc[train], y_train)
    fit_seconds = time.perf_counter() - started
    low, high = y_test["time"].min(), y_test["time"].max()
    grid = np.linspace(low, high, 100)
    started = time.perf_counter()
    model.predict_survival_function(data.X.iloc[test], grid)
    predict_seconds = time.perf_counter() - started
    distribution = model.predict_distribution(data.X.iloc[test])
    flipped = kaplan_meier(Surv.from_arrays(~y_test["event"], y_test["time"]))
    pycox = {"censoring": flipped, "times": grid, "rule": "simpson", "normalize": True, "on_zero": "drop"}
    shift = y_test["event"].mean() * np.log(y_train["time"].max() - y_train["time"].min())
    return {
        "S_L": float(log_likelihood(distribution, y_test).mean() + shift),
        "IBLL": float(integrated_binomial_log_likelihood(distribution, y_test, floor=1e-7, **pycox).mean()),
        "IBS": float(integrated_brier(distribution, y_test, **pycox).mean()),
        "Ctd": float(concordance_td(distribution, y_test)),
        "D_calibration_p": float(d_calibration(distribution, y_test).p_value),
        "fit_seconds": fit_seconds,
        "predict_seconds": predict_seconds,
    }


def verdicts(rows):
    """Lines that say which bars hold, for the methods and datasets that were run."""
    mean = {(row["dataset"], row["method"]): {name: row[name] for name in COLUMNS} for row in rows}
    lines = []
    for (name, method), values in mean.items():
        floor = mean.get((name, "KaplanMeier"))
        if floor is not None and method != "KaplanMeier":
            for score, better in (("S_L", values["S_L"] > floor["S_L"]), ("IBS", values["IBS"] < floor["IBS"])):
                if not better:
                    lines.append(f"{method} on {name}: {score} no better than Kaplan-Meier's")
        if method in PAPER_CTD and abs(gap := values["Ctd"] - PAPER_CTD[method][name]) > 0.02:
            side = "above" if gap > 0 else "below"
            lines.append(f"{method} on {name}: Ctd more than 0.02 {side} the paper's {PAPER_CTD[method][name]:.3f}")
    return lines or ["every bar that could be checked holds"]


def page(record) -> str:
    """The record as a page."""
    rows = record["results"]["rows"]
    folds = sorted({len(row["folds"]) for row in rows})
    lines = [
        "# Every method with its default setting",
        "",
        "Made by `benchmarks/methods.py`; what the columns mean is said there and in [methods](methods.md).",
        f"Test folds averaged: {' or '.join(map(str, folds))}. Nothing was chosen on test rows.",
    ]
    for name in dict.fromkeys(row["dataset"] for row in rows):
        lines += [
            "",
            f"## {name.upper()}",
            "",
            "| | S_L | IBLL | IBS | Ctd | D-calibration p < .05 | fit s | predict s |",
        ]
        lines.append("|---|" + "---|" * 7)
        for row in rows:
            if row["dataset"] == name:
                rejected = sum(fold["D_calibration_p"] < 0.05 for fold in row["folds"])
                lines.append(
                    f"| {row['method']}{' *' if row['interpolated'] else ''} | {row['S_L']:.4f} | {row['IBLL']:.4f} | "
                    f"{row['IBS']:.4f} | {row['Ctd']:.4f} | {rejected} of {len(row['folds'])} | "
                    f"{row['fit_seconds']:.2f} | {row['predict_seconds']:.3f} |"
                )
    machine, versions = record["machine"], record["versions"]
    lines += ["", "\\* interpolated density", "", *(f"- {note}" for note in record["results"]["notes"]), ""]
    lines += [f"{machine['cores']} cores ({machine['processor']}), torch {versions['torch']}.", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=DATASETS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--folds", nargs="+", type=int, default=list(range(5)), choices=range(5))
    parser.add_argument("--options", type=json.loads, default={}, help="other than defaults: '{\"ensemble_size\": 1}'")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for the JSON record")
    parser.add_argument("--page", type=Path, help="write a page with the tables here")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.datasets:
        data = datasets.load(name)
        print(f"\n{name}, mean of test folds {' '.join(map(str, arguments.folds))}", flush=True)
        print(f"{'':22s}     S_L    IBLL     IBS     Ctd  D-cal p < .05   fit s  predict s")
        for method in arguments.methods:
            folds = [
                score_fold(method, arguments.options, data, datasets.fold(name, i), arguments.seed + i)
                for i in arguments.folds
            ]
            mean = {column: float(np.mean([fold[column] for fold in folds])) for column in COLUMNS}
            rejected = sum(fold["D_calibration_p"] < 0.05 for fold in folds)
            print(
                f"{method:20s} {'*' if method in INTERPOLATED else ' '} {mean['S_L']:8.4f} {mean['IBLL']:7.4f} "
                f"{mean['IBS']:7.4f} {mean['Ctd']:7.4f} {rejected:7d} of {len(folds)} "
                f"{mean['fit_seconds']:9.2f} {mean['predict_seconds']:9.3f}",
                flush=True,
            )
            rows.append({"dataset": name, "method": method, "interpolated": method in INTERPOLATED, **mean})
            rows[-1]["folds"] = folds
    print("\n* density interpolated with half-width 2 (the forest's: in windows of a twentieth of the event times)")
    for line in (notes := verdicts(rows)):
        print(line)
    configuration = {"seed": arguments.seed, "options": arguments.options, "threads": torch.get_num_threads()}
    record = make_record("methods", configuration, {"rows": rows, "notes": notes})
    if arguments.out:
        save_record(record, arguments.out)
    if arguments.page:
        arguments.page.write_text(page(record), encoding="utf-8")


if __name__ == "__main__":
    main()
