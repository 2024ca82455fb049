"""Pictures of the results: scores, ranks, calibration, agreement of scores, and how the choice was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from paper.report.lines import GREATER_IS_BETTER, SELECTED, TITLES, Line, score_lines
from paper.report.published import CORRELATION
from paper.report.ranks import ranking
from paper.searches import METHODS
from paper.table5 import SCORES, correlation, trial_scores

__all__ = ["draw_all"]

Record = dict[str, Any]

_OURS, _OTHER, _THIRD, _GREY = "#0072B2", "#E69F00", "#009E73", "0.55"  # safe for the colour-blind
_NAMES = {
    "S_L": "log-likelihood S_L",
    "IBLL": "IBLL",
    "IBS": "integrated Brier score",
    "Ctd": "time-dependent concordance",
}
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def draw_all(records: Sequence[Record], folder: Path) -> dict[str, Path]:
    """Draw what the records allow, as ``results_<name>.png`` in ``folder``; the paths by name."""
    import matplotlib as mpl

    real = [record for record in records if record["configuration"]["dataset"] != "kkbox"]
    makers: dict[str, Callable[[], Any]] = {
        **{score.lower(): partial(_scores, real, score) for score in _NAMES},
        "ranks": lambda: _ranks(real),
        "calibration": lambda: _calibration(real),
        "rank_correlation": lambda: _rank_correlation(real),
        "selection": lambda: _selection(_sumo(real)),
        "mixture": lambda: _mixture(_sumo(real)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    with mpl.rc_context(_STYLE):
        for name, make in makers.items():
            figure = make()
            if figure is None:
                continue
            paths[name] = folder / f"results_{name}.png"
            figure.savefig(paths[name], dpi=120, metadata={"Software": None})
    return paths


# ---------------------------------------------------------------------- scores


def _scores(records: Sequence[Record], score: str) -> Any:
    """Every method's folds and mean, one panel per dataset; best on top."""
    lines = score_lines(records, score)
    names = list(dict.fromkeys(line.dataset for line in lines))
    if not names:
        return None
    figure, axes = _panels(len(names), 2, width=4.3, height=0.26 * len(METHODS) + 0.75)
    for ax, dataset in zip(axes, names):
        own = [line for line in lines if line.dataset == dataset]
        own.sort(key=lambda line: line.mean, reverse=not GREATER_IS_BETTER[score])
        far = _far(own)
        for place, line in enumerate(own):
            if line is far:
                _aside(ax, place, f"mean {line.mean:.3f}, outside", right=not GREATER_IS_BETTER[score])
            else:
                _score_row(ax, place, line)
        ax.set_yticks(range(len(own)), [METHODS[line.method].label for line in own])
        for label, line in zip(ax.get_yticklabels(), own):
            label.set(**({"color": _OURS, "fontweight": "bold"} if line.method == "SumoNet" else {}))
        ax.set_ylim(-0.6, len(own) - 0.4)
        ax.locator_params(axis="x", nbins=6)
        ax.set_title(TITLES[dataset], loc="left")
        ax.grid(axis="x", color="0.9", lw=0.8)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    better = "→ better" if GREATER_IS_BETTER[score] else "← better"
    figure.supxlabel(f"{_NAMES[score]} on test rows ({better}); dots are folds, bars their mean", fontsize=9)
    return figure


def _score_row(ax: Any, place: int, line: Line) -> None:
    colour = _OURS if line.method == "SumoNet" else _GREY
    values = np.array(line.values)
    infinite = int((~np.isfinite(values)).sum())
    if infinite:
        _aside(ax, place, f"-inf in {infinite} of {len(values)} folds")
        return
    ax.plot(values, np.full(len(values), place), "o", ms=4, alpha=0.55, color=colour, mec="none", zorder=2)
    ax.plot([line.mean], [place], "|", ms=13, mew=2.4, color=colour, zorder=3)


def _aside(ax: Any, place: int, text: str, *, right: bool = False) -> None:
    where, side = (0.99, "right") if right else (0.01, "left")
    ax.annotate(
        text, (where, place), xycoords=("axes fraction", "data"), va="center", ha=side, fontsize=7.5, color="0.35"
    )


def _far(lines: Sequence[Line]) -> Line | None:
    """Kaplan-Meier, which knows no covariates, where it is so far behind that the others could not be told apart."""
    means = [line.mean for line in lines if line.method != "KaplanMeier" and np.isfinite(line.mean)]
    last = next((line for line in lines if line.method == "KaplanMeier"), None)
    if last is None or not means:
        return None
    away = max(min(means) - last.mean, last.mean - max(means))
    return last if away > 0.5 * (max(means) - min(means)) else None


def _ranks(records: Sequence[Record]) -> Any:
    """Mean ranks per score, with the critical difference from the best."""
    found = [rank for score in _NAMES if (rank := ranking(records, score)) is not None]
    if not found:
        return None
    most = max(len(rank.ranks) for rank in found)
    figure, axes = _panels(len(found), 2, width=4.3, height=0.24 * most + 0.8)
    for ax, rank in zip(axes, found):
        names = list(rank.ranks)[::-1]
        values = [rank.ranks[name] for name in names]
        first = min(values)
        ax.axvspan(first, first + rank.critical, color="0.93", zorder=0)
        ax.hlines(range(len(names)), 0.6, values, color="0.85", lw=1, zorder=1)
        for place, (name, value) in enumerate(zip(names, values)):
            ax.plot([value], [place], "o", ms=7, color=_OURS if name == "SumoNet" else _GREY, zorder=3)
            ax.annotate(f"{value:.1f}", (value, place), (7, 0), textcoords="offset points", va="center", fontsize=8)
        ax.set_yticks(range(len(names)), [METHODS[name].label for name in names])
        for label, name in zip(ax.get_yticklabels(), names):
            label.set(**({"color": _OURS, "fontweight": "bold"} if name == "SumoNet" else {}))
        ax.set(xlim=(0.6, len(names) + 0.7))
        ax.set_title(_NAMES[rank.score], loc="left")
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    text = f"mean rank over {found[0].blocks} dataset × fold (1 is best)"
    figure.supxlabel(text + "; shaded: within the critical difference of the best (5 %)", fontsize=9)
    return figure


# ---------------------------------------------------------------------- calibration


def _calibration(records: Sequence[Record]) -> Any:
    """The paper's curves above, shares of D-calibration below; one column per dataset."""
    names = list(dict.fromkeys(r["configuration"]["dataset"] for r in _sumo(records)))
    if not names:
        return None
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(
        2, len(names), figsize=(2.45 * len(names) + 0.5, 5.0), layout="constrained", squeeze=False
    )
    shown = {"LogNormalNet": _THIRD, "WeibullNet": _OTHER, "SumoNet": _OURS}
    for column, dataset in enumerate(names):
        above, below = grid[:, column]
        own = {r["configuration"]["method"]: r for r in records if r["configuration"]["dataset"] == dataset}
        above.plot([0, 1], [0, 1], color="0.6", lw=1, ls=":")
        for method, colour in shown.items():
            if method in own:
                _paper_curve(above, own[method], colour, METHODS[method].label)
        above.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="probability p")
        above.set_title(TITLES[dataset])
        _shares(below, own["SumoNet"])
    grid[0, 0].set_ylabel("share with F(z|x) ≤ p\n(paper's calibration)")
    grid[1, 0].set_ylabel("share per bin\n(D-calibration, SuMo-net)")
    grid[0, 0].legend(loc="lower right", fontsize=7.5, handlelength=1.2, borderaxespad=0.1)
    return figure


def _paper_curve(ax: Any, record: Record, colour: str, label: str) -> None:
    parts = [fold[SELECTED] for fold in record["results"]["folds"]]
    levels = np.array(parts[0]["calibration_levels"])
    curves = np.array([part["calibration_observed"] for part in parts])
    lead = record["configuration"]["method"] == "SumoNet"
    ax.fill_between(levels, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.18, lw=0)
    ax.plot(levels, curves.mean(axis=0), color=colour, lw=2.0 if lead else 1.3, label=label)


def _shares(ax: Any, record: Record) -> None:
    shares = np.array([fold[SELECTED]["D_calibration_shares"] for fold in record["results"]["folds"]])
    bins = shares.shape[1]
    middle = (np.arange(bins) + 0.5) / bins
    ax.bar(middle, shares.mean(axis=0), width=0.9 / bins, color=_OURS, alpha=0.45, lw=0)
    for row in shares:
        ax.plot(middle, row, "o", ms=2.4, color=_OURS, alpha=0.8, mec="none")
    ax.axhline(1.0 / bins, color="0.3", lw=1, ls=":")
    ax.set(xlim=(0, 1), ylim=(0, max(0.16, 1.05 * float(shares.max()))), xlabel="F(T|x)")


# ---------------------------------------------------------------------- trials


def _rank_correlation(records: Sequence[Record]) -> Any:
    trials = trial_scores(records)
    if trials.empty:
        return None
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(7.0, 3.3), layout="constrained")
    image: Any = None
    for ax, matrix, title in zip(axes, (correlation(trials).to_numpy(), np.array(CORRELATION)), ("ours", "the paper")):
        image = ax.imshow(matrix, cmap="cividis", vmin=0, vmax=1)
        for (i, j), value in np.ndenumerate(matrix):
            ax.text(j, i, f"{value:.2f}", ha="center", va="center", color="black" if value > 0.55 else "white")
        ax.set_xticks(range(len(SCORES)), list(SCORES))
        ax.set_yticks(range(len(SCORES)), list(SCORES))
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.set_title(title)
    figure.colorbar(image, ax=axes, shrink=0.8, label="rank correlation")
    return figure


def _selection(records: Sequence[Record]) -> Any:
    """Validation against test S_L of all trials, each fold about its median, and what was chosen."""
    if not records:
        return None
    figure, axes = _panels(len(records), 2, width=4.0, height=3.1)
    for ax, record in zip(axes, records):
        chosen: dict[str, list[tuple[float, float]]] = {"mixture": [], "single": [], "oracle": []}
        for fold in record["results"]["folds"]:
            valid, test = (np.array(fold["trials"][name], dtype=float) for name in ("valid_S_L", "test_S_L"))
            centre_v, centre_t = np.nanmedian(valid), np.nanmedian(test)
            ax.plot(valid - centre_v, test - centre_t, ".", ms=3.5, color="0.6", alpha=0.5, mec="none", zorder=1)
            best = int(np.nanargmax(valid))
            chosen["single"].append((valid[best] - centre_v, test[best] - centre_t))
            top = int(np.nanargmax(test))
            chosen["oracle"].append((valid[top] - centre_v, test[top] - centre_t))
            mixture = float(fold["valid_S_L"]["mixture"]), float(fold[SELECTED]["S_L"])
            chosen["mixture"].append((mixture[0] - centre_v, mixture[1] - centre_t))
        _chosen(ax, chosen)
        _near(ax, record, chosen)
        ax.axhline(0, color="0.85", lw=0.8, zorder=0)
        ax.axvline(0, color="0.85", lw=0.8, zorder=0)
        ax.set_title(TITLES[record["configuration"]["dataset"]], loc="left")
        ax.locator_params(nbins=5)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, handletextpad=0.3)
    figure.supxlabel("validation S_L of a trial, less the fold's median (what the choice may see)", fontsize=9)
    figure.supylabel("test S_L, less the fold's median", fontsize=9)
    return figure


def _chosen(ax: Any, chosen: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    looks = {
        "oracle": ("*", 10, _OTHER, "best on test rows"),
        "single": ("D", 5.5, _THIRD, "best on validation rows"),
        "mixture": ("o", 7, _OURS, "mixture, selected on validation rows"),
    }
    for name, (marker, size, colour, label) in looks.items():
        x, y = np.array(chosen[name]).T
        ax.plot(x, y, marker, ms=size, color=colour, mec="white", mew=0.8, label=label, zorder=3)


def _near(ax: Any, record: Record, chosen: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Leave the few trials far below all others out of sight, and say how many."""
    points = []
    for fold in record["results"]["folds"]:
        pair = np.array([fold["trials"]["valid_S_L"], fold["trials"]["test_S_L"]], dtype=float)
        points.append((pair - np.nanmedian(pair, axis=1, keepdims=True)).T)
    cloud, marked = np.concatenate(points), np.array([p for part in chosen.values() for p in part])
    low = np.minimum(np.nanpercentile(cloud, 4, axis=0), marked.min(axis=0))
    high = np.maximum(np.nanmax(np.where(np.isfinite(cloud), cloud, np.nan), axis=0), marked.max(axis=0))
    pad = 0.06 * (high - low)
    ax.set(xlim=(low[0] - pad[0], high[0] + pad[0]), ylim=(low[1] - pad[1], high[1] + pad[1]))
    hidden = int((~((cloud >= low - pad) & (cloud <= high + pad)).all(axis=1)).sum())
    if hidden:
        ax.annotate(
            f"{hidden} of {len(cloud)} trials outside", (0.98, 0.02), xycoords="axes fraction", ha="right", fontsize=7.5
        )


def _mixture(records: Sequence[Record]) -> Any:
    """Validation S_L by the number of trials that are mixed, above that of the best one."""
    if not records:
        return None
    figure, axes = _panels(len(records), 2, width=4.0, height=2.5)
    for ax, record in zip(axes, records):
        folds = record["results"]["folds"]
        curves = [{int(k): float(v) for k, v in fold["mixture_scores"].items()} for fold in folds]
        sizes = sorted(set.intersection(*(set(curve) for curve in curves)))
        gains = np.array([[curve[size] - curve[1] for size in sizes] for curve in curves])
        for fold, row in zip(folds, gains):
            ax.plot(sizes, row, color="0.7", lw=1, zorder=1)
            size = int(fold["mixture_size"])
            if size in sizes:
                ax.plot([size], [row[sizes.index(size)]], "o", ms=5, color=_OURS, mec="white", mew=0.7, zorder=3)
        ax.plot(sizes, gains.mean(axis=0), color=_OURS, lw=2, zorder=2)
        ax.axhline(0, color="0.4", lw=0.8, ls=":")
        ax.set_xscale("log", base=2)
        ax.set_xticks([s for s in (1, 4, 16, 64, 256) if s <= max(sizes)])
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set_title(TITLES[record["configuration"]["dataset"]], loc="left")
    figure.supxlabel("trials in the mixture, best on validation first; dots: the size that was chosen", fontsize=9)
    figure.supylabel("validation S_L, above the best trial", fontsize=9)
    return figure


# ---------------------------------------------------------------------- helpers


def _panels(count: int, columns: int, *, width: float, height: float) -> tuple[Any, list[Any]]:
    import matplotlib.pyplot as plt

    columns = min(columns, count)
    rows = -(-count // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows + 0.3), layout="constrained", squeeze=False
    )
    axes = list(grid.ravel())
    for spare in axes[count:]:
        spare.set_visible(False)
    return figure, axes[:count]


def _sumo(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record["configuration"]["method"] == "SumoNet"]
