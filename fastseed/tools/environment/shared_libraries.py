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
_HEADER = (("<Q", 32), ("<HH", 54))  # of program headers: offset in the file; size and number
_PT_NOTE = 4
_BUILD_ID = re.compile(b"\x04\0\0\0(.)\0\0\0\x03\0\0\0GNU\0.*", re.DOTALL)


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
    """Return the GNU build id of a 64-bit ELF file, in hexadecimal; None if it has none.

    Layout: System V ABI, chapters 4 and 5 (ELF header, program headers, notes).
    """
    if not os.path.isfile(path):  # a pipe would block
        return None
    with open(path, "rb") as file:
        head = file.read(64)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            return None
        (offset,), (size, count) = (struct.unpack_from(f, head, at) for f, at in _HEADER)
        for i in range(count):
            file.seek(offset + i * size)
            kind, start, length = struct.unpack("<I4xQ16xQ", file.read(40).ljust(40, b"\0"))
            if kind == _PT_NOTE:
                file.seek(start)
                note = _BUILD_ID.search(file.read(min(length, 1 << 16)))
                if note:
                    return note[0][16 : 16 + note[1][0]].hex()
    return None
