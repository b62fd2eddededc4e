"""The shared libraries that this process has mapped, and those that are preloaded."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .keyed_hash import Hasher
from .machine import read

_LINE = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+\s+(/.*)$", re.M)
_NAME = re.compile(r"[\w.+-]+\.(so|dylib)(\.[\w.]+)?")
_EXTENSION = re.compile(r"\.(cpython-|abi3|pypy)[^/]*\.so$")  # known by its package's version
_PT_NOTE, _NT_GNU_BUILD_ID = 4, 3


def preload(environment: Mapping[str, str], hasher: Hasher, root: Path = Path("/")) -> Any:
    """Return what `LD_PRELOAD`, `LD_AUDIT` and `/etc/ld.so.preload` load into every process."""
    lists = {name: environment.get(name, "") for name in ("LD_PRELOAD", "LD_AUDIT")}
    lists["ld_so_preload"] = read(root / "etc/ld.so.preload")
    return {
        name: [_library(path, hasher) for path in re.split(r"[:\s]+", text) if path]
        for name, text in lists.items()
    }


def libraries(hasher: Hasher, maps: Path = Path("/proc/self/maps")) -> dict[str, Any]:
    """Return every mapped shared library by file name, since folders differ between machines.

    The build id (the size where it is missing) detects a library that was replaced under its name.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for path in dict.fromkeys(_LINE.findall(read(maps, limit=1 << 26))):
        path = path.removesuffix(" (deleted)")
        name = os.path.basename(path)
        if _NAME.fullmatch(name) and not _EXTENSION.search(name):
            found.setdefault(name, []).append(_library(path, hasher))
    return dict(sorted(found.items()))


def _library(path: str, hasher: Hasher) -> dict[str, Any]:
    name = os.path.basename(path)
    about = {
        "name": name if _NAME.fullmatch(name) else hasher.path(name),
        "folder": hasher.path(os.path.dirname(path)),
    }
    try:
        return {**about, "build_id": build_id(path), "size": os.stat(path).st_size}
    except OSError:
        return {**about, "missing": True}


def build_id(path: str) -> str | None:
    """Return the GNU build id of an ELF file, in hexadecimal; None if it has none.

    Layout: System V ABI, chapters 4 and 5 (ELF header, program headers, notes).
    """
    if not os.path.isfile(path):  # a pipe would block
        return None
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if head[:4] != b"\x7fELF" or len(head) < 52:
                return None
            wide, order = head[4] == 2, "<" if head[5] == 1 else ">"
            (offset,) = struct.unpack_from(order + ("Q" if wide else "I"), head, 32 if wide else 28)
            size, count = struct.unpack_from(order + "HH", head, 54 if wide else 42)
            file.seek(offset)
            table = file.read(min(size * count, 1 << 16))
            for at in range(0, len(table), size):
                if struct.unpack_from(order + "I", table, at)[0] == _PT_NOTE:
                    form, where = ("Q16xQ", at + 8) if wide else ("I8xI", at + 4)
                    start, length = struct.unpack_from(order + form, table, where)
                    file.seek(start)
                    found = _find_build_id(file.read(min(length, 1 << 16)), order)
                    if found:
                        return found
    except (OSError, struct.error, ValueError, OverflowError):  # a damaged file
        return None
    return None


def _find_build_id(notes: bytes, order: str) -> str | None:
    at = 0
    while at + 12 <= len(notes):
        name, size, kind = struct.unpack_from(order + "III", notes, at)
        body = at + 12 + (name + 3 & ~3)
        if kind == _NT_GNU_BUILD_ID and notes[at + 12 : at + 12 + name] == b"GNU\0":
            return notes[body : body + min(size, 64)].hex()
        at = body + (size + 3 & ~3)
    return None
