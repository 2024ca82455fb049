"""The paper's Tables 7 and 8: seconds of prediction on the test fold and of one training epoch, method by method."""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from paper.record import make_record, save_record
from sumosurv import datasets, estimators
from sumosurv.distributions import Rescaled
from sumosurv.networks import Observed
from sumosurv.outcome import Surv, SurvArray, check_outcome

__all__ = [
    "METHODS",
    "NAMES",
    "PUBLISHED_INFERENCE",
    "PUBLISHED_TRAINING",
    "Timing",
    "run",
    "show",
    "time_methods",
    "timed",
]

NAMES = ("support", "metabric", "gbsg", "flchain", "kkbox (simulated)")
METHODS = (
    "SumoNet",
    "CoxTime",
    "DeepSurv",
    "CoxCC",
    "CoxPH",
    "DeepHit",
    "Soden",
    "SurvNode",
    "WeibullNet",
    "LogNormalNet",
)
GRID = 100
QUICK_ROWS = 20_000  # of the stand-in for KKBOX
_PAPER_KKBOX = (1_588_047, 529_349)  # three and one fifth of its 2,646,746 rows
_BLOCK = 20_000  # rows predicted at a time
_ENOUGH = 100_000  # rows that the epochs of a fit see together, unless more repeats are asked for or 20 are done
_MANY = 200_000  # rows from which on one measurement, without warming up, is enough
# one architecture for all: two covariate layers of 32, one layer of 32 where time comes in
SETTINGS: dict[str, Any] = {
    "components": "networks",
    "n_members": 1,
    "covariate_layers": (32, 32),
    "time_layers": (32,),
    "hazard_layers": (32,),
    "frequencies": 0,
    "batch_size": 1000,
    "validation_fraction": 0.0,
    "patience": None,
}

# method -> seconds on support, metabric, gbsg, flchain, kkbox; Soden from Table 7, all others from Table 8
PUBLISHED_INFERENCE: dict[str, tuple[float | None, ...]] = {
    "CoxCC": (0.027, 0.008, 0.008, 0.021, 1.836),
    "CoxPH": (0.026, 0.008, 0.008, 0.021, 1.804),
    "CoxTime": (3.769, 1.586, 1.737, 4.794, 158.141),
    "DeepHit": (0.003, 0.001, 0.002, 0.003, 0.351),
    "DeepSurv": (0.023, 0.008, 0.009, 0.021, 1.814),
    "SumoNet": (0.044, 0.016, 0.021, 0.041, 5.806),
    "Soden": (1.124, 0.459, None, None, None),
}
PUBLISHED_TRAINING: dict[str, tuple[float | None, ...]] = {
    "CoxCC": (0.664, 0.156, 0.194, 0.403, 990.645),
    "CoxPH": (4.565, 0.153, 0.161, 0.394, 990.144),
    "CoxTime": (7.411, 2.676, 2.829, 7.997, 1156.948),
    "DeepHit": (0.347, 0.136, 0.147, 0.208, 872.381),
    "DeepSurv": (0.525, 0.147, 0.159, 0.386, 987.592),
    "SumoNet": (3.236, 0.337, 0.395, 1.605, 700.269),
}

NOTES = (
    "Prediction: S on 100 times from zero to the largest training time for every row of the test fold, from prepared "
    "tensors, as in the paper; 'from table' starts at the DataFrame.",
    "CoxTime on 100 times has its baseline gathered on the same grid as all others. 'CoxTime, all times' is what the "
    "paper timed: all unique training durations, the baseline's computation included; the paper's speed-up of SuMo-net "
    "compares that with SuMo-net on 100 times.",
    "Training is the mean over the epochs of a fit but its first; preparation and baselines do not count. CoxPH has no "
    "epochs: its figure is the whole fit, by Newton's method; the paper's is a linear network.",
    "'vs SuMo' compares the shortest of the repeats, which other work on the machine disturbs least.",
    "The paper's figures are of other machines (1080 Ti), networks and batch sizes: compare the ratios.",
    "kkbox (simulated) is made up in the form of KKBOX, with times rounded up to whole days as in KKBOX.",
)


_NOTES = "\n".join(f"({i}) {note}" for i, note in enumerate(NOTES, 1))


@dataclass(frozen=True)
class Timing:
    """Seconds of one method on one dataset: mean, standard deviation and least of the repeats."""

    dataset: str
    method: str
    rows: int
    n_times: int
    inference: float
    inference_sd: float
    inference_best: float
    from_table: float | None
    training: float | None
    training_sd: float | None
    training_best: float | None
    published_inference: float | None
    published_training: float | None


@dataclass(frozen=True)
class Part:
    """The rows of a dataset that are fitted, and those that are predicted."""

    X: pd.DataFrame
    y: SurvArray
    X_test: pd.DataFrame


def run(
    out: Path,
    *,
    seed: int = 0,
    device: str = "cpu",
    quick: bool = False,
    names: Sequence[str] = NAMES[:4],
    methods: Sequence[str] = METHODS,
    repeats: int = 5,
) -> dict[str, Any]:
    """Print the timings, write ``table7.json`` under ``out``, return the record.

    Parameters
    ----------
    out : path
    seed : int
    device : str
        "cpu" (one thread), "cuda" or "auto".
    quick : bool
        20,000 rows of the stand-in for KKBOX instead of 2,646,746, and three repeats.
    names, methods : sequence of str
        Which datasets and methods. The stand-in for KKBOX has its own experiment, `paper.kkbox_seconds`.
    repeats : int
        Measurements; the table has their mean and standard deviation. Of millions of rows there is only one.
    """
    repeats = min(repeats, 3) if quick else repeats
    record = make_record("table7", *timed(names, methods, seed=seed, device=device, quick=quick, repeats=repeats))
    save_record(record, Path(out))
    return record


def timed(
    names: Sequence[str],
    methods: Sequence[str],
    *,
    seed: int,
    device: str,
    quick: bool,
    repeats: int,
    batch_size: int = 1000,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was done, and the timings, printed as they come."""
    _check(names, NAMES, "dataset")
    _check(methods, METHODS, "method")
    settings = SETTINGS | {"batch_size": batch_size}
    timings: list[Timing] = []
    for name in names:
        part = _part(name, seed, quick)
        few = repeats if len(part.y) < _MANY or device != "cpu" else 1
        here = list(time_methods(name, part, methods, seed=seed, device=device, repeats=few, settings=settings))
        print(_text(name, here, len(part.y)), flush=True)
        timings += here
    print(_NOTES)
    configuration = {
        "seed": seed,
        "device": device,
        "device_name": torch.cuda.get_device_name() if torch.cuda.is_available() and device != "cpu" else "cpu",
        "threads": 1,
        "quick": quick,
        "repeats": repeats,
        "grid": GRID,
        **settings,
    }
    return configuration, {"timings": [asdict(row) for row in timings], "notes": NOTES}


def show(record: Mapping[str, Any]) -> None:
    """Print the timings of a stored record."""
    timings = [Timing(**row) for row in record["results"]["timings"]]
    for name in dict.fromkeys(row.dataset for row in timings):
        print(_text(name, [row for row in timings if row.dataset == name]))
    print(_NOTES)


def time_methods(
    name: str,
    part: Part,
    methods: Sequence[str] = METHODS,
    *,
    seed: int = 0,
    device: str = "cpu",
    repeats: int = 3,
    settings: Mapping[str, Any] = SETTINGS,
) -> Iterator[Timing]:
    """Time each method on one dataset; CoxTime gives two rows."""
    with _one_thread():
        for method in methods:
            options = {**settings, "random_state": seed, "device": device}
            model, training = _training(method, part, options, repeats)
            yield from _timings(name, part, method, model, training, repeats)


def _timings(name: str, part: Part, method: str, model: Any, training: np.ndarray, repeats: int) -> Iterator[Timing]:
    grid = np.linspace(0.0, float(part.y["time"].max()), GRID)
    place = NAMES.index(name) if name in NAMES else None
    is_cox_time = method == "CoxTime"  # its estimator always takes all event times; the paper timed it that way
    seconds = _measure(_predict_on_grid(model, part, grid), repeats)
    table = None
    if not is_cox_time:
        table = _measure(lambda: model.predict_survival_function(part.X_test, grid), repeats)
    yield Timing(
        dataset=name,
        method=method,
        rows=len(part.X_test),
        n_times=GRID,
        **_mean("inference", seconds),
        from_table=None if table is None else float(table.mean()),
        **_mean("training", training),
        published_inference=None if is_cox_time else _published(PUBLISHED_INFERENCE, method, place),
        published_training=_published(PUBLISHED_TRAINING, method, place),
    )
    if is_cox_time:
        every = np.unique(part.y["time"])
        yield Timing(
            dataset=name,
            method="CoxTime, all times",
            rows=len(part.X_test),
            n_times=len(every),
            **_mean("inference", _measure(_predict_all_times(model, part, every), repeats)),
            from_table=None,
            training=None,
            training_sd=None,
            training_best=None,
            published_inference=_published(PUBLISHED_INFERENCE, method, place),
            published_training=None,
        )


def _mean(name: str, seconds: np.ndarray) -> dict[str, Any]:
    spread = float(seconds.std(ddof=1)) if len(seconds) > 1 else 0.0
    return {name: float(seconds.mean()), f"{name}_sd": spread, f"{name}_best": float(seconds.min())}


# ------------------------------------------------------------------ what is timed


def _training(method: str, part: Part, settings: Mapping[str, Any], repeats: int) -> tuple[Any, np.ndarray]:
    """A fitted model, and the seconds of each epoch but the first, which warms up (of CoxPH: of each whole fit)."""
    epochs = 1 + max(repeats, min(20, _ENOUGH // len(part.y)))
    clock: list[float] = []
    kind = getattr(estimators, method)
    known = inspect.signature(kind).parameters
    options = dict(settings) | {"max_epochs": epochs, "missing": "indicator"}
    model = kind(**{key: value for key, value in options.items() if key in known})
    if method != "CoxPH":
        model.set_params(verbose=lambda epoch: clock.append(time.perf_counter())).fit(part.X, part.y)
        return model, np.diff(clock)
    for _ in range(repeats):
        started = time.perf_counter()
        model.fit(part.X, part.y)
        clock.append(time.perf_counter() - started)
    return model, np.array(clock)


def _predict_on_grid(model: Any, part: Part, grid: np.ndarray) -> Callable[[], Any]:
    if not hasattr(model, "stack_"):
        return lambda: model.predict_survival_function(part.X_test, grid)
    if isinstance(model, estimators.CoxTime):
        network = _gathered(model.stack_.populations[0].network, torch.from_numpy(grid / model.time_unit_))
        model = copy.copy(model)
        (population,) = model.stack_.populations
        model.stack_ = replace(model.stack_, populations=(replace(population, network=network),))
    return _blocks(model, _inputs(model, part.X_test), grid)


def _predict_all_times(model: Any, part: Part, times: np.ndarray) -> Callable[[], Any]:
    """Baseline hazards from the training rows, then S at all unique training durations."""
    inputs = _inputs(model, part.X)
    predict = _blocks(model, _inputs(model, part.X_test), times)

    scaled = check_outcome(part.y).on_time_scale(unit=model.time_unit_)
    outcome = Observed.of(scaled, torch.float64).to(inputs.numeric.device)

    def both() -> None:
        with torch.no_grad():
            model.stack_.populations[0].network.fit_baseline(inputs, outcome)
        predict()

    return both


def _inputs(model: Any, X: pd.DataFrame) -> Any:
    weight = next(model.stack_.populations[0].network.parameters())
    return model.preprocessor_.transform(X).to(weight.device, weight.dtype)


def _blocks(model: Any, inputs: Any, times: np.ndarray) -> Callable[[], None]:
    """S for all rows, block by block; results are NumPy arrays, so that a GPU has finished when they are there."""

    def predict() -> None:
        with torch.no_grad():
            for i in range(0, len(inputs.numeric), _BLOCK):
                own = model.stack_.populations[0].network.distribution(inputs[i : i + _BLOCK])
                Rescaled(own, model.time_unit_).survival(times)

    return predict


def _gathered(network: Any, grid: torch.Tensor) -> Any:
    """A Cox-Time network whose baseline jumps only at the times of a grid, each with the sum of its cell's jumps."""
    small = copy.deepcopy(network)
    times, jumps = network.baseline_times[0], network.increments
    cell = torch.searchsorted(grid.to(times), times).clamp_max(len(grid) - 1)
    total = jumps.new_zeros(len(jumps), len(grid)).index_add_(1, cell, jumps)
    used = total.sum(0) > 0
    used[1:] = True  # time zero only where an event lies there
    small.baseline_times, small.increments = grid.to(times)[None, used], total[:, used]
    return small


def _measure(function: Callable[[], Any], repeats: int) -> np.ndarray:
    if repeats > 1:
        function()  # warms up
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return np.array(seconds)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# ------------------------------------------------------------------ data and text


def _part(name: str, seed: int, quick: bool) -> Part:
    if name != "kkbox (simulated)":
        data = datasets.load(name)
        train, _, test = datasets.fold(name, 0)
        return Part(data.X.iloc[train], data.y[train], data.X.iloc[test])
    made = datasets.simulate("kkbox", QUICK_ROWS if quick else None, random_state=seed)
    assert made.customer is not None  # for mypy: this dataset has customers
    train, _, test = datasets.fold_by_customer(made.customer, 0)
    days = Surv.from_arrays(made.y["event"][train], np.ceil(made.y["time"][train]))
    return Part(made.X.iloc[train], days, made.X.iloc[test])


def _check(chosen: Sequence[str], known: Sequence[str], what: str) -> None:
    for name in chosen:
        if name not in known:
            raise ValueError(f"There is no {what} {name!r} here; they are {', '.join(known)}.")


def _published(table: dict[str, tuple[float | None, ...]], method: str, place: int | None) -> float | None:
    return None if place is None or method not in table else table[method][place]


def _text(name: str, timings: Sequence[Timing], training_rows: int | None = None) -> str:
    head = (
        f"{'':<22}{'times':>6}{'predict (s)':>20}{'paper':>9}{'vs SuMo':>9}{'paper':>7}"
        f"{'from table':>12} |{'epoch (s)':>20}{'paper':>10}"
    )
    sumo = next((row for row in timings if row.method == "SumoNet"), None)
    title = f"{name}: {timings[0].rows:,} rows to predict"
    title += "" if training_rows is None else f", {training_rows:,} to train on"
    if "kkbox" in name:
        title += f" (the paper: {_PAPER_KKBOX[1]:,} and {_PAPER_KKBOX[0]:,}, other rows)"
    lines = [title, head, "-" * len(head)]
    for row in timings:
        ratio = "" if sumo is None else f"{row.inference_best / sumo.inference_best:.1f}x"
        theirs = ""
        if sumo is not None and row.published_inference and sumo.published_inference:
            theirs = f"{row.published_inference / sumo.published_inference:.1f}x"
        lines.append(
            f"{row.method:<22}{row.n_times:>6}{_pair(row.inference, row.inference_sd):>20}"
            f"{_seconds(row.published_inference):>9}{ratio:>9}{theirs:>7}{_seconds(row.from_table):>12} |"
            f"{_pair(row.training, row.training_sd):>20}{_seconds(row.published_training):>10}"
        )
    return "\n".join([*lines, ""])


def _pair(mean: float | None, sd: float | None) -> str:
    return "" if mean is None else f"{mean:.4f} ± {sd or 0.0:.4f}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
