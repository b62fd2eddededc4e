"""Open and read regular files; a message completes the sentence "it must be …"."""

from __future__ import annotations

import os
import stat
from typing import IO

MOST = 1 << 26  # 64 MiB
_SPARSE = 1 << 30  # a file from this size on must have its bytes on the disk


def open_file(path: str | os.PathLike[str], most: int | None = None) -> IO[bytes]:
    """Open a regular file for reading, or raise ValueError."""
    check(os.stat(path), most)  # opening a device may act on it
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115
    try:
        check(os.fstat(file.fileno()), most)
    except BaseException:
        file.close()
        raise
    return file


def read(path: str | os.PathLike[str], most: int = MOST) -> bytes:
    """Return the bytes of a regular file of at most ``most`` bytes; see ``open_file``."""
    with open_file(path, most) as file:
        try:
            data = file.read(most + 1)
        except OSError as error:  # it names no file
            raise type(error)(error.errno, error.strerror, os.fspath(path)) from error
    if len(data) > most:  # it has grown, or reports no size, as files of /proc
        raise ValueError(f"a file of at most {most} bytes")
    return data


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting for the other end of a pipe that was not there a moment ago."""
    return os.open(path, flags | os.O_NONBLOCK)


def check(found: os.stat_result, most: int | None = None) -> None:
    """Refuse what is no regular file, a sparse giant, and a file of more than ``most`` bytes."""
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("a regular file")
    if found.st_size >= _SPARSE and found.st_blocks * 512 < found.st_size // 100:
        raise ValueError("a file whose bytes are on the disk, not a sparse one")
    if most is not None and found.st_size > most:
        raise ValueError(f"a file of at most {most} bytes")
