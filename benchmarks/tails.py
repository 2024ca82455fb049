"""Which tail extrapolates best beyond the last training time? Follow-up is cut short, and later follow-up is scored.

Each table is cut at a third and at a half of its last time: rows followed for longer are censored at the cut. SuMo-net
is fitted to four fifths of the rows. The remaining rows that are still at risk at the cut are scored by the
log-likelihood of their later follow-up, given survival to the cut. All tails use the same fitted networks. Tables need
at least 30 events before and 30 events after the cut.

    python benchmarks/tails.py --data ../shared/data --keep .data/tails --out results
    python benchmarks/page.py

An interrupted run resumes. One thread.
"""

import argparse
import math
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from _record import make_record, save_record
from scipy.special import logsumexp
from sklearn.model_selection import StratifiedKFold

from sumosurv import SumoNet, Surv, datasets
from sumosurv.networks.population import estimate_growth
from sumosurv.nonparametric import kaplan_meier

PAPER = ("flchain", "gbsg", "metabric", "support")
CUTS = {"third": 1.0 / 3.0, "half": 0.5}
KNOTS = np.array([0.25, 0.5, 0.75, 0.9, 1.0])
FEWEST = 30  # events before and after the cut
SETTINGS = {"components": "networks", "n_members": 8, "max_epochs": 25, "device": "cpu"}
TINY = 1e-12
BEFORE = "Weibull through T/2 and T, shape 1 to 10"
DEFAULT = "Gompertz, learned growth"
POWER = "power of time, learned exponent"


# ------------------------------------------------------------------ tables


def tables(folder):
    """(name, X, event, time) of every table."""
    for name in PAPER:
        data = datasets.load(name)
        yield name, data.X, data.y["event"], data.y["time"]
    mgus = pd.read_parquet(folder / "outcomes" / "mgus2.parquet")
    yield "mgus2", mgus.drop(columns=["time", "event"]), mgus["event"].to_numpy() > 0, mgus["time"].to_numpy(float)
    for path in sorted((folder / "zoo").glob("*.parquet")):
        frame = pd.read_parquet(path)
        yield path.stem, frame.drop(columns=["time", "event"]), frame["event"].to_numpy() > 0, frame["time"].to_numpy()


def splits(folder, folds):
    """(name, cut, fold, X, event, time, time of the cut, train, test) of all that is to be fitted."""
    for name, X, event, z in tables(folder):
        for cut, share in CUTS.items():
            at = share * float(z.max())
            if min((event & (z <= at)).sum(), (event & (z > at)).sum()) < FEWEST:
                continue
            parts = StratifiedKFold(5, shuffle=True, random_state=0).split(X, event)
            for fold, (train, test) in list(enumerate(parts))[:folds]:
                yield name, cut, fold, X, event, np.asarray(z, dtype=np.float64), at, train, test


def curves_of(model, X):
    """log S and log λ of each member at the knots, (members, rows, knots), in units of the last training time."""
    parts = model.predict_distribution(X).base.components
    log_s = np.stack([part.log_survival(KNOTS) for part in parts])
    return log_s, np.stack([part.log_density(KNOTS) for part in parts]) - log_s


def fit_split(X, event, z, at, train, test, seed):
    """What the fitted members say at the knots of the test rows at risk at the cut, and what came after."""
    started = time.perf_counter()
    y = Surv.from_arrays(event[train] & (z[train] <= at), np.minimum(z[train], at))
    model = SumoNet(**SETTINGS, random_state=seed).fit(X.iloc[train], y)
    seconds = time.perf_counter() - started
    at_risk = test[z[test] > at]
    log_s, log_hazard = curves_of(model, X.iloc[at_risk])
    log_s_train, _ = curves_of(model, X.iloc[train])
    mixed = logsumexp(log_s_train, axis=0) - np.log(len(log_s_train))
    free = estimate_growth(
        mixed[:, 0] - mixed[:, -1], np.zeros(len(y)), y["time"] / at, np.ones(len(y)), y["event"], prior=math.inf
    )
    return {
        "time": z[at_risk] / at,
        "event": event[at_risk],
        "log_s": log_s.astype(np.float32),
        "log_hazard": log_hazard.astype(np.float32),
        "growth": float(model.stack_.populations[0].network.growth),
        "growth_free": free,
        "growth_median": float(np.median(own_growth(-mixed[:, 1], -mixed[:, -1]))),
        "cut": at,
        "seconds": seconds,
    }


# ------------------------------------------------------------------ tails, in units of the last training time


def own_growth(half, end):
    """Of a Gompertz hazard whose integrals over the two halves of the follow-up are those given."""
    return np.maximum(2.0 * np.log(np.maximum(end - half, TINY) / np.maximum(half, TINY)), 0.0)


def power(cumulative, shape):
    """Λ(t) = cumulative · t^shape past 1."""
    return lambda t: (cumulative * (t**shape - 1.0), np.log(shape * cumulative) + (shape - 1.0) * np.log(t))


def gompertz(log_hazard, growth):
    """λ(t) = λ(1) exp(growth (t - 1))."""

    def tail(t):
        x = np.minimum(growth * (t - 1.0), 700.0)
        rise = np.where(x < 1e-8, 1.0 + 0.5 * x, np.expm1(np.maximum(x, 1e-8)) / np.maximum(x, 1e-8))
        return np.exp(log_hazard) * (t - 1.0) * rise, log_hazard + growth * (t - 1.0)

    return tail


def linear(log_hazard, slope):
    """λ(t) = λ(1) + slope (t - 1)."""
    level = np.exp(log_hazard)
    return lambda t: (level * (t - 1.0) + 0.5 * slope * (t - 1.0) ** 2, np.log(level + slope * (t - 1.0)))


def tails(log_s, log_hazard, kept):
    """Each family as (log S at 1, a function of t that gives Λ(t) - Λ(1) and log λ(t)), (members or 1, rows, 1)."""
    count = np.log(len(log_s))
    log_f = logsumexp(log_s + log_hazard, axis=0) - count
    whole = logsumexp(log_s, axis=0) - count
    made = {}
    for who, s, hazard in (("", log_s, log_hazard), (", of the mixture", whole[None], (log_f - whole)[None])):
        cumulative = np.maximum(-s, TINY)[..., None]
        half, end, last, level = cumulative[:, :, 1], cumulative[:, :, -1], s[:, :, -1:], hazard[:, :, -1:]
        shape = np.log2(end / half)
        one = np.ones_like(end)
        each = {
            "Weibull through T/2 and T, shape 1 to 10": power(end, np.clip(shape, 1.0, 10.0)),
            "Weibull through T/2 and T, any shape": power(end, np.clip(shape, 0.1, 10.0)),
            "constant, as at T": gompertz(level, 0.0 * one),
            "constant, mean of the last half": gompertz(np.log(2.0 * np.maximum(end - half, TINY)), 0.0 * one),
            "linear, slope of the halves": linear(level, 4.0 * np.maximum(end - 2.0 * half, 0.0)),
            "Gompertz, growth of the halves": gompertz(level, own_growth(half, end)),
            "Gompertz, median growth": gompertz(level, kept["growth_median"] * one),
            "Gompertz, learned growth, no prior": gompertz(level, kept["growth_free"] * one),
            POWER: power(np.exp(level) / (kept["growth"] + 1), (kept["growth"] + 1) * one),
            DEFAULT: gompertz(level, kept["growth"] * one),
        }
        chosen = each if not who else {name: each[name] for name in (BEFORE, "constant, as at T", DEFAULT)}
        made |= {name + who: (last, tail) for name, tail in chosen.items()}
    return made


def score_split(kept):
    """By family: the log-likelihood of each row after the cut, and its expected time up to the horizon."""
    t, event = kept["time"][:, None], kept["event"][:, None]
    horizon = float(np.quantile(kept["time"], 0.9))
    grid = np.linspace(1.0, horizon, 201)
    found = {}
    for name, (last, tail) in tails(kept["log_s"].astype(float), kept["log_hazard"].astype(float), kept).items():
        share = last - logsumexp(last, axis=0)  # of each member among those who got as far as the cut
        rise, log_hazard = tail(t)
        terms = logsumexp(share - rise + np.where(event, log_hazard, 0.0), axis=0)[:, 0]
        survival = np.exp(logsumexp(share - tail(grid)[0], axis=0))
        found[name] = terms, np.trapezoid(survival, grid, axis=1)
    y = Surv.from_arrays(kept["event"], kept["time"] - 1.0)
    return found, float(kaplan_meier(y).restricted_mean(horizon - 1.0)[0])


def score_tables(kept):
    """One line per table and cut: by family the gain over the tail of before, its standard error, and calibration."""
    lines = []
    for (name, cut), parts in kept.items():
        scored = [score_split(part) for part in parts]
        base = np.concatenate([found[BEFORE][0] for found, _ in scored])
        families = {}
        for family in scored[0][0]:
            terms = np.concatenate([found[family][0] for found, _ in scored])
            weight = np.array([len(part["time"]) for part in parts])
            ratios = [found[family][1].mean() / observed for found, observed in scored]
            families[family] = {
                "log_likelihood": terms.mean(),
                "gain": (terms - base).mean(),
                "error": (terms - base).std(ddof=1) / np.sqrt(len(terms)),
                "restricted_mean_ratio": float(np.average(ratios, weights=weight)),
            }
        lines.append(
            {
                "table": name,
                "cut": cut,
                "rows": len(base),
                "events": int(sum(part["event"].sum() for part in parts)),
                "growth": [float(part["growth"]) for part in parts],
                "families": families,
            }
        )
    return lines


def overall(lines):
    """By family: the mean gain over tables and its standard error, tables being the unit; ranks; calibration."""
    frame = pd.DataFrame(
        [{"table": r["table"], "cut": r["cut"], "family": f, **v} for r in lines for f, v in r["families"].items()]
    )
    frame["rank"] = frame.groupby(["table", "cut"])["log_likelihood"].rank(ascending=False)
    frame["off"] = np.abs(np.log(frame["restricted_mean_ratio"]))
    wide = frame.groupby(["family", "table"])["gain"].mean().unstack()
    behind = wide.sub(wide.loc[DEFAULT], axis=1)
    made = {}
    for family, own in frame.groupby("family", sort=False):
        made[family] = {
            "gain": wide.loc[family].mean(),
            "error": wide.loc[family].std(ddof=1) / np.sqrt(wide.shape[1]),
            "against_default": behind.loc[family].mean(),
            "against_default_error": behind.loc[family].std(ddof=1) / np.sqrt(wide.shape[1]),
            "worst": own["gain"].min(),
            "rank": own["rank"].mean(),
            "restricted_mean_off": own["off"].mean(),
        }
    return made


# ------------------------------------------------------------------ life expectancy


def ages(seed):
    """Predicted ages at death of FLCHAIN's first test fold by the default networks, all follow-up used."""
    data, fold = datasets.load("flchain"), datasets.fold("flchain", 0)
    X, test = data.X, data.X.iloc[fold.test]
    model = SumoNet(components="networks", random_state=seed, device="cpu")
    model.fit(X.iloc[fold.train], data.y[fold.train], validation_data=(X.iloc[fold.valid], data.y[fold.valid]))
    log_s, log_hazard = curves_of(model, test)
    parts = model.predict_distribution(test).base.components
    inside = np.stack([part.restricted_mean(1.0) for part in parts]).mean(axis=0)
    growth = float(model.stack_.populations[0].network.growth)
    kept = {"growth": growth, "growth_free": growth, "growth_median": growth}
    grid = 1.0 + np.concatenate([np.linspace(0.0, 20.0, 2001), np.geomspace(20.0, 4000.0, 1001)[1:]])
    made = {}
    for k in range(len(log_s)):  # one member at a time
        for name, (last, tail) in tails(log_s[k : k + 1], log_hazard[k : k + 1], kept).items():
            if name in (BEFORE, "constant, as at T", "Gompertz, growth of the halves", POWER, DEFAULT):
                after = np.trapezoid(np.exp(last[0] - tail(grid)[0][0]), grid, axis=1)
                made[name] = made.get(name, inside) + after / len(log_s)
    exact = model.predict_mean(test) / model.time_unit_
    np.testing.assert_allclose(made[DEFAULT], exact, rtol=1e-3)
    years = model.time_unit_ / 365.25
    return {
        "growth_per_year": growth / years,
        "families": {
            name: {
                "over_110": float((test["age"] + years * mean > 110).mean()),
                "largest_age": float((test["age"] + years * mean).max()),
                "mean_age": float((test["age"] + years * mean).mean()),
            }
            for name, mean in made.items()
        },
    }


# ------------------------------------------------------------------ the run


def main():
    """Fit what was not fitted yet, score, write the record and the tables of the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with zoo/ and outcomes/")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--keep", type=Path, required=True, help="folder for what the fitted networks say")
    parser.add_argument("--out", type=Path, help="folder for the record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)
    options.keep.mkdir(parents=True, exist_ok=True)
    kept, seconds = {}, 0.0
    for name, cut, fold, *split in splits(options.data, options.folds):
        path = options.keep / f"{name}-{cut}-{fold}.npz"
        if not path.is_file():
            np.savez_compressed(path, **fit_split(*split, fold))
        part = dict(np.load(path))
        print(f"{name} {cut} {fold}: {len(part['time'])} rows, growth {float(part['growth']):.2f}", flush=True)
        kept.setdefault((name, cut), []).append(part)
        seconds += float(part["seconds"])
    lines = score_tables(kept)
    summary = overall(lines)
    frame = pd.DataFrame(summary).T
    print(frame.sort_values("gain", ascending=False).round(4).to_string())
    if options.out is not None:
        life = ages(0)
        print(pd.DataFrame(life["families"]).T.round(3).to_string())
        settings = {"model": SETTINGS, "folds": options.folds, "cuts": CUTS, "fewest": FEWEST, "fit_seconds": seconds}
        results = {"tables": lines, "families": summary, "flchain": life}
        save_record(make_record("tails", settings, results), options.out)


if __name__ == "__main__":
    main()
