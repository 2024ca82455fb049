"""Reading models from files."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from torch import Tensor

from sumosurv import estimators
from sumosurv._version import __version__
from sumosurv.stored import PART, ModelFileError, as_flag, as_list, model_digest, read_model_file, save

__all__ = ["ModelFileError", "load", "model_digest", "save"]


def load(path: str | Path, *, encoder: Any = None) -> Any:
    """Read a model file written by ``save``; its predictions equal those of the saved model.

    No code in a file is executed, and every value is checked before it is used. Reading takes memory of a small
    multiple of the file's size. The digest in a file is a checksum, not a signature: it does not show who made a model,
    or whether its predictions are sound.

    Parameters
    ----------
    path : path
    encoder : torch.nn.Module or callable, optional
        The module (or function that makes it) of a model that was fitted with an ``encoder``.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ModelFileError
        The file is truncated, corrupted, not a model file, or written by a newer version.
    """
    description, tensors = read_model_file(Path(path))
    return _rebuild(path, description, tensors, encoder)


def _rebuild(path: str | Path, description: dict[str, Any], tensors: dict[str, Tensor], encoder: Any) -> Any:
    """The inverse of `_describe`."""
    name = description.get("estimator")
    if not isinstance(name, str) or name not in estimators.METHODS:
        raise ModelFileError(
            f"{path} contains the estimator {name!r:.50}, which this version ({__version__}) does not support."
        )
    cls = estimators.METHODS[name]
    known = inspect.signature(cls).parameters
    try:
        parameters = {str(key): _tuples(value) for key, value in description["parameters"].items()}
        unknown = sorted(set(parameters) - set(known))
        if unknown:
            raise ModelFileError(f"{path} sets parameters that {name} does not have: {', '.join(unknown):.200}.")
        if description["encoder"] and encoder is None:
            raise ModelFileError(
                f"{path} was fitted with a custom encoder; pass it to load: load(path, encoder=MyModule())."
            )
        if encoder is not None and "encoder" in known:
            parameters["encoder"] = encoder
        parts = []
        if "parts" in description:
            described = as_list(description["parts"], "parts")
            both = zip(described, _by_part(tensors, len(described)))
            parts = [_rebuild(path, part, own, encoder) for part, own in both]
            parameters |= cls._settings_with(parts, as_flag(description.get("default", False), "default"))
        model = cls(**parameters)
        if parts:
            model._restore_parts(parts)
        model._check_settings()
        model._restore(description["fitted"], tensors)
    except (ModelFileError, MemoryError):
        raise
    except Exception as error:  # whatever it is, the file is at fault
        raise ModelFileError(f"{path} is not a valid {name}: {error!s:.500}") from error
    return model


def _by_part(tensors: dict[str, Tensor], count: int) -> list[dict[str, Tensor]]:
    """The tensors of each of a mixture's estimators."""
    parts: list[dict[str, Tensor]] = [{} for _ in range(count)]
    places = {f"{PART}{i}": part for i, part in enumerate(parts)}
    for name, value in tensors.items():
        owner, _, rest = name.partition(".")
        if owner in places:
            places[owner][rest] = value
    return parts


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
