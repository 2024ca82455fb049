"""Mutation testing: small random changes of the source, each of which some test should notice.

    python tools/mutate.py --sample 200 --seed 1

The first run records which tests call which functions (``.mutation/map.json``). The record names functions, not lines,
so it stays valid when the source is edited; test files that it does not have are added. A mutant is run against the
tests that call its function: those of its own package first, the fastest first. Results are stored in ``.mutation/``,
and a second run with the same seed resumes. The repository is not changed: mutants live in a temporary copy.

Left alone: assertions and other code for type checkers; types; text, and arguments that name a dtype, a device or a
place in text (``_COSMETIC``); zeros and ones in arrays of length zero, which are the same.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from multiprocessing import current_process, get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from planting import ROOT, Copy, preload

SOURCE = ROOT / "src" / "sumosurv"
STATE = ROOT / ".mutation"
# Golden values notice almost any change of a number and would hide gaps in the other tests.
SKIPPED_TESTS = ("test_golden", "fuzz", "cuda", "docs/test_site", "test_ray", "test_torchrun", "postgres", "killed")
ONLY_ON_CUDA = ("networks/fused_triton.py", "training/step.py:as_cuda_graph")
# They compare signatures with docstrings and pages, without calling the functions.
READS_SIGNATURES = "tests/test_docstrings.py"
_FILE_SECONDS = 900.0  # for the tests of one file while the functions that they call are recorded

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_TURN: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.MatMult: ast.Mult,
}  # fmt: skip
_NAMES = {
    "min": "max", "max": "min", "argmin": "argmax", "argmax": "argmin", "any": "all", "all": "any",
    "minimum": "maximum", "maximum": "minimum", "clamp_min": "clamp_max", "clamp_max": "clamp_min",
    "log": "log1p", "zeros": "ones", "ones": "zeros", "zeros_like": "ones_like", "ones_like": "zeros_like",
    "mean": "sum", "cumsum": "cumprod", "floor": "ceil", "ceil": "floor",
}  # fmt: skip
_COSMETIC = ("dtype", "device", "stacklevel", "help", "metavar", "description", "prog", "epilog")


@dataclass(frozen=True)
class Mutant:
    """One change: the text between two places of a file is replaced by other text."""

    path: str  # relative to src/sumosurv
    function: str  # qualified name of the outermost function or method around it; empty at the top level
    line: int
    start: tuple[int, int]
    end: tuple[int, int]
    old: str
    new: str

    @property
    def key(self) -> str:
        """A name that is stable as long as the file does not change."""
        return f"{self.path}:{self.line}:{self.start[1]}: {self.old} -> {self.new}"

    def applied(self, text: str) -> str:
        """The text of the file with the change made."""
        lines = [line.encode() for line in text.splitlines(keepends=True)]
        first, last = self.start[0] - 1, self.end[0] - 1
        lines[first : last + 1] = [lines[first][: self.start[1]] + self.new.encode() + lines[last][self.end[1] :]]
        return b"".join(lines).decode()


class _Finder(ast.NodeVisitor):
    """All mutants of one file."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.found = path, list[Mutant]()
        self.lines = [line.encode() for line in text.splitlines(keepends=True)]
        self.scope: list[str] = []  # names of the classes, and of the outermost function, around a node
        self.in_function = False

    def _add(self, node: Any, new: str) -> None:
        start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        lines = self.lines[start[0] - 1 : end[0]]  # ast.get_source_segment splits the whole file each time
        lines[-1] = lines[-1][: end[1]]
        old = b"".join([lines[0][start[1] :], *lines[1:]]).decode()
        if new != old:
            function = ".".join(self.scope) if self.in_function else ""
            self.found.append(Mutant(self.path, function, node.lineno, start, end, old, new))

    def _replaced(self, node: ast.expr, new: ast.expr) -> None:
        self._add(node, f"({ast.unparse(ast.fix_missing_locations(new))})")

    # ------------------------------------------------------------------ where nothing is changed

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Text; and places inside it are not told rightly by Python 3.11."""

    visit_Import = visit_ImportFrom = visit_JoinedStr  # noqa: N815  # type: ignore[assignment]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """The defaults and the body of a function, not its annotations."""
        if f"{self.path}:{node.name}" in ONLY_ON_CUDA:
            return
        for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]:
            self.visit(default)
        if any("abstractmethod" in ast.unparse(d) or "overload" in ast.unparse(d) for d in node.decorator_list):
            return
        outermost = not self.in_function
        if outermost:
            self.scope.append(node.name)
            self.in_function = True
        for part in node.body:
            self.visit(part)
        if outermost:
            self.scope.pop()
            self.in_function = False

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """The body alone."""
        if any("Protocol" in ast.unparse(base) for base in node.bases):
            return
        self.scope.append(node.name)
        for part in node.body:
            self.visit(part)
        self.scope.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """The value alone."""
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Anything but lists of names and types."""
        name = ast.unparse(node.targets[0])
        typing = any(word in ast.unparse(node.value) for word in ("Literal[", "NDArray[", "Callable[", "Mapping["))
        if name != "__all__" and not typing:
            self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """For type checkers."""

    # ------------------------------------------------------------------ changes

    def visit_Compare(self, node: ast.Compare) -> None:
        """Off by the boundary, and turned round."""
        for table in (_COMPARE, _TURN):
            for i, op in enumerate(node.ops):
                if type(op) in table:
                    ops = [*node.ops[:i], table[type(op)](), *node.ops[i + 1 :]]
                    self._replaced(node, ast.Compare(node.left, ops, node.comparators))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Another operation."""
        text = isinstance(node.left, (ast.Constant, ast.JoinedStr)) and isinstance(getattr(node.left, "value", ""), str)
        if type(node.op) in _ARITHMETIC and not text:
            self._replaced(node, ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Left out."""
        self._add(node, "pass")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Without its sign, without its not."""
        if not isinstance(node.op, ast.UAdd):
            self._replaced(node, node.operand)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """And for or; one part left out."""
        self._replaced(node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))
        for i in range(len(node.values)):
            rest = [*node.values[:i], *node.values[i + 1 :]]
            self._replaced(node, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """One side or the other, always."""
        self._replaced(node, node.body)
        self._replaced(node, node.orelse)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """Never; always, where that is not what a mutant of its condition gives."""
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self._add(node.test, "False")
            self._add(node.test, "True")
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Numbers off by one, truth turned round."""
        value = node.value
        if isinstance(value, bool):
            self._add(node, str(not value))
        elif isinstance(value, int):
            self._add(node, str(value + 1))
        elif isinstance(value, float):
            self._add(node, repr(value + 1.0 if value in (0.0, 1.0) else value * 2.0))

    def visit_Call(self, node: ast.Call) -> None:
        """A function of the opposite kind, arguments swapped, an option left out."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        args, options = node.args, node.keywords
        is_empty = bool(args) and isinstance(args[0], ast.Constant) and args[0].value == 0  # no ones and no zeros
        if name in _NAMES and not (name in ("zeros", "ones") and is_empty):
            other = _NAMES[name]
            func: ast.expr = (
                ast.Attribute(node.func.value, other) if isinstance(node.func, ast.Attribute) else ast.Name(other)
            )
            self._replaced(node, ast.Call(func, args, options))
        if name == "where" and len(args) == 3:
            self._replaced(node, ast.Call(node.func, [args[0], args[2], args[1]], options))
        if name == "reversed" and len(args) == 1:
            self._replaced(node, args[0])
        for i, option in enumerate(options):
            if option.arg is not None and option.arg not in _COSMETIC:
                self._replaced(node, ast.Call(node.func, args, [*options[:i], *options[i + 1 :]]))
        if name not in ("warn", "print", "ValueError", "TypeError", "add_argument", "TypeVar"):
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """No error."""
        self._add(node, "pass")

    def visit_Return(self, node: ast.Return) -> None:
        """What is inside it; the return itself is left out where it stands in a branch (see `generic_visit`)."""
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call for its effect, left out."""
        if isinstance(node.value, ast.Call):
            self._add(node, "pass")
            self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        """Visit what is inside; returns and leaps inside branches are left out."""
        if isinstance(node, (ast.If, ast.For, ast.While, ast.Try)):
            for part in node.body:
                if isinstance(part, (ast.Return, ast.Continue, ast.Break)):
                    self._add(part, "pass")
        super().generic_visit(node)


def mutants() -> list[Mutant]:
    """All mutants of the source, in the order of files and lines."""
    kept = {}
    for file in sorted(SOURCE.rglob("*.py")):
        path, text = file.relative_to(SOURCE).as_posix(), file.read_text(encoding="utf-8")
        if path in ONLY_ON_CUDA:
            continue
        finder = _Finder(path, text)
        finder.visit(ast.parse(text))
        kept |= {mutant.key: mutant for mutant in finder.found}
    return list(kept.values())


def draw(among: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """A random sample of mutants that are valid Python."""
    sample: list[Mutant] = []
    for mutant in random.Random(seed).sample(among, len(among)):
        if len(sample) == count:
            break
        try:
            ast.parse(mutant.applied((SOURCE / mutant.path).read_text(encoding="utf-8")))
        except SyntaxError:
            continue
        sample.append(mutant)
    return sample


# ---------------------------------------------------------------------- which tests call which functions


def _processor_seconds() -> float:
    """Processor time of this process and of its children that have ended: wall time depends on what else runs."""
    return sum(os.times()[:4])


class _Tracer:
    """A pytest plugin that records the functions that each test calls, and how long the test takes."""

    def __init__(self, root: Path, target: Path) -> None:
        self.prefix, self.target = str(root / "src" / "sumosurv") + "/", target
        self.called: set[Any] = set()  # code objects
        self.result: dict[str, dict[str, Any]] = {}
        self.began, self.failed = 0.0, False

    def _call(self, frame: Any, event: str, argument: Any) -> None:
        self.called.add(frame.f_code)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out slow tests."""
        items[:] = [item for item in items if not any(word in item.nodeid for word in SKIPPED_TESTS)]

    def pytest_runtest_protocol(self, item: Any) -> None:
        """Start recording."""
        self.called, self.began, self.failed = set(), _processor_seconds(), False
        sys.settrace(self._call)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test that fails without a mutant cannot detect one."""
        self.failed |= report.failed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Stop recording."""
        sys.settrace(None)
        if self.failed:
            return
        functions: dict[str, set[str]] = {}
        for code in self.called:
            path = code.co_filename.removeprefix(self.prefix)
            if path != code.co_filename:
                functions.setdefault(path, set()).add(code.co_qualname.partition(".<locals>")[0])
        seconds = _processor_seconds() - self.began
        self.result[nodeid] = {"seconds": seconds, "functions": {p: sorted(f) for p, f in functions.items()}}

    def pytest_sessionfinish(self) -> None:
        """Store the record."""
        self.target.write_text(json.dumps(self.result), encoding="utf-8")


def test_map(copies: Sequence[Copy], *, complete: bool) -> dict[str, dict[str, Any]]:
    """Functions and seconds of each test, from ``.mutation/map.json``; missing test files are recorded now."""
    path = STATE / "map.json"
    known = _stored(path)
    seen = {name.partition("::")[0] for name in known}
    files = [file.relative_to(ROOT).as_posix() for file in sorted((ROOT / "tests").rglob("test_*.py"))]
    missing = [name for name in files if name not in seen and not any(word in name for word in SKIPPED_TESTS)]
    for number, (name, found) in enumerate(in_workers(copies, _recorded, missing if complete else []), 1):
        print(f"recorded which functions {name} calls ({number} of {len(missing)})", flush=True)
        known |= found
        path.write_text(json.dumps(known), encoding="utf-8")
    return known


def _recorded(copy: Copy, name: str) -> tuple[str, dict[str, dict[str, Any]]]:
    new = copy.root.parent / "new.json"
    new.unlink(missing_ok=True)
    code, output = copy.run([name], _FILE_SECONDS, [_Tracer(copy.root, new)])
    if code not in (0, 5):  # 5: all tests of the file are left out
        print(output[-3000:])
        print(f"Not all tests of {name} pass without a mutant; only those that do are used.", file=sys.stderr)
    return name, _stored(new) or {name: {"seconds": 0.0, "functions": {}}}


def _stored(path: Path) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return result


def tests_for(mutant: Mutant, tests: dict[str, dict[str, Any]], most: float) -> Iterator[list[str]]:
    """Tests that call a mutant's function: those of its package, then others, each at most ``most`` seconds of them.

    The top level of a module runs on import, and holds the defaults of its functions: tests that call any function of
    the module are used for its mutants, and the tests of signatures.
    """
    package = mutant.path.partition("/")[0].removesuffix(".py")
    calling = []
    for name, seen in tests.items():
        called = seen["functions"].get(mutant.path, ())
        if mutant.function in called if mutant.function else called or name.startswith(READS_SIGNATURES):
            calling.append((seen["seconds"], name))
    for near in (True, False):
        total, names = 0.0, []
        for seconds, name in sorted(calling):
            if (package in name.partition("::")[0]) == near and (not names or total + seconds <= most):
                total += seconds
                names.append(name)
        if names:
            yield names


# ---------------------------------------------------------------------- the run


def in_workers(copies: Sequence[Copy], task: Callable[[Copy, Any], Any], values: Iterable[Any]) -> Iterator[Any]:
    """Results of ``task(copy, value)`` in the order in which they are ready, from one forked process per copy."""
    context = get_context("fork")
    free = context.SimpleQueue()
    for copy in copies:
        free.put(copy)
    with context.Pool(len(copies), _prepare_worker, (task, free)) as pool:
        yield from pool.imap_unordered(_work, values)


def _prepare_worker(task: Callable[[Copy, Any], Any], free: Any) -> None:
    global _task, _copy
    current_process()._config["daemon"] = False  # tests may start processes of their own
    _task, _copy = task, free.get()


def _work(value: Any) -> Any:
    return _task(_copy, value)


def judge(mutant: Mutant, copy: Copy, tests: dict[str, dict[str, Any]], limit: float) -> dict[str, Any]:
    """Run one mutant: "killed" with the test that noticed it, "survived" or "timeout"."""
    text = (SOURCE / mutant.path).read_text(encoding="utf-8")
    ran = 0
    with copy.changed(f"src/sumosurv/{mutant.path}", mutant.applied(text)):
        for names in tests_for(mutant, tests, limit):
            code, output = copy.run(names, 10.0 + 4.0 * limit)  # beyond that the mutant loops forever
            ran += len(names)
            if code is None:
                return {"verdict": "timeout", "tests": ran}
            if code != 0:
                failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return {"verdict": "killed", "by": failed[0][:160] if failed else output[-160:], "tests": ran}
    return {"verdict": "survived", "tests": ran}


def main(argv: Sequence[str] | None = None) -> int:
    """Draw mutants, run those without a stored result, print the score and the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=200, help="number of mutants drawn")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests per mutant: of its package, and others")
    parser.add_argument("--total", type=float, default=3600.0, help="time limit of the whole run; a second one resumes")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at once")
    parser.add_argument("--again", action="store_true", help="run survivors and timeouts once more")
    parser.add_argument("--known", action="store_true", help="use only the tests that the record has")
    parser.add_argument("--among", nargs="+", default=[""], help="draw only from files whose path begins like this")
    arguments = parser.parse_args(argv)
    began = time.monotonic()
    STATE.mkdir(exist_ok=True)
    path = STATE / f"seed{arguments.seed}.json"
    known = _stored(path)
    among = [mutant for mutant in mutants() if mutant.path.startswith(tuple(arguments.among))]
    sample = draw(among, arguments.sample, arguments.seed)
    preload()
    with ExitStack() as stack:
        copies = [stack.enter_context(Copy.made()) for _ in range(arguments.jobs)]
        tests = test_map(copies, complete=not arguments.known)

        def judged(copy: Copy, mutant: Mutant) -> dict[str, Any]:
            return {"key": mutant.key, **asdict(mutant), **judge(mutant, copy, tests, arguments.seconds)}

        wanted = [m for m in sample if m.key not in known or (arguments.again and known[m.key]["verdict"] != "killed")]
        for number, result in enumerate(in_workers(copies, judged, wanted), 1):
            known[result["key"]] = result
            path.write_text(json.dumps(known, indent=1), encoding="utf-8")
            print(f"{number}/{len(wanted)} {result['verdict']:9s} {result['key'][:150]}", flush=True)
            if time.monotonic() - began > arguments.total:
                print("The time is up; run again to resume.")
                break
    return _report(len(among), sample, known)


def _report(total: int, sample: Sequence[Mutant], known: dict[str, dict[str, Any]]) -> int:
    run = [mutant for mutant in sample if mutant.key in known]
    counts = Counter(known[mutant.key]["verdict"] for mutant in run)
    noticed = counts["killed"] + counts["timeout"]
    print(
        f"\n{total:,} mutants, {len(sample)} drawn, {len(run)} run: {dict(counts)}; "
        f"{noticed / max(len(run), 1):.1%} noticed"
    )
    for mutant in run:
        if known[mutant.key]["verdict"] == "survived":
            print(f"  src/sumosurv/{mutant.path}:{mutant.line}  {mutant.old!r} -> {mutant.new!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
