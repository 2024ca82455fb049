"""Predictions written to a Parquet file part by part: a run that was killed resumes."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sumosurv.distributions.extrapolation import is_mean_extrapolated
from sumosurv.files import check_apart, check_writable, replacing
from sumosurv.model_files import model_digest
from sumosurv.preprocessing import LevelNotes
from sumosurv.sources import Source, as_source, check_no_duplicates, check_present, digest_of

_PART = 262_144  # rows of a part, which becomes a row group
_BLOCK = 16_384  # rows predicted at a time
_SINGLE_RANGE = (1e-30, 1e30)  # last training times whose predictions float32 can hold


@dataclass(frozen=True)
class PredictionTable:
    """Which predictions to write to a table, for `predict_to_parquet`.

    By default: the restricted mean up to the last training time, the risk score, the mean and the quartiles.

    Parameters
    ----------
    times : sequence of float
        Survival probabilities at these times and, for competing causes, cumulative incidences.
    quantiles : sequence of float
        Quantiles of the event time.
    mean : bool, default False
        Mean event time, and the restricted mean up to the last training time.
    restricted_mean : float, optional
        The horizon of a restricted mean.
    risk : bool, default False
        The risk score of ``model.predict``.
    precision : {"double", "single"}
        "single" evaluates networks that are monotone in time in float32 (see `SurvivalDistribution.single`) and gives
        all predictions as float32: about six digits, in half the time.
    """

    times: Sequence[float] = ()
    quantiles: Sequence[float] = ()
    mean: bool = False
    restricted_mean: float | None = None
    risk: bool = False
    precision: Literal["double", "single"] = "double"

    def of_rows(
        self,
        model: Any,
        names: Sequence[str],
        identifiers: Sequence[str],
        frame: pd.DataFrame,
        notes: LevelNotes | None = None,
    ) -> pd.DataFrame:
        """The predictions of some rows, whose covariates have these names, after their identifiers.

        The column "extrapolated" names the predictions of a row that extrapolate beyond the last training time. Levels
        that were not seen in training are added to ``notes``.
        """
        asked = (*self.times, *self.quantiles) or self.mean or self.restricted_mean is not None or self.risk
        nothing = not asked
        mean, levels = self.mean or nothing, self.quantiles or ([0.25, 0.5, 0.75] if nothing else [])
        horizon, last, n = self.restricted_mean, float(model.last_time_), len(frame)
        single = self.precision == "single" and _SINGLE_RANGE[0] < last < _SINGLE_RANGE[1]
        distribution = model._predict(frame[list(names)], notes)
        if single:
            distribution = distribution.single()
        columns: dict[str, Any] = {}
        past: dict[str, Any] = {}  # the rows in which a prediction is extrapolated, by its column
        within = distribution.restricted_mean(last) if mean else None
        if horizon is not None:
            columns[f"restricted_mean_{horizon:g}"] = distribution.restricted_mean(horizon)
            past[f"restricted_mean_{horizon:g}"] = np.full(n, horizon > last)
        elif within is not None:
            columns[f"restricted_mean_{last:g}"] = within
        if self.risk or nothing:
            columns["risk"] = distribution.cdf(model.risk_times_).mean(axis=1)  # as model.predict
        for t, label in zip(self.times, _labels(self.times)):
            columns[f"survival_{label}"] = distribution.survival(float(t))
            past[f"survival_{label}"] = np.full(n, t > last)
            if model.n_causes_ > 1:
                incidence = distribution.cumulative_incidence(float(t))
                columns |= {f"incidence_{k + 1}_{label}": values for k, values in enumerate(incidence.T)}
        if within is not None:
            columns["mean"] = distribution.mean()
            past["mean"] = is_mean_extrapolated(columns["mean"], within)
        for q, label, values in zip(levels, _labels(levels), distribution.quantile(levels).T if levels else ()):
            name = "median" if q == 0.5 else f"quantile_{label}"
            columns[name], past[name] = values, values > last
        if single:
            columns = {name: values.astype(np.float32) for name, values in columns.items()}
        if mean or levels or any(rows.any() for rows in past.values()):
            columns["extrapolated"] = _extrapolated_names(past, n)
        made = pd.concat([frame[list(identifiers)], pd.DataFrame(columns, index=frame.index)], axis=1)
        check_no_duplicates(list(made.columns), "The table of predictions, with its identifiers,")
        return made


def _labels(values: Sequence[float]) -> list[str]:
    """Numbers as parts of column names: six digits, or all of them if two numbers would look the same."""
    short = [f"{value:g}" for value in values]
    return short if len(set(short)) == len(set(values)) else [repr(float(value)) for value in values]


def _extrapolated_names(past: Mapping[str, npt.NDArray[np.bool_]], n: int) -> npt.NDArray[np.object_]:
    """For each of n rows the names of the columns that are marked in it, separated by spaces."""
    marks = np.column_stack([np.zeros(n, dtype=bool), *past.values()])
    kinds, which = np.unique(marks @ (1 << np.arange(marks.shape[1], dtype=object)), return_inverse=True)
    words = [" ".join(name for place, name in enumerate(past, 1) if kind >> place & 1) for kind in kinds]
    return np.array(words, dtype=object)[which]


def count_extrapolated(texts: Iterable[str]) -> Counter[str]:
    """In how many rows each prediction is extrapolated, from the column "extrapolated"."""
    found: Counter[str] = Counter()
    for text, rows in Counter(texts).items():  # there are few different texts
        found.update(dict.fromkeys(text.split(), rows))
    return found


def predict_to_parquet(
    model: Any,
    source: Any,
    path: str | Path,
    table: PredictionTable | None = None,
    *,
    identifiers: Sequence[str] = (),
    verbose: bool = False,
    beyond: Counter[str] | None = None,
) -> int:
    """Write one row of predictions for each row of a table, which need not fit into memory.

    The rows are predicted in parts of 262,144, which are written to files in the folder ``NAME.parts`` and finally
    merged into one file. If a run is killed, the target is unchanged, and the same call resumes: finished parts are
    kept if their input rows are unchanged. Parts of another model or request are deleted.

    Parameters
    ----------
    model : fitted estimator
    source : path, pyarrow.dataset.Dataset, iterator of record batches, RowSource or DataFrame
    path : path
        The Parquet file to write.
    table : PredictionTable, optional
        The predictions to compute.
    identifiers : sequence of str
        Columns to copy to the output, before the predictions.
    verbose : bool, default False
        Show a progress bar.
    beyond : Counter, optional
        Counts the rows in which a prediction is extrapolated, by name, including parts of an earlier run.

    Returns
    -------
    int
        The number of rows.
    """
    from tqdm.auto import tqdm

    check_writable(path)
    rows, table, target = as_source(source), table or PredictionTable(), Path(path)
    folder = target.with_name(target.name + ".parts")
    check_apart(path, *rows.files)
    if any(file.resolve().is_relative_to(folder.resolve()) for file in rows.files):
        raise ValueError(f"{folder} would hold parts of {path} but is also an input; choose another output file.")
    names = check_prediction_columns(model, rows, identifiers)
    asked = json.dumps([model_digest(model), asdict(table), list(identifiers)], sort_keys=True, default=str)
    parts = _Parts(folder, hashlib.sha256(asked.encode()).hexdigest())
    notes = LevelNotes()
    with tqdm(total=rows.n_rows, desc="predicting", unit="row", disable=not verbose) as bar:
        blocks = rows.blocks(list(dict.fromkeys([*names, *identifiers])), rows=_BLOCK)
        for frames in _in_parts(block.X for block in blocks):
            digest = digest_of(*frames)
            if parts.keep(digest):
                bar.update(sum(map(len, frames)))
                continue
            made = []
            for frame in frames:
                made.append(table.of_rows(model, names, identifiers, frame, notes))
                bar.update(len(frame))
            parts.write(pd.concat(made), digest)
    notes.warn()
    found = parts.join(target)
    if beyond is not None:
        beyond.update(found)
    return rows.n_rows


class _Parts:
    """Finished parts of a file in a folder, with what they are parts of."""

    def __init__(self, folder: Path, signature: str) -> None:
        self._folder = folder
        record = folder / "run.json"
        if self._stored_signature(record) != signature:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            with replacing(record) as partial:
                partial.write_text(json.dumps({"signature": signature}), encoding="utf-8")
        self._files: list[Path] = []

    def _stored_signature(self, record: Path) -> str | None:
        """The signature of the parts in the folder; None if it is new or empty, an error if it has other contents."""
        if not self._folder.exists() or (self._folder.is_dir() and not any(self._folder.iterdir())):
            return None
        try:
            return str(json.loads(record.read_text(encoding="utf-8"))["signature"])
        except (OSError, ValueError, LookupError, TypeError):
            raise FileExistsError(
                f"{self._folder} exists but does not contain parts of predictions; move it, or choose another "
                "output file."
            ) from None

    def _next(self) -> Path:
        return self._folder / f"{len(self._files):06d}.parquet"

    def keep(self, digest: str) -> bool:
        """Whether the next part is there already, predicted from the same rows; if so, it is kept."""
        path = self._next()
        if not path.is_file() or pq.read_metadata(path).metadata.get(b"rows") != digest.encode():
            return False
        self._files.append(path)
        return True

    def write(self, frame: pd.DataFrame, digest: str) -> None:
        """Write one more part, completely or not at all."""
        table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata({"rows": digest})
        path = self._next()
        with replacing(path) as partial:
            pq.write_table(table, partial, row_group_size=_PART)
        self._files.append(path)

    def join(self, target: Path) -> Counter[str]:
        """Write all parts as the row groups of one file and remove them; count the extrapolated predictions."""
        beyond = Counter[str]()
        schema = pq.read_schema(self._files[0]).remove_metadata()
        with replacing(target) as partial, pq.ParquetWriter(partial, schema) as writer:
            for path in self._files:
                part = pq.read_table(path).replace_schema_metadata(None)
                writer.write_table(part, row_group_size=_PART)
                if "extrapolated" in part.column_names:
                    beyond += count_extrapolated(part["extrapolated"].to_pylist())
        shutil.rmtree(self._folder)
        return beyond


def check_prediction_columns(model: Any, source: Source, identifiers: Sequence[str]) -> list[str]:
    """The columns that a model reads; a ValueError if one of them or an identifier is missing from a table."""
    if source.covariates is None or source.names is None:
        raise TypeError(f"Predictions are written for tables with named columns; got {source.name}.")
    names = getattr(model, "feature_names_in_", None)
    wanted = [name for name in source.covariates if name not in identifiers] if names is None else list(names)
    check_present([*wanted, *identifiers], source.names)
    return wanted


def _in_parts(frames: Iterable[pd.DataFrame]) -> Iterator[list[pd.DataFrame]]:
    """Group frames into parts of at least the wanted number of rows."""
    held: list[pd.DataFrame] = []
    for frame in frames:
        held.append(frame)
        if sum(map(len, held)) >= _PART:
            yield held
            held = []
    if held:
        yield held
