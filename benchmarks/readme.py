"""Fills the tables of README.md from the records in results/.

    python benchmarks/readme.py

What stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` is made here; all other text is written by hand.
"""

import json
import textwrap
from pathlib import Path

from _neutral_page import SEEN
from page import filled, markdown

ROOT = Path(__file__).parents[1]
DATASETS = ("metabric", "gbsg", "flchain", "support")
METHODS = {  # beside SumoNet, in the order of the table
    "SurvNode": "SurvNODE",
    "Soden": "SODEN",
    "WeibullNet": "Weibull network",
    "LogNormalNet": "log-normal network",
    "DeepHit": "DeepHit",
    "CoxTime": "Cox-Time",
    "DeepSurv": "DeepSurv",
    "RandomSurvivalForest": "random survival forest",
    "CoxPH": "Cox",
    "KaplanMeier": "Kaplan-Meier",
}


def record(name):
    """The results of a record."""
    return json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))["results"]


def neutral():
    """The neutral benchmark in one sentence."""
    found = record("neutral")
    ours = {score: ranks["SumoNet"] for score, ranks in found["mean_ranks"].items()}
    count = max(len(ranks) for ranks in found["mean_ranks"].values()) - 1
    assert all(min(ranks, key=ranks.get) == "SumoNet" for ranks in found["mean_ranks"].values())
    largest = max(max(values.values()) for values in found["p_values"].values())
    assert largest < 0.05
    text = (
        f"On the [largest neutral comparison of survival models](docs/neutral.md) ({found['tables']} tables, "
        f"{found['folds']} published folds, {count} learners tuned by its authors), the untuned default has the best "
        f"mean rank on the integrated Brier score ({ours['isbs']:.1f}), the integrated log-loss ({ours['isll']:.1f}) "
        f"and Harrell's C ({ours['harrell_c']:.1f}). It is significantly better than each learner on every published "
        f"score (largest Holm-corrected p: {largest:.4f}). It was fixed before its first run on these folds; "
        f"{len(SEEN)} tables had been used in development."
    )
    picture = "![Mean ranks of all learners on three scores](docs/figures/neutral_ranks.png)"
    return f"{textwrap.fill(text, 119, break_long_words=False, break_on_hyphens=False)}\n\n{picture}"


def likelihoods():
    """Mean log-likelihoods on the test folds, every method with its default settings."""
    ours = {row["dataset"]: row["S_L"] for row in record("default_likelihood")["rows"] if row["model"] == "default"}
    others = {(row["method"], row["dataset"]): row for row in record("methods")["rows"]}
    table = {"**SumoNet**": [ours[data] for data in DATASETS]}
    for method, name in METHODS.items():
        rows = [others[method, data] for data in DATASETS]
        table[name + (" \\*" if rows[0]["interpolated"] else "")] = [row["S_L"] for row in rows]
    best = [max(round(column, 3) for column in columns) for columns in zip(*table.values())]
    lines = [
        (name, *(f"**{value:.3f}**" if round(value, 3) == top else f"{value:.3f}" for value, top in zip(values, best)))
        for name, values in table.items()
    ]
    return markdown(("", *(data.upper() for data in DATASETS)), lines)


def speed():
    """Speed-up over other implementations."""
    way = "S, from inputs, double"
    ratios = {row["peer"]: row for row in record("performance_inference_cpu")["ratios"] if row["case"] == "support"}
    network = {
        row["networks"]: row for row in record("performance_training_cuda")["ratios"] if row["case"] == "population"
    }
    most = max(network)
    lines = [
        ("survival curves of 1,775 subjects at 100 times, one CPU thread", "code released with the paper",
         f"{ratios['released code: S, from inputs'][way]:.0f} ×"),
        ("the same", "pycox, Cox-Time", f"{ratios['pycox Cox-Time: S, same grid'][way]:.0f} ×"),
        ("the same", "SODEN, solved by torchdiffeq",
         f"{ratios['Soden, torchdiffeq: S, from inputs'][way]:.0f} ×"),
        (f"a training step of a network, {most:,} trained together on an H200", "code released with the paper",
         f"{network[most]['released / ours']:,.0f} ×"),
    ]  # fmt: skip
    return markdown(("task", "compared with", "speed-up"), lines)


def main():
    """Write the tables."""
    page = ROOT / "README.md"
    text = page.read_text(encoding="utf-8")
    for mark, body in (("neutral", neutral()), ("likelihoods", likelihoods()), ("speed", speed())):
        text = filled(text, mark, body)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
