"""What a formula with an outcome, such as ``Surv(time, event) ~ age``, takes from a table."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sumosurv.formulas.factors import Factor, parse_expression
from sumosurv.formulas.formula import Formula, check_names, read_terms
from sumosurv.outcome import Surv
from sumosurv.outcome.checks import names_in_words
from sumosurv.outcome.surv import as_pandas


@dataclass(frozen=True)
class ModelFrame:
    """What a formula with an outcome takes from a table: covariates and outcome, and the columns with other roles.

    ``formula`` has the terms with coefficients and the offsets, written out; ``plain`` is true if they are columns as
    they are.
    """

    X: pd.DataFrame
    y: Any
    groups: pd.Series | None
    strata: list[str]
    formula: str
    plain: bool


def model_frame(formula: str, data: Any, apart: Sequence[str] = ()) -> ModelFrame:
    """Read a formula such as ``"Surv(time, event) ~ age + C(stage) + strata(site)"`` against a table.

    Columns that are set apart, such as that of the weights, are not among those that ``.`` stands for.

    Examples
    --------
    >>> data = pd.DataFrame({"time": [1.0, 2.0], "event": [1, 0], "age": [50.0, 60.0], "sex": ["f", "m"]})
    >>> model_frame("Surv(time, event) ~ .", data).formula
    'age + sex'
    """
    data = as_pandas(data)
    if not isinstance(data, pd.DataFrame):
        raise TypeError(f"A formula needs a DataFrame with named columns; got {type(data).__name__}.")
    for name in apart:
        if name not in data.columns:
            raise ValueError(f"There is no column {name!r}; the columns are {names_in_words(data.columns)}.")
    left, *right = formula.split("~")
    if len(right) != 1:
        raise ValueError(f"A formula must have the form 'Surv(time, event) ~ terms'; got {formula!r}.")
    y, used = _read_outcome(parse_expression(left), data)
    terms, special = read_terms(right[0], [name for name in data.columns if name not in {*used, *apart}])
    made = Formula(terms, special["offset"])
    strata, cluster = ([text.strip("`") for text in special[name]] for name in ("strata", "cluster"))
    check_names([*made.columns, *strata, *cluster], data.columns)
    if len(cluster) > 1:
        raise ValueError("A formula can have at most one cluster(), with one column.")
    X = data[[name for name in data.columns if name in {*made.columns, *strata}]]
    plain = not made.offsets and all(len(term) == 1 and term[0].strip("`") in data.columns for term in terms)
    return ModelFrame(X, y, data[cluster[0]] if cluster else None, strata, str(made), plain)


def _read_outcome(node: ast.expr, data: pd.DataFrame) -> tuple[Any, list[str]]:
    """The outcome of ``Surv(...)``, and the columns that it is made of."""
    kind = "right"
    match node:
        case ast.Call(func=ast.Name("Surv"), args=parts, keywords=[ast.keyword("type", ast.Constant(str() as kind))]):
            pass
        case ast.Call(func=ast.Name("Surv"), args=parts, keywords=[]):
            pass
        case _:
            parts = []
    if len(parts) not in (2, 3) or kind not in ("right", "counting", "interval", "interval2"):
        raise ValueError(
            "The left-hand side of a formula must be Surv(time, event), Surv(start, stop, event) or "
            f"Surv(lower, upper, type='interval2'); got {ast.unparse(node)!r}."
        )
    factors = [Factor(part) for part in parts]
    used = [name for factor in factors for name in factor.columns]
    check_names(used, data.columns)
    names = [factor.label for factor in factors]
    first, second, *third = (_read_part(factor, data) for factor in factors)
    if kind.startswith("interval"):  # both as R's interval2: unbounded where a limit is missing
        low, high = (pd.Series(np.asarray(part, dtype=np.float64)) for part in (first, second))
        y = Surv.interval(low.fillna(0.0), high.fillna(np.inf), *third, lower_name=names[0], upper_name=names[1])
    elif not third:
        y = Surv.from_arrays(second, first, event_name=names[1], time_name=names[0])
    else:
        y = Surv.from_arrays(third[0], second, first, event_name=names[2], time_name=names[1], entry_name=names[0])
    return y, used


def _read_part(factor: Factor, data: pd.DataFrame) -> Any:
    """A column as it is, or the values of an expression, missing where one of its columns is."""
    if factor.label in data:
        return data[factor.label]
    present = data[factor.columns].notna().all(axis=1)
    made = pd.Series(np.nan, index=data.index)
    made[present] = factor.numbers(data[present], {})[:, 0]
    return made
