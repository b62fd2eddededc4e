"""The shared libraries that this process really has, and what was put before them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .elf import build_id
from .machine import read

_LINE = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ (\d+)\s+(/.*)$", re.M)
_SO = re.compile(r"\.(so|dylib)(\.|$)")


def preload(environ: Mapping[str, str], root: Path = Path("/")) -> dict[str, Any]:
    """`LD_PRELOAD`, `LD_AUDIT` and `/etc/ld.so.preload`: code that runs in every process."""
    return {
        "LD_PRELOAD": [
            _library(path) for path in re.split(r"[:\s]+", environ.get("LD_PRELOAD", "")) if path
        ],
        "LD_AUDIT": environ.get("LD_AUDIT", ""),
        "ld_so_preload": read(root / "etc/ld.so.preload").split(),
        "LD_LIBRARY_PATH": environ.get("LD_LIBRARY_PATH", "").split(os.pathsep),
    }


def libraries(maps: Path = Path("/proc/self/maps")) -> dict[str, Any]:
    """Every shared library that is mapped: by file name, since folders differ between machines.

    Each with its build id (or its size, where it has none): that tells a library that was replaced
    under the same name. Code of Python extensions is told by its package.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for _, path in dict.fromkeys(_LINE.findall(read(maps, limit=1 << 26))):
        path = path.removesuffix(" (deleted)")
        if _SO.search(os.path.basename(path)) and not _is_extension(path):
            found.setdefault(os.path.basename(path), []).append(_library(path))
    return {name: sorted(found[name], key=lambda one: str(one["path"])) for name in sorted(found)}


def _is_extension(path: str) -> bool:
    return bool(re.search(r"\.(cpython-|abi3|pypy)[^/]*\.so$", path))


def _library(path: str) -> dict[str, Any]:
    try:
        size = os.stat(path).st_size
    except OSError:
        return {"path": path, "missing": True}
    return {"path": path, "build_id": build_id(path), "size": size}
