"""The environment of a run: captured into a folder, read back, and compared.

    from fastseed.tools import environment

    environment.capture("runs/42/environment")
    for difference in environment.diff("runs/41/environment", "runs/42/environment"):
        print(difference.level, difference.path, difference.before, difference.after)

``docs/environment.md`` has the format, and what is stored as a value and what as a keyed hash.
"""

from __future__ import annotations

import logging
import math
import os
from typing import Any

from ..._utils import validation
from . import storage
from .comparison import Difference, compare, summary
from .storage import FORMAT, VERSION, Capture

__all__ = ["FORMAT", "VERSION", "Capture", "Difference", "capture", "diff", "load", "summary"]

logger = logging.getLogger("fastseed")


def capture(
    directory: str | os.PathLike[str] | None = None,
    *,
    clocks: bool = False,
    patches: bool = False,
    overwrite: bool = False,
    key: str | os.PathLike[str] | None = None,
    timeout: float = 10.0,
) -> Capture:
    """Capture the environment of this process, and write it to ``directory``.

    Generates no random numbers, changes no switch and initialises no GPU. Values that may be secret
    (most environment variables, paths, the command line, uncommitted changes) are stored as hashes
    with a key that the capture does not hold.

    Args:
        directory: a new or empty folder; it gets mode 0700. None: only return the capture.
        clocks: also read the clocks and temperatures of GPUs; they differ between runs.
        patches: also store uncommitted changes as text, with every secret that is in them. Logs a
            warning.
        overwrite: replace a capture in ``directory``.
        key: the file with the key of the hashes, created if it does not exist; captures with the
            same key can be compared in full. None: ``FASTSEED_CAPTURE_KEY``, or else a file in
            the user's configuration folder.
        timeout: seconds for each external program, above 0.

    Returns:
        The capture. ``header["problems"]`` lists what could not be read.

    Raises:
        TypeError, ValueError: an argument is invalid, or the folder holds something else.
        OSError: the folder or the key cannot be read or written.

    Example:
        >>> import pathlib, tempfile
        >>> from fastseed.tools import environment
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> found = environment.capture(folder / "a", key=folder / "key")
        >>> found.sections["variables"].get("HOME", "hmac:")[:5]
        'hmac:'
        >>> environment.diff(folder / "a", found)
        []
    """
    for name, flag in (("clocks", clocks), ("patches", patches), ("overwrite", overwrite)):
        validation.check_bool("environment.capture", name, flag)
    if not validation.check_float("environment.capture", "timeout", timeout, 0, math.inf):
        raise validation.value_error("environment.capture", "timeout", "above 0", timeout)
    path = None
    if directory is not None:
        path = storage.check_path("capture", "directory", directory)
        storage.check_free(path, overwrite)  # before the work
    key_file = None if key is None else storage.check_path("capture", "key", key)
    from .collect import collect

    found = collect(clocks=clocks, patches=patches, key=key_file, timeout=timeout)
    if found.patches:
        logger.warning(
            "fastseed.environment.capture: uncommitted changes are stored as text, with any secret "
            "that is in them (%s)",
            ", ".join(found.patches),
        )
    if path is not None:
        storage.write(path, found)
    return found


def load(directory: str | os.PathLike[str]) -> Capture:
    """Read the capture in ``directory``.

    Args:
        directory: the folder.

    Returns:
        The capture.

    Raises:
        TypeError: ``directory`` is not a path.
        ValueError: the folder holds no capture, a damaged one, or one of another version.

    Example:
        >>> import tempfile
        >>> from fastseed.tools import environment
        >>> folder = tempfile.mkdtemp()
        >>> found = environment.capture(folder, key=f"{folder}.key")
        >>> environment.load(folder) == found
        True
    """
    return storage.read(storage.check_path("load", "directory", directory))


def diff(
    a: Capture | str | os.PathLike[str], b: Capture | str | os.PathLike[str]
) -> list[Difference]:
    """Return the differences of two captures, most severe first.

    Hashes with different keys are not compared.

    Args:
        a: a capture, or its folder.
        b: the other capture, or its folder.

    Returns:
        One :class:`Difference` for each value that differs.

    Raises:
        TypeError, ValueError: as :func:`load`.

    Example:
        >>> from fastseed.tools import environment
        >>> a = environment.Capture({}, {"gpu": {"driver": "550.1"}}, {})
        >>> b = environment.Capture({}, {"gpu": {"driver": "550.2"}}, {})
        >>> [(one.level, one.path, one.after) for one in environment.diff(a, b)]
        [('critical', 'gpu/driver', '550.2')]
    """
    return compare(_loaded(a), _loaded(b))


def _loaded(value: Any) -> Capture:
    return value if isinstance(value, Capture) else load(value)
