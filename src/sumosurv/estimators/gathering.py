"""Results of blocks of rows gathered in one array of the host, while the device goes on with the next block."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["Gathered", "ResultType", "check_result"]

ResultType = Literal["float64", "float32"]
Copy = Callable[[Tensor], tuple[Tensor, Callable[[], None]]]

_IN_FLIGHT = 2  # blocks whose copies may be under way


def check_result(out: Any, dtype: Any, shape: tuple[int, ...]) -> npt.NDArray[Any] | None:
    """The array to be filled, or None; an error says what is wrong with what was asked for."""
    if dtype not in ("float64", "float32"):
        raise ValueError(f"dtype is 'float64' or 'float32'; got {dtype!r}.")
    if out is None:
        return None
    wanted = f"out is a writable, contiguous array of float64 or float32 and shape {shape}"
    if not isinstance(out, np.ndarray):
        raise ValueError(f"{wanted}; got {type(out).__name__}.")
    right = out.shape == shape and out.dtype in (np.float64, np.float32)
    if not right or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(f"{wanted}; got {out.dtype} of shape {out.shape}.")
    return out


def start_copy(values: Tensor) -> tuple[Tensor, Callable[[], None]]:
    """A copy in pinned memory that is under way, and what to call to wait for it."""
    staged = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    staged.copy_(values, non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()
    return staged, copied.synchronize


class Gathered:
    """An array of the host, (rows, ...), that takes results of slices of its rows from any device.

    Copies from a device go through pinned memory and are not waited for until there are several of them.

    Parameters
    ----------
    n : int
        The number of rows.
    dtype : {"float64", "float32"}
        Of the array, where it is made.
    out : ndarray, optional
        The array to fill.
    copy : callable
        What starts the copy of a device's tensor: to a tensor of the host, and what to call to wait for it.
    """

    def __init__(
        self, n: int, dtype: ResultType = "float64", out: npt.NDArray[Any] | None = None, copy: Copy | None = None
    ) -> None:
        self._n, self._dtype, self._array = n, dtype, out
        self._copy: Copy = start_copy if copy is None else copy
        self._under_way: deque[tuple[slice, Tensor, Callable[[], None]]] = deque()

    def put(self, rows: slice, part: Any) -> None:
        """Take the result of some rows."""
        values = torch.as_tensor(part).detach()
        if self._array is None:
            self._array = np.empty((self._n, *values.shape[1:]), dtype=self._dtype)
        if self._copy is start_copy and values.device.type == "cpu":
            self._write(rows, values)
            return
        self._under_way.append((rows, *self._copy(values)))
        if len(self._under_way) > _IN_FLIGHT:
            self._finish_first()

    def array(self) -> npt.NDArray[Any]:
        """The whole, when all rows were put."""
        while self._under_way:
            self._finish_first()
        assert self._array is not None
        return self._array

    def _finish_first(self) -> None:
        rows, values, wait = self._under_way.popleft()
        wait()
        self._write(rows, values)

    def _write(self, rows: slice, values: Tensor) -> None:
        assert self._array is not None
        torch.from_numpy(self._array)[rows].copy_(values)  # changes the precision on the way
