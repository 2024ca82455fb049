"""The paper's Figure 1: true curves, and false ones that win on time-dependent concordance."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from paper.counterexamples import example_1, example_1_curves
from paper.record import make_record, save_figure, save_record
from sumosurv.scores import concordance_td, log_likelihood

__all__ = ["run", "show"]


def run(out: Path, *, seed: int = 0, n: int = 1000) -> dict[str, Any]:
    """Draw ``figure1.png`` and ``.svg`` and write ``figure1.json`` under ``out``; return the record."""
    data = example_1(n, seed)
    scores = {
        name: {"concordance_td": concordance_td(d, data.y), "log_likelihood": float(log_likelihood(d, data.y).mean())}
        for name, d in (("true", data.truth), ("false", data.false))
    }
    grid = np.unique(np.concatenate([np.arange(0, 10.5, 0.01), np.arange(11) + 1e-8]))
    curves = {name: d.survival(grid) for name, d in zip(("true", "false"), example_1_curves())}
    figure = _draw(grid, curves, scores)
    save_figure(figure, Path(out), "figure1")
    results = {"scores": scores, "times": grid, "curves": curves}
    record = make_record("figure1", {"seed": seed, "n": n}, results)
    show(record)
    save_record(record, Path(out))
    return record


def show(record: Mapping[str, Any]) -> None:
    """Print the scores of a record."""
    for name, values in record["results"]["scores"].items():
        print(f"{name:<6} Ctd {values['concordance_td']:.3f}   S_L {values['log_likelihood']:.3f}")


def _draw(grid: Any, curves: dict[str, Any], scores: dict[str, dict[str, float]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (name, pair) in zip(axes, curves.items()):
        for k in range(10):
            ax.axvspan(k, k + 1, color=("#0072B2", "#D55E00")[k % 2], alpha=0.07, lw=0)
        for x, (colour, style) in enumerate((("#0072B2", "-"), ("#D55E00", "--"))):
            ax.plot(grid, pair[x], style, color=colour, lw=2, label=f"X = {x}")
        likelihood = scores[name]["log_likelihood"]
        shown = f"{likelihood:.3f}".replace("-", "−") if np.isfinite(likelihood) else "−∞"
        numbers = f"$C^{{td}}$ = {scores[name]['concordance_td']:.3f},  $S_L$ = {shown}"
        ax.set_title(f"{name.capitalize()} distribution\n{numbers}", fontsize=11)
        ax.set_xlabel("time")
        ax.set_xlim(0, 10.5)
        ax.set_ylim(-0.02, 1.03)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("survival probability")
    axes[0].legend(frameon=False, title="shade: whose hazard is not 0", title_fontsize=9)
    return figure
