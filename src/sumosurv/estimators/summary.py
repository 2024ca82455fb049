"""Summaries of regressions: coefficients, tests and measures of fit, as tables and as text."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.special import erfc, ndtri
from scipy.stats import chi2

from sumosurv.model_files import as_number, tensor_of

__all__ = [
    "ModelSummary",
    "coefficient_table",
    "compare_nested",
    "restored_covariance",
    "restored_numbers",
    "summarise",
]

Array = npt.NDArray[np.float64]

_WIDTH = 80
_REQUIRED = ("rows", "rows_dropped", "events", "parameters", "log_likelihood", "null_log_likelihood")
_TESTS = {"likelihood_ratio": "likelihood ratio", "wald": "Wald", "score": "score", "robust_score": "robust score"}


@dataclass(frozen=True, repr=False)
class ModelSummary:
    """The results of a regression: printed as text, or as HTML in a notebook.

    If causes compete, all tables have a first index level ``cause``.

    Attributes
    ----------
    title : str
        The model.
    level : float
        Confidence level of the limits.
    coefficients : DataFrame
        One row per coefficient: estimate, ratio with confidence limits, standard error, z and two-sided p-value.
    terms : DataFrame
        One row per column of X: the Wald test of all its coefficients, with statistic, degrees of freedom and p-value.
    tests : DataFrame
        Tests of the hypothesis that all coefficients are zero: likelihood ratio, Wald and score test, and the robust
        score test if standard errors are robust. Empty with a ridge or elastic-net penalty; with Firth's penalty the
        likelihood ratio is that of the penalised likelihood.
    fit : Series
        Rows used and dropped, events, number of parameters, log-likelihood with and without covariates, AIC, BIC (with
        the number of events as the sample size), concordance and its standard error. Nan if not defined.
    robust : bool
        Whether standard errors come from the sandwich. The likelihood ratio and score tests then still assume
        independent rows with known weights; the Wald and robust score tests do not.
    causes : sequence of ModelSummary
        The summary of each cause, if causes compete.

    Examples
    --------
    >>> from sumosurv import CoxPH, datasets
    >>> X, y = datasets.load("gbsg2")
    >>> print(CoxPH().fit(X[["age", "positive_nodes"]], y).summary())
    Cox regression, ties by Efron's method
    686 rows, 299 events
    <BLANKLINE>
                       coef  hazard ratio      95% limits      SE      z        p
    age             -0.0047         0.995  0.984 to 1.007  0.0058  -0.80   0.4240
    positive_nodes   0.0587         1.060  1.047 to 1.075  0.0068   8.69  <0.0001
    <BLANKLINE>
    likelihood ratio test: 50.67 on 2 df, p <0.0001
    Wald test: 75.99 on 2 df, p <0.0001
    score test: 79.06 on 2 df, p <0.0001
    concordance 0.6501 (SE 0.0161)
    log-likelihood -1762.77, AIC 3529.53, BIC 3536.94
    """

    title: str
    level: float
    coefficients: pd.DataFrame
    terms: pd.DataFrame
    tests: pd.DataFrame
    fit: pd.Series
    robust: bool = False
    causes: Sequence[ModelSummary] = ()

    @classmethod
    def by_cause(cls, title: str, parts: Sequence[ModelSummary]) -> ModelSummary:
        """Join the summaries of the models of causes 1, ..., K."""
        keys = range(1, len(parts) + 1)
        names = ("coefficients", "terms", "tests", "fit")
        tables = {n: pd.concat([getattr(part, n) for part in parts], keys=keys, names=["cause"]) for n in names}
        return cls(title, parts[0].level, **tables, robust=parts[0].robust, causes=parts)

    def to_frame(self) -> pd.DataFrame:
        """The coefficients, as a new DataFrame."""
        return self.coefficients.copy()

    def to_latex(self) -> str:
        """The coefficients as a LaTeX table, for the package booktabs."""
        cells = [_cells(part.coefficients) for _, part in self._parts()]
        head = " & ".join(["", *map(_escape_latex, self._heads())]) + r" \\"
        lines = [r"\begin{tabular}{l" + "r" * (head.count("&")) + "}", r"\toprule", head]
        for (cause, _), rows in zip(self._parts(), cells):
            lines += [r"\midrule"] + (
                [rf"\multicolumn{{{1 + head.count('&')}}}{{l}}{{cause {cause}}} \\"] if cause else []
            )
            lines += [" & ".join(map(_escape_latex, row)) + r" \\" for row in rows]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])

    def __repr__(self) -> str:
        blocks = [textwrap.fill(self.title, _WIDTH)]
        for cause, part in self._parts():
            blocks += ["", f"Cause {cause}"] if cause else []
            blocks += [part._counts(), "", *_aligned(self._heads(), _cells(part.coefficients)), "", *part._measures()]
        return "\n".join(blocks)

    def _repr_html_(self) -> str:
        blocks = [f"<p><b>{html.escape(self.title)}</b></p>"]
        heads = self._heads()
        for cause, part in self._parts():
            blocks += [f"<p>Cause {cause}</p>"] if cause else []
            names, *cells = zip(*_cells(part.coefficients), strict=True)
            table = pd.DataFrame(dict(zip(heads, cells, strict=True)), index=names)
            blocks += [
                f"<p>{part._counts()}</p>",
                table.to_html(border=0),
                "<p>" + "<br>".join(map(html.escape, part._measures())) + "</p>",
            ]
        return "\n".join(blocks)

    def _parts(self) -> list[tuple[int | None, ModelSummary]]:
        """The summary of each cause, or (None, this one)."""
        return list(enumerate(self.causes, start=1)) or [(None, self)]

    def _heads(self) -> list[str]:
        ratio = str(self.coefficients.columns[1]).replace("_", " ")
        return ["coef", ratio, f"{100 * self.level:g}% limits", "robust SE" if self.robust else "SE", "z", "p"]

    def _counts(self) -> str:
        dropped = self.fit["rows_dropped"]
        more = f" ({dropped:.0f} more dropped because of missing values)" if dropped else ""
        events = self.fit["events"]
        return f"{self.fit['rows']:.0f} rows{more}, {events:.0f} event{'' if events == 1 else 's'}"

    def _measures(self) -> list[str]:
        """Tests and measures of fit, one per line."""
        several = self.terms[self.terms["df"] > 1]
        lines = [f"Wald test of {_shortened(str(term), 30)}: {_test(row)}" for term, row in several.iterrows()]
        lines += [f"{_TESTS[str(name)]} test: {_test(row)}" for name, row in self.tests.iterrows()]
        fit = self.fit
        if np.isfinite(fit["concordance"]):
            lines.append(f"concordance {fit['concordance']:.4f} (SE {fit['concordance_standard_error']:.4f})")
        criteria = f", AIC {fit['aic']:.2f}, BIC {fit['bic']:.2f}" if np.isfinite(fit["aic"]) else ""
        return [*lines, f"log-likelihood {fit['log_likelihood']:.2f}{criteria}"]


def summarise(
    title: str,
    names: Sequence[str],
    coef: Array,
    standard_errors: Array,
    covariance: Array | None,
    sources: Sequence[str],
    numbers: Mapping[str, float],
    *,
    level: float,
    ratio: str = "hazard_ratio",
    robust: bool = False,
    penalised: bool = False,
    inference: bool = True,
) -> ModelSummary:
    """Make a summary of one regression.

    Parameters
    ----------
    title : str
    names : sequence of str
        The coefficients, and after them other parameters, which have no ratios and are not zero in any hypothesis.
    coef, standard_errors : array
        One value per name.
    covariance : array, optional
        Of the coefficients, and perhaps of the other parameters; None if it is not known, as with a ridge penalty.
    sources : sequence of str
        The column of X behind each coefficient.
    numbers : mapping
        ``rows``, ``rows_dropped``, ``events``, ``parameters``, ``log_likelihood``, ``null_log_likelihood``; and, if
        they are known, the statistics ``likelihood_ratio``, ``wald``, ``score`` and ``robust_score`` of the tests that
        all coefficients are zero, ``concordance`` and ``concordance_standard_error``.
    level : float
        Confidence level of the limits.
    ratio : str
        The name of the exponentials of the coefficients.
    robust : bool
        Whether the covariance is the sandwich.
    penalised : bool
        Whether the log-likelihood is not at its maximum; there are no AIC and BIC.
    inference : bool
        Whether standard errors are known. If not, all coefficients are shown.
    """
    fit = {name: numbers[name] for name in _REQUIRED}
    twice, df = -2.0 * fit["log_likelihood"], fit["parameters"]
    fit["aic"] = np.nan if penalised else twice + 2.0 * df
    fit["bic"] = np.nan if penalised else twice + df * np.log(max(fit["events"], 1.0))
    fit |= {name: numbers.get(name, np.nan) for name in ("concordance", "concordance_standard_error")}
    known = [name for name in _TESTS if name in numbers]
    n_others = int((~np.isnan(standard_errors[len(sources) :])).sum())
    tests = _test_table([numbers[name] for name in known], [int(df) - n_others] * len(known), known, "test")
    table = coefficient_table(coef, standard_errors, level, pd.Index(names, name="term"), ratio, inference=inference)
    table.iloc[len(sources) :, 1:4] = np.nan
    own = table["coef"].to_numpy()[: len(sources)]
    terms = _wald_by_term(own, covariance, sources) if covariance is not None else _test_table([], [], [], "term")
    return ModelSummary(title, level, table, terms, tests, pd.Series(fit, name="value"), robust)


def coefficient_table(
    coef: Array,
    standard_errors: Array,
    level: float,
    index: pd.Index,
    ratio: str = "hazard_ratio",
    *,
    inference: bool = True,
) -> pd.DataFrame:
    """Coefficients, ratios with confidence limits, standard errors, z and two-sided p-values, one row per term.

    All nan for a column that is left out, whose standard error is nan. Without ``inference``, no standard errors are
    known, and all coefficients are shown. ``ratio`` names the exponentials.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be a probability between 0 and 1, such as 0.95; got {level!r}.")
    coef = np.where(np.isnan(standard_errors), np.nan, coef) if inference else coef
    half = float(ndtri(0.5 + 0.5 * level)) * standard_errors
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        z = coef / standard_errors
        ratios = np.exp(np.stack([coef, coef - half, coef + half]))
    columns = {
        "coef": coef,
        ratio: ratios[0],
        f"{ratio}_lower": ratios[1],
        f"{ratio}_upper": ratios[2],
        "standard_error": standard_errors,
        "z": z,
        "p": erfc(np.abs(z) / np.sqrt(2.0)),
    }
    return pd.DataFrame(columns, index=index)


def compare_nested(small: Any, large: Any) -> pd.DataFrame:
    """Likelihood ratio test of two nested models.

    Parameters
    ----------
    small, large : fitted models
        Regressions with a ``summary()``, of one type and with the same settings, fitted to the same rows. The test is
        valid only if the smaller model is a special case of the larger one, which is not checked.

    Returns
    -------
    DataFrame
        Rows ``"small"`` and ``"large"``: log-likelihood and number of parameters; and in the second row twice the
        difference of the log-likelihoods, its degrees of freedom and the p-value.

    Examples
    --------
    >>> from sumosurv import CoxPH, compare_nested, datasets
    >>> X, y = datasets.simulate("weibull", 300, random_state=0)
    >>> wide = np.column_stack([X, np.sin(20.0 * X)])
    >>> compare_nested(CoxPH().fit(X, y), CoxPH().fit(wide, y)).columns.tolist()
    ['log_likelihood', 'parameters', 'statistic', 'df', 'p']
    """
    for model in (small, large):
        if not hasattr(model, "summary"):
            raise TypeError(f"compare_nested compares regressions with a summary(); got {type(model).__name__}.")
    first, second = small.summary(), large.summary()
    for summary in (first, second):
        if summary.causes:
            raise ValueError("compare_nested compares models of one cause; compare the estimators_ of each cause.")
        if summary.robust:
            raise ValueError("The likelihood ratio test is invalid with robust standard errors; use summary().terms.")
        if np.isnan(summary.fit["aic"]):
            raise ValueError("The likelihood ratio test is invalid for penalised models; fit with alpha=0.")
    same = ["rows", "events", "null_log_likelihood"]
    if first.title != second.title or not np.allclose(first.fit[same], second.fit[same], rtol=1e-9):
        raise ValueError(
            "The models differ in more than their columns: "
            + "; ".join(
                f"{s.title}, {s.fit['rows']:.0f} rows, {s.fit['events']:.0f} events, log-likelihood without covariates "
                f"{s.fit['null_log_likelihood']:.6g}"
                for s in (first, second)
            )
            + ". Fit both to the same complete rows with the same settings."
        )
    table = pd.DataFrame([first.fit, second.fit], index=["small", "large"])[["log_likelihood", "parameters"]]
    gain, df = np.diff(table["log_likelihood"])[0], int(np.diff(table["parameters"])[0])
    if df < 1 or gain < -1e-8 * abs(table["log_likelihood"].iloc[0]):
        raise ValueError(
            f"The second model must have more parameters and a likelihood that is not lower; got {df} more parameters "
            f"and a log-likelihood that is {gain:.6g} higher. Pass the smaller model first."
        )
    test = _test_table([np.nan, 2.0 * max(gain, 0.0)], [0, df], ["small", "large"], None)
    return pd.concat([table.astype({"parameters": int}), test], axis=1)


def _wald_by_term(coef: Array, covariance: Array, sources: Sequence[str]) -> pd.DataFrame:
    """Joint tests of the coefficients of each column of X; nan if one of them has a standard error of zero or inf."""
    statistic, df, names = [], [], list(dict.fromkeys(sources))
    kept = ~np.isnan(coef)
    for name in names:
        rows = np.flatnonzero(kept & (np.array(sources, dtype=object) == name))
        own, part = coef[rows], covariance[np.ix_(rows, rows)]
        finite = len(rows) > 0 and bool(np.isfinite(part).all())
        finite = finite and bool((np.diag(part) > 0).all())  # variances of columns with huge values underflow
        statistic.append(float(own @ np.linalg.solve(part, own)) if finite else np.nan)
        df.append(len(rows))
    return _test_table(statistic, df, names, "term")


def _test_table(statistic: Sequence[float], df: Sequence[int], index: Sequence[str], name: str | None) -> pd.DataFrame:
    p = chi2.sf(np.asarray(statistic, dtype=np.float64), np.maximum(np.asarray(df, dtype=np.int64), 1))
    table = {"statistic": np.asarray(statistic, dtype=np.float64), "df": np.asarray(df, dtype=np.int64), "p": p}
    return pd.DataFrame(table, index=pd.Index(list(index), name=name, dtype=object))


# ------------------------------------------------------------------ model files


def restored_numbers(stored: Any) -> dict[str, float]:
    """The numbers of a fit, read from a model file and checked."""
    known = {*_REQUIRED, *_TESTS, "concordance", "concordance_standard_error"}
    if not isinstance(stored, dict) or not set(_REQUIRED) <= set(stored) <= known:
        raise ValueError("the numbers of a fit are incomplete or unknown")
    return {name: as_number(value, name) for name, value in stored.items()}


def restored_covariance(tensors: Mapping[str, torch.Tensor], name: str, p: int) -> Array:
    """A covariance of p coefficients, read from a model file as a vector; its entries may be nan or infinite."""
    return tensor_of(tensors, name, p * p, may_be_nan=True).numpy().reshape(p, p)


# ------------------------------------------------------------------ text


def _number(value: float, decimals: int = 3) -> str:
    if np.isnan(value):
        return "-"
    return f"{value:.{decimals}f}" if value == 0 or 0.001 <= abs(value) < 1000 else f"{value:.1e}"


def _p_value(p: float) -> str:
    return "-" if np.isnan(p) else "<0.0001" if p < 0.0001 else f"{p:.4f}"


def _test(row: pd.Series) -> str:
    p = _p_value(row["p"])
    return f"{row['statistic']:.2f} on {row['df']:.0f} df, p {p if p.startswith('<') else '= ' + p}"


def _cells(table: pd.DataFrame) -> list[list[str]]:
    """The coefficients as text: name, estimate, ratio, limits, standard error, z, p."""
    rows = []
    for name, values in zip(table.index, table.to_numpy()):
        coef, ratio, lower, upper, error, z, p = values
        limits = f"{_number(lower)} to {_number(upper)}" if not np.isnan(lower) else "-"
        middle = [_number(coef, 4), _number(ratio), limits, _number(error, 4)]
        rows.append([str(name), *middle, "-" if np.isnan(z) else f"{z:.2f}", _p_value(p)])
    return rows


def _aligned(heads: list[str], cells: list[list[str]]) -> list[str]:
    """The coefficients as lines of at most 80 characters: "hazard ratio" becomes HR, then names are shortened."""
    rows = [["", *heads], *cells]
    for head in (rows[0][2], "".join(word[0] for word in rows[0][2].upper().split())):
        rows[0][2] = head
        widths = [max(len(row[j]) for row in rows) for j in range(7)]
        if sum(widths) + 2 * 6 <= _WIDTH:
            break
    widths[0] = min(widths[0], _WIDTH - sum(widths[1:]) - 2 * 6)
    lines = []
    for row in rows:
        numbers = (text.rjust(width) for text, width in zip(row[1:], widths[1:]))
        lines.append("  ".join([_shortened(row[0], widths[0]).ljust(widths[0]), *numbers]).rstrip())
    return lines


def _shortened(text: str, width: int) -> str:
    """The text with its middle left out: levels and numbers of columns are at the end."""
    if len(text) <= width:
        return text
    end = max(width - 1, 2) // 2
    return text[: max(width - 1 - end, 1)] + "…" + text[-end:]


def _escape_latex(text: str) -> str:
    special = {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        "…": r"\dots{}",
    }
    return "".join(special.get(c, "\\" + c if c in "&%$#_{}" else c) for c in text)
