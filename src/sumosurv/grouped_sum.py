"""Sums by group whose order does not change from one run to the next."""

from __future__ import annotations

from torch import Tensor


def add_by_group(total: Tensor, group: Tensor, values: Tensor) -> Tensor:
    """``total`` plus the values of each group along the last axis, in the same order every time.

    PyTorch's ``index_add`` takes any order on a GPU, so that last digits would differ from call to call.

    Parameters
    ----------
    total : Tensor of shape (..., groups)
    group : Tensor of shape (n,)
        The number of each value's group.
    values : Tensor of shape (..., n)

    Examples
    --------
    >>> import torch
    >>> add_by_group(torch.zeros(2), torch.tensor([0, 1, 1]), torch.tensor([1.0, 2.0, 3.0]))
    tensor([1., 5.])
    """
    if total.device.type == "cpu":
        return total.index_add(-1, group, values)
    summed = total.movedim(-1, 0).index_put((group,), values.movedim(-1, 0), accumulate=True)  # it sorts by group
    return summed.movedim(0, -1).contiguous()
