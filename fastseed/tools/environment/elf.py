"""The build id of a shared library, from its own notes: a few kilobytes are read, not the file."""

from __future__ import annotations

import os
import stat
import struct
from typing import BinaryIO

# What is read of a file at most. A linker makes a dozen headers and two or three segments of notes.
_TABLE = 1 << 16  # bytes of program headers
_SEGMENTS = 16  # of notes
_NOTES = 1 << 16  # bytes of each
_LONGEST = 64  # bytes of a build id: SHA-1 has 20


def build_id(path: str) -> str | None:
    """The GNU build id (hexadecimal) of an ELF file; None where there is none to be read.

    Layout: System V ABI, chapters 4 and 5 (ELF header, program headers, notes).
    """
    try:
        # A pipe of this name would be waited for.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            return _read(file) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except (OSError, struct.error, ValueError, OverflowError):
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
    if size < (56 if wide else 32):
        return None
    count = min(count, _TABLE // size)
    table = file.read(size * count)
    segments = 0
    for i in range(min(count, len(table) // size)):
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
        if segments == _SEGMENTS:
            break
        segments += 1
        file.seek(start)
        found = _note(file.read(min(length, _NOTES)), order)
        if found:
            return found
    return None


def _note(notes: bytes, order: str) -> str | None:
    at = 0
    while at + 12 <= len(notes):
        name, size, kind = struct.unpack_from(order + "III", notes, at)
        body = at + 12 + (name + 3 & ~3)
        if kind == 3 and notes[at + 12 : at + 12 + name] == b"GNU\0":  # NT_GNU_BUILD_ID
            return notes[body : body + size].hex() if size <= _LONGEST else None
        at = body + (size + 3 & ~3)
    return None
