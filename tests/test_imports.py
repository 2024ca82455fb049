"""Imports go one way, and importing the package loads nothing that it may not need."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import sumosurv

ROOT = Path(sumosurv.__file__).parent

# A part may import from parts of a lower layer (and from itself). Two parts of one layer do not know each other.
LAYERS = {
    "warn": -1,
    "_version": 0,
    "files": 0,
    "confidence": 0,
    "grouped_sum": 0,
    "families": 0,
    "outcome": 0,
    "distributions": 1,
    "sources": 1,
    "spells": 1,
    "model_files": 1,
    "models": 2,
    "nonparametric": 2,
    "networks": 3,
    "scores": 3,
    "datasets": 3,
    "preprocessing": 4,
    "training": 4,
    "fitting": 5,
    "formulas": 5,
    "pipeline": 6,
    "streaming": 6,
    "estimators": 7,
    "calibrate": 8,
    "export": 8,
    "search": 8,
    "explain": 8,
    "plots": 9,
    "report": 10,
    "serve": 10,
    "cluster": 11,
    "cli": 12,
    "__init__": 13,
    "__main__": 13,
}

# What the layers would allow and the plan does not.
FORBIDDEN = {
    ("preprocessing", "scores"),
    ("preprocessing", "datasets"),
    ("training", "scores"),
    ("training", "datasets"),
    ("estimators", "datasets"),
    ("export", "datasets"),
    ("export", "scores"),
}

# Imports inside functions that close a cycle on purpose: (module, part it reaches up to or module beside it).
LAZY = {
    ("sumosurv.scores.censoring", "estimators"),  # whether censoring depends on x is tested by a Cox model
}


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def part_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imported(path: Path, module: str) -> list[tuple[str, bool]]:
    """Modules of the package that a file imports, and whether it does so inside a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lazy = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for inner in ast.walk(node)
    }
    result = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively (line {node.lineno}); write the whole name"
            base = node.module or ""
            names = [f"{base}.{alias.name}" if base == "sumosurv" else base for alias in node.names]
        else:
            continue
        result += [(name, id(node) in lazy) for name in names if name.split(".")[0] == "sumosurv"]
    return result


def test_every_part_has_a_layer():
    assert {part_of(module) for module in modules()} <= set(LAYERS)


def test_imports_go_downwards_only():
    wrong = []
    for module, path in modules().items():
        here = part_of(module)
        if here == "__init__":
            continue
        top = LAYERS[here] >= LAYERS["cli"]  # where the package may be used as users do
        for name, lazy in imported(path, module):
            there = part_of(name)
            allowed = there == here or (lazy and (module, there) in LAZY)
            if there not in LAYERS:  # a name of the package itself: from sumosurv import kaplan_meier
                if not top:
                    wrong.append(f"{module} imports {name}: take it from its own module, not from the package")
            elif not allowed and (LAYERS[there] >= LAYERS[here] or (here, there) in FORBIDDEN):
                wrong.append(f"{module} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_the_named_exceptions_are_still_needed():
    used = {
        (module, part_of(name)) for module, path in modules().items() for name, lazy in imported(path, module) if lazy
    }
    assert used >= LAZY


def test_no_cycles_among_modules_at_import_time():
    known = modules()
    graph = {}
    for module, path in known.items():
        names = {name for name, lazy in imported(path, module) if not lazy}
        graph[module] = {name for name in names if name in known and name != module and name != "sumosurv"}
    done, path_now = set(), []

    def visit(module):
        if module in done:
            return
        assert module not in path_now, " -> ".join([*path_now[path_now.index(module) :], module])
        path_now.append(module)
        for other in sorted(graph[module]):
            # a package's own __init__ gathers its modules, which import each other directly
            if not module.startswith(other + "."):
                visit(other)
        path_now.pop()
        done.add(module)

    for module in graph:
        if module != "sumosurv":
            visit(module)


def test_the_walker_sees_imports():
    names = dict(imported(known := modules()["sumosurv.estimators.base"], "sumosurv.estimators.base"))
    assert known.is_file()
    assert names["sumosurv.outcome"] is False


def test_the_library_does_not_know_the_paper():
    for path in modules().values():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert "paper" not in {name.split(".")[0] for name in names}, path


def test_importing_the_package_and_naming_its_parts_loads_no_extras():
    code = (
        "import sys, sumosurv\n"
        "for name in sumosurv.__all__: getattr(sumosurv, name)\n"
        "extras = ('matplotlib', 'sksurv', 'h5py', 'tqdm.auto', 'lifelines', 'pytest', 'starlette', 'uvicorn', 'ray',"
        " 'formulaic')\n"
        "print([m for m in extras if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
    assert result.stderr == ""
