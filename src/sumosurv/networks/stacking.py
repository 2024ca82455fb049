"""Networks of different widths and depths as one population: narrow layers are padded, missing layers skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from sumosurv.networks.encoders import TableEncoder
from sumosurv.networks.layers import MemberDropout, MemberLinear, select_members
from sumosurv.networks.monotone import MixedNetwork

_Network = TypeVar("_Network", bound=nn.Module)

_NO_WEIGHT = {"square": 0.0, "abs": 0.0, "softplus": -1e4}  # raw values whose non-negative image is zero


def stack_members(parts: Sequence[_Network], template: _Network) -> _Network:
    r"""Combine the members of several networks of one class into one population.

    ``template`` is a network of the same class, at least as wide and as deep as each part; it becomes the
    population. Padded units have zero incoming and outgoing weights. Their activation is zero (every activation
    function used here maps 0 to 0), so the gradients of their weights are zero, and weight decay keeps them at zero:
    padded units have no effect at any stage of training. Missing layers are skipped (``active``). All layers of a
    part must have the same width.

    Buffers that are equal in all parts stay shared. All others, and buffers with one number per member (seeds,
    dropout rates), get one entry per member.
    """
    members = [next(part.parameters()).shape[0] for part in parts]
    total = sum(members)
    last = _last_columns(template)
    fills = _fills(template)
    own = [dict(part.named_parameters()) for part in parts]
    with torch.no_grad():
        for name, wide in template.named_parameters():
            stacked = wide.new_full((total, *wide.shape[1:]), fills.get(name, 0.0))
            place = 0
            for count, tensors in zip(members, own):
                if name in tensors:
                    _put(stacked[place : place + count], tensors[name].data, last.get(name, 0))
                place += count
            wide.data = stacked
    _stack_buffers(parts, template, members)
    _mark_layers(parts, template, members)
    return template


def unstack_members(network: _Network, members: Sequence[int]) -> _Network:
    """Return some members of a stacked population; buffers that are equal for all of them become shared again."""
    chosen = select_members(network, list(members))
    count = len(members)
    for name, buffer in list(chosen.named_buffers()):
        per_member = name.rpartition(".")[2] in ("active", "seeds", "rates")
        if buffer.ndim >= 2 and len(buffer) == count > 1 and not per_member and bool((buffer == buffer[:1]).all()):
            _set_buffer(chosen, name, buffer[:1].clone())
    return chosen


def extract_members(network: nn.Module, members: Sequence[int], narrow: _Network) -> _Network:
    """Undo stacking for members of one shape: copy their weights into ``narrow``, a network of that shape.

    Buffers of ``narrow`` do not change.
    """
    last = _last_columns(network)
    rows = list(members)
    wide = dict(network.named_parameters())
    with torch.no_grad():
        for name, p in narrow.named_parameters():
            source, n_last = wide[name].data[rows], last.get(name, 0)
            corner = tuple(slice(0, size) for size in (len(rows), *p.shape[1:]))
            value = source[corner]
            if n_last:
                value = torch.cat([source[corner][..., : p.shape[-1] - n_last], source[..., -n_last:][corner[:-1]]], -1)
            p.data = value.clone()
    return narrow


def _last_columns(network: nn.Module) -> dict[str, int]:
    """Return ``n_last`` of each parameter by name."""
    return {
        f"{name}.{leaf}": module.n_last
        for name, module in network.named_modules()
        if isinstance(module, MemberLinear)
        for leaf in ("weight", "bias")
    }


def _put(target: Tensor, value: Tensor, n_last: int) -> None:
    """Copy a smaller tensor into the corner of a larger one, its last ``n_last`` columns to the end."""
    corner = tuple(slice(0, size) for size in value.shape)
    if n_last == 0:
        target[corner] = value
        return
    target[(*corner[:-1], slice(0, value.shape[-1] - n_last))] = value[..., :-n_last]
    target[(*corner[:-1], slice(-n_last, None))] = value[..., -n_last:]


def _fills(template: nn.Module) -> dict[str, float]:
    """Return the raw value of padded weights for each parameter that is made non-negative, by name."""
    fills: dict[str, float] = {}
    for name, module in template.named_modules():
        if isinstance(module, MixedNetwork):
            prefix = f"{name}." if name else ""
            for leaf, _ in module.named_parameters():
                if leaf in ("time_weight", "out_weight") or leaf.startswith("weights."):
                    fills[prefix + leaf] = _NO_WEIGHT[module.positive]
    return fills


def _stack_buffers(parts: Sequence[nn.Module], template: nn.Module, members: Sequence[int]) -> None:
    # with duplicates: the dropout layers of a network may share one tensor
    names = [name for name, buffer in template.named_buffers(remove_duplicate=False) if buffer.ndim]
    own = [dict(part.named_buffers(remove_duplicate=False)) for part in parts]
    for name in names:
        if name.rpartition(".")[2] == "active":
            continue
        # the dropout of a missing layer can have any value, because its output is not used
        spare = next(tensors[name] for tensors in own if name in tensors) if any(name in o for o in own) else None
        if spare is None:
            continue
        values = [tensors.get(name, spare) for tensors in own]
        first = values[0]
        if first.ndim > 1 and len(first) == 1 and all(len(v) == 1 and torch.equal(v, first) for v in values):
            _set_buffer(template, name, first.clone())
            continue
        rows = [v if len(v) == count else v[:1].expand(count, *v.shape[1:]) for v, count in zip(values, members)]
        _set_buffer(template, name, torch.cat(rows))
    for module in template.modules():
        if isinstance(module, MemberDropout):
            module.update_rates()


def _mark_layers(parts: Sequence[nn.Module], template: nn.Module, members: Sequence[int]) -> None:
    """Fill ``active`` if depths differ."""
    for name, module in template.named_modules():
        if not isinstance(module, (TableEncoder, MixedNetwork)):
            continue
        depths = [_depth(part.get_submodule(name)) for part in parts]
        deepest = _depth(module)
        if all(depth == deepest for depth in depths):
            continue
        has = torch.arange(deepest)[None, :] < torch.tensor(depths).repeat_interleave(torch.tensor(members))[:, None]
        module.active = has.to(module.active.device)


def _depth(module: nn.Module) -> int:
    return len(module.layers) if isinstance(module, TableEncoder) else len(module.weights) + 1  # type: ignore[arg-type]


def _set_buffer(network: nn.Module, name: str, value: Tensor) -> None:
    owner, _, leaf = name.rpartition(".")
    setattr(network.get_submodule(owner), leaf, value)
