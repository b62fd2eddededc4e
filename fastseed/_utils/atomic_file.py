"""Writing a file so that whoever reads it finds the old one or the new one, whole."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

_BINARY = getattr(os, "O_BINARY", 0)  # Windows


def replace(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write ``content`` to a file of an unforeseeable name beside ``path``, and rename it.

    A symbolic link at ``path`` is replaced, not followed; what is there and no file
    (``/dev/stdout``, a pipe) is written to.

    Raises:
        OSError: as :func:`open` does, with ``path`` as its file.
    """
    path = Path(path)
    if _is_device(path):
        path.write_bytes(content)
        return path
    name = path.parent / f".{path.name[:100]}.{secrets.token_hex(8)}"
    try:
        # The mode is what the umask makes of it, as for any new file.
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
    except OSError as error:  # name the file that was asked for
        raise type(error)(error.errno, error.strerror, str(path)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return path


def _is_device(path: Path) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
