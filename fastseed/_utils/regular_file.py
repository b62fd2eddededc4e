"""Open files of unknown origin: a pipe, a socket or a device is refused, and never waited for."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO


def open_to_read(path: str | os.PathLike[str], *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading; ``follow=False`` also refuses a symbolic link.

    Raises:
        ValueError: it is not a regular file; the message completes the sentence "it must be …".
        OSError: it cannot be opened.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise ValueError("a regular file") from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("a regular file")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise
