"""Docstrings and pages state the defaults that functions and classes have."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import numpy as np
import pytest

import sumosurv
from sumosurv.estimators import METHODS, SumoNet
from sumosurv.fitting.settings import NetworkMethod

ROOT = Path(__file__).parents[1]


def public_callables():
    """Public functions, classes and methods by their names."""
    modules = [sumosurv] + [
        import_module(f"sumosurv.{part.name}") for part in iter_modules(sumosurv.__path__) if part.name[0] != "_"
    ]
    found = {}
    for module in modules:
        for name in getattr(module, "__all__", ()):
            made = getattr(module, name)
            if inspect.isclass(made):
                methods = ((key, getattr(part, "__func__", part)) for key, part in vars(made).items() if key[0] != "_")
                found |= {f"{name}.{key}": method for key, method in methods if inspect.isfunction(method)}
            if inspect.isfunction(made) or (inspect.isclass(made) and not issubclass(made, Exception)):
                found[name] = made
    return found


CALLABLES = public_callables()


def is_plain(value):
    """Whether a default can be written in a docstring: a number, True or False, or a few numbers."""
    if isinstance(value, tuple):
        return len(value) > 0 and all(type(part) in (int, float) for part in value)
    return isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)


def described(function):
    """Parameters with a description, and the default that it states (None without one)."""
    described = {}
    parameters = inspect.signature(function).parameters
    text = re.split(r"^(?:Returns|Notes|Examples|Raises)\n-+$", inspect.getdoc(function) or "", flags=re.MULTILINE)[0]
    for names, kind in re.findall(r"^(\w+(?:, \w+)*) : (.*)$", text, flags=re.MULTILINE):
        stated = re.search(r", default (.+)$", kind)
        values = [] if stated is None else stated[1].split(" and ")
        for i, name in enumerate(names.split(", ")):
            if name in parameters:
                described[name] = ast.literal_eval(values[min(i, len(values) - 1)]) if values else None
    return described


@pytest.mark.parametrize("name", sorted(CALLABLES))
def test_defaults_are_those_of_the_docstring(name):
    stated = described(CALLABLES[name])
    defaults = {key: part.default for key, part in inspect.signature(CALLABLES[name]).parameters.items()}
    plain = {key: defaults[key] for key in stated if is_plain(defaults[key])}
    assert repr({key: stated[key] for key in plain}) == repr(plain)


def test_defaults_of_networks_are_those_of_the_page():
    """docs/methods.md has a column for most networks, and columns for those that differ."""
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    heading, _, *lines = page[page.index("| setting | most network methods |") :].split("\n\n")[0].splitlines()
    columns = [re.findall(r"`(\w+)`", cell) for cell in heading.strip("|").split("|")[1:]]
    for name, method in METHODS.items():
        if not issubclass(method, NetworkMethod) or method is SumoNet:
            continue
        column = next((i for i, names in enumerate(columns) if name in names), 0)
        for line in lines:
            setting, *values = (cell.strip().strip("`") for cell in line.strip("|").split("|"))
            default = inspect.signature(method).parameters[setting].default
            if setting not in described(method):
                assert ast.literal_eval(values[column]) == default, f"{setting} of {name}"
