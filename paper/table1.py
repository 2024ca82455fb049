"""The paper's Table 1: scores of a true and a false distribution in three counterexamples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paper.counterexamples import Counterexample, example_1, example_2, example_3
from paper.record import make_record, save_record
from sumosurv.distributions import SurvivalDistribution, Tabulated
from sumosurv.nonparametric import kaplan_meier
from sumosurv.scores import (
    binomial_log_likelihood,
    brier,
    evaluate,
    integrated_binomial_log_likelihood,
    integrated_brier,
    log_likelihood,
    survival_crps,
)

__all__ = ["PUBLISHED", "Row", "rows", "run", "show"]

Array = npt.NDArray[np.float64]

TIME, RANGE = 4.0, (0.0, 40.0)  # appendix 1.3
_ROWS = 20_000  # scored at a time
RELEASED_FLOOR = 1e-6  # the released code's log(f + 1e-6)

# (example, score) -> the paper's Table 1: true, false, consistent?
PUBLISHED: dict[tuple[str, str], tuple[float, float, bool]] = {
    ("1", "S_L"): (-1.375, -11.029, True),
    ("1", "Ctd"): (0.541, 0.749, False),
    ("2", "S_L"): (-1.795, -1.820, True),
    ("2", "Brier(4)"): (0.220, 0.204, False),
    ("2", "BLL(4)"): (0.085, 0.122, False),
    ("2", "IBS"): (0.032, 0.031, False),
    ("2", "IBLL"): (-0.009, -0.006, False),
    ("3", "S_L"): (-0.513, -0.626, True),
    ("3", "CRPS"): (3.884, 1.646, False),
}

NOTES = (
    "Example 1, S_L: the false curves have no density where events fall, so that the exact score is -inf. "
    "The paper's figure is that of the floor in the released code; the row with the floor shows it. "
    "The paper does not print the false curves; all that are ordered against the hazards have the same Ctd.",
    "BLL and IBLL: the printed formula lacks the log in its second term, S instead of log S. "
    "The rows named 'as printed' use it; all else here uses log S. The verdict is the same.",
    "Example 2: the printed figures do not follow from its text; every verdict does. "
    "With P(X = 1) = 1/2 instead of 0.1, and integrals up to the largest time of the sample instead of 40, "
    "all of them come close: the rows of example 2*.",
    "Example 3: the expected S_L follow from the text by hand, events having probability 1/11: "
    "-(log 100)/11 - 1/11 = -0.5096 for the truth (its end at 200 aside), "
    "-(log 25)/11 - 4/11 = -0.6563 for the false one.",
    "'beyond chance' marks printed figures more than three standard errors of the difference of two samples "
    "of that size, and a rounding, away from ours.",
)


@dataclass(frozen=True)
class Row:
    """One line of the table: a score of the true and of the false distribution, ours and the paper's."""

    example: str
    score: str
    greater_is_better: bool
    true: float
    false: float
    true_error: float
    false_error: float
    prefers_truth: bool
    published_true: float | None = None
    published_false: float | None = None
    published_prefers_truth: bool | None = None
    follows_from_text: bool | None = None


def rows(n_1: int = 1000, n_2: int = 1_000_000, n_3: int = 1_000_000, seed: int = 0) -> list[Row]:
    """The table's lines; n as in the paper by default."""
    first, third = example_1(n_1, seed), example_3(n_3, seed)
    half = example_2(n_2, seed, share=0.5)
    return [
        _row("1", "S_L", True, first, log_likelihood, "S_L"),
        _row("1", "S_L, floor 1e-6", True, first, lambda d, y: log_likelihood(d, y, floor=RELEASED_FLOOR), "S_L"),
        _concordance(first, seed),
        *_rows_of_example_2("2", example_2(n_2, seed), RANGE),
        *_rows_of_example_2("2*", half, (0.0, float(half.y["time"].max()))),
        _row("3", "S_L", True, third, log_likelihood, "S_L"),
        _row("3", "CRPS", False, third, survival_crps, "CRPS"),
    ]


def _rows_of_example_2(name: str, data: Counterexample, span: tuple[float, float]) -> list[Row]:
    g = kaplan_meier(data.y, censoring=True)
    over: dict[str, Any] = {"censoring": g, "times": span}
    return [
        _row(name, "S_L", True, data, log_likelihood, "S_L"),
        _row(name, "Brier(4)", False, data, lambda d, y: brier(d, y, TIME, censoring=g), "Brier(4)"),
        _row(name, "BLL(4)", True, data, lambda d, y: binomial_log_likelihood(d, y, TIME, censoring=g)),
        _row(name, "BLL(4), as printed", True, data, lambda d, y: _printed(d, y, g, None), "BLL(4)"),
        _row(name, "IBS", False, data, lambda d, y: integrated_brier(d, y, **over), "IBS"),
        _row(name, "IBLL", True, data, lambda d, y: integrated_binomial_log_likelihood(d, y, **over)),
        _row(name, "IBLL, as printed", True, data, lambda d, y: _printed(d, y, g, span), "IBLL"),
    ]


def run(out: Path, *, seed: int = 0, n_1: int = 1000, n_2: int = 1_000_000, n_3: int = 1_000_000) -> dict[str, Any]:
    """Print the table, write ``table1.json`` under ``out``, return the record."""
    table = rows(n_1, n_2, n_3, seed)
    print(_text(table))
    configuration = {"seed": seed, "n": {"1": n_1, "2": n_2, "3": n_3}, "time": TIME, "range": RANGE, "n_times": 100}
    results = {"rows": [asdict(row) for row in table], "notes": NOTES}
    record = make_record("table1", configuration, results)
    save_record(record, Path(out))
    return record


def show(record: Mapping[str, Any]) -> None:
    """Print the table of a stored record."""
    print(_text([Row(**row) for row in record["results"]["rows"]]))


# ------------------------------------------------------------------


def _row(
    example: str,
    name: str,
    greater: bool,
    data: Counterexample,
    function: Callable[[SurvivalDistribution, Any], Array],
    published: str | None = None,
) -> Row:
    true, false = function(data.truth, data.y), function(data.false, data.y)
    return _compare(example, name, greater, *_mean(true), *_mean(false), published)


def _concordance(data: Counterexample, seed: int) -> Row:
    values = [
        evaluate(d, None, data.y, scores="concordance_td", random_state=seed).iloc[0][["value", "std_error"]]
        for d in (data.truth, data.false)
    ]
    (true, true_error), (false, false_error) = (map(float, pair) for pair in values)
    return _compare("1", "Ctd", True, true, true_error, false, false_error, "Ctd")


def _mean(values: Array) -> tuple[float, float]:
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if np.isfinite(values).all() else float("nan")
    return float(values.mean()), error


def _compare(
    example: str,
    name: str,
    greater: bool,
    true: float,
    true_error: float,
    false: float,
    false_error: float,
    published: str | None,
) -> Row:
    better = true > false if greater else true < false
    row = (example, name, greater, true, false, true_error, false_error, better)
    if published is None:
        return Row(*row)
    paper_true, paper_false, paper_verdict = PUBLISHED[example.rstrip("*"), published]
    pairs = ((true, true_error, paper_true), (false, false_error, paper_false))
    follows = all(abs(ours - paper) <= 3 * np.sqrt(2) * error + 5e-4 for ours, error, paper in pairs)
    return Row(*row, paper_true, paper_false, paper_verdict, bool(follows))


def _printed(distribution: SurvivalDistribution, y: Any, g: Tabulated, span: tuple[float, float] | None) -> Array:
    """The binomial log-likelihood with the second term as the paper prints it: S instead of log S.

    At one time, or over a range of times by the trapezoidal rule on 100 of them.
    """
    times = np.array([TIME]) if span is None else np.linspace(*span, 100)
    share = np.full(len(times), 1.0 if span is None else 1.0 / (len(times) - 1))
    if span is not None:
        share[[0, -1]] /= 2.0
    before = np.nextafter(y["time"], 0.0)  # G(z-): times are positive
    own = np.divide(y["event"], g.survival(before)[0], out=np.zeros(len(y)), where=y["event"])
    later = np.divide(share, g.survival(times)[0], out=np.zeros(len(times)), where=times < y["time"].max())
    score = np.empty(len(y))
    for start in range(0, len(y), _ROWS):
        rows = slice(start, start + _ROWS)
        survival, alive = distribution[rows].survival(times), y["time"][rows, None] > times
        with np.errstate(divide="ignore", invalid="ignore"):
            died = np.where(alive | ~y["event"][rows, None], 0.0, np.log1p(-survival))
        score[rows] = (np.where(alive, survival, 0.0) @ later) + own[rows] * (died @ share)
    return score


def _text(table: list[Row]) -> str:
    head = f"{'ex.':<4}{'score':<21}{'true':>10}{'false':>10}  {'prefers':<9}"
    head += f"{'paper: true':>12}{'false':>10}  {'prefers':<9}figures"
    lines = [head, "-" * len(head)]
    for row in table:
        line = f"{row.example:<4}{row.score:<21}{row.true:>10.4f}{row.false:>10.4f}  {_side(row.prefers_truth):<9}"
        if row.published_true is not None and row.published_prefers_truth is not None:
            same = "agree" if row.follows_from_text else "beyond chance"
            paper = f"{row.published_true:>12.3f}{row.published_false:>10.3f}"
            line += f"{paper}  {_side(row.published_prefers_truth):<9}{same}"
        lines.append(line.rstrip())
    return "\n".join([*lines, "", *(f"({i}) {note}" for i, note in enumerate(NOTES, 1))])


def _side(truth: bool) -> str:
    return "truth" if truth else "FALSE"
