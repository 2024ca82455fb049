"""Average ranks of the methods over datasets and folds, with the distance from which on two of them differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from paper.report.lines import GREATER_IS_BETTER, Line, score_lines

__all__ = ["Ranking", "ranking"]

_LEVEL = 0.05


@dataclass(frozen=True)
class Ranking:
    """Mean ranks, best first."""

    score: str
    ranks: dict[str, float]
    blocks: int
    critical: float
    left_out: tuple[str, ...]


def ranking(records: Sequence[dict[str, Any]], score: str) -> Ranking | None:
    """Rank the methods within every dataset and fold (1 is best, ties share) and average.

    Methods that lack a dataset which SuMo-net has are left out. ``critical`` is Nemenyi's critical difference at 5 %;
    folds of one dataset are not independent, so it is a rough guide. None with fewer than two methods.
    """
    lines = [line for line in score_lines(records, score) if not line.simulated]
    wanted = [line.dataset for line in lines if line.method == "SumoNet"]
    by_method: dict[str, dict[str, Line]] = {}
    for line in lines:
        by_method.setdefault(line.method, {})[line.dataset] = line
    whole = {name: own for name, own in by_method.items() if set(wanted) <= set(own)}
    if len(whole) < 2 or not wanted:
        return None
    sign = -1.0 if GREATER_IS_BETTER[score] else 1.0
    table = np.array([[sign * v for dataset in wanted for v in own[dataset].values] for own in whole.values()])
    mean = stats.rankdata(table, axis=0).mean(axis=1)
    k, blocks = table.shape
    spread = float(stats.studentized_range.ppf(1.0 - _LEVEL, k, np.inf)) / math.sqrt(2.0)
    order = sorted(zip(mean.tolist(), whole), key=lambda pair: pair[0])
    return Ranking(
        score,
        {name: value for value, name in order},
        blocks,
        spread * math.sqrt(k * (k + 1) / (6.0 * blocks)),
        tuple(name for name in by_method if name not in whole),
    )
