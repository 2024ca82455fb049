"""Lemma 1 in numbers: the log-likelihood is proper, its gap is two KL divergences; no other score of the paper is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paper.fooling import EXPECTED_SCORES, Design, Finding, expected_log_likelihood, search
from paper.record import make_record, save_figure, save_record
from sumosurv.distributions import LogNormal, Mixture, SurvivalDistribution, Weibull
from sumosurv.outcome import Surv
from sumosurv.scores import calibration, d_calibration, group_calibration

__all__ = ["CASES", "Case", "gap_by_score", "gap_by_terms", "run", "show"]

Array = npt.NDArray[np.float64]
Censoring = float | SurvivalDistribution  # one fixed time, or the distribution of a random one


@dataclass(frozen=True)
class Case:
    """A true and a false distribution of one subject, and a censoring time or its distribution."""

    name: str
    truth: SurvivalDistribution
    false: SurvivalDistribution
    censoring: Censoring


_TRUTHS = {
    "exponential": (Weibull(1.0, 1.0), Weibull(1.6, 1.0)),
    "Weibull": (Weibull(1.0, 2.0), Weibull(1.1, 1.2)),
    "log-normal": (LogNormal(0.0, 0.7), Weibull(1.3, 1.6)),
    "mixture": (Mixture([Weibull(0.4, 2.0), Weibull(2.0, 3.0)]), LogNormal(0.1, 0.9)),
}
_CENSORINGS: dict[str, Censoring] = {
    "C = 0.8": 0.8,
    "C = 3": 3.0,
    "C exponential": Weibull(1.5, 1.0),
    "C log-normal": LogNormal(0.3, 0.4),
}
CASES = tuple(
    Case(f"{kind}, {how}", truth, false, censoring)
    for kind, (truth, false) in _TRUTHS.items()
    for how, censoring in _CENSORINGS.items()
)

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def _grid(low: float, high: float, panels: int) -> tuple[Array, Array]:
    edges = np.linspace(low, high, panels + 1)
    centre, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
    return (centre[:, None] + half[:, None] * _NODES).ravel(), (half[:, None] * _WEIGHTS).ravel()


def _until(end: Array) -> tuple[Array, Array]:
    """Nodes and weights on [0, c] for each c, shape (k, m), dense near 0: t = c v⁴."""
    v, w = _grid(0.0, 1.0, 12)
    return end[:, None] * v**4, end[:, None] * 4.0 * v**3 * w


def _curves(distribution: SurvivalDistribution, t: Array) -> tuple[Array, Array]:
    """log S and log f of a single subject at times of any shape."""
    log_s, log_f = (f(t.reshape(-1)).reshape(t.shape) for f in (distribution.log_survival, distribution.log_density))
    return log_s, log_f


def _censoring_times(censoring: Censoring) -> tuple[Array, Array]:
    """Times and probabilities that stand for the censoring: one, or the nodes of a quadrature over its quantiles."""
    if isinstance(censoring, SurvivalDistribution):
        v, w = _grid(0.0, 1.0, 12)
        # u = v²(3 - 2v): nodes crowd at both ends, where quantiles move fast
        return censoring.quantile(v**2 * (3.0 - 2.0 * v))[0], w * 6.0 * v * (1.0 - v)
    return np.array([censoring]), np.ones(1)


def gap_by_score(case: Case) -> float:
    r"""E[S_L(S, (Z, D)) - S_L(Ŝ, (Z, D))] from the law of (Z, D), by quadrature in log time.

    .. math:: \int f(t) G(t) \log\frac{f(t)}{\hat f(t)} dt + \int g(c) S(c) \log\frac{S(c)}{\hat S(c)} dc,

    the second a single term where censoring happens at one time.
    """
    censoring = case.censoring
    u, w = _grid(-60.0, 7.0 if isinstance(censoring, SurvivalDistribution) else float(np.log(censoring)), 120)
    t = np.exp(u)
    log_ratio_f, log_ratio_s, log_f, log_s = _ratios(case, t)
    if isinstance(censoring, SurvivalDistribution):
        log_g, log_density = _curves(censoring, t)
        events, censored = np.exp(log_f + log_g), np.exp(log_s + log_density)
        return float(w @ (t * (_product(events, log_ratio_f) + _product(censored, log_ratio_s))))
    at_end = _ratios(case, np.array([censoring]))
    return float(w @ (t * _product(np.exp(log_f), log_ratio_f)) + np.exp(at_end[3][0]) * at_end[1][0])


def _ratios(case: Case, t: Array) -> tuple[Array, Array, Array, Array]:
    """log f/f̂, log S/Ŝ, log f, log S."""
    (log_s, log_f), (log_s_hat, log_f_hat) = _curves(case.truth, t), _curves(case.false, t)
    with np.errstate(invalid="ignore"):
        return log_f - log_f_hat, log_s - log_s_hat, log_f, log_s


def _product(mass: Array, log_ratio: Array) -> Array:
    """Return mass · log_ratio, and 0 where the mass is 0, even if the ratio is infinite."""
    return np.where(mass > 0, mass * np.where(mass > 0, log_ratio, 0.0), 0.0)


def gap_by_terms(case: Case) -> tuple[float, float]:
    r"""The two terms of the proof: E F(C) KL(f/F(C) ‖ f̂/F̂(C)) and E KL(Ber(S(C)) ‖ Ber(Ŝ(C)))."""
    c, probability = _censoring_times(case.censoring)
    shape, bernoulli = _terms(case, c)
    return float(probability @ shape), float(probability @ bernoulli)


def _terms(case: Case, c: Array) -> tuple[Array, Array]:
    t, w = _until(c)
    log_f, log_f_hat = _curves(case.truth, t)[1], _curves(case.false, t)[1]
    log_s, log_s_hat = _curves(case.truth, c)[0], _curves(case.false, c)[0]
    log_cdf, log_cdf_hat = np.log(-np.expm1(log_s)), np.log(-np.expm1(log_s_hat))
    inside, inside_hat = log_f - log_cdf[:, None], log_f_hat - log_cdf_hat[:, None]  # given T <= C
    divergence = (w * _product(np.exp(inside), inside - inside_hat)).sum(axis=1)
    bernoulli = np.exp(log_s) * (log_s - log_s_hat) + np.exp(log_cdf) * (log_cdf - log_cdf_hat)
    return np.exp(log_cdf) * divergence, bernoulli


def run(out: Path, *, seed: int = 0) -> dict[str, Any]:
    """Check the lemma, search for false distributions that beat the truth; print, draw, and return the record.

    Writes ``lemma1.json``, and as PNG and SVG ``lemma1`` (the gap and its two terms), ``which_scores`` (the search) and
    ``calibration`` (what three measures of calibration say of the truth).
    """
    gaps = []
    for case in CASES:
        direct, (shape, bernoulli) = gap_by_score(case), gap_by_terms(case)
        gaps.append({"case": case.name, "gap": direct, "shape_term": shape, "bernoulli_term": bernoulli})
    design = Design()
    findings = [search(design, name, seed=seed) for name in EXPECTED_SCORES]
    out = Path(out)
    save_figure(_draw_gap(CASES[12]), out, "lemma1")
    save_figure(_draw_findings(design, findings), out, "which_scores")
    save_figure(_draw_calibration(design, seed), out, "calibration")
    found = [asdict(finding) | {"verdict": finding.verdict} for finding in findings]
    record = make_record("lemma1", {"seed": seed, "design": asdict(design)}, {"lemma": gaps, "search": found})
    show(record)
    save_record(record, out)
    return record


def show(record: Mapping[str, Any]) -> None:
    """Print what a record found."""
    print(f"{'Lemma 1: truth, censoring':<30}{'E S_L gap':>12}{'F(C) KL':>12}{'KL(Ber)':>12}{'difference':>12}")
    for gap in record["results"]["lemma"]:
        direct, shape, bernoulli = gap["gap"], gap["shape_term"], gap["bernoulli_term"]
        print(f"{gap['case']:<30}{direct:>12.6f}{shape:>12.6f}{bernoulli:>12.6f}{direct - shape - bernoulli:>12.1e}")
    print(f"\n{'score':<52}{'gain over truth':>16}{'lost in S_L':>14}  verdict")
    for found in record["results"]["search"]:
        print(f"{found['score']:<52}{found['gain']:>16.2e}{found['distance']:>14.2e}  {found['verdict']}")


def _draw_gap(case: Case) -> Any:
    from matplotlib.figure import Figure

    c = np.linspace(0.02, 4.0, 120)
    shape, bernoulli = _terms(case, c)
    figure = Figure(figsize=(6.2, 3.6), layout="constrained")
    ax = figure.subplots()
    ax.stackplot(
        c,
        shape,
        bernoulli,
        colors=("#56B4E9", "#E69F00"),
        labels=(
            r"$F(c)\,\mathrm{KL}(f/F(c)\,\|\,\hat f/\hat F(c))$",
            r"$\mathrm{KL}(\mathrm{Ber}\,S(c)\,\|\,\mathrm{Ber}\,\hat S(c))$",
        ),
    )
    at = c[4::10]
    direct = [gap_by_score(Case("", case.truth, case.false, float(x))) for x in at]
    ax.plot(at, direct, "ko", ms=4, label=r"$E[S_L(S) - S_L(\hat S)\,|\,C = c]$ directly")
    ax.set(xlabel="censoring time c", ylabel="nats", xlim=(0, 4), ylim=(0, None))
    title = "What a false distribution loses in log-likelihood\n(truth: two Weibulls mixed; false: log-normal)"
    ax.set_title(title, fontsize=10)
    ax.legend(frameon=False, loc="upper left", fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    return figure


_TITLES = {
    "log_likelihood": "log-likelihood $S_L$",
    "concordance_td": "$C^{td}$",
    "harrell_c": "Harrell's C",
    "uno_c": "Uno's C",
    "brier": "Brier (one time)",
    "binomial_log_likelihood": "BLL (one time)",
    "integrated_brier": "integrated Brier",
    "integrated_binomial_log_likelihood": "integrated BLL",
    "survival_crps": "survival-CRPS",
    "calibration": "calibration (paper)",
    "group_calibration": "calibration in groups",
    "integrated_brier, G(t|x) known": "integrated Brier,\nG(t|x) known",
    "integrated_binomial_log_likelihood, G(t|x) known": "integrated BLL,\nG(t|x) known",
}


def _draw_findings(design: Design, findings: list[Finding]) -> Any:
    """From the truth towards the false distribution each score likes best: its gain, and what S_L says of it."""
    from matplotlib.figure import Figure

    by_name = {finding.score: finding for finding in findings}
    shown = [name for name in _TITLES if name in by_name and name not in ("uno_c", "group_calibration")]
    figure = Figure(figsize=(10.5, 7.0), layout="constrained")
    axes = figure.subplots(3, 4, sharex=True).ravel()
    way = np.linspace(-0.5, 1.5, 161)
    elsewhere = np.log([*by_name["survival_crps"].scale, *by_name["survival_crps"].shape])
    for ax, name in zip(axes, shown):
        finding = by_name[name]
        end = np.log([*finding.scale, *finding.shape]) if finding.verdict == "fooled" else elsewhere
        points = design.truth + way[:, None] * (end - design.truth)
        gain = np.array([EXPECTED_SCORES[name][0](design, point) for point in points]) - finding.at_truth
        likelihood = np.array([expected_log_likelihood(design, point) for point in points])
        loss = likelihood - expected_log_likelihood(design, design.truth)
        fooled = finding.verdict == "fooled"
        colour = "#D55E00" if fooled else "#009E73"
        span = 1.15 * np.abs(gain[np.abs(way - 0.5) <= 0.75]).max()
        ax.axhline(0, color="0.6", lw=0.8)
        ax.axvline(0, color="0.6", lw=0.8)
        ax.fill_between(way, 0, np.clip(gain, 0, None), color=colour, alpha=0.25, lw=0)
        ax.plot(way, gain, color=colour, lw=2)
        if name != "log_likelihood":
            scale = span / np.abs(loss[np.abs(way - 0.5) <= 0.75]).max()
            ax.plot(way, loss * scale, color="#0072B2", lw=1.2, ls="--")
        ax.set_ylim(-span, span)
        ax.set_title(_TITLES[name], fontsize=10)
        verdict = "fooled" if fooled else "truth is best"
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        ax.text(0.03, 0.9, verdict, transform=ax.transAxes, color=colour, weight="bold", fontsize=9, bbox=box)
        ax.tick_params(labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[len(shown) :]:
        ax.set_axis_off()
    lines = (
        "Solid: expected score less that",
        "of the truth (more is better), on",
        "the way from the truth to a false",
        "distribution. Above zero the",
        "score prefers a false one.",
        "",
        "Dashed: the log-likelihood on",
        "the same way, rescaled.",
    )
    axes[-1].text(0.0, 0.95, "\n".join(lines), va="top", fontsize=9, in_layout=False, transform=axes[-1].transAxes)
    for ax in axes[-4:]:
        ax.set_xticks([0, 1], ["truth", "false"])
    return figure


def _draw_calibration(design: Design, seed: int, n: int = 3000) -> Any:
    """The truth under three measures of calibration: only the paper's, which ignores censoring, blames it."""
    from matplotlib.figure import Figure

    from sumosurv.plots import plot_calibration

    rng = np.random.default_rng(seed)
    x = (rng.random(n) < design.share).astype(int)
    scale, shape, mean = (np.array(pair)[x] for pair in (design.scale, design.shape, design.censoring_mean))
    t, c = scale * rng.weibull(shape), rng.exponential(mean)
    y, truth = Surv.from_arrays(t <= c, np.minimum(t, c)), Weibull(scale, shape)
    figure = Figure(figsize=(11.5, 4.0), layout="constrained")
    axes = figure.subplots(1, 3)
    plot_calibration(calibration(truth, y), ax=axes[0])
    plot_calibration(d_calibration(truth, y), ax=axes[1])
    plot_calibration(group_calibration(truth, y, design.time, groups=2), ax=axes[2])
    return figure
