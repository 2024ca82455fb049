"""Figure 3 of the paper: true and learned survival curves of the three simulated datasets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from paper.record import make_record, save_figure, save_record
from sumosurv import datasets
from sumosurv.datasets.simulated import Name as SimulatedName
from sumosurv.estimators import SumoNet
from sumosurv.scores import log_likelihood

__all__ = ["run", "show"]

_TITLES: dict[SimulatedName, str] = {"weibull": "Weibull", "checkerboard": "Checkerboard", "normal": "Normal"}
_RANGES: dict[SimulatedName, tuple[float, float]] = {
    "weibull": (0.0, 2.0),
    "checkerboard": (0.0, 1.0),
    "normal": (80.0, 120.0),
}
# One covariate and a sharp truth: more capacity and less noise than the default for real data.
SETTINGS: dict[str, Any] = {
    "components": "networks",
    "n_members": 4,
    "covariate_layers": (64, 64, 64),
    "time_layers": (64, 64, 64),
    "dropout": 0.0,
    "frequencies": 16,
    "weight_decay": 0.01,
}


def run(out: Path, *, seed: int = 0, n: int = 25_000, max_epochs: int = 80, device: str = "auto") -> dict[str, Any]:
    """Fit SuMo-net to each dataset, print its likelihood on fresh rows beside the true one, draw the figure.

    Writes ``figure3.json``, ``figure3.png`` and ``.svg`` under ``out`` and returns the record.
    """
    x = np.array([0.125, 0.375, 0.625, 0.875])  # the middles of the checkerboard's columns
    results: dict[str, Any] = {}
    curves: dict[SimulatedName, Any] = {}
    print(_head(n))
    for name in _TITLES:
        data = datasets.simulate(name, n, random_state=seed)
        fresh = datasets.simulate(name, n, random_state=seed + 1)
        model = SumoNet(random_state=seed, max_epochs=max_epochs, device=device, **SETTINGS).fit(data.X, data.y)
        truth = float(log_likelihood(fresh.distribution, fresh.y).mean())
        learned = model.score(fresh.X, fresh.y)
        print(_line(name, truth, learned), flush=True)
        grid = np.linspace(*_RANGES[name], 300)
        rows = data.X.iloc[: len(x)].assign(x=x)
        true_curves = datasets.true_distribution(name, x).survival(grid)
        curves[name] = (grid, true_curves, model.predict_survival_function(rows, grid))
        results[name] = {
            "true": truth,
            "learned": learned,
            "gap": truth - learned,
            "event_share": float(data.y["event"].mean()),
            "largest_difference_of_curves": float(np.abs(curves[name][1] - curves[name][2]).max()),
        }
    save_figure(_draw(x, curves), Path(out), "figure3")
    configuration = {"seed": seed, "n": n, "max_epochs": max_epochs, "device": device, "x": x.tolist(), **SETTINGS}
    record = make_record("figure3", configuration, results)
    save_record(record, Path(out))
    return record


def show(record: Mapping[str, Any]) -> None:
    """Print the likelihoods of a stored record."""
    print(_head(record["configuration"]["n"]))
    for name, own in record["results"].items():
        print(_line(name, own["true"], own["learned"]))


def _head(n: int) -> str:
    return f"Mean log-likelihood on {n:,} fresh rows (nats)\n{'':14s}{'true':>9s}{'learned':>9s}{'gap':>9s}"


def _line(name: SimulatedName, truth: float, learned: float) -> str:
    return f"{_TITLES[name]:14s}{truth:9.4f}{learned:9.4f}{truth - learned:9.4f}"


def _draw(x: Any, curves: dict[SimulatedName, Any]) -> Any:
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6), layout="constrained")
    axes = figure.subplots(2, 3, sharey=True)
    import matplotlib as mpl

    colours = mpl.colormaps["viridis"]
    scale = Normalize(0.0, 1.0)
    for j, (name, (grid, true_curves, learned)) in enumerate(curves.items()):
        for i, (label, lines) in enumerate((("true", true_curves), ("learned", learned))):
            ax = axes[i, j]
            for value, line in zip(x, lines):
                ax.plot(grid, line, color=colours(scale(value)), lw=1.8)
            ax.set_xlim(grid[0], grid[-1])
            ax.set_ylim(0, 1.03)
            ax.spines[["top", "right"]].set_visible(False)
            if i == 0:
                ax.set_title(_TITLES[name])
            else:
                ax.set_xlabel("time")
            if j == 0:
                ax.set_ylabel(f"{label} S(t|x)")
    figure.colorbar(mpl.cm.ScalarMappable(scale, colours), ax=axes, label="covariate x", shrink=0.8)
    return figure
