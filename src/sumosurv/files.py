"""Writing files whole: a reader of the target finds the old content or the new, never half of one."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_writable(path: str | Path) -> None:
    """Raise an OSError that names the path if no file can be written there; to be called before long work.

    Nothing is changed and nothing left behind.
    """
    target, mode = _target(path)
    if mode is None or stat.S_ISREG(mode):
        _new_file(target.parent, "").unlink()


def check_apart(path: str | Path, *inputs: str | Path | None) -> None:
    """Raise a ValueError if a file to be written would replace what is read, or become a part of it.

    ``inputs`` are files and folders of Parquet files; what does not exist is passed over.
    """
    target = Path(os.path.realpath(path))
    for read in (Path(given) for given in inputs if given is not None):
        if target.exists() and read.exists() and target.samefile(read):
            raise ValueError(f"{path} is also an input file ({read}); choose another output file.")
        if read.is_dir() and is_parquet(target) and target.is_relative_to(os.path.realpath(read)):
            raise ValueError(f"{path} is inside the input folder {read}; choose an output file elsewhere.")


def is_parquet(path: Path) -> bool:
    """Whether a path names a Parquet file."""
    return path.suffix.lower() in (".parquet", ".pq")


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Write to a temporary file beside the target, which takes the target's place when the block ends well.

    Its name is unique and has the target's suffix. Two writers of one path both succeed, and the last one wins. When
    the block fails, the target stays as it was and the temporary file is removed. A target that is a link is
    followed; a device or a pipe gets the whole content at the end. Raises OSError as `check_writable` before the block.
    """
    target, mode = _target(path)
    regular = mode is None or stat.S_ISREG(mode)
    partial = _new_file(target.parent if regular else Path(tempfile.gettempdir()), target.suffix)
    try:
        permissions = stat.S_IMODE(partial.stat().st_mode if mode is None else mode)
        yield partial
        if regular:
            partial.chmod(permissions)  # some writers make their file private
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            partial.replace(target)
        else:
            with partial.open("rb") as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def system_errors(path: str | Path) -> Iterator[None]:
    """Turn errors of safetensors while it writes, such as a full disk, into an OSError that names the path."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:  # it tells the number of the system's error
        number = re.search(r"(?:os error |code: )(\d+)", str(error))
        if number is None:
            raise OSError(f"{path} could not be written: {error}") from None
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None


def _target(path: str | Path) -> tuple[Path, int | None]:
    """The file behind a path, links followed, and its mode if it exists; an OSError if it cannot be replaced."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"The folder {target.parent} does not exist; create it, or choose another path for {target.name}."
        )
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return target, None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path} is a folder; choose a file to write to.")
    if not (mode & 0o222 and os.access(target, os.W_OK)):
        raise PermissionError(f"{path} is read-only; choose another output file.")
    return target, mode


def _new_file(folder: Path, suffix: str) -> Path:
    """Create an empty file with a unique name and the default permissions of the user."""
    path = folder / f".sumosurv-{secrets.token_hex(8)}{suffix[:20]}"
    try:
        path.touch(mode=0o666, exist_ok=False)
    except OSError as error:
        raise type(error)(error.errno, f"{error.strerror}: no file can be written here", str(folder)) from None
    return path
