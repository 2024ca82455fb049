"""Checkpoints: the state of a training after an epoch, in a file from which the training resumes.

A file is safetensors with a JSON header: nothing in it is executed. It is written completely or not at all. A digest of
rows, settings, seeds and initial weights ties it to one training, and a checksum reveals damage.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sumosurv.files import replacing, system_errors
from sumosurv.model_files import as_flag, as_text, as_whole, checksum, parse_json
from sumosurv.networks import PopulationNetwork, Rows, Table
from sumosurv.outcome import each_field

_KEY = "sumosurv checkpoint"
_CHECKSUM = "sha256"
_FORMAT = 4

History = list[npt.NDArray[np.float64]]  # the means of all members, per epoch


@dataclass
class Checkpoints:
    """A folder with the checkpoints of one fit: one file per trained population.

    Parameters
    ----------
    folder : path
        Created if it does not exist. All processes must be able to access it.
    seconds : float, default 30.0
        Smallest interval between checkpoints, which are written at the end of an epoch and at the end of training.
    """

    folder: str | Path
    seconds: float = 30.0
    _begun: int = field(default=0, init=False)

    @classmethod
    def of(cls, given: Checkpoints | str | Path) -> Checkpoints:
        """Return the checkpoints of a new fit."""
        if isinstance(given, (str, Path)):
            return cls(given)
        if not isinstance(given, Checkpoints):
            raise TypeError(f"checkpoint must be a folder or Checkpoints; got {given!r}.")
        return cls(given.folder, given.seconds)

    def next(self) -> Checkpoint:
        """Return the file of the next training."""
        folder = Path(self.folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise NotADirectoryError(f"{folder} is a file; checkpoints require a folder.") from None
        self._begun += 1
        return Checkpoint(folder / f"training-{self._begun}.safetensors", self.seconds)


class Checkpoint:
    """The file of one training."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.path, self._seconds = path, seconds
        self._written = time.monotonic()

    def save(self, digest: str, state: Sequence[Tensor], history: Sequence[History], *, done: bool) -> None:
        """Write the state after an epoch if the last file is old enough, or if training has ended (``done``)."""
        from safetensors.torch import save_file

        if not done and time.monotonic() - self._written < self._seconds:
            return
        tensors = {f"state.{i}": value for i, value in enumerate(state)}
        tensors |= {f"history.{i}": torch.from_numpy(np.array(values)) for i, values in enumerate(history)}
        text = json.dumps({"format": _FORMAT, "digest": digest, "epochs": len(history[0]), "done": done})
        with replacing(self.path) as partial:
            # copies: safetensors rejects tensors that share memory
            copies = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
            copies[_CHECKSUM] = torch.frombuffer(bytearray(checksum(text, copies)), dtype=torch.uint8)
            with system_errors(self.path):
                save_file(copies, str(partial), metadata={_KEY: text})
        self._written = time.monotonic()

    def load(self, digest: str, state: Sequence[Tensor], history: Sequence[History]) -> int:
        """Copy the stored state into the tensors, extend the history, and return the epoch to begin with.

        If there is no file, the epoch is 0 and nothing changes. If training had ended, the epoch is ``sys.maxsize``.

        Raises
        ------
        ValueError
            The file is damaged, or belongs to another training.
        """
        from safetensors import SafetensorError, safe_open

        if not self.path.is_file():
            return 0
        try:
            with safe_open(str(self.path), framework="pt") as file:
                text = (file.metadata() or {})[_KEY]
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            described = parse_json(text)
            if as_whole(described["format"], "the format") != _FORMAT:
                raise ValueError("it was written by another version")
            if found.pop(_CHECKSUM).numpy().tobytes() != checksum(text, found):
                raise ValueError("its checksum does not match")
            epochs, done = as_whole(described["epochs"], "the number of epochs"), as_flag(described["done"], "done")
            same = as_text(described["digest"], "the digest") == digest
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"The checkpoint {self.path} is invalid ({error}); delete it.") from None
        if not same:
            raise ValueError(
                f"{self.path} is the checkpoint of a fit with other rows, settings or seeds; choose another "
                "folder, or delete it."
            )
        with torch.no_grad():
            for i, tensor in enumerate(state):
                tensor.copy_(found[f"state.{i}"])
        for i, values in enumerate(history):
            values.extend(found[f"history.{i}"].numpy())
        return sys.maxsize if done else epochs


def training_digest(
    network: PopulationNetwork, table: Table, rows: Sequence[Rows | None], settings: Sequence[object]
) -> str:
    """Return a digest of everything that determines a training: initial weights, rows, row numbers, settings."""
    text = hashlib.sha256(type(network).__name__.encode())

    def add(value: Tensor) -> None:
        text.update(f"{value.dtype}{tuple(value.shape)}".encode())
        if value.numel():
            text.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)

    for name, tensor in network.state_dict().items():
        text.update(name.encode())
        add(tensor)
    add(table.inputs.numeric)
    add(table.inputs.codes)
    each_field(add, table.outcome)
    for part in rows:
        if part is not None:
            add(part.index)
            add(part.present)
    text.update(repr(settings).encode())
    return text.hexdigest()
