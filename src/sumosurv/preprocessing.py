"""DataFrame in, tensors out: scaling, categories, missing values; and the unit of time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.interpolate import PchipInterpolator
from scipy.special import logit, ndtri
from sklearn.utils.extmath import randomized_svd

from sumosurv.advice import advise_on_text, note_rewritten, note_unseen
from sumosurv.device_columns import prepare_numbers
from sumosurv.levels import find_rewritten
from sumosurv.networks.data import Inputs
from sumosurv.networks.time import LOG_OFFSET, TimeFeatureKind, TimeFeatures
from sumosurv.nonparametric import marginal_curve
from sumosurv.outcome import Outcome
from sumosurv.quantiles import mean_and_width, quantiles
from sumosurv.ranges import Range
from sumosurv.stored import as_flag, as_list, as_number, as_text, as_whole, check_values

__all__ = [
    "CategoricalColumn",
    "NumericColumn",
    "NumericScaling",
    "Preprocessor",
    "is_categorical",
    "time_features",
    "time_unit",
]

NumericScaling = Literal["standard", "quantile"]

_UNSEEN, _MISSING, _FIRST_LEVEL = 0, 1, 2  # codes of a categorical column
_KNOTS = 257  # of the quantiles of a numeric column
_TIME_KNOTS, _EVENTS_PER_KNOT = 10, 8  # of the marginal feature of time
_SHOWN = 12  # columns named in a message
_LARGE_SVD = 1000  # rows and columns above which leading components alone are computed
_CLOSEST = 1e-2  # least distance of two knots in log time


@dataclass(frozen=True)
class NumericColumn:
    """Centred and scaled by the training rows; missing becomes 0 (the centre) beside an indicator."""

    name: str
    centre: float
    width: float
    indicator: bool
    knots: tuple[float, ...] = ()  # quantiles of the training rows, for normal scores
    seen: Range | None = None  # of the training rows; older files do not have it

    def transform(self, values: npt.NDArray[np.float64]) -> list[npt.NDArray[np.float64]]:
        """One column, or two with the indicator of missing values."""
        missing = np.isnan(values)
        scores = ndtri((_ranks(np.array(self.knots), values) + 0.5) / len(self.knots)) if self.knots else values
        scaled = np.where(missing, 0.0, (scores - self.centre) / self.width)
        return [scaled, missing.astype(np.float64)] if self.indicator else [scaled]


def _ranks(knots: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The rank of each value among the knots: on straight lines between them, in the middle of a run of equal knots.

    The same as ``np.interp`` off the knots, to the bit, with one search for each value in place of three.
    """
    last = len(knots) - 1
    place = np.searchsorted(knots, values, "left")  # of the first knot that is not smaller
    left = np.clip(place, 1, last) - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        rank = (1.0 / np.diff(knots))[left] * (values - knots[left]) + left
    rank[place == 0], rank[place > last] = 0.0, last
    ties = np.flatnonzero(knots[np.minimum(place, last)] == values)
    rank[ties] = 0.5 * (place[ties] + np.searchsorted(knots, values[ties], "right") - 1)
    return rank


@dataclass(frozen=True)
class CategoricalColumn:
    """Codes: 0 a level not seen in training, 1 missing, 2... the levels."""

    name: str
    levels: tuple[Any, ...]
    missing_seen: bool
    common: int = 0  # place of the level that most training rows have

    @property
    def n_codes(self) -> int:
        """Number of codes."""
        return len(self.levels) + _FIRST_LEVEL

    @property
    def missing_code(self) -> int:
        """The code of a missing value: that of a level not seen, where training rows had none missing."""
        return _MISSING if self.missing_seen else _UNSEEN

    def transform(self, values: pd.Series) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The codes of a column, and where a level was written in another way than in training ("1" for 1)."""
        plain = values.astype(object)
        missing = plain.isna().to_numpy()
        found = pd.Index(self.levels, dtype=object).get_indexer(pd.Index(plain.where(~missing, None), dtype=object))
        rewritten = (found < 0) & ~missing
        if rewritten.any():
            places, distinct = pd.factorize(plain[rewritten].to_numpy(dtype=object))
            found = found.copy()
            found[rewritten] = find_rewritten(self.levels, distinct)[places]
            rewritten &= found >= 0
        codes = np.where(found >= 0, found + _FIRST_LEVEL, _UNSEEN)
        return np.where(missing, self.missing_code, codes).astype(np.int64), rewritten


class Preprocessor:
    """Learns from training rows how to turn a table of covariates into network inputs.

    Numeric columns are standardised, or turned into normal scores by their quantiles ("quantile");
    missing values become the centre, with an indicator column where the training rows had any. Columns
    of dtype category, object, string or bool become integer codes with a place for unseen levels and one
    for missing values. Arrays of more than two dimensions (images, sequences) pass as they are.

    Parameters
    ----------
    scaling : {"standard", "quantile"}
    one_hot : bool
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
        frame = _as_frame(X)
        self.named = isinstance(X, pd.DataFrame)
        self.columns = [self.learn_column(str(name), frame.iloc[:, j], weight) for j, name in enumerate(frame.columns)]
        if self.max_components is not None and self.n_numeric > max(self.max_components, len(frame) / 4):
            self.projection = _principal_components(self.table(X)[0], self.max_components)
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
        if device is not None and device.type != "cpu" and self._only_numbers():
            return self.transform_on(X, device)
        numbers, codes = self.table(X)
        if self.projection is not None:
            numbers = numbers @ self.projection
        return Inputs(torch.as_tensor(numbers.astype(np.float32)), torch.as_tensor(codes))

    def transform_on(self, X: Any, device: torch.device) -> Inputs:
        """`transform` of a table of numbers, on a device."""
        columns = [column for column in self.columns if isinstance(column, NumericColumn)]
        values = torch.from_numpy(_matrix(self._checked_frame(X), columns)).to(device).double()
        codes = torch.zeros(len(values), 0, dtype=torch.long, device=device)
        return Inputs(prepare_numbers(columns, values), codes)

    def _only_numbers(self) -> bool:
        return self.projection is None and all(isinstance(column, NumericColumn) for column in self.columns)

    def _checked_frame(self, X: Any) -> pd.DataFrame:
        """A table with the columns of training."""
        frame = _as_frame(X)
        if self.named and isinstance(X, pd.DataFrame):
            names, expected = [str(name) for name in frame.columns], [column.name for column in self.columns]
            if names != expected:
                raise ValueError(
                    f"The columns are not those of training, in their order: expected {', '.join(expected)}; "
                    f"got {', '.join(names)}."
                )
        return frame

    def table(self, X: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Numbers in float64 and codes, of a table: what `transform` gives to networks in float32."""
        frame = self._checked_frame(X)
        numbers: list[npt.NDArray[np.float64]] = []
        codes: list[npt.NDArray[np.int64]] = []
        for j, column in enumerate(self.columns):
            values = frame.iloc[:, j]
            if isinstance(column, NumericColumn):
                numbers += column.transform(_numbers(values, column.name))
                continue
            coded, rewritten = column.transform(values)
            note_unseen(id(self), column.name, column.levels, values, coded == _UNSEEN)
            note_rewritten(id(self), column.name, column.levels, values, rewritten)
            if self.one_hot:
                numbers += list((coded[:, None] == np.arange(column.n_codes)).astype(np.float64).T)
            else:
                codes.append(coded)
        n = len(frame)
        return (
            np.stack(numbers, axis=1) if numbers else np.zeros((n, 0)),
            np.stack(codes, axis=1) if codes else np.zeros((n, 0), np.int64),
        )

    @property
    def n_numeric(self) -> int:
        """How many numbers a network reads of a row."""
        if self.projection is not None:
            return int(self.projection.shape[1])
        count = sum(1 + column.indicator for column in self.columns if isinstance(column, NumericColumn))
        if self.one_hot:
            count += sum(column.n_codes for column in self.columns if isinstance(column, CategoricalColumn))
        return count

    def inputs_in_words(self) -> str:
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

    def learn_column(
        self, name: str, values: pd.Series, weight: npt.NDArray[np.float64] | None
    ) -> NumericColumn | CategoricalColumn:
        """What is learned of one column; of rows on disk its distinct values, with the weight of each."""
        if is_categorical(values):
            present = values.dropna()
            levels = pd.unique(present.astype(object))
            odd = next((level for level in levels if not isinstance(level, (str, bool, int, float, np.generic))), None)
            if odd is not None:
                raise ValueError(
                    f"Column {name!r} has levels of type {type(odd).__name__} ({odd}); turn them into text first: "
                    ".astype(str)."
                )
            if not isinstance(values.dtype, pd.CategoricalDtype):
                advise_on_text(name, levels, len(present))
            kinds = {type(level) for level in levels}
            ordered = sorted(levels) if len(kinds) <= 1 else sorted(levels, key=lambda v: (type(v).__name__, str(v)))
            common = _most_common(ordered, values, weight)
            return CategoricalColumn(name, tuple(_plain(level) for level in ordered), bool(values.isna().any()), common)
        numbers = _numbers(values, name)
        present = numbers[~np.isnan(numbers)]
        indicator = len(present) < len(numbers)
        if weight is not None:
            weight = weight[~np.isnan(numbers)]
        seen = Range.of(present, weight)
        if seen is None or seen.low == seen.high:
            return NumericColumn(name, 0.0 if seen is None else seen.low, 1.0, indicator, seen=seen)
        # a thousand values mostly tell; sorting millions of them would take longer than an epoch
        several = len(np.unique(present[:1000])) > 2 or len(np.unique(present)) > 2
        if self.scaling == "quantile" and several:
            count = len(present) if weight is None else max(2, round(float(weight.sum())))
            places = quantiles(present, np.linspace(0, 1, min(_KNOTS, count)), weight)
            knots = tuple(float(v) for v in places)
            centre, width = mean_and_width(NumericColumn(name, 0.0, 1.0, False, knots).transform(present)[0], weight)
            return NumericColumn(name, centre, width or 1.0, indicator, knots, seen)
        size = float(np.abs(present).max())
        size = size if size > 1e100 else 1.0  # squares of larger numbers overflow
        centre, width = mean_and_width(present / size, weight)
        return NumericColumn(name, size * centre, size * width or 1.0, indicator, seen=seen)

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
            raise ValueError(f"no such scaling: {state['scaling']!r}")
        made = cls(state["scaling"], one_hot=as_flag(state["one_hot"], "one_hot"))
        made.named = as_flag(state["named"], "named")
        if state["row_shape"] is not None:
            made.row_shape = tuple(as_whole(size, "row_shape") for size in as_list(state["row_shape"], "row_shape"))
        made.columns = [_column(column) for column in as_list(state["columns"], "columns")]
        if projection is not None:
            if projection.ndim != 2 or projection.dtype != torch.float64 or len(projection) != made.n_numeric:
                raise ValueError(f"the principal components have shape {tuple(projection.shape)}")
            check_values(projection, "the principal components")
            made.projection = projection.numpy()
        return made


def _principal_components(numbers: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    """What turns numbers (rows, columns) into at most ``count`` principal components, (columns, components)."""
    if min(numbers.shape) > _LARGE_SVD:
        _, sizes, directions = randomized_svd(numbers, count, random_state=0)
    else:
        _, sizes, directions = np.linalg.svd(numbers, full_matrices=False)
    kept = max(1, min(count, int((sizes > 1e-6 * sizes[0]).sum())))
    scale = sizes[0] / np.sqrt(len(numbers)) or 1.0
    return np.ascontiguousarray(directions[:kept].T / scale)


def _column(state: dict[str, Any]) -> NumericColumn | CategoricalColumn:
    """A column as a model file describes it."""
    name = as_text(state["name"], "a column's name")
    if state["kind"] == "categorical":
        levels = as_list(state["levels"], "levels")
        if not all(isinstance(level, (str, bool, int, float)) for level in levels) or len(set(levels)) < len(levels):
            raise ValueError(f"column {name!r} has levels that are no values, or the same twice")
        common = as_whole(state.get("common", 0), "common")
        if common >= max(len(levels), 1):
            raise ValueError(f"column {name!r} has {len(levels)} levels, and the most common is that at {common}")
        return CategoricalColumn(name, tuple(levels), as_flag(state["missing_seen"], "missing_seen"), common)
    if state["kind"] != "numeric":
        raise ValueError(f"no such kind of column: {state['kind']!r}")
    knots = [as_number(knot, "a knot") for knot in as_list(state["knots"], "knots")]
    if any(b < a for a, b in pairwise(knots)):
        raise ValueError(f"the knots of column {name!r} are not in order")
    return NumericColumn(
        name,
        as_number(state["centre"], "centre"),
        as_number(state["width"], "width", above=0.0),
        as_flag(state["indicator"], "indicator"),
        tuple(knots),
        Range.from_state(state.get("seen")),
    )


def time_unit(outcome: Outcome) -> float:
    """The largest training time, which becomes 1 in scaled time (1 if all times are zero).

    In scaled time t' = t / unit, the density is f(t) = f'(t') / unit.
    """
    return outcome.last_time or 1.0


def time_features(kind: TimeFeatureKind, y: Outcome, unit: float, n_knots: int | None = None) -> TimeFeatures:
    """Time features fitted to the outcome of the training rows; see `TimeFeatures`.

    "marginal" has ``n_knots`` knots, by default one for every eight events and ten at most. It needs two distinct
    event times; with fewer it falls back to "log".
    """
    y = y.on_clock(unit=unit)
    if kind == "linear":
        low, high = float(y.time.min()), y.last_time
        return TimeFeatures("linear", torch.tensor([[[low], [high - low if high > low else 1.0]]]))
    if kind == "log":
        return TimeFeatures("log")
    middle = y.at_midpoints()
    events, weight = middle.time[middle.event], None if y.weight is None else y.weight[middle.event]
    count = float(weight.sum()) if weight is not None else len(events)
    if n_knots is None:
        n_knots = int(np.clip(count // _EVENTS_PER_KNOT, 2, _TIME_KNOTS))
    levels = (np.arange(n_knots) + 0.5) / n_knots
    places = quantiles(events, levels, weight) if len(events) else np.zeros(0)
    places = places[np.diff(np.log(places + LOG_OFFSET), prepend=-np.inf) > _CLOSEST]
    if len(places) < 2:
        return TimeFeatures("log")
    curve = marginal_curve(y)
    before = curve.cdf(np.nextafter(places, -np.inf).clip(0))[0]
    least = 0.5 / max(y.total, 2.0)
    share = np.clip(0.5 * (before + curve.cdf(places)[0]), least, 1 - least)
    x, odds = np.log(places + LOG_OFFSET), 0.5 * logit(share)
    slopes = PchipInterpolator(x, odds).derivative()(x)
    return TimeFeatures("marginal", torch.from_numpy(np.stack([x, odds, np.maximum(slopes, 1e-3)]))[None])


def _is_tensor_like(X: Any) -> bool:
    return not isinstance(X, pd.DataFrame) and hasattr(X, "ndim") and hasattr(X, "shape") and X.ndim > 2


def _as_frame(X: Any) -> pd.DataFrame:
    if isinstance(X, pd.DataFrame):
        return X
    return pd.DataFrame(np.asarray(X))


def is_categorical(values: pd.Series) -> bool:
    """Whether a column is read as categories: those of dtype category, object, string or bool, unless all numbers."""
    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(dtype):
        return True
    if pd.api.types.is_complex_dtype(dtype):
        raise ValueError(f"Complex data not supported: column {values.name!r}.")
    if pd.api.types.is_numeric_dtype(dtype):
        return False
    present = values.dropna() if pd.api.types.is_object_dtype(dtype) else None
    of_time = present is not None and any(isinstance(value, (date, time, timedelta)) for value in present)
    if of_time or pd.api.types.is_datetime64_any_dtype(dtype) or pd.api.types.is_timedelta64_dtype(dtype):
        raise ValueError(
            f"Column {values.name!r} holds dates or durations; turn it into numbers first, for example days."
        )
    if present is not None:
        for value in present:
            if not isinstance(value, (str, bool, int, float, Decimal, np.generic)):
                raise TypeError(
                    f"Column {values.name!r}: argument must be a string or a real number, not {type(value).__name__!r}."
                )
        numbers = (int, float, Decimal, np.number)  # Decimal: as databases give them
        return not all(isinstance(v, numbers) and not isinstance(v, (bool, np.bool_)) for v in present)
    return True


def _matrix(frame: pd.DataFrame, columns: list[NumericColumn]) -> npt.NDArray[Any]:
    """A table of numbers as one array: at once, in its own precision, where all is of one type, else by columns."""
    kinds = set(frame.dtypes)
    if len(kinds) == 1 and kinds <= {np.dtype(np.float64), np.dtype(np.float32)}:
        values = np.ascontiguousarray(frame.to_numpy())
        if not np.isinf(values).any():
            return values if values.flags.writeable else values.copy()
    return np.stack([_numbers(frame.iloc[:, j], column.name) for j, column in enumerate(columns)], axis=1)


def _numbers(values: pd.Series, name: str) -> npt.NDArray[np.float64]:
    try:
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        odd = next((v for v in values if isinstance(v, str)), None)
        raise ValueError(
            f"Column {name!r} was numeric in training and now holds {odd!r}; give it as numbers, as in training."
        ) from None
    wrong = np.isinf(numbers)
    if wrong.any():
        rows = ", ".join(map(str, np.flatnonzero(wrong)[:5]))
        raise ValueError(
            f"Column {name!r} contains infinity in rows {rows}; replace these values or mark them as missing (NaN)."
        )
    return np.array(numbers)


def _most_common(levels: list[Any], values: pd.Series, weight: npt.NDArray[np.float64] | None) -> int:
    """The place of the level that most rows have; the first of several."""
    places = pd.Index(levels, dtype=object).get_indexer(pd.Index(values.astype(object), dtype=object))
    rows = places >= 0
    counts = np.bincount(places[rows], None if weight is None else weight[rows], minlength=max(len(levels), 1))
    return int(counts.argmax())


def _plain(level: Any) -> Any:
    """A level as a plain Python value that JSON can hold."""
    return level.item() if isinstance(level, np.generic) else level
