"""Which networks train together: those whose tensors have one shape, or can be padded to it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

from sumosurv.estimators.network import NetworkEstimator
from sumosurv.search.jobs import Job, TrialMember, frozen
from sumosurv.training import find_device

__all__ = ["Group", "Shapes", "Way", "Widths", "cheaper_way", "group_members"]

Way = Literal["padded", "grouped"]
Shapes = Literal["auto"] | Way
Widths = Mapping[str, tuple[int, ...]]  # of padded networks, by the name of the setting; empty: not padded
Group = tuple[Widths, list[TrialMember]]

# of a training step whatever its size, per weight (the optimiser), and per weight and row: measured on a laptop-size
# CPU core and on an H200, good enough to choose between two ways of grouping
_SECONDS = {"cpu": (3e-3, 1e-8, 5e-10), "cuda": (8e-4, 5e-12, 1e-12)}


def group_members(members: Sequence[TrialMember], jobs: Sequence[Job], way: Way, widest: Widths) -> list[Group]:
    """Members that can train together, and the widths to which they are padded."""
    groups: dict[Hashable, Group] = {}
    for member in members:
        settings = jobs[member.job].settings(member.parameters)
        widths = widest if way == "padded" and _fits(settings, widest) else {}
        groups.setdefault(_in_common(settings, widths), (widths, []))[1].append(member)
    return list(groups.values())


def cheaper_way(members: Sequence[TrialMember], jobs: Sequence[Job], widest: Widths) -> Way:
    """Which way to group costs less: a step has a price of its own, and padding multiplies with zeros."""
    ways: tuple[Way, Way] = ("padded", "grouped")
    return min(ways, key=lambda way: sum(_seconds(group, jobs) for group in group_members(members, jobs, way, widest)))


def _seconds(group: Group, jobs: Sequence[Job]) -> float:
    """About how many seconds an epoch of a group takes."""
    widths, members = group
    job, first = jobs[members[0].job], members[0]
    device = find_device(job.estimator.device).type
    step, per_weight, per_product = _SECONDS.get(device, _SECONDS["cpu"])
    rows = len(first.train_rows)
    batch = min(rows, job.settings(first.parameters).schedule(rows).batch_size)
    shapes: Any = job.shapes({**first.parameters, **widths})
    weights = float(sum(math.prod(shape) for _, shape in shapes))
    return math.ceil(rows / batch) * (step + len(members) * weights * (per_weight + per_product * batch))


def _fits(settings: NetworkEstimator, widest: Widths) -> bool:
    """Whether this network can be a corner of the widest one: all its layers of one width, no encoder of its own."""
    if settings.encoder is not None:
        return False
    for name, limit in widest.items():
        widths = tuple(settings.setting(name))
        if len(set(widths)) != 1 or len(widths) > len(limit) or widths[0] > min(limit):
            return False
    return True


def _in_common(settings: NetworkEstimator, widths: Widths) -> Hashable:
    """What members of one population must have in common."""
    own = {*settings.member_settings, "random_state", "n_members", *(settings.padded_settings if widths else ())}
    return frozen({k: v for k, v in settings.get_params(deep=False).items() if k not in own}), bool(widths)
