"""Writing a file so that whoever reads it finds the old one or the new one, whole."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


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
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    except OSError as error:  # name the file that was asked for
        raise type(error)(error.errno, error.strerror, str(path)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # mkstemp's 0600 would keep a CI's other users out
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
