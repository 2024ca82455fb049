"""Every method with its default settings on the fixed folds of the four real datasets.

Methods are fitted to the training rows of each fold, with early stopping on the validation rows if they support it, and
scored on the test rows; nothing is chosen on test rows. S_L is on the paper's scale (durations min-max scaled
on the training rows); a star marks methods without a density, whose S_L comes from the interpolated
density of half-width 2 (for the forest, with its own default). IBS and IBLL in pycox's convention: Kaplan-Meier of the
test fold's censoring, weights normalised, 100 times from the smallest to the largest test duration. The last
lines say which checks hold.

    python benchmarks/methods.py --out results --page docs/methods_benchmark.md
    python benchmarks/methods.py --methods CoxPH DeepSurv --datasets gbsg --folds 0 1
    python benchmarks/methods.py --jobs 8 --out results
    python benchmarks/methods.py --merge here/methods.json there/methods.json --out results

A unit of work is a dataset, a method and a fold. ``--jobs`` runs that many units at once, each in a process of
its own (say OMP_NUM_THREADS=1 then). The record in ``--out`` is written after each unit; units that it holds
already and that are run again are replaced, the others stay, and each says on which machine it was run.
"""

import argparse
import inspect
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import torch
from _record import make_record, save_record
from page import prose

import sumosurv
from sumosurv import Surv, datasets, kaplan_meier
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
    "LogLogisticNet",
    "GompertzNet",
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
SLOW = ("support", "flchain")  # begun first, so that no process is left with a long unit at the end


def score_fold(dataset, method, fold, seed, options):
    """One unit: what it is, its scores and seconds, and what it ran on."""
    data = datasets.load(dataset)
    train, valid, test = datasets.fold(dataset, fold)
    estimator = getattr(sumosurv, method)
    y_train, y_test = data.y[train], data.y[test]
    accepted = inspect.signature(estimator).parameters
    settings = ({"random_state": seed + fold} if "random_state" in accepted else {}) | options
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
    scores = {
        "S_L": float(log_likelihood(distribution, y_test).mean() + shift),
        "IBLL": float(integrated_binomial_log_likelihood(distribution, y_test, floor=1e-7, **pycox).mean()),
        "IBS": float(integrated_brier(distribution, y_test, **pycox).mean()),
        "Ctd": float(concordance_td(distribution, y_test, method="adj_antolini")),
        "D_calibration_p": float(d_calibration(distribution, y_test).p_value),
        "fit_seconds": fit_seconds,
        "predict_seconds": predict_seconds,
    }
    return {"dataset": dataset, "method": method, "fold": fold, **scores}


def environment(arguments):
    """What all units of one call have in common: settings, machine, versions."""
    record = make_record("methods", {}, {})
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return {
        "seed": arguments.seed,
        "commit": record["commit"],
        "options": arguments.options,
        "device": arguments.options.get("device", device),
        "threads": torch.get_num_threads(),
        "processes": arguments.jobs,
        "machine": record["machine"],
        "versions": record["versions"],
    }


def run_units(arguments, keep):
    """Run every unit that was asked for, in this process or in several, and hand each to ``keep``."""
    units = [(d, m, f) for d in arguments.datasets for m in arguments.methods for f in arguments.folds]
    settings = (arguments.seed, arguments.options)
    if arguments.jobs == 1:
        for unit in units:
            keep(score_fold(*unit, *settings))
        return
    units.sort(key=lambda unit: unit[0] not in SLOW)
    failed = []
    with ProcessPoolExecutor(arguments.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(score_fold, *unit, *settings): unit for unit in units}
        for done in as_completed(running):
            if (error := done.exception()) is None:
                keep(done.result())
            else:  # the others go on
                failed.append(f"{' '.join(map(str, running[done]))}: {error!r}")
    if failed:
        raise RuntimeError("\n".join(["these units failed:", *failed]))


class Results:
    """Units with the environments they ran in; a unit that is run again takes the place of the older one."""

    def __init__(self):
        self.runs, self.units = [], {}

    def add(self, unit, run):
        """Keep a unit that ran in the environment ``run``."""
        if run not in self.runs:
            self.runs.append(run)
        key = (DATASETS.index(unit["dataset"]), METHODS.index(unit["method"]), unit["fold"])
        self.units[key] = unit | {"run": self.runs.index(run)}

    def merge(self, path):
        """Add all units of a record."""
        results = json.loads(path.read_text(encoding="utf-8"))["results"]
        for unit in results["units"]:
            self.add(unit, results["runs"][unit["run"]])

    def rows(self):
        """Means over the folds of each dataset and method, in the order of the tables."""
        folds = {}
        for key in sorted(self.units):
            folds.setdefault(key[:2], []).append(self.units[key])
        return [self._row(part) for part in folds.values()]

    @staticmethod
    def _row(folds):
        row = {name: folds[0][name] for name in ("dataset", "method")}
        row |= {column: float(np.mean([fold[column] for fold in folds])) for column in COLUMNS}
        row["interpolated"] = row["method"] in INTERPOLATED
        row["rejected"] = sum(fold["D_calibration_p"] < 0.05 for fold in folds)
        return row | {"folds": [fold["fold"] for fold in folds], "runs": sorted({fold["run"] for fold in folds})}

    def record(self):
        """What is written: means, verdicts, units and the environments of those that are left."""
        used = sorted({unit["run"] for unit in self.units.values()})
        self.runs = [self.runs[i] for i in used]
        for key, unit in self.units.items():
            self.units[key] = unit | {"run": used.index(unit["run"])}
        rows = self.rows()
        units = [self.units[key] for key in sorted(self.units)]
        notes = {"kaplan_meier": against_kaplan_meier(rows), "concordance": against_paper(rows)}
        results = {"rows": rows, "notes": notes, "runs": self.runs, "units": units}
        made = make_record("methods", {}, results)
        del made["commit"]  # each run names its own
        return made


def against_kaplan_meier(rows):
    """Lines on whether every method beats Kaplan-Meier on S_L and on IBS."""
    floors = {row["dataset"]: row for row in rows if row["method"] == "KaplanMeier"}
    pairs = [(row, floors[row["dataset"]]) for row in rows if row["dataset"] in floors]
    pairs = [(row, floor) for row, floor in pairs if row["method"] != "KaplanMeier"]
    lines = []
    for row, floor in pairs:
        for score, sign in (("S_L", 1.0), ("IBS", -1.0)):
            if not sign * (row[score] - floor[score]) > 0:
                lines.append(
                    f"{row['method']} on {row['dataset'].upper()}: {score} {row[score]:.4f}, "
                    f"no better than Kaplan-Meier's {floor[score]:.4f}"
                )
    failed = len(lines)
    return [f"{2 * len(pairs) - failed} of {2 * len(pairs)} comparisons hold", *lines]


def against_paper(rows):
    """Lines on whether concordances lie within 0.02 of the paper's table."""
    rows = [row for row in rows if row["method"] in PAPER_CTD]
    lines = []
    for row in rows:
        paper = PAPER_CTD[row["method"]][row["dataset"]]
        if abs(gap := row["Ctd"] - paper) > 0.02:
            side = "above" if gap > 0 else "below"
            lines.append(
                f"{row['method']} on {row['dataset'].upper()}: {row['Ctd']:.3f}, {abs(gap):.3f} {side} the paper's "
                f"{paper:.3f}"
            )
    return [f"{len(rows) - len(lines)} of {len(rows)} comparisons hold", *lines]


def page(record) -> str:
    """The record as a page."""
    results = record["results"]
    rows, notes = results["rows"], results["notes"]
    counts = sorted({len(row["folds"]) for row in rows})
    lines = [
        "# Every method with its default settings",
        "",
        prose(
            "Test scores of every [method](methods.md) on the paper's four datasets. Models are fitted with default "
            "settings, and the scores are means over the test rows of "
            f"{' or '.join(map(str, counts))} folds. `benchmarks/methods.py` describes the scores and makes this page."
        ),
    ]
    for name in dict.fromkeys(row["dataset"] for row in rows):
        lines += ["", f"## {name.upper()}", ""]
        lines += ["| | S_L | IBLL | IBS | Ctd | D-calibration p < .05 | run |", "|---|" + "---|" * 6]
        lines += [_line(row) for row in rows if row["dataset"] == name]
    lines += [
        "",
        "\\* The density is interpolated with half-width 2 (for the forest, over a twentieth of the event times).",
    ]
    lines += ["", "## Checks", "", "Expected of every method: better than Kaplan-Meier on S_L and on IBS.", ""]
    lines += [f"- {note}" for note in notes["kaplan_meier"]]
    lines += [
        "",
        "Expected of Cox-Linear, DeepSurv, Cox-Time and DeepHit: concordance within 0.02 of the paper's table.",
        "",
    ]
    lines += [f"- {note}" for note in notes["concordance"]]
    lines += ["", "## Seconds to fit / to predict", "", *_costs(rows), ""]
    lines += [
        prose(
            "Seconds per fold, without the time to compute scores. Prediction is S at 100 times for all test rows. If "
            "several processes ran at once, the times are longer than for a single process."
        )
    ]
    lines += ["", "## Runs", ""]
    lines += [f"- {_letter(i)}: {_where(run)}" for i, run in enumerate(results["runs"])]
    return "\n".join(lines) + "\n"


def _costs(rows):
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    cells = {
        (row["method"], row["dataset"]): f"{row['fit_seconds']:.2f} / {row['predict_seconds']:.3f}" for row in rows
    }
    lines = ["| | " + " | ".join(name.upper() for name in names) + " |", "|---|" + "---|" * len(names)]
    for method in (method for method in METHODS if any(row["method"] == method for row in rows)):
        lines.append(f"| {method} | " + " | ".join(cells.get((method, name), "") for name in names) + " |")
    return lines


def _letter(i):
    return chr(ord("a") + i)


def _line(row):
    return (
        f"| {row['method']}{' *' if row['interpolated'] else ''} | {row['S_L']:.4f} | {row['IBLL']:.4f} | "
        f"{row['IBS']:.4f} | {row['Ctd']:.4f} | {row['rejected']} of {len(row['folds'])} | "
        f"{', '.join(map(_letter, row['runs']))} |"
    )


def _where(run):
    threads = "1 thread" if run["threads"] == 1 else f"{run['threads']} threads"
    beside = "one process" if run["processes"] == 1 else f"{run['processes']} processes at once"
    options = f", options {json.dumps(run['options'])}" if run["options"] else ""
    machine, versions = run["machine"], run["versions"]
    commit = f", commit {run['commit']}" if "commit" in run else ""
    return (
        f"{run['device']}, {threads}, {beside}, {machine['cores']} cores ({machine['processor']}), "
        f"torch {versions['torch']}, seed {run['seed']}{options}{commit}"
    )


def show(rows) -> None:
    """Print the tables."""
    for name in dict.fromkeys(row["dataset"] for row in rows):
        print(f"\n{name}\n{'':22s}     S_L    IBLL     IBS     Ctd  D-cal p < .05   fit s  predict s")
        for row in rows:
            if row["dataset"] == name:
                print(
                    f"{row['method']:20s} {'*' if row['interpolated'] else ' '} {row['S_L']:8.4f} {row['IBLL']:7.4f} "
                    f"{row['IBS']:7.4f} {row['Ctd']:7.4f} {row['rejected']:7d} of {len(row['folds'])} "
                    f"{row['fit_seconds']:9.2f} {row['predict_seconds']:9.3f}"
                )
    print("\n* density interpolated with half-width 2 (the forest's: in windows of a twentieth of the event times)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=DATASETS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--folds", nargs="+", type=int, default=list(range(5)), choices=range(5))
    parser.add_argument("--options", type=json.loads, default={}, help="other than defaults: '{\"n_members\": 1}'")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="units at once")
    parser.add_argument("--out", type=Path, help="folder for the JSON record, which is added to")
    parser.add_argument("--merge", nargs="*", type=Path, help="run nothing: put these records into that of --out")
    parser.add_argument("--page", type=Path, help="write a page with the tables here")
    arguments = parser.parse_args()
    results, ran = Results(), Results()
    own = None if arguments.out is None else arguments.out / "methods.json"
    if own is not None and own.exists():
        results.merge(own)
    if arguments.merge is not None:
        for path in arguments.merge:
            results.merge(path)
        ran = results
    else:
        run = environment(arguments)

        def keep(unit) -> None:
            print(f"{unit['dataset']} {unit['method']} {unit['fold']}: S_L {unit['S_L']:.4f}", flush=True)
            for part in (results, ran):
                part.add(unit, run)
            if arguments.out is not None:
                save_record(results.record(), arguments.out)

        run_units(arguments, keep)
    show(ran.rows())
    record = results.record()
    for check, notes in record["results"]["notes"].items():
        print("", check.replace("_", "-"), *notes, sep="\n")
    if arguments.out:
        save_record(record, arguments.out)
    if arguments.page:
        arguments.page.write_text(page(record), encoding="utf-8")


if __name__ == "__main__":
    main()
