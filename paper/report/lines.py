"""Lines of the tables: one score of one method on one dataset, over the folds, beside the paper's figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paper.report.published import Figure, published
from paper.searches import METHODS

__all__ = ["GREATER_IS_BETTER", "PARTS", "SELECTED", "TITLES", "Line", "best", "make_line", "place_of", "score_lines"]

Record = Mapping[str, Any]

GREATER_IS_BETTER = {"S_L": True, "S_L_interval": True, "IBLL": True, "IBS": False, "Ctd": True, "calibration": False}
TITLES = {
    "metabric": "METABRIC",
    "gbsg": "GBSG",
    "flchain": "FLCHAIN",
    "support": "SUPPORT",
    "kkbox": "KKBOX (simulated)",
}
SELECTED = "honest"  # in the records: what was selected on validation rows
# what of a record a line is about: the choice that counts, and others for comparison
PARTS = {
    SELECTED: "selected on validation rows",
    "single": "best single trial on validation rows",
    "oracle": "best single trial on test rows",
    "before_refit": "before the refit",
}


@dataclass(frozen=True)
class Line:
    """One score of one method on one dataset."""

    dataset: str
    method: str
    label: str
    part: str
    score: str
    values: tuple[float, ...]
    mean: float
    sd: float
    published: Figure | None
    difference: float | None
    density: str
    trials: int
    seconds: float
    device: str
    split: str
    simulated: bool

    @property
    def searched(self) -> bool:
        """Whether the method has settings that were searched over."""
        return METHODS[self.method].searched


def make_line(record: Record, score: str, part: str = SELECTED) -> Line | None:
    """A line of a record; None where the record has no such figure.

    "S_L_k4" is S_L with half-width 4, "mass_k4" the mass of that density.
    """
    own, folds = record["configuration"], record["results"]["folds"]
    found = [_figure(fold.get(part), score) for fold in folds]
    if not found or any(value is None for value in found):
        return None
    values = np.array(found, dtype=float)
    method, dataset = own["method"], own["dataset"]
    paper = published(score, method, dataset)
    mean = float(values.mean())
    return Line(
        dataset=dataset,
        method=method,
        label=METHODS[method].label + (f", {PARTS[part]}" if part != SELECTED or method == "SumoNet" else ""),
        part=part,
        score=score,
        values=tuple(values.tolist()),
        mean=mean,
        sd=_deviation(values),
        published=paper,
        difference=None if paper is None or dataset == "kkbox" else mean - paper[0],  # simulated rows are others
        density=METHODS[method].density,
        trials=int(own["trials"]),
        seconds=float(record["results"]["search_seconds"]),
        device=str(own["device"]),
        split=str(own["split"]),
        simulated=dataset == "kkbox",
    )


def score_lines(records: Iterable[Record], score: str, *, sumo_parts: Sequence[str] = (SELECTED,)) -> list[Line]:
    """The lines of a table: every method's choice, and more parts of SuMo-net's record where asked for."""
    lines = []
    for record in records:
        parts = sumo_parts if record["configuration"]["method"] == "SumoNet" else (SELECTED,)
        lines += [line for part in parts if (line := make_line(record, score, part)) is not None]
    return lines


def place_of(record: Record) -> tuple[str, str]:
    """Dataset and method of a search."""
    return record["configuration"]["dataset"], record["configuration"]["method"]


def best(lines: Iterable[Line]) -> Line | None:
    """The line with the best mean; the first of equals."""
    found: Line | None = None
    for line in lines:
        sign = 1.0 if GREATER_IS_BETTER[line.score] else -1.0
        if found is None or sign * line.mean > sign * found.mean:
            found = line
    return found


def _figure(part: Mapping[str, Any] | None, score: str) -> float | None:
    if part is None:
        return None
    for stem in ("S_L", "mass"):
        if score.startswith(f"{stem}_k"):
            value = part.get(f"{stem}_by_k", {}).get(score[len(stem) + 2 :])
            break
    else:
        value = part.get(score)
    return None if value is None else float(value)


def _deviation(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Standard deviation over folds; nan where there is one fold, or an infinite value."""
    return float(values.std(ddof=1)) if len(values) > 1 and bool(np.isfinite(values).all()) else float("nan")
