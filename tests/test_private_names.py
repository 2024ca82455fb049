"""A name that begins with an underscore belongs to its package: no other package uses it.

The exception is the machinery behind the estimators. The hooks of estimators are private to users, and shared by the
packages of the library that fit, search, store and export models.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path

import sumosurv

ROOT = Path(sumosurv.__file__).parent
PAPER = ROOT.parent.parent / "paper"
SHARED = {"estimators", "fitting"}  # whose private names other packages of the library may use


@dataclass
class Package:
    """What a package defines and uses: names by where, and its classes with their bases."""

    defined: set[str] = field(default_factory=set)
    used: list[tuple[str, str, str]] = field(default_factory=list)  # (name, where, enclosing class)
    bases: dict[str, set[str]] = field(default_factory=dict)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


class Walker(ast.NodeVisitor):
    def __init__(self, package: Package, where: str) -> None:
        self.package, self.where, self.classes = package, where, []

    def visit_ClassDef(self, node):
        names = {base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in node.bases}
        self.package.bases[node.name] = names
        self.package.defined.add(node.name)
        self.classes.append(node.name)
        for part in node.body:  # fields and class attributes
            if isinstance(part, (ast.AnnAssign, ast.Assign)):
                targets = [part.target] if isinstance(part, ast.AnnAssign) else part.targets
                self.package.defined.update(t.id for t in targets if isinstance(t, ast.Name))
        self.generic_visit(node)
        self.classes.pop()

    def visit_FunctionDef(self, node):
        self.package.defined.add(node.name)
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Store):
            self.package.defined.add(node.id)

    def visit_Attribute(self, node):
        if is_private(node.attr):
            if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self":
                self.package.defined.add(node.attr)
            else:
                self.use(node.attr, node.lineno)
        self.generic_visit(node)

    def visit_Call(self, node):
        """getattr(x, "_name") and the like."""
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr", "hasattr", "delattr"):
            for part in node.args[1:2]:
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and is_private(part.value):
                    self.use(part.value, node.lineno)
        self.generic_visit(node)

    def visit_ImportFrom(self, node):
        if (node.module or "").split(".")[0] in ("sumosurv", "paper"):
            for name in [*(node.module or "").split("."), *(alias.name for alias in node.names)]:
                if is_private(name):
                    self.use(name, node.lineno)

    def use(self, name, line):
        self.package.used.append((name, f"{self.where}:{line}", self.classes[-1] if self.classes else ""))


def walk(sources: dict[str, list[tuple[str, str]]]) -> dict[str, Package]:
    """Packages by name, from (where, source) pairs."""
    found: dict[str, Package] = {}
    for name, files in sources.items():
        package = found.setdefault(name, Package())
        for where, text in files:
            package.defined.add(Path(where).stem)
            Walker(package, where).visit(ast.parse(text))
    return found


def trespassers(packages: dict[str, Package]) -> list[str]:
    """Uses of names that only other packages define; a subclass may use the hooks of its base's package."""
    home = {cls: name for name, package in packages.items() for cls in package.bases}
    wrong = []
    for name, package in packages.items():
        for used, where, cls in package.used:
            owners = {other for other, theirs in packages.items() if used in theirs.defined}
            owners.discard(used)  # a module at the top, such as _version, is everybody's
            if used in package.defined or not owners or (owners & SHARED and name != "paper"):
                continue
            if not owners & ancestors(cls, packages, home):
                wrong.append(f"{where} uses {used} of {', '.join(sorted(owners))}")
    return wrong


def ancestors(cls: str, packages: dict[str, Package], home: dict[str, str]) -> set[str]:
    """Packages of the classes from which a class is derived."""
    result, waiting = set(), [cls]
    while waiting:
        one = waiting.pop()
        if one in home:
            result.add(home[one])
            waiting += packages[home[one]].bases[one]
    return result


def sources() -> dict[str, list[tuple[str, str]]]:
    result: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        part = path.relative_to(ROOT).parts
        name = part[0].removesuffix(".py")
        result.setdefault(name, []).append((str(path.relative_to(ROOT.parent)), path.read_text(encoding="utf-8")))
    for path in sorted(PAPER.rglob("*.py")):
        result.setdefault("paper", []).append((str(path.relative_to(PAPER.parent)), path.read_text(encoding="utf-8")))
    return result


def test_no_package_uses_the_private_names_of_another():
    wrong = trespassers(walk(sources()))
    assert not wrong, "\n".join(wrong)


def test_the_walker_sees_what_it_is_for():
    one = ("a.py", "class A:\n    def _hook(self): ...\n    def __init__(self): self._state = 1\ndef _helper(): ...\n")
    cases = {
        "from sumosurv.a import _helper": True,
        "from sumosurv.a._inner import helper": True,
        "def f(x): return x._state": True,
        "def f(x): return getattr(x, '_state')": True,
        "class B:\n    def f(self): return self._hook()": True,
        "class B(A):\n    def f(self): return self._hook()": False,
        "class B:\n    def _hook(self): ...\n    def f(self, x): return x._hook()": False,
        "def f(x): return x._like_nothing_here": False,
    }
    for text, expected in cases.items():
        assert bool(trespassers(walk({"a": [one, ("_inner.py", "")], "b": [("b.py", text)]}))) is expected, text
