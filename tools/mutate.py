"""Mutation run: small changes of the source, drawn at random, each of which some test ought to notice.

    python tools/mutate.py --sample 200 --seed 0

The first run notes which test executes which line (``.mutation/map.json``: remove it when the source has changed, or
what it says of a test file that has); a mutant is run against the tests that
execute its line, those of its own package first, the quickest first. Results are kept in ``.mutation/`` and a second
run with the same seed goes on where the first was. Nothing in the repository is changed: mutants live in a temporary
copy of it. Mutants that no test can see, each with its reason, are listed in ``tools/equivalent.py`` and are not run.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from equivalent import EQUIVALENT
from planting import ROOT, Copy, preload

SOURCES = (
    "scores", "training", "estimators", "search", "preprocessing", "cli",
    "outcome", "nonparametric", "distributions",
)  # fmt: skip
SUITE = (
    "tests/scores", "tests/training", "tests/estimators", "tests/search", "tests/test_preprocessing.py", "tests/cli",
    "tests/networks", "tests/distributions", "tests/nonparametric", "tests/test_outcome.py", "tests/test_cells.py",
    "tests/test_io.py", "tests/test_forged_files.py", "tests/paper/test_table_routes.py",
    "tests/docs",
)  # fmt: skip
SLOW = (
    "test_two_processes_share_a_study", "test_a_killed_search_loses_no_finished_trial",
    "test_memory_does_not_grow_as_the_square_of_the_rows", "fuzz", "coverage",
)  # fmt: skip
NOT_HERE = {("training/step.py", "captured")}  # runs on CUDA alone
STATE = ROOT / ".mutation"
_ENOUGH_CALLS = 30  # of one function in one test without a new line: it is traced no more
_FILE_SECONDS = 600.0  # for the tests of one file while their lines are noted

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
    """One change: what stands between two places of a file gives way to other text."""

    path: str  # from src/sumosurv
    line: int
    start: tuple[int, int]
    end: tuple[int, int]
    old: str
    new: str

    @property
    def key(self) -> str:
        """A name that stays the same while the file does."""
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
        self.path, self.text, self.found = path, text, list[Mutant]()

    def _add(self, node: Any, new: str) -> None:
        old = ast.get_source_segment(self.text, node) or ""
        if old and new != old:
            start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
            self.found.append(Mutant(self.path, node.lineno, start, end, old, new))

    def _replaced(self, node: ast.expr, new: ast.expr) -> None:
        self._add(node, f"({ast.unparse(ast.fix_missing_locations(new))})")

    # ------------------------------------------------------------------ where nothing is changed

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Text; and places inside it are not told rightly by Python 3.11."""

    visit_Import = visit_ImportFrom = visit_JoinedStr  # noqa: N815  # type: ignore[assignment]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """The defaults and the body of a function, no annotations."""
        if (self.path, node.name) in NOT_HERE:
            return
        abstract = any("abstractmethod" in ast.unparse(d) or "overload" in ast.unparse(d) for d in node.decorator_list)
        for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]:
            self.visit(default)
        for part in [] if abstract else node.body:
            self.visit(part)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """The body alone."""
        if not any("Protocol" in ast.unparse(base) for base in node.bases):
            for part in node.body:
                self.visit(part)

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
        if name in _NAMES:
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
    """All mutants of the sources, in the order of files and lines."""
    found: list[Mutant] = []
    root = ROOT / "src" / "sumosurv"
    for name in SOURCES:
        place = root / name
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            finder = _Finder(path.relative_to(root).as_posix(), text)
            finder.visit(ast.parse(text))
            found += finder.found
    kept = {}
    for mutant in found:
        try:
            compile(mutant.applied((root / mutant.path).read_text(encoding="utf-8")), mutant.path, "exec")
        except SyntaxError:
            continue
        kept.setdefault(mutant.key, mutant)
    return list(kept.values())


# ---------------------------------------------------------------------- which test runs which line


class _Tracer:
    """A pytest plugin: the lines of the sources that each test executes, and how long it takes."""

    def __init__(self, root: Path, target: Path) -> None:
        self.prefix, self.target = str(root / "src" / "sumosurv") + "/", target
        self.files: dict[str, str | None] = {}
        self.lines: set[tuple[str, int]] = set()
        self.idle: dict[Any, int] = {}  # calls of a function in a row in which no new line was seen
        self.result: dict[str, dict[str, Any]] = {}
        self.began, self.failed = 0.0, False

    def _call(self, frame: Any, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in self.files:
            own = name.removeprefix(self.prefix)
            self.files[name] = own if own != name and own.startswith(SOURCES) else None
        own = self.files[name]
        if own is None or self.idle.get(frame.f_code, 0) > _ENOUGH_CALLS:
            return None
        size = len(self.lines)
        self.lines.add((own, frame.f_lineno))

        def line(frame: Any, event: str, argument: Any) -> Any:
            self.lines.add((own, frame.f_lineno))
            if event == "return":
                self.idle[frame.f_code] = self.idle.get(frame.f_code, 0) + 1 if len(self.lines) == size else 0
            return line

        return line

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out what is slow."""
        items[:] = [item for item in items if not any(word in item.nodeid for word in SLOW)]

    def pytest_runtest_protocol(self, item: Any) -> None:
        """Begin."""
        self.lines, self.idle, self.began, self.failed = set(), {}, time.perf_counter(), False
        sys.settrace(self._call)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test that fails as things are tells nothing of a mutant."""
        self.failed |= report.failed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """End, and keep what was seen."""
        sys.settrace(None)
        if self.failed:
            return
        by_file: dict[str, list[int]] = {}
        for path, number in sorted(self.lines):
            by_file.setdefault(path, []).append(number)
        self.result[nodeid] = {"seconds": time.perf_counter() - self.began, "lines": by_file}

    def pytest_sessionfinish(self) -> None:
        """Write it down."""
        self.target.write_text(json.dumps(self.result), encoding="utf-8")


def test_map(copy: Copy, *, complete: bool) -> dict[str, dict[str, Any]]:
    """Lines and seconds of each test, from ``.mutation/map.json``; of test files that it lacks, measured now."""
    path, new = STATE / "map.json", STATE / "new.json"
    known = _stored(path)
    seen = {name.partition("::")[0] for name in known}
    places = [ROOT / place for place in SUITE]
    files = [f for p in places for f in (sorted(p.rglob("test_*.py")) if p.is_dir() else [p]) if f.is_file()]
    missing = [name for f in files if (name := f.relative_to(ROOT).as_posix()) not in seen]
    for number, name in enumerate(missing if complete else [], 1):
        print(f"noting which test runs which line: {name} ({number} of {len(missing)})", flush=True)
        new.unlink(missing_ok=True)
        code, output = copy.run([name], _FILE_SECONDS, [_Tracer(copy.root, new)])
        if code != 0:
            print(output[-3000:])
            print(f"Not all tests of {name} passed as they are; the map is of those that did.", file=sys.stderr)
        known |= _stored(new)
        path.write_text(json.dumps(known), encoding="utf-8")
    return known


def _stored(path: Path) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return result


def tests_for(mutant: Mutant, tests: dict[str, dict[str, Any]], most: float) -> Iterator[list[str]]:
    """Tests in the order in which they are likely to see a mutant: at most two lots, quick ones first."""

    def chosen(near: bool) -> list[str]:
        stem = mutant.path.partition("/")[0].removesuffix(".py")
        own = []
        for name, seen in tests.items():
            lines = seen["lines"].get(mutant.path, ())
            if (stem in name.partition("::")[0]) == near and (mutant.line in lines if hit else lines or near):
                own.append((not lines, seen["seconds"], name))
        total, names = 0.0, []
        for _, seconds, name in sorted(own):
            total += seconds
            if total > most and names:
                break
            names.append(name)
        return names

    # a module's top level runs when it is imported: tests that run other lines of it then, and all of its package
    hit = any(mutant.line in seen["lines"].get(mutant.path, ()) for seen in tests.values())
    for near in (True, False):
        names = chosen(near)
        if names:
            yield names


# ---------------------------------------------------------------------- the run


def judge(mutant: Mutant, copy: Copy, tests: dict[str, dict[str, Any]], limit: float) -> dict[str, Any]:
    """Run one mutant: "killed" with the test that saw it, "survived" or "timeout"."""
    text = (ROOT / "src" / "sumosurv" / mutant.path).read_text(encoding="utf-8")
    began, ran = time.monotonic(), 0
    with copy.changed(f"src/sumosurv/{mutant.path}", mutant.applied(text)):
        for names in tests_for(mutant, tests, limit):  # seconds in the map are longer: they were traced
            left = 10.0 + 4.0 * limit - (time.monotonic() - began)  # past that it is a loop without end
            code, output = copy.run(names, left)
            ran += len(names)
            if code is None:
                return {"verdict": "timeout", "tests": ran}
            if code != 0:
                failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return {"verdict": "killed", "by": failed[0][:160] if failed else output[-160:], "tests": ran}
    return {"verdict": "survived", "tests": ran}


def main(argv: Sequence[str] | None = None) -> int:
    """Draw mutants, run those that are not known yet, print the score and the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=200, help="mutants drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests for one mutant, near and far ones each")
    parser.add_argument("--total", type=float, default=3600.0, help="limit for the whole run; go on with another")
    parser.add_argument("--again", action="store_true", help="run survivors and timeouts once more")
    parser.add_argument("--known", action="store_true", help="use the tests that the map has, measure no others")
    parser.add_argument("--among", nargs="+", default=[""], help="draw from files whose path begins so, and no others")
    arguments = parser.parse_args(argv)
    began = time.monotonic()
    STATE.mkdir(exist_ok=True)
    path = STATE / f"seed{arguments.seed}.json"
    known = _stored(path)
    every = mutants()
    reasons = equivalent(every)
    among = [mutant for mutant in every if mutant.path.startswith(tuple(arguments.among))]
    sample = random.Random(arguments.seed).sample(among, min(arguments.sample, len(among)))
    preload()
    with Copy.made() as copy:
        tests = test_map(copy, complete=not arguments.known)
        for number, mutant in enumerate(sample, 1):
            old = known.get(mutant.key)
            if mutant.key in reasons:
                continue
            if old is not None and not (arguments.again and old["verdict"] != "killed"):
                continue
            if time.monotonic() - began > arguments.total:
                print("the time is up; run again to go on")
                break
            made = {**asdict(mutant), **judge(mutant, copy, tests, arguments.seconds)}
            known = _stored(path) | {mutant.key: made}  # others may write to it too
            path.write_text(json.dumps(known, indent=1), encoding="utf-8")
            print(f"{number}/{len(sample)} {known[mutant.key]['verdict']:9s} {mutant.key[:150]}", flush=True)
    return _report(len(among), sample, known, reasons)


def equivalent(every: Sequence[Mutant]) -> dict[str, str]:
    """The reason why no test can see a mutant, by its key; an entry of the list that fits no mutant is an error."""
    listed = {(e.path, e.line, e.old, e.new): e.reason for e in EQUIVALENT}
    lines = {path: (ROOT / "src" / "sumosurv" / path).read_text(encoding="utf-8").splitlines() for path, *_ in listed}
    found, used = {}, set()
    for mutant in every:
        if mutant.path in lines:
            before, own = (line.strip() for line in lines[mutant.path][mutant.line - 2 : mutant.line])
            for text in (own, f"{before}\n{own}"):
                place = (mutant.path, text, mutant.old, mutant.new)
                if place in listed:
                    found[mutant.key] = listed[place]
                    used.add(place)
    stale = [" | ".join(place) for place in sorted(listed.keys() - used)]
    if stale:
        sys.exit("tools/equivalent.py lists what the source no longer has; say it anew:\n  " + "\n  ".join(stale))
    return found


def _report(total: int, sample: Sequence[Mutant], known: dict[str, dict[str, Any]], reasons: dict[str, str]) -> int:
    run = [mutant for mutant in sample if mutant.key in known and mutant.key not in reasons]
    counts = Counter(known[mutant.key]["verdict"] for mutant in run)
    seen, same = counts["killed"] + counts["timeout"], sum(mutant.key in reasons for mutant in sample)
    print(
        f"\n{total:,} mutants, {len(sample)} drawn: {same} equivalent, {len(run)} run: {dict(counts)}; "
        f"{seen / max(len(run), 1):.1%} seen"
    )
    for mutant in run:
        if known[mutant.key]["verdict"] == "survived":
            print(f"  src/sumosurv/{mutant.path}:{mutant.line}  {mutant.old!r} -> {mutant.new!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
