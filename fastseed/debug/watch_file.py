"""The files of :class:`fastseed.debug.Watch`: digests step by step, one file for each rank.

A file begins with 16 bytes that name the format, followed by records. It is only appended to, one
record at a time: after a crash it is complete except for its last record (docs/digest.md).
"""

from __future__ import annotations

import errno
import json
import os
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .._utils import strict_json
from .._utils.validation import value_error

MAGIC = b"fastseed watch 1"
FOLDER = "watch"
"""The folder of recordings in the folder of a run."""
GROUPS = ("generator", "buffer", "gradient", "optimizer", "parameter")
"""In the order in which a training step uses and changes them."""

_HEAD = struct.Struct("<4sIII")  # kind, bytes of the payload, its CRC-32, CRC-32 of these three
_STEP = struct.Struct("<qBI")  # step, whether it is the start, the number of its table
_MOST = 1 << 30  # bytes of a payload
_VALUE = 16


class Entry(NamedTuple):
    """A row of a table: something that is digested."""

    group: str
    name: str
    dtype: str
    shape: tuple[int, ...]


class Position(NamedTuple):
    """The position of a step's digests in a file."""

    offset: int
    start: bool
    table: int


class Values(NamedTuple):
    """The digests of one step."""

    entries: tuple[Entry, ...]
    digests: bytes
    start: bool

    def items(self) -> Iterator[tuple[Entry, int]]:
        """Yield each entry with its digest."""
        for i, entry in enumerate(self.entries):
            part = self.digests[i * _VALUE : (i + 1) * _VALUE]
            yield entry, int.from_bytes(part, "little")


def record(kind: bytes, payload: bytes) -> bytes:
    """Return the bytes of a record."""
    head = _HEAD.pack(kind, len(payload), zlib.crc32(payload), 0)[:12]
    return head + struct.pack("<I", zlib.crc32(head)) + payload


class Writer:
    """Appends to one file; each record is one write."""

    def __init__(self, path: Path, header: dict[str, Any], *, append: bool) -> None:
        self.path = path
        self._tables: dict[tuple[Entry, ...], int] = {}
        old = Recording(path) if append and path.exists() else None
        self._file = open(path, "xb" if old is None else "r+b", buffering=0)  # noqa: SIM115
        self._end = 0 if old is None else old.end
        if old is None:
            self._append(MAGIC + record(b"head", json.dumps(header).encode()))
        else:
            self._cut()
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
        self._append(data + record(b"step", _STEP.pack(step, start, table) + digests))
        self._tables[entries] = table

    def _append(self, data: bytes) -> None:
        try:
            if self._file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        except OSError:
            self._cut()
            raise
        self._end += len(data)

    def _cut(self) -> None:
        """Remove an incomplete record at the end."""
        self._file.truncate(self._end)
        self._file.seek(self._end)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()


class Recording:
    """A file as it was recorded, up to its last complete record.

    Attributes:
        header: ``rank``, ``world_size``, ``every``, ``groups`` and more about the run.
        tables: the tuples of entries that steps refer to.
        steps: the position of each step; the last one of a step that was recorded twice.
        repeated: the steps that were recorded more than once.
        end: the number of bytes in complete records.
        incomplete: whether an incomplete record follows them.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a regular file of this format, or is damaged before its last record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self.tables: list[tuple[Entry, ...]] = []
        self.steps: dict[int, Position] = {}
        self.repeated: list[int] = []
        self.end = len(MAGIC)
        check_regular(path)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if file.read(len(MAGIC)) != MAGIC:
                raise value_error(
                    "debug.bisect", "path", "a file of fastseed.debug.Watch", str(path)
                )
            while self._next(file, size):
                pass
        self.incomplete = self.end < size
        if not self.header:
            raise self._damaged("it ends before its header does")

    def values(self, step: int) -> Values:
        """Return the digests of a step that is in ``steps``."""
        at = self.steps[step]
        table = self.tables[at.table]
        with open(self.path, "rb") as file:
            file.seek(at.offset)
            return Values(table, file.read(len(table) * _VALUE), at.start)

    def _damaged(self, how: str) -> ValueError:
        text = f"fastseed.debug.bisect: {str(self.path)!r} is damaged at byte {self.end}: {how}"
        return ValueError(text)

    def _next(self, file: Any, size: int) -> bool:
        """Read one record; False at the end, or if the last record is incomplete."""
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return False
        kind, length, check, check_head = _HEAD.unpack(head)
        if zlib.crc32(head[:12]) != check_head or length > _MOST:
            if not any(head) and not any(file.read(_MOST)):
                return False  # zeros, which some file systems leave after a crash
            raise self._damaged("there is no record")
        if length > size - self.end - _HEAD.size:
            return False
        payload = file.read(length)
        if zlib.crc32(payload) != check:
            raise self._damaged("the checksum of a record is wrong")
        try:
            self._parse(kind, payload)
        except (ValueError, TypeError, LookupError, struct.error) as error:
            reason = f"{type(error).__name__}: {error}"
            raise self._damaged(f"a record is not of this format ({reason})") from error
        self.end += _HEAD.size + length
        return True

    def _parse(self, kind: bytes, payload: bytes) -> None:
        if (kind == b"head") != (not self.header):
            raise ValueError("the header must be the first record and the only header")
        if kind == b"head":
            self.header = _header(strict_json.parse(payload))
        elif kind == b"tabl":
            self.tables.append(tuple(_entry(*row) for row in strict_json.parse(payload)))
        elif kind == b"step":
            step, start, table = _STEP.unpack_from(payload)
            if len(payload) != _STEP.size + _VALUE * len(self.tables[table]) or start > 1:
                raise ValueError("the length of a step differs from that of its table")
            if step in self.steps:
                self.repeated.append(step)
            offset = self.end + _HEAD.size + _STEP.size
            self.steps[step] = Position(offset, bool(start), table)
        else:
            raise ValueError(f"the kind of a record must be known, got {kind!r}")


def check_regular(path: Path) -> None:
    """Raise unless ``path`` is a regular file: opening a pipe would wait for a writer."""
    try:
        is_regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(f"fastseed.debug.bisect: {str(path)!r} must exist") from None
        is_regular = False
    if not is_regular:
        raise value_error("debug.bisect", "path", "a regular file", str(path))


def _header(found: Any) -> dict[str, Any]:
    """Return a header after a check of its types."""
    whole = all(type(found[name]) is int for name in ("rank", "world_size", "every"))
    groups = found["groups"]
    if not whole or not isinstance(groups, list) or not set(groups) <= set(GROUPS):
        raise ValueError("the fields of the header must have their types")
    return dict(found)


def _entry(group: Any, name: Any, dtype: Any, shape: Any) -> Entry:
    texts = all(isinstance(text, str) for text in (group, name, dtype))
    if not texts or group not in GROUPS or not all(type(size) is int for size in shape):
        raise ValueError("a row of a table must name a tensor")
    return Entry(group, name, dtype, tuple(shape))
