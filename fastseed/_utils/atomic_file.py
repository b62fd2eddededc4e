"""Atomic file writes: a reader finds the old content or the new content, never a part."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from pathlib import Path

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def replace(path: str | os.PathLike[str], content: bytes, *, durable: bool = False) -> None:
    """Write ``content`` to a temporary file beside ``path`` and rename it over ``path``.

    A symbolic link is replaced. An existing file keeps its permissions. A device or a pipe
    (``/dev/stdout``) is written to directly. A process that is killed leaves ``path`` as it was,
    and ``.<name>.tmp``, which the next write of ``path`` removes. ``durable`` flushes both.
    """
    path = Path(path)
    try:
        _replace(path, content, durable)
    except OSError as error:  # name the file that was requested, also where the disk is full
        raise type(error)(error.errno, error.strerror, str(path)) from error


def _replace(path: Path, content: bytes, durable: bool) -> None:
    before = path.stat().st_mode if path.exists() else None
    if before is not None and not stat.S_ISREG(before) and not stat.S_ISDIR(before):
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # raises for a pipe without a reader
        os.set_blocking(handle, True)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        return
    handle, temporary = _open_temporary(path, 0o666 if before is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            if before is not None:
                os.chmod(temporary, stat.S_IMODE(before))
            file.write(content)
            file.flush()
            if durable:
                os.fsync(handle)
            os.replace(temporary, path)  # while the file is locked
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        flush_folder(path.parent)


def _open_temporary(path: Path, mode: int) -> tuple[int, Path]:
    """Open a new file beside ``path``, locked while it is written: without a lock it was left."""
    temporary = path.parent / f".{path.name[:100]}.tmp"
    with contextlib.suppress(OSError):  # there is none, or it is written now
        left = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(left).st_nlink:
                os.unlink(temporary)
        finally:
            os.close(left)
    with contextlib.suppress(FileExistsError):
        handle = os.open(temporary, _FLAGS, mode)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle, temporary
        os.close(handle)  # another process took it for one that was left
    temporary = temporary.with_suffix(f".{secrets.token_hex(8)}.tmp")
    return os.open(temporary, _FLAGS, mode), temporary


def flush_folder(folder: Path) -> None:
    """Flush new names in a folder to the disk, where the file system can."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)
