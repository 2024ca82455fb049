"""Fills the tables of README.md from the records in results/, and draws its first figure by running its first example.

    python benchmarks/readme.py

What stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` is made here; all other text is written by hand.
"""

import contextlib
import json
import re
import tempfile
import textwrap
from pathlib import Path

import matplotlib as mpl
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


def record(name, part="results"):
    """The results, or another part, of a record."""
    return json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))[part]


def neutral():
    """The neutral benchmark in a paragraph, and its picture."""
    found = record("neutral")
    ranks_of = found["mean_ranks"]
    ours = {score: f"{ranks['SumoNet']:.1f}" for score, ranks in ranks_of.items()}
    curves, methods = len(ranks_of["isbs"]), len(ranks_of["harrell_c"])
    assert curves == len(ranks_of["isll"]) < methods
    assert all(min(ranks, key=ranks.get) == "SumoNet" for ranks in ranks_of.values())
    largest = max(max(values.values()) for values in found["p_values"].values())
    current = max(found["largest_p_of_current_default"].values())
    assert max(largest, current) < 0.05
    text = (
        f"On the [largest neutral comparison of survival models](docs/neutral.md) ({found['tables']} datasets, "
        f"{found['folds']} published folds, {methods - 1} learners fitted and, if tunable, tuned by its authors), "
        f"the untuned default has the best mean rank on the integrated Brier score ({ours['isbs']}) and the integrated "
        f"log-loss ({ours['isll']}) among the {curves} methods that predict survival functions, and on "
        f"Harrell's C ({ours['harrell_c']}) among all {methods}. In paired Wilcoxon tests on these scores, it is "
        f"significantly better than each learner (largest Holm-corrected p: {largest:.4f}). These results are for the "
        f"default frozen at commit {record('neutral', 'configuration')['commit']}, before its first run on these "
        f"folds; the current default's largest p is {current:.4f}. Of the {found['tables']} datasets, {len(SEEN)} had "
        "been used during development."
    )
    picture = "![Mean ranks of all learners on three scores](docs/figures/neutral_ranks.png)"
    # the Wilcoxon tests, which compare ours alone, can be significant inside Nemenyi's band, which is for all pairs
    shaded = "within Nemenyi's critical difference (5 %; a test of all pairs) of the best rank"
    caption = f"*Mean ranks, 1 is best. Shaded: {shaded}.*"
    return f"{textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)}\n\n{picture}\n\n{caption}"


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
        (f"one training step per network, with {most:,} networks trained together on an H200",
         "code released with the paper", f"{network[most]['released / ours']:,.0f} ×"),
    ]  # fmt: skip
    return markdown(("task", "compared with", "speed-up"), lines)


def draw(text):
    """Run the first example of a page, and keep the picture that it saves."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), mpl.rc_context({"savefig.dpi": 130}):
        exec(re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)[1], {})
        (ROOT / "docs" / "figures" / "curves.png").write_bytes(Path("curves.png").read_bytes())


def main():
    """Write the tables and the figure."""
    page = ROOT / "README.md"
    text = page.read_text(encoding="utf-8")
    draw(text)
    for mark, body in (("neutral", neutral()), ("likelihoods", likelihoods()), ("speed", speed())):
        text = filled(text, mark, body)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
