"""Atomic file writes: a reader finds the old content or the new content, never a part."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def replace(path: str | os.PathLike[str], content: bytes, *, durable: bool = False) -> None:
    """Write ``content`` to a temporary file beside ``path`` and rename it over ``path``.

    A symbolic link is replaced. An existing file keeps its permissions. A device or a pipe
    (``/dev/stdout``) is written to directly. A process that is killed leaves its temporary file,
    ``.<name>.<16 hexadecimal digits>.tmp``, and ``path`` as it was. ``durable`` flushes both.
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
    temporary = path.parent / f".{path.name[:100]}.{secrets.token_hex(8)}.tmp"
    handle = os.open(temporary, _FLAGS, 0o666 if before is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            if before is not None:
                os.chmod(temporary, stat.S_IMODE(before))
            file.write(content)
            if durable:
                file.flush()
                os.fsync(handle)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        flush_folder(path.parent)


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
