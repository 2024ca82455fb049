"""The right-hand side of a formula, and the columns of numbers that it makes of a table."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.formulas.factors import (
    LARGEST,
    Factor,
    Learned,
    as_category,
    call_of,
    import_formulaic,
    parse_expression,
)
from sumosurv.model_files import as_list, as_number, as_text
from sumosurv.outcome.checks import names_in_words
from sumosurv.preprocessing import CategoricalColumn, is_categorical
from sumosurv.preprocessing.columns import column_from_state, type_error

Array = npt.NDArray[np.float64]

_SPECIAL = ("strata", "cluster", "offset")


@dataclass
class Formula:
    """The right-hand side of a formula, and what was learned from the training rows.

    A category has a column for each level but the reference if the term without it is in the formula too, and for
    each level if not, as in R. There is no column for the intercept.

    Parameters
    ----------
    terms : list of tuple of str
        The factors of each term.
    offsets : list of str
        Expressions that are added with the coefficient one.
    learned : dict
        What functions such as ``bs`` have learned, by the text of the call.
    levels : dict
        The levels of categories, by the text of the factor.
    booleans : list of str
        The columns that held True and False in the training rows.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [50.0, 60.0, 70.0], "stage": ["I", "II", "III"]})
    >>> formula = Formula.parse("age + C(stage, ref='II')", frame.columns).learn(frame)
    >>> formula.names, formula.matrix(frame).tolist()
    (['age', 'stage[I]', 'stage[III]'], [[50.0, 1.0, 0.0], [60.0, 0.0, 0.0], [70.0, 0.0, 1.0]])
    """

    terms: list[tuple[str, ...]]
    offsets: list[str] = field(default_factory=list)
    learned: Learned = field(default_factory=dict)
    levels: dict[str, CategoricalColumn] = field(default_factory=dict)
    booleans: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        texts = dict.fromkeys([*(text for term in self.terms for text in term), *self.offsets])
        self.factors = {text: Factor(parse_expression(text)) for text in texts}
        self.columns = list(dict.fromkeys(name for factor in self.factors.values() for name in factor.columns))
        if not self.terms:
            raise ValueError(
                "The formula has no terms with coefficients; name at least one column, or use KaplanMeier()."
            )

    @classmethod
    def parse(cls, text: str, columns: Sequence[Any], apart: Sequence[Any] = ()) -> Self:
        """Read the right-hand side; ``.`` stands for all columns but those that are set apart."""
        terms, special = read_terms(text, [name for name in columns if name not in apart])
        if special["strata"] or special["cluster"]:
            raise ValueError("strata() and cluster() are for from_formula; here, set strata= and pass groups= to fit.")
        made = cls(terms, special["offset"])
        check_names(made.columns, columns)
        return made

    def __str__(self) -> str:
        return " + ".join([*(":".join(term) for term in self.terms), *(f"offset({text})" for text in self.offsets)])

    def categorised(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The table with columns that the formula reads as categories alone turned into categories."""
        coded = {name for factor in self.factors.values() if factor.coded for name in factor.columns}
        plain = {name for factor in self.factors.values() if not factor.coded for name in factor.columns}
        return frame.assign(**{name: as_category(frame[name]) for name in sorted(coded - plain)})

    def learn(self, frame: pd.DataFrame, weight: Array | None = None) -> Self:
        """Learn levels, knots and means from the training rows; each factor from the rows without missing values."""
        self.booleans = [name for name in self.columns if pd.api.types.is_bool_dtype(frame[name].dtype)]
        for text, factor in self.factors.items():
            present = frame[factor.columns].notna().all(axis=1).to_numpy()
            rows = frame[present]
            if not len(rows):
                raise ValueError(f"{text!r} in the formula is missing in all rows.")
            plain = factor.columns == [text.strip("`")]
            if text not in self.offsets and (factor.coded or (plain and is_categorical(rows[factor.label]))):
                self.levels[text] = factor.learn_levels(rows[factor.label])
            else:
                factor.numbers(rows, self.learned, None if weight is None else weight[present])
        return self

    @property
    def names(self) -> list[str]:
        """Names of the columns of the matrix: ``stage[II]`` for a level, ``bs(age, df=4)[1]`` for a spline."""
        return [name for term in self.terms for name in self._term_names(term)]

    @property
    def sources(self) -> list[str]:
        """The term of each column of the matrix."""
        labels = [":".join(self.factors[text].label for text in term) for term in self.terms]
        return [label for label, term in zip(labels, self.terms) for _ in self._term_names(term)]

    def _term_names(self, term: tuple[str, ...]) -> list[str]:
        made = [""]
        for text in term:
            factor = self.factors[text]
            if text in self.levels:
                own = factor.coding(self.levels[text].levels, self._reduced(term, text))[1]
            else:
                k = self._width(factor)
                own = [factor.label] if k == 1 else [f"{factor.label}[{j}]" for j in range(1, k + 1)]
            made = [f"{before}:{name}" if before else name for name in own for before in made]
        return made

    def _width(self, factor: Factor) -> int:
        return factor.transform(factor.text, np.zeros(1), self.learned).size if factor.text in factor.calls else 1

    def _reduced(self, term: tuple[str, ...], text: str) -> bool:
        """Whether a category has contrasts in this term, and not a column for each level."""
        rest = set(term) - {text}
        return not rest or rest in [set(other) for other in self.terms]

    def matrix(self, frame: pd.DataFrame) -> Array:
        """The columns of numbers, (n, p); nan where a column of the table is missing."""
        made = []
        for term in self.terms:
            product = np.ones((len(frame), 1))
            for text in term:
                own = self._values(self.factors[text], frame, self._reduced(term, text))
                product = (own[:, :, None] * product[:, None, :]).reshape(len(frame), -1)
            made.append(product)
        return np.hstack(made)

    def offset(self, frame: pd.DataFrame) -> Array:
        """The sum of the offsets, (n,)."""
        parts = [self._values(self.factors[text], frame, True)[:, 0] for text in self.offsets]
        return np.asarray(np.sum([np.zeros(len(frame)), *parts], axis=0))

    def _values(self, factor: Factor, frame: pd.DataFrame, reduced: bool) -> Array:
        """The columns of a factor, nan where it is missing."""
        present = frame[factor.columns].notna().all(axis=1).to_numpy()
        rows = frame if present.all() else frame[present]
        if factor.text in self.levels:
            column = self.levels[factor.text]
            own = factor.coding(column.levels, reduced)[0][factor.codes(rows[factor.label], column)]
        else:
            for name in factor.columns:
                if name not in self.booleans and pd.api.types.is_bool_dtype(rows[name].dtype):
                    raise type_error(name, str(rows[name].iloc[0]))
            own = factor.numbers(rows, self.learned)
        made = np.full((len(frame), own.shape[1]), np.nan)
        made[present] = own
        return made

    # -------------------------------------------------------------- model files

    def state(self) -> dict[str, Any]:
        """Everything learned, as plain JSON values."""
        return {
            "terms": [list(term) for term in self.terms],
            "offsets": self.offsets,
            "learned": self.learned,
            "levels": {text: {"kind": "categorical", **asdict(column)} for text, column in self.levels.items()},
            "booleans": self.booleans,
        }

    @classmethod
    def from_state(cls, state: Any, columns: Sequence[str]) -> Self:
        """The inverse of `state`; expressions are checked as those of users are, and numbers by using them."""
        terms = [tuple(as_text(text, "a factor") for text in as_list(term, "a term")) for term in state["terms"]]
        made = cls(terms, [as_text(text, "an offset") for text in as_list(state["offsets"], "offsets")])
        check_names(made.columns, columns)
        made.booleans = [as_text(name, "a column's name") for name in as_list(state["booleans"], "booleans")]
        for text, numbers in state["learned"].items():
            made.learned[text] = {name: _numbers_from_state(value) for name, value in numbers.items()}
        for text, stored in state["levels"].items():
            column = column_from_state(stored)
            if not isinstance(column, CategoricalColumn) or len(column.levels) < 2:
                raise ValueError(f"{text!r} has no levels")
            made.levels[text] = column
        coded = {text for text, factor in made.factors.items() if factor.coded}
        named = {text for text, factor in made.factors.items() if factor.label == text.strip("`")} - set(made.offsets)
        calls = {call for factor in made.factors.values() for call in factor.calls}
        if set(made.learned) != calls or not coded <= set(made.levels) <= coded | named or () in terms:
            raise ValueError("the formula and what was learned do not belong together")
        for factor in made.factors.values():
            for call in factor.calls:
                if not np.isfinite(factor.transform(call, np.zeros(1), made.learned)).all():
                    raise ValueError(f"what {call!r} has learned is not valid")
        return made


def _numbers_from_state(value: Any) -> Any:
    """A number, numbers in order, or numbers by their place (of JSON, where the places are text)."""
    if isinstance(value, dict):
        return {int(place): as_number(number, "a number of a formula") for place, number in value.items()}
    if not isinstance(value, list):
        return as_number(value, "a number of a formula")
    numbers = [as_number(number, "a knot") for number in value]
    if len(numbers) > 2 * LARGEST or (np.diff(numbers) < 0).any():
        raise ValueError("the knots of a formula are not in order")
    return numbers


def check_names(wanted: Sequence[str], columns: Sequence[Any]) -> None:
    """Raise a ValueError if a formula names a column that is not there."""
    unknown = [name for name in wanted if name not in columns]
    if unknown:
        raise ValueError(f"The formula names {unknown[0]!r}; the columns are {names_in_words(columns)}.")


def read_terms(text: str, columns: Sequence[Any]) -> tuple[list[tuple[str, ...]], dict[str, list[str]]]:
    """The terms with coefficients, in the order of their degree, and the arguments of strata, cluster and offset."""
    parser = import_formulaic().parser.DefaultFormulaParser(feature_flags=set())
    special: dict[str, list[str]] = {}
    for _ in range(2):  # "." is without the columns of strata, clusters and offsets, which the first pass finds
        apart = {name for own in special.values() for part in own for name in Factor(parse_expression(part)).columns}
        context = {"__formulaic_variables_available__": [name for name in columns if name not in apart]}
        try:
            found = list(parser.get_terms(text, context=context))
        except Exception as error:  # of several kinds, with marks for terminals in their text
            reason = re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]", "", str(error)).strip().split("\n")[0]
            raise ValueError(f"The formula {text.strip()!r} cannot be read: {reason}") from None
        special, terms = {name: [] for name in _SPECIAL}, []
        for term in sorted(found, key=lambda term: len(term.factors)):
            nodes = [parse_expression(_factor_text(factor)) for factor in term.factors if factor.expr != "1"]
            name = call_of(nodes[0]) if len(nodes) == 1 else None
            if name in _SPECIAL and isinstance(nodes[0], ast.Call):
                special[name] += [ast.unparse(part) for part in nodes[0].args]
            elif nodes:
                terms.append(tuple(ast.unparse(node) for node in nodes))
    return terms, special


def _factor_text(factor: Any) -> str:
    """The text of a factor as it can be read again: odd names in backticks, and ``{a / b}`` as ``I(a / b)``."""
    text = str(factor.expr)
    if factor.eval_method.name == "LOOKUP":
        return text if text.isidentifier() and not keyword.iskeyword(text) else f"`{text}`"
    return text if isinstance(parse_expression(text), ast.Call) else f"I({text})"
