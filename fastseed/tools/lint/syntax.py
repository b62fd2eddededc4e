"""Helpers for nodes of Python's ``ast`` that several rules share."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def last_name(node: ast.AST | None) -> str:
    """Return ``c`` of ``a.b.c`` and of ``c``; otherwise an empty string."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def called(node: ast.AST | None) -> str:
    """Return ``c`` of the calls ``a.b.c()`` and ``c()``; otherwise an empty string."""
    return last_name(node.func) if isinstance(node, ast.Call) else ""


def names_in(node: ast.AST) -> Iterator[str]:
    """Yield the names and the attributes in an expression."""
    return (
        last_name(part) for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))
    )


def words_of(node: ast.AST) -> str:
    """Return the names, the attributes and the beginnings of the strings below a node."""
    strings = (
        part.value[:80]
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )
    return " ".join((*names_in(node), *strings))


def is_none(node: ast.AST | None) -> bool:
    """Return whether a node is missing or the constant None."""
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def targets_of(node: ast.AST | None) -> list[ast.expr]:
    """Return the targets of an assignment; an empty list for other nodes."""
    if isinstance(node, ast.Assign):
        return node.targets
    if isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
        return [node.target]
    return []
