"""Running the rules over files: :func:`check`."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable
from typing import NamedTuple

from . import sources, torch_docs
from .module import Fault, Module
from .noqa import Suppressions, suppressions
from .project import Facts, Project, facts_of
from .registry import ADOPTED, RULES, SWITCH_OFF, Finding, chosen
from .rules import (
    data_loading,
    epoch_loop,
    manual_seed,
    nondeterministic_ops,
    unordered_data,
    unseeded_generator,
)

CHECKS = (
    *manual_seed.CHECKS, *unseeded_generator.CHECKS, *data_loading.CHECKS,
    *epoch_loop.CHECKS, *unordered_data.CHECKS, *nondeterministic_ops.CHECKS,
)  # fmt: skip


class Report(NamedTuple):
    """What :func:`check` found."""

    findings: tuple[Finding, ...]
    """In the order of path, cell, line, column."""
    sources: int
    """How many were looked at, the unreadable ones among them."""
    ignored: int
    """Findings that comments in the files hide."""
    notes: tuple[str, ...]
    """What could not be checked, and why: torch's list of operations is not where it was."""


class _One(NamedTuple):
    """A file's findings before it is known which of them apply to it."""

    facts: Facts | None
    found: list[tuple[Finding, bool]]
    """Each with whether a comment hides it."""


def check(
    paths: Iterable[str | os.PathLike[str]],
    *,
    select: Iterable[str] | None = None,
    ignore: Iterable[str] = (),
    adopted: bool = False,
) -> Report:
    """Look for what keeps Python files and notebooks from being reproducible. Runs none of them.

    Args:
        paths: files, and folders whose ``*.py`` and ``*.ipynb`` are taken; see :func:`files.find`.
        select: ids of rules or the start of several (``FS1``); all by default.
        ignore: those to leave out of them.
        adopted: apply the rules for jobs with fastseed to all files, as if each used it already.

    Raises:
        TypeError, ValueError: an argument is wrong.
        FileNotFoundError: a path is not there.
    """
    wanted = chosen("lint.check", "select", RULES if select is None else select)
    wanted -= chosen("lint.check", "ignore", ignore)
    ones = [_checked(path) for path in sources.find(paths)]
    project = Project([one.facts for one in ones if one.facts is not None])
    findings: list[Finding] = []
    ignored = 0
    for one in ones:
        for finding, hidden in one.found:
            if finding.rule in wanted and _applies(finding, project, adopted):
                ignored += hidden
                if not hidden:
                    findings.append(finding)
    notes = _notes(ones, wanted)
    return Report(tuple(sorted(set(findings), key=_place)), len(ones), ignored, notes)


def _place(finding: Finding) -> tuple[object, ...]:
    return (finding.path.split("/"), *finding[1:])


def _notes(ones: list[_One], wanted: frozenset[str]) -> tuple[str, ...]:
    """Said only where it matters: files that use torch, and rules that need its list."""
    torch_is_used = any(
        name == "torch" or name.startswith("torch.")
        for one in ones
        if one.facts is not None
        for name in one.facts.imports
    )
    if not torch_is_used or not wanted & {"FS501", "FS502"}:
        return ()
    problem = torch_docs.listed().problem
    return (f"FS501 and FS502 were not checked: {problem}",) if problem else ()


def _applies(finding: Finding, project: Project, adopted: bool) -> bool:
    when, path = RULES[finding.rule].when, os.path.abspath(finding.path)
    if when == ADOPTED:
        return adopted or path in project.adopted
    return not (when == SWITCH_OFF and path in project.switched)


def _checked(path: str) -> _One:
    shown = path.replace(os.sep, "/")
    try:
        module = Module(sources.read(path))
    except sources.Unreadable as error:
        at = (shown, error.cell, error.line, error.column, error.line)
        return _One(None, [(Finding(*at, "FS001", f"not checked: {error.says}"), False)])
    comments = suppressions(module.source.text)
    found = []
    for line, column, name in comments.unknown:
        cell, at_line = module.source.place(line)
        says = f"`{name}` is no rule, and nothing is ignored by it"
        found.append((Finding(shown, cell, at_line, column, at_line, "FS002", says), False))
    lines = module.source.text.split("\n")
    for one in CHECKS:
        for fault in one(module):
            found.append(_placed(module, fault, shown, lines, comments))
    return _One(facts_of(module), found)


def _placed(
    module: Module, fault: Fault, shown: str, lines: list[str], comments: Suppressions
) -> tuple[Finding, bool]:
    """A fault at its place in the file, and whether a comment there hides it."""
    node = fault.node
    line = getattr(node, "lineno", 1)
    last = node
    if isinstance(node, (ast.For, ast.AsyncFor)):  # of a loop its head alone
        last = node.iter
    elif isinstance(node, ast.While):
        last = node.test
    end = getattr(last, "end_lineno", None) or line
    # ast counts bytes of UTF-8; people and SARIF count characters.
    before = lines[line - 1].encode("utf-8", "surrogatepass")[: getattr(node, "col_offset", 0)]
    column = len(before.decode("utf-8", "ignore")) + 1
    cell, first = module.source.place(line)
    finding = Finding(
        shown, cell, first, column, module.source.place(end)[1], fault.rule, fault.message
    )
    return finding, comments.hides(fault.rule, line, end)
