"""The part of the page that has the paper's timing tables: seconds of prediction and of an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paper.record import load_record
from paper.report.blocks import joined
from paper.report.lines import TITLES
from paper.report.text import markdown
from paper.searches import METHODS

__all__ = ["seconds_part"]

_TEXT = """Prediction is S(t) at 100 times for every row of the test fold, from prepared tensors; an epoch is one pass
over the training rows. All networks have two covariate layers of 32 units and one layer of 32 for time. The paper's
values, in small print, come from different machines (GTX 1080 Ti), networks and batch sizes: compare ratios within a
column. *Cox-Time, at all times* is what the paper timed: S at all distinct training times, including the baseline.
Cox-Linear is fitted by Newton's method here; its epoch is the whole fit."""
Row = dict[str, Any]


def seconds_part(folder: Path) -> str:
    """The tables of the records that are there: the four on a CPU, the simulated KKBOX on a GPU."""
    parts = [
        part
        for name in ("table7", "kkbox_seconds")
        if (path := folder / f"{name}.json").is_file()
        for part in _tables(load_record(path))
    ]
    if not parts:
        return ""
    return joined(["## Timing (Tables 7 and 8)", _TEXT, *parts, _released_code(folder)])


def _tables(record: dict[str, Any]) -> list[str]:
    own, timings = record["configuration"], record["results"]["timings"]
    where = f"one thread of a CPU, batches of {own['batch_size']:,}"
    if own["device_name"] != "cpu":
        where = f"{own['device_name']}, batches of {own['batch_size']:,}"
    datasets = list(dict.fromkeys(row["dataset"] for row in timings))
    head = ["method", *(TITLES.get(name, "KKBOX (simulated)") for name in datasets)]
    tables = []
    for title, name in (("Seconds of prediction", "inference"), ("Seconds per epoch", "training")):
        rows = []
        for method in dict.fromkeys(row["method"] for row in timings):
            cells = [_cell(timings, dataset, method, name) for dataset in datasets]
            if any(cell != "-" for cell in cells):
                rows.append([_label(method), *cells])
        predicted = {row["rows"] for row in timings if name == "inference"}
        size = f", {predicted.pop():,} rows" if len(predicted) == 1 else ""
        tables.append(f"{title} ({where}{size}):\n\n{markdown(head, rows)}")
    return tables


def _cell(timings: Sequence[Row], dataset: str, method: str, name: str) -> str:
    row = next((row for row in timings if (row["dataset"], row["method"]) == (dataset, method)), None)
    if row is None or row[name] is None:
        return "-"
    theirs = row[f"published_{name}"]
    return _digits(row[name]) + ("" if theirs is None else f"<br><sub>paper {_digits(theirs)}</sub>")


def _label(method: str) -> str:
    name, _, which = method.partition(", ")
    return METHODS[name].label + (f", at {which}" if which else "")


def _digits(seconds: float) -> str:
    """Three digits, and all of those before the point."""
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.3g}"


def _released_code(folder: Path) -> str:
    """What the benchmarks measured of the code released with the paper, on a GPU, at KKBOX's size."""
    paths = [folder / f"performance_{what}_cuda.json" for what in ("inference", "training")]
    if not all(path.is_file() for path in paths):
        return ""
    inference, training = map(load_record, paths)
    curves, steps = (
        [r for r in record["results"]["rows"] if r["who"] == "released code"] for record in (inference, training)
    )
    curve = next((r for r in curves if (r["case"], r["what"]) == ("kkbox size", "S, from inputs")), None)
    epoch = next((r for r in steps if r.get("epoch_s")), None)
    if curve is None or epoch is None:
        return ""
    return (
        f"The code released with the paper took {curve['seconds']:.1f} s to predict "
        f"{inference['configuration']['kkbox_rows']:,} rows at {inference['configuration']['times']} times, and "
        f"{epoch['epoch_s']:.1f} s for an epoch of {epoch['case'].partition(', ')[2]} (batches of {epoch['batch']:,}), "
        "on a GPU of the same kind ([Speed](performance.md))."
    )
