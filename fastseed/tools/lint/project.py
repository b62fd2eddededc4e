"""The imports between the files of one call.

A job is more than one file. A helper that a script with fastseed imports runs under fastseed too,
and so does a script that imports a helper in which fastseed is called.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from .module import Module
from .rules.nondeterministic_ops import switches_on

_ADOPTS = {"init", "reseed", "Seeder", "register_generator", "load_state_dict", "data"}
_ADOPTS |= {"integrations", "pyt"}
_FURTHEST = 8  # folders above a file in which its imports are looked for


class Facts(NamedTuple):
    """The facts about a file that other files need."""

    path: str
    imports: tuple[str, ...]
    adopts: bool
    """True if it calls what seeds by fastseed; digests or captures alone do not count."""
    switches: bool
    """True if it turns on deterministic algorithms."""


def facts_of(module: Module) -> Facts:
    """Read them from a parsed file."""
    imports = module.imports
    adopts = False
    if module.has("fastseed"):
        origins = {*imports, *(module.names.origin(node) or "" for node in module.nodes)}
        adopts = any(
            origin.startswith("fastseed.") and origin.split(".")[1].rstrip("()") in _ADOPTS
            for origin in origins
        )
    return Facts(module.source.path, imports, adopts, switches_on(module))


class Project:
    """Which files run under fastseed, and which with torch's switch on."""

    def __init__(self, facts: Iterable[Facts]) -> None:
        self._facts = {os.path.abspath(one.path): one for one in facts}
        self._imports: dict[str, set[str]] | None = None
        self.adopted = self._with(one for one, its in self._facts.items() if its.adopts)
        self.switched = self._with(one for one, its in self._facts.items() if its.switches)

    def _with(self, starts: Iterable[str]) -> set[str]:
        """These files, those that import them, and all that any of these imports."""
        found = set(starts)
        if not found:
            return found
        if self._imports is None:
            self._imports = {path: self._resolved(path) for path in self._facts}
        importers: dict[str, set[str]] = {}
        for path, imported in self._imports.items():
            for one in imported:
                importers.setdefault(one, set()).add(path)
        return _closure(_closure(found, importers), self._imports)

    def _resolved(self, path: str) -> set[str]:
        """The files of the project that one imports."""
        found: set[str] = set()
        for dotted in self._facts[path].imports:
            name = dotted.lstrip(".")
            level = len(dotted) - len(name)
            folder = os.path.dirname(path)
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            for _ in range(1 if level else _FURTHEST):
                files = self._files(folder, name)
                found |= files
                if files or folder == os.path.dirname(folder):
                    break
                folder = os.path.dirname(folder)
        return found - {path}

    def _files(self, folder: str, name: str) -> set[str]:
        """The file of ``a.b.c``: ``a/b/c.py``, ``a/b/c/__init__.py``, or ``a/b.py`` that has c."""
        parts = name.split(".")
        for many in (len(parts), len(parts) - 1):
            base = os.path.join(folder, *parts[:many])
            ends = (f"{base}.py",) if many else ()
            for one in (*ends, os.path.join(base, "__init__.py")):
                if one in self._facts:
                    return {one}
        return set()


def _closure(starts: set[str], edges: dict[str, set[str]]) -> set[str]:
    found, todo = set(starts), list(starts)
    while todo:
        for one in edges.get(todo.pop(), ()):
            if one not in found:
                found.add(one)
                todo.append(one)
    return found
