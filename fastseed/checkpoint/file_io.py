"""Files that are there as a whole or not at all, and reading them without trusting their size.

A new file is written beside the old one, flushed, and renamed over it. While a process writes, it
holds a lock on its temporary file, which the system lets go when the process ends: a temporary file
without a lock has no writer any more.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable
from typing import Any

from .._utils import validation

_CHUNK = 1 << 20


class Damaged(ValueError):
    """These bytes are no checkpoint; the text says why, as the end of a sentence about them."""


def checked_path(function: str, path: Any) -> str:
    """``path`` as a string; TypeError or ValueError for what is none."""
    try:
        text = os.fsdecode(path)
    except TypeError as error:
        raise TypeError(
            f"fastseed.{function}: path must be a string or path, "
            f"got {validation.describe(path)} of type {type(path).__name__}"
        ) from error
    if not text or "\0" in text:
        raise ValueError(f"fastseed.{function}: path must name a file, got {text!r}")
    return text


def _regular(function: str, path: str) -> os.stat_result | None:
    """What is there; None for nothing, ValueError for anything but a file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise ValueError(f"fastseed.{function}: path must be a file, got {path!r}, which is {kind}")
    return found


# ------------------------------------------------------------------------------- reading


def read(function: str, path: str, first: int, check: Callable[[bytes, int], None]) -> bytes:
    """All of a file, after ``check(its first bytes, its size)`` has let it pass.

    Nothing is read before, and a large file is read only once its digest, SHA-256 in its last 32
    bytes, was found right piece by piece: a size that lies allocates nothing.
    """
    if _regular(function, path) is None:
        raise FileNotFoundError(f"fastseed.{function}: path must exist, got {path!r}")
    # Not blocking: were it replaced by a pipe just now, opening it would wait for a writer.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(fd, "rb", buffering=0) as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"fastseed.{function}: path must be a file, got {path!r}")
        size = found.st_size
        check(os.pread(fd, first, 0), size)
        if size > 16 * _CHUNK and not _has_digest(fd, size):
            raise Damaged("its checksum is wrong: it is damaged")
        data = bytearray()
        while len(data) < size:
            piece = file.read(min(size - len(data), 16 * _CHUNK))
            if not piece:
                break
            data += piece
        return bytes(data)


def _has_digest(fd: int, size: int) -> bool:
    digest, at, end = hashlib.sha256(), 0, size - hashlib.sha256().digest_size
    while at < end:
        piece = os.pread(fd, min(_CHUNK, end - at), at)
        if not piece:
            return False
        digest.update(piece)
        at += len(piece)
    return digest.digest() == os.pread(fd, size - end, end)


# ------------------------------------------------------------------------------- writing


def replace(function: str, path: str, data: bytes) -> None:
    """Make ``data`` the content of ``path``: after a crash at any point it is the old or the new.

    A link stays, and the file that it leads to is replaced; permissions are kept. Temporary files
    of writers of this very path that have ended are removed. The first 8 bytes of ``data`` say
    which files those can be.
    """
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    before = _regular(function, target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"fastseed.{function}: path must be in a folder that exists, got {path!r}"
        )
    prefix = f".fastseed-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}-"
    _sweep(folder, prefix, data[:8])
    fd, temporary = _open_locked(folder, prefix, 0o666 if before is None else 0o600)
    try:
        try:
            if before is not None:
                _take_permissions(fd, before)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view[:_CHUNK]) :]
            _flush(fd)
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    finally:
        os.close(fd)
    _flush_folder(folder)


def _open_locked(folder: str, prefix: str, mode: int) -> tuple[int, str]:
    while True:
        temporary = os.path.join(folder, f"{prefix}{secrets.token_hex(8)}.tmp")
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # somebody who cleans up came before us, and will remove it
            os.close(fd)
            continue
        except OSError:  # no locks here: then nobody cleans up either
            return fd, temporary
        if os.fstat(fd).st_nlink:
            return fd, temporary
        os.close(fd)


def _take_permissions(fd: int, before: os.stat_result) -> None:
    # Before the mode, of which it clears bits. A member of the group may still keep that.
    try:
        os.fchown(fd, before.st_uid, before.st_gid)
    except PermissionError:
        with contextlib.suppress(PermissionError):
            os.fchown(fd, -1, before.st_gid)
    os.fchmod(fd, stat.S_IMODE(before.st_mode))


def _flush(fd: int) -> None:
    full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync leaves it in the drive's cache
    if full is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, full)
            return
    os.fsync(fd)


def _flush_folder(folder: str) -> None:
    """So that the new name is on the disk too; some file systems have no such thing."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def _sweep(folder: str, prefix: str, magic: bytes) -> None:
    """Remove what writers of the same path left behind that have ended."""
    ours = re.compile(re.escape(prefix) + r"[0-9a-f]{16}\.tmp")
    with os.scandir(folder) as entries:
        found = [e.path for e in entries if ours.fullmatch(e.name)]
    for path in found:
        with contextlib.suppress(OSError):
            _remove_if_left(path, magic)


def _remove_if_left(path: str, magic: bytes) -> None:
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        there = os.fstat(fd)
        if not stat.S_ISREG(there.st_mode) or there.st_uid != os.geteuid():
            return
        if not magic.startswith(os.pread(fd, len(magic), 0)):
            return  # a name like ours, but not our content
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: it has a writer
        if os.path.samestat(there, os.lstat(path)):
            os.unlink(path)
    finally:
        os.close(fd)
