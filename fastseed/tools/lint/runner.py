"""Running the rules over files: ``check``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from . import sources
from .module import Module
from .noqa import suppressions
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
    """The result of ``check``."""

    findings: tuple[Finding, ...]
    """Sorted by path, cell, line, column."""
    files: int
    """The number of files, unreadable ones included."""
    ignored: int
    """The number of findings that comments suppress."""


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
        FileNotFoundError: there is no such file or folder.
    """
    wanted = chosen("select", RULES if select is None else select) - chosen("ignore", ignore)
    ones = [_checked(path) for path in sources.find(paths)]
    project = Project([one.facts for one in ones if one.facts is not None])
    found = [
        (finding, hidden)
        for one in ones
        for finding, hidden in one.found
        if finding.rule in wanted and _applies(finding, project, adopted)
    ]
    findings = {finding for finding, hidden in found if not hidden}
    in_order = sorted(findings, key=lambda one: (one.path.split("/"), *one[1:]))
    return Report(tuple(in_order), len(ones), sum(hidden for _, hidden in found))


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
    place, lines = module.source.place, module.source.text.split("\n")
    comments = suppressions(module.source.text)
    found = []
    for line, column, name in comments.unknown:
        message = f"`{name}` is not a rule: the comment ignores nothing"
        at = (shown, *place(line), column, place(line)[1])
        found.append((Finding(*at, "FS002", message), False))
    for rule, node, message in (one for check in CHECKS for one in check(module)):
        line, end = node.lineno, node.end_lineno or node.lineno
        # ast counts bytes of UTF-8; people count characters.
        before = lines[line - 1].encode("utf-8", "surrogatepass")[: node.col_offset]
        at = (shown, *place(line), len(before.decode("utf-8", "ignore")) + 1, place(end)[1])
        found.append((Finding(*at, rule, message), comments.hides(rule, line, end)))
    return _One(facts_of(module), found)
