"""The files of ``fastseed.debug.Watch``: digests step by step, one file for each rank.

A file begins with 16 bytes that name the format, followed by records. It is only appended to, one
record at a time: after a crash it is complete except for its last record (docs/spec/digests.md).
"""

from __future__ import annotations

import errno
import json
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .._utils import strict_json
from .._utils.validation import value_error
from .tree_digest import Leaf

MAGIC = b"fastseed watch 1"
FOLDER = "watch"
"""The folder of recordings in the folder of a run."""
FIELDS = ("rank", "world_size", "every", "groups", "torch")
"""The entries of the header."""
STATE = ("generator", "buffer", "gradient", "optimizer", "parameter")
"""The groups that are recorded after a step."""
CALLS = ("forward", "backward")
"""The groups of the calls of modules."""
GROUPS = (STATE[0], *CALLS, *STATE[1:])
"""In the order in which a training step uses and changes them."""

_HEAD = struct.Struct("<4sIII")  # kind, bytes of the payload, its CRC-32, CRC-32 of these three
_STEP = struct.Struct("<qBI")  # step, whether it is the start, the number of its table
_VALUE = 16
_LONGEST = 1 << 28  # bytes of a record: the digests of 16 million tensors


class Entry(NamedTuple):
    """A row of a table: something that is digested."""

    group: str
    name: str
    dtype: str
    shape: tuple[int, ...]


class Values(NamedTuple):
    """The digests of one step."""

    entries: tuple[Entry, ...]
    digests: bytes
    start: bool

    def by_name(self) -> dict[tuple[str, str], Leaf]:
        """Return the digest of each entry by its group and name."""
        found = {}
        for i, entry in enumerate(self.entries):
            value = int.from_bytes(self.digests[i * _VALUE : (i + 1) * _VALUE], "little")
            found[entry.group, entry.name] = Leaf(value, entry.dtype, entry.shape)
        return found


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

    def step(self, step: int, table: Mapping[Entry, int], start: bool) -> None:
        """Append the digests of a step by what was digested."""
        entries, data = tuple(table), b""
        number = self._tables.get(entries, len(self._tables))
        if number == len(self._tables):
            data = record(b"tabl", json.dumps(entries).encode())
        digests = b"".join(value.to_bytes(_VALUE, "little") for value in table.values())
        self._append(data + record(b"step", _STEP.pack(step, start, number) + digests))
        self._tables[entries] = number

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
        header: the values of ``FIELDS``.
        tables: the tuples of entries that steps refer to.
        steps: (the position of its digests, whether it is the start, the number of its table) of
            each step; the last one of a step that was recorded twice.
        repeated: the steps that were recorded more than once.
        end: the number of bytes in complete records.
        incomplete: whether an incomplete record follows them.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not of this format, or is damaged before its last record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self.tables: list[tuple[Entry, ...]] = []
        self.steps: dict[int, tuple[int, bool, int]] = {}
        self.repeated: list[int] = []
        self.end = len(MAGIC)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if file.read(len(MAGIC)) != MAGIC:
                rule = "a file of fastseed.debug.Watch"
                raise value_error("debug.bisect", "path", rule, str(path))
            while self._next(file, size):
                pass
        self.incomplete = self.end < size
        if not self.header:
            raise self._damaged("it ends before its header does")

    def values(self, step: int) -> Values:
        """Return the digests of a step that is in ``steps``."""
        offset, start, number = self.steps[step]
        with open(self.path, "rb") as file:
            file.seek(offset)
            table = self.tables[number]
            return Values(table, file.read(len(table) * _VALUE), start)

    def _damaged(self, how: str) -> ValueError:
        text = f"fastseed.debug.bisect: {str(self.path)!r} is damaged at byte {self.end}: {how}"
        return ValueError(text)

    def _next(self, file: Any, size: int) -> bool:
        """Read one record; False at the end, or if the last record is incomplete."""
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return False
        kind, length, check, check_head = _HEAD.unpack(head)
        if zlib.crc32(head[:12]) != check_head:
            blocks = iter(lambda: file.read(1 << 20), b"")
            if not any(head) and not any(block.strip(b"\0") for block in blocks):
                return False  # zeros, which some file systems leave after a crash
            raise self._damaged("there is no record")
        if length > size - self.end - _HEAD.size:
            return False
        if length > _LONGEST:
            raise self._damaged(f"a record has {length} bytes, more than {_LONGEST}")
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
        if kind == b"head":
            header: Any = strict_json.parse(payload)
            self.header = {name: header[name] for name in FIELDS}
            if type(header["rank"]) is not int or not isinstance(header["groups"], list):
                raise ValueError("rank must be an integer and groups a list")
        elif kind == b"tabl":
            rows: Any = strict_json.parse(payload)
            entries = (
                Entry(group, name, dtype, tuple(shape)) for group, name, dtype, shape in rows
            )
            self.tables.append(tuple(entries))
        elif kind == b"step":
            step, start, number = _STEP.unpack_from(payload)
            if len(payload) != _STEP.size + _VALUE * len(self.tables[number]):
                raise ValueError("the length of a step differs from that of its table")
            if step in self.steps:
                self.repeated.append(step)
            self.steps[step] = self.end + _HEAD.size + _STEP.size, bool(start), number
        else:
            raise ValueError(f"the kind of a record must be known, got {kind!r}")
