"""What does conformal recalibration change? D-calibration, likelihood and concordance, and coverage of lower bounds.

Each model is fitted to the training rows of a fold (with four fifths of them for ``fraction=0.2``, with all of them for
``cv=5``), and scored on the test rows before and after recalibration. The second part simulates samples and
counts how many new subjects outlive their lower bound.

    python benchmarks/conformal.py --data ../shared/data --out results     # half an hour on one core
    python benchmarks/page.py

One thread.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from _record import make_record, save_record
from sklearn.model_selection import StratifiedKFold

from sumosurv import Conformal, CoxPH, DeepHit, SumoNet, Surv, check_outcome, datasets
from sumosurv.scores import concordance_td, d_calibration, log_likelihood
from sumosurv.training.batches import split_rows

PAPER = ("metabric", "gbsg", "flchain", "support")
ZOO = ("actg", "breast", "divorce", "nwtco", "pbc", "prostate")
QUIET = {"device": "cpu"}
MODELS = {
    "CoxPH": (lambda seed: CoxPH(), {"fraction": 0.2}),
    "CoxPH, cv=5": (lambda seed: CoxPH(), {"cv": 5}),
    "DeepHit": (lambda seed: DeepHit(random_state=seed, **QUIET), {"fraction": 0.2}),
    "SumoNet": (lambda seed: SumoNet(random_state=seed, **QUIET), {"fraction": 0.2}),
}
SAMPLES, ROWS, FRESH = 100, 400, 1000


def tables(folder: Path):
    for name in ZOO:
        path = folder / "zoo" / f"{name}.parquet"
        if path.is_file():
            frame = pd.read_parquet(path)
            y = Surv.from_arrays(frame["event"].to_numpy() > 0, frame["time"].to_numpy(float))
            yield name, frame.drop(columns=["time", "event"]), y
    for name in PAPER:
        data = datasets.load(name)
        yield name, data.X, data.y


def before_and_after(folder: Path, folds: int, keep) -> None:
    """Scores of each table, handed over as they grow."""
    rows = []
    for table, X, y in tables(folder):
        splits = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y["event"]))
        splits = splits[:folds]
        for fold, (train, test) in enumerate(splits):
            grid = np.unique(np.quantile(y["time"][train][y["event"][train]], np.linspace(0, 1, 101)))
            for name, (make, settings) in MODELS.items():
                model = Conformal(estimator=make(fold), random_state=fold, **settings).fit(X.iloc[train], y[train])
                base = model.estimator_.predict_distribution(X.iloc[test])
                both = {"before": base, "after": model.predict_distribution(X.iloc[test])}
                if "cv" not in settings:
                    seed = int(np.random.RandomState(fold).randint(0, 2**31 - 1))
                    _, held_out = split_rows(check_outcome(y[train]), seed, model.fraction)
                    X_own, y_own = X.iloc[train].iloc[held_out], y[train][held_out]
                    counted = Conformal.of(model.estimator_, X_own, y_own, shrink=False)
                    both["after, not shrunk"] = counted.predict_distribution(X.iloc[test])
                for when, d in both.items():
                    calibrated = d_calibration(d, y[test])
                    rows.append(
                        {"table": table, "fold": fold, "model": name, "when": when, "rows": len(test)}
                        | {"calibration_rows": model.n_calibration_, "d_calibration": calibrated.score}
                        | {"p": calibrated.p_value, "log_likelihood": float(log_likelihood(d, y[test]).mean())}
                        | {"concordance": concordance_td(d, y[test], times=grid, method="adj_antolini")}
                    )
                print(pd.DataFrame(rows[-len(both) :]).round(5).to_string(header=False), flush=True)
        keep(rows)


def bounds() -> list[dict]:
    """Coverage of lower bounds by a Cox model: right or wrong, censoring that depends on x or not."""
    rows = []
    for depends in (False, True):
        for sees in ("x", "noise"):
            for known in ("Kaplan-Meier", "CoxPH"):
                held = {0.8: [], 0.9: [], 0.95: []}
                bound = {level: [] for level in held}
                for seed in range(SAMPLES):
                    rng = np.random.default_rng(seed)
                    x = rng.normal(size=(ROWS + FRESH, 3))
                    t = np.exp(0.8 * x[:, 0]) * rng.weibull(1.5, len(x))
                    c = np.exp(0.5 + 0.8 * depends * x[:, 0]) * rng.exponential(1.0, len(x))
                    y = Surv.from_arrays(t <= c, np.minimum(t, c))[:ROWS]
                    # a model that sees noise alone can use x for censoring only if it is among its columns
                    X = pd.DataFrame({"x": x[:, 0], "a": x[:, 1], "b": x[:, 2]})
                    if sees == "noise":
                        X = X[["a", "b"]]
                    model = Conformal(
                        estimator=CoxPH(),
                        fraction=0.5,
                        censoring=CoxPH() if known == "CoxPH" else None,
                        random_state=seed,
                    ).fit(X[:ROWS], y)
                    for level in held:
                        found = model.lower_bound(X[ROWS:], level)
                        held[level].append(float((t[ROWS:] >= found).mean()))
                        bound[level].append(float(found.mean()))
                for level in held:
                    rows.append(
                        {"censoring depends on x": depends, "model sees": sees, "censoring by": known, "level": level}
                        | {"held": float(np.mean(held[level])), "error": float(np.std(held[level]) / SAMPLES**0.5)}
                        | {"mean bound": float(np.mean(bound[level]))}
                    )
                    print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--folds", type=int, default=1)
    parser.add_argument("--part", choices=["models", "bounds"], help="one of the two alone")
    parser.add_argument("--out", type=Path, help="folder for the record")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", "Columns left out")
    warnings.filterwarnings("ignore", ".*values were not seen")
    settings = {"folds": arguments.folds, "samples": SAMPLES, "rows": ROWS, "fresh": FRESH}

    def keep(name: str, rows: list[dict]) -> None:
        if arguments.out:
            save_record(make_record(name, settings, {"rows": rows}), arguments.out)

    if arguments.part != "models":
        keep("conformal_bounds", bounds())
    if arguments.part != "bounds":
        before_and_after(arguments.data, arguments.folds, lambda rows: keep("conformal", rows))


if __name__ == "__main__":
    main()
