"""The results of a ledger: rows of an SQLite file, on the disk when ``add`` returns.

One connection holds the file's lock from the first statement to the last. Each row is a JSON
document, or a list of them, and its SHA-256; row 0 is the header. One statement adds a row, and is
a transaction: a kill, an interrupt or an error leaves all of it or nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._utils import StateDict, regular_file, strict_json
from .._utils.validation import type_error, value_error
from . import ledger_state

if TYPE_CHECKING:
    import sqlite3

_LEDGER_FILE = "a new file, or one of a ledger"
_PAGE = 64  # rows that are read at once
_TABLE = "CREATE TABLE rows (id INTEGER PRIMARY KEY, document BLOB NOT NULL, sha256 BLOB NOT NULL)"


class Results:
    """The one user of a file of results, whose header identifies the job; a second is refused."""

    def __init__(self, function: str, path: str, header: StateDict) -> None:
        self._function, self._path = function, os.path.abspath(path)
        self._connection: sqlite3.Connection | None = None
        self._files: list[tuple[str, tuple[int, int] | None]] = []
        self._check_file()
        try:
            import sqlite3
        except ImportError as error:
            raise RuntimeError(
                f"fastseed.{function}: results needs the module sqlite3, which this Python was "
                "built without; leave results out, or use another build of Python"
            ) from error
        with self._house_errors():
            connection = sqlite3.connect(
                self._path, timeout=0, isolation_level=None, check_same_thread=False
            )
        # A forked child that ends must not close it: that would end the log of this process.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self._finalizer = weakref.finalize(self, _close, connection, os.getpid())
        self._connection = connection
        try:
            self._open(header)
        except BaseException:
            self.close()
            raise

    def _check_file(self) -> None:
        """Refuse a pipe, a device or a folder; nothing opens it, which would release our locks."""
        try:
            found = os.stat(self._path)
            regular_file.check(found)
            if 0 < found.st_size < 100:  # SQLite may take it for an empty file
                raise ValueError(_LEDGER_FILE)
        except FileNotFoundError:
            return
        except ValueError as error:
            raise value_error(self._function, "results", str(error), self._path) from None

    def _open(self, header: StateDict) -> None:
        self._run("PRAGMA locking_mode = EXCLUSIVE")
        self._run("BEGIN EXCLUSIVE")  # the lock stays when the transaction ends
        is_new = self._run("SELECT count(*) FROM sqlite_master") == [(0,)]
        self._run("ROLLBACK")
        if not is_new:
            self._check(header)
        self._run("PRAGMA journal_mode = WAL")
        self._run("PRAGMA synchronous = FULL")
        if is_new:
            self._run("BEGIN EXCLUSIVE")
            self._run(_TABLE)
            self._insert(0, self._write(header)[0])
            self._run("COMMIT")
        self._files = [(path, _identity(path)) for path in (self._path, f"{self._path}-wal")]

    def _check(self, header: StateDict) -> None:
        """Check the structure of the file, and that it belongs to the same job."""
        names = self._run("SELECT name FROM sqlite_master")
        if names != [("rows",)]:
            raise value_error(self._function, "results", _LEDGER_FILE, self._path)
        if self._run("PRAGMA quick_check") != [("ok",)]:
            raise self._damaged("the structure of the file")
        headers = list(self.rows("id = 0"))
        if not headers:
            raise self._damaged("no header")
        [(_, theirs)] = headers
        ledger_state.check(self._function, f"results {self._path}", header, theirs)
        if theirs != header:  # more epochs
            self._insert(0, self._write(header)[0])

    def rows(self, where: str = "id > 0") -> Iterator[tuple[int, StateDict]]:
        """Yield documents as they were added, each with its row; a page of rows is in memory."""
        last, page = -1, f"WHERE {where} AND id > ? ORDER BY id LIMIT {_PAGE}"
        while rows := self._run(f"SELECT id, document, sha256 FROM rows {page}", (last,)):
            for last, document, digest in rows:
                if not isinstance(document, bytes) or hashlib.sha256(document).digest() != digest:
                    raise self._damaged(f"another SHA-256 in row {last}")
                found = strict_json.parse(document)
                for one in found if isinstance(found, list) else [found]:
                    yield last, one

    def add(self, documents: list[StateDict]) -> list[StateDict]:
        """Add a row, wait until it is on the disk, and return the documents as they are in it."""
        texts, found = zip(*map(self._write, documents), strict=True)
        if self._connection is not None and self._is_moved():
            raise OSError(
                f"fastseed.{self._function}: results {self._path} must be the file that was "
                "opened, got another one or none: it was deleted, moved or replaced since"
            )
        self._insert(None, texts[0] if len(texts) == 1 else b"[%b]" % b",".join(texts))
        return list(found)

    def delete_to(self, number: int) -> None:
        self._run(f"DELETE FROM rows WHERE id BETWEEN 1 AND {number}")

    def _write(self, document: StateDict) -> tuple[bytes, StateDict]:
        result = document.get("result")
        rule = "plain JSON, for the file of results (such as token ids in lists, or a file's name)"
        try:
            text = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
            found: Any = strict_json.parse(text)
        except TypeError:
            raise type_error(self._function, "result", rule, result) from None
        except (ValueError, RecursionError):
            raise value_error(self._function, "result", rule, result) from None
        return text, found

    def _insert(self, number: int | None, text: bytes) -> None:
        row = (number, text, hashlib.sha256(text).digest())
        self._run("REPLACE INTO rows VALUES (?, ?, ?)", row)

    def _run(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        if self._connection is None:
            raise RuntimeError(
                f"fastseed.{self._function}: the file of results was closed; make a new ledger"
            )
        with self._house_errors():
            return self._connection.execute(statement, values).fetchall()

    @contextlib.contextmanager
    def _house_errors(self) -> Iterator[None]:
        """Turn errors of SQLite into ours; the statement changed nothing then."""
        import sqlite3

        try:
            yield
        except (sqlite3.OperationalError, sqlite3.DataError) as error:  # also one that is too big
            if "locked" in str(error):
                raise RuntimeError(
                    f"fastseed.{self._function}: results {self._path} are in use by another "
                    "ledger, or their file system has no locks; stop that trainer first, or use "
                    "another file"
                ) from error
            raise OSError(
                f"fastseed.{self._function}: results {self._path} must be readable and writable, "
                f"got the error of SQLite: {error}"
            ) from error
        except (sqlite3.Error, UnicodeDecodeError) as error:  # also a message with damaged names
            raise self._damaged(str(error)) from error

    def _damaged(self, what: str) -> ValueError:
        return ValueError(
            f"fastseed.{self._function}: results {self._path} must be undamaged, got {what}; "
            "restore the file, or give a new name, and results are generated again"
        )

    def _is_moved(self) -> bool:
        """Return whether the file has another name by now, or none: writing would succeed."""
        return any(_identity(path) != identity for path, identity in self._files)

    def close(self) -> None:
        """Let another ledger use the file; one that took its name is left alone."""
        self._connection = None
        if self._is_moved():
            self._finalizer.detach()
        self._finalizer()


def _close(connection: sqlite3.Connection, process: int) -> None:
    if os.getpid() == process:
        connection.close()
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(connection))


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
