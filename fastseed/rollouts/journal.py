"""A journal: lines that are appended, flushed to the disk and chained by SHA-256.

Each line is 64 hexadecimal digits, a space, and a JSON document. The digits are the SHA-256 of the
digits of the line before (none for the first) and the document. A process that is killed while it
appends leaves a last line without its end, which the next one removes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

from .._utils import JSON, StateDict, atomic_file, strict_json
from .._utils.validation import type_error, value_error

_DIGITS = 64


class Journal:
    """The one writer of a journal; a second one, in any process, is refused.

    Args:
        function: the public name for messages.
        path: the file; it is made if it does not exist.
        header: the document of the first line, which an existing journal must have.
    """

    def __init__(self, function: str, path: str, header: StateDict) -> None:
        self._function, self._path = function, Path(path)
        self._last, self._size = "", 0
        self._file = open(path, "a+b", buffering=0)  # noqa: SIM115
        try:
            self._claim()
            self._check(header)
            os.ftruncate(self._file.fileno(), self._size)
            if self._size == 0:
                self.append(header)
                atomic_file.flush_folder(self._path.parent)
        except BaseException:
            self._file.close()
            raise
        _open_journals.add(self)

    def _claim(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends
        except OSError as error:
            raise RuntimeError(
                f"fastseed.{self._function}: journal {self._path} is in use by another ledger; "
                "stop that trainer first, or give this one a journal of its own"
            ) from error

    def _check(self, header: StateDict) -> None:
        """Check all lines, and set the digits and the end of the last one."""
        for number, (digits, document, end) in enumerate(self._lines()):
            if number == 0 and document != header:
                theirs = document if isinstance(document, dict) else {}
                name = next((n for n in header if theirs.get(n) != header[n]), "format")
                rule = f"that of a ledger with {name} {header[name]!r}"
                argument = f"journal {self._path}"
                raise value_error(self._function, argument, rule, theirs.get(name))
            self._last, self._size = digits, end
        if self._size == 0 and not self._line(header).startswith(self._path.read_bytes()):
            raise value_error(self._function, "journal", "a journal or a new file", str(self._path))

    def _lines(self) -> Iterator[tuple[str, JSON, int]]:
        last, end = "", 0
        with open(self._path, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):  # torn: a process or the machine stopped there
                    return
                digits, text = line[:_DIGITS].decode("latin-1"), line[_DIGITS + 1 : -1]
                if not line.startswith(f"{_digest(last, text)} ".encode()):
                    raise ValueError(
                        f"fastseed.{self._function}: journal {self._path} must be undamaged, got "
                        f"another SHA-256 in line {number}; restore the file, or give a new name "
                        "(what was generated and not trained is then generated again)"
                    )
                last, end = digits, end + len(line)
                yield digits, strict_json.parse(text), end

    def records(self) -> Iterator[StateDict]:
        """Yield all documents but the header, in order."""
        lines = self._lines()
        next(lines)
        for _, document, _ in lines:
            yield document

    def append(self, document: StateDict) -> StateDict:
        """Write one line, wait until it is on the disk, and return the document as it was written.

        Raises:
            TypeError, ValueError: the document is not JSON.
            OSError: it cannot be written; the file is as before.
        """
        if self._file.closed:
            raise RuntimeError(f"fastseed.{self._function}: the journal was closed; make a new one")
        line = self._line(document)
        try:
            written = self._file.write(line)
            if written != len(line):
                raise OSError(f"{self._path}: {written} of {len(line)} bytes were written")
            os.fsync(self._file.fileno())
        except OSError:
            os.ftruncate(self._file.fileno(), self._size)
            raise
        self._last, self._size = line[:_DIGITS].decode(), self._size + len(line)
        found: StateDict = json.loads(line[_DIGITS + 1 :])
        return found

    def _line(self, document: StateDict) -> bytes:
        result = document.get("result")
        rule = "plain JSON, for the journal (such as token ids in lists, or the name of a file)"
        try:
            text = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
            strict_json.parse(text)
        except TypeError:
            raise type_error(self._function, "result", rule, result) from None
        except (ValueError, RecursionError):
            raise value_error(self._function, "result", rule, result) from None
        return f"{_digest(self._last, text)} ".encode() + text + b"\n"

    def close(self) -> None:
        """Let another ledger use the file."""
        self._file.close()


def _digest(last: str, text: bytes) -> str:
    return hashlib.sha256(last.encode("latin-1") + text).hexdigest()


_open_journals: weakref.WeakSet[Journal] = weakref.WeakSet()


def _close_in_child() -> None:
    """A forked producer must not hold the lock of a trainer that was killed."""
    for journal in list(_open_journals):
        journal.close()


os.register_at_fork(after_in_child=_close_in_child)
