"""Predictions of rows on disk, to a Parquet file, part by part: a run that was ended goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sumosurv.advice import telling_unseen
from sumosurv.files import check_apart, check_writable, replacing
from sumosurv.predicted import Figures
from sumosurv.sources import RowSource

__all__ = ["predict_to_parquet"]

_PART = 262_144  # rows of a part, which becomes a row group
_BLOCK = 16_384  # rows predicted at a time


def predict_to_parquet(
    model: Any,
    source: Any,
    path: str | Path,
    figures: Figures | None = None,
    *,
    identifiers: Sequence[str] = (),
    verbose: bool = False,
    beyond: Counter[str] | None = None,
) -> int:
    """Write one row of predictions for each row of a table on disk.

    The rows are predicted in parts of 262,144. Each part is a file of its own, written whole, in a folder beside the
    target (``NAME.parts``); when all are there, they become the row groups of one file, which takes the target's name
    in one move, and the folder is removed. A run that is killed thus leaves the target as it was, and the same call
    goes on after the last part. Parts of another model, table or choice of figures are thrown away.

    Parameters
    ----------
    model : fitted estimator
    source : path, pyarrow.dataset.Dataset, iterator of record batches or RowSource
    path : path
        The Parquet file to write.
    figures : Figures, optional
        What to predict.
    identifiers : sequence of str
        Columns to pass through, before the rest.
    verbose : bool
        Show a progress bar.
    beyond : Counter, optional
        Counts the rows in which a figure is extrapolated, by name; those of parts from an earlier run among them.

    Returns
    -------
    int
        The number of rows.
    """
    check_writable(path)
    rows, figures, target = RowSource.of(source), figures or Figures(), Path(path)
    folder = target.with_name(target.name + ".parts")
    check_apart(path, *rows.files)
    if any(file.resolve().is_relative_to(folder.resolve()) for file in rows.files):
        raise ValueError(f"{folder} is where parts of {path} are kept, and it is read; name another file to write.")
    names = _columns(model, rows, identifiers)
    parts = _Parts(folder, _signature(model, rows, figures, identifiers))
    done = parts.n_rows
    with _bar(rows.n_rows, done, verbose) as advance, telling_unseen():
        for frames in _in_parts(rows.frames(list(dict.fromkeys([*names, *identifiers])), rows=_BLOCK, start=done)):
            own: Counter[str] = Counter()
            made = []
            for frame in frames:
                made.append(pd.concat([frame[list(identifiers)], figures.table(model, frame[names], own)], axis=1))
                advance(len(frame))
            parts.write(pd.concat(made), own)
    if beyond is not None:
        beyond.update(parts.beyond)
    parts.join(target)
    return rows.n_rows


class _Parts:
    """Finished parts of a file in a folder, with what they are parts of."""

    def __init__(self, folder: Path, signature: str) -> None:
        self._folder = folder
        told = folder / "run.json"
        if self._told(told) != signature:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            with replacing(told) as partial:
                partial.write_text(json.dumps({"signature": signature}), encoding="utf-8")
        self._files: list[Path] = []
        self.n_rows, self.beyond = 0, Counter[str]()
        while (path := self._path(len(self._files))).is_file():
            found = pq.read_metadata(path)
            self._note(path, found.num_rows, json.loads(found.metadata[b"sumosurv"]))

    def _told(self, told: Path) -> str | None:
        """What the folder holds parts of; None if it is new or empty, and an error if it is not of this making."""
        if not self._folder.exists() or (self._folder.is_dir() and not any(self._folder.iterdir())):
            return None
        try:
            return str(json.loads(told.read_text(encoding="utf-8"))["signature"])
        except (OSError, ValueError, LookupError, TypeError):
            raise FileExistsError(
                f"{self._folder} is there already and holds no parts of predictions; move it, or name another file to "
                "write."
            ) from None

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06d}.parquet"

    def _note(self, path: Path, n_rows: int, beyond: dict[str, int]) -> None:
        self._files.append(path)
        self.n_rows += n_rows
        self.beyond.update(beyond)

    def write(self, frame: pd.DataFrame, beyond: Counter[str]) -> None:
        """One more part, there as a whole or not at all."""
        table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(
            {"sumosurv": json.dumps(beyond)}
        )
        path = self._path(len(self._files))
        with replacing(path) as partial:
            pq.write_table(table, partial, row_group_size=_PART)
        self._note(path, len(frame), dict(beyond))

    def join(self, target: Path) -> None:
        """All parts as the row groups of one file; the parts are removed."""
        schema = pq.read_schema(self._files[0]).remove_metadata()
        with replacing(target) as partial, pq.ParquetWriter(partial, schema) as writer:
            for path in self._files:
                writer.write_table(pq.read_table(path).replace_schema_metadata(None), row_group_size=_PART)
        shutil.rmtree(self._folder)


def _columns(model: Any, source: RowSource, identifiers: Sequence[str]) -> list[str]:
    """The columns that the model reads."""
    names = getattr(model, "feature_names_in_", None)
    wanted = [name for name in source.columns if name not in identifiers] if names is None else list(names)
    missing = [name for name in [*wanted, *identifiers] if name not in source.names]
    if missing:
        raise ValueError(f"{source.name} lacks columns: {', '.join(map(repr, missing))}.")
    return wanted


def _signature(model: Any, source: RowSource, figures: Figures, identifiers: Sequence[str]) -> str:
    """What the predictions follow from, in short: the model, the rows, the figures."""
    digest = hashlib.sha256()
    fitted, tensors = model._state()
    asked = [fitted, model.get_params(deep=False), source.signature(), asdict(figures), list(identifiers)]
    digest.update(json.dumps(asked, sort_keys=True, default=str).encode())
    for name, values in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(values.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _in_parts(frames: Iterator[pd.DataFrame]) -> Iterator[list[pd.DataFrame]]:
    """Some frames at a time, until they have the rows of a part."""
    held: list[pd.DataFrame] = []
    for frame in frames:
        held.append(frame)
        if sum(map(len, held)) >= _PART:
            yield held
            held = []
    if held:
        yield held


def _bar(total: int, done: int, verbose: bool) -> Any:
    """A progress bar as a function of the rows that were added."""
    from contextlib import contextmanager

    @contextmanager
    def shown() -> Iterator[Any]:
        if not verbose:
            yield lambda rows: None
            return
        from tqdm.auto import tqdm

        with tqdm(total=total, initial=done, desc="predicting", unit="row") as bar:
            yield bar.update

    return shown()
