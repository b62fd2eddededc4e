"""The files that :class:`fastseed.debug.Watch` writes: digests step by step, one file a rank.

A file begins with 16 bytes that name the format; records follow until its end. It is only ever
appended to, a record at a time, so that what a crash leaves is a whole file but for its last
record. docs/digest.md has the layout.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

MAGIC = b"fastseed watch 1"
FOLDER = "watch"
"""Of recordings, in the folder of a run."""
GROUPS = ("generator", "buffer", "gradient", "optimizer", "parameter")
"""What a step begins from, then the rest in the order in which it is made."""

_HEAD = struct.Struct("<4sIII")  # kind, bytes of the payload, its CRC-32, CRC-32 of these three
_STEP = struct.Struct("<qBI")  # step, whether it is a start, the number of its table
_MOST = 1 << 30  # bytes of a payload
_VALUE = 16


class Entry(NamedTuple):
    """What is digested: one row of a table."""

    group: str
    name: str
    dtype: str
    shape: tuple[int, ...]


class At(NamedTuple):
    """Where the digests of a step are in a file."""

    offset: int
    start: bool
    table: int


class Values(NamedTuple):
    """The digests of one step."""

    entries: tuple[Entry, ...]
    digests: bytes
    start: bool

    def items(self) -> Iterator[tuple[Entry, int]]:
        """Each entry with its digest."""
        for i, entry in enumerate(self.entries):
            part = self.digests[i * _VALUE : (i + 1) * _VALUE]
            yield entry, int.from_bytes(part, "little")


# ---------------------------------------------------------------- writing


def record(kind: bytes, payload: bytes) -> bytes:
    """A record as it stands in a file."""
    head = _HEAD.pack(kind, len(payload), zlib.crc32(payload), 0)[:12]
    return head + struct.pack("<I", zlib.crc32(head)) + payload


class Writer:
    """Appends to one file. A record is one write, so that a process that ends leaves it whole."""

    def __init__(self, path: Path, header: dict[str, Any], *, append: bool) -> None:
        self.path = path
        self._tables: dict[tuple[Entry, ...], int] = {}
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        old = Recording(path) if append and path.exists() else None
        self._file = os.open(path, flags | (0 if append else os.O_EXCL), 0o666)
        if old is None:
            self._end = 0
            self._write(MAGIC + record(b"head", json.dumps(header).encode()))
        else:
            self._end = old.end
            os.ftruncate(self._file, old.end)  # what a crash left of its last record
            os.lseek(self._file, old.end, os.SEEK_SET)
            self._tables = {table: i for i, table in enumerate(old.tables)}

    def step(
        self, step: int, entries: tuple[Entry, ...], values: Sequence[int], start: bool
    ) -> None:
        """Append the digests of a step."""
        table = self._tables.get(entries)
        data = b""
        if table is None:
            table = len(self._tables)
            rows = [[e.group, e.name, e.dtype, list(e.shape)] for e in entries]
            data = record(b"tabl", json.dumps(rows).encode())
        digests = b"".join(value.to_bytes(_VALUE, "little") for value in values)
        self._write(data + record(b"step", _STEP.pack(step, start, table) + digests))
        self._tables[entries] = table

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            os.ftruncate(self._file, self._end)  # a full disk: no half record before the next one
            os.lseek(self._file, self._end, os.SEEK_SET)
            raise
        self._end += len(data)

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            os.close(self._file)


# ---------------------------------------------------------------- reading


class Recording:
    """A file as it was recorded, up to where it ends or was cut off.

    Attributes:
        header: what the file says of its run: ``rank``, ``world_size``, ``every``, ``groups``, ….
        tables: the tuples of entries that steps refer to.
        steps: where each step is; of one that was recorded twice the last.
        twice: steps that were recorded twice.
        end: bytes that are whole records; what lies behind them is the rest of one.
        cut: whether there is such a rest.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is none of these files, or is damaged before its last record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self.tables: list[tuple[Entry, ...]] = []
        self.steps: dict[int, At] = {}
        self.twice: list[int] = []
        self.end = len(MAGIC)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if file.read(len(MAGIC)) != MAGIC:
                raise ValueError(
                    f"fastseed.bisect: {str(path)!r} must be a file of fastseed.Watch, version 1, "
                    "but begins otherwise"
                )
            while self._next(file, size):
                pass
        self.cut = self.end < size
        if not self.header:
            self._damaged("it ends before its header does")

    def values(self, step: int) -> Values:
        """The digests of a step that is in ``steps``."""
        at = self.steps[step]
        table = self.tables[at.table]
        with open(self.path, "rb") as file:
            file.seek(at.offset)
            return Values(table, file.read(len(table) * _VALUE), at.start)

    def _damaged(self, how: str) -> None:
        raise ValueError(
            f"fastseed.bisect: {str(self.path)!r} is damaged at byte {self.end}: {how}"
        )

    def _next(self, file: Any, size: int) -> bool:
        """Read one record; False at the end, or where a crash cut the last one off."""
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return False
        kind, length, check, check_head = _HEAD.unpack(head)
        if zlib.crc32(head[:12]) != check_head or length > _MOST:
            if not any(head) and not any(file.read(_MOST)):
                return False  # zeros, as a file system may leave them behind a crash
            self._damaged("there is no record")
        if length > size - self.end - _HEAD.size:
            return False
        payload = file.read(length)
        if zlib.crc32(payload) != check:
            self._damaged("a record has another checksum than it says")
        if (kind == b"head") != (not self.header):
            self._damaged("its header must be its first record, and the only one")
        try:
            self._take(kind, payload)
        except (ValueError, TypeError, KeyError, IndexError, struct.error, RecursionError) as error:
            self._damaged(f"a record is none of this format ({error or type(error).__name__})")
        self.end += _HEAD.size + length
        return True

    def _take(self, kind: bytes, payload: bytes) -> None:
        if kind == b"head":
            self.header = _header(json.loads(payload))
        elif kind == b"tabl":
            self.tables.append(tuple(_entry(*row) for row in json.loads(payload)))
        elif kind == b"step":
            step, start, table = _STEP.unpack_from(payload)
            if len(payload) != _STEP.size + _VALUE * len(self.tables[table]) or start > 1:
                raise ValueError("a step has not the length of its table")
            if step in self.steps:
                self.twice.append(step)
            offset = self.end + _HEAD.size + _STEP.size
            self.steps[step] = At(offset, bool(start), table)
        else:
            raise ValueError(f"of kind {kind!r}")


def _header(found: Any) -> dict[str, Any]:
    """A header whose fields have the types that they should."""
    whole = all(type(found[name]) is int for name in ("rank", "world_size", "every"))
    groups = found["groups"]
    if not whole or not isinstance(groups, list) or not set(groups) <= set(GROUPS):
        raise ValueError("a header with other fields")
    return dict(found)


def _entry(group: Any, name: Any, dtype: Any, shape: Any) -> Entry:
    texts = all(isinstance(text, str) for text in (group, name, dtype))
    if not texts or group not in GROUPS or not all(type(size) is int for size in shape):
        raise ValueError("a row that names no tensor")
    return Entry(group, name, dtype, tuple(shape))
