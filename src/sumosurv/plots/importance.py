"""Pictures of permutation importance."""

from __future__ import annotations

from typing import Any

import numpy as np

from sumosurv.explain import Importance
from sumosurv.plots._figure import COLOURS, axes
from sumosurv.scores import SCORES

__all__ = ["plot_importance"]

_NAMES = {
    "log_likelihood": "log-likelihood (nats)",
    "brier": "Brier score",
    "integrated_brier": "integrated Brier score",
    "harrell_c": "Harrell's C",
    "uno_c": "Uno's C",
    "concordance_td": "time-dependent concordance",
    "cumulative_dynamic_auc": "AUC",
}


def plot_importance(
    importance: Importance,
    *,
    score: str | None = None,
    cause: int | None = None,
    max_columns: int = 12,
    unit: str = "",
    ax: Any = None,
) -> Any:
    """What a score loses when each column is shuffled: bars with limits, or lines over the times it is taken at.

    Parameters
    ----------
    importance : Importance
    score : str, optional
        Which of the scores; the first by default.
    cause : int, optional
        Which of the causes, where the score is of several.
    max_columns : int
        The most important ones are drawn; of lines no more than there are colours.
    unit : str
        Of time, for the axis.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    table = importance.table
    name = table["score"].iloc[0] if score is None else score
    known = list(dict.fromkeys(table["score"]))
    if name not in known:
        raise ValueError(f"The result has the scores {', '.join(known)}; got {name!r}.")
    table = table[table["score"] == name]
    causes = sorted(set(table["cause"].dropna()))
    if causes:
        cause = int(causes[0]) if cause is None else cause
        if cause not in causes:
            raise ValueError(f"The result has the causes {', '.join(f'{c:g}' for c in causes)}; got {cause!r}.")
        table = table[table["cause"] == cause]
    columns = list(dict.fromkeys(table["column"]))
    change = "loss" if SCORES[name].greater_is_better else "rise"
    label = f"{change} of {_NAMES.get(name, name.replace('_', ' '))}" + (f", cause {cause}" if causes else "")
    over_time = table["time"].nunique() > 1
    if over_time:
        ax = axes(ax, (7.2, 4.6))
        for colour, column in zip(COLOURS, columns[:max_columns]):
            own = table[table["column"] == column].sort_values("time")
            if own["low"].notna().all():
                ax.fill_between(own["time"], own["low"], own["high"], color=colour, alpha=0.15, lw=0)
            ax.plot(own["time"], own["value"], "o-", color=colour, lw=2, ms=4, label=column)
        ax.axhline(0.0, color="0.6", lw=0.8, zorder=1)
        ax.set_xlabel("time" + (f" ({unit})" if unit else ""))
        ax.set_ylabel(label)
        ax.set_xlim(left=0)
        ax.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    else:
        shown = table.iloc[:max_columns][::-1]
        ax = axes(ax, (7.2, 1.0 + 0.36 * len(shown)))
        height = np.arange(len(shown))
        ax.barh(height, shown["value"], color=COLOURS[0], height=0.62)
        if shown["low"].notna().all():
            ax.hlines(height, shown["low"], shown["high"], color="0.15", lw=1.5)
        ax.axvline(0.0, color="0.3", lw=0.8)
        ax.set_yticks(height, list(shown["column"]))
        ax.set_xlabel(label)
        ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
