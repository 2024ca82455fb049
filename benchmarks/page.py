"""Fills the tables and claims of evidence pages, and the pictures of docs/performance.md, from the records in results/.

    python benchmarks/page.py

What stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` is made here; all other text is written by hand.
"""

import argparse
import json
import re
import textwrap
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[1]
GIB = 2**30


def load(folder, name, device):
    """A record, or None."""
    path = folder / f"performance_{name}_{device}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def markdown(header, lines):
    """A table."""
    rows = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join(rows + [f"| {' | '.join(map(number, line))} |" for line in lines])


def prose(text):
    """A paragraph, wrapped."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def number(value):
    """A figure with three digits; nothing for nothing."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def where(record):
    """On what machine, and with which commit if the record names one."""
    settings = record["configuration"]
    threads, commit = settings["threads"], record.get("commit")
    return (
        f"{settings['machine']}, {threads} CPU thread{'s' if threads > 1 else ''}, torch {record['versions']['torch']}"
        f"{f', commit {commit}' if commit else ''}"
    )


NAMES = {"SumoNet, equal": "SumoNet, the paper's size", "kkbox size": "KKBOX's size"}
HIDDEN = ("S, curves", "f, curves")  # steps of a prediction; the records have them, and lower bounds on the time


def inference(record):
    """Predictions, with the time of each peer as a multiple of ours."""
    found = {}
    for r in record["results"]["rows"]:
        if r["what"] not in HIDDEN:
            key = (NAMES.get(r["case"], r["case"].upper()), NAMES.get(r["who"], r["who"]), r["what"])
            found.setdefault(key, {})[r["precision"]] = 1e3 * r["seconds"]
    lines = [(*key, times.get("double"), times.get("single")) for key, times in found.items()]
    ratios = record["results"]["ratios"]
    start = "S, on the device" if any("S, on the device" in key for r in ratios for key in r) else "S, from inputs"
    ways = [f"{start}, {precision}" for precision in ("double", "single")]
    pairs = [(NAMES.get(r["case"], r["case"].upper()), r["peer"], *(r[way] for way in ways)) for r in ratios]
    pairs = [pair for pair in pairs if "on the device" not in start or pair[1].endswith("on the device")]
    return (
        f"{where(record)}.\n\n"
        + markdown(("rows", "who", "what", "double, ms", "single, ms"), lines)
        + "\n\n"
        + markdown(("rows", "peer", *(f"÷ ours ({way})" for way in ways)), pairs)
    )


def training(record):
    """Steps and epochs."""
    lines = [
        (
            r["case"],
            r["who"],
            r["networks"],
            r["batch"],
            r["step_ms"],
            r["per_network_ms"],
            r.get("epoch_s"),
        )
        for r in record["results"]["rows"]
    ]
    header = ("case", "who", "networks", "batch", "step, ms", "per network, ms", "epoch, s")
    text = f"{where(record)}.\n\n" + markdown(header, lines)
    if record["results"]["ratios"]:
        pairs = [(r["case"], r["networks"], r["released / ours"]) for r in record["results"]["ratios"]]
        text += "\n\n" + markdown(("case", "networks", "released ÷ ours, per network"), pairs)
    memory = record["results"]["memory"]
    peak = f"\n\nPeak memory: host {memory['host_bytes'] / GIB:.2f} GiB"
    return text + peak + (f", device {memory['device_bytes'] / GIB:.2f} GiB." if memory["device_bytes"] else ".")


def scale(record):
    """Cost per row."""
    lines = [
        (
            f"{r['rows']:,}",
            r["members"],
            r["fit_s"],
            r["fit_us_per_row"],
            r["fit_cpu_us_per_row"],
            r["predict_us_per_row"],
            r["predict_cpu_us_per_row"],
            r["host_gib"],
            r["device_gib"],
        )
        for r in record["results"]["rows"]
    ]
    header = (
        "rows",
        "members",
        "fit, s",
        "fit, µs per row",
        "processor",
        "predict, µs per row",
        "processor",
        "peak host, GiB",
        "peak device, GiB",
    )
    return f"{where(record)}.\n\n" + markdown(header, lines)


def waits(record):
    """Times of whole tasks; the ratios are in the other tables."""
    lines = [
        (r["what"], f"{number(r['measured'])} {r['unit']}", r["beside"])
        for r in record["results"]["rows"]
        if r["unit"] != "×"
    ]
    return f"{where(record)}.\n\n" + markdown(("task", "time", "compared with"), lines)


def startup(record):
    """Imports."""
    lines = [(f"`{r['what']}`", r["seconds"], r["of import torch"]) for r in record["results"]["rows"]]
    answer = "imports" if record["results"]["help_imports_torch"] else "does not import"
    return markdown(("what", "s", "÷ import torch"), lines) + f"\n\n`sumosurv --help` {answer} torch."


def cox_path(record):
    """Linear models, with the processor seconds of R's glmnet and of lifelines."""
    settings = record["configuration"]
    lines = [
        (r["what"], f"{r['rows']:,} x {r['columns']:,}", r.get("smallest penalty"), r["sumosurv"], r["peer"],
         r["seconds of peer"], r["ratio"])
        for r in record["results"]["rows"]
    ]  # fmt: skip
    peers = f"glmnet {settings['glmnet']}, lifelines {settings['lifelines']}"
    header = ("task", "rows x columns", "smallest penalty", "s", "peer", "peer, s", "times as fast")
    text = f"{where(record)}; {peers}; processor seconds.\n\n" + markdown(header, lines)
    compared = record["results"].get("agreement")
    if not compared:
        return text
    lines = [
        (f"{r['threshold of glmnet']:g}", f"{r['within 1e-5']} of {r['penalties']}", f"{r['largest difference']:.1g}",
         f"{r['violation, glmnet']:.1g}", f"{r['violation, sumosurv']:.1g}", f"{r['Newton step, glmnet']:.1g}",
         f"{r['Newton step, sumosurv']:.1g}", f"{r['at most']:.1g}")
        for r in compared
    ]  # fmt: skip
    header = (
        "`thresh` of glmnet", "penalties within 1e-5", "largest difference", "violation, glmnet", "violation, sumosurv",
        "Newton step, glmnet", "Newton step, sumosurv", "objective of glmnet less ours",
    )  # fmt: skip
    return (
        f"{text}\n\nCoefficients of the lasso on 200 x 5,000, the largest values over all penalties. The violation is "
        "that of the conditions of optimality, relative to the penalty. The Newton step tells how far the coefficients "
        f"that are not zero are from the optimum.\n\n{markdown(header, lines)}"
    )


def evaluation(record):
    """Scores: processor seconds and memory, and scikit-survival with the same curves and weights."""
    settings, found = record["configuration"], record["results"]
    ours = [(r["what"], f"{r['rows']:,}", f"{r['cpu_seconds']:.2f}", f"{r['peak_gb']:.2f}") for r in found["ours"]]
    peers = [
        (r["what"], f"{r['rows']:,}", r["ours"], r["scikit-survival"], f"{r['ratio']:.1f}", f"{r['difference']:.0e}")
        for r in found["peers"]
    ]
    return (
        f"{where(record)}; processor seconds. {settings['networks']} networks, {settings['columns']} columns. "
        "Censoring depends on x, so `evaluate`\nreports weighted scores with both versions of G.\n\n"
        + markdown(("task", "rows", "seconds", "peak memory so far, GB"), ours)
        + "\n\n"
        + markdown(("task", "rows", "seconds", "scikit-survival", "times as fast", "largest difference"), peers)
    )


def serve(record):
    """Requests per second of the server, and of direct calls."""
    lines = [
        (r["question"], r["clients"], f"{r['library_per_second']:.1f}", f"{r['per_second']:.1f}", f"{r['ratio']:.2f}",
         f"{r['p50_ms']:.0f}", f"{r['p99_ms']:.0f}")
        for r in record["results"]["rows"]
    ]  # fmt: skip
    header = ("request", "clients", "library, per second", "server, per second", "ratio", "median, ms", "p99, ms")
    return markdown(header, lines)


def explain(record):
    """SurvSHAP(t) values: processor seconds per subject and error, with those of other packages."""
    lines = [
        (r["columns"], r["method"], f"{r['rows a subject']:,}", f"{r['CPU s a subject']:.2f}", f"{r['CPU ratio']:.1f}",
         f"{r['rms error']:.2g}", f"{r['at equal error']:.1f}" if "at equal error" in r else "")
        for r in record["results"]["rows"]
    ]  # fmt: skip
    header = ("columns", "method", "rows predicted", "CPU s", "ratio", "rms error", "ratio at equal error")
    return markdown(header, lines)


def export(record):
    """Exported models: errors, sizes and seconds, with the seconds of the library."""
    lines = [
        (r["dataset"], r["precision"], *(f"{r[name]:.1e}" for name in ("error_S", "error_f", "error_risk")),
         f"{r['bytes'] / 1024:,.0f}", f"{r['seconds_to_write']:.2f}",
         f"{1e3 * r['one_row']:.1f} ({1e3 * r['one_row_library']:.0f})", f"{r['batch']:.2f} ({r['batch_library']:.2f})")
        for r in record["results"]["rows"]
    ]  # fmt: skip
    header = ("dataset", "precision", "error of S", "error of f", "error of risk", "KiB", "written in, s",
              "one row, ms (library)", f"{record['configuration']['batch']} rows, s (library)")  # fmt: skip
    return markdown(header, lines)


TABLES = {
    "explain": explain,
    "export": export,
    "inference": inference,
    "training": training,
    "scale": scale,
    "startup": startup,
    "waits": waits,
    "evaluation": evaluation,
    "cox_path": cox_path,
    "serve": serve,
}


def pictures(folder, out):
    """Cost per row from ten thousand to ten million rows; peers beside our prediction."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    records = {device: load(folder, "scale", device) for device in ("cpu", "cuda")}
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for device, record in records.items():
        if record is None:
            continue
        rows = record["results"]["rows"]
        n = [r["rows"] for r in rows]
        axes[0].loglog(n, [r["fit_cpu_us_per_row"] for r in rows], "o-", label=f"fit, one epoch ({device})")
        axes[0].loglog(n, [r["predict_cpu_us_per_row"] for r in rows], "s--", label=f"predict, 10 times ({device})")
        axes[1].loglog(n, [r["host_gib"] for r in rows], "o-", label=f"host ({device})")
    axes[1].axhline(16, color="grey", lw=0.8, ls=":")
    axes[0].set(xlabel="rows", ylabel="µs of processor time per row")
    axes[1].set(xlabel="rows", ylabel="peak memory, GiB")
    for axis in axes:
        axis.legend(fontsize=8)
    figure.savefig(out / "performance_scale.png", dpi=130)
    pyplot.close(figure)
    record = load(folder, "inference", "cpu")
    if record is None:
        return
    wanted = ("S, from inputs", "S, all training times", "S, same grid", "S, whole")
    rows = [r for r in record["results"]["rows"] if r["case"] == "support" and r["what"] in wanted]
    rows = [
        r
        for r in rows
        if r["who"] != "SumoNet, default" and not (r["who"] == "SumoNet, equal" and r["what"] == "S, whole")
    ]
    rows.sort(key=lambda r: r["seconds"])
    figure, axis = pyplot.subplots(figsize=(8, 0.5 + 0.4 * len(rows)), layout="constrained")
    names = [f"{r['who']} ({r['precision']}): {r['what'].removeprefix('S, ')}" for r in rows]
    colours = ["C0" if r["who"].startswith("SumoNet") else "0.6" for r in rows]
    bars = axis.barh(names, [1e3 * r["seconds"] for r in rows], color=colours)
    axis.bar_label(bars, labels=[number(1e3 * r["seconds"]) for r in rows], padding=2, fontsize=8)
    axis.margins(x=0.08)
    axis.set(xscale="log", xlabel="ms for SUPPORT's test fold × 100 times, one CPU thread")
    axis.invert_yaxis()
    figure.savefig(out / "performance_inference.png", dpi=130)
    pyplot.close(figure)


STUDIES = {
    "late_entry": "delayed entry",
    "visits": "interval censoring",
    "causes": "competing risks",
    "changing": "time-varying covariates",
}


def outcome_tables(folder):
    """The tables of docs/outcomes_evidence.md, by the name of their place."""
    records = {
        name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["results"]
        for name in ("outcomes", "competing_risks", "age_scale")
        if (folder / f"{name}.json").is_file()
    }
    made = {}
    if "outcomes" in records:
        lines = [
            (STUDIES[r["study"]], f"{r['true']:.4f}", f"{r['learned']:.4f}", f"{r['gap']:.4f}",
             f"{r['error_learned']:.3f}", f"{r['error_naive']:.3f}")
            for r in records["outcomes"]["studies"]
        ]  # fmt: skip
        header = ("study", "true", "learned", "gap, nats", "largest error of the curve", "of the naive one")
        made["studies"] = markdown(header, lines)
        errors = pd.DataFrame(records["outcomes"]["studies"])
        made["outcomes claim"] = prose(
            f"In {len(errors)} simulated studies, `SumoNet` fitted with the likelihood of the outcome learns the true "
            f"curve with an error of at most {errors['error_learned'].max():.2f}. The usual shortcuts have errors of "
            f"{errors['error_naive'].min():.2f} to {errors['error_naive'].max():.2f}."
        )
    if "competing_risks" in records:
        frame = pd.DataFrame(records["competing_risks"]["folds"]).iloc[::-1]
        frame["log_likelihood"] = frame["log_likelihood"].map(float)  # stored as text where there is none
        means = frame.groupby(["dataset", "method"], sort=False)[["log_likelihood", "ibs_1", "ibs_2", "seconds"]].mean()
        lines = [
            (dataset, method, "" if pd.isna(row["log_likelihood"]) else f"{row['log_likelihood']:.3f}",
             f"{row['ibs_1']:.4f}", f"{row['ibs_2']:.4f}", f"{row['seconds']:.1f}")
            for (dataset, method), row in means.iterrows()
        ]  # fmt: skip
        header = ("table", "method", "log-likelihood", "Brier, cause 1", "Brier, cause 2", "seconds per fold")
        made["causes"] = f"{markdown(header, lines)}\n\n{prose(_commits(frame))}"
        made["causes verdict"] = causes_verdict(means)
    if "age_scale" in records:
        means = pd.DataFrame(records["age_scale"]["folds"]).groupby("method").mean(numeric_only=True)
        lines = [
            (method, *(f"{row[name]:.4f}" for name in ("log_likelihood", "concordance_td", "integrated_brier")),
             f"{row['d_calibration']:.1e}", f"{row['seconds']:.1f}")
            for method, row in means.iterrows()
        ]  # fmt: skip
        header = (
            "method",
            "log-likelihood",
            "concordance",
            "integrated Brier",
            "D-calibration",
            "processor seconds per fold",
        )
        made["age"] = f"{markdown(header, lines)}\n\n{_commits(pd.DataFrame(records['age_scale']['folds']))}"
    return made


def _commits(frame):
    """With which commits the methods were run, as a sentence."""
    named = frame.get("commit", pd.Series("", frame.index)).fillna("").groupby(frame["method"], sort=False).unique()
    by_commit = {}
    for method, commits in named.items():
        by_commit.setdefault(" and ".join(sorted(commits)), []).append(method)
    parts = [f"{', '.join(methods)}: {commit or 'commit not recorded'}" for commit, methods in by_commit.items()]
    return f"Run with commit {next(iter(by_commit))}." if len(parts) == 1 and all(by_commit) else f"{'; '.join(parts)}."


def causes_verdict(means):
    """How the default compares with the other methods, from mean scores by dataset and method."""
    likelihood = means["log_likelihood"].unstack("method")
    best = sum(likelihood.idxmax(axis=1) == "SumoNet")
    brier = means[["ibs_1", "ibs_2"]].stack().unstack("method")
    lower = sum(brier["SumoNet"] < brier["SurvivalBoost"])
    return prose(
        f"The default has the highest likelihood on {best} of {len(likelihood)} tables, and a lower Brier score than "
        f"SurvivalBoost for {lower} of {len(brier)} causes. A likelihood of -inf means that a step curve assigns "
        "probability zero to an observed event."
    )


SHOWN = (  # families of the table by dataset, and what its columns are called
    ("Gompertz, learned growth", "Gompertz, learned"),
    ("power of time, learned exponent", "power of time"),
    ("constant, as at T", "constant"),
    ("linear, slope of the halves", "linear"),
    ("Weibull through T/2 and T, any shape", "Weibull, any shape"),
    ("Gompertz, growth of the halves", "Gompertz, own"),
)


def tail_tables(folder):
    """The tables of docs/tails_evidence.md, by the name of their place."""
    path = folder / "tails.json"
    if not path.is_file():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))["results"]
    order = sorted(found["families"].items(), key=lambda item: -item[1]["gain"])
    families = [
        (name, f"{r['gain']:+.4f} ± {r['error']:.4f}",
         f"{r['against_default']:+.4f} ± {r['against_default_error']:.4f}",
         f"{r['worst']:+.3f}", f"{r['rank']:.1f}", f"{100 * r['restricted_mean_off']:.1f} %")
        for name, r in order
    ]  # fmt: skip
    tables = [
        (r["table"], r["cut"], r["rows"], r["events"], f"{sum(r['growth']) / len(r['growth']):.2f}",
         *(f"{r['families'][name]['gain']:+.3f} ± {r['families'][name]['error']:.3f}" for name, _ in SHOWN))
        for r in found["tables"]
    ]  # fmt: skip
    ages = [
        (name, f"{100 * r['over_110']:.1f} %", f"{r['largest_age']:,.0f}", f"{r['mean_age']:.1f}")
        for name, r in found["flchain"]["families"].items()
    ]
    default, no_prior = (found["families"][f"Gompertz, learned growth{rest}"] for rest in ("", ", no prior"))
    losses = [(r["families"]["Gompertz, learned growth"]["gain"], r["table"], r["cut"]) for r in found["tables"]]
    lost, table, cut = min(losses)
    return {
        "tails claim": prose(
            "Continuing each network's hazard from its value at the last training time gains "
            f"{default['gain']:.3f} ± {default['error']:.3f} nats per row over a Weibull tail, on "
            f"{len({r['table'] for r in found['tables']})} tables whose follow-up was cut short ({len(losses)} cuts). "
            "Among the tails with the best likelihood, the Gompertz tail with a learned growth rate ([the "
            "default](tails.md)) is the only one with plausible life expectancies."
        ),
        "tails choice": prose(
            "The prior on the growth rate is worth "
            f"{-no_prior['against_default']:.3f} ± {no_prior['against_default_error']:.3f}. The learned growth rate "
            f"is not best everywhere: on {table.upper()} cut at a {cut} it loses {-lost:.2f} nats per row. Its window "
            "(from T/4) and the width of its prior were chosen among a few values on these tables, so its results are "
            "slightly optimistic. Most of the gain remains with a constant hazard, for which nothing has to be chosen."
        ),
        "growth": f"The learned growth rate is {found['flchain']['growth_per_year']:.2f} per year.",
        "families": markdown(
            ("tail", "gain, nats per row", "against the default", "worst table", "mean rank", "restricted mean off by"),
            families,
        ),
        "tables": markdown(("table", "cut", "rows", "events", "growth", *(short for _, short in SHOWN)), tables),
        "ages": markdown(("tail", "past 110", "oldest", "mean age"), ages),
    }


def uncertainty_tables(folder):
    """The tables of docs/uncertainty_evidence.md, by the name of their place."""
    made = {}
    records = {
        name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["results"]
        for name in ("bands", "conformal", "conformal_bounds")
        if (folder / f"{name}.json").is_file()
    }
    if "bands" in records:
        frame = pd.DataFrame(records["bands"]["fits"])
        means = frame.groupby(["table", "rows", "level"], sort=False).mean(numeric_only=True)
        lines = [
            (table, rows, *(f"{100 * part.loc[(table, rows, level), 'inside']:.0f} %" for level in (0.5, 0.8, 0.95)),
             f"{part['width'].iloc[-1]:.3f}", f"{part['error'].iloc[-1]:.3f}")
            for (table, rows), part in means.groupby(["table", "rows"], sort=False)
        ]  # fmt: skip
        header = ("truth", "rows", "in the 50 % band", "80 %", "95 %", "mean width, 95 %", "mean error of S")
        made["bands"] = markdown(header, lines)
    if "conformal_bounds" in records:
        lines = [
            ("yes" if r["censoring depends on x"] else "no", "yes" if r["model sees"] == "x" else "no",
             r["censoring by"], f"{r['level']:.0%}", f"{100 * r['held']:.1f} % ± {100 * r['error']:.1f}",
             f"{r['mean bound']:.3f}")
            for r in records["conformal_bounds"]["rows"]
        ]  # fmt: skip
        header = ("censoring depends on x", "model sees x", "censoring by", "level", "outlived", "mean bound")
        made["bounds"] = markdown(header, lines)
        made["bounds claim"] = bounds_claim(records["conformal_bounds"]["rows"])
    if "conformal" in records:
        frame = pd.DataFrame(records["conformal"]["rows"])
        frame["log_likelihood"] = frame["log_likelihood"].map(float)
        means = frame.groupby(["table", "model", "when"], sort=False).mean(numeric_only=True)
        lines = []
        for (table, model), part in means.groupby(["table", "model"], sort=False):
            stages = [part.loc[(table, model, when)] for when in WHEN if (table, model, when) in part.index]
            both = [" → ".join(f"{1e3 * stage['d_calibration']:.2f}" for stage in stages)]
            both += [" → ".join(f"{stage['log_likelihood']:.3f}" for stage in stages)]
            same = {f"{stage['concordance']:.4f}" for stage in stages}
            lines.append((table, model, f"{stages[0]['calibration_rows']:.0f}", *both, " → ".join(sorted(same))))
        header = ("table", "model", "calibration rows", "1000 × D-calibration", "log-likelihood", "concordance")
        made["conformal"] = markdown(header, lines)
        made["conformal claim"] = conformal_claim(means)
    return made


def bounds_claim(rows):
    """Whether lower bounds keep their level, up to two standard errors."""
    kept = sum(r["held"] + 2.0 * r["error"] >= r["level"] for r in rows)
    worst = min(rows, key=lambda r: r["held"] - r["level"])
    return prose(
        f"The level is kept in {kept} of {len(rows)} settings up to the noise of the simulation. The largest "
        f"shortfall is {100 * max(0.0, worst['level'] - worst['held']):.2f} ± {100 * worst['error']:.2f} percentage "
        f"points, at {worst['level']:.0%}. The bounds are slightly conservative because a new subject counts with its "
        "largest weight."
    )


def conformal_claim(means):
    """What recalibration changes, from mean scores by table, model and stage."""
    scores = {name: means[name].unstack("when") for name in ("d_calibration", "log_likelihood", "p")}
    d, gain = scores["d_calibration"], scores["log_likelihood"]["after"] - scores["log_likelihood"]["before"]
    change = (d["after"] - d["before"]).where(lambda x: x.abs() > 1e-12, 0.0)
    raw = (scores["log_likelihood"]["after, not shrunk"] - scores["log_likelihood"]["before"]).dropna()
    worse = sum((d["after, not shrunk"] - d["before"]).dropna() > 1e-12)
    return prose(
        f"Recalibration of these {len(d)} models gains little: D-calibration is rejected at 5 % for "
        f"{sum(scores['p']['before'] < 0.05)} before and for {sum(scores['p']['after'] < 0.05)} after it; "
        f"{sum(change < 0)} became better calibrated, {sum(change == 0)} did not change and {sum(change > 0)} became "
        "worse. The mean log-likelihood per row changed by "
        f"{gain.mean():.3f} nats on average, and by {gain.min():+.3f} to {gain.max():+.3f} for single models. Without "
        f"shrinkage, {worse} of {len(raw)} models became worse calibrated, and the mean loss was {-raw.mean():.3f} "
        "nats per row."
    )


def streaming_tables(folder):
    """The tables of docs/large_data_evidence.md, by the name of their place."""
    path = folder / "streaming.json"
    if not path.is_file():
        return {}
    record = json.loads(path.read_text(encoding="utf-8"))
    header = ("rows", "step", "s", "µs per row", "processor, µs per row", "peak memory, GiB")
    lines = [
        (
            f"{row['rows']:,}",
            row["step"],
            *(row[name] for name in ("seconds", "us_per_row", "cpu_us_per_row", "peak_gib")),
        )
        for row in record["results"]["rows"]
    ]
    made = {"streaming": f"{where(record)}.\n\n{markdown(header, lines)}"}
    if found := record["results"].get("parity"):
        made["parity"] = (
            f"With {found['rows']:,} rows, the mean log-likelihood of {found['test_rows']:,} test rows is "
            f"{found['streamed']:.4f} after a fit from disk\nand {found['in_memory']:.4f} after a fit in memory."
        )
    return made


def level_tables(folder):
    """The table of docs/scores_evidence.md, by the name of its place."""
    path = folder / "calibration_level.json"
    if not path.is_file():
        return {}
    record = json.loads(path.read_text(encoding="utf-8"))
    settings, tests = record["configuration"], ("KM", "Greenwood", "D", "Pearson")
    lines = [
        (
            r["design"],
            f"{r['censored']:.0%}",
            "{:.2f} to {:.2f}".format(*r["survival"]),
            *(f"{r[t]:.1%}" for t in tests),
        )
        for r in record["results"]["rows"]
    ]
    header = ("design", "censored", "S(t\\|x)", *tests)
    return {
        "levels": f"{settings['samples']:,} samples of {settings['rows']} rows, {settings['groups']} groups; share of "
        f"samples rejected at a nominal 5 %:\n\n{markdown(header, lines)}"
    }


WHEN = ("before", "after", "after, not shrunk")


def filled(text, mark, body):
    """A text with what stands between two marks replaced."""
    pattern = rf"(<!-- begin {mark} -->\n).*?(<!-- end {mark} -->)"
    return re.sub(pattern, lambda m: f"{m[1]}{body}\n{m[2]}", text, flags=re.S)


def cluster_tables(folder):
    """Where several processes and a cluster pay."""
    path = folder / "cluster.json"
    if not path.is_file():
        return {"cluster": "Not measured."}
    record = json.loads(path.read_text(encoding="utf-8"))
    found, settings = record["results"], record["configuration"]
    ray = found["ray"]
    steps = [
        (int(batch), *(1e3 * value for value in (*alone, *found["step_of_two"][batch])))
        for batch, alone in found["step_alone"].items()
    ]
    lines = [
        (f"search, {ray['search_passes']:,.0f} passes", *(ray[f"search_{who}"] for who in ("here", "1", "2"))),
        (f"predict, {ray['predict_rows']:,} rows", *(ray[f"predict_{who}"] for who in ("here", "1", "2"))),
    ]
    per_pass, per_row = ray["search_here"] / ray["search_passes"], ray["predict_here"] / ray["predict_rows"]
    least = found["per_row"] / found["networks"]
    overhead = ray["connect"] + ray["first_task"]
    model = [
        (f"{line['batch']:,}", f"{line['workers']:,}", line["ms"], line["speed_up"])
        for line in found["model"]
        if line["workers"] in (8, 100, 1000)
    ]
    return {
        "cluster": (
            "One fit gains from a few processes, more with large batches. Searches and predictions gain from as many "
            "workers as there are populations or blocks, but a cluster pays only for large tasks. Measured by "
            f"`python benchmarks/cluster.py` on two CPU cores: a training step of {found['networks']} networks, one "
            "thread per process:\n\n"
            + markdown(("batch", "alone, ms", "processor", "two processes, ms", "processor, each"), steps)
            + "\n\nRay, in seconds after connecting, including the start of workers:\n\n"
            + markdown(("", "local", "1 worker", "2 workers"), lines)
            + f"\n\nConnecting and the first task take {overhead:.0f} s. Two workers therefore break even with one "
            f"process at about {2 * overhead / per_pass / 1e6:.1f} million passes over rows by the wall time of this "
            f"search, {2 * overhead / least / 1e6:.1f} million by the processor time of a step, and at "
            f"{2 * overhead / per_row / 1e3:.0f},000 predicted rows.\n\n"
            "Computed, not measured, for larger clusters: ring all-reduce over an assumed network of "
            f"{8e-9 * settings['bandwidth']:g} Gbit/s with {1e6 * settings['latency']:g} µs per message, and the "
            f"measured {1e3 * found['fixed']:.1f} ms per step and {1e6 * found['per_row']:.1f} µs per row:\n\n"
            + markdown(("effective batch", "workers", "ms per step", "times as fast"), model)
        )
    }


def goal_tables(folder):
    """Goals of speed and what was measured, each as a ratio to a peer or to an earlier state; time to quality."""
    record = load(folder, "goals", "cpu")
    found = record["results"]
    earlier = {row["task"]: row["ratio"] for row in found["rows"]}
    training = {
        r["case"].split(",")[0]: r["released / ours"] for r in _ratios(folder, "training") if r["networks"] == 1
    }
    curves = {r["peer"].split(":")[0]: r for r in _ratios(folder, "inference") if r["case"] == "support"}
    device = load(folder, "inference", "cuda")["results"]["rows"]
    floors = {
        r["precision"]: r["times_floor"]
        for r in device
        if (r["case"], r["who"], r["what"]) == ("kkbox size", "SumoNet, equal", "S, curves")
    }
    kernels = [floors["single"], floors["double"]]
    cluster = json.loads((folder / "cluster.json").read_text(encoding="utf-8"))["results"]
    searches = [
        json.loads((folder / f"search_seconds_cuda{name}.json").read_text(encoding="utf-8"))["results"]["seconds"]
        for name in ("", "_support")
    ]
    largest = max(cluster["step_alone"], key=int)  # of the measured batches
    workers = cluster["step_alone"][largest][0] / cluster["step_of_two"][largest][0]
    many = load(folder, "jobs", "cpu")
    jobs = [found["processes"]["2"]["ratio"], max(fit["ratio"] for fit in many["results"].values())]
    commit, to_base = record["configuration"]["earlier"], found["import"]["ratio"]
    # all in single precision, that of the released code and of Cox-Time
    peers = [
        curves[peer]["S, from inputs, single"] for peer in ("released code", "pycox Cox-Time", "Soden, torchdiffeq")
    ]
    against = f"times as fast as {commit}"
    at_least = (
        (f"`sumosurv predict`, {found['predicted_rows']:,} rows", against, [2.8], [earlier["predict"]]),
        ("default fit, 686 rows", against, [2.5], [earlier["small fit"]]),
        ("default fit, 50,000 rows, one epoch", against, [2.4], [earlier["large fit"]]),
        ("default fit with `n_jobs`, SUPPORT, on 2 cores and on 16 (Xeon)", against, [1.75, 4.7], jobs),
        ("training step, one network, batch 100", "times the released code", [2.0], [training["population"]]),
        ("epoch of 1.6 million rows", "times the released code", [3.0], [training["large"]]),
        ("survival curves, single precision", "times the released code, Cox-Time, torchdiffeq", [20.0] * 3, peers),
        ("report on competing risks, 265 rows", against, [8.0], [earlier["report"]]),
        (f"training step of {int(largest):,} rows, two workers", "times as fast as one", [1.8], [workers]),
    )
    at_most = (
        ("search of 300 × 5 trials on an H200", "seconds, METABRIC, SUPPORT", [10.0, 35.0], searches),
        ("survival curves on an H200", "times the lower bound, single, double", [3.0, 10.0], kernels),
        ("ridge Cox regression, 200 × 5,000", "seconds", [1.0], [found["ridge"]]),
        ("`from sumosurv import SumoNet`", "seconds ÷ those of torch, pandas and sklearn.base", [0.65], [to_base]),
    )
    lines = [
        (
            what,
            unit,
            f"{sign} {_each(wanted)}",
            _each(measured),
            "yes" if all(m >= w if sign == "≥" else m <= w for m, w in zip(measured, wanted)) else "no",
        )
        for sign, rows in (("≥", at_least), ("≤", at_most))
        for what, unit, wanted, measured in rows
    ]
    networks = ("released code", "PaperSumoNet", "SumoNet, one network", "SumoNet")
    quality = [
        (name.upper(), values["goal"], *(values[who] for who in networks)) for name, values in found["quality"].items()
    ]
    heading = ("data", "log-likelihood to reach", *(f"{who}, s" for who in networks))
    return {
        "goals": f"{where(record)}; processor seconds. Fits on 16 cores: {where(many)}.\n\n"
        + markdown(("task", "unit", "wanted", "measured", "reached"), lines),
        "quality": markdown(heading, quality),
    }


def _each(values):
    return " / ".join(number(value) for value in values)


def _ratios(folder, name):
    return load(folder, name, "cpu")["results"]["ratios"]


def performance_tables(folder):
    """The tables of docs/performance.md, by the name of their place."""
    found = {(name, device): load(folder, name, device) for name in TABLES for device in ("cpu", "cuda")}
    made = {f"{name} {device}": TABLES[name](record) for (name, device), record in found.items() if record is not None}
    return made | {"speed claim": speed_claim(found)} | goal_tables(folder)


def speed_claim(records):
    """How much faster than the code released with the paper, at equal work."""

    def ratios(device, where):
        found = records["inference", device]["results"]["ratios"]
        return sorted(r[f"{where}, double"] for r in found if r["peer"] == f"released code: {where}")

    cpu, device = ratios("cpu", "S, from inputs"), ratios("cuda", "S, on the device")
    steps = records["training", "cuda"]["results"]["ratios"]
    on_cpu = records["training", "cpu"]["results"]["ratios"]
    alone = next(r for r in on_cpu if (r["case"], r["networks"]) == ("population", 1))
    most = max((r for r in steps if r["case"] == "population"), key=lambda r: r["networks"])
    return prose(
        f"Survival curves of the paper's network are predicted {_from_to(cpu)} times as fast as by the code released "
        f"with the paper on one CPU thread, and {_from_to(device)} times as fast on an H200 if results stay on the "
        "device. Training is faster if networks are trained together: in a step of "
        f"{most['networks']:,} networks on an H200, each network takes 1/{most['released / ours']:,.0f} of the time "
        f"of the released code. A single network on one CPU thread trains {alone['released / ours']:.1f} times as fast."
    )


def _from_to(values):
    """The smallest and the largest of sorted values, once if they are rounded to the same."""
    return " to ".join(dict.fromkeys(f"{value:.0f}" for value in (values[0], values[-1])))


PAGES = (
    ("performance.md", performance_tables),
    ("outcomes_evidence.md", outcome_tables),
    ("tails_evidence.md", tail_tables),
    ("uncertainty_evidence.md", uncertainty_tables),
    ("large_data_evidence.md", cluster_tables),
    ("large_data_evidence.md", streaming_tables),
    ("scores_evidence.md", level_tables),
)


def main():
    """Fill the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    for name, make in PAGES:
        page = options.docs / name
        text = page.read_text(encoding="utf-8")
        for mark, body in make(options.results).items():
            text = filled(text, mark, body)
        page.write_text(text, encoding="utf-8")
    pictures(options.results, options.docs / "figures")


if __name__ == "__main__":
    main()
