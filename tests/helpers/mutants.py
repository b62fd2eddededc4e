"""Plant faults in changed lines, one at a time, and name those that no test notices.

python tests/helpers/mutants.py [--since COMMIT] [--number 20] [--seed 0] [--tier fast] [FILE ...]

A fault turns a condition round, moves a bound by one, changes a constant, or leaves out a call, an
assignment or an error. The tests of its folder run in a copy of the sources, until the first that
fails. A survivor deserves a test, or the input for which the two would have to differ and cannot.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from helpers.changed import ROOT, tests_of
from helpers.matrix import copy_sources

OPERATORS: dict[type, tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"),
}  # fmt: skip


class Fault(NamedTuple):
    """Text to put in place of the bytes from ``start`` to ``end`` of a file."""

    file: str
    line: int
    start: int
    end: int
    text: str

    def planted(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def changed_lines(since: str) -> dict[str, set[int]]:
    """Return the lines of each module that differ from a commit."""
    command = ["git", "diff", "-U0", "--no-renames", since, "--", "fastseed"]
    found: dict[str, set[int]] = {}
    file = ""
    for line in subprocess.check_output(command, cwd=ROOT, text=True).splitlines():
        if line.startswith("+++ "):
            file = line[6:]
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            found.setdefault(file, set()).update(range(first, first + count))
    return {name: lines for name, lines in found.items() if name.endswith(".py") and lines}


def faults_of(file: str, source: bytes, lines: set[int] | None) -> Iterator[Fault]:
    """Yield what may be planted in these lines of a module; None is all."""
    begins = [0]
    for line in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))

    def place(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = begins[node.lineno - 1] + node.col_offset
        return start, begins[node.end_lineno - 1] + node.end_col_offset

    def make(text: str, node: ast.expr | ast.stmt) -> Fault:
        return Fault(file, node.lineno, *place(node), text)

    def swap(operator: ast.AST, left: ast.expr, right: ast.expr) -> Fault:
        start, end = place(left)[1], place(right)[0]
        old, new = OPERATORS[type(operator)]
        text = source[start:end].decode().replace(old, new, 1)
        return Fault(file, left.lineno, start, end, text)

    def text_of(node: ast.expr) -> str:
        start, end = place(node)
        return source[start:end].decode()

    for node in _nodes(ast.parse(source)):
        if lines is not None and node.lineno not in lines:
            continue
        if isinstance(node, ast.Compare):
            yield swap(node.ops[0], node.left, node.comparators[0])
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            yield swap(node.op, node.left, node.right)
        elif isinstance(node, ast.BoolOp):
            other = " or " if isinstance(node.op, ast.And) else " and "
            yield make(f"({other.join(f'({text_of(value)})' for value in node.values)})", node)
        elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
            yield make(f"not ({text_of(node.test)})", node.test)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield make(str(node.value + 1), node)
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield make(str(not node.value), node)
        elif isinstance(node, (ast.Raise, ast.Assign, ast.AugAssign)) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        ):
            yield make("pass", node)


def compiles(fault: Fault, source: bytes) -> bool:
    """Return whether a module with a fault is Python: a name declared nonlocal needs its value."""
    try:
        compile(fault.planted(source), fault.file, "exec")
    except SyntaxError:
        return False
    return True


def _nodes(tree: ast.Module) -> Iterator[ast.expr | ast.stmt]:
    """Yield what runs inside functions, and constants of a module; no annotations, no texts."""
    waiting: list[ast.AST] = [
        one for one in tree.body if isinstance(one, (ast.FunctionDef, ast.ClassDef, ast.Assign))
    ]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.expr, ast.stmt)) and node not in tree.body:
            yield node
        if isinstance(node, ast.FunctionDef):
            waiting += [*node.body, *filter(None, (*node.args.defaults, *node.args.kw_defaults))]
        elif isinstance(node, ast.JoinedStr):
            continue
        else:
            note = getattr(node, "annotation", None)
            waiting += [one for one in ast.iter_child_nodes(node) if one is not note]


def noticed_by(folder: Path, tests: list[str], tier: str) -> str:
    """Run tests in a copy; return the first that fails, or an empty text."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tier", tier]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [*command, *tests], cwd=folder, env=environment, capture_output=True, text=True,
            timeout=1200,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "a test that did not end"
    if done.returncode == 0:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    return failed[1] if failed else f"pytest, status {done.returncode}"


def main() -> int:
    """Plant and run; 1 if more than one in ten was not noticed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", help="modules to plant in, instead of a change")
    parser.add_argument("--since", default="HEAD", help="the commit that the change began with")
    parser.add_argument("--number", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tier", default="fast")
    options = parser.parse_args()
    lines = changed_lines(options.since) if not options.files else dict.fromkeys(options.files)
    sources = {file: (ROOT / file).read_bytes() for file in lines}
    every = [
        fault for file, where in sorted(lines.items())
        for fault in faults_of(file, sources[file], where) if compiles(fault, sources[file])
    ]  # fmt: skip
    chosen = random.Random(options.seed).sample(every, min(options.number, len(every)))
    survivors = 0
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        copy_sources(folder)
        for library in (ROOT / "fastseed").glob("*.so"):
            shutil.copy2(library, folder / "fastseed")
        for fault in sorted(chosen):
            source = sources[fault.file]
            (folder / fault.file).write_bytes(fault.planted(source))
            start = time.monotonic()
            by = noticed_by(folder, tests_of([fault.file]), options.tier)
            (folder / fault.file).write_bytes(source)
            survivors += not by
            old = source[fault.start : fault.end].decode()
            print(f"{by or 'NOT NOTICED'}  ({time.monotonic() - start:.0f} s)")
            print(f"  {fault.file}:{fault.line}\n    - {old}\n    + {fault.text}", flush=True)
    print(f"{len(chosen)} faults planted of {len(every)} possible, {survivors} not noticed")
    return int(survivors * 10 > len(chosen))


if __name__ == "__main__":
    sys.exit(main())
