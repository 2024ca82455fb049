"""Simulated studies with delayed entry, interval censoring, competing risks and time-varying covariates.

Each study is fitted twice: with the right outcome, and with the usual shortcut (ignoring entry, recording events at the
later visit, treating other causes as censoring, using the last covariates from the start). Both fits are compared with
the truth on held-out rows. The record has the mean log-likelihood of these rows under the true and the fitted
distribution, and the errors of the curves in the figure. Goal: within 0.02 nats of the truth.

    python benchmarks/outcomes.py --rows 25000 --out results --figures docs/figures
    python benchmarks/outcomes.py --rows 4000 --only causes

One thread unless --threads says otherwise.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from _record import make_record, save_record

from sumosurv import SumoNet, Surv
from sumosurv.distributions import Weibull
from sumosurv.scores import log_likelihood

GRID = np.linspace(0.0, 2.0, 81)


def covariates(rng, n):
    """Two numbers and a group."""
    return np.column_stack([rng.normal(size=n), rng.uniform(-1, 1, n), rng.integers(0, 2, n)])


def scale(X):
    """Scale of the Weibull distribution (shape 1.6) of all studies but competing risks: a nonlinear function of x."""
    return 1.3 * np.exp(0.5 * X[:, 0] - 0.6 * X[:, 1] ** 2 + 0.5 * X[:, 2])


def late_entry(rng, n):
    """Subjects enter at an independent time, if they are still event-free then."""
    X, entry = covariates(rng, 6 * n), rng.uniform(0.0, 1.5, 6 * n)
    T = scale(X) * rng.weibull(1.6, 6 * n)
    rows = np.flatnonzero(entry < T)[:n]
    X, T, entry = X[rows], T[rows], entry[rows]
    stop = entry + rng.uniform(0.5, 2.0, n)
    y = Surv.from_arrays(stop >= T, np.minimum(T, stop), entry)
    naive = Surv.from_arrays(y["event"], y["time"])
    return X, y, naive, log_likelihood(Weibull(scale(X), 1.6), y)


def visits(rng, n):
    """An event is found at the first visit after it; visits are some months apart, and end early for some."""
    X = covariates(rng, n)
    T = scale(X) * rng.weibull(1.6, n)
    last = rng.uniform(0.5, 2.5, n)
    gaps = rng.uniform(0.15, 0.55, (n, 24))
    at = np.column_stack([np.zeros(n), np.minimum(np.cumsum(gaps, axis=1), last[:, None])])
    before = (at < T[:, None]).sum(axis=1)  # visits without the event
    lower = at[np.arange(n), before - 1]
    upper = np.where(before < at.shape[1], at[np.arange(n), np.minimum(before, at.shape[1] - 1)], np.inf)
    upper = np.where(last < T, np.inf, upper)
    lower = np.where(last < T, last, lower)
    y = Surv.interval(lower, upper)
    naive = Surv.from_arrays(np.isfinite(upper), np.where(np.isfinite(upper), upper, lower))
    return X, y, naive, log_likelihood(Weibull(scale(X), 1.6), y)


SHAPES = np.array([0.8, 1.5, 2.5])


def cause_scales(X):
    """Scales of the three cause-specific Weibull hazards."""
    return np.column_stack(
        [2.5 * np.exp(0.8 * X[:, 0]), 2.0 * np.exp(-0.5 * X[:, 1] - 0.4 * X[:, 2]), 1.8 * np.exp(0.3 * X[:, 2])]
    )


def causes(rng, n):
    """The first of three causes, or the end of follow-up."""
    X = covariates(rng, n)
    each = cause_scales(X) * np.column_stack([rng.weibull(shape, n) for shape in SHAPES])
    T, stop = each.min(axis=1), rng.uniform(0.4, 2.5, n)
    cause = np.where(stop >= T, 1 + each.argmin(axis=1), 0)
    z = np.minimum(T, stop)
    y = Surv.from_arrays(cause, z, causes=3)
    naive = Surv.from_arrays(cause == 1, z)
    cumulative = (z[:, None] / cause_scales(X)) ** SHAPES
    log_hazard = np.log(SHAPES * cumulative / z[:, None])
    truth = -cumulative.sum(axis=1) + np.where(cause > 0, log_hazard[np.arange(n), np.maximum(cause, 1) - 1], 0.0)
    return X, y, naive, truth


def true_incidence(X):
    """Of the first cause, on the grid, by the trapezoid rule on a fine one."""
    fine = np.linspace(1e-6, GRID[-1], 8001)
    total = np.zeros(len(GRID))
    for start in range(0, len(X), 200):
        scales = cause_scales(X[start : start + 200])
        cumulative = (fine[None, :, None] / scales[:, None, :]) ** SHAPES
        density = SHAPES[0] * cumulative[..., 0] / fine * np.exp(-cumulative.sum(-1))
        rise = np.cumsum(0.5 * (density[:, 1:] + density[:, :-1]) * np.diff(fine), axis=1)
        total += np.array([np.interp(GRID, fine[1:], row) for row in rise]).sum(axis=0)
    return total / len(X)


EFFECT = 0.45  # hazard ratio of a treatment, from when it begins


def changing(rng, n):
    """A treatment begins at some time for those who live to see it, and halves the hazard from then on."""
    X = covariates(rng, n)
    begin = np.where(rng.random(n) < 0.7, rng.uniform(0.0, 2.0, n), 1e3)  # long after the end: never
    unit, target = scale(X), rng.exponential(size=n)
    at_begin = (begin / unit) ** 1.6
    T = unit * np.where(target < at_begin, target, at_begin + (target - at_begin) / EFFECT) ** (1 / 1.6)
    stop = rng.uniform(0.6, 2.5, n)
    z, event = np.minimum(T, stop), stop >= T
    treated = begin < z
    hazard = 1.6 / unit * (z / unit) ** 0.6 * np.where(treated, EFFECT, 1.0)
    before, after = (np.minimum(z, begin) / unit) ** 1.6, (np.maximum(z, begin) / unit) ** 1.6 - at_begin
    truth = np.where(event, np.log(hazard), 0.0) - before - EFFECT * after
    # one row until the treatment begins, one from then on
    first = Surv.from_arrays(event & ~treated, np.where(treated, begin, z), np.zeros(n))
    second = Surv.from_arrays(event[treated], z[treated], begin[treated])
    rows = np.concatenate([np.column_stack([X, np.zeros(n)]), np.column_stack([X, np.ones(n)])[treated]])
    y = np.concatenate([first, second])
    subject = np.concatenate([np.arange(n), np.flatnonzero(treated)])
    naive = np.column_stack([X, treated]), Surv.from_arrays(event, z)
    return rows, y, subject, naive, truth


def model(seed):
    """The default with fewer networks and epochs: the truth is smooth and rows are many."""
    return SumoNet(n_members=8, max_epochs=40, random_state=seed)


def study(name, n, seed):
    """What was found of one study: figures, and the curves of its picture."""
    rng = np.random.default_rng(seed)
    started = time.process_time()
    if name == "changing":
        X, y, subject, (X_naive, y_naive), _ = changing(rng, n)
        fitted = model(seed).fit(X, y, groups=subject)
        naive = model(seed).fit(X_naive, y_naive)
        X_new, y_new, subject_new, _, truth = changing(rng, n)
        learned = np.bincount(subject_new, weights=log_likelihood(fitted.predict_distribution(X_new), y_new))
        who = np.array([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
        curves = {
            "truth": np.where(
                GRID < 0.7,
                np.exp(-((GRID / 1.3) ** 1.6)),
                np.exp(-((0.7 / 1.3) ** 1.6) - EFFECT * ((GRID / 1.3) ** 1.6 - (0.7 / 1.3) ** 1.6)),
            ),
            "learned": fitted.predict_path(who, [0.0, 0.7], [0, 0]).survival(GRID)[0],
            "naive": naive.predict_survival_function(who[1:], GRID)[0],
        }
        label = "S(t) of a subject treated from 0.7 on"
    else:
        X, y, y_naive, _ = {"late_entry": late_entry, "visits": visits, "causes": causes}[name](rng, n)
        fitted, naive = model(seed).fit(X, y), model(seed).fit(X, y_naive)
        X_new, y_new, _, truth = {"late_entry": late_entry, "visits": visits, "causes": causes}[name](rng, n)
        learned = log_likelihood(fitted.predict_distribution(X_new), y_new)
        people = covariates(np.random.default_rng(seed + 1), 2000)
        if name == "causes":
            curves = {
                "truth": true_incidence(people),
                "learned": fitted.predict_cumulative_incidence(people, GRID)[..., 0].mean(axis=0),
                "naive": 1.0 - naive.predict_survival_function(people, GRID).mean(axis=0),
            }
            label = "incidence of cause 1, mean of 2,000 subjects"
        else:
            curves = {
                "truth": Weibull(scale(people), 1.6).survival(GRID).mean(axis=0),
                "learned": fitted.predict_survival_function(people, GRID).mean(axis=0),
                "naive": naive.predict_survival_function(people, GRID).mean(axis=0),
            }
            label = "S(t), mean of 2,000 subjects"
    figures = {
        "study": name,
        "rows": n,
        "true": float(truth.mean()),
        "learned": float(learned.mean()),
        "gap": float(truth.mean() - learned.mean()),
        "error_learned": float(np.abs(curves["learned"] - curves["truth"]).max()),
        "error_naive": float(np.abs(curves["naive"] - curves["truth"]).max()),
        "seconds": time.process_time() - started,
    }
    return figures, {key: np.round(value, 6).tolist() for key, value in curves.items()}, label


TITLES = {
    "late_entry": ("Left truncation", "entry ignored"),
    "visits": ("Interval censoring", "event at the visit that found it"),
    "causes": ("Competing risks", "other causes as censoring"),
    "changing": ("Time-varying covariate", "treated from the start"),
}


def draw(found, folder):
    """One figure of all studies: true, fitted and naive curves."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, axes = plt.subplots(2, 2, figsize=(9, 6.4), sharex=True, constrained_layout=True)
    for ax, (figures, curves, label) in zip(axes.ravel(), found):
        title, treated = TITLES[figures["study"]]
        ax.plot(GRID, curves["naive"], color="#c0504d", lw=1.6, ls="--", label=treated)
        ax.plot(GRID, curves["truth"], color="0.1", lw=3.2, alpha=0.35, label="truth")
        ax.plot(GRID, curves["learned"], color="#1f5fa8", lw=1.6, label="fitted")
        ax.set(title=title, ylabel=label, ylim=(0, None))
        ax.title.set_fontsize(10)
        ax.yaxis.label.set_fontsize(8)
        ax.grid(alpha=0.25)
        ax.legend(fontsize=8, frameon=False)
    for ax in axes[1]:
        ax.set_xlabel("time")
    folder.mkdir(parents=True, exist_ok=True)
    fig.savefig(folder / "outcomes.png", dpi=130)


def main():
    """Run the studies and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=25_000)
    parser.add_argument("--only", nargs="+", choices=list(TITLES), default=list(TITLES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder for the record")
    parser.add_argument("--figures", type=Path, help="folder for the picture")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = []
    for name in options.only:
        found.append(study(name, options.rows, options.seed))
        print("  ".join(f"{key} {value:.4f}" if isinstance(value, float) else f"{key} {value}"
                        for key, value in found[-1][0].items()), flush=True)  # fmt: skip
    if options.out is not None:
        rows = [figures for figures, _, _ in found]
        settings = {"rows": options.rows, "seed": options.seed, "threads": options.threads, "model": repr(model(0))}
        save_record(make_record("outcomes", settings, {"studies": rows}), options.out)
    if options.figures is not None:
        draw(found, options.figures)


if __name__ == "__main__":
    main()
