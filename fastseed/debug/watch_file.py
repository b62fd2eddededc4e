"""The files of ``fastseed.debug.Watch``: digests step by step, one file for each rank.

Each line is a JSON object that begins with the CRC-32 of what follows. A file is only appended to:
after a crash it is complete except for its last line (docs/spec/file-formats.md).
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias

from .._utils import StateDict, regular_file, strict_json
from .._utils.validation import value_error
from ..digest.trees import Difference, Leaf, sides, whole

FORMAT = "fastseed watch 2"
FOLDER = "watch"
"""The folder of recordings in the folder of a run."""
PATTERN = "rank-*.watch"
STATE = ("generator", "buffer", "gradient", "optimizer", "parameter")
"""The groups that are recorded after a step."""
CALLS = ("forward", "backward")
"""The groups of the calls of modules."""
GROUPS = (STATE[0], *CALLS, *STATE[1:])
"""In the order in which a training step uses and changes them."""

Key: TypeAlias = tuple[str, str]  # group and name
Table: TypeAlias = dict[Key, Leaf]

_CRC = b'{"crc32": "'
_REST = len(_CRC) + 8  # where the other members begin
_DIGITS = 32  # of a digest
_LONGEST = 1 << 29  # bytes of a line: the digests of 16 million tensors


class Entry(NamedTuple):
    """Something that is digested; a table is the list of all that a step digests."""

    group: str
    name: str
    dtype: str
    shape: tuple[int, ...]


class Values(NamedTuple):
    entries: tuple[Entry, ...]
    digests: str
    start: bool

    def by_name(self) -> Table:
        found = {}
        for i, entry in enumerate(self.entries):
            value = int(self.digests[i * _DIGITS : (i + 1) * _DIGITS], 16)
            found[entry.group, entry.name] = Leaf(value, entry.dtype, entry.shape)
        return found

    def digest_of(self, key: Key) -> str | None:
        """Return the digits of one digest by its group and name; None without it."""
        at = next((i for i, entry in enumerate(self.entries) if entry[:2] == key), None)
        return None if at is None else self.digests[at * _DIGITS : (at + 1) * _DIGITS]


def find_files(path: Path) -> list[Path]:
    """Return the recordings in a folder, or in that of a run."""
    found = (sorted(folder.glob(PATTERN)) for folder in (path, path / FOLDER))
    return next(filter(None, found), [])


def differences(a: Table, b: Table, among: Collection[Key] | None = None) -> list[Difference]:
    """Return what differs between two tables, in the order of a training step."""
    every = a | b if among is None else [key for key in a | b if key in among]
    keys = [key for key in every if a.get(key) != b.get(key)]
    keys.sort(key=lambda key: GROUPS.index(key[0]))
    return [sides(" ".join(key), a.get(key), b.get(key)) for key in keys]


def weights_of(table: Table) -> str:
    """Return the digest of parameters and buffers, as ``digest(model)`` has it; empty if none."""
    found = {name: leaf for (group, name), leaf in table.items() if group in (STATE[1], STATE[-1])}
    return f"{whole(found):032x}" if found else ""


def line_of(members: StateDict) -> bytes:
    rest = b'", ' + json.dumps(members).encode()[1:] + b"\n"
    return _CRC + f"{zlib.crc32(rest):08x}".encode() + rest


class Writer:
    """Appends to one file; each step is one write."""

    def __init__(self, path: Path, header: StateDict) -> None:
        self.path = path
        self._tables: dict[tuple[Entry, ...], int] = {}
        if not path.exists():
            self._end, self._file = 0, open(path, "xb", buffering=0)  # noqa: SIM115
            self._append(line_of({"format": FORMAT, **header}))
            return
        old = Recording(path)
        for name in ("every", "groups"):
            if old.header.get(name) != header[name]:
                rule = f"as in the recording to continue, {old.header.get(name)!r}"
                raise value_error("debug.Watch", name, rule, header[name])
        self._tables = {table: i for i, table in enumerate(old.tables)}
        self._end, self._file = old.end, open(path, "r+b", buffering=0)  # noqa: SIM115
        self._cut()

    def step(self, step: int, table: Mapping[str, Leaf], start: bool) -> None:
        """Append the digests of a step by group and name, with a blank between them."""
        named = ((*key.partition(" ")[::2], leaf) for key, leaf in table.items())
        entries = tuple(Entry(group, name, *leaf[1:]) for group, name, leaf in named)
        number = self._tables.get(entries, len(self._tables))
        data = b"" if entries in self._tables else line_of({"table": entries})
        digests = "".join(leaf.hex for leaf in table.values())
        members = {"step": step, "start": start, "table_number": number, "digests": digests}
        self._append(data + line_of(members))
        self._tables[entries] = number  # only now: a table whose line was cut is written again

    def _append(self, data: bytes) -> None:
        """Append whole lines, or nothing: also after an interrupt."""
        end = self._end
        try:
            if self._file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            self._end = end + len(data)
        except BaseException as error:
            self._end = end
            self._cut()
            if isinstance(error, OSError) and error.filename is None:
                raise OSError(error.errno, error.strerror, str(self.path)) from error
            raise

    def _cut(self) -> None:
        self._file.truncate(self._end)
        self._file.seek(self._end)

    def close(self) -> None:
        self._file.close()


class Recording:
    """A file as it was recorded, up to its last complete line; ``incomplete``: more follows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: StateDict = {}
        self.tables: list[tuple[Entry, ...]] = []
        self.steps: dict[int, tuple[int, bool, int]] = {}  # position, is the start, table
        self.previous: dict[int, int] = {}  # the step before each one
        self.end = 0  # bytes in complete lines
        try:
            opened = regular_file.open_file(path)
        except ValueError as error:
            raise self._refused(str(error)) from None
        try:
            self._read(opened)
        except OSError as error:
            message = f"fastseed.debug.bisect: {str(path)!r} cannot be read: {error.strerror}"
            raise type(error)(message) from error
        steps = sorted(self.steps)
        self.previous = dict(zip(steps[1:], steps, strict=False))

    def _read(self, opened: IO[bytes]) -> None:
        with opened as file:
            while (start := file.read(len(_CRC))) == _CRC:
                line = start + file.readline(_LONGEST)
                if len(line) > _LONGEST:
                    raise self._damaged(f"a line has more than {_LONGEST} bytes")
                if not line.endswith(b"\n"):
                    break
                self._parse(line)
                self.end += len(line)
            self.incomplete = bool(start)
            if not self.header:
                raise self._refused("a file of fastseed.debug.Watch with its header")
            left = os.fstat(file.fileno()).st_size - self.end
            if left > _LONGEST:
                raise self._damaged(f"{left} bytes without a record follow")
            rest = start + file.read(left)  # some file systems leave zeros after a crash
            if not _CRC.startswith(start) and rest.strip(b"\0"):
                raise self._damaged("there is no record")

    def values(self, step: int) -> Values:
        """Return the digests of a step that is in ``steps``."""
        offset, start, number = self.steps[step]
        with open(self.path, "rb") as file:
            file.seek(offset)
            return Values(self.tables[number], json.loads(file.readline())["digests"], start)

    def _refused(self, rule: str) -> ValueError:
        return ValueError(f"fastseed.debug.bisect: path must be {rule}, got {str(self.path)!r}")

    def _damaged(self, how: str) -> ValueError:
        text = f"fastseed.debug.bisect: {str(self.path)!r} is damaged at byte {self.end}: {how}"
        return ValueError(text)

    def _parse(self, line: bytes) -> None:
        if f"{zlib.crc32(line[_REST:]):08x}".encode() != line[len(_CRC) : _REST]:
            raise self._damaged("the checksum of a line is wrong")
        try:
            self._take(strict_json.parse(line))
        except (ValueError, TypeError, LookupError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise self._damaged(f"a line is not of this format ({reason})") from error

    def _take(self, members: StateDict) -> None:
        if not self.header:
            if members["format"] != FORMAT:
                raise ValueError(f"format must be {FORMAT!r}, got {members['format']!r}")
            if type(members["rank"]) is not int or not isinstance(members["groups"], list):
                raise ValueError("rank must be an integer and groups a list")
            self.header = members
        elif "table" in members:
            rows = members["table"]
            self.tables.append(
                tuple(Entry(group, name, dtype, tuple(shape)) for group, name, dtype, shape in rows)
            )
        else:
            step, number = int(members["step"]), int(members["table_number"])
            digests, size = members["digests"], _DIGITS * len(self.tables[number])
            if not 2 * len(bytes.fromhex(digests)) == len(digests) == size:
                raise ValueError("the digests of a step must be those of its table")
            self.steps[step] = self.end, bool(members["start"]), number
