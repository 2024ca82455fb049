"""The tensors of a network out of a model file: compared with what the network must have before it is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from sumosurv.stored import check_values

__all__ = ["check_weights", "filled", "with_growth"]

_Network = TypeVar("_Network", bound=nn.Module)


def check_weights(sketch: nn.Module, members: int, weights: Mapping[str, Tensor]) -> None:
    """Raise a ValueError unless the tensors are those of a population of such networks, and finite.

    Parameters
    ----------
    sketch : nn.Module
        The network with one member; its weights are not looked at.
    members : int
        K: parameters have a leading axis of K, buffers one of K or of 1.
    weights : mapping
        By the names of the network's state. Axes of a buffer that have no length before a fit may have any.
    """
    expected, parameters = sketch.state_dict(), dict(sketch.named_parameters())
    odd = sorted(expected.keys() ^ weights.keys())
    if odd:
        raise ValueError(f"these tensors are missing, or too many: {', '.join(odd[:5])[:200]}")
    for name, like in expected.items():
        value, own = weights[name], name in parameters
        dtype = like.dtype if not like.is_floating_point() else torch.float32 if own else torch.float64
        first = value.ndim > 0 and value.shape[0] in ({members} if own else {members, 1})
        rest = value.ndim == like.ndim and all(
            a == b or (a == 0 and not own) for a, b in zip(like.shape[1:], value.shape[1:])
        )
        if value.dtype != dtype or not (first and rest):
            wanted = f"{dtype} of shape {(members, *like.shape[1:])}"
            raise ValueError(f"{name} is {value.dtype} of shape {tuple(value.shape)} and not {wanted}")
        check_values(value, name)


def with_growth(sketch: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a file from before the growth of the tail was learned: a constant hazard past the last time."""
    known = {name: value for name, value in sketch.state_dict().items() if name.rpartition(".")[2] == "growth"}
    return known | dict(weights)


def filled(network: _Network, weights: Mapping[str, Tensor]) -> _Network:
    """A network with checked tensors for its own."""
    for name, buffer in list(network.named_buffers()):
        if name in weights and weights[name].shape != buffer.shape:  # tables whose size depends on the data
            owner, _, leaf = name.rpartition(".")
            setattr(network.get_submodule(owner), leaf, torch.empty_like(weights[name]))
    network.load_state_dict(dict(weights), strict=True)
    members = int(next(network.parameters()).shape[0])
    for module in network.modules():
        if (check := getattr(module, "check_stored", None)) is not None:
            check(members)
    return network
