"""Comparing scores with one another over many fitted models."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import pandas as pd

from sumosurv.scores.table import SCORES

__all__ = ["rank_correlation"]


def rank_correlation(
    results: pd.DataFrame,
    scores: Sequence[str] | None = None,
    *,
    by: Hashable | Sequence[Hashable] | None = None,
    greater_is_better: Mapping[str, bool] | None = None,
) -> pd.DataFrame:
    """Rank correlation of scores over fitted models (the paper's Table 5).

    Within each group (dataset), models are ranked by each score, best last whichever way the score points, and
    Spearman's correlation of the ranks is taken; the matrices are averaged over the groups.

    Parameters
    ----------
    results : DataFrame
        One row per fitted model, one column per score.
    scores : sequence of str, optional
        Columns to compare; those with names in `SCORES` by default.
    by : column name or names, optional
        What makes a group, for example "dataset".
    greater_is_better : mapping, optional
        For columns that are not named as in `SCORES`.

    Returns
    -------
    DataFrame of shape (scores, scores)
        1 where two scores rank models alike. nan where a score is the same for every model of every group; groups
        where it is are left out of that score's averages.

    Examples
    --------
    >>> results = pd.DataFrame({"log_likelihood": [-1.0, -1.2, -1.1], "integrated_brier": [0.15, 0.20, 0.18]})
    >>> rank_correlation(results).round(1)
                      log_likelihood  integrated_brier
    log_likelihood               1.0               1.0
    integrated_brier             1.0               1.0
    """
    names = [name for name in SCORES if name in results.columns] if scores is None else list(scores)
    better = {name: SCORES[name].greater_is_better for name in SCORES} | dict(greater_is_better or {})
    unknown = [name for name in names if name not in better]
    if unknown:
        raise ValueError(f"Say which way {unknown} point: greater_is_better={{{unknown[0]!r}: True}}.")
    if not names:
        raise ValueError(f"No column is named like a score: {list(results.columns)}. Pass scores=[...].")
    signs = np.array([1.0 if better[name] else -1.0 for name in names])
    grouping = [by] if isinstance(by, str) or not isinstance(by, Sequence) else list(by)
    groups = [results] if by is None else [group for _, group in results.groupby(grouping, sort=False)]
    matrices = [(group[names] * signs).corr(method="spearman").to_numpy() for group in groups]
    stack = np.stack(matrices)
    known = ~np.isnan(stack)
    total, count = np.where(known, stack, 0.0).sum(axis=0), known.sum(axis=0)
    mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return pd.DataFrame(mean, index=names, columns=names)
