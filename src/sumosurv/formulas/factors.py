"""The factors of a formula: columns, expressions and categories.

No text is executed. An expression is parsed, and computed from a list of operators and functions; anything else is an
error. This holds for formulas of users and for those in model files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.interpolate import BSpline
from scipy.linalg import qr

from sumosurv.outcome.checks import rows_in_words
from sumosurv.preprocessing import CategoricalColumn, is_categorical
from sumosurv.preprocessing.columns import UNSEEN, first_non_number, mean_and_width, quantiles, read_numbers

Array = npt.NDArray[np.float64]
Learned = dict[str, dict[str, Any]]  # what functions such as bs have learned, by the text of the call

_LONGEST = 1000  # characters of an expression
LARGEST = 100  # degrees of freedom of a function with several columns
_CONTRASTS = ("treatment", "sum", "helmert", "poly")
_SEVERAL = ("bs", "ns", "poly")  # functions with several columns
_LEARNED = ("center", "scale", *_SEVERAL)  # functions that learn from the training rows
_ELEMENTWISE = ("abs", "cos", "exp", "expm1", "log", "log10", "log1p", "log2", "sin", "sqrt")
_OPERATORS: dict[type, Any] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide, ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod, ast.Pow: np.power, ast.UAdd: np.positive, ast.USub: np.negative, ast.Lt: np.less,
    ast.LtE: np.less_equal, ast.Gt: np.greater, ast.GtE: np.greater_equal, ast.Eq: np.equal, ast.NotEq: np.not_equal,
}  # fmt: skip


def import_formulaic() -> Any:
    """The package formulaic, with the modules that are used."""
    try:
        import formulaic.parser
        import formulaic.transforms
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Formulas need the package formulaic: pip install 'sumosurv[formula]'.") from None
    return formulaic


# ------------------------------------------------------------------ functions that learn from the training rows


def _transform(
    name: str, x: Array, options: Mapping[str, Any], state: dict[str, Any], weight: Array | None = None
) -> Array:
    """The columns (n, k) of a function; an empty state is filled in, from rows with weights, any other is used."""
    if name in ("bs", "ns") and "df" in options:
        n_inner = options["df"] - (options.get("degree", 3) if name == "bs" else 1)
        knots = [] if state else quantiles(x, np.linspace(0.0, 1.0, n_inner + 2), weight)[1:-1].tolist()
        options = {option: value for option, value in options.items() if option != "df"} | {"knots": knots}
    if name == "ns":
        return _natural_spline(x, state, **options)
    if name in ("center", "scale"):
        if not state:
            mean, width = mean_and_width(x, weight)
            total = np.float64(len(x) if weight is None else weight.sum())
            estimate = float(width * np.sqrt(total / (total - 1.0)))  # of the standard deviation, by n - 1
            state |= {"mean": float(mean), "width": estimate if name == "scale" else 1.0}
        return np.asarray((x - state["mean"]) / state["width"])[:, None]
    transforms = import_formulaic().transforms
    if name == "poly":
        return np.asarray(transforms.poly(x, **options, _state=state), dtype=np.float64)
    made = transforms.basis_spline(x, **options, extrapolation="extend", _state=state)  # as R beyond the training rows
    return np.column_stack(list(made.values()))


def _natural_spline(x: Array, state: dict[str, Any], knots: Sequence[float]) -> Array:
    """Natural cubic splines in the basis of R's ``ns``, linear beyond the training rows."""
    if not state:
        inner = np.sort(knots)
        state["knots"] = [float(x.min()), *map(float, inner), float(x.max())]
    ends = np.array([state["knots"][0], state["knots"][-1]])
    padded = np.concatenate([[ends[0]] * 3, state["knots"], [ends[1]] * 3])
    splines = BSpline(padded, np.eye(len(padded) - 4)[:, 1:], 3)
    inside = np.clip(x, *ends)
    values = splines(inside) + (x - inside)[:, None] * splines(inside, nu=1)
    without_curvature = qr(splines(ends, nu=2).T)[0][:, 2:]  # at the ends
    return np.asarray(values @ without_curvature)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


# ------------------------------------------------------------------ expressions


def parse_expression(text: str) -> ast.expr:
    """An expression as a tree; names in backticks, which may be any text, keep them."""
    quoted = re.findall("`[^`]*`", text)
    try:
        if len(text) > _LONGEST:
            raise ValueError
        tree = ast.parse(re.sub("`[^`]*`", "_quoted_", text).strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise ValueError(f"{text[:100]!r} in the formula is not a valid expression.") from None
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "_quoted_"]
    for node in sorted(names, key=lambda node: (node.lineno, node.col_offset)):
        node.id = quoted.pop(0)
    return tree


def call_of(node: ast.AST) -> str | None:
    """The name of the function that is called; ``np.log`` is ``log``."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(value=ast.Name(id="np"), attr=name)):
            return name
    return None


class Factor:
    """A factor of a term: a column, an expression such as ``log(age)``, or categories, ``C(stage, ref='I')``.

    Parameters
    ----------
    node : ast.expr
        From `parse_expression`. ValueError if it has anything but columns, numbers, and the operators and functions
        listed above.

    Attributes
    ----------
    text : str
    columns : list of str
        The columns of the table that it reads.
    label : str
        Its name in tables.
    coded : bool
        Whether ``C()`` turns a column into categories.
    calls : dict
        Functions that learn, with their options, by the text of the call.
    """

    def __init__(self, node: ast.expr) -> None:
        self._node, self.text = node, ast.unparse(node)
        self.columns: list[str] = []
        self.calls: dict[str, tuple[str, dict[str, Any]]] = {}
        self.coded = call_of(node) in ("C", "factor")
        self._reference: Any = None
        self._contrasts = "treatment"
        if self.coded:
            self._read_coding(node)
        else:
            self._compute(node, None, {}, top=True)
        self.columns = list(dict.fromkeys(self.columns))
        self.label = self.columns[0] if self.coded or isinstance(node, ast.Name) else self.text

    def _refuse(self, reason: str) -> NoReturn:
        raise ValueError(f"{self.text!r} in the formula: {reason}.")

    def _read_coding(self, node: ast.AST) -> None:
        match node:
            case ast.Call(args=[ast.Name(id=column)], keywords=[]):
                pass
            case ast.Call(args=[ast.Name(id=column)], keywords=[ast.keyword(arg="ref", value=ast.Constant(value))]):
                self._reference = value
            case ast.Call(args=[ast.Name(id=column), ast.Attribute(ast.Name("contr"), name)]) if name in _CONTRASTS:
                self._contrasts = name
            case _:
                known = ", ".join(f"contr.{name}" for name in _CONTRASTS)
                self._refuse(f"write C(column), C(column, ref='level') or C(column, contrasts) with one of {known}")
        self.columns.append(column.strip("`"))

    # -------------------------------------------------------------- categories

    def learn_levels(self, values: pd.Series) -> CategoricalColumn:
        """The levels of the column, in the order of its categories, or sorted."""
        levels = as_category(values).cat.remove_unused_categories().cat.categories.tolist()
        if len(levels) < 2:
            self._refuse(f"column {self.label!r} has fewer than two levels; leave it out")
        self.coding(levels, reduced=True)
        return CategoricalColumn(self.label, tuple(levels), missing_seen=False)

    def coding(self, levels: Sequence[Any], reduced: bool) -> tuple[Array, list[str]]:
        """One row per level, with 0/1 columns for all levels or with contrasts; and the names of the columns."""
        names: Sequence[Any] = levels
        table = np.eye(len(levels))
        if reduced and self._contrasts != "treatment":
            contrasts = getattr(import_formulaic().transforms.ContrastsRegistry, self._contrasts)()
            coded = contrasts.get_coding_matrix(list(levels), reduced_rank=True, sparse=False)
            table, names = np.asarray(coded, dtype=np.float64), list(coded.columns)
        elif reduced:
            if self._reference is not None and self._reference not in levels:
                self._refuse(f"{self._reference!r} is not a level; levels are {', '.join(map(repr, levels))}")
            reference = 0 if self._reference is None else list(levels).index(self._reference)
            table, names = np.delete(table, reference, axis=1), [*levels[:reference], *levels[reference + 1 :]]
        return table, [f"{self.label}[{name}]" for name in names]

    def codes(self, values: pd.Series, column: CategoricalColumn) -> npt.NDArray[np.int64]:
        """The place of each row's level; ValueError for a level that training rows did not have."""
        codes, _ = column.transform(values)
        unseen = np.flatnonzero(codes == UNSEEN)
        if len(unseen):
            level, known = values.iloc[unseen[:1]].tolist()[0], column.levels
            raise ValueError(
                f"Column {self.label!r} has the level {level!r} in row {unseen[0]}, which no training row has. "
                f"Levels are {', '.join(map(repr, known[:10]))}{', ...' if len(known) > 10 else ''}."
            )
        return codes - 2  # codes of levels begin after those of unseen and missing ones

    # -------------------------------------------------------------- numbers

    def numbers(self, frame: pd.DataFrame, learned: Learned, weight: Array | None = None) -> Array:
        """The columns of numbers of rows without missing values, (n, k).

        Calls that are not in ``learned`` learn from the rows, which may have weights.
        """
        with np.errstate(all="ignore"):
            values = np.asarray(self._compute(self._node, frame, learned, weight, top=True), dtype=np.float64)
        made = values if values.ndim == 2 else np.broadcast_to(values, (len(frame),))[:, None]
        wrong = np.flatnonzero(~np.isfinite(made).all(axis=1))
        if len(wrong):
            self._refuse(f"the value is not finite in rows {rows_in_words(wrong)}")
        return made

    def _compute(
        self,
        node: ast.AST,
        frame: pd.DataFrame | None,
        learned: Learned,
        weight: Array | None = None,
        top: bool = False,
    ) -> Any:
        """The value of a node; ValueError if it is not a column, a number, or a listed operator or function.

        Without a table, columns and calls are collected and have no rows.
        """

        def value(inner: ast.AST) -> Any:
            return self._compute(inner, frame, learned, weight)

        name = call_of(node)
        match node:
            case ast.Name(id=column):
                return self._read(column.strip("`"), frame)
            case ast.Constant(value=int() | float() as number) if _is_number(number):
                return np.float64(number)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.Compare(
                left=ast.Name(id=column), ops=[ast.Eq() | ast.NotEq() as op], comparators=[ast.Constant(str() as word)]
            ):
                return _OPERATORS[type(op)](self._read(column.strip("`"), frame, text=True), word).astype(np.float64)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                return np.asarray(_OPERATORS[type(op)](value(left), value(right)), dtype=np.float64)
            case ast.Call(args=[first], keywords=[]) if name == "I":
                return value(first)
            case ast.Call(args=[first], keywords=[]) if name in _ELEMENTWISE:
                return getattr(np, name)(value(first))
            case ast.Call(args=[first, *more]) if name in _LEARNED and (top or name not in _SEVERAL):
                x, call = value(first), ast.unparse(node)
                if frame is None:
                    self.calls[call] = name, self._read_options(name, more, node.keywords)
                    return np.zeros(0)
                numbers = np.broadcast_to(np.asarray(x, dtype=np.float64), (len(frame),))
                return self.transform(call, numbers, learned, weight)
        self._refuse(
            f"{ast.unparse(node)!r} is not supported here. Use column names (in backticks if they are not valid in "
            "Python), numbers, + - * / // % **, comparisons, and the functions I, C, "
            f"{', '.join([*_ELEMENTWISE, *_LEARNED])}; compute other columns before"
        )

    def _read_options(self, name: str, given: Sequence[ast.expr], named: Sequence[ast.keyword]) -> dict[str, Any]:
        """The options of a function that learns: literals, and in their range, so that no text can ask for much."""
        known = {"bs": ("df", "knots", "degree"), "ns": ("df", "knots"), "poly": ("degree",)}.get(name, ())
        nodes = dict(zip(known, given)) | {str(option.arg): option.value for option in named}
        try:
            options = {option: ast.literal_eval(node) for option, node in nodes.items()}
        except (TypeError, ValueError):
            options = {"": None}
        low = {"df": options.get("degree", 3) if name == "bs" else 1, "degree": 1}
        for option, value in options.items():
            listed = option == "knots" and isinstance(value, (list, tuple)) and all(map(_is_number, value))
            if option not in known or not (listed or (type(value) is int and low[option] <= value <= LARGEST)):
                self._refuse(f"the options of {name} are {', '.join(known) or 'none'}, with numbers in their range")
        if name in ("bs", "ns") and ("df" in options) == ("knots" in options):
            self._refuse("give either df or knots")
        return options

    def transform(self, call: str, x: Array, learned: Learned, weight: Array | None = None) -> Array:
        """The columns of a call, (n, k), or (n,) for functions with one column."""
        name, options = self.calls[call]
        try:
            made = _transform(name, x, options, learned.setdefault(call, {}), weight)
        except ValueError as error:
            self._refuse(str(error).rstrip("."))
        if name in ("bs", "ns"):
            inner = made.shape[1] - (options.get("degree", 3) if name == "bs" else 1)
            steps = np.diff(learned[call]["knots"])
            if (steps < 0).any() or np.count_nonzero(steps) != inner + 1:
                self._refuse("the knots are not distinct values within the range of the column; lower df")
        return made if name in _SEVERAL else made[:, 0]

    def _read(self, name: str, frame: pd.DataFrame | None, text: bool = False) -> Any:
        """A column of the table as numbers, or as it is."""
        if frame is None:
            self.columns.append(name)
            return np.zeros(0, dtype=object if text else np.float64)
        values = frame[name]
        if text or pd.api.types.is_bool_dtype(values.dtype):
            return values.to_numpy(dtype=object if text else np.float64)
        if is_categorical(values):
            self._refuse(f"numbers are needed, and column {name!r} has categories such as {first_non_number(values)!r}")
        return read_numbers(values)


def as_category(values: pd.Series) -> pd.Series:
    """A column as categories; whole numbers as integers."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        return values
    whole = pd.api.types.is_float_dtype(values.dtype) and bool((values.dropna() % 1 == 0).all())
    return (values.astype("Int64") if whole else values).astype("category")
