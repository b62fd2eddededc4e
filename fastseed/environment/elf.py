"""The build id of a shared library, from its own notes: a few kilobytes are read, not the file."""

from __future__ import annotations

import struct
from typing import BinaryIO

_LIMIT = 1 << 16  # bytes of notes


def build_id(path: str) -> str | None:
    """The GNU build id (hexadecimal) of an ELF file; None where there is none to be read.

    Layout: System V ABI, chapters 4 and 5 (ELF header, program headers, notes).
    """
    try:
        with open(path, "rb") as file:
            return _read(file)
    except (OSError, struct.error, ValueError):
        return None


def _read(file: BinaryIO) -> str | None:
    head = file.read(64)
    if head[:4] != b"\x7fELF" or len(head) < 52:
        return None
    wide, order = head[4] == 2, "<" if head[5] == 1 else ">"
    if wide:
        (offset,) = struct.unpack_from(order + "Q", head, 32)
        size, count = struct.unpack_from(order + "HH", head, 54)
    else:
        (offset,) = struct.unpack_from(order + "I", head, 28)
        size, count = struct.unpack_from(order + "HH", head, 42)
    file.seek(offset)
    table = file.read(size * count)
    for i in range(count):
        if struct.unpack_from(order + "I", table, i * size)[0] != 4:  # PT_NOTE
            continue
        if wide:
            start, length = (
                struct.unpack_from(order + "Q", table, i * size + at)[0] for at in (8, 32)
            )
        else:
            start, length = (
                struct.unpack_from(order + "I", table, i * size + at)[0] for at in (4, 16)
            )
        file.seek(start)
        found = _note(file.read(min(length, _LIMIT)), order)
        if found:
            return found
    return None


def _note(notes: bytes, order: str) -> str | None:
    at = 0
    while at + 12 <= len(notes):
        name, size, kind = struct.unpack_from(order + "III", notes, at)
        body = at + 12 + (name + 3 & ~3)
        if kind == 3 and notes[at + 12 : at + 12 + name] == b"GNU\0":  # NT_GNU_BUILD_ID
            return notes[body : body + size].hex()
        at = body + (size + 3 & ~3)
    return None
