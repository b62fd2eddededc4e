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

_ADOPTS = {
    "init", "reseed", "Seeder", "register_generator", "load_state_dict", "data", "integrations",
    "pyt",
}  # fmt: skip
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
    adopts = False
    if module.has("fastseed"):
        origins = {*module.imports, *(module.names.origin(node) or "" for node in module.nodes)}
        adopts = any(
            origin.startswith("fastseed.") and origin.split(".")[1].rstrip("()") in _ADOPTS
            for origin in origins
        )
    return Facts(os.path.abspath(module.source.path), module.imports, adopts, switches_on(module))


class Project:
    """Which files run under fastseed, and which with torch's switch on.

    Attributes:
        adopted, switched: absolute paths.
    """

    def __init__(self, facts: Iterable[Facts]) -> None:
        every = list(facts)
        paths = {one.path for one in every}
        self._imported = {one.path: _files(one, paths) for one in every}
        self._importing: dict[str, set[str]] = {path: set() for path in paths}
        for path, imported in self._imported.items():
            for one in imported:
                self._importing[one].add(path)
        self.adopted = self._with(one.path for one in every if one.adopts)
        self.switched = self._with(one.path for one in every if one.switches)

    def _with(self, paths: Iterable[str]) -> set[str]:
        """These files, those that import them, and all that any of these imports."""
        return _closure(_closure(paths, self._importing), self._imported)


def _files(facts: Facts, paths: set[str]) -> set[str]:
    """The files among ``paths`` that one of them imports."""
    found: set[str] = set()
    for dotted in facts.imports:
        name = dotted.lstrip(".")
        level = len(dotted) - len(name)
        folder = os.path.dirname(facts.path)
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
        for _ in range(1 if level else _FURTHEST):
            file = _file(folder, name.split("."), paths)
            if file is not None:
                found.add(file)
                break
            folder = os.path.dirname(folder)
    return found - {facts.path}


def _file(folder: str, parts: list[str], paths: set[str]) -> str | None:
    """The file of ``a.b.c``: ``a/b/c.py``, ``a/b/c/__init__.py``, or ``a/b.py`` that has c."""
    for base in (os.path.join(folder, *parts), os.path.join(folder, *parts[:-1])):
        for path in (f"{base}.py", os.path.join(base, "__init__.py")):
            if path in paths:
                return path
    return None


def _closure(starts: Iterable[str], edges: dict[str, set[str]]) -> set[str]:
    found = set(starts)
    todo = list(found)
    while todo:
        new = edges[todo.pop()] - found
        found |= new
        todo += new
    return found
