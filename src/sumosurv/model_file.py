"""Model files: one safetensors file whose header holds a JSON description. Nothing in it is ever executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sumosurv._version import __version__
from sumosurv.files import check_writable, replacing, system_errors
from sumosurv.stored import checksum, parse_json

__all__ = ["PART", "ModelFileError", "model_digest", "read_model_file", "save"]

_FORMAT = 3
_KEY = "sumosurv"
_DIGEST = "sha256"
_LONGEST_HEADER = 100_000_000  # bytes, as in safetensors
_LONGEST_NAME = 1000  # of a tensor
PART = "part"  # prefix of the tensors of a mixture's estimators


class ModelFileError(ValueError):
    """The file is not a model that this version can read."""


def save(model: Any, path: str | Path) -> None:
    """Write a fitted model to a file: weights as safetensors, the rest as JSON in its header.

    The file holds no code, no pickle and no training rows; of the data it has what prediction needs:
    column names, centres, scales, quantiles and category levels. An ``encoder`` of your own is saved as
    weights only: pass the module to `load`. A ``random_state`` that is not a number is not kept.

    The file is written under a temporary name beside the target and takes its place when it is whole: an older file
    stays as it was if anything fails.

    Raises
    ------
    OSError
        The target is a folder or read-only, its folder is missing or takes no file, or the disk is full.
    """
    from safetensors.torch import save_file
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    check_writable(path)
    text, tensors = _contents(model)
    parse_json(text)  # what could not be read again is not written
    with replacing(path) as partial:
        # the digest is a tensor: safetensors writes several header entries in no fixed order, and a file should not
        # depend on chance
        digest = torch.frombuffer(bytearray(checksum(text, tensors)), dtype=torch.uint8)
        with system_errors(path):
            save_file(tensors | {_DIGEST: digest}, str(partial), metadata={_KEY: text})


def model_digest(model: Any) -> str:
    """The SHA-256 digest that a file of this model holds, in hexadecimal: the same for a model that was read."""
    return checksum(*_contents(model)).hex()


def _contents(model: Any) -> tuple[str, dict[str, Tensor]]:
    """What a file holds of a model: its description as JSON, and its tensors."""
    own, tensors = _describe(model)
    text = json.dumps({"format": _FORMAT, "version": __version__, **own}, default=_plain, allow_nan=False)
    # copies: the parts of a mixture may share what they know of their rows
    return text, {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}


def _describe(model: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a file says of a model, and its tensors; the estimators of a mixture are described one by one.

    Of a search the file keeps what it predicts with.
    """
    model = getattr(model, "best_estimator_", model)
    parameters = model.get_params(deep=False)
    has_encoder = parameters.pop("encoder", None) is not None
    if callable(parameters.get("verbose")):
        parameters["verbose"] = False
    if not isinstance(parameters.get("random_state"), (int, np.integer, type(None))):
        parameters["random_state"] = None
    fitted, tensors = model._state()
    described = {"estimator": type(model).__name__, "parameters": parameters, "encoder": has_encoder, "fitted": fitted}
    parts = model._parts()
    if parts:
        described["default"] = parameters.get("estimator") is None
        described["parts"] = []
        parameters = {name: value for name, value in parameters.items() if not _holds_estimators(value)}
        described["parameters"] = {name: value for name, value in parameters.items() if name != "estimator"}
        for i, part in enumerate(parts):
            own, more = _describe(part)
            described["parts"].append(own)
            tensors |= {f"{PART}{i}.{name}": value for name, value in more.items()}
    return described, tensors


def _holds_estimators(value: Any) -> bool:
    several = isinstance(value, (list, tuple))
    return any(hasattr(part, "_state") for part in (value if several else [value]))


def read_model_file(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description and the tensors of a file, once its header, checksum and format were checked."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"There is no model file {path}.")
    _check_header(path)
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            if _KEY not in metadata:
                raise ModelFileError(f"{path} is a safetensors file, but not one that sumosurv wrote.")
            # copies: a file that is mapped into memory could still change
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, RuntimeError) as error:
        raise ModelFileError(f"{path} is not a model file, or is truncated ({error}).") from None
    text = metadata[_KEY]
    digest = tensors.pop(_DIGEST, torch.zeros(0, dtype=torch.uint8))
    if digest.dtype != torch.uint8 or digest.numpy().tobytes() != checksum(text, tensors):
        raise ModelFileError(f"{path} was changed after it was written: its checksum does not match.")
    try:
        description = parse_json(text)
    except ValueError as error:
        raise ModelFileError(f"{path} has a damaged description ({error}).") from None
    _check_format(path, description)
    return description, tensors


def _check_header(path: Path) -> None:
    """Raise a ModelFileError if the table of contents cannot be that of a model; no tensor is read for that."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(_LONGEST_HEADER, path.stat().st_size - 8):
                raise ValueError("it has no header")
            header = parse_json(file.read(length))
        for name, entry in header.items():
            if name != "__metadata__" and (len(name) > _LONGEST_NAME or not entry["shape"]):
                raise ValueError(f"no tensor of a model is named or shaped as {name[:50]!r}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(f"{path} is not a model file, or is truncated ({error}).") from None


def _check_format(path: Path, description: Any) -> None:
    if not isinstance(description, dict) or not isinstance(description.get("format"), int) or description["format"] < 1:
        raise ModelFileError(f"{path} has no description that sumosurv understands.")
    found = f"{path} has file format {description['format']} (written by sumosurv {description.get('version')!s:.20})"
    if description["format"] < _FORMAT:
        raise ModelFileError(
            f"{found}, which this version no longer reads; it reads format {_FORMAT}. Fit the model again."
        )
    if description["format"] > _FORMAT:
        raise ModelFileError(f"{found}; this version reads {_FORMAT}. Upgrade sumosurv.")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"A model with a {type(value).__name__} among its parameters cannot be saved: {value!r}.")
