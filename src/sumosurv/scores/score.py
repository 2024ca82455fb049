"""The table of scores: one record per score, read by `evaluate`, scorers and the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.distributions import SurvivalDistribution
from sumosurv.outcome import Cells, Outcome
from sumosurv.scores._inputs import CurveMemory, check_rows, median_time, time_grid
from sumosurv.scores._resampling import MeanTerms, Partial, PartialMeans, Terms
from sumosurv.scores._weighting import Weighting
from sumosurv.scores.auc import (
    PartialAuc,
    auc_terms,
    cumulative_dynamic_auc,
    integrated_auc,
)
from sumosurv.scores.calibration import calibration, calibration_terms, d_calibration, d_calibration_terms
from sumosurv.scores.concordance import (
    concordance_td,
    concordance_td_terms,
    harrell_c,
    harrell_c_terms,
    uno_c,
    uno_c_terms,
)
from sumosurv.scores.crps import survival_crps
from sumosurv.scores.group_calibration import group_calibration, group_calibration_terms
from sumosurv.scores.ipcw import (
    binomial_log_likelihood,
    brier,
    integrated_binomial_log_likelihood,
    integrated_brier,
    integrated_scaled_brier,
    loss_terms,
    scaled_brier,
)
from sumosurv.scores.likelihood import log_likelihood
from sumosurv.scores.pseudo import (
    calibration_intercept,
    calibration_line_terms,
    calibration_slope,
    mean_absolute_error,
    mean_absolute_error_terms,
)

RequestedScores = str | Sequence[str] | Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Score:
    """What `evaluate` knows about a score: its function, direction, options and reference.

    Attributes
    ----------
    name : str
    function : callable
        (distribution, y, ...) to one value per subject, a number, or a result with the attribute ``score``.
    greater_is_better : bool
    proper : bool
        Whether the true distribution has the best expected score under every censoring that is independent given x.
    why : str
        Why the score is proper, or how a wrong model can score well.
    formula, reference : str
    cost : str
        The cost in terms of the numbers n of subjects, m of times and e of events; a "curve value" is one S(t|x).
    by_subject : callable, optional
        (distribution, y, ...) to the `Terms` that the subjects contribute; by default the score is the mean of the
        values of ``function``. If ``function`` requires a censoring distribution, ``by_subject`` estimates it from the
        rows themselves if none is given.
    by_block : callable, "means" or "sample"
        How the score is computed if rows come in blocks. "means": the terms are means over rows, so that sums over
        blocks are enough. "sample": the score compares rows with each other, and is computed on a random sample of all
        rows. A callable makes the `Partial` of a block: (distribution, outcome, ...).
    times : {"none", "single", "range"}
        Whether the score is taken at no particular time, at single times, or integrated over a range of times.
    times_option : str
        The option of ``function`` that holds the times.
    takes : set of str
        "entry" if the score supports left truncation, "intervals" if it supports interval censoring. `evaluate`
        computes other scores on the time since entry.
    given_x : bool, default True
        Whether the weights remain valid if the censoring distribution G(t|x) differs between rows.
    label : str
        The name in words, for axes and tables; by default ``name`` with spaces.
    chance : float, optional
        The score of predictions that do not depend on x, if it is the same for all data.
    target : float, optional
        The value of a model without error, if neither higher nor lower values are better. Models are then compared by
        the distance from it, and ``greater_is_better`` is False.
    """

    name: str
    function: Callable[..., Any]
    greater_is_better: bool
    proper: bool
    why: str
    formula: str
    reference: str
    cost: str
    by_subject: Callable[..., Terms] | None = None
    by_block: Callable[..., Partial] | Literal["means", "sample"] = "means"
    times: Literal["none", "single", "range"] = "none"
    times_option: str = "times"
    takes: frozenset[str] = frozenset()
    given_x: bool = True
    label: str = ""
    chance: float | None = None
    target: float | None = None

    @property
    def title(self) -> str:
        """The name in words."""
        return self.label or self.name.replace("_", " ")

    def gain(self, value: Any) -> Any:
        """Return a value, or an array of values, on a scale on which higher is better."""
        if self.target is not None:
            return -np.abs(value - self.target)
        return value if self.greater_is_better else -value

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options: the arguments of ``function`` after the distribution and the outcome."""
        names = [name for name in inspect.signature(self.function).parameters if name != "sample_weight"][2:]
        if names and names[-1] == "weighting":
            names[-1:] = [field.name for field in fields(Weighting) if field.name != "censoring"]
        return tuple(names)

    @property
    def needs_censoring(self) -> bool:
        """Whether the score is weighted by a censoring distribution G."""
        return "censoring" in self.options

    def option_for(self, argument: str) -> str | None:
        """Return the option that receives "times" or "censoring" of `evaluate`; None if the score does not have it."""
        if argument == "times":
            return None if self.times == "none" else self.times_option
        return "censoring" if self.needs_censoring else None

    @property
    def needs(self) -> str:
        """What the score needs in addition to the distribution and the outcome, in words."""
        times = {"none": [], "single": ["a time"], "range": ["a range of times"]}[self.times]
        return ", ".join((["G"] if self.needs_censoring else []) + times)

    @property
    def direction(self) -> str:
        """Which values are better: "higher", "lower" or, for example, "near 1"."""
        if self.target is not None:
            return f"near {self.target:g}"
        return "higher" if self.greater_is_better else "lower"

    @property
    def in_short(self) -> str:
        """Direction, properness and needs, for a list of scores."""
        facts = [f"{self.direction} is better"]
        facts += ["proper"] if self.proper else []
        facts += [f"needs {self.needs}"] if self.needs else []
        return "; ".join(facts)

    def terms(
        self, distribution: SurvivalDistribution, y: Any, memory: CurveMemory | None = None, **options: Any
    ) -> Terms:
        """Return the contribution of each subject to the score, at one time if the score depends on time.

        ``memory`` keeps curves on a grid for other scores at the same times.
        """
        if memory is not None and self.times != "none" and self.needs_censoring:
            options["memory"] = memory
        if self.by_subject is None:
            outcome = check_rows(y, entry=True, intervals=True)
            return MeanTerms(outcome, self.function(distribution, outcome, **options)[:, None])
        return self.by_subject(distribution, y, **options)

    @property
    def in_cells(self) -> bool:
        """Whether the score treats recorded times as cells of time if it is given a resolution."""
        return "resolution" in self.options

    @property
    def of_causes(self) -> bool:
        """Whether the score can be taken for one of several causes."""
        return "cause" in self.options

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise ValueError for unknown options, and for times that the score cannot be taken at."""
        for name in options:
            if name not in self.options:
                known = f"its options are {', '.join(self.options)}" if self.options else "it has none"
                raise ValueError(f"{self.name} has no option {name!r}; {known}.")
        given = options.get(self.times_option)
        if given is None or self.times == "none":
            return
        if self.times == "range" and np.ndim(given) == 0:
            raise ValueError(
                f"{self.name} is an average over a range of times; give it as (low, high) or as a grid of times, "
                f"not as the one time {given!r}."
            )
        if np.size(given) == 0:
            raise ValueError(f"{self.name} needs at least one time; omit {self.times_option} for the default times.")
        if self.times == "single" and isinstance(given, tuple) and len(given) == 2:
            raise ValueError(
                f"{self.name} is taken at single times, but {given!r} is a range; give a number or a list of times, or "
                f"times for each score: scores={{{self.name!r}: {{{self.times_option!r}: [...]}}, ...}}."
            )

    def requests(self, outcome: Outcome, options: Mapping[str, Any], causes: int = 1) -> list[Request]:
        """Return one request for the score, or one for each of several times.

        With several ``causes``, a score that supports causes is taken for each of them unless the options name one.
        """
        if causes > 1 and self.of_causes and options.get("cause") is None:
            each = [self.requests(outcome, {**options, "cause": k}) for k in range(1, causes + 1)]
            return [request for found in each for request in found]
        self.check(options)
        given = options.get(self.times_option)
        if self.times == "single":
            at = median_time(outcome) if given is None else np.asarray(given, dtype=np.float64)
            return [Request(self, {**options, self.times_option: float(t)}, _word(t)) for t in np.ravel(at)]
        if self.times == "range":
            ends = time_grid(given, outcome.time, 2)
            return [Request(self, dict(options), f"{_word(ends[0])}–{_word(ends[-1])}")]
        return [Request(self, dict(options), "")]


@dataclass(frozen=True)
class Request:
    """A score with its options; ``times`` says in words at which time or range of times it is taken."""

    score: Score
    options: Mapping[str, Any]
    times: str
    censoring: str = ""  # which of two G is used, in words

    @property
    def horizon(self) -> float | None:
        """The last time that the score looks at; None if no times are given or needed."""
        given = self.options.get(self.score.times_option)
        return None if self.score.times == "none" or given is None else float(np.max(given))

    @property
    def cause(self) -> int | None:
        """The cause; None for a score of any cause or of all causes together."""
        return self.options.get("cause")

    def of_rows(self, counted: npt.NDArray[np.bool_]) -> Request:
        """Restrict the request to some of the rows: a G with one curve per row keeps their curves."""
        g = self.options.get("censoring")
        if counted.all() or not isinstance(g, SurvivalDistribution) or len(g) != len(counted):
            return self
        return replace(self, options={**self.options, "censoring": g[np.flatnonzero(counted)]})

    def terms(self, distribution: SurvivalDistribution, outcome: Outcome, memory: CurveMemory | None = None) -> Terms:
        """Return `Score.terms` with the options of this request."""
        return self.score.terms(distribution, outcome, memory, **self.options)

    def partial(
        self, distribution: SurvivalDistribution, outcome: Outcome, group: npt.NDArray[np.intp], memory: CurveMemory
    ) -> Partial | None:
        """Return what a block of rows contributes; None if the score is computed on a sample of all rows."""
        if self.score.by_block == "sample":
            return None
        if self.score.by_block == "means":
            return PartialMeans.of(self.terms(distribution, outcome, memory), outcome.weights, group)
        return self.score.by_block(distribution, outcome, **self.options)


def grouped_by_times(requests: Mapping[int, Request]) -> list[tuple[list[int], Request]]:
    """Return requests that differ in their time alone as one request for all of these times, with their positions.

    Scores that need more than curves and weights are taken at one time after the other.
    """
    groups: dict[Any, list[int]] = {}
    for place, request in requests.items():
        key: Any = place
        if request.score.times == "single" and request.score.needs_censoring:
            options = {name: id(value) for name, value in request.options.items() if name != "times"}
            key = request.score.name, *sorted(options.items())
        taken = [requests[other].options["times"] for other in groups.get(key, [])]
        groups.setdefault(place if request.options.get("times") in taken else key, []).append(place)
    found = []
    for places in groups.values():
        if len(places) == 1:
            found.append((places, requests[places[0]]))
            continue
        places.sort(key=lambda place: requests[place].options["times"])
        times = [requests[place].options["times"] for place in places]
        first = requests[places[0]]
        found.append((places, replace(first, options={**first.options, "times": times, "each": True})))
    return found


def _word(time: float) -> str:
    """Format a time in at most seven characters, rounded if necessary."""
    for text in (f"{time:g}", f"{time:.4g}" if time < 1000 else f"{time:.0f}"):
        if len(text) <= 7:
            return text
    return f"{time:.3g}"


# ------------------------------------------------------------------ the scores

_BY_WEIGHT = "proper only if G(t|x) is known"
_PSEUDO = "needs censoring independent of x"
_GRAF = "Graf et al. 1999"
_ALL = frozenset({"entry", "intervals"})
_ENTRY = frozenset({"entry"})

_ROWS = (
    Score("log_likelihood", log_likelihood, True, True,
          "by Lemma 1, the truth has the highest expected score; the gap consists of KL divergences",
          "d log f(z|x) + (1-d) log S(z|x)", "Rindt et al. 2022, Lemma 1", "n curve values", takes=_ALL,
          label="log-likelihood (nats per row)"),
    Score("concordance_td", concordance_td, True, False, "maximal if curves are ordered like the true hazards",
          "P(S(zᵢ|xᵢ) < S(zᵢ|xⱼ) | zᵢ < zⱼ, dᵢ=1) + ½ P(=)", "Antolini et al. 2005; Ishwaran et al. 2008",
          "n log n if curves never cross; else n e / 2 curve values, 99 n above 2,000 rows",
          by_subject=concordance_td_terms, by_block="sample", takes=_ENTRY,
          label="time-dependent concordance", chance=0.5),
    Score("harrell_c", harrell_c, True, False, "depends only on the order of one number per subject",
          "P(rᵢ > rⱼ | zᵢ < zⱼ, dᵢ=1) + ½ P(=)", "Harrell et al. 1996", "n log n, after n restricted means",
          by_subject=harrell_c_terms, by_block="sample", takes=_ENTRY, label="Harrell's C", chance=0.5),
    Score("uno_c", uno_c, True, False, "depends only on the order of one number per subject",
          "as Harrell's C, pairs weighted by 1/G(zᵢ-)²", "Uno et al. 2011", "n log n, after n restricted means",
          by_subject=uno_c_terms, by_block="sample", given_x=False, label="Uno's C", chance=0.5),
    Score("cumulative_dynamic_auc", cumulative_dynamic_auc, True, False, "depends only on the order of the risks at t",
          "P(F(t|xᵢ) > F(t|xⱼ) | zᵢ <= t < zⱼ, dᵢ=1) + ½ P(=), weighted by 1/G",
          "Uno et al. 2007; Blanche et al. 2013", "n m curve values", by_subject=auc_terms,
          by_block=PartialAuc.of, times="single", label="AUC", chance=0.5),
    Score("integrated_auc", integrated_auc, True, False, "depends only on the order of the risks at each time",
          "Σₖ AUC(tₖ) ΔF̂(tₖ) / Σₖ ΔF̂(tₖ)", "Lambert and Chevret 2016", "n m curve values",
          by_subject=auc_terms, by_block="sample", times="range", label="integrated AUC", chance=0.5),
    Score("brier", brier, False, False, _BY_WEIGHT,
          "S(t|x)² 1{z<=t, d=1} / G(z-) + (1-S(t|x))² 1{z>t} / G(t)", _GRAF, "n m curve values",
          by_subject=partial(loss_terms, "squared"), times="single", label="Brier score"),
    Score("binomial_log_likelihood", binomial_log_likelihood, True, False, _BY_WEIGHT,
          "log(1-S(t|x)) 1{z<=t, d=1} / G(z-) + log S(t|x) 1{z>t} / G(t)", _GRAF, "n m curve values",
          by_subject=partial(loss_terms, "logarithmic"), times="single"),
    Score("integrated_brier", integrated_brier, False, False, _BY_WEIGHT,
          "1/(t₂-t₁) ∫ Brier(t) dt", _GRAF, "n m curve values",
          by_subject=partial(loss_terms, "squared"), times="range", label="integrated Brier score"),
    Score("integrated_binomial_log_likelihood", integrated_binomial_log_likelihood, True, False, _BY_WEIGHT,
          "1/(t₂-t₁) ∫ BLL(t) dt", _GRAF, "n m curve values",
          by_subject=partial(loss_terms, "logarithmic"), times="range"),
    Score("scaled_brier", scaled_brier, True, False, _BY_WEIGHT,
          "1 - Brier(t) / Brier(t) of the best constant prediction", "Kattan and Gerds 2018", "n m curve values",
          by_subject=partial(loss_terms, "scaled"), times="single"),
    Score("integrated_scaled_brier", integrated_scaled_brier, True, False, _BY_WEIGHT,
          "1 - ∫ Brier(t) dt / ∫ Brier(t) of the best constant prediction dt", "Kattan and Gerds 2018",
          "n m curve values", by_subject=partial(loss_terms, "scaled"), times="range"),
    Score("survival_crps", survival_crps, False, False, "rewards curves that fall to 0 beyond the censoring times",
          "∫₀^z F(t|x)² dt + d ∫_z^∞ S(t|x)² dt", "Avati et al. 2020",
          "one pass over tabulated curves, else about 1,000 n curve values"),
    Score("calibration", calibration, False, False, "treats censored times as events, which rewards early predictions",
          "Σⱼ (pⱼ - #{F(zᵢ|xᵢ) <= pⱼ}/n)²", "Kuleshov et al. 2018; Rindt et al. 2022", "n curve values",
          by_subject=calibration_terms),
    Score("d_calibration", d_calibration, False, False, "a model that is right on average scores as well as the truth",
          "Σ_b (share of F(T|x) in bin b - 1/B)²", "Haider et al. 2020", "n curve values",
          by_subject=d_calibration_terms, takes=_ALL, label="D-calibration"),
    Score("group_calibration", group_calibration, False, False,
          "depends only on group means; needs censoring independent of x within groups",
          "Σ_g (n_g/n) (mean F(t|x) - F̂_g(t))²", "D'Agostino and Nam 2003; Demler et al. 2015", "n curve values",
          by_subject=group_calibration_terms, by_block="sample", times="single", times_option="time"),
    Score("calibration_intercept", calibration_intercept, False, False, "depends only on the mean risk; " + _PSEUDO,
          "α in cloglog F*(t|x) = α + cloglog F(t|x), by pseudo-observations", "van Geloven et al. 2022",
          "n curve values", by_subject=partial(calibration_line_terms, "intercept"), by_block="sample", times="single",
          times_option="time", target=0.0),
    Score("calibration_slope", calibration_slope, False, False, "depends only on the spread of risks; " + _PSEUDO,
          "β in cloglog F*(t|x) = α + β cloglog F(t|x), by pseudo-observations", "van Geloven et al. 2022",
          "n curve values", by_subject=partial(calibration_line_terms, "slope"), by_block="sample", times="single",
          times_option="time", target=1.0),
    Score("mean_absolute_error", mean_absolute_error, False, False, "depends on one number per subject; " + _PSEUDO,
          "Σ ωᵢ |eᵢ - median(x)| / Σ ωᵢ; eᵢ = zᵢ and ωᵢ = 1, or, if censored, a pseudo-observation and ωᵢ = F̂(zᵢ)",
          "Qi et al. 2023", "n medians", by_subject=mean_absolute_error_terms, by_block="sample"),
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
    facts = ("greater_is_better", "target", "proper", "why", "needs", "formula", "reference", "cost")
    rows = {name: [getattr(score, fact) for fact in facts] for name, score in SCORES.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(facts)).rename_axis("name")


# ------------------------------------------------------------------ requests

DEFAULT_SCORES = (
    "log_likelihood",
    "concordance_td",
    "integrated_brier",
    "integrated_binomial_log_likelihood",
    "d_calibration",
)
HORIZON_SCORES = ("brier", "cumulative_dynamic_auc", "binomial_log_likelihood", "group_calibration")


def find_score(name: str) -> Score:
    """Return the score of that name; raise ValueError with the list of scores if the name is unknown."""
    if name not in SCORES:
        raise ValueError(f"There is no score {name!r}; the scores are {', '.join(SCORES)}.")
    return SCORES[name]


def default_scores(outcome: Outcome, times: Any) -> tuple[RequestedScores, Any]:
    """Return the scores that are shown by default, and the ``times`` that remain to be shared between them.

    A range of times is for the integrated scores. At single times, the scores at a horizon are added.
    """
    names = [name for name in DEFAULT_SCORES if outcome.upper is None or "intervals" in SCORES[name].takes]
    if times is None or (isinstance(times, tuple) and len(times) == 2):
        return tuple(names), times
    if outcome.upper is not None:
        raise ValueError(
            "The scores at single times need exact event times, and some events are interval-censored; leave out times."
        )
    at_times = {name: {SCORES[name].times_option: times} for name in HORIZON_SCORES}
    return {name: {} for name in names} | at_times, None


def make_requests(
    scores: RequestedScores,
    outcome: Outcome,
    censoring: SurvivalDistribution | None,
    times: Any,
    causes: int,
    cells: Cells | None,
) -> list[Request]:
    """Return each score with its own options and with those that are shared by all scores that have them."""
    own: Mapping[str, Mapping[str, Any]] = scores if isinstance(scores, Mapping) else {}
    names = [scores] if isinstance(scores, str) else list(scores)
    wanted = [(find_score(name), dict(own.get(name, {}))) for name in names]
    if times is not None:
        _share("times", times, wanted)
    if censoring is not None:
        _share("censoring", censoring, wanted)
    made = []
    for score, options in wanted:
        in_cells = cells is not None and score.in_cells and options.get("resolution") is None
        if in_cells:
            options["resolution"] = cells
        requests = score.requests(outcome, options, causes)
        made += [replace(r, times=f"cells of {cells.width:g}") for r in requests] if cells and in_cells else requests
    return made


def _share(argument: str, value: Any, wanted: Sequence[tuple[Score, dict[str, Any]]]) -> None:
    """Pass an argument of `evaluate` to each score that has the option and was not given its own value."""
    shared = False
    for score, options in wanted:
        option = score.option_for(argument)
        if option is not None and options.get(option) is None:
            options[option], shared = value, True
    if not shared:
        possible = ", ".join(score.name for score in SCORES.values() if score.option_for(argument) is not None)
        names = ", ".join(score.name for score, _ in wanted)
        raise ValueError(
            f"{argument}= is for {possible}; the requested scores ({names}) do not use it, or set their own."
        )
