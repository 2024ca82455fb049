"""The page and the picture of `neutral.py`, made from the records and the published scores alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
from _record import make_record, save_record
from _zoo_summary import critical_difference
from neutral import METHODS, SCORES, read_results, record_path
from page import markdown
from scipy import stats

OURS, CURRENT = "SumoNet", "current default"
# tables that had been used in development before
SEEN = ("nwtco", "flchain", "support", "gbsg", "metabric", "rdata", "cost", "whas", "channing", "ova", "e1684", "mgus")
HIGHER_IS_BETTER = {"isbs": False, "isll": False, "harrell_c": True}
NAMES = {
    "KM": "Kaplan-Meier",
    "NEL": "Nelson-Aalen",
    "AK": "Akritas",
    "CPH": "Cox",
    "GLMN": "elastic net Cox (glmnet)",
    "Pen": "penalised Cox (penalized)",
    "NCV": "penalised Cox (ncvreg)",
    "GAM": "additive Cox (mgcv)",
    "AFT": "accelerated failure time",
    "Flex": "flexible splines",
    "RFSRC": "random survival forest (randomForestSRC)",
    "RAN": "random survival forest (ranger)",
    "CIF": "conditional inference forest",
    "ORSF": "oblique random survival forest",
    "RRT": "relative risk tree",
    "MBSTCox": "boosted Cox (mboost)",
    "MBSTAFT": "boosted AFT (mboost)",
    "CoxB": "likelihood-boosted Cox (CoxBoost)",
    "XGBCox": "XGBoost Cox",
    "XGBAFT": "XGBoost AFT",
    "SSVM": "survival support vector machine",
}


def means_by_table(published: pd.DataFrame, own: pd.DataFrame, score: str) -> pd.DataFrame:
    """Mean scores over the folds: one row per table, one column per learner, ours among them.

    Learners tuned for a score are compared on it: ISBS and ISLL of those tuned on ISBS, C of those tuned on C.
    """
    tuned_on = "harrell_c" if score == "harrell_c" else "isbs"
    part = published[published["tune_measure"].str.contains(tuned_on)]
    means = part.groupby(["table", "learner_id"])[score].mean().unstack().rename(columns=NAMES)
    means[OURS] = own.groupby("table")[score].mean()
    return means.dropna(axis=1, how="all").loc[own["table"].unique()].sort_index()


def ranks(means: pd.DataFrame, score: str) -> pd.DataFrame:
    """Ranks within each table, 1 for the best."""
    return means.rank(axis=1, ascending=not HIGHER_IS_BETTER[score])


def paired_tests(means: pd.DataFrame) -> pd.Series:
    """Wilcoxon's signed-rank test of ours against each learner over the tables, with Holm's correction."""
    found = {name: stats.wilcoxon(means[OURS], means[name]).pvalue for name in means if name != OURS}
    raw = pd.Series(found).sort_values()
    return np.minimum((raw * np.arange(len(raw), 0, -1)).cummax(), 1.0)


def gaps(means: pd.DataFrame, score: str) -> pd.DataFrame:
    """Ours beside the best published learner of each table, and the difference in per cent; losses first."""
    others, higher = means.drop(columns=OURS), HIGHER_IS_BETTER[score]
    best = others.max(axis=1) if higher else others.min(axis=1)
    name = others.idxmax(axis=1) if higher else others.idxmin(axis=1)
    gap = 100.0 * (means[OURS] / best - 1.0)
    made = pd.DataFrame({"ours": means[OURS], "best": best, "name": name, "gap": gap})
    return made.sort_values("gap", ascending=higher)


def draw(tables: dict[str, pd.DataFrame], path: Path) -> None:
    """Mean ranks on the three scores, with the critical difference from the best."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 5.6), layout="constrained")
    for axis, (score, means) in zip(axes, tables.items()):
        mean = ranks(means, score).mean().sort_values(ascending=False)
        place = np.arange(len(mean))
        colours = ["#c0392b" if name == OURS else "#7f8c9a" for name in mean.index]
        axis.hlines(place, 1, mean, color=colours, linewidth=1)
        axis.scatter(mean, place, color=colours, s=28, zorder=3)
        for y, (name, value) in enumerate(mean.items()):
            axis.text(value + 0.6, y, f"{value:.1f}", va="center", fontsize=7, color=colours[y])
            del name
        width = critical_difference(len(mean), len(means))
        axis.axvspan(mean.iloc[-1], mean.iloc[-1] + width, color="#c0392b", alpha=0.08, linewidth=0)
        axis.set_yticks(place, mean.index, fontsize=7)
        axis.get_yticklabels()[list(mean.index).index(OURS)].set_fontweight("bold")
        axis.set_xlim(1, len(mean) + 1)
        axis.set_xlabel(f"mean rank of {len(mean)} (1 is best)", fontsize=8)
        axis.set_title(
            {"isbs": "Integrated Brier score", "isll": "Integrated log-loss", "harrell_c": "Harrell's C"}[score]
        )
        axis.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def write_page(out: Path, data: Path, folder: Path, *, record: bool = True) -> None:
    """Write neutral.md and its picture into a folder, and the summary neutral.json beside the records."""
    published = pd.read_parquet(data / "published_scores.parquet")
    own = read_results(out, OURS)
    about = json.loads(record_path(out, OURS).read_text(encoding="utf-8").splitlines()[0])
    now = read_results(out, CURRENT)
    tables = {score: means_by_table(published, own, score) for score in SCORES}
    draw(tables, folder / "figures" / "neutral_ranks.png")
    results = {
        "tables": int(own["table"].nunique()),
        "folds": len(own),
        "mean_ranks": {score: ranks(means, score).mean().round(4).to_dict() for score, means in tables.items()},
        "p_values": {score: paired_tests(means).to_dict() for score, means in tables.items()},
        "largest_p_of_current_default": {score: largest_p(published, now, score) for score in SCORES},
    }
    if record:
        save_record(make_record("neutral", about, results), out)
    (folder / "neutral.md").write_text(text(published, own, about, tables, out), encoding="utf-8")


def text(published: pd.DataFrame, own: pd.DataFrame, about: dict, tables: dict[str, pd.DataFrame], out: Path) -> str:
    """The page."""
    mean = {score: ranks(means, score).mean().sort_values() for score, means in tables.items()}
    tests = {score: paired_tests(means) for score, means in tables.items()}
    unseen = {score: means.drop(index=means.index.intersection(SEEN)) for score, means in tables.items()}
    firsts = [SCORES[score] for score, found in mean.items() if found.index[0] == OURS]
    said = ", ".join(f"{mean[s][OURS]:.2f} of {len(tables[s].columns)} ({SCORES[s]})" for s in SCORES)
    on_unseen = ", ".join(f"{ranks(unseen[s], s).mean()[OURS]:.2f} ({SCORES[s]})" for s in SCORES)
    p_values = ", ".join(f"{_p(tests[s].max())} ({SCORES[s]})" for s in SCORES)
    p_unseen = ", ".join(f"{_p(paired_tests(unseen[s]).max())} ({SCORES[s]})" for s in SCORES)
    lines = [
        "# The neutral benchmark",
        "",
        f"On {own['table'].nunique()} datasets and {len(own)} published folds, the untuned default `SumoNet()` has the",
        f"best mean rank on {_listed(firsts)}. Its mean ranks are {said}. The authors of the study fitted the other",
        "learners, and tuned those that have tuning parameters. (ISBS: integrated Brier score; ISLL: integrated",
        "log-loss; C: Harrell's C.)",
        "",
        "![Mean ranks of all learners on three scores](figures/neutral_ranks.png)",
        "",
        "*Mean ranks over the datasets. Shaded: within Nemenyi's critical difference (5 %; a test of all pairs) of the",
        "best.*",
        "",
        "Burk et al., [*A Large-Scale Neutral Comparison Study of Survival Models on Low-Dimensional",
        "Data*](https://arxiv.org/abs/2406.04098), compare 21 learners by repeated three-fold cross-validation with",
        "nested tuning, and publish the rows and the scores of every fold. They find no learner that is significantly",
        "better than Cox regression.",
        "",
        "Paired Wilcoxon tests over the datasets compare `SumoNet()` with each learner, with Holm's correction for the",
        f"number of learners. The largest p-values are {p_values}. Of the datasets, {len(SEEN)} had been used while",
        f"the library was developed. On the other {len(unseen['isbs'])}, the mean ranks are {on_unseen},",
        f"and the largest p-values {p_unseen}.",
        "",
        f"**The frozen default was not tuned to these folds.** It was fixed at commit {about['commit']} before it was",
        "first run on this benchmark.",
        "",
        *_current(published, own, out),
        "## Paired tests",
        "",
        "Mean rank, and Holm-corrected p-value of the test against `SumoNet()`. A dash marks learners that predict no",
        "survival function.",
        "",
    ]
    order = [name for name in mean["harrell_c"].index if name not in mean["isbs"].index]
    body = []
    for name in [*mean["isbs"].index, *order]:
        cells = [f"**{name}**" if name == OURS else name]
        for score in SCORES:
            if name not in mean[score].index:
                cells += ["-", "-"]
            else:
                cells += [f"{mean[score][name]:.2f}", "" if name == OURS else _p(tests[score][name])]
        body.append(cells)
    lines += [markdown(["learner", "ISBS", "p", "ISLL", "p", "C", "p"], body), ""]
    found = {score: gaps(means, score) for score, means in tables.items()}
    wins = ", ".join(
        f"{int((part['gap'] >= 0 if HIGHER_IS_BETTER[s] else part['gap'] <= 0).sum())} ({SCORES[s]})"
        for s, part in found.items()
    )
    lines += [
        "## Results by dataset",
        "",
        f"`SumoNet()` is best on {wins} of {len(found['isbs'])} datasets. Each difference is in per cent of the best",
        "published value of that score, losses on ISBS first. ISBS and ISLL are better if lower, C if higher.",
        "",
        markdown(
            [
                "dataset",
                "ISBS, SumoNet",
                "best published learner (ISBS)",
                *(f"difference, {name}" for name in SCORES.values()),
            ],
            [
                [
                    f"{table}{' ᵈ' if table in SEEN else ''}",
                    f"{found['isbs'].loc[table, 'ours']:.4f}",
                    found["isbs"].loc[table, "name"],
                    *(f"{found[score].loc[table, 'gap']:+.1f} %" for score in SCORES),
                ]
                for table in found["isbs"].index
            ],
        ),
        "",
    ]
    lines += ["ᵈ used while the library was developed", ""]
    lines += [*_peers(published, out), *_protocol(own, about)]
    return "\n".join(lines)


def largest_p(published: pd.DataFrame, own: pd.DataFrame, score: str) -> float:
    """The largest p-value of the tests of one of our methods against every learner."""
    return float(paired_tests(means_by_table(published, own, score)).max())


def _current(published: pd.DataFrame, own: pd.DataFrame, out: Path) -> list[str]:
    """The default as it has become since, beside the frozen one, on the folds of both."""
    now = read_results(out, CURRENT)
    if now.empty:
        return []
    commit = json.loads(record_path(out, CURRENT).read_text(encoding="utf-8").splitlines()[0])["commit"]
    key = ["table", "iteration"]
    both = own.set_index(key).join(now.set_index(key), rsuffix=" now", how="inner")
    then = own.set_index(key).loc[both.index].reset_index()
    body = []
    for name, results in (("frozen default", then), (CURRENT, now)):
        mean_ranks = [f"{ranks(means_by_table(published, results, s), s).mean()[OURS]:.2f}" for s in SCORES]
        largest = [_p(largest_p(published, results, s)) for s in SCORES]
        body.append([name, *(cell for pair in zip(mean_ranks, largest) for cell in pair)])
    differences = []
    for score, name in SCORES.items():
        gap = (both[f"{score} now"] - both[score]).groupby("table").mean()
        differences.append(f"{gap.mean():+.4f} ± {gap.std() / np.sqrt(len(gap)):.4f} ({name})")
    return [
        "## The current default",
        "",
        f"The default has been made faster since. At commit {commit}, on {len(both)} folds of",
        f"{both.index.get_level_values(0).nunique()} datasets, its scores differ from those above by",
        f"{', '.join(differences)}: means ± standard errors over datasets. All else on this page is for the frozen",
        "default.",
        "",
        "Mean rank among the published learners, and the largest Holm-corrected p-value of the tests against them:",
        "",
        markdown(["default", "ISBS", "p", "ISLL", "p", "C", "p"], body),
        "",
    ]


def _peers(published: pd.DataFrame, out: Path) -> list[str]:
    """Our own runs of other methods, beside the default on the same folds and beside published runs."""
    key, same = ["table", "iteration"], {"Kaplan-Meier": "KM", "Cox": "CPH"}
    ours = read_results(out, OURS).set_index(key)
    body = []
    for method in METHODS:
        found = read_results(out, method).set_index(key)
        if method in (OURS, CURRENT) or found.empty:
            continue
        means = [f"{found[score].mean():.4f} ({ours.loc[found.index, score].mean():.4f})" for score in SCORES]
        difference = ""
        if method in same:
            theirs = published[published["learner_id"] == same[method]].set_index(key)["isbs"]
            difference = f"{(found['isbs'] - theirs).abs().median():.0e}"
        body.append([method, len(found), *means, difference])
    header = ["method", "folds", *SCORES.values(), "median absolute difference from published ISBS"]
    return [
        "## Our own runs of other methods",
        "",
        "Default settings; inner folds choose the penalty of penalised Cox. Means over the folds that were run,",
        "with `SumoNet()` on the same folds in parentheses. Forest and boosting come from scikit-survival.",
        "The slower methods were run on a random sample of the folds; folds that exceeded the time limit are",
        "missing.",
        "",
        markdown(header, body),
        "",
    ]


def _protocol(own: pd.DataFrame, about: dict) -> list[str]:
    seconds = own.groupby("table")["fit_seconds"].median().sort_values()
    return [
        "## Protocol",
        "",
        "- Folds: the published test rows of repeated three-fold cross-validation, 3 to 30 folds per dataset; all",
        "  other rows of the dataset are training rows. `SumoNet(random_state=fold)`, without other settings that",
        "  affect the fit.",
        "- ISBS and ISLL as mlr3proba defines them: distinct test times up to the first at which more than 80 % of the",
        "  test rows are no longer at risk, weights from the Kaplan-Meier curve of the censoring times of the training",
        "  rows. ISBS and ISLL are compared for learners tuned on ISBS, C for those tuned on C.",
        "- C: Harrell's concordance of the sum of the cumulative hazard over the training event times.",
        "- This code reproduces the published fold scores of Kaplan-Meier and Cox regression",
        "  (`tests/benchmarks/test_neutral.py`).",
        f"- Median fit times per dataset range from {seconds.iloc[0]:.1f} s ({seconds.index[0]}) to",
        f"  {seconds.iloc[-1]:.0f} s ({seconds.index[-1]}); the median over all folds is",
        f"  {own['fit_seconds'].median():.1f} s. {about['machine']}, one thread per fit;",
        f"  torch {about['versions']['torch']}.",
        "",
        "```",
        'python benchmarks/neutral.py --methods "current default" --jobs 16 --out results',
        "python benchmarks/neutral.py --methods none --out results --page docs",
        "```",
        "",
    ]


def _listed(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.0e}"
