"""Test log-likelihood of the untuned default on the fixed folds of the four real datasets.

Models are fitted to the training rows, with early stopping on the validation rows, and scored on the test rows. S_L is
on the paper's scale (times min-max scaled on the training rows). The paper's results, shown for comparison, were tuned
and selected on test rows.

    python benchmarks/default_likelihood.py --out results --page docs/default_likelihood.md
    python benchmarks/default_likelihood.py --models default --out results --page docs/default_likelihood.md
"""

import argparse
import json
import textwrap
import time
from pathlib import Path

import numpy as np
import torch
from _record import make_record, save_record

from sumosurv import PaperSumoNet, SumoNet, datasets, kaplan_meier
from sumosurv.scores import log_likelihood

PAPER = {"metabric": -0.142, "gbsg": -0.391, "flchain": -0.376, "support": 0.658}
MODELS = {
    "default": {"random_state": 0},
    "default, one network": {"random_state": 0, "components": "networks", "n_members": 1},
    "paper, one network": {"random_state": 0, "n_members": 1},
    "paper, default size": {"random_state": 0},
}


def paper_scale(y_train, y) -> float:
    """What turns a mean log-likelihood per user's unit into the paper's: event share × log(max - min)."""
    return float(y["event"].mean() * np.log(y_train["time"].max() - y_train["time"].min()))


def score_fold(name, settings, data, fold, seed):
    train, valid, test = fold
    y_train, y_test = data.y[train], data.y[test]
    started = time.process_time()
    make = PaperSumoNet if name.startswith("paper") else SumoNet
    model = make(**(settings | {"random_state": settings["random_state"] + seed}))
    model.fit(data.X.iloc[train], y_train, validation_data=(data.X.iloc[valid], data.y[valid]))
    seconds = time.process_time() - started
    shift = paper_scale(y_train, y_test)
    marginal = log_likelihood(kaplan_meier(y_train).repeat(len(test)), y_test).mean()
    value = model.score(data.X.iloc[test], y_test)
    return {"S_L": value + shift, "S_L_days": value, "kaplan_meier_k2": float(marginal + shift), "fit_seconds": seconds}


NAMES = {  # in the table of the page
    "default": "`SumoNet()`",
    "default, one network": "`SumoNet`, one network",
    "paper, default size": "`PaperSumoNet()`",
    "paper, one network": "`PaperSumoNet`, one network",
}


def page(record) -> str:
    """The record as a page."""
    rows = record["results"]["rows"]
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    folds = {(row["dataset"], current_label(row["model"])): row["folds"] for row in rows}
    mean = {key: np.mean([fold["S_L"] for fold in found]) for key, found in folds.items()}
    ahead = [name for name in names if mean[name, "default"] > PAPER[name]]
    seconds = [np.mean([fold["fit_seconds"] for fold in folds[name, "default"]]) for name in names]
    base = [np.mean([fold["kaplan_meier_k2"] for fold in folds[name, "default"]]) for name in names]
    machine, versions = record["machine"], record["versions"]
    lines = [
        "# The untuned default on the fixed folds",
        "",
        textwrap.fill(
            "Without tuning, `SumoNet()` has a higher test log-likelihood than the paper's tuned SuMo-net on "
            f"{len(ahead)} of {len(names)} datasets. Its default settings were chosen after seeing scores on these "
            "datasets, so its results here are optimistic; the [neutral benchmark](neutral.md) was run only later.",
            120,
        ),
        "",
        "| mean log-likelihood | " + " | ".join(name.upper() for name in names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for label, shown in NAMES.items():
        values = [np.array([fold["S_L"] for fold in folds[name, label]]) for name in names]
        lines.append(f"| {shown} | " + " | ".join(f"{v.mean():.4f} ± {v.std():.3f}" for v in values) + " |")
    lines += [
        "| Kaplan-Meier (interpolated density) | " + " | ".join(f"{value:.4f}" for value in base) + " |",
        "| the paper's SuMo-net (tuned, selected on test rows) | "
        + " | ".join(f"{PAPER[name]:.3f}" for name in names)
        + " |",
        "| processor seconds per fit, `SumoNet()` | " + " | ".join(f"{value:.0f}" for value in seconds) + " |",
        "",
        textwrap.fill(
            "**Protocol.** Models are fitted to the training rows of each of five fixed folds, with early stopping on "
            "the validation rows, and scored on the test rows. The table shows the mean ± standard deviation over the "
            "folds of the right-censored log-likelihood on the paper's scale (times min-max scaled on the training "
            "rows; higher is better). The paper's figures are from other splits, and from the best of 300 trials by "
            "the likelihood of the test fold. The Kaplan-Meier density is interpolated with half-width 2.",
            120,
        ),
        "",
        textwrap.fill(
            f"Measured at commit {record['commit']} on {machine['cores']} cores ({machine['processor']}) with torch "
            f"{versions['torch']}, one thread per fit. The record `results/default_likelihood.json` is made by",
            120,
        ),
        "",
        "    python benchmarks/default_likelihood.py --out results --page docs/default_likelihood.md",
        "",
        "`--stored` writes this page from the record without running anything.",
        "",
    ]
    return "\n".join(lines)


def current_label(label) -> str:
    """The label of a model; records made before `PaperSumoNet` was a class have another."""
    return label.replace("variant='paper'", "paper")


def stored_rows(folder) -> list:
    """What a record holds already: models and datasets that are not run again stay in it."""
    path = None if folder is None else folder / "default_likelihood.json"
    if path is None or not path.is_file():
        return []
    rows = json.loads(path.read_text(encoding="utf-8"))["results"]["rows"]
    return [row | {"model": current_label(row["model"])} for row in rows if current_label(row["model"]) in MODELS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=list(PAPER), choices=list(PAPER))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seed", type=int, default=0, help="added to random_state")
    parser.add_argument("--out", type=Path, help="folder for the JSON record")
    parser.add_argument("--page", type=Path, help="write a page with the table here")
    parser.add_argument("--stored", action="store_true", help="write the page from the record in --out, without a run")
    arguments = parser.parse_args()
    if arguments.stored:
        record = json.loads((arguments.out / "default_likelihood.json").read_text(encoding="utf-8"))
        arguments.page.write_text(page(record), encoding="utf-8")
        return
    rows = []
    for name in arguments.datasets:
        data = datasets.load(name)
        print(f"\n{name}: S_L on the paper's scale, five test folds (paper, selected on test: {PAPER[name]:.3f})")
        for label in arguments.models:
            folds = [score_fold(label, MODELS[label], data, datasets.fold(name, i), arguments.seed) for i in range(5)]
            values = np.array([fold["S_L"] for fold in folds])
            seconds = np.mean([fold["fit_seconds"] for fold in folds])
            print(f"  {label:32s} {values.mean():8.4f} ± {values.std():.3f}   {seconds:6.1f} s per fit", flush=True)
            rows.append(
                {"dataset": name, "model": label, "settings": MODELS[label], "folds": folds, "S_L": values.mean()}
            )
        base = np.mean([fold["kaplan_meier_k2"] for fold in folds])
        print(f"  {'Kaplan-Meier (density k = 2)':32s} {base:8.4f}")
    ran = {(row["dataset"], row["model"]) for row in rows}
    rows += [row for row in stored_rows(arguments.out) if (row["dataset"], row["model"]) not in ran]
    rows.sort(key=lambda row: (list(PAPER).index(row["dataset"]), list(MODELS).index(row["model"])))
    record = make_record(
        "default_likelihood", {"seed": arguments.seed, "threads": torch.get_num_threads()}, {"rows": rows}
    )
    if arguments.out:
        save_record(record, arguments.out)
    if arguments.page:
        arguments.page.write_text(page(record), encoding="utf-8")


if __name__ == "__main__":
    main()
