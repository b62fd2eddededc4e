"""Read files that are known to be small, whatever is found under their name."""

from __future__ import annotations

import os
import stat

MOST = 1 << 26  # 64 MiB


def read(path: str | os.PathLike[str], most: int = MOST) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        ValueError: it is not a regular file, or is larger than ``most`` bytes. The message
            completes the sentence "it must be …".
        OSError: it cannot be read.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait
        raise ValueError("a regular file")
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size <= most:
            data = file.read(most + 1)
            if len(data) <= most:  # it may have grown
                return data
    raise ValueError(f"a file of at most {most} bytes")
