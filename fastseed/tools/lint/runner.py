"""Running the rules over files: :func:`check`."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable
from typing import NamedTuple

from . import sources, torch_docs
from .module import Module, Violation
from .noqa import Suppressions, suppressions
from .project import Facts, Project, facts_of
from .registry import ADOPTED, RULES, SWITCH_OFF, Finding, chosen
from .rules import (
    data_loading,
    epoch_loop,
    manual_seed,
    nondeterministic_ops,
    resuming,
    unordered_data,
    unseeded_generator,
)

CHECKS = (
    *manual_seed.CHECKS, *unseeded_generator.CHECKS, *data_loading.CHECKS,
    *epoch_loop.CHECKS, *resuming.CHECKS, *unordered_data.CHECKS, *nondeterministic_ops.CHECKS,
)  # fmt: skip


class Report(NamedTuple):
    """The result of :func:`check`."""

    findings: tuple[Finding, ...]
    """Sorted by path, cell, line, column."""
    files: int
    """The number of files, unreadable ones included."""
    ignored: int
    """The number of findings that comments suppress."""
    notes: tuple[str, ...]
    """What could not be checked, and why."""


class _One(NamedTuple):
    """All findings of a file, before rules that depend on other files are applied."""

    facts: Facts | None
    found: list[tuple[Finding, bool]]
    """Each finding, and True if a comment suppresses it."""


def check(
    paths: Iterable[str | os.PathLike[str]],
    *,
    select: Iterable[str] | None = None,
    ignore: Iterable[str] = (),
    adopted: bool = False,
) -> Report:
    """Find what keeps Python files and notebooks from being reproducible, without running them.

    Args:
        paths: files, and folders that are searched for ``*.py`` and ``*.ipynb``.
        select: ids of rules, or prefixes such as ``FS1``; None: all rules.
        ignore: ids or prefixes to leave out.
        adopted: apply the rules for jobs that use fastseed to all files.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: ``select`` or ``ignore`` matches no rule, or a path is neither file nor folder.
        FileNotFoundError: a path does not exist.
    """
    wanted = chosen("tools.lint.check", "select", RULES if select is None else select)
    wanted -= chosen("tools.lint.check", "ignore", ignore)
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
    return Report(tuple(sorted(set(findings), key=_sort_key)), len(ones), ignored, notes)


def _sort_key(finding: Finding) -> tuple[object, ...]:
    return (finding.path.split("/"), *finding[1:])


def _notes(ones: list[_One], wanted: frozenset[str]) -> tuple[str, ...]:
    """Return notes on rules that could not run, if a file uses torch."""
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
        return _One(None, [(Finding(*at, "FS001", f"not checked: {error.message}"), False)])
    comments = suppressions(module.source.text)
    found = []
    for line, column, name in comments.unknown:
        cell, at_line = module.source.place(line)
        message = f"`{name}` is not a rule: the comment ignores nothing"
        found.append((Finding(shown, cell, at_line, column, at_line, "FS002", message), False))
    lines = module.source.text.split("\n")
    for one in CHECKS:
        for violation in one(module):
            found.append(_placed(module, violation, shown, lines, comments))
    return _One(facts_of(module), found)


def _placed(
    module: Module, violation: Violation, shown: str, lines: list[str], comments: Suppressions
) -> tuple[Finding, bool]:
    """Return the finding for a violation, and True if a comment suppresses it."""
    node = violation.node
    line = getattr(node, "lineno", 1)
    last = node
    if isinstance(node, (ast.For, ast.AsyncFor)):  # the head of a loop, not its body
        last = node.iter
    elif isinstance(node, ast.While):
        last = node.test
    end = getattr(last, "end_lineno", None) or line
    # ast counts bytes of UTF-8; people and SARIF count characters.
    before = lines[line - 1].encode("utf-8", "surrogatepass")[: getattr(node, "col_offset", 0)]
    column = len(before.decode("utf-8", "ignore")) + 1
    cell, first = module.source.place(line)
    finding = Finding(
        shown, cell, first, column, module.source.place(end)[1], violation.rule, violation.message
    )
    return finding, comments.hides(violation.rule, line, end)
