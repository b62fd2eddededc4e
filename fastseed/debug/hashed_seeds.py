"""Find seeds that are made by ``hash``, which differs between processes for texts."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator

from ..determinism import hash_seed
from .generator_use import NOTE, WRONG, Row, is_library

_SEEDED = {"Random", "RandomState", "default_rng", "SeedSequence", "PRNGKey", "Philox", "PCG64"}


def hashed_seeds(script: str | None) -> Iterator[Row]:
    found = {getattr(module, "__file__", None) for module in [*sys.modules.values()]}
    own = {file for file in found if file and file.endswith(".py") and not is_library(file)}
    _, fixed = hash_seed.found()
    for file in sorted(own | ({os.path.abspath(script)} if script else set())):
        for line in _lines(file):
            detail = (
                f"makes a seed, and differs between processes for texts: {file}:{line}; "
                "take fastseed.derive_seed(name)"
            )
            yield Row("use", "hash", WRONG if fixed is None else NOTE, detail)


def _lines(file: str) -> list[int]:
    try:
        with open(file, "rb") as opened:
            source = opened.read()
        nodes = [*ast.walk(ast.parse(source))] if b"hash(" in source else []
    except (OSError, SyntaxError, ValueError):  # not read is not found
        return []
    return sorted({node.lineno for node in nodes if isinstance(node, ast.stmt | ast.expr)
                   and any(map(_hashes, _seeds(node)))})  # fmt: skip


def _seeds(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Call():
            named = [k.value for k in node.keywords if k.arg and "seed" in k.arg.lower()]
            name = _name(node.func)
            return [*node.args, *named] if "seed" in name.lower() or name in _SEEDED else named
        case ast.Assign() if any("seed" in _name(target).lower() for target in node.targets):
            return [node.value]
    return []


def _name(node: ast.expr) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _hashes(value: ast.expr) -> bool:
    calls = (node for node in ast.walk(value) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Name) and call.func.id == "hash" for call in calls)
