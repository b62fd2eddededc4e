"""Packages whose names are loaded when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def attributes(
    package: str, defined: Mapping[str, str], modules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package; ``defined`` has names by module."""
    public = frozenset(modules)
    home: dict[str, str] = {}
    for module, held in defined.items():
        home.update(dict.fromkeys(held.split(), module))

    def get(name: str) -> Any:
        if name in public:
            return importlib.import_module(f".{name}", package)
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f".{home[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home, *public})

    return get, names
