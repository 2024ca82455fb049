"""The method that was asked for, and its settings."""

from __future__ import annotations

import argparse
import ast
from typing import Any

from sumosurv.estimators import METHODS, SurvivalEstimator

__all__ = ["method_of", "settings_of"]

_OPTIONS = {  # options that are settings by another name
    "n_members": "--n-members",
    "max_epochs": "--max-epochs",
    "variant": "--variant",
    "refit": "--refit",
    "device": "--device",
}


def method_of(arguments: argparse.Namespace) -> type[SurvivalEstimator]:
    """The class of --method, by its name in any case."""
    known = {name.lower(): name for name in METHODS if not _made_of_others(METHODS[name])}
    name = known.get(arguments.method.lower())
    if name is None:
        listed = ", ".join(sorted(known.values()))
        also = arguments.method if arguments.method in METHODS else None
        what = f"{also} is made of other estimators, in Python" if also else f"There is no method {arguments.method!r}"
        raise ValueError(f"{what}; --method is one of {listed}.")
    return METHODS[name]


def settings_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings of that method: those of --set, and options that are settings by another name."""
    method = method_of(arguments)
    known = method().get_params(deep=False)
    settings: dict[str, Any] = {}
    for name, option in _OPTIONS.items():
        value = getattr(arguments, name, None)
        if value is None or value is False:
            continue
        if name not in known:
            raise ValueError(f"{method.__name__} has no setting {name}; leave out {option}.")
        settings[name] = value
    for name, value in (("random_state", arguments.seed), ("verbose", not arguments.quiet)):
        if name in known:
            settings[name] = value
    for name, text in arguments.set:
        if name not in known:
            raise ValueError(f"{method.__name__} has no setting {name!r}; it has {', '.join(sorted(known))}.")
        settings[name] = _value(text)
    return settings


def _made_of_others(method: type[SurvivalEstimator]) -> bool:
    return bool({"estimator", "estimators"} & set(method._get_param_names()))


def _value(text: str) -> Any:
    """A number, a list, None, True or False as Python writes them; else text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
