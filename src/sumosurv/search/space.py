"""Search spaces, and drawing settings from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from scipy import stats

from sumosurv.estimators.network import NetworkEstimator
from sumosurv.outcome import check_outcome

Space = Mapping[str, Any]  # a parameter's name: a list of choices, or a frozen distribution of scipy.stats

_SHARED = 0.005  # share of rows with the smallest time from which it is taken for the earliest possible time
_LARGE = 100_000  # rows from which the paper's space for large data applies
# settings that do not describe a network, or that make scores incomparable
_NOT_SEARCHED = (
    "components", "n_members", "random_state", "refit", "device", "n_jobs", "verbose", "max_epochs", "patience",
)  # fmt: skip


def _layers(depths: tuple[int, ...], widths: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [(width,) * depth for depth in depths for width in widths]


def paper_space(estimator: NetworkEstimator, y: Any) -> dict[str, Any]:
    """The space of the paper's appendix (small data, or KKBOX), restricted to settings that the estimator has."""
    large = len(check_outcome(y)) >= _LARGE
    space: dict[str, Any] = {
        "covariate_layers": _layers((4, 6, 8), (128, 256, 512)) if large else _layers((1, 2, 4, 5), (8, 16, 32)),
        "time_layers": _layers((1, 2, 4), (8, 16, 32, 64)) if large else _layers((1, 2, 4, 5), (8, 16, 32)),
        "dropout": stats.uniform(0.0, 0.7) if large else [0.0, 0.1, 0.2, 0.3, 0.4, 0.5],
        "weight_decay": [0.4, 0.2, 0.1, 0.05, 0.02, 0.01, 0.0],
        "batch_size": [1000, 2500, 5000] if large else [5, 10, 25, 50, 100, 250],
    }
    return _those_of(estimator, space)


def recipe_space(estimator: NetworkEstimator, y: Any) -> dict[str, Any]:
    """Settings close to the defaults, which give similar likelihoods but different networks for a mixture.

    It includes ``time_origin`` if many rows share the smallest time, which suggests that no event can occur earlier.
    """
    space: dict[str, Any] = {
        "covariate_layers": _layers((1, 2, 3), (32, 64, 96)),
        "time_layers": _layers((1, 2, 3), (16, 32)),
        "dropout": stats.uniform(0.3, 0.35),
        "weight_decay": stats.loguniform(0.02, 0.5),
        "learning_rate": stats.loguniform(0.006, 0.03),
        "frequencies": [4, 12],
        "alpha": [0.2, 0.6, 1.0],
    }
    time = check_outcome(y).time
    first = float(time.min())
    if first > 0 and (time == first).mean() >= _SHARED:
        space["time_origin"] = ["zero", "first"]
    return _those_of(estimator, space)


def default_space(space: Space | Literal["paper", "recipe"], estimator: NetworkEstimator, y: Any) -> Space:
    """A space by its name; a mapping is checked and returned with hashable choices."""
    if isinstance(space, str):
        makers = {"paper": paper_space, "recipe": recipe_space}
        if space not in makers:
            raise ValueError(f"space must be 'paper', 'recipe' or a mapping; got {space!r}.")
        return makers[space](estimator, y)
    if not isinstance(space, Mapping):
        raise ValueError(f"space must be 'paper', 'recipe' or a mapping; got {space!r}.")
    known = estimator.get_params(deep=False)
    for name, choices in space.items():
        if name not in known:
            raise ValueError(f"{type(estimator).__name__} has no parameter {name!r}; it has {', '.join(known)}.")
        if name in _NOT_SEARCHED:
            raise ValueError(f"{name!r} is not searched over; set it on the estimator or on the search.")
        if not hasattr(choices, "rvs") and (isinstance(choices, str) or not np.iterable(choices) or not list(choices)):
            raise ValueError(
                f"{name!r} needs a list of choices or a frozen distribution of scipy.stats; got {choices!r}."
            )
    if not space:
        raise ValueError("The space is empty; name at least one parameter.")
    return {
        name: choices if hasattr(choices, "rvs") else [tuple(c) if isinstance(c, list) else c for c in choices]
        for name, choices in space.items()
    }


def draw(space: Space, seed: int, number: int) -> dict[str, Any]:
    """The point of the space that belongs to a trial's number: values, or places in a list of choices.

    It depends on the seed and the number alone, not on the process that draws it. `decode` gives its settings.
    """
    random = np.random.RandomState(np.random.MT19937(trial_seeds(seed, number)))
    point = {}
    for name in sorted(space):  # independent of the order of the mapping
        choices = space[name]
        value = choices.rvs(random_state=random) if hasattr(choices, "rvs") else random.randint(len(choices))
        point[name] = value.item() if isinstance(value, np.generic) else value
    return point


def decode(space: Space, point: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a point, in the order of the space."""
    return {
        name: point[name] if hasattr(choices, "rvs") else list(choices)[point[name]] for name, choices in space.items()
    }


def trial_seeds(seed: int, number: int) -> np.random.SeedSequence:
    """The seed sequence of a trial, from the study's seed and the trial's number."""
    return np.random.SeedSequence(seed, spawn_key=(number,))


def widest_layers(space: Space, estimator: NetworkEstimator) -> dict[str, tuple[int, ...]]:
    """The widths to which the networks of a space can be padded, for each setting of layers that it searches."""
    widest = {}
    for name in estimator._padded_settings:
        if name in space and not hasattr(space[name], "rvs"):
            choices = [tuple(choice) for choice in space[name]]
            if all(choices):
                depth, width = max(map(len, choices)), max(max(choice) for choice in choices)
                widest[name] = (width,) * depth
    return widest


def _those_of(estimator: NetworkEstimator, space: dict[str, Any]) -> dict[str, Any]:
    known = estimator.get_params(deep=False)
    return {name: choices for name, choices in space.items() if name in known}
