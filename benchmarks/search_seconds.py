"""Seconds of a whole search: 300 trials of SuMo-net on the five fixed folds of one dataset.

The search is compared with training its networks one by one, estimated from a few of them in the same run.

    python benchmarks/search_seconds.py --threads 2 --out results
    python benchmarks/search_seconds.py --device cuda --threads 1 --out results
    python benchmarks/search_seconds.py --device cuda --threads 1 --dataset support --out results
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from _record import make_record, save_record

from sumosurv import SumoNet, SumoNetSearch, datasets
from sumosurv.search import fit_folds


def one_by_one(search, fold, count):
    """Seconds of one trial trained alone, the mean over the first few trials of a search."""
    X, y, validation_data = fold
    spent = []
    for parameters in search.cv_results_["params"][:count]:
        model = SumoNet(n_members=1, random_state=0, device=search.estimator.device).set_params(**parameters)
        started = time.perf_counter()
        model.fit(X, y, validation_data=validation_data)
        spent.append(time.perf_counter() - started)
    return float(np.mean(spent))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="metabric", choices=("metabric", "gbsg", "flchain", "support"))
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--space", default="recipe", choices=("recipe", "paper"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=2, help="of the CPU")
    parser.add_argument("--alone", type=int, default=5, help="trials that are trained one by one, for comparison")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for the JSON record")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = datasets.load(options.dataset)
    folds = []
    for i in range(5):
        train, valid, _ = datasets.fold(options.dataset, i)
        folds.append((data.X.iloc[train], data.y[train], (data.X.iloc[valid], data.y[valid])))
    search = SumoNetSearch(
        SumoNet(device=options.device),
        space=options.space,
        n_trials=options.trials,
        random_state=options.seed,
        verbose=True,
    )
    started = time.perf_counter()
    fitted = fit_folds(search, folds)
    seconds = time.perf_counter() - started
    alone = one_by_one(fitted[0], folds[0], options.alone) * options.trials * len(folds)
    where = torch.cuda.get_device_name() if options.device == "cuda" else f"{options.threads} CPU threads"
    print(f"\n{options.trials} trials × {len(folds)} folds of {options.dataset}, {options.space} space, {where}:")
    print(f"  side by side {seconds:.0f} s; one by one about {alone:.0f} s ({alone / seconds:.1f} times as long)")
    record = make_record(
        f"search_seconds_{options.device}" + ("" if options.dataset == "metabric" else f"_{options.dataset}"),
        {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()},
        {"device": where, "seconds": seconds, "one_by_one_seconds": alone, "ratio": alone / seconds},
    )
    if options.out:
        save_record(record, options.out)


if __name__ == "__main__":
    main()
