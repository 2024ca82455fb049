"""What the library computes for each entry of the records of R in this folder: the same names, the same values."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sumosurv import (
    CauseSpecific,
    CoxPH,
    CoxPHCV,
    FineGray,
    ParametricRegression,
    Surv,
    check_outcome,
    compare_nested,
    confidence_band,
    kaplan_meier,
    logrank_test,
    restricted_mean_test,
    spells,
)
from sumosurv.distributions import CauseMixture, Mixture, Tabulated, Weibull
from sumosurv.nonparametric import aalen_johansen
from sumosurv.scores import (
    brier,
    calibration_intercept,
    calibration_slope,
    concordance_td,
    evaluate,
    harrell_c,
    integrated_scaled_brier,
    mean_absolute_error,
    scaled_brier,
    uno_c,
)
from sumosurv.scores.model_selection import validate_on

FOLDER = Path(__file__).parent
TRIAL = pd.read_csv(FOLDER / "trial.csv")
SPELLS = pd.read_csv(FOLDER / "spells.csv")
X = TRIAL[["arm", "age", "marker"]]
Y = Surv.from_arrays(TRIAL["cause"] > 0, TRIAL["time"])
ENTERED = Surv.from_arrays(TRIAL["cause"] > 0, TRIAL["time"], entry=TRIAL["entry"])
COUNT, WEIGHT, SUBJECT = TRIAL["count"], TRIAL["weight"], TRIAL["subject"]

STATISTICS: dict[str, Callable[[], Mapping[str, Any]]] = {}


def statistic(name: str, *arguments: Any, **options: Any) -> Callable[[Any], Any]:
    """Register a function for an entry; arguments are passed on, so that one function serves several entries."""

    def register(function: Any) -> Any:
        STATISTICS[name] = lambda: function(*arguments, **options)
        return function

    return register


def records() -> dict[str, dict[str, Any]]:
    """All entries by name: what, data, code and values of R, the versions and the script."""
    made = {}
    for path in sorted(FOLDER.glob("*.json")):
        record = json.loads(path.read_text())
        for name, entry in record.get("entries", {}).items():
            made[name] = entry | {"versions": record["versions"], "script": path.with_suffix(".R").name}
    return made


def largest_difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    """The largest |found - expected| / max(1, |expected|) over all values of an entry."""
    assert set(found) == set(expected), (sorted(found), sorted(expected))
    gaps = []
    for name, values in expected.items():
        theirs, own = np.asarray(values, dtype=np.float64), np.asarray(found[name], dtype=np.float64)
        assert own.size == theirs.size, (name, own.shape, theirs.shape)
        own = own.reshape(theirs.shape)
        same = np.isnan(own) & np.isnan(theirs)
        gaps.append(np.where(same, 0.0, np.abs(own - theirs) / np.maximum(1.0, np.abs(theirs))).max(initial=0.0))
    return float(max(gaps))


# ------------------------------------------------------------------ Cox regression


@statistic("cox-efron", X, Y)
@statistic("cox-breslow", X, Y, ties="breslow")
@statistic("cox-entry", X, ENTERED)
@statistic("cox-strata", X.assign(site=TRIAL["site"]), ENTERED, strata="site")
@statistic("cox-counts", X, Y, {"sample_weight": COUNT})
@statistic("cox-weights", X, Y, {"sample_weight": WEIGHT})
@statistic("cox-groups", X, ENTERED, {"sample_weight": WEIGHT, "groups": SUBJECT})
@statistic("cox-counts-groups", X, Y, {"sample_weight": COUNT, "groups": SUBJECT})
@statistic("cox-complete-cases", X.assign(bmi=TRIAL["bmi"]), Y)
def _cox(x: pd.DataFrame, y: Any, rows: Mapping[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*have missing values", UserWarning)
        model = CoxPH(**settings).fit(x, y, **rows or {})
    return {"coef": model.coef_, "standard_error": model.standard_errors_, "log_likelihood": model.log_likelihood_}


@statistic("cox-summary", X, Y)
@statistic("cox-summary-breslow", X, Y, ties="breslow")
@statistic("cox-summary-entry-strata", X.assign(site=TRIAL["site"]), ENTERED, strata="site")
@statistic("cox-summary-counts", X, Y, {"sample_weight": COUNT})
@statistic(
    "cox-summary-groups",
    X.assign(site=TRIAL["site"]),
    ENTERED,
    {"sample_weight": WEIGHT, "groups": SUBJECT},
    strata="site",
)
def _cox_summary(x: pd.DataFrame, y: Any, rows: Mapping[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    found = CoxPH(**settings).fit(x, y, **rows or {}).summary()
    made = {name: found.fit[name] for name in ("null_log_likelihood", "aic", "bic")}
    concordance = found.fit[["concordance", "concordance_standard_error"]]
    return made | {
        "tests": found.tests["statistic"],
        "terms": found.terms["statistic"],
        "concordance": concordance,
    }


@statistic("cox-nested")
def _cox_nested() -> dict[str, Any]:
    found = compare_nested(CoxPH().fit(X[["age"]], Y), CoxPH().fit(X, Y))
    test = {name: found.loc["large", name] for name in ("statistic", "df", "p")}
    return {"log_likelihood": found["log_likelihood"]} | test


@statistic("cox-separation")
def _separation() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = CoxPH().fit(X.assign(carrier=TRIAL["carrier"]), Y)
    return {"coef": model.coef_[:4], "standard_error": model.standard_errors_[:4]}


@statistic("cox-firth")
def _firth() -> dict[str, Any]:
    model = CoxPH(penalty="firth", ties="breslow").fit(TRIAL[["age", "carrier"]], Y)
    return {"coef": model.coef_, "standard_error": model.standard_errors_}


@statistic("baseline-efron", X, Y)
@statistic("baseline-breslow", X, Y, ties="breslow")
@statistic("baseline-entry", X, ENTERED)
@statistic("baseline-weights", X, Y, {"sample_weight": WEIGHT})
@statistic("baseline-counts", X, Y, {"sample_weight": COUNT})
@statistic("baseline-strata", X.assign(site=TRIAL["site"]), Y, strata="site")
def _baseline(x: pd.DataFrame, y: Any, rows: Mapping[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    model = CoxPH(**settings).fit(x, y, **rows or {})
    return {"survival": model.predict_survival_function(x.iloc[:3], [0.5, 1.0, 2.0, 4.0, 8.0]).T}


@statistic("limits-efron", X, Y)
@statistic("limits-breslow", X, Y, ties="breslow")
@statistic("limits-entry", X, ENTERED)
@statistic("limits-counts", X, Y, {"sample_weight": COUNT})
@statistic("limits-groups", X, ENTERED, {"sample_weight": WEIGHT, "groups": SUBJECT})
@statistic("limits-strata", X.assign(site=TRIAL["site"]), Y, strata="site")
def _limits(x: pd.DataFrame, y: Any, rows: Mapping[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    model = CoxPH(**settings).fit(x, y, **rows or {})
    band = model.predict_survival_band(x.iloc[:3], [0.5, 1.0, 2.0, 4.0, 8.0])
    return {"limits": np.stack(band, axis=1), "median": np.stack(model.predict_median_limits(x.iloc[:3]))}


@statistic("limits-restricted-mean")
def _restricted_mean_limits() -> dict[str, Any]:
    model = CoxPH(ties="breslow").fit(X, Y)
    return {"limits": np.stack(model.predict_restricted_mean_limits(X.iloc[:3], 6.0))}


@statistic("zph-efron", X, Y)
@statistic("zph-breslow", X, Y, ties="breslow")
@statistic("zph-entry-strata", X.assign(site=TRIAL["site"]), ENTERED, strata="site")
@statistic("zph-weights", X, Y, WEIGHT)
@statistic("zph-counts", X, Y, COUNT)
def _proportionality(x: pd.DataFrame, y: Any, weight: Any = None, **settings: Any) -> dict[str, Any]:
    model = CoxPH(**settings).fit(x, y, sample_weight=weight)
    tables = {
        g: model.test_proportionality(x, y, transform=g, sample_weight=weight)
        for g in ("km", "rank", "identity", "log")
    }
    made = {g: table["statistic"].to_numpy() for g, table in tables.items()}
    return made | {"df": tables["km"]["df"].to_numpy(), "p": tables["km"]["p"].to_numpy()}


# ------------------------------------------------------------------ formulas


def _from_formula(formula: str, data: pd.DataFrame = TRIAL, cls: Any = CoxPH, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*have missing values", UserWarning)
        return cls.from_formula(formula, data, **settings)


@statistic("formula-reference", "age + C(arm, ref='low') + age:site")
@statistic("formula-interactions", "arm * ns(age, df=2) + site:marker")
@statistic("formula-contrasts", "C(arm, contr.sum) + C(count, contr.helmert) + C(arm, contr.poly):age")
@statistic("formula-functions", "poly(age, 3) + log(marker + 1) + scale(bmi) + {age > 60}")
def _cox_formula(terms: str) -> dict[str, Any]:
    model = _from_formula(f"Surv(time, cause > 0) ~ {terms}")
    return {"coef": model.coef_, "standard_error": model.standard_errors_}


@statistic("formula-roles")
def _formula_roles() -> dict[str, Any]:
    terms = "age + arm + strata(site) + cluster(subject) + offset(marker / 2)"
    model, times = _from_formula(f"Surv(entry, time, cause > 0) ~ {terms}"), [1.0, 2.0, 4.0]
    lower, upper = model.predict_survival_band(TRIAL.iloc[:3], times)
    found = {"coef": model.coef_, "standard_error": model.standard_errors_, "lower": lower, "upper": upper}
    found |= {"log_likelihood": model.summary().fit[["log_likelihood", "null_log_likelihood"]]}
    return found | {"survival": model.predict_survival_function(TRIAL.iloc[:3], times)}


SPLINES = "Surv(time, cause > 0) ~ bs(age, df=5) + ns(marker, df=3) + bs(weight, knots=[1.5], degree=2)"
SCALED = TRIAL.assign(weight=WEIGHT / WEIGHT.mean())


@statistic("formula-splines")
def _formula_splines() -> dict[str, Any]:
    model = _from_formula(SPLINES, SCALED)
    found = {"coef": model.coef_, "standard_error": model.standard_errors_}
    found |= {"terms": model.summary().terms["statistic"]}
    return found | {"zph": model.test_proportionality(SCALED, Y)["statistic"]}


@statistic("formula-splines-beyond")
def _formula_splines_beyond() -> dict[str, Any]:
    rows = pd.DataFrame({"age": [60.0, 20.0, 110.0], "marker": [1.0, 9.0, -2.0], "weight": [1.0, 0.1, 4.0]})
    log_risk = _from_formula(SPLINES, SCALED).log_risk(rows)
    return {"difference": log_risk[1:] - log_risk[0]}


@statistic("formula-survreg")
def _formula_survreg() -> dict[str, Any]:
    terms = "ns(age, df=3) + arm + offset(marker / 2)"
    model = _from_formula(f"Surv(time, cause > 0) ~ {terms}", cls=ParametricRegression, family="lognormal")
    found = {"coef": model.summary().to_frame()["coef"].iloc[:-1], "median": model.predict_median(TRIAL.iloc[:3])}
    return found | {"log_likelihood": [model.log_likelihood_, model.null_log_likelihood_]}


@statistic("formula-interval")
def _formula_interval() -> dict[str, Any]:
    low = (TRIAL["time"] - 0.5 * (TRIAL["cause"] > 0)).replace(0.0, np.nan)
    data = TRIAL.assign(low=low, high=TRIAL["time"].where(TRIAL["cause"] > 0))
    terms = "bs(age, df=4) + C(arm, ref='low')"
    model = _from_formula(f"Surv(low, high, type='interval') ~ {terms}", data, ParametricRegression)
    likelihoods = [model.log_likelihood_, model.null_log_likelihood_]
    return {"coef": model.summary().to_frame()["coef"].iloc[:-1], "log_likelihood": likelihoods}


@statistic("formula-finegray")
def _formula_fine_gray() -> dict[str, Any]:
    terms = "ns(age, knots=[55, 65]) + arm + offset(marker / 2)"
    return {"coef": _from_formula(f"Surv(time, cause) ~ {terms}", cls=FineGray).coef_}


# ------------------------------------------------------------------ penalised paths

PENALTIES = np.array([0.2, 0.1, 0.05, 0.02, 0.01, 0.003])
PLAIN = X.assign(site=TRIAL["site"])
WITH_CARRIER = X.assign(carrier=TRIAL["carrier"], site=TRIAL["site"])
FOLDS = np.arange(len(TRIAL)) % 8
WIDE = pd.read_csv(FOLDER / "wide.csv")
WIDE_X, WIDE_Y = WIDE.drop(columns=["time", "event"]), Surv.from_arrays(WIDE["event"] > 0, WIDE["time"])


def _path(x: pd.DataFrame, y: Any, weight: Any = None, **settings: Any) -> CoxPHCV:
    return CoxPHCV(**{"ties": "breslow", "cv": 2, "random_state": 0} | settings).fit(x, y, sample_weight=weight)


@statistic("glmnet-lasso", WITH_CARRIER, Y)
@statistic("glmnet-elastic-net", WITH_CARRIER, Y, l1_ratio=0.5)
@statistic("glmnet-ridge", WITH_CARRIER, Y, l1_ratio=0.0)
@statistic("glmnet-weights", WITH_CARRIER, Y, WEIGHT)
@statistic("glmnet-counts", WITH_CARRIER, Y, COUNT, l1_ratio=0.5)
@statistic("glmnet-entry", PLAIN, ENTERED)
@statistic("glmnet-strata", PLAIN, ENTERED, WEIGHT, l1_ratio=0.5, strata="site")
@statistic("glmnet-wide", WIDE_X, WIDE_Y, penalties=[0.2, 0.15, 0.1, 0.07, 0.05, 0.04])
@statistic("glmnet-wide-ridge", WIDE_X, WIDE_Y, l1_ratio=0.0, penalties=[20.0, 10.0, 5.0, 2.0, 1.0, 0.5])
def _elastic_net(
    x: pd.DataFrame, y: Any, weight: Any = None, penalties: Any = PENALTIES, l1_ratio: float = 1.0, **settings: Any
) -> dict[str, Any]:
    """The path, the last penalty by `CoxPH`."""
    alphas = np.array(penalties) * (COUNT.sum() if weight is COUNT else len(x))  # other weights have a mean of one
    path = _path(x, y, weight, alphas=alphas, l1_ratio=l1_ratio, **settings).coef_path_
    single = CoxPH(ties="breslow", alpha=alphas[-1], l1_ratio=l1_ratio, **settings).fit(x, y, sample_weight=weight)
    return {"coef": np.vstack([path[:-1], single.coef_])}


@statistic("glmnet-penalties")
def _penalties() -> dict[str, Any]:
    rows = {
        "lasso": (WITH_CARRIER, Y, None, 1.0),
        "elastic_net": (WITH_CARRIER, Y, WEIGHT, 0.5),
        "ridge": (WITH_CARRIER, Y, None, 0.0),
        "wide": (WIDE_X, WIDE_Y, None, 1.0),
    }
    made = {}
    for name, (x, y, weight, l1_ratio) in rows.items():
        made[name] = _path(x, y, weight, l1_ratio=l1_ratio, n_alphas=20).alphas_ / len(x)
    return made | {"wide": made["wide"][:10]}


@statistic("cv-glmnet", WITH_CARRIER, l1_ratio=1.0)
@statistic("cv-glmnet-ridge", WITH_CARRIER, l1_ratio=0.0)
@statistic("cv-glmnet-entry", PLAIN, entry=TRIAL["entry"], l1_ratio=0.5)
def _cross_validated(x: pd.DataFrame, entry: Any = None, **settings: Any) -> dict[str, Any]:
    untied = TRIAL["time"] + np.arange(1, len(TRIAL) + 1) / 1e4
    y = Surv.from_arrays(TRIAL["cause"] > 0, untied, entry=entry)
    options = {"alphas": PENALTIES * len(x), "cv": FOLDS} | settings
    model = _path(x, y, **options)
    chosen = [_path(x, y, **options, rule=rule).alpha_ / len(x) for rule in ("min", "one_standard_error")]
    return {"deviance": -2.0 * model.cv_score_, "standard_error": 2.0 * model.cv_error_, "lambda": chosen}


# ------------------------------------------------------------------ parametric regression

# times are whole half-years
INTERVALS = Surv.interval(np.where(Y["event"], Y["time"] - 0.5, Y["time"]), np.where(Y["event"], Y["time"], np.inf))


@statistic("survreg-weibull", "weibull", null=True)
@statistic("survreg-exponential", "exponential", null=True)
@statistic("survreg-lognormal", "lognormal", null=True)
@statistic("survreg-loglogistic", "loglogistic", null=True)
@statistic("survreg-interval-weibull", "weibull", INTERVALS, null=True)
@statistic("survreg-interval-lognormal", "lognormal", INTERVALS, null=True)
@statistic("survreg-interval-loglogistic", "loglogistic", INTERVALS, null=True)
@statistic("survreg-counts", "weibull", Y, {"sample_weight": COUNT}, null=True)
@statistic("survreg-weights", "weibull", Y, {"sample_weight": WEIGHT}, null=True)
@statistic("survreg-groups", "lognormal", Y, {"sample_weight": WEIGHT, "groups": SUBJECT}, null=True)
@statistic("survreg-strata", "weibull", x=X.assign(site=TRIAL["site"]), strata="site")
@statistic("parametric-entry-weibull", "weibull", ENTERED)
@statistic("parametric-gompertz", "gompertz")
@statistic("parametric-entry-gompertz", "gompertz", ENTERED)
@statistic("parametric-interval-generalised-gamma", "generalised_gamma", INTERVALS)
@statistic("parametric-spline", "spline")
@statistic("parametric-entry-spline", "spline", ENTERED)
def _parametric(
    family: str,
    y: Any = Y,
    rows: Mapping[str, Any] | None = None,
    x: pd.DataFrame = X,
    null: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    model = ParametricRegression(family=family, **settings).fit(x, y, **rows or {})
    table = model.summary().to_frame()
    found = {"coef": table["coef"], "standard_error": table["standard_error"]}
    found |= {"log_likelihood": model.log_likelihood_}
    return found | ({"null_log_likelihood": model.null_log_likelihood_} if null else {})


@statistic("survreg-concordance", "weibull")
@statistic("survreg-concordance-weights", "lognormal", sample_weight=WEIGHT)
def _parametric_concordance(family: str, **rows: Any) -> dict[str, Any]:
    fit = ParametricRegression(family=family).fit(X, Y, **rows).summary().fit
    return {"concordance": fit["concordance"], "standard_error": fit["concordance_standard_error"]}


@statistic("parametric-band-weibull", "weibull")
@statistic("parametric-band-spline", "spline")
def _parametric_band(family: str) -> dict[str, Any]:
    model, times = ParametricRegression(family=family).fit(X, ENTERED), [0.5, 1.0, 2.0, 4.0, 8.0]
    lower, upper = model.predict_survival_band(X.iloc[:3], times)
    return {"survival": model.predict_survival_function(X.iloc[:3], times), "lower": lower, "upper": upper}


# ------------------------------------------------------------------ competing risks

CAUSES = Surv.from_arrays(TRIAL["cause"], TRIAL["time"])
ENTERED_CAUSES = Surv.from_arrays(TRIAL["cause"], TRIAL["time"], entry=TRIAL["entry"])


@statistic("finegray")
@statistic("finegray-counts", sample_weight=COUNT)
@statistic("finegray-groups", groups=SUBJECT)
@statistic("finegray-weights", sample_weight=WEIGHT)
@statistic("finegray-weights-groups", sample_weight=WEIGHT, groups=SUBJECT)
@statistic("finegray-counts-groups", sample_weight=COUNT, groups=SUBJECT)
def _fine_gray(**rows: Any) -> dict[str, Any]:
    model = FineGray().fit(X, CAUSES, **rows)
    return {"coef": model.coef_, "standard_error": model.standard_errors_}


@statistic("finegray-concordance")
@statistic("finegray-concordance-counts", sample_weight=COUNT)
@statistic("finegray-concordance-weights-groups", sample_weight=WEIGHT, groups=SUBJECT)
def _fine_gray_concordance(**rows: Any) -> dict[str, Any]:
    fit = FineGray().fit(X, CAUSES, **rows).summary().fit.unstack()
    return {"concordance": fit["concordance"], "standard_error": fit["concordance_standard_error"]}


@statistic("finegray-separation")
def _fine_gray_separation() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FineGray().fit(X.assign(carrier=TRIAL["carrier"]), CAUSES)
    return {"coef": model.coef_[:, :4], "standard_error": model.standard_errors_[:, :4]}


@statistic("crr")
def _crr() -> dict[str, Any]:
    untied = TRIAL["time"] + np.arange(1, len(TRIAL) + 1) / 1e4
    model = FineGray().fit(X, Surv.from_arrays(TRIAL["cause"], untied))
    risk, baseline = np.exp(model.log_risk(X.iloc[:3])[:, 0]), _baseline_at(model, [0.6, 1.1, 2.1, 4.1, 8.1])
    return {
        "coef": model.coef_[0],
        "log_likelihood": model.log_likelihood_[0],
        "incidence": 1.0 - np.exp(-risk * baseline),
    }


def _baseline_at(model: FineGray, times: Any) -> Any:
    own, hazard = model.baselines_[0]
    return np.append(0.0, hazard)[np.searchsorted(own, times, side="right")][:, None]


@statistic("cause-specific")
def _cause_specific() -> dict[str, Any]:
    summary = CauseSpecific(CoxPH()).fit(X, CAUSES).summary().coefficients
    return {"coef": summary["coef"], "standard_error": summary["standard_error"]}


# ------------------------------------------------------------------ nonparametric curves and tests

Z = 1.959963984540054


@statistic("km", Y)
@statistic("km-entry", ENTERED)
@statistic("km-counts", Y, sample_weight=COUNT)
@statistic("km-weights", Y, sample_weight=WEIGHT)
@statistic("km-groups", Y, groups=SUBJECT)
@statistic("km-entry-weights-groups", ENTERED, sample_weight=WEIGHT, groups=SUBJECT)
def _kaplan_meier(y: Any, **rows: Any) -> dict[str, Any]:
    found = {kind: confidence_band(y, kind=kind, **rows) for kind in ("log-log", "log", "plain")}
    made = {"estimate": found["log"]["estimate"]}
    for kind, table in found.items():
        made |= {f"{kind.replace('-', '_')}_{side}": table[side] for side in ("lower", "upper")}
    return made


@statistic("nelson-aalen")
@statistic("nelson-aalen-weights", sample_weight=WEIGHT)
@statistic("nelson-aalen-groups", groups=SUBJECT)
def _nelson_aalen(**rows: Any) -> dict[str, Any]:
    found = confidence_band(Y, "nelson_aalen", kind="plain", **rows)
    return {"estimate": found["estimate"], "standard_error": (found["upper"] - found["estimate"]) / Z}


@statistic("aalen-johansen-weights", CAUSES, sample_weight=WEIGHT)
@statistic("aalen-johansen-groups", CAUSES, groups=SUBJECT)
@statistic("aalen-johansen-entry", ENTERED_CAUSES, sample_weight=WEIGHT)
def _aalen_johansen(y: Any, **rows: Any) -> dict[str, Any]:
    found = confidence_band(y, "aalen_johansen", kind="plain", **rows)
    made = {"incidence": found["estimate"], "standard_error": (found["upper"] - found["estimate"]) / Z}
    return {name: values.to_numpy().reshape(2, -1).T for name, values in made.items()}


@statistic("aalen-johansen")
def _incidence() -> dict[str, Any]:
    return {"incidence": aalen_johansen(CAUSES).incidence[0, 1:].numpy()}


@statistic("logrank")
@statistic("logrank-strata", strata=TRIAL["site"])
@statistic("logrank-counts", sample_weight=COUNT)
def _logrank(**options: Any) -> dict[str, Any]:
    found = logrank_test(Y, TRIAL["arm"], **options)
    return {"statistic": found.statistic, "expected": found.groups["expected"]}


@statistic("logrank-robust", sample_weight=WEIGHT)
@statistic("gehan", weighting="gehan-breslow")
@statistic("tarone-ware", weighting="tarone-ware")
@statistic("fleming-harrington-1-0", weighting="fleming-harrington", rho=1.0)
@statistic("fleming-harrington-0-1", weighting="fleming-harrington", gamma=1.0)
def _weighted_logrank(**options: Any) -> dict[str, Any]:
    return {"statistic": logrank_test(Y, TRIAL["arm"], **options).statistic}


@statistic("restricted-mean")
def _restricted_mean() -> dict[str, Any]:
    found = restricted_mean_test(Y, TRIAL["arm"], 6.0).groups
    return {"restricted_mean": found["restricted_mean"], "standard_error": found["standard_error"]}


# ------------------------------------------------------------------ concordance

RISK = np.floor(10 * TRIAL["marker"].to_numpy()) / 10


@statistic("harrell", RISK, Y)
@statistic("harrell-counts", RISK, Y, sample_weight=COUNT)
@statistic("harrell-entry", RISK, ENTERED)
@statistic(
    "harrell-spells",
    SPELLS["x"].to_numpy(),
    Surv.from_arrays(SPELLS["event"] > 0, SPELLS["stop"], entry=SPELLS["start"]),
)
@statistic("harrell-none", 0.0 * RISK, Y)
def _harrell(risk: Any, y: Any, **rows: Any) -> dict[str, Any]:
    """Of risks, and of three kinds of curves that have their order: the value that is furthest from the first."""
    scale = np.exp(-risk)
    steps = Tabulated([0.0, 20.0], np.column_stack([0.5 - risk / 50] * 2))
    curves = (Weibull(scale, 1.0), steps, Mixture([Weibull(scale, 1.0), Weibull(scale, 1.0)]))
    first = harrell_c(risk, y, **rows)
    others = [first, *(concordance_td(d, y, **rows) for d in curves)]
    return {"concordance": max(others, key=lambda value: abs(value - first))}


@statistic("uno")
def _uno() -> dict[str, Any]:
    y = Surv.from_arrays(TRIAL["cause"] > 0, TRIAL["time"] + np.arange(1, len(TRIAL) + 1) / 1e4)
    return {"concordance": uno_c(RISK, y, censoring=kaplan_meier(y, censoring=True))}


@statistic("heart")
def _heart() -> dict[str, Any]:
    folder = Path(os.environ.get("SUMOSURV_DATA", FOLDER.parents[2] / "shared" / "data"))
    table = pd.read_parquet(folder / "outcomes" / "heart.parquet")
    y = Surv.from_columns(table, event="event", time="stop", entry="start")
    x = table[["age", "year", "surgery", "transplant"]].astype(float)
    return {"concordance": evaluate(CoxPH().fit(x, y), x, y, scores="harrell_c", n_bootstrap=0)["value"].iloc[0]}


# ------------------------------------------------------------------ scores of predicted risks

UNTIED = TRIAL["time"] + np.arange(1, len(TRIAL) + 1) / 1e4
CURVES = Weibull(np.exp(1.5 - 0.4 * TRIAL["marker"].to_numpy()), 1.0)
# cause 1 has 70 % of all events
INCIDENCES = CauseMixture(np.tile(np.log([0.7, 0.3]), (len(TRIAL), 1)), [CURVES, CURVES])


@statistic("ipa", CURVES, Surv.from_arrays(TRIAL["cause"] > 0, UNTIED))
@statistic("ipa-cause", INCIDENCES, Surv.from_arrays(TRIAL["cause"], UNTIED), cause=1)
def _scaled_brier(curves: Any, y: Any, **options: Any) -> dict[str, Any]:
    times = [1.1, 3.1, 6.1]
    options["censoring"] = kaplan_meier(Surv.from_arrays(TRIAL["cause"] > 0, UNTIED), censoring=True)
    losses = brier(curves, y, times, **options).mean(axis=0)
    return {"brier": losses, "ipa": scaled_brier(curves, y, times, **options)}


@statistic("ipa-integrated")
def _integrated_scaled_brier() -> dict[str, Any]:
    y = Surv.from_arrays(TRIAL["cause"] > 0, UNTIED)
    g = kaplan_meier(y, censoring=True)
    return {"value": integrated_scaled_brier(CURVES, y, times=(0.6, 6.1), n_times=50, censoring=g)}


@statistic("calibration-line", CURVES, Y)
@statistic("calibration-line-counts", CURVES, Y, sample_weight=COUNT)
@statistic("calibration-line-cause", INCIDENCES, CAUSES, cause=1)
def _calibration_line(curves: Any, y: Any, **options: Any) -> dict[str, Any]:
    functions = {"intercept": calibration_intercept, "slope": calibration_slope}
    return {name: function(curves, y, 3.0, **options) for name, function in functions.items()}


@statistic("optimism")
def _optimism() -> dict[str, Any]:
    rows = np.array(records()["optimism"]["values"]["rows"], dtype=int)
    found = validate_on(list(rows - 1), CoxPH(), X, check_outcome(Y), "harrell_c").table.iloc[0]
    values = [2 * found[name] - 1 for name in ("apparent", "training", "test")]
    return {"rows": rows, "dxy": [*values, 2 * found["optimism"], 2 * found["corrected"] - 1]}


@statistic("mean-absolute-error")
def _mean_absolute_error() -> dict[str, Any]:
    return {"value": mean_absolute_error(CURVES, Y, horizon=6.0)}


# ------------------------------------------------------------------ start-stop rows


def _merged() -> pd.DataFrame:
    visits = pd.read_csv(FOLDER / "visits.csv")
    relapses = visits[visits["relapse"] == 1]
    baseline = TRIAL.head(60).assign(id=np.arange(1, 61), died=TRIAL["cause"] > 0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* after the end of follow-up")
        return spells.merge(
            baseline[["id", "entry", "time", "died", "age"]],
            id="id",
            start="entry",
            stop="time",
            event="died",
            covariates=visits[["id", "time", "crp", "dose"]],
            counts={"relapses": relapses},
            indicators={"relapsed": relapses},
            lag={"dose": 0.7},
        )


def _transplants() -> pd.DataFrame:
    table = pd.read_csv(FOLDER / "jasa.csv")
    transplants = table[["id", "wait"]].dropna().rename(columns={"wait": "time"})
    baseline = table.drop(columns="wait")
    return spells.merge(baseline, id="id", stop="futime", event="fustat", indicators={"transplanted": transplants})


@statistic("tmerge-rows")
def _rows() -> dict[str, Any]:
    names = ["id", "start", "stop", "event", "crp", "dose", "relapses", "relapsed"]
    return dict(_merged()[names].fillna(-1.0).items())


@statistic("tmerge-cox")
def _merged_cox() -> dict[str, Any]:
    rows = _merged().dropna(subset="crp")
    y = Surv.from_columns(rows, event="event", time="stop", entry="start")
    model = CoxPH().fit(rows[["age", "crp", "relapses"]], y, groups=rows["id"])
    return {"coef": model.coef_, "standard_error": model.standard_errors_}


@statistic("tmerge-heart")
def _merged_heart() -> dict[str, Any]:
    rows = _transplants()
    y = Surv.from_columns(rows, event="event", time="stop", entry="start")
    exposure = ((rows["stop"] - rows["start"]) * rows["transplanted"]).sum()
    model = CoxPH().fit(rows[["age", "surgery", "transplanted"]], y)
    return {"rows": len(rows), "exposure": exposure, "coef": model.coef_}


@statistic("survsplit-heart")
def _split_heart() -> dict[str, Any]:
    rows = spells.split(_transplants(), [30, 180], id="id", period="period")
    y = Surv.from_columns(rows, event="event", time="stop", entry="start")
    x = rows[["age", "transplanted"]].assign(late=rows["transplanted"] * (rows["period"] == 3))
    found = dict(rows[["id", "start", "stop", "event", "period"]].items())
    return found | {"coef": CoxPH().fit(x, y).coef_}
