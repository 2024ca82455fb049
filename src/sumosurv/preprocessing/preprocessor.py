"""DataFrame in, tensors out; what is learned of the columns comes from one block of rows or from many."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy import sparse
from sklearn.utils.extmath import randomized_svd

from sumosurv.model_files import as_flag, as_list, as_whole, check_values
from sumosurv.networks.encoders import Inputs
from sumosurv.outcome.checks import names_in_words, without_mask
from sumosurv.preprocessing.columns import (
    AT_ONCE,
    UNSEEN,
    CategoricalColumn,
    Column,
    Floats,
    NumericColumn,
    NumericScaling,
    categorical_places,
    column_from_state,
    is_categorical,
    learn_categories,
    learn_numbers,
    learn_present,
    normal_scores,
    numeric_parts,
)
from sumosurv.preprocessing.levels import LevelNotes, check_text
from sumosurv.preprocessing.reader import ColumnReader
from sumosurv.sources import LevelSketch, Moments, QuantileSketch

_SHOWN = 12  # columns named in a message
_LARGE_SVD = 1000  # rows and columns above which leading components alone are computed


class Preprocessor:
    """Learns from training rows how to turn a table of covariates into network inputs.

    Numeric columns are standardised, or turned into normal scores by their quantiles ("quantile");
    missing values become the centre, with an indicator column where the training rows had any. Columns
    of dtype category, object, string or bool become integer codes with a place for unseen levels and one
    for missing values. Arrays of more than two dimensions (images, sequences) pass as they are.

    Parameters
    ----------
    scaling : {"standard", "quantile"}
    one_hot : bool, default False
        Give categories as 0/1 columns among the numbers, for encoders that read one tensor.
    max_components : int, optional
        Of a wide table (more numbers than this, and more than a quarter of the training rows) networks read so many
        principal components in place of the numbers. The first has standard deviation one, and the others keep their
        relative sizes. None: never.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [50.0, 60.0, np.nan], "sex": ["f", "m", "f"]})
    >>> inputs = Preprocessor().fit(frame).transform(frame)
    >>> inputs.numeric.shape, inputs.codes[:, 0].tolist()
    (torch.Size([3, 2]), [2, 3, 2])
    """

    def __init__(
        self, scaling: NumericScaling = "standard", *, one_hot: bool = False, max_components: int | None = None
    ) -> None:
        self.scaling: NumericScaling = scaling
        self.one_hot = one_hot
        self.max_components = max_components
        self.projection: npt.NDArray[np.float64] | None = None  # numbers to components
        self.columns: list[NumericColumn | CategoricalColumn] = []
        self.named = False  # fitted on a DataFrame
        self.row_shape: tuple[int, ...] | None = None  # of pass-through arrays

    def fit(self, X: Any, weight: npt.NDArray[np.float64] | None = None) -> Preprocessor:
        """Learn from the training rows, which may have weights."""
        if _is_tensor_like(X):
            self.row_shape = tuple(int(size) for size in X.shape[1:])
            return self
        if sparse.issparse(X):
            self.columns = _learn_sparse(X, weight, self.scaling)
            return self
        summary = TableSummary()
        summary.add(_as_frame(X), weight)
        return self.learn(summary, X, named=isinstance(X, pd.DataFrame))

    def learn(self, summary: TableSummary, sample: Any, *, named: bool) -> Preprocessor:
        """Learn from a summary of the training rows, whose columns have names or are those of an array.

        Principal components are those of ``sample``: the rows, or some of them.
        """
        self.columns, self.named = summary.learned(self.scaling), named
        if self.max_components is not None and self.n_numeric > max(self.max_components, summary.n_rows / 4):
            self.projection = _principal_components(self.table(sample)[0], self.max_components)
        return self

    def transform(self, X: Any, device: torch.device | None = None) -> Inputs:
        """Network inputs: numbers in float32, codes in int64.

        With a ``device`` other than the CPU, tables of numbers are sent there as they are and prepared there, which
        may change the last bit of a number; other tables are prepared on the host.
        """
        if self.row_shape is not None:
            if not _is_tensor_like(X) or tuple(X.shape[1:]) != self.row_shape:
                raise ValueError(f"The model was fitted on rows of shape {self.row_shape}; got {np.shape(X)[1:]}.")
            numeric = torch.as_tensor(np.array(X, dtype=np.float32))
            if not bool(torch.isfinite(numeric).all()):
                raise ValueError("X contains NaN or infinity; arrays that bypass preprocessing must be finite.")
            return Inputs(numeric, torch.zeros(len(numeric), 0, dtype=torch.long))
        only_numbers = self.projection is None and all(isinstance(column, NumericColumn) for column in self.columns)
        if device is not None and device.type != "cpu" and only_numbers:
            return self.transform_on(X, device)
        numbers, codes = self.table(X)
        numbers = np.ascontiguousarray(numbers)
        if self.projection is not None:
            numbers = numbers @ self.projection
        return Inputs(torch.as_tensor(numbers.astype(np.float32)), torch.as_tensor(codes))

    def transform_on(self, X: Any, device: torch.device) -> Inputs:
        """`transform` of a table of numbers, on a device."""
        values = torch.from_numpy(_matrix(self._checked_frame(X))).to(device).double()
        codes = torch.zeros(len(values), 0, dtype=torch.long, device=device)
        made: Inputs = ColumnReader(self.columns).to(device)(values, codes)
        return made

    def _checked_frame(self, X: Any) -> pd.DataFrame:
        """A table with the columns of training."""
        frame = _as_frame(X)
        if self.named and isinstance(X, pd.DataFrame):
            names, expected = [str(name) for name in frame.columns], [column.name for column in self.columns]
            if names != expected:
                raise ValueError(
                    "The columns differ from the training columns, or are in another order: expected "
                    f"{names_in_words(expected)}; got {names_in_words(names)}."
                )
        return frame

    def table(self, X: Any, *, scaled: bool = True) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Numbers in float64 and codes, of a table: what `transform` gives to networks in float32.

        Without ``scaled``, numbers are as they are, and missing ones are at the centre of their column.
        """
        frame = self._checked_frame(X)
        first = np.cumsum([0, *self._widths()])  # the place of the numbers of each column
        numbers = np.empty((len(frame), first[-1]), order="F")  # columns are written one by one
        codes = [np.zeros((len(frame), 0), np.int64)]
        numeric = []
        for j, column in enumerate(self.columns):
            if isinstance(column, NumericColumn):
                numeric.append(j)
                continue
            coded = column.transform(frame.iloc[:, j])[0][:, None]
            if self.one_hot:
                numbers[:, first[j] : first[j + 1]] = coded == np.arange(column.n_codes)
            else:
                codes.append(coded)
        for places, values in numeric_parts(frame, numeric):
            columns = [column for j in places if isinstance(column := self.columns[j], NumericColumn)]
            missing = np.isnan(values)
            ranked = [i for i, column in enumerate(columns) if column.knots]
            if ranked:
                values[ranked] = normal_scores([columns[i].knots for i in ranked], values[ranked])
            centre = np.array([[column.centre] for column in columns])
            width = np.array([[column.width] for column in columns])
            if scaled:
                values = (values - centre) / width
            if missing.any():
                values = np.where(missing, 0.0 if scaled else centre, values)
            numbers[:, first[places]] = values.T
            flagged = np.array([column.indicator for column in columns])
            numbers[:, first[places][flagged] + 1] = missing[flagged].T
        return numbers, np.hstack(codes)

    def note_levels(self, X: Any, notes: LevelNotes, read_as: str = "treated as an unknown level") -> None:
        """Note levels and missing values that training rows did not have, and how such levels are read."""
        if self.row_shape is not None or sparse.issparse(X):  # which has numbers only
            return
        frame = self._checked_frame(X)
        for j, column in enumerate(self.columns):
            if isinstance(column, CategoricalColumn):
                values = frame.iloc[:, j]
                coded, rewritten = column.transform(values)
                notes.add(id(self), column.name, column.levels, values, coded == UNSEEN, rewritten, read_as)
        whole = [j for j, own in enumerate(self.columns) if isinstance(own, NumericColumn) and not own.indicator]
        numbers = frame if len(whole) == frame.shape[1] else frame.iloc[:, whole]
        notes.add_missing(id(self), [self.columns[j].name for j in whole], pd.isna(numbers).to_numpy())

    @property
    def n_numeric(self) -> int:
        """The number of numeric inputs per row."""
        if self.projection is not None:
            return int(self.projection.shape[1])
        return sum(self._widths())

    def _widths(self) -> list[int]:
        """How many numbers each column becomes: its value and perhaps an indicator, or 0/1 columns."""
        return [
            1 + column.indicator if isinstance(column, NumericColumn) else column.n_codes * self.one_hot
            for column in self.columns
        ]

    def inputs_description(self) -> str:
        """How many numbers a row has after preprocessing, and where they come from."""
        if self.row_shape is not None:
            return f"rows of shape {self.row_shape}"
        parts = []
        for column in self.columns[:_SHOWN]:
            if isinstance(column, CategoricalColumn):
                parts.append(f"{column.name!r} {column.n_codes} ({len(column.levels)} levels, unseen, missing)")
            else:
                parts.append(f"{column.name!r} " + ("2 (value, missing)" if column.indicator else "1"))
        more = ", ..." if len(self.columns) > _SHOWN else ""
        return f"rows of {self.n_numeric} inputs, of {len(self.columns)} columns: {', '.join(parts)}{more}"

    @property
    def levels(self) -> list[int]:
        """Number of codes of each categorical column."""
        if self.one_hot:
            return []
        return [column.n_codes for column in self.columns if isinstance(column, CategoricalColumn)]

    # ------------------------------------------------------------------ model files

    def state(self) -> dict[str, Any]:
        """Everything learned, as plain JSON values."""
        return {
            "scaling": self.scaling,
            "one_hot": self.one_hot,
            "named": self.named,
            "row_shape": self.row_shape,
            "columns": [
                {"kind": "numeric" if isinstance(column, NumericColumn) else "categorical", **asdict(column)}
                for column in self.columns
            ],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], projection: torch.Tensor | None = None) -> Preprocessor:
        """The inverse of `state`; principal components are kept apart from it, as a tensor."""
        if state["scaling"] not in ("standard", "quantile"):
            raise ValueError(f"unknown scaling: {state['scaling']!r}")
        made = cls(state["scaling"], one_hot=as_flag(state["one_hot"], "one_hot"))
        made.named = as_flag(state["named"], "named")
        if state["row_shape"] is not None:
            made.row_shape = tuple(as_whole(size, "row_shape") for size in as_list(state["row_shape"], "row_shape"))
        made.columns = [column_from_state(column) for column in as_list(state["columns"], "columns")]
        if projection is not None:
            if projection.ndim != 2 or projection.dtype != torch.float64 or len(projection) != made.n_numeric:
                raise ValueError(f"the principal components have shape {tuple(projection.shape)}")
            check_values(projection, "the principal components")
            made.projection = projection.numpy()
        return made


def _principal_components(numbers: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    """The matrix (columns, components) that maps numbers (rows, columns) to at most ``count`` principal components."""
    if min(numbers.shape) > _LARGE_SVD:
        _, sizes, directions = randomized_svd(numbers, count, random_state=0)
    else:
        _, sizes, directions = np.linalg.svd(numbers, full_matrices=False)
    kept = max(1, min(count, int((sizes > 1e-6 * sizes[0]).sum())))
    scale = sizes[0] / np.sqrt(len(numbers)) or 1.0
    return np.ascontiguousarray(directions[:kept].T / scale)


def _is_tensor_like(X: Any) -> bool:
    return not isinstance(X, pd.DataFrame) and hasattr(X, "ndim") and hasattr(X, "shape") and X.ndim > 2


def _as_frame(X: Any) -> pd.DataFrame:
    if isinstance(X, pd.DataFrame):
        return X
    return pd.DataFrame(without_mask(X))


def _matrix(frame: pd.DataFrame) -> npt.NDArray[Any]:
    """A table of numbers as one array, in its own precision if all columns have one type of floating-point numbers."""
    kinds = set(frame.dtypes)
    if len(kinds) == 1 and kinds <= {np.dtype(np.float64), np.dtype(np.float32)}:
        values = np.ascontiguousarray(frame.to_numpy())
        if not np.isinf(values).any():
            return values if values.flags.writeable else values.copy()
    return np.concatenate([values for _, values in numeric_parts(frame, range(frame.shape[1]))]).T.copy()


class TableSummary:
    """Summary of the columns of a table that comes in one or more blocks of rows.

    Of one block it is exact; of many, columns are learned up to the error of their sketches.
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self._block: tuple[pd.DataFrame, Floats | None] | None = None  # the only one so far
        self._sketches: dict[str, _NumericSketch | _CategoricalSketch] = {}

    def add(self, frame: pd.DataFrame, weight: Floats | None) -> None:
        """Take in a block of rows."""
        self.n_rows += len(frame)
        if self._block is None and not self._sketches:
            self._block = frame, weight
            return
        blocks = [(frame, weight)]
        if self._block is not None:
            blocks, self._block = [self._block, *blocks], None
            self._sketches = {
                str(name): _CategoricalSketch(values) if is_categorical(values) else _NumericSketch()
                for name, values in frame.items()
            }
        for rows, own in blocks:
            for sketch, (_, values) in zip(self._sketches.values(), rows.items()):
                sketch.add(values, own)

    def learned(self, scaling: NumericScaling) -> list[Column]:
        """The columns, in the order of the table."""
        if self._block is None:
            return [sketch.learned(name, scaling) for name, sketch in self._sketches.items()]
        frame, weight = self._block
        names = [str(name) for name in frame.columns]
        coded = categorical_places(frame)
        found: dict[int, Column] = {j: learn_categories(names[j], frame.iloc[:, j], weight) for j in coded}
        numeric = sorted(set(range(len(names))).difference(coded))
        for places, values in numeric_parts(frame, numeric):
            found |= zip(places, learn_numbers([names[j] for j in places], values, weight, scaling))
        return [found[j] for j in range(len(names))]


class _NumericSketch:
    """Quantiles, moments and missing values of a column of numbers."""

    def __init__(self) -> None:
        self.quantiles, self.moments, self.missing = QuantileSketch(), Moments(), 0.0

    def add(self, values: pd.Series, weight: Floats | None) -> None:
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        absent = np.isnan(numbers)
        if absent.any():
            self.missing += float(absent.sum() if weight is None else weight[absent].sum())
            numbers, weight = numbers[~absent], None if weight is None else weight[~absent]
        self.quantiles.add(numbers, weight)
        self.moments.add(numbers, weight)

    def learned(self, name: str, scaling: NumericScaling) -> Column:
        points, weight = self.quantiles.points()
        (made,) = learn_present([name], points[None], weight, scaling)
        if not made.knots and made.seen is not None and made.seen.low < made.seen.high:
            made = replace(made, centre=self.moments.mean, width=self.moments.width or 1.0)  # which are exact
        return replace(made, indicator=self.missing > 0)


class _CategoricalSketch:
    """Levels and missing values of a column of categories; the most frequent levels if there are too many."""

    def __init__(self, values: pd.Series) -> None:
        self.text = pd.api.types.is_string_dtype(values.dtype)
        self.levels, self.missing, self.present = LevelSketch(), 0.0, 0

    def add(self, values: pd.Series, weight: Floats | None) -> None:
        absent = values.isna().to_numpy()
        self.missing += float(absent.sum() if weight is None else weight[absent].sum())
        self.present += int((~absent).sum())
        if weight is None:
            counts = values.value_counts(dropna=True)
        else:
            counts = pd.Series(weight, index=values.index).groupby(values, observed=True).sum()
        self.levels.add({level: float(count) for level, count in counts.items() if count > 0})

    def learned(self, name: str, scaling: NumericScaling) -> Column:
        counts = self.levels.levels()
        levels, weight = list(counts), np.array(list(counts.values()))
        if self.text:
            check_text(name, levels, self.present)
        values = pd.Series(pd.Categorical([*levels, None] if self.missing else levels, categories=levels))
        return learn_categories(name, values, np.append(weight, self.missing) if self.missing else weight)


def _learn_sparse(matrix: Any, weight: Floats | None, scaling: NumericScaling) -> list[Column]:
    """The columns of a sparse matrix without missing values, some of which are arrays at a time."""
    found: list[Column] = []
    matrix = sparse.csc_array(matrix)
    step = max(1, AT_ONCE // max(matrix.shape[0], 1))
    for begin in range(0, matrix.shape[1], step):
        values = matrix[:, begin : begin + step].toarray().T
        names = [str(begin + j) for j in range(len(values))]
        found += learn_present(names, np.ascontiguousarray(values), weight, scaling)
    return found


def check_columns(frame: pd.DataFrame, rows: npt.NDArray[np.int64]) -> None:
    """Raise an error for a column of no supported type, and for infinite numbers, with their row numbers."""
    numeric = sorted(set(range(frame.shape[1])).difference(categorical_places(frame)))
    for _ in numeric_parts(frame, numeric, rows):
        pass
