"""The table of scores: which way each points, whether it can be trusted, what it needs and costs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pandas as pd

from sumosurv.scores.antolini import concordance_td, concordance_td_terms
from sumosurv.scores.auc import (
    cumulative_dynamic_auc,
    cumulative_dynamic_auc_terms,
    integrated_auc,
    integrated_auc_terms,
)
from sumosurv.scores.calibration import calibration, calibration_terms, d_calibration, d_calibration_terms
from sumosurv.scores.concordance import (
    harrell_c,
    harrell_c_terms,
    uno_c,
    uno_c_terms,
)
from sumosurv.scores.crps import survival_crps
from sumosurv.scores.group_calibration import km_calibration, km_calibration_terms
from sumosurv.scores.incidence_calibration import incidence_calibration, incidence_calibration_terms
from sumosurv.scores.ipcw import (
    binomial_log_likelihood,
    binomial_log_likelihood_terms,
    brier,
    brier_terms,
    integrated_binomial_log_likelihood,
    integrated_binomial_log_likelihood_terms,
    integrated_brier,
    integrated_brier_terms,
)
from sumosurv.scores.likelihood import log_likelihood
from sumosurv.scores.score import Score

__all__ = ["SCORES", "scores_table"]

_BY_WEIGHT = "only if G(t|x) is known; with one G for all, false where censoring depends on x"
_GRAF = "Graf et al. 1999"
_ALL = frozenset({"entry", "intervals"})

_ROWS = (
    Score("log_likelihood", log_likelihood, True, True, "Lemma 1: the gap is F(c) KL + KL of two Bernoullis >= 0",
          "d log f(z|x) + (1-d) log S(z|x)", "Rindt et al. 2022, Lemma 1", "n curve values", takes=_ALL),
    Score("concordance_td", concordance_td, True, False, "best when the curves are ordered as the true hazards are",
          "P(S(zᵢ|xᵢ) < S(zᵢ|xⱼ) | zᵢ < zⱼ, dᵢ=1) + ½ P(=)", "Antolini et al. 2005; Ishwaran et al. 2008",
          "n log n if curves never cross; else n e / 2 curve values, 99 n past 2,000 rows",
          by_subject=concordance_td_terms),
    Score("harrell_c", harrell_c, True, False, "sees one number per subject, and only its order",
          "P(rᵢ > rⱼ | zᵢ < zⱼ, dᵢ=1) + ½ P(=)", "Harrell et al. 1996", "n log n, after n restricted means",
          by_subject=harrell_c_terms),
    Score("uno_c", uno_c, True, False, "sees one number per subject, and only its order",
          "as Harrell's C, pairs weighted by 1/G(zᵢ-)²", "Uno et al. 2011", "n log n, after n restricted means",
          by_subject=uno_c_terms, given_x=False),
    Score("cumulative_dynamic_auc", cumulative_dynamic_auc, True, False, "sees the order of the risks at t",
          "P(F(t|xᵢ) > F(t|xⱼ) | zᵢ <= t < zⱼ) + ½ P(=), weighted by 1/G", "Uno et al. 2007; Blanche et al. 2013",
          "n m curve values", by_subject=cumulative_dynamic_auc_terms, times="single"),
    Score("integrated_auc", integrated_auc, True, False, "sees the order of the risks at each time",
          "Σₖ AUC(tₖ) ΔF(tₖ) / Σₖ ΔF(tₖ)", "Lambert and Chevret 2016", "n m curve values",
          by_subject=integrated_auc_terms, times="range"),
    Score("brier", brier, False, False, _BY_WEIGHT,
          "S(t|x)² 1{z<=t, d=1} / G(z-) + (1-S(t|x))² 1{z>t} / G(t)", _GRAF, "n m curve values",
          by_subject=brier_terms, times="single"),
    Score("binomial_log_likelihood", binomial_log_likelihood, True, False, _BY_WEIGHT,
          "log(1-S(t|x)) 1{z<=t, d=1} / G(z-) + log S(t|x) 1{z>t} / G(t)", _GRAF, "n m curve values",
          by_subject=binomial_log_likelihood_terms, times="single"),
    Score("integrated_brier", integrated_brier, False, False, _BY_WEIGHT,
          "1/(t₂-t₁) ∫ Brier(t) dt", _GRAF, "n m curve values",
          by_subject=integrated_brier_terms, times="range"),
    Score("integrated_binomial_log_likelihood", integrated_binomial_log_likelihood, True, False, _BY_WEIGHT,
          "1/(t₂-t₁) ∫ BLL(t) dt", _GRAF, "n m curve values",
          by_subject=integrated_binomial_log_likelihood_terms, times="range"),
    Score("survival_crps", survival_crps, False, False, "gains from any curve that falls to 0 past the censoring times",
          "∫₀^z F(t|x)² dt + d ∫_z^∞ S(t|x)² dt", "Avati et al. 2020", "n closed forms, or some 1000 n curve values"),
    Score("calibration", calibration, False, False, "counts censored times as events, so that earlier predictions gain",
          "Σⱼ (pⱼ - #{F(zᵢ|xᵢ) <= pⱼ}/n)²", "Kuleshov et al. 2018; Rindt et al. 2022", "n curve values",
          by_subject=calibration_terms),
    Score("d_calibration", d_calibration, False, False, "the truth is best, but so is any marginally right curve",
          "Σ_b (share of F(T|x) in bin b - 1/B)²", "Haider et al. 2020", "n curve values",
          by_subject=d_calibration_terms, takes=_ALL),
    Score("km_calibration", km_calibration, False, False, "sees group means only; needs C independent of x in a group",
          "Σ_g (n_g/n) (mean S(t|x) - KM_g(t))²", "D'Agostino and Nam 2003; Demler et al. 2015", "n curve values",
          by_subject=km_calibration_terms, times="single", times_option="time"),
    Score("incidence_calibration", incidence_calibration, False, False,
          "sees group means only; needs C independent of x in a group",
          "Σ_g (n_g/n) (mean F(t|x) - AJ_g(t))²", "Aalen, Johansen 1978; Austin et al. 2022", "n curve values",
          by_subject=incidence_calibration_terms, times="single", times_option="time"),
)  # fmt: skip

SCORES: Mapping[str, Score] = MappingProxyType({score.name: score for score in _ROWS})


def scores_table() -> pd.DataFrame:
    """`SCORES` as a DataFrame, one row per score.

    Examples
    --------
    >>> table = scores_table()
    >>> list(table.index[table["proper"]])
    ['log_likelihood']
    """
    facts = ("greater_is_better", "proper", "why", "needs", "formula", "reference", "cost")
    rows = {name: [getattr(score, fact) for fact in facts] for name, score in SCORES.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(facts)).rename_axis("name")
