"""Life expectancies, the appendix's E[T|x] = ∫ S(t|x) dt: against integration on a fine grid, and against the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.integrate import simpson

from paper.record import make_record, save_figure, save_record
from sumosurv import datasets
from sumosurv.distributions import SurvivalDistribution
from sumosurv.estimators import PaperSumoNet, SumoNet
from sumosurv.nonparametric import kaplan_meier, risk_table
from sumosurv.outcome import SurvArray

__all__ = ["NAMES", "Expectancy", "Group", "by_groups", "on_a_grid", "restricted_mean_error", "run", "show"]

Floats = npt.NDArray[np.float64]

REAL = ("support", "metabric", "gbsg", "flchain")
SIMULATED = ("weibull", "kkbox (simulated)")
NAMES = (*REAL, *SIMULATED)
GROUPS = 5
CHECKED = 40  # test rows integrated on the fine grid
POINTS = 4001
QUICK: dict[str, Any] = {"n_members": 4, "max_epochs": 20}
ROWS = 20_000  # of the simulated datasets
QUICK_ROWS = 4_000

NOTES = (
    "The horizon of the restricted mean is the 80 % quantile of the test times; beyond the last training time T the "
    "curve is extrapolated. 'beyond T' is the share of the life expectancy that lies there, as a mean over the test "
    "rows: where it is large, as on FLCHAIN, the life expectancy is what the tail assumes, and the restricted mean is "
    "what the data can say.",
    "'grid' is the largest relative difference to Simpson's rule on 4,001 points up to T and as many beyond, down to "
    "S = 1e-12, over 40 test rows.",
    "By groups of equal size in the order of the predicted restricted mean: mean prediction against the area under "
    "Kaplan-Meier, with its standard error. |z| is their largest distance in standard errors.",
    "'error' is the mean of |predicted - true| / true, where the truth is known.",
    "The paper's own network has S(∞) > 0: there the integral over all times does not exist ('inf'). The column says "
    "for which share of those 40 rows that is so, in one network fitted as in the paper.",
)

_HEAD = (
    f"{'':<19}{'T':>7}{'horizon':>9}{'mean':>10}{'restricted':>11}{'beyond T':>9}"
    f"{'grid: mean':>12}{'restr.':>9}{'|z|':>6}{'error':>8}{'paper inf':>10}"
)


@dataclass(frozen=True)
class Group:
    """Test rows of similar risk: restricted means, predicted and by Kaplan-Meier."""

    rows: int
    predicted: float
    observed: float
    error: float


@dataclass(frozen=True)
class Expectancy:
    """What came out on one dataset; times in its unit."""

    dataset: str
    unit: str
    rows: int
    last_time: float
    horizon: float
    mean: float
    median_of_means: float
    restricted_mean: float
    beyond: float
    grid_mean: float
    grid_restricted: float
    paper_infinite: float
    true_error: float | None
    true_restricted_error: float | None
    groups: list[Group]
    means: Floats = field(repr=False)  # of every test row, for the picture; not in the record


@dataclass(frozen=True)
class Part:
    """The rows for fitting, stopping and testing, and the true distribution of the last, where it is known."""

    X: pd.DataFrame
    y: SurvArray
    valid: tuple[pd.DataFrame, SurvArray]
    X_test: pd.DataFrame
    y_test: SurvArray
    truth: SurvivalDistribution | None
    unit: str


def run(
    out: Path, *, seed: int = 0, device: str = "auto", quick: bool = False, names: Sequence[str] = NAMES
) -> dict[str, Any]:
    """Fit SuMo-net to each dataset, print its life expectancies beside two checks, draw them.

    Writes ``life_expectancy.json``, ``.png`` and ``.svg`` under ``out`` and returns the record.

    Parameters
    ----------
    out : path
    seed : int
    device : str
    quick : bool
        Four networks of 20 epochs instead of the default, and 4,000 rows of the simulated datasets.
    names : sequence of str
        Which datasets.
    """
    for name in names:
        if name not in NAMES:
            raise ValueError(f"There is no dataset {name!r} here; the names are {', '.join(NAMES)}.")
    print(_HEAD, "-" * len(_HEAD), sep="\n")
    results = []
    for name in names:
        results.append(_expectancy(name, _part(name, seed, quick), seed, device, quick))
        print(_line(results[-1]), flush=True)
    print("", *(f"({i}) {note}" for i, note in enumerate(NOTES, 1)), sep="\n")
    save_figure(_draw(results), Path(out), "life_expectancy")
    configuration = {"seed": seed, "device": device, "quick": quick, "fold": 0, "groups": GROUPS, "points": POINTS}
    rows = [{key: value for key, value in asdict(row).items() if key != "means"} for row in results]
    record = make_record("life_expectancy", configuration, {"rows": rows, "notes": NOTES})
    save_record(record, Path(out))
    return record


def show(record: Mapping[str, Any]) -> None:
    """Print the table of a stored record."""
    print(_HEAD, "-" * len(_HEAD), sep="\n")
    for row in record["results"]["rows"]:
        groups = [Group(**group) for group in row["groups"]]
        print(_line(Expectancy(**row | {"groups": groups, "means": np.empty(0)})))
    print("", *(f"({i}) {note}" for i, note in enumerate(NOTES, 1)), sep="\n")


def on_a_grid(distribution: SurvivalDistribution, horizon: float, last_time: float) -> tuple[Floats, Floats]:
    """Mean and restricted mean by Simpson's rule: on [0, horizon], [0, last_time] and [last_time, where S is 1e-12].

    Examples
    --------
    >>> from sumosurv.distributions import Weibull
    >>> mean, restricted = on_a_grid(Weibull(2.0, 1.0), 2.0, 3.0)
    >>> mean.round(6), restricted.round(6)  # 2 and 2 (1 - 1/e)
    (array([2.]), array([1.264241]))
    """
    ends = np.maximum(distribution.quantile(1.0 - 1e-12), 1.001 * last_time)
    share = np.linspace(0.0, 1.0, POINTS)

    def integral(low: float, high: Floats) -> Floats:
        times = low + (high - low)[:, None] * share
        area: Floats = simpson(distribution.survival(own_times=times), x=times, axis=1)
        return area

    def full(value: float) -> Floats:
        return np.full(len(distribution), value)

    return integral(0.0, full(last_time)) + integral(last_time, ends), integral(0.0, full(horizon))


def by_groups(predicted: Floats, y: SurvArray, horizon: float, groups: int = GROUPS) -> list[Group]:
    """Predicted restricted means against Kaplan-Meier's, in groups of equal size by prediction."""
    parts = np.array_split(np.argsort(predicted, kind="stable"), groups)
    return [
        Group(
            rows=len(rows),
            predicted=float(predicted[rows].mean()),
            observed=float(kaplan_meier(y[rows]).restricted_mean(horizon)[0]),
            error=restricted_mean_error(y[rows], horizon),
        )
        for rows in parts
    ]


def restricted_mean_error(y: SurvArray, horizon: float) -> float:
    r"""Standard error of the area under Kaplan-Meier up to the horizon (Greenwood).

    .. math:: \sum_{t_i \le h} \Big(\int_{t_i}^h S(t) dt\Big)^2 \frac{d_i}{n_i (n_i - d_i)}
    """
    times, events, at_risk = risk_table(y)
    curve = kaplan_meier(y)
    inside = (events > 0) & (times < horizon) & (at_risk > events)
    times, events, at_risk = times[inside], events[inside], at_risk[inside]
    if len(times) == 0:
        return 0.0
    rest = curve.restricted_mean(horizon)[0] - curve.repeat(len(times)).restricted_mean(own_horizons=times)
    return float(np.sqrt(np.sum(rest**2 * events / (at_risk * (at_risk - events)))))


# ------------------------------------------------------------------


def _expectancy(name: str, part: Part, seed: int, device: str, quick: bool) -> Expectancy:
    options: dict[str, Any] = {"random_state": seed, "device": device, **(QUICK if quick else {})}
    model = SumoNet(**options).fit(part.X, part.y, validation_data=part.valid)
    last = float(part.y["time"].max())
    horizon = min(float(np.quantile(part.y_test["time"], 0.8)), last)
    means = model.predict_mean(part.X_test)
    restricted = model.predict_restricted_mean(part.X_test, horizon)
    within = model.predict_restricted_mean(part.X_test, last)
    checked = part.X_test.iloc[:CHECKED]
    grid_mean, grid_restricted = on_a_grid(model.predict_distribution(checked), horizon, last)
    options["n_members"] = 1
    plain = PaperSumoNet(**options).fit(part.X, part.y, validation_data=part.valid)
    truth = part.truth
    return Expectancy(
        dataset=name,
        unit=part.unit,
        rows=len(means),
        last_time=last,
        horizon=horizon,
        mean=float(means.mean()),
        median_of_means=float(np.median(means)),
        restricted_mean=float(restricted.mean()),
        beyond=float((1.0 - within / means).mean()),
        grid_mean=_largest(means[:CHECKED], grid_mean),
        grid_restricted=_largest(restricted[:CHECKED], grid_restricted),
        paper_infinite=float(np.isinf(plain.predict_mean(checked)).mean()),
        true_error=None if truth is None else _average(means, truth.mean()),
        true_restricted_error=None if truth is None else _average(restricted, truth.restricted_mean(horizon)),
        groups=by_groups(restricted, part.y_test, horizon),
        means=means,
    )


def _largest(values: Floats, grid: Floats) -> float:
    return float(np.max(np.abs(values - grid) / grid))


def _average(values: Floats, truth: Floats) -> float:
    return float(np.mean(np.abs(values - truth) / truth))


def _part(name: str, seed: int, quick: bool) -> Part:
    truth = None
    if name in REAL:
        data = datasets.load(name)
        X, y, fold, unit = data.X, data.y, datasets.fold(name, 0), data.time_unit
    else:
        short = name.split(" ")[0]
        made = datasets.simulate(short, QUICK_ROWS if quick else ROWS, random_state=seed)  # type: ignore[arg-type]
        X, y, unit = made.X, made.y, "days" if short == "kkbox" else ""
        customers = np.arange(len(y)) if made.customer is None else made.customer
        fold = datasets.fold_by_customer(customers, 0)
        truth = made.distribution[fold.test]
    train, valid, test = fold
    return Part(X.iloc[train], y[train], (X.iloc[valid], y[valid]), X.iloc[test], y[test], truth, unit)


def _line(row: Expectancy) -> str:
    z = max(abs(group.predicted - group.observed) / group.error for group in row.groups if group.error > 0)
    error = "" if row.true_error is None else f"{row.true_error:.3f}"
    return (
        f"{row.dataset:<19}{row.last_time:>7.4g}{row.horizon:>9.4g}{row.mean:>10.5g}{row.restricted_mean:>11.5g}"
        f"{row.beyond:>9.3f}{row.grid_mean:>12.1e}{row.grid_restricted:>9.1e}{z:>6.1f}{error:>8}{row.paper_infinite:>10.0%}"
    )


def _draw(results: Sequence[Expectancy]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.0 * len(results), 5.6), layout="constrained")
    axes = figure.subplots(2, len(results), squeeze=False)
    for top, bottom, row in zip(axes[0], axes[1], results):
        _histogram(top, row)
        _groups(bottom, row)
    axes[0, 0].set_ylabel("test rows")
    axes[1, 0].set_ylabel("Kaplan-Meier of the group")
    return figure


def _histogram(ax: Any, row: Expectancy) -> None:
    low, high = float(row.means.min()), float(row.means.max())
    wide = high > 40.0 * low
    if wide:
        ax.set_xscale("log")
        ax.xaxis.set_minor_formatter("")
    bins = np.geomspace(low, high, 31) if wide else np.linspace(low, high, 31)
    ax.hist(row.means, bins=bins, color="#0072B2", alpha=0.85)
    if low < row.last_time < high:
        ax.axvline(row.last_time, color="0.3", lw=1.2, ls="--")
        left = np.mean(row.means > row.last_time) > 0.2  # beside the bars, where there are few
        place = {"x": row.last_time, "y": 0.99, "transform": ax.get_xaxis_transform(), "va": "top", "fontsize": 8}
        ax.text(s="end of data " if left else " end of data", ha="right" if left else "left", **place)
    ax.set_title(row.dataset, fontsize=11)
    ax.set_xlabel("life expectancy" + (f" ({row.unit})" if row.unit else ""))
    ax.spines[["top", "right"]].set_visible(False)


def _groups(ax: Any, row: Expectancy) -> None:
    predicted = np.array([group.predicted for group in row.groups])
    observed = np.array([group.observed for group in row.groups])
    spread = 1.96 * np.array([group.error for group in row.groups])
    low, high = min(predicted.min(), (observed - spread).min()), max(predicted.max(), (observed + spread).max())
    ax.axline((low, low), slope=1.0, color="0.7", lw=1)
    ax.errorbar(predicted, observed, yerr=spread, fmt="o", color="#D55E00", ms=5, capsize=2)
    edge = 0.05 * (high - low)
    ax.set(xlim=(low - edge, high + edge), ylim=(low - edge, high + edge), aspect="equal")
    ax.set_xlabel(f"predicted mean up to {row.horizon:.4g}" + (f" {row.unit}" if row.unit else ""), fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)
