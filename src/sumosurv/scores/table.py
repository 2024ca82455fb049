"""The table of scores: which way each points, whether it can be trusted, what it costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pandas as pd

from sumosurv.scores.calibration import calibration, d_calibration, km_calibration
from sumosurv.scores.concordance import concordance_td, harrell_c, uno_c
from sumosurv.scores.crps import survival_crps
from sumosurv.scores.ipcw import binomial_log_likelihood, brier, integrated_binomial_log_likelihood, integrated_brier
from sumosurv.scores.likelihood import log_likelihood

__all__ = ["SCORES", "Score", "scores_table"]


@dataclass(frozen=True)
class Score:
    """One row of the table of scores.

    Attributes
    ----------
    name : str
    function : callable
        (distribution, y, ...) to one value per subject, a number, or a result with the attribute ``score``.
    greater_is_better : bool
    proper : bool
        Whether the true distribution has the best expected score under every censoring that is independent given x.
    why : str
        What makes it proper, or how it is fooled.
    formula, reference : str
    cost : str
        In the number n of subjects, m of times and e of events; a "curve value" is one S(t|x).
    """

    name: str
    function: Callable[..., Any]
    greater_is_better: bool
    proper: bool
    why: str
    formula: str
    reference: str
    cost: str


_BY_WEIGHT = "only if G(t|x) is known; with one G for all, false where censoring depends on x"
_GRAF = "Graf et al. 1999"

_ROWS = (
    Score("log_likelihood", log_likelihood, True, True, "Lemma 1: the gap is F(c) KL + KL of two Bernoullis >= 0",
          "d log f(z|x) + (1-d) log S(z|x)", "Rindt et al. 2022, Lemma 1", "n curve values"),
    Score("concordance_td", concordance_td, True, False, "best when the curves are ordered as the true hazards are",
          "P(S(zᵢ|xᵢ) < S(zᵢ|xⱼ) | zᵢ < zⱼ, dᵢ=1) + ½ P(=)", "Antolini et al. 2005; Ishwaran et al. 2008",
          "n e / 2 curve values exactly; m n log n from a table"),
    Score("harrell_c", harrell_c, True, False, "sees one number per subject, and only its order",
          "P(rᵢ > rⱼ | zᵢ < zⱼ, dᵢ=1) + ½ P(=)", "Harrell et al. 1996", "n log n, after n restricted means"),
    Score("uno_c", uno_c, True, False, "sees one number per subject, and only its order",
          "as Harrell's C, pairs weighted by 1/G(zᵢ-)²", "Uno et al. 2011", "n log n, after n restricted means"),
    Score("brier", brier, False, False, _BY_WEIGHT,
          "S(t|x)² 1{z<=t, d=1} / G(z-) + (1-S(t|x))² 1{z>t} / G(t)", _GRAF, "n m curve values"),
    Score("binomial_log_likelihood", binomial_log_likelihood, True, False, _BY_WEIGHT,
          "log(1-S(t|x)) 1{z<=t, d=1} / G(z-) + log S(t|x) 1{z>t} / G(t)", _GRAF, "n m curve values"),
    Score("integrated_brier", integrated_brier, False, False, _BY_WEIGHT,
          "1/(t₂-t₁) ∫ Brier(t) dt", _GRAF, "n m curve values"),
    Score("integrated_binomial_log_likelihood", integrated_binomial_log_likelihood, True, False, _BY_WEIGHT,
          "1/(t₂-t₁) ∫ BLL(t) dt", _GRAF, "n m curve values"),
    Score("survival_crps", survival_crps, False, False, "gains from any curve that falls to 0 past the censoring times",
          "∫₀^z F(t|x)² dt + d ∫_z^∞ S(t|x)² dt", "Avati et al. 2020", "n closed forms, or some 1000 n curve values"),
    Score("calibration", calibration, False, False, "counts censored times as events, so that earlier predictions gain",
          "Σⱼ (pⱼ - #{F(zᵢ|xᵢ) <= pⱼ}/n)²", "Kuleshov et al. 2018; Rindt et al. 2022", "n curve values"),
    Score("d_calibration", d_calibration, False, False, "the truth is best, but so is any marginally right curve",
          "Σ_b (share of F(T|x) in bin b - 1/B)²", "Haider et al. 2020", "n curve values"),
    Score("km_calibration", km_calibration, False, False, "sees group means only; needs C independent of x in a group",
          "Σ_g (n_g/n) (mean S(t|x) - KM_g(t))²", "D'Agostino and Nam 2003; Demler et al. 2015", "n curve values"),
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
    rows = [{key: value for key, value in vars(score).items() if key != "function"} for score in SCORES.values()]
    return pd.DataFrame(rows).set_index("name")
